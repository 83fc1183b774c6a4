"""A client of a call's audio: what it hears, what it plays; on real playout buffers in virtual time."""

import asyncio
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from cc_tts.calls.audio.frames import FrameShaper
from cc_tts.calls.audio.messages import MediaMessage
from cc_tts.calls.audio.stream import MediaStream
from cc_tts.calls.dtmf.gather import GatherRequest
from cc_tts.calls.input.audio import AudioInput
from cc_tts.calls.input.stream import INTERRUPTED_QUIET_S
from cc_tts.config.schema import MediaConfig
from cc_tts.errors import CapacityExceeded, MalformedRequest, QueueFull, UserAgentUnavailable, WrongState
from cc_tts.speech.prompt import Prompt, PromptDefaults, TextContent
from cc_tts.ua import messages
from tests.fakes.live_call import LiveCall
from tests.support.virtual_time import Decorator, in_virtual_time

pytestmark = pytest.mark.unit

FRAME_BYTES = 320
FADE_BYTES = 80
"""The ramp at the end of what is followed by nothing, at first."""
MS = 1_000_000


def sound(ms: int, rate_hz: int = 8000, *, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(1000, 8000, ms * rate_hz // 1000).astype("<i2").tobytes()


class Client:
    def __init__(self, stage: "Stage", direction: str = "talk", rate_hz: int = 8000, **options: Any) -> None:
        self.frames: list[tuple[str, bytes]] = []
        self.told: list[dict[str, Any]] = []
        self.has_ended = False
        self.stream = MediaStream(stage.call, self, direction=cast("Any", direction), rate_hz=rate_hz, **options)

    def audio(self, direction: str, frame: bytes) -> None:
        self.frames.append((direction, frame))

    def message(self, message: MediaMessage) -> None:
        assert not self.has_ended
        self.told.append(msgspec.to_builtins(message))

    def close(self) -> None:
        self.has_ended = True

    @property
    def talk(self) -> AudioInput:
        assert self.stream.talk is not None
        return self.stream.talk

    @property
    def pcm(self) -> bytes:
        return b"".join(frame for _, frame in self.frames)

    def kinds(self) -> list[str]:
        return [each["type"] for each in self.told if each["type"] != "start"]

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.told if each["type"] == kind]


class Stage(LiveCall):
    @property
    def heard(self) -> bytes:
        return bytes(self.leg.heard).strip(b"\0")


def staged(**media: Any) -> Decorator[Stage]:
    return in_virtual_time(lambda: Stage.made(max_text_chars=1000, media=MediaConfig(**media)))


# --- listening


@staged()
async def test_the_caller_is_heard_frame_by_frame(stage: Stage) -> None:
    client = Client(stage, "in")
    said = sound(200)
    stage.leg.said.extend(said[at : at + FRAME_BYTES] for at in range(0, len(said), FRAME_BYTES))
    await asyncio.sleep(1)
    assert {len(frame) for _, frame in client.frames} == {FRAME_BYTES}
    assert client.pcm.strip(b"\0") == said
    assert client.told == [
        {
            "type": "start", "call_id": stage.call.id, "direction": "in", "encoding": "s16le", "rate": 8000, "channels": 1,
            "frame_ms": 20, "caller": stage.call.caller, "callee": stage.call.callee, "headers": {}, "metadata": {},
        }
    ]  # fmt: skip
    assert stage.exchange.sample("cctts_media_streams") == 1
    client.stream.close()
    client.stream.close()
    num_frames = len(client.frames)
    await asyncio.sleep(1)
    assert len(client.frames) == num_frames
    assert stage.leg.directions == ()
    assert stage.exchange.sample("cctts_media_streams") == 0


@staged()
async def test_both_directions_are_two_channels(stage: Stage) -> None:
    client = Client(stage, "both")
    assert client.told[0]["channels"] == 2
    stage.call.speak(Prompt(content=TextContent("Hello there, how are you?")))
    await asyncio.sleep(0.1)
    caller = sound(100)
    stage.leg.said.extend(caller[at : at + FRAME_BYTES] for at in range(0, len(caller), FRAME_BYTES))
    await asyncio.sleep(1)
    left, right = np.frombuffer(client.pcm, "<i2").reshape(-1, 2).T
    assert left.tobytes().strip(b"\0") == caller
    assert right.tobytes().strip(b"\0") == stage.heard
    assert {direction for direction, _ in client.frames} == {"in"}


@pytest.mark.parametrize(("direction", "directions"), [("in", {"in"}), ("both", {"in", "out"})])
@staged()
async def test_directions_on_their_own_at_another_rate(stage: Stage, direction: str, directions: set[str]) -> None:
    client = Client(stage, direction, 16000, interleaves=False)
    await asyncio.sleep(0.1)
    assert {each for each, _ in client.frames} == directions
    assert {len(frame) for _, frame in client.frames} == {2 * FRAME_BYTES}
    assert client.told[0]["rate"] == 16000


@staged()
async def test_keys_are_reported_and_a_sensitive_one_is_not(stage: Stage) -> None:
    client = Client(stage, "out")
    stage.ua.digit(stage.call.id, "5", at_ns=1)
    stage.call.gather(GatherRequest(sensitive=True))
    stage.ua.digit(stage.call.id, "7", at_ns=2)
    assert [(each["digit"], each["duration_ms"]) for each in client.all("dtmf")] == [("5", 100), ("x", 100)]


@staged(max_per_call=2)
async def test_who_may_not_listen(stage: Stage) -> None:
    first, second = Client(stage, "in"), Client(stage, "out")
    with pytest.raises(CapacityExceeded):
        Client(stage, "in")
    second.stream.close()
    stage.ua.is_ready = False
    with pytest.raises(UserAgentUnavailable):
        Client(stage, "out")
    assert list(stage.call.followers) == [first.stream]
    stage.ua.is_ready = True
    stage.ua.ended(stage.call.id)
    assert first.told[-1] == {"type": "stop", "reason": "remote_hangup"}
    assert first.has_ended
    with pytest.raises(WrongState):
        Client(stage, "in")


@staged()
async def test_two_clients_hear_the_same(stage: Stage) -> None:
    one, other = Client(stage, "in"), Client(stage, "in")
    stage.leg.said.append(sound(20))
    await asyncio.sleep(0.5)
    assert one.frames == other.frames
    one.stream.close()
    await asyncio.sleep(0.5)
    assert len(other.frames) > len(one.frames)
    assert stage.leg.directions == ("in",)


def block(
    direction: messages.AudioDirection, at_ns: int, pcm: bytes, num_dropped: int = 0
) -> tuple[messages.CallAudio, bytes]:
    return messages.CallAudio("c", direction, at_ns, num_dropped), pcm


def test_frames_that_are_missing_are_silence() -> None:
    shaper, frame = FrameShaper(["in"], 8000, 8000, interleaves=True), sound(20)
    assert list(shaper.frames(*block("in", 100 * MS, frame * 2, 2))) == [
        ("in", bytes(320)), ("in", bytes(320)), ("in", frame), ("in", frame)
    ]  # fmt: skip
    assert shaper.begun_ns == 60 * MS
    assert len(list(shaper.frames(*block("in", 0, frame, 100_000)))) == 51


def test_one_direction_alone_goes_with_silence() -> None:
    shaper, frame = FrameShaper(["in", "out"], 8000, 8000, interleaves=True), sound(20)
    out = [pair for tick in range(10) for _, pair in shaper.frames(*block("out", tick * 20 * MS, frame))]
    assert 5 <= len(out) < 10
    assert np.frombuffer(out[0], "<i2").reshape(-1, 2)[:, 0].max() == 0
    later = [pair for _, pair in shaper.frames(*block("in", 180 * MS, frame))]
    assert np.array_equal(*np.frombuffer(later[-1], "<i2").reshape(-1, 2).T)
    assert len(out) + len(later) == 9


# --- talking


@staged()
async def test_audio_is_played_as_it_was_sent(stage: Stage) -> None:
    client, pcm = Client(stage), sound(2000)
    for at in range(0, len(pcm), 4000):
        client.talk.audio(pcm[at : at + 4000])
    client.talk.end()
    await stage.until_quiet()
    assert stage.heard == pcm
    assert client.kinds() == ["speak.started", "speak.complete"]
    (done,) = client.all("speak.complete")
    assert (done["completion_cause"], done["played_ms"]) == ("normal", 2000.0)
    kinds = [kind for kind in stage.exchange.kinds(stage.call.id) if kind.startswith("speak.")]
    assert kinds == ["speak.queued", "speak.started", "speak.complete"]
    assert stage.leg.underruns == 0


@pytest.mark.parametrize("num_messages", [1, 450])
@staged()
async def test_a_file_that_comes_at_once_is_played_whole(stage: Stage, num_messages: int) -> None:
    client, pcm = Client(stage), sound(90_000)
    size = len(pcm) // num_messages
    for at in range(0, len(pcm), size):
        client.talk.audio(pcm[at : at + size])
    client.stream.close()
    await stage.until_quiet()
    assert stage.heard == pcm
    assert client.kinds() == ["speak.started", "speak.complete"]


@staged()
async def test_audio_that_comes_as_it_is_spoken_has_no_gaps(stage: Stage) -> None:
    client, pcm = Client(stage), sound(3000)
    random = np.random.default_rng(5)
    begun_s = asyncio.get_running_loop().time()
    for index, at in enumerate(range(0, len(pcm), FRAME_BYTES)):
        due_s = begun_s + 0.02 * index + float(random.uniform(0, 0.035))
        await asyncio.sleep(max(0.0, due_s - asyncio.get_running_loop().time()))
        client.talk.audio(pcm[at : at + FRAME_BYTES])
    await stage.until_quiet()
    whole = len(pcm) - FADE_BYTES
    assert stage.heard[:whole] == pcm[:whole]
    assert stage.leg.underruns == 0
    assert len(client.all("speak.complete")) == 1


@staged(idle_end_ms=300)
async def test_an_utterance_ends_when_nothing_more_comes(stage: Stage) -> None:
    client, first, second = Client(stage), sound(100, seed=1), sound(100, seed=2)
    client.talk.audio(first)
    await stage.until(lambda: client.all("speak.complete"))
    client.talk.audio(second)
    await stage.until(lambda: len(client.all("speak.complete")) == 2)
    assert [each["played_ms"] for each in client.all("speak.complete")] == [100.0, 100.0]
    assert stage.leg.underruns == 0


@staged(idle_end_ms=2000)
async def test_a_pause_of_the_client_is_no_underrun(stage: Stage) -> None:
    client, pcm = Client(stage), sound(400)
    client.talk.audio(pcm[:3200])
    await asyncio.sleep(1)
    client.talk.audio(pcm[3200:])
    client.talk.end()
    await stage.until_quiet()
    assert stage.leg.underruns == 0
    (done,) = client.all("speak.complete")
    assert done["played_ms"] == 400.0


@staged()
async def test_the_clients_rate_is_not_the_lines(stage: Stage) -> None:
    client = Client(stage, rate_hz=16000)
    client.talk.audio(sound(1000, 16000))
    client.talk.end()
    await stage.until_quiet()
    assert client.all("speak.complete")[0]["played_ms"] == pytest.approx(1000, abs=5)


@staged()
async def test_marks_come_back_when_they_are_played(stage: Stage) -> None:
    client = Client(stage)
    client.talk.mark("nothing waits")
    assert client.all("mark") == [{"type": "mark", "name": "nothing waits", "cleared": False}]
    client.talk.audio(sound(1000))
    client.talk.mark("middle")
    client.talk.audio(sound(1000))
    client.talk.mark("end")
    await stage.until(lambda: len(client.all("mark")) == 2)
    assert 1000 <= stage.call.player.queue[0].played_ms <= 1200
    client.talk.end()
    await stage.until_quiet()
    assert [each["name"] for each in client.all("mark")] == ["nothing waits", "middle", "end"]
    assert not any(each["cleared"] for each in client.all("mark"))
    client.talk.audio(sound(500))
    client.talk.end()
    await asyncio.sleep(0.2)
    client.talk.mark("after the end")
    await stage.until_quiet()
    assert client.kinds()[-2:] == ["mark", "speak.complete"]


@staged()
async def test_clear_drops_what_was_not_played_and_returns_its_marks(stage: Stage) -> None:
    client, pcm = Client(stage), sound(500, seed=3)
    client.talk.audio(sound(5000))
    client.talk.mark("never")
    await asyncio.sleep(1)
    client.talk.clear()
    assert client.all("mark") == [{"type": "mark", "name": "never", "cleared": True}]
    client.talk.audio(pcm)
    client.talk.end()
    await stage.until_quiet()
    (stopped,) = client.all("speak.interrupted")
    assert stopped["by"] == "clear"
    assert 700 <= stopped["played_ms"] <= 1200
    assert stage.heard.endswith(pcm)
    client.talk.clear()
    assert client.kinds()[-1] == "speak.complete"


@staged()
async def test_a_key_interrupts_and_the_rest_is_not_played(stage: Stage) -> None:
    client = Client(stage)
    client.talk.audio(sound(1000))
    client.talk.mark("m")
    await asyncio.sleep(0.3)
    stage.ua.key_down(stage.call.id, at_ns=stage.clock.now_ns())
    stage.ua.digit(stage.call.id, "1", at_ns=stage.clock.now_ns())
    await stage.until_quiet()
    assert client.all("speak.interrupted")[0]["by"] == "dtmf"
    assert client.all("mark") == [{"type": "mark", "name": "m", "cleared": True}]
    heard = len(stage.heard)
    for _ in range(20):
        client.talk.audio(sound(20))  # of the same answer
        await asyncio.sleep(0.02)
    assert len(stage.heard) == heard
    await asyncio.sleep(INTERRUPTED_QUIET_S + 0.1)
    client.talk.audio(sound(200))
    await stage.until_quiet()
    assert client.all("speak.complete")


@staged()
async def test_a_client_that_never_pauses_is_heard_again_after_two_seconds(stage: Stage) -> None:
    client = Client(stage)
    client.talk.audio(sound(100))
    await asyncio.sleep(0.1)
    await stage.call.stop("all")
    for _ in range(150):
        client.talk.audio(sound(20))
        await asyncio.sleep(0.02)
    assert [each["by"] for each in client.all("speak.interrupted")] == ["stop"]
    assert 700 <= stage.call.player.queue[0].played_ms <= 1000


@staged()
async def test_audio_may_be_protected_from_keys_and_speech(stage: Stage) -> None:
    stage.call.update(defaults=PromptDefaults(barge_in_speech=True), metadata={})
    client = Client(stage, barge_in_dtmf=False)
    client.talk.audio(sound(500))
    client.talk.end()
    await asyncio.sleep(0.1)
    stage.ua.digit(stage.call.id, "1", at_ns=stage.clock.now_ns())
    stage.exchange.vad.started(stage.call.id, stage.clock.now_ns())
    await stage.until_quiet()
    assert client.kinds() == ["speak.started", "dtmf", "speech.started", "speak.complete"]


@staged()
async def test_where_the_caller_speaks_is_said_in_the_audio_of_the_stream(stage: Stage) -> None:
    stage.call.update(defaults=PromptDefaults(barge_in_speech=True), metadata={})
    begin_ns = stage.clock.now_ns()
    early = Client(stage, "in")
    stage.ua.audio(stage.call.id, sound(20), at_ns=begin_ns)
    late, sent_only = Client(stage, "in"), Client(stage, "out")
    stage.ua.audio(stage.call.id, sound(20), at_ns=begin_ns + 900 * MS)
    stage.ua.audio(stage.call.id, sound(20), "out", at_ns=begin_ns)
    stage.exchange.vad.started(stage.call.id, begin_ns + 500 * MS)
    stage.exchange.vad.stopped(stage.call.id, begin_ns + 500 * MS, begin_ns + 1700 * MS)
    assert [(each["type"], each["at_ms"]) for each in early.told[1:]] == [
        ("speech.started", 500.0),
        ("speech.stopped", 1700.0),
    ]
    assert [each["at_ms"] for each in late.told[1:]] == [0.0, 800.0]
    assert {each["speech_id"] for each in (*early.told[1:], *late.told[1:])} == {early.told[1]["speech_id"]}
    assert sent_only.kinds() == []


@staged(max_buffered_ms=4000)
async def test_more_than_is_buffered_is_refused_and_counted(stage: Stage) -> None:
    client = Client(stage)
    second = sound(1000)
    for _ in range(3):
        client.talk.audio(second)
    assert client.all("paused") == [{"type": "paused", "buffered_ms": 2000.0}]
    client.talk.audio(second)
    with pytest.raises(QueueFull, match="4000 ms of audio wait"):
        client.talk.audio(second)
    client.talk.audio(second)
    assert stage.exchange.sample("cctts_call_audio_dropped_frames_total", where="talk") == 100
    client.talk.end()
    await stage.until_quiet()
    assert client.kinds() == ["paused", "speak.started", "resumed", "speak.complete"]
    assert client.all("speak.complete")[0]["played_ms"] == 4000.0


@staged()
async def test_half_a_sample_is_refused(stage: Stage) -> None:
    client = Client(stage)
    with pytest.raises(MalformedRequest):
        client.talk.audio(b"\0")
    client.talk.audio(b"")
    assert stage.call.player.queue == []


@staged()
async def test_a_client_that_goes_is_heard_to_its_end(stage: Stage) -> None:
    client, pcm = Client(stage), sound(1000)
    client.talk.audio(pcm)
    client.stream.close()
    await stage.until_quiet()
    assert stage.heard == pcm
    assert stage.ua.commands("hangup") == []


@staged()
async def test_a_client_that_goes_can_take_its_audio_along(stage: Stage) -> None:
    client = Client(stage)
    client.talk.audio(sound(5000))
    await asyncio.sleep(0.5)
    client.stream.close(clears=True)
    await stage.until_quiet()
    assert len(stage.heard) < 16_000


@pytest.mark.parametrize("ms", [0, 800])
@staged()
async def test_the_call_can_end_with_its_client(stage: Stage, ms: int) -> None:
    client = Client(stage)
    if ms:
        client.talk.audio(sound(ms))
    client.stream.close(hangs_up=True)
    assert bool(stage.ua.commands("hangup")) is not bool(ms)
    await stage.until_quiet()
    assert len(stage.heard) == 16 * ms
    assert len(stage.ua.commands("hangup")) == 1
    assert stage.ua.causes == ["media_closed"]


@staged()
async def test_the_calls_end_is_the_last_that_a_client_hears(stage: Stage) -> None:
    client = Client(stage)
    client.talk.audio(sound(5000))
    client.talk.mark("m")
    await asyncio.sleep(0.5)
    stage.ua.ended(stage.call.id)
    assert client.kinds() == ["speak.started", "mark", "stop"]
    assert client.has_ended
    client.stream.close(hangs_up=True)
    assert stage.ua.commands("hangup") == []
