"""The playout buffer, one row a tick: what the writer does before it, what leaves, what is reported."""

from array import array
from collections import deque
from itertools import groupby, pairwise

import pytest

from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_MS
from cc_tts.media.playout_buffer import MAX_QUEUED_UTTERANCES, MAX_STEP_BACK_MS, PlayoutBuffer
from cc_tts.media.playout_events import (
    PlayoutEvent,
    PlayoutFinished,
    PlayoutOverflow,
    PlayoutProgress,
    PlayoutSpeech,
    PlayoutStarted,
    PlayoutUnderrun,
)

pytestmark = pytest.mark.unit

FORMAT = AudioFormat(8000)
SAMPLES_PER_MS = 8
LEVELS = {"a": 1000, "b": 2000, "c": 3000}
"""Each utterance is a constant, so that a frame shows whose samples it carries."""
NAMES = {level: name for name, level in LEVELS.items()} | {0: "-"}


def pcm(level: int, ms: float) -> bytes:
    return array("h", [level] * round(ms * SAMPLES_PER_MS)).tobytes()


def samples(frames: bytes) -> list[int]:
    return array("h", frames).tolist()


def shown(frame: bytes) -> str:
    """Whose audio a frame carries, in order: ``a``, ``ab``, ``a-``, ``-`` for silence."""
    return "".join(NAMES[level] for level, _run in groupby(samples(frame)))


def named(event: PlayoutEvent) -> str:
    name = type(event).__name__.removeprefix("Playout").lower()
    match event:
        case PlayoutFinished():
            return f"{event.cause}({event.utterance_id},{event.played_ms:g})"
        case PlayoutUnderrun():
            return f"{name}({event.utterance_id},{event.missing_ms:g})"
        case PlayoutProgress():
            return f"{name}({event.utterance_id},{event.played_ms:g})"
        case _:
            return f"{name}({event.utterance_id})"


def new_buffer(*, max_buffered_ms: int = 2000, fade_ms: float = 0) -> tuple[PlayoutBuffer, deque[PlayoutEvent]]:
    events: deque[PlayoutEvent] = deque()
    buffer = PlayoutBuffer(FORMAT, max_buffered_ms=max_buffered_ms, events=events.append, fade_ms=fade_ms)
    return buffer, events


def act(buffer: PlayoutBuffer, action: str) -> None:
    """``begin a 40`` · ``write a 20`` · ``finish a`` · ``cut a`` · ``cut`` · ``pause`` · ``resume``."""
    verb, *words = action.split()
    match verb:
        case "begin":
            buffer.begin(words[0], int(words[1]))
        case "write":
            buffer.write(words[0], pcm(LEVELS[words[0]], float(words[1])))
        case "more":
            buffer.await_more(words[0])
        case "finish":
            buffer.finish(words[0])
        case "cut":
            buffer.cut(words[0] if words else None)
        case "pause":
            buffer.pause()
        case "resume":
            buffer.resume()
        case _:
            raise AssertionError(action)


Row = tuple[int, str, str, str]  # instant in ms, what the writer does before, the frame, the events

