"""Whatever the writer does, the playout buffer loses, repeats and reorders nothing."""

import sys
import threading
from array import array
from collections import defaultdict, deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cc_tts.audio import AudioFormat
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.playout_events import (
    PlayoutEvent,
    PlayoutFinished,
    PlayoutOverflow,
    PlayoutProgress,
    PlayoutStarted,
    PlayoutUnderrun,
)

pytestmark = pytest.mark.unit

MAX_BUFFERED_MS = 300
FORMAT = AudioFormat(1000)  # 20 samples a frame keeps the sequences short

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 80)),
        st.tuples(st.just("write"), st.integers(0, 90)),
        st.tuples(st.just("read"), st.integers(1, 4)),
        st.tuples(
            st.sampled_from(["finish", "await more", "cut newest", "cut oldest", "cut all", "pause", "resume"]),
            st.just(0),
        ),
    ),
    max_size=80,
)


class Writer:
    """Drives a buffer; every sample ever written has a number of its own, from 1 up."""

    def __init__(self, fade_ms: float) -> None:
        self.events: deque[PlayoutEvent] = deque()
        self.buffer = PlayoutBuffer(FORMAT, max_buffered_ms=MAX_BUFFERED_MS, events=self.events.append, fade_ms=fade_ms)
        self.written: dict[str, list[int]] = {}
        self.newest: str | None = None
        self.is_open = False
        self.frames: list[bytes] = []
        self._next_sample = 1

    def step(self, verb: str, number: int) -> None:  # noqa: C901 a table of verbs
        match verb:
            case "begin" if not self.is_open:
                self.newest = f"u{len(self.written)}"
                self.written[self.newest] = []
                self.buffer.begin(self.newest, number)
                self.is_open = True
            case "write" if self.is_open and self.newest:
                numbered = list(range(self._next_sample, self._next_sample + number))
                try:
                    self.buffer.write(self.newest, array("h", numbered).tobytes())
                except PlayoutOverflow:
                    return
                self._next_sample += number
                self.written[self.newest] += numbered
            case "finish" if self.is_open and self.newest:
                self.buffer.finish(self.newest)
                self.is_open = False
            case "await more" if self.is_open and self.newest:
                self.buffer.await_more(self.newest)
            case "read":
                self.frames += [self.buffer.read_frame(0) for _ in range(number)]
            case "cut newest" if self.newest:
                self.buffer.cut(self.newest)
                self.is_open = False
            case "cut oldest" if self.written and self.newest != "u0":
                self.buffer.cut("u0")
            case "cut all":
                self.buffer.cut(None)
                self.is_open = False
            case "pause":
                self.buffer.pause()
            case "resume":
                self.buffer.resume()

    def drain(self) -> None:
        self.step("finish", 0)
        self.step("resume", 0)
        self.step("read", 40)


@given(STEPS)
def test_every_sample_leaves_once_in_order_or_was_cut(steps: list[tuple[str, int]]) -> None:
    writer = Writer(fade_ms=0)
    for verb, number in steps:
        writer.step(verb, number)
    writer.drain()

    assert {len(frame) for frame in writer.frames} == {FORMAT.frame_bytes}
    finished = [event for event in writer.events if isinstance(event, PlayoutFinished)]
    assert [event.utterance_id for event in finished if event.cause == "drained"] == [
        utterance_id
        for utterance_id in writer.written
        if utterance_id in {event.utterance_id for event in finished if event.cause == "drained"}
    ]
    assert sorted(event.utterance_id for event in finished) == sorted(writer.written)
    expected: list[int] = []
    played = {event.utterance_id: round(FORMAT.samples_for_ms(event.played_ms)) for event in finished}
    for utterance_id, numbered in writer.written.items():
        expected += numbered[: played[utterance_id]]
    for event in finished:
        if event.cause == "drained":
            assert played[event.utterance_id] == len(writer.written[event.utterance_id])
    assert [sample for sample in array("h", b"".join(writer.frames)) if sample] == expected
    writer.buffer.begin("the next", 0)
    writer.buffer.write("the next", bytes(FORMAT.bytes_for_ms(MAX_BUFFERED_MS)))  # all room is back


