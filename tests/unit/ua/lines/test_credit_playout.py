"""Audio in the queue of Asterisk: at most a window of it, marks say what was heard, a cut takes the rest back."""

from collections import deque

import pytest

from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_MS
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.playout_events import (
    PlayoutEvent,
    PlayoutFinished,
    PlayoutProgress,
    PlayoutStarted,
    PlayoutUnderrun,
)
from cc_tts.ua.lines.playout import CreditPlayout

pytestmark = pytest.mark.unit

FORMAT = AudioFormat(8000)
FRAME = FORMAT.frame_bytes
TICK_NS = 20 * NS_PER_MS
WINDOW_MS = 200
LOUD = b"\x00\x20"


class Asterisk:
    """A queue that is played a frame a tick, and says when it comes to a mark."""

    def __init__(self) -> None:
        self.queue: deque[bytes | int] = deque()
        self.played: list[bytes] = []
        self.confirmed: list[int] = []
        self.num_flushes = 0
        self.most = 0

    def send(self, pcm: bytes) -> None:
        assert len(pcm) % FRAME == 0, "whole frames"
        self.queue.extend(pcm[start : start + FRAME] for start in range(0, len(pcm), FRAME))
        self.most = max(self.most, self.num_frames)

    def mark(self, number: int) -> None:
        self.queue.append(number)

    def flush(self) -> None:
        self.queue.clear()
        self.num_flushes += 1

    @property
    def num_frames(self) -> int:
        return sum(isinstance(each, bytes) for each in self.queue)

    def play(self) -> None:
        """As chan_websocket does at its timer: marks up to the next frame, then that."""
        while self.queue:
            item = self.queue.popleft()
            if isinstance(item, bytes):
                self.played.append(item)
                return
            self.confirmed.append(item)


