"""The worker's loop with an engine that does what the test says."""

from collections.abc import Callable, Sequence
from copy import copy

import pytest

from cc_tts.engines.engine_core import DeviceLost, EngineDescription, EngineLoad, StepOut, StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.loop import MAX_RECORD_BYTES, WorkerLoop
from cc_tts.engines.worker.messages import (
    CancelStream,
    EndText,
    PlaybackProgress,
    PushText,
    RefreshVoices,
    StreamEnded,
    StreamFailed,
)
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded, Unprocessable
from cc_tts.processes.channel import ChildChannel, Message, Record
from cc_tts.processes.child import ChildLink
from cc_tts.voices.voice import Voice
from tests.fakes.fake_line import FakeClock
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit


class FakeStepped:
    """Notes what it is told and gives out what it was given."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.outs: list[list[StepOut]] = []
        self.error: Exception | None = None
        self.load_now = EngineLoad(num_streams=0, first_audio_ms=10.0, utilisation=0.0, room=3)
        self.is_closed = False

    def open(self, request: StreamRequest) -> None:
        self.told.append(("open", request))
        if self.error is not None:
            raise self.error

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        self.told.append(("push", stream_id, text, text_chunk_index))
        if self.error is not None:
            raise self.error

    def end(self, stream_id: int) -> None:
        self.told.append(("end", stream_id))

    def cancel(self, stream_id: int) -> None:
        self.told.append(("cancel", stream_id))

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        self.told.append(("taken", stream_id, taken_ms, ahead_ms))

    def step(self) -> Sequence[StepOut]:
        return self.outs.pop(0) if self.outs else ()

    @property
    def has_work(self) -> bool:
        return bool(self.outs)

    def load_report(self) -> EngineLoad:
        return self.load_now

    def close(self) -> None:
        self.is_closed = True


class FakeChannel(ChildChannel):
    has_backlog = False

    def __init__(self) -> None:
        self.sent: list[tuple[Message, bytes]] = []

    def send(self, message: Message, payload: bytes = b"") -> None:
        self.sent.append((copy(message), payload))

    def flush(self) -> None:
        pass

    def but_reports(self) -> list[tuple[Message, bytes]]:
        return [each for each in self.sent if not isinstance(each[0], EngineDescription | EngineLoad)]


class FakeLink(ChildLink):
    """Gives out what the test has sent."""

    def __init__(self, channel: ChildChannel) -> None:
        super().__init__(channel)
        self.came: list[Record] = []

    def news(self, timeout_s: float | None = None) -> list[Record]:
        came, self.came = self.came, []
        return came


class FakeLoader:
    """Finds its voices when it is told to look for them."""

    description = EngineDescription(())

    def load(self, on_progress: Callable[[str], None]) -> None:
        """Nothing is loaded."""

    def refresh(self, on_done: Callable[[], None]) -> None:
        self.description = EngineDescription((Voice("anna", "onnx", "en"),))
        on_done()


class Bench:
    def __init__(self) -> None:
        self.engine, self.channel, self.clock = FakeStepped(), FakeChannel(), FakeClock()
        self.link = FakeLink(self.channel)
        self.loop = WorkerLoop(self.engine, self.link, FakeLoader(), clock=self.clock)

    def tick(self, *messages: Message) -> None:
        self.link.came = [(message, b"") for message in messages]
        self.loop.work()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_voices_that_came_meanwhile_are_told(bench: Bench) -> None:
    bench.tick()
    bench.tick(RefreshVoices())
    bench.tick()
    told = [message for message, _ in bench.channel.sent if isinstance(message, EngineDescription)]
    assert [[voice.id for voice in each.voices] for each in told] == [[], ["anna"]]


def test_messages_become_calls_in_their_order(bench: Bench) -> None:
    bench.tick(
        StreamRequest(7, "anna", 1.2),
        PushText(7, "Hi.", 0),
        PlaybackProgress(7, 120.0, 40.0),
        EndText(7),
        CancelStream(7),
    )
    request = StreamRequest(stream_id=7, voice="anna", speed=1.2)
    assert bench.engine.told == [
        ("open", request),
        ("push", 7, "Hi.", 0),
        ("taken", 7, 120.0, 40.0),
        ("end", 7),
        ("cancel", 7),
    ]


def test_reports_of_a_listener_that_make_no_sense_are_left_out(bench: Bench) -> None:
    nan, endless = float("nan"), float("inf")
    bench.tick(*(PlaybackProgress(7, each, 40.0) for each in (nan, endless, -1.0)))
    assert bench.engine.told == []
    bench.tick(*(PlaybackProgress(7, 120.0, each) for each in (nan, endless, -1.0, None)))
    assert bench.engine.told == [("taken", 7, 120.0, None)] * 4


def test_what_the_engine_gives_out_is_sent(bench: Bench) -> None:
    audio = SpeechChunk(b"\1\0" * 10, stream_id=7, text_chunk_index=2)
    bench.engine.outs = [[copy(audio), StreamDone(7), StreamDone(8, EngineFailed("not a number"))]]
    bench.tick()
    assert bench.channel.but_reports() == [
        (audio, b""),
        (StreamEnded(7), b""),
        (StreamFailed(8, "engine_failed", "not a number"), b""),
    ]


def test_that_a_voice_was_given_up_is_sent_though_it_has_no_audio(bench: Bench) -> None:
    told = SpeechChunk(stream_id=7, text_chunk_index=2, gave_up_after=0.0)
    bench.engine.outs = [[copy(told), StreamDone(7)]]
    bench.tick()
    assert bench.channel.but_reports() == [(told, b""), (StreamEnded(7), b"")]


def test_long_audio_is_cut_into_records_that_the_channel_takes(bench: Bench) -> None:
    pcm = bytes(range(256)) * (MAX_RECORD_BYTES // 128 + 3)
    bench.engine.outs = [[SpeechChunk(pcm, stream_id=7)]]
    bench.tick()
    payloads = [message.data for message, _ in bench.channel.sent if isinstance(message, SpeechChunk)]
    assert b"".join(payloads) == pcm
    assert len(payloads) > 1
    assert max(len(payload) for payload in payloads) <= MAX_RECORD_BYTES


@pytest.mark.parametrize(
    ("error", "code", "detail", "retry_after_s"),
    [
        (EngineOverloaded("no slot is free", retry_after_s=3), "engine_overloaded", "no slot is free", 3),
        (ValueError("secret text"), "engine_failed", "the engine broke off: ValueError", None),
    ],
)
def test_a_stream_that_cannot_be_opened_fails_alone(
    bench: Bench, error: Exception, code: str, detail: str, retry_after_s: int | None
) -> None:
    bench.engine.error = error
    bench.tick(StreamRequest(7, "anna"))
    bench.engine.error = None
    bench.tick(StreamRequest(8, "anna"))
    failed = [message for message, _ in bench.channel.but_reports()]
    assert failed == [StreamFailed(7, code, detail, retry_after_s)]
    assert ("cancel", 7) in bench.engine.told


@pytest.mark.parametrize("speed", [0.0, 0.49, 2.01, float("inf"), float("nan")])
def test_no_engine_gets_a_speed_out_of_bounds(bench: Bench, speed: float) -> None:
    bench.tick(StreamRequest(7, "anna", speed))
    ((failed, _),) = bench.channel.but_reports()
    assert failed == StreamFailed(7, "unprocessable", f"a speed of {speed} is not between 0.5 and 2.0")
    assert bench.engine.told == [("cancel", 7)]


def test_an_error_of_theirs_keeps_its_code(bench: Bench) -> None:
    bench.tick(StreamRequest(7, "anna"))
    bench.engine.error = CcTtsError("of any kind")
    bench.tick(PushText(7, "x", 0))
    assert bench.channel.but_reports()[0][0] == StreamFailed(7, "internal", "of any kind")


def test_a_lost_device_ends_the_loop(bench: Bench) -> None:
    bench.engine.error = DeviceLost("CUDA error")
    with pytest.raises(DeviceLost):
        bench.tick(StreamRequest(7, "anna"))


def test_the_description_comes_first_and_once(bench: Bench) -> None:
    bench.tick()
    bench.tick(StreamRequest(7, "anna"))
    assert [message for message, _ in bench.channel.sent] == [
        EngineDescription(()),
        bench.engine.load_now,
        bench.engine.load_now,
    ]


def test_the_end_frees_the_engine(bench: Bench) -> None:
    bench.engine.outs = [[StreamDone(7)]]
    bench.link.is_over = True
    bench.tick()
    assert bench.engine.is_closed
    assert bench.channel.but_reports() == []


def test_reports_come_with_news_at_once_else_at_an_interval(bench: Bench) -> None:
    def reports() -> list[EngineLoad]:
        return [message for message, _ in bench.channel.sent if isinstance(message, EngineLoad)]

    table = [
        # ms   streams  utilisation   reports so far
        (0, 0, 0.0, 1),
        (5, 0, 0.0, 1),
        (10, 1, 0.0, 2),
        (15, 1, 0.1, 2),
        (199, 1, 0.2, 2),
        (210, 1, 0.2, 3),
        (500, 1, 0.2, 3),
    ]
    for at_ms, num_streams, utilisation, count in table:
        bench.clock.at_ns = 10**9 + at_ms * 1_000_000
        bench.engine.load_now = EngineLoad(
            num_streams=num_streams, first_audio_ms=10.0, utilisation=utilisation, room=3 - num_streams
        )
        bench.tick()
        assert len(reports()) == count, at_ms


def test_a_stream_that_was_over_at_once_is_reported_too(bench: Bench) -> None:
    bench.tick()
    bench.tick(StreamRequest(7, "anna"), CancelStream(7))
    bench.engine.error = Unprocessable("too fast")
    bench.tick(StreamRequest(8, "anna", 9.0))
    reports = [message for message, _ in bench.channel.sent if isinstance(message, EngineLoad)]
    assert reports == [bench.engine.load_now] * 3


def test_a_stream_that_is_traced_says_how_long_its_audio_took(bench: Bench) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    bench.tick(StreamRequest(1, "anna", traceparent=traceparent), StreamRequest(2, "anna"))
    bench.tick(PushText(1, "Hi.", 0), PushText(2, "Hi.", 0))
    bench.clock.advance(25)
    bench.engine.outs = [[SpeechChunk(b"\1\0", stream_id=1), SpeechChunk(b"\1\0", stream_id=2), StreamDone(1)]]
    bench.tick()
    bench.engine.outs = [[SpeechChunk(b"\1\0", stream_id=1)]]
    bench.tick()
    chunks = [message for message, _ in bench.channel.sent if isinstance(message, SpeechChunk)]
    assert [(chunk.stream_id, chunk.made_ms) for chunk in chunks] == [(1, 25.0), (2, 0.0), (1, 0.0)]


def test_a_stream_that_fails_names_its_trace(bench: Bench) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    bench.tick(StreamRequest(1, "anna", traceparent=f"00-{trace_id}-00f067aa0ba902b7-01"))
    bench.engine.outs = [[StreamDone(1, EngineFailed("it broke"))]]
    with capture_logs() as lines:
        bench.tick()
    assert [line["trace_id"] for line in lines if line["event"] == "stream_failed"] == [trace_id]