@given(STEPS)
@example([("begin", 0), ("write", 10), ("write", 90), ("read", 3), ("await more", 0), ("read", 3)])
def test_events_of_an_utterance_come_in_order(steps: list[tuple[str, int]]) -> None:
    writer = Writer(fade_ms=5)
    for verb, number in steps:
        writer.step(verb, number)
    writer.drain()

    by_utterance: dict[str, list[PlayoutEvent]] = defaultdict(list)
    for event in writer.events:
        by_utterance[event.utterance_id].append(event)
    assert by_utterance.keys() == writer.written.keys()
    for events in by_utterance.values():
        *before, last = events
        assert isinstance(last, PlayoutFinished)
        assert not any(isinstance(event, PlayoutFinished) for event in before)
        if last.played_ms:
            assert isinstance(events[0], PlayoutStarted)
        assert sum(isinstance(event, PlayoutStarted) for event in events) == bool(last.played_ms)
        assert last.underruns == sum(isinstance(event, PlayoutUnderrun) for event in events)
        progress = [event.played_ms for event in events if isinstance(event, PlayoutProgress)]
        assert progress == sorted(set(progress))


@given(STEPS)
def test_fades_take_nothing_away_and_add_nothing(steps: list[tuple[str, int]]) -> None:
    """With fades the same number of samples leaves, each at most as loud as it was written."""
    plain, faded = Writer(fade_ms=0), Writer(fade_ms=5)
    for writer in (plain, faded):
        for verb, number in steps:
            if not verb.startswith("cut") and verb != "pause":
                writer.step(verb, number)
        writer.drain()
    played = [
        [(event.utterance_id, event.played_ms) for event in writer.events if isinstance(event, PlayoutFinished)]
        for writer in (plain, faded)
    ]
    assert played[0] == played[1]
    before = array("h", b"".join(plain.frames))
    after = array("h", b"".join(faded.frames))
    assert all(new <= old for old, new in zip(before, after, strict=True) if old)


def test_writer_and_clock_on_two_threads_lose_nothing() -> None:
    """No lock on the clock's side: threads that switch every 10 µs must not find a state that does not hold."""
    num_utterances, piece = 30, array("h", range(1, 51)).tobytes()
    events: deque[PlayoutEvent] = deque()
    buffer = PlayoutBuffer(FORMAT, max_buffered_ms=200, events=events.append, fade_ms=0)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for index in range(num_utterances):
                buffer.begin(str(index), 40)
                for _ in range(20):
                    while True:
                        try:
                            buffer.write(str(index), piece)
                        except PlayoutOverflow:
                            continue
                        break
                if index % 3:
                    buffer.finish(str(index))
                else:
                    buffer.cut(str(index))
        except BaseException as error:  # noqa: BLE001 raised again by the test
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    writer = threading.Thread(target=write)
    frames = []
    try:
        writer.start()
        while writer.is_alive():
            frames.append(buffer.read_frame(0))
        while len([event for event in events if isinstance(event, PlayoutFinished)]) < num_utterances:
            frames.append(buffer.read_frame(0))
    finally:
        sys.setswitchinterval(interval)
        writer.join()
    assert not failures
    finished = [event for event in events if isinstance(event, PlayoutFinished)]
    assert [(event.utterance_id, event.cause) for event in finished] == [
        (str(index), "drained" if index % 3 else "cut") for index in range(num_utterances)
    ]
    expected = [
        sample for event in finished for sample in (array("h", piece) * 20)[: FORMAT.samples_for_ms(event.played_ms)]
    ]
    assert [sample for sample in array("h", b"".join(frames)) if sample] == expected