TABLES: dict[str, list[Row]] = {
    "nothing to play": [(0, "", "-", ""), (20, "", "-", "")],
    "starts at its threshold": [
        (0, "begin a 40", "-", ""),
        (20, "write a 20", "-", ""),
        (40, "write a 20", "a", "started(a) speech(a)"),
        (60, "finish a", "a", "drained(a,40)"),
        (80, "", "-", ""),
    ],
    "starts when finished, however short": [
        (0, "begin a 300; write a 5; finish a", "a-", "started(a) speech(a) drained(a,5)"),
        (20, "", "-", ""),
    ],
    "a threshold above the bound is lowered to it": [
        (0, "begin a 9000; write a 2000", "a", "started(a) speech(a)"),
    ],
    "nothing was ever written": [(0, "begin a 40; finish a", "-", "drained(a,0)")],
    "the next utterance fills the frame": [
        (0, "begin a 40; write a 50; finish a; begin b 40; write b 50; finish b", "a", "started(a) speech(a)"),
        (20, "", "a", ""),
        (40, "", "ab", "drained(a,50) started(b) speech(b)"),
        (60, "", "b", ""),
        (80, "", "b", "drained(b,50)"),
        (100, "", "-", ""),
    ],
    "padded when the next one cannot start now": [
        (0, "begin a 20; write a 30; finish a; begin b 40; write b 20", "a", "started(a) speech(a)"),
        (20, "", "a-", "drained(a,30)"),
        (40, "", "-", ""),
        (60, "write b 20", "b", "started(b) speech(b)"),
    ],
    "several short utterances in one frame": [
        (
            0,
            "begin a 20; write a 5; finish a; begin b 20; write b 5; finish b; begin c 20; write c 5; finish c",
            "abc-",
            "started(a) speech(a) drained(a,5) started(b) speech(b) drained(b,5) started(c) speech(c) drained(c,5)",
        ),
    ],
    "underrun: silence until half the threshold is there again": [
        (0, "begin a 80; write a 90", "a", "started(a) speech(a)"),
        (20, "", "a", ""),
        (40, "", "a", ""),
        (60, "", "a", ""),
        (80, "", "a-", ""),
        (100, "", "-", ""),
        (120, "write a 20", "-", ""),
        (140, "write a 20", "a", "underrun(a,50) progress(a,110)"),
        (160, "finish a", "a", "drained(a,130)"),
    ],
    "underrun at the edge of a frame": [
        (0, "begin a 20; write a 20", "a", "started(a) speech(a)"),
        (20, "", "-", ""),
        (40, "write a 20", "a", "underrun(a,20)"),
    ],
    "ran dry because no text came: no underrun, and it starts at its threshold again": [
        (0, "begin a 40; write a 50; more a", "a", "started(a) speech(a)"),
        (20, "", "a", ""),
        (40, "", "a-", "progress(a,50)"),
        (60, "", "-", ""),
        (80, "write a 20", "-", ""),
        (100, "write a 20; finish a", "a", ""),
        (120, "", "a", "drained(a,90)"),
    ],
    "audio that is short of the threshold is played when no text is there": [
        (0, "begin a 300; write a 30", "-", ""),
        (20, "more a", "a", "started(a) speech(a)"),
        (40, "", "a-", "progress(a,30)"),
        (60, "finish a", "-", "drained(a,30)"),
    ],
    "it ran dry just before it was known that no text is there": [
        (0, "begin a 20; write a 20", "a", "started(a) speech(a)"),
        (20, "", "-", ""),
        (40, "more a", "-", ""),
        (60, "write a 40", "a", ""),
        (80, "", "a", ""),
        (100, "", "-", ""),
        (120, "write a 20", "a", "underrun(a,20)"),
    ],
    "cut while it waits for text": [
        (0, "begin a 20; write a 20; more a", "a", "started(a) speech(a)"),
        (20, "", "-", "progress(a,20)"),
        (40, "cut a", "-", "cut(a,20)"),
        (60, "begin b 20; write b 20; more b", "b", "started(b) speech(b)"),
    ],
    "paused while it waits for text": [
        (0, "begin a 20; write a 20; more a", "a", "started(a) speech(a)"),
        (20, "pause", "-", ""),
        (40, "write a 40", "-", ""),
        (60, "resume", "a", ""),
    ],
    "ran dry but was finished: no underrun": [
        (0, "begin a 20; write a 20", "a", "started(a) speech(a)"),
        (20, "", "-", ""),
        (40, "finish a", "-", "drained(a,20)"),
    ],
    "after an underrun a finished rest plays at once": [
        (0, "begin a 200; write a 200", "a", "started(a) speech(a)"),
        *[(20 * tick, "", "a", "progress(a,100)" if tick == 4 else "") for tick in range(1, 9)],
        (180, "", "a", "progress(a,200)"),
        (200, "", "-", ""),
        (220, "write a 10; finish a", "a-", "underrun(a,20) drained(a,210)"),
    ],
    "a starved utterance holds back the next": [
        (0, "begin a 20; write a 20; begin b 20; write b 40; finish b", "a", "started(a) speech(a)"),
        (20, "", "-", ""),
        (40, "finish a", "b", "drained(a,20) started(b) speech(b)"),
    ],
    "cut in the middle of an utterance": [
        (0, "begin a 20; write a 100", "a", "started(a) speech(a)"),
        (20, "cut a", "-", "cut(a,20)"),
        (40, "", "-", ""),
    ],
    "cut all": [
        (0, "begin a 20; write a 100; begin b 20; write b 40; finish b", "a", "started(a) speech(a)"),
        (20, "cut", "-", "cut(a,20) cut(b,0)"),
        (40, "", "-", ""),
    ],
    "cut one that waits": [
        (
            0,
            "begin a 20; write a 40; finish a; begin b 20; write b 40; begin c 20; write c 40",
            "a",
            "started(a) speech(a)",
        ),
        (20, "cut b", "a", "cut(b,0) drained(a,40)"),
        (40, "", "c", "started(c) speech(c)"),
    ],
    "cut and replaced between two ticks": [
        (0, "begin a 20; write a 100", "a", "started(a) speech(a)"),
        (20, "cut; begin b 20; write b 40", "b", "cut(a,20) started(b) speech(b)"),
    ],
    "cut while starved": [
        (0, "begin a 20; write a 20", "a", "started(a) speech(a)"),
        (20, "", "-", ""),
        (40, "cut", "-", "underrun(a,20) cut(a,20)"),
    ],
    "audio that comes after the cut is dropped": [
        (0, "begin a 20; write a 40", "a", "started(a) speech(a)"),
        (20, "cut; write a 40; finish a", "-", "cut(a,20)"),
        (40, "", "-", ""),
    ],
    "cut of an utterance that is over": [
        (0, "begin a 20; write a 20; finish a", "a", "started(a) speech(a) drained(a,20)"),
        (20, "cut a", "-", ""),
    ],
    "pause stops the prompt's clock": [
        (0, "begin a 20; write a 60; finish a", "a", "started(a) speech(a)"),
        (20, "pause", "-", ""),
        (40, "", "-", ""),
        (60, "resume", "a", ""),
        (80, "", "a", "drained(a,60)"),
    ],
    "pause and resume between two ticks": [
        (0, "begin a 20; write a 60; finish a", "a", "started(a) speech(a)"),
        (20, "pause; resume", "a", ""),
    ],
    "paused before it starts": [
        (0, "pause; begin a 20; write a 40; finish a", "-", ""),
        (20, "", "-", ""),
        (40, "resume", "a", "started(a) speech(a)"),
    ],
    "cut while paused, the line stays paused": [
        (0, "begin a 20; write a 60", "a", "started(a) speech(a)"),
        (20, "pause", "-", ""),
        (40, "cut; begin b 20; write b 40", "-", "cut(a,20)"),
        (60, "resume", "b", "started(b) speech(b)"),
    ],
    "the pause is not an underrun": [
        (0, "begin a 20; write a 20", "a", "started(a) speech(a)"),
        (20, "pause", "-", ""),
        (40, "", "-", ""),
        (60, "resume; write a 20", "a", ""),
    ],
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_table(table: list[Row]) -> None:
    buffer, events = new_buffer()
    for at_ms, actions, expected_frame, expected_events in table:
        for action in filter(None, actions.split("; ")):
            act(buffer, action)
        frame = buffer.read_frame(at_ms * NS_PER_MS)
        assert len(frame) == FORMAT.frame_bytes
        assert (at_ms, shown(frame)) == (at_ms, expected_frame)
        assert {event.at_ns for event in events} <= {at_ms * NS_PER_MS}
        assert (at_ms, " ".join(map(named, events))) == (at_ms, expected_events)
        events.clear()


def test_speech_is_told_apart_from_silent_audio() -> None:
    buffer, events = new_buffer()
    buffer.begin("a", 20)
    buffer.write("a", pcm(0, 40) + pcm(60, 20) + pcm(1000, 20))  # 60 is −55 dBFS
    for tick in range(4):
        buffer.read_frame(tick)
    assert [event for event in events if isinstance(event, PlayoutStarted | PlayoutSpeech)] == [
        PlayoutStarted("a", 0),
        PlayoutSpeech("a", 3),
    ]
    buffer.finish("a")
    buffer.read_frame(4)
    assert events[-1] == PlayoutFinished("a", 4, "drained", 80, 0)


def test_too_much_audio_is_refused_whole_and_nothing_is_lost() -> None:
    buffer, _events = new_buffer(max_buffered_ms=100)
    act(buffer, "begin a 20")
    act(buffer, "write a 90")
    with pytest.raises(PlayoutOverflow, match="90 ms are buffered; 20 ms more exceed 100 ms"):
        act(buffer, "write a 20")
    act(buffer, "write a 10")
    assert [shown(buffer.read_frame(0)) for _ in range(6)] == ["a", "a", "a", "a", "a", "-"]


def test_room_comes_back_by_playing_and_at_once_by_cutting() -> None:
    buffer, _events = new_buffer(max_buffered_ms=100)
    act(buffer, "begin a 20")
    act(buffer, "write a 100")
    buffer.read_frame(0)
    with pytest.raises(PlayoutOverflow, match="80 ms are buffered"):
        act(buffer, "write a 40")
    act(buffer, "write a 20")
    act(buffer, "cut a")
    act(buffer, "begin b 20")
    act(buffer, "write b 100")


def test_too_many_utterances_are_refused() -> None:
    buffer, _events = new_buffer()
    for index in range(MAX_QUEUED_UTTERANCES):
        buffer.begin(str(index), 20)
    with pytest.raises(PlayoutOverflow, match="queued"):
        buffer.begin("one more", 20)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ("begin a 20; begin a 20", "already begun"),
        ("write a 20", "not being written"),
        ("finish a", "not being written"),
        ("begin a 20; finish a; write a 20", "not being written"),
    ],
)
def test_writers_mistakes(actions: str, message: str) -> None:
    buffer, _events = new_buffer()
    *before, mistake = actions.split("; ")
    for action in before:
        act(buffer, action)
    with pytest.raises(ValueError, match=message):
        act(buffer, mistake)
    buffer.begin("b", 20)
    with pytest.raises(ValueError, match="whole 16-bit samples"):
        buffer.write("b", b"\1")