class Line:
    """A playout with a buffer before it and Asterisk behind, in steps of a tick."""

    def __init__(self) -> None:
        self.asterisk = Asterisk()
        self.events: list[PlayoutEvent] = []
        fresh: deque[PlayoutEvent] = deque()
        self.buffer = PlayoutBuffer(FORMAT, max_buffered_ms=5000, events=fresh.append)
        self.playout = CreditPlayout(
            self.buffer, self.asterisk, audio_format=FORMAT, window_ms=WINDOW_MS, fresh=fresh, emit=self.events.append
        )
        self.now_ns = 0
        self.heard: list[bytes] = []

    def run(self, num_ticks: int, *, is_played: bool = True) -> None:
        for _ in range(num_ticks):
            self.now_ns += TICK_NS
            self.heard.append(self.playout.tick(self.now_ns))
            if is_played:
                self.asterisk.play()
                while self.asterisk.confirmed:
                    self.playout.confirm(self.asterisk.confirmed.pop(0), self.now_ns)

    def say(self, name: str, num_frames: int, *, is_whole: bool = True) -> None:
        self.buffer.begin(name, 20)
        self.buffer.write(name, LOUD * (FRAME // 2 * num_frames))
        if is_whole:
            self.buffer.finish(name)

    def told(self, kind: type[PlayoutEvent], name: str) -> list[PlayoutEvent]:
        return [event for event in self.events if isinstance(event, kind) and event.utterance_id == name]

    def finished(self, name: str) -> PlayoutFinished:
        (event,) = self.told(PlayoutFinished, name)
        assert isinstance(event, PlayoutFinished)
        return event


def is_loud(frame: bytes) -> bool:
    return frame == LOUD * (FRAME // 2)


def test_it_is_heard_whole_and_the_queue_never_has_more_than_the_window() -> None:
    line = Line()
    line.say("a", 50)
    line.run(60)
    assert line.asterisk.most == WINDOW_MS // 20
    assert sum(map(is_loud, line.asterisk.played)) == 50
    assert (line.finished("a").cause, line.finished("a").played_ms, line.finished("a").underruns) == (
        "drained",
        1000,
        0,
    )
    (started,) = line.told(PlayoutStarted, "a")
    assert line.finished("a").at_ns - started.at_ns == 49 * TICK_NS, "events come when it is heard, not when it is sent"


def test_without_a_prompt_there_is_silence_and_no_backlog() -> None:
    line = Line()
    line.run(500)
    assert len(line.asterisk.played) >= 498, "no tick without a frame"
    assert line.asterisk.most <= 2


def test_a_mark_that_does_not_come_stops_the_count_of_what_was_heard() -> None:
    line = Line()
    line.say("a", 50)
    line.run(30, is_played=False)
    progress = line.told(PlayoutProgress, "a")
    assert progress == line.told(PlayoutProgress, "a")[:1], "the first mark is after 100 ms"
    assert line.asterisk.most == WINDOW_MS // 20
    line.run(80)
    assert line.finished("a").played_ms == 1000


def test_a_cut_empties_the_queue_and_counts_what_was_heard() -> None:
    line = Line()
    line.say("a", 50)
    line.run(12)
    num_heard = sum(map(is_loud, line.asterisk.played))
    line.playout.cut("a")
    line.run(5)
    assert line.asterisk.num_flushes == 1
    assert sum(map(is_loud, line.asterisk.played)) == num_heard
    finished = line.finished("a")
    assert finished.cause == "cut"
    assert finished.played_ms == pytest.approx(num_heard * 20, abs=20)
    assert not is_loud(line.asterisk.played[num_heard]), "it ends with a ramp"


def test_a_cut_of_one_prompt_leaves_the_next_one_whole() -> None:
    line = Line()
    line.say("a", 6)
    line.say("b", 10)
    line.run(4)
    line.playout.cut("a")
    line.run(20)
    assert line.finished("a").cause == "cut"
    assert (line.finished("b").cause, line.finished("b").played_ms) == ("drained", 200)
    assert sum(map(is_loud, line.asterisk.played[4:])) == 10


def test_a_cut_of_all_ends_what_waits_unheard() -> None:
    line = Line()
    line.say("a", 6)
    line.say("b", 30)
    line.run(3)
    line.playout.cut(None)
    line.run(3)
    assert line.finished("b").played_ms == 0
    assert line.told(PlayoutStarted, "b") == []
    line.say("c", 3)
    line.run(10)
    assert line.finished("c").played_ms == 60


def test_a_pause_is_silence_at_once_and_nothing_is_lost() -> None:
    line = Line()
    line.say("a", 30)
    line.run(10)
    line.playout.set_paused(paused=True, restart=None)
    line.run(20)
    num_heard = sum(map(is_loud, line.asterisk.played))
    assert num_heard <= 10
    line.playout.set_paused(paused=False, restart=None)
    line.run(40)
    assert sum(map(is_loud, line.asterisk.played)) == pytest.approx(30, abs=1), "a frame at most is heard twice"
    assert line.finished("a").played_ms == 600


def test_a_prompt_goes_on_from_a_moment_before_the_pause() -> None:
    line = Line()
    line.say("a", 40)
    line.run(25)
    line.playout.set_paused(paused=True, restart=None)
    line.run(2)
    num_heard = sum(map(is_loud, line.asterisk.played))
    line.playout.set_paused(paused=False, restart=("a", 200.0))
    line.run(60)
    assert line.finished("a").played_ms == 800
    assert sum(map(is_loud, line.asterisk.played)) == pytest.approx(num_heard + 30, abs=1)


def test_a_window_ahead_is_no_underrun_and_running_dry_is_one() -> None:
    line = Line()
    line.say("a", 20, is_whole=False)
    line.run(15)
    line.buffer.write("a", LOUD * (FRAME // 2 * 5))
    line.run(4)
    assert line.told(PlayoutUnderrun, "a") == []
    line.run(20)
    line.buffer.write("a", LOUD * (FRAME // 2 * 5))
    line.buffer.finish("a")
    line.run(20)
    assert len(line.told(PlayoutUnderrun, "a")) == 1
    assert line.finished("a").played_ms == 600


def test_what_is_mixed_in_is_heard_soon() -> None:
    """A tone of a recording, say: then only so much is ahead as is needed."""
    line = Line()
    line.say("a", 30)
    line.run(5)
    line.playout.set_shape(lambda _now_ns, pcm: pcm[::-1])
    line.run(3)
    assert line.asterisk.played[-1] == (LOUD * (FRAME // 2))[::-1]
    line.run(30)
    assert line.asterisk.num_frames <= 3
    assert line.finished("a").played_ms == 600


def test_what_is_mixed_in_goes_on_in_a_pause() -> None:
    """A recording with its tone, say: it has what the caller says meanwhile."""
    line = Line()
    shaped: list[bytes] = []

    def shape(_now_ns: int, pcm: bytes) -> bytes:
        shaped.append(pcm)
        return pcm

    line.say("a", 40)
    line.run(20)
    line.playout.set_shape(shape)
    line.run(5)
    line.playout.set_paused(paused=True, restart=None)
    line.run(1)
    num_heard, num_shaped = sum(map(is_loud, line.asterisk.played)), len(shaped)
    line.run(50)
    assert len(shaped) - num_shaped == 50
    assert sum(map(is_loud, line.asterisk.played)) == num_heard, "the prompt does not"
    line.playout.set_paused(paused=False, restart=("a", 400.0))
    line.run(60)
    assert line.finished("a").played_ms == 800
    assert sum(map(is_loud, line.asterisk.played)) == pytest.approx(num_heard + 20, abs=1)


def test_a_full_queue_gets_no_more() -> None:
    line = Line()
    line.playout.is_full = True
    line.say("a", 5)
    line.run(5)
    assert line.asterisk.played == []
    line.playout.is_full = False
    line.run(10)
    assert line.finished("a").played_ms == 100