LOUD = 20_000
FADE_STEP = LOUD // (5 * SAMPLES_PER_MS - 1) + 2
"""The largest step of a 5 ms ramp from ``LOUD``."""


def largest_step(frames: list[bytes]) -> int:
    return max(abs(after - before) for before, after in pairwise(samples(b"".join(frames))))


@pytest.mark.parametrize("left_ms", [0, 0.125, 1, 4, 5, 6, 19])
def test_no_click_at_an_underrun_and_after_it(left_ms: float) -> None:
    buffer, _events = new_buffer(fade_ms=5)
    buffer.begin("a", 40)
    buffer.write("a", pcm(LOUD, 40 + left_ms))
    frames = [buffer.read_frame(0) for _ in range(4)]
    buffer.write("a", pcm(LOUD, 60))
    frames += [buffer.read_frame(0) for _ in range(2)]
    assert largest_step(frames) <= FADE_STEP
    assert frames[3] == bytes(FORMAT.frame_bytes)
    assert samples(frames[5]) == [LOUD] * 160


@pytest.mark.parametrize("left_ms", [0, 0.125, 3, 5, 40])
def test_no_click_at_a_cut(left_ms: float) -> None:
    buffer, events = new_buffer(fade_ms=5)
    buffer.begin("a", 20)
    buffer.write("a", pcm(LOUD, 20 + left_ms))
    frames = [buffer.read_frame(0)]
    buffer.cut(None)
    frames += [buffer.read_frame(0) for _ in range(2)]
    assert largest_step(frames) <= FADE_STEP
    assert frames[2] == bytes(FORMAT.frame_bytes)
    assert frames[1][FORMAT.bytes_for_ms(5) :] == bytes(FORMAT.bytes_for_ms(15))
    assert isinstance(events[-1], PlayoutFinished)
    assert events[-1].played_ms == 20 + min(left_ms, 5)


def test_no_click_at_pause_and_resume_and_no_sample_is_lost() -> None:
    buffer, events = new_buffer(fade_ms=5)
    buffer.begin("a", 20)
    buffer.write("a", pcm(LOUD, 100))
    frames = [buffer.read_frame(0)]
    buffer.pause()
    frames += [buffer.read_frame(0) for _ in range(3)]
    buffer.resume()
    frames += [buffer.read_frame(0) for _ in range(3)]
    assert largest_step(frames) <= FADE_STEP
    buffer.finish("a")
    frames += [buffer.read_frame(0)]
    assert samples(frames[-1])[: 15 * SAMPLES_PER_MS] == [LOUD] * 15 * SAMPLES_PER_MS
    assert isinstance(events[-1], PlayoutFinished)
    assert (events[-1].played_ms, events[-1].underruns) == (100, 0)


def numbered(begin_ms: int, end_ms: int) -> bytes:
    """Audio that says where it is: each sample is the millisecond, and one more."""
    return array("h", [1 + ms for ms in range(begin_ms, end_ms) for _ in range(SAMPLES_PER_MS)]).tobytes()


def places(frame: bytes) -> list[int]:
    """The milliseconds in a frame; -1 where it is silent."""
    return [sample - 1 for sample in samples(frame)[::SAMPLES_PER_MS]]


@pytest.mark.parametrize("chunk_ms", [10, 20, 37, 200, 1500])
@pytest.mark.parametrize(
    ("from_ms", "goes_on_at_ms"), [(540, 540), (595, 595), (600, 600), (700, 600), (0, 0), (-50, 0)]
)
def test_a_prompt_goes_on_with_what_was_played_before(chunk_ms: int, from_ms: int, goes_on_at_ms: int) -> None:
    buffer, events = new_buffer()
    buffer.begin("a", 20)
    for begin_ms in range(0, 1500, chunk_ms):
        buffer.write("a", numbered(begin_ms, min(begin_ms + chunk_ms, 1500)))
    buffer.finish("a")
    for _ in range(30):
        buffer.read_frame(0)
    buffer.pause()
    assert places(buffer.read_frame(0)) == [-1] * 20
    buffer.resume(restart=("a", from_ms))
    heard = [place for _ in range(80) for place in places(buffer.read_frame(0))]
    assert [place for place in heard if place >= 0] == list(range(goes_on_at_ms, 1500))
    (finished,) = [event for event in events if isinstance(event, PlayoutFinished)]
    assert (finished.played_ms, finished.underruns) == (1500, 0)
    if goes_on_at_ms < 600:
        assert [event.played_ms for event in events if isinstance(event, PlayoutProgress)][6] == goes_on_at_ms


def test_a_prompt_goes_back_no_further_than_its_bound() -> None:
    buffer, _events = new_buffer()
    buffer.begin("a", 20)
    buffer.write("a", numbered(0, 1500))
    for _ in range(60):
        buffer.read_frame(0)
    buffer.pause()
    buffer.read_frame(0)
    buffer.resume(restart=("a", 0))
    assert places(buffer.read_frame(0))[0] == 1200 - MAX_STEP_BACK_MS


def test_only_the_prompt_that_was_held_goes_back() -> None:
    buffer, _events = new_buffer()
    for name in "ab":
        buffer.begin(name, 20)
        buffer.write(name, numbered(0, 100))
        buffer.finish(name)
    for _ in range(6):
        buffer.read_frame(0)
    buffer.pause()
    buffer.read_frame(0)
    buffer.resume(restart=("a", 50))
    assert places(buffer.read_frame(0))[0] == 20
    buffer.pause()
    buffer.read_frame(0)
    buffer.resume()
    assert places(buffer.read_frame(0))[0] == 40, "what was asked for once is done once"


def test_silence_is_always_the_same_object() -> None:
    buffer, _events = new_buffer()
    assert buffer.read_frame(0) is buffer.read_frame(20)


def closed_buffer() -> tuple[PlayoutBuffer, list[PlayoutEvent]]:
    """A buffer that is not open, with 40 ms of an utterance in it."""
    events: list[PlayoutEvent] = []
    buffer = PlayoutBuffer(FORMAT, max_buffered_ms=1000, events=events.append, is_open=False)
    buffer.begin("a", 40)
    buffer.write("a", pcm(1000, 40))
    return buffer, events


def test_a_closed_buffer_keeps_what_it_has_and_plays_it_whole_from_the_instant_at_which_it_opens() -> None:
    buffer, events = closed_buffer()
    buffer.finish("a")
    frames = [shown(buffer.read_frame(at_ms * NS_PER_MS)) for at_ms in (20, 40)]
    assert events == []
    buffer.open(60 * NS_PER_MS)
    frames += [shown(buffer.read_frame(at_ms * NS_PER_MS)) for at_ms in (59, 60, 80, 100)]
    assert frames == ["-", "-", "-", "a", "a", "-"]
    (finished,) = [event for event in events if isinstance(event, PlayoutFinished)]
    assert (finished.played_ms, finished.underruns) == (40, 0)


def test_an_utterance_without_audio_ends_when_the_buffer_is_open() -> None:
    events: list[PlayoutEvent] = []
    buffer = PlayoutBuffer(FORMAT, max_buffered_ms=1000, events=events.append, is_open=False)
    buffer.begin("a", 40)
    buffer.finish("a")
    buffer.read_frame(20 * NS_PER_MS)
    assert events == []
    buffer.open()
    buffer.read_frame(40 * NS_PER_MS)
    assert [named(event) for event in events] == ["drained(a,0)"]
    buffer, cut = closed_buffer()
    buffer.cut("a")
    assert shown(buffer.read_frame(20 * NS_PER_MS)) == "-"
    assert [named(event) for event in cut] == ["cut(a,0)"], "one can be cut while it is closed"


def test_a_closed_buffer_that_is_opened_on_hold_plays_without_a_ramp_afterwards() -> None:
    buffer, _events = closed_buffer()
    buffer.pause()
    buffer.open()
    assert shown(buffer.read_frame(20 * NS_PER_MS)) == "-"
    buffer.resume()
    assert shown(buffer.read_frame(40 * NS_PER_MS)) == "a"


def test_when_nobody_writes_any_more_what_is_there_is_played() -> None:
    events: deque[PlayoutEvent] = deque()
    buffer = PlayoutBuffer(FORMAT, max_buffered_ms=1000, events=events.append)
    buffer.begin("a", 200)
    buffer.write("a", pcm(LEVELS["a"], 60))
    buffer.begin("b", 200)
    buffer.write("b", pcm(LEVELS["b"], 20))
    assert shown(buffer.read_frame(0)) == "-", "it waits for its threshold"
    buffer.finish_all()
    assert shown(buffer.read_frame(1)) == "a"
    assert buffer.positions() == [("a", 20.0), ("b", 0.0)]
    heard = [shown(buffer.read_frame(2 + each)) for each in range(4)]
    assert heard == ["a", "a", "b", "-"]
    assert [event.utterance_id for event in events if isinstance(event, PlayoutFinished)] == ["a", "b"]
    assert buffer.positions() == []
    with pytest.raises(ValueError, match="not being written"):
        buffer.write("a", pcm(1, 20))
