"""The server's side of the workers, with processes that are only made up."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.engines.engine_core import EngineDescription, EngineLoad, StreamRequest
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.link import HUNG_FACTOR, WorkerLink
from cc_tts.engines.worker.messages import (
    CancelStream,
    EndText,
    PlaybackProgress,
    PushText,
    RefreshVoices,
    StreamEnded,
    StreamFailed,
)
from cc_tts.errors import (
    EngineFailed,
    EngineOverloaded,
    LanguageUnsupported,
    ProcessFailed,
    UnknownVoice,
    Unprocessable,
)
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import ProcessState
from cc_tts.tracing.span import CURRENT, Span
from cc_tts.tracing.tracer import Tracer
from cc_tts.voices.voice import Voice
from tests.fakes.fake_line import FakeClock
from tests.fakes.worker_here import none_elsewhere
from tests.support.neural_settings import neural_settings
from tests.support.virtual_time import LoopClock, virtual_time

pytestmark = pytest.mark.unit

VOICES = (Voice("anna", "cosyvoice2", "en", "zero_shot"), Voice("li", "cosyvoice2", "cmn", "zero_shot"))
MS = b"\1\0" * 24
STALL_TIMEOUT_MS = 3000.0


class FakeSupervisor:
    """A process that is ready at once and keeps what it is sent."""

    def __init__(self) -> None:
        self.state = ProcessState.STOPPED
        self.sent: list[Message] = []
        self.pid = 0
        self.silent_s = 0.0
        self.restarts: list[str] = []
        self.on_message: Callable[[Message, bytes], None] = lambda *_: None
        self.on_down: Callable[[str], None] = lambda _reason: None

    async def start(self) -> None:
        self.state, self.pid = ProcessState.READY, 4711

    async def stop(self) -> None:
        self.state, self.pid = ProcessState.STOPPED, 0

    def restart(self, reason: str) -> None:
        """It is killed; a new one is not there yet."""
        self.restarts.append(reason)
        self.state = ProcessState.BACKOFF
        self.on_down(reason)

    def send(self, message: Message) -> None:
        if self.state is not ProcessState.READY:
            raise ProcessFailed("down")
        self.sent.append(message)


PLAIN_VOICES = (Voice("en-us", "espeak", "en-US"), Voice("de", "espeak", "de"))


class PlainWorker(FakeSupervisor):
    """The worker of espeak-ng: it describes itself, and says each text chunk at once, 10 ms a character."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[StreamRequest] = []
        self.link = WorkerLink(
            "espeak", partial(_made, self), clock=MonotonicClock(), metrics=Metrics(), stall_timeout_ms=STALL_TIMEOUT_MS
        )

    async def start(self) -> None:
        await super().start()
        self.on_message(EngineDescription(PLAIN_VOICES), b"")
        self.on_message(load(), b"")

    def send(self, message: Message) -> None:
        super().send(message)
        match message:
            case StreamRequest():
                self.requests.append(message)
            case PushText(stream_id, text, index):
                self.on_message(SpeechChunk(MS * 10 * len(text), stream_id=stream_id, text_chunk_index=index), b"")
            case EndText(stream_id):
                self.on_message(StreamEnded(stream_id), b"")
                self.on_message(load(), b"")


def _made(process: FakeSupervisor, on_message: Callable[[Message, bytes], None], on_down: Callable[[str], None]) -> Any:
    process.on_message, process.on_down = on_message, on_down
    return process


class Lab:
    """An engine of some workers that the test plays."""

    def __init__(
        self,
        num_workers: int = 1,
        default_voice: str = "",
        *,
        falls_back: bool = False,
        is_beside: bool = False,
        clock: Clock | None = None,
        hung_factor: float = HUNG_FACTOR,
        elsewhere: RemoteWorkers | None = None,
        **settings: Any,
    ) -> None:
        tts = neural_settings("/m", voice=default_voice, **settings)
        self.metrics = Metrics()
        self.processes = [FakeSupervisor() for _ in range(num_workers)]
        self.links = [
            WorkerLink(
                "worker" if num_workers == 1 else f"worker-{number}",
                partial(_made, process),
                clock=clock or MonotonicClock(),
                metrics=self.metrics,
                stall_timeout_ms=STALL_TIMEOUT_MS,
                hung_factor=hung_factor,
            )
            for number, process in enumerate(self.processes)
        ]
        self.plain = PlainWorker()
        self.engine = WorkerEngine(
            tts,
            self.links,
            elsewhere or none_elsewhere(),
            metrics=self.metrics,
            fallback=self.plain.link if falls_back else None,
            beside=self.plain.link if is_beside else None,
        )

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cctts_{name}", labels)

    def says(self, message: Message, payload: bytes = b"", *, worker: int = 0) -> None:
        self.processes[worker].on_message(message, payload)

    def describe(self, room: int = 10, *, worker: int = 0, refusal: str = "") -> None:
        self.says(EngineDescription(VOICES, ("zh", "en", "ja")), worker=worker)
        load = EngineLoad(num_streams=0, first_audio_ms=1.0, utilisation=0.05 * worker, room=room, refusal=refusal)
        self.says(load, worker=worker)

    def speak(self, text: str) -> Any:
        """The stream of a whole text."""
        stream = self.engine.open("anna")
        stream.push(text, text_chunk_index=0)
        stream.end()
        return stream

    def speaks(self, ms: int, *, stream_id: int) -> None:
        """The worker has spoken a whole text."""
        self.says(SpeechChunk(MS * ms, stream_id=stream_id, text_chunk_index=0))
        self.says(StreamEnded(stream_id))

    async def start(self, *rooms: int) -> "Lab":
        starting = asyncio.create_task(self.engine.start())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for worker, room in enumerate(rooms or (10,) * len(self.links)):
            self.describe(room, worker=worker)
        await starting
        return self


async def test_audio_of_a_stream_arrives_in_order_and_ends() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna", 1.1)
    stream.push("Hi.", text_chunk_index=0)
    stream.end()
    lab.says(SpeechChunk(MS * 60, stream_id=1, text_chunk_index=0))
    lab.says(SpeechChunk(MS * 70, stream_id=1, text_chunk_index=1))
    lab.says(StreamEnded(1))
    stream.set_buffered_ms(35.0)
    heard = [(len(chunk.data), chunk.text_chunk_index) async for chunk in stream]
    assert heard == [(2880, 0), (3360, 1)]
    assert lab.processes[0].sent[:3] == [StreamRequest(1, "anna", 1.1), PushText(1, "Hi.", 0), EndText(1)]


async def test_the_worker_hears_what_was_taken_and_what_of_it_is_not_played() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(SpeechChunk(MS * 60, stream_id=1, text_chunk_index=0))
    lab.says(SpeechChunk(MS * 60, stream_id=1, text_chunk_index=0))
    lab.says(SpeechChunk(MS * 60, stream_id=1, text_chunk_index=0))
    reader = aiter(stream)
    await anext(reader)
    stream.set_buffered_ms(50.0)
    await anext(reader)
    stream.set_buffered_ms(90.0)
    await anext(reader)
    assert [each for each in lab.processes[0].sent if isinstance(each, PlaybackProgress)] == [
        PlaybackProgress(1, 120.0, 50.0),
        PlaybackProgress(1, 180.0, 90.0),
    ]


async def test_a_cancelled_stream_ends_and_its_late_audio_is_dropped() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(SpeechChunk(MS, stream_id=1, text_chunk_index=0))
    await stream.cancel()
    await stream.cancel()
    lab.says(SpeechChunk(MS, stream_id=1, text_chunk_index=0))
    lab.says(StreamEnded(1))
    assert [chunk async for chunk in stream] == []
    assert lab.processes[0].sent.count(CancelStream(1)) == 1


async def test_what_is_made_is_heard_before_the_error() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(SpeechChunk(MS, stream_id=1, text_chunk_index=0))
    lab.says(StreamFailed(1, "unprocessable", "<|x|> is not a special token"))
    heard = []
    with pytest.raises(Unprocessable, match="special token"):
        async for chunk in stream:
            heard.append(chunk)  # noqa: PERF401 - the list must survive the error
    assert len(heard) == 1


async def test_an_unknown_code_is_a_failure_of_the_engine() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(StreamFailed(1, "from_the_future", "?"))
    with pytest.raises(EngineFailed):
        await anext(aiter(stream))


async def test_a_dead_worker_fails_its_streams_only() -> None:
    lab = await Lab(2, resume_on_worker_loss=False).start(10, 9)
    on_first = lab.engine.open("anna")
    on_second = lab.engine.open("anna")
    assert [len(process.sent) for process in lab.processes] == [1, 1]
    lab.processes[0].on_down("killed by SIGKILL")
    lab.processes[0].state = ProcessState.BACKOFF
    with pytest.raises(EngineFailed, match="killed by SIGKILL"):
        await anext(aiter(on_first))
    lab.says(SpeechChunk(MS, stream_id=2, text_chunk_index=0), worker=1)
    assert (await anext(aiter(on_second))).data == MS
    assert lab.sample("process_restarts_total", process="worker") == 1
    assert lab.engine.not_ready_because() is None
    lab.processes[1].on_down("killed by SIGKILL")
    lab.processes[1].state = ProcessState.BACKOFF
    assert "killed by SIGKILL" in str(lab.engine.not_ready_because())
    with pytest.raises(EngineFailed) as failure:
        lab.engine.open("anna")
    assert failure.value.retry_after_s


async def test_streams_go_where_there_is_room_and_then_are_refused() -> None:
    lab = await Lab(2).start(1, 2)
    for _ in range(3):
        lab.engine.open("anna")
    assert [len(process.sent) for process in lab.processes] == [1, 2]
    with pytest.raises(EngineOverloaded) as refusal:
        lab.engine.open("anna")
    assert refusal.value.retry_after_s
    assert lab.sample("engine_refusals_total", where="server") == 1
    assert lab.engine.not_ready_because() == "the engine is at its limit"
    lab.describe(0, worker=0, refusal="first audio would come after 410 ms")
    assert lab.engine.not_ready_because() == "first audio would come after 410 ms"
    lab.describe(1, worker=1)
    lab.engine.open("anna")


@pytest.mark.parametrize(
    ("default", "voice", "language", "expected"),
    [
        ("", None, None, "anna"),
        ("li", None, None, "li"),
        ("li", "anna", None, "anna"),
        ("", None, "en-GB", "anna"),
        ("", None, "zh", "li"),
        ("", None, "ja-JP", "anna"),
        ("li", None, "ja", "li"),
    ],
)
async def test_the_voice_of_a_request(default: str, voice: str | None, language: str | None, expected: str) -> None:
    lab = await Lab(default_voice=default).start()
    assert lab.engine.resolve_voice(voice, language).id == expected


@pytest.mark.parametrize(
    ("voices", "has_others", "expected"),
    [
        ([("slow", 0), ("quick", 3)], True, "quick"),
        ([("quick", 3), ("quicker", 30)], True, "quick"),
        ([("slow", 0)], True, "de"),
        ([("slow", 0), ("slower", 0)], False, "slow"),
    ],
)
async def test_a_language_is_spoken_by_the_first_voice_that_keeps_up(
    voices: list[tuple[str, int]], *, has_others: bool, expected: str
) -> None:
    """Else by the plainer engine. It is the same for every prompt: a full worker changes nothing."""
    lab = await Lab(is_beside=has_others).start()
    made = (Voice(name, "onnx", "de-DE", streams=streams) for name, streams in voices)
    lab.says(EngineDescription((VOICES[0], *made)))
    assert lab.engine.resolve_voice(None, "de").id == expected
    lab.says(EngineLoad(num_streams=9, first_audio_ms=1.0, utilisation=1.0, room=0, refusal="full"))
    assert lab.engine.resolve_voice(None, "de").id == expected
    assert lab.engine.resolve_voice(voices[0][0], None).id == voices[0][0], "it speaks what asks for it by name"


async def test_voices_that_do_not_exist() -> None:
    lab = Lab(default_voice="bert")
    with pytest.raises(EngineFailed, match="not ready"):
        lab.engine.resolve_voice(None, None)
    await lab.start()
    with pytest.raises(UnknownVoice, match="bert"):
        lab.engine.resolve_voice(None, None)
    with pytest.raises(UnknownVoice, match=r"ana.*did you mean anna\?"):
        lab.engine.resolve_voice("ana", None)
    with pytest.raises(LanguageUnsupported):
        lab.engine.resolve_voice(None, "sw")
    with pytest.raises(UnknownVoice):
        lab.engine.open("ana")


async def test_stopping_fails_what_is_open() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    await lab.engine.stop()
    with pytest.raises(EngineFailed, match="stopped"):
        await anext(aiter(stream))
    assert lab.engine.not_ready_because() == "the engine is stopped"


async def test_counts_of_workers_add_up_over_their_restarts() -> None:
    lab = await Lab(2).start()

    def report(worker: int, num_underruns: int, num_not_finite: int, **num_runaways: int) -> None:
        load = EngineLoad(
            num_streams=2,
            first_audio_ms=120.0,
            utilisation=0.5,
            num_underruns=num_underruns,
            num_not_finite=num_not_finite,
            num_runaways=num_runaways,
        )
        lab.says(load, worker=worker)

    report(0, 2, 0, length=1)
    report(0, 3, 1, length=2, repeats=1)
    report(1, 4, 0, length=4)
    lab.processes[0].on_down("killed")
    report(0, 1, 1, length=1)
    assert lab.sample("engine_underruns_total") == 8
    assert lab.sample("engine_not_finite_total") == 2
    assert lab.sample("engine_runaways_total", cause="length") == 7
    assert lab.sample("engine_runaways_total", cause="repeats") == 1
    assert lab.sample("engine_streams", worker="worker-0") == 2


# --- several workers ---


async def texts_of(stream: Any, losses: list[bool] | None = None) -> list[tuple[int, int, bool]]:
    """Text chunk, ms, and whether it may not be as asked for, of each piece of audio. ``losses``: whether it is the first
    one after a loss.
    """
    found = []
    async for chunk in stream:
        found.append((chunk.text_chunk_index, round(chunk.duration_ms), chunk.is_resumed))
        if losses is not None:
            losses.append(chunk.after_loss)
    return found


def pushed(process: FakeSupervisor) -> list[str]:
    return [each.text for each in process.sent if isinstance(each, PushText)]


def opened(lab: Lab) -> list[int]:
    """The stream each worker has open."""
    return [stream_id for link in lab.links for stream_id in link.streams]


def load(**changes: Any) -> EngineLoad:
    values: dict[str, Any] = {"num_streams": 0, "first_audio_ms": 1.0, "utilisation": 0.0, "room": 10}
    return EngineLoad(**(values | changes))


def lose(lab: Lab, worker: int) -> None:
    lab.processes[worker].state = ProcessState.BACKOFF
    lab.processes[worker].on_down("3 pings were not answered")


async def test_the_worker_that_would_speak_first_is_used() -> None:
    lab = await Lab(2).start()
    lab.says(load(num_streams=20, first_audio_ms=90.0, room=50), worker=0)
    lab.says(load(num_streams=30, first_audio_ms=60.0, room=5), worker=1)
    lab.engine.open("anna")
    assert [len(link.streams) for link in lab.links] == [0, 1]
    lab.says(load(num_streams=30, first_audio_ms=90.0, utilisation=0.9), worker=1)
    lab.says(load(num_streams=20, first_audio_ms=90.0, utilisation=0.5), worker=0)
    lab.engine.open("anna")
    assert [len(link.streams) for link in lab.links] == [1, 1]


async def test_it_is_as_full_as_the_streams_that_are_there_are_of_those_that_could_be() -> None:
    """Not as busy as a device is: a fast one refuses long before it works all the time."""
    lab = await Lab(2).start(0, 0)
    assert lab.engine.utilisation("anna") == 1.0
    lab.says(load(num_streams=30, room=0, utilisation=0.1), worker=0)
    lab.says(load(num_streams=10, room=10, utilisation=0.1), worker=1)
    assert lab.engine.utilisation("anna") == pytest.approx(40 / 50)
    for _ in range(5):
        lab.engine.open("anna")
    assert lab.engine.utilisation("anna") == pytest.approx(45 / 50)
    lose(lab, 0)
    lose(lab, 1)
    assert lab.engine.utilisation("anna") == 0.0


async def test_a_voice_is_sought_where_it_is() -> None:
    lab = await Lab(2).start()
    lab.says(EngineDescription((VOICES[0],)), worker=0)
    assert {voice.id for voice in lab.engine.voices()} == {"anna", "li"}
    for _ in range(2):
        lab.engine.open("li")
    assert [len(link.streams) for link in lab.links] == [0, 2]
    lose(lab, 1)
    with pytest.raises(EngineFailed, match="no worker that is ready has the voice li"):
        lab.engine.open("li")


async def test_what_one_worker_refuses_goes_to_the_next_and_then_is_refused() -> None:
    lab = await Lab(3).start()
    reading = asyncio.create_task(texts_of(lab.speak("Hi.")))
    for number in (1, 2):
        await asyncio.sleep(0)
        (worker,) = [at for at, link in enumerate(lab.links) if number in link.streams]
        assert pushed(lab.processes[worker]) == ["Hi."]
        assert EndText(number) in lab.processes[worker].sent
        lab.says(StreamFailed(number, "engine_overloaded", "no slot", 2), worker=worker)
        await asyncio.sleep(0)
    with pytest.raises(EngineOverloaded, match="no slot") as refusal:
        await reading
    assert refusal.value.retry_after_s == 2
    assert lab.sample("engine_refusals_total", where="worker") == 2


@pytest.mark.parametrize(
    ("given_ms", "again"),
    [(0, ["One.", "Two.", "Three."]), (600, ["Two.", "Three."]), (1600, ["Three."])],
    ids=["nothing", "a little", "most"],
)
async def test_another_worker_goes_on_from_the_text_chunk_under_way(given_ms: int, again: list[str]) -> None:
    lab = await Lab(2).start(10, 9)
    stream = lab.engine.open("anna")
    for index, text in enumerate(("One.", "Two.")):
        stream.push(text, text_chunk_index=index)
    losses: list[bool] = []
    reading = asyncio.create_task(texts_of(stream, losses))
    if given_ms:
        lab.says(SpeechChunk(MS * 500, stream_id=1, text_chunk_index=0))
        lab.says(SpeechChunk(MS * given_ms, stream_id=1, text_chunk_index=1))
    await asyncio.sleep(0)
    stream.push("Three.", text_chunk_index=2)
    lose(lab, 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stream.end()
    assert pushed(lab.processes[1]) == again
    lab.says(SpeechChunk(MS * 700, stream_id=2, text_chunk_index=2), worker=1)
    lab.says(StreamEnded(2), worker=1)
    before = [(0, 500, False), (1, given_ms, False)] if given_ms else []
    assert await reading == [*before, (2, 700, bool(given_ms))]
    assert losses == [False] * len(before) + [True]
    assert lab.sample("engine_resumed_total") == 1


async def test_what_was_heard_to_its_end_is_over_when_the_worker_is_lost() -> None:
    lab = await Lab(2).start(10, 9)
    stream = lab.speak("One.")
    lab.says(SpeechChunk(MS * 1600, stream_id=1, text_chunk_index=0))
    reading = asyncio.create_task(texts_of(stream))
    await asyncio.sleep(0)
    lose(lab, 0)
    assert await reading == [(0, 1600, False), (0, 0, True)]  # so that it is not cached as if it were whole
    assert not lab.processes[1].sent


async def test_a_text_chunk_that_was_given_up_is_over_when_the_worker_is_lost() -> None:
    """A stand-in has said the rest of it."""
    lab = await Lab(2).start(10, 9)
    stream = lab.engine.open("anna")
    for index, text in enumerate(("One.", "Two.")):
        stream.push(text, text_chunk_index=index)
    stream.end()
    lab.says(SpeechChunk(MS * 600, stream_id=1, text_chunk_index=0))
    lab.says(SpeechChunk(stream_id=1, text_chunk_index=0, gave_up_after=0.5))
    reading = asyncio.create_task(texts_of(stream))
    await asyncio.sleep(0)
    lose(lab, 0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert pushed(lab.processes[1]) == ["Two."]
    lab.says(SpeechChunk(MS * 700, stream_id=2, text_chunk_index=1), worker=1)
    lab.says(StreamEnded(2), worker=1)
    assert await reading == [(0, 600, False), (0, 0, False), (1, 700, True)]


async def test_a_second_loss_and_a_failure_of_the_stream_itself_are_errors() -> None:
    lab = await Lab(3).start()
    streams = [lab.engine.open("anna") for _ in range(2)]
    for stream in streams:
        stream.push("One.", text_chunk_index=0)
    readings = [asyncio.create_task(texts_of(stream)) for stream in streams]
    for _ in range(3):
        await asyncio.sleep(0)
    (worker,) = [at for at, link in enumerate(lab.links) if 1 in link.streams]
    (other,) = [at for at, link in enumerate(lab.links) if 2 in link.streams]
    lab.says(StreamFailed(2, "engine_failed", "not finite"), worker=other)
    with pytest.raises(EngineFailed, match="not finite"):
        await readings[1]
    lose(lab, worker)
    for _ in range(3):
        await asyncio.sleep(0)
    (second,) = [at for at, link in enumerate(lab.links) if link.streams]
    lose(lab, second)
    with pytest.raises(EngineFailed, match="3 pings were not answered"):
        await readings[0]


async def test_a_cancelled_stream_is_not_said_again() -> None:
    lab = await Lab(2).start(10, 9)
    stream = lab.engine.open("anna")
    stream.push("One.", text_chunk_index=0)
    reading = asyncio.create_task(texts_of(stream))
    await asyncio.sleep(0)
    await stream.cancel()
    lose(lab, 0)
    assert await reading == []
    assert not lab.processes[1].sent


async def test_the_fallback_speaks_while_no_worker_is_ready() -> None:
    lab = await Lab(falls_back=True).start()
    assert lab.plain.pid
    stream = lab.engine.open("anna")
    stream.push("One.", text_chunk_index=0)
    reading = asyncio.create_task(texts_of(stream))
    await asyncio.sleep(0)
    lose(lab, 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stream.push("Two.", text_chunk_index=1)
    stream.end()
    assert await reading == [(0, 40, True), (1, 40, True)]
    assert [request.voice for request in lab.plain.requests] == ["en-us"]
    assert lab.engine.not_ready_because("anna") is None
    assert lab.engine.not_ready_because() is None
    assert "no engine worker is ready" in str(lab.engine.degraded_because)
    with pytest.raises(LanguageUnsupported):
        lab.engine.open("li")
    lab.processes[0].state = ProcessState.READY
    lab.describe(0, refusal="full")
    assert lab.engine.degraded_because is None
    assert lab.engine.is_full("anna")
    with pytest.raises(EngineOverloaded):  # a full worker is no lost one
        lab.engine.open("anna")
    await lab.engine.stop()
    assert lab.plain.pid == 0


async def test_the_fallback_speaks_what_has_waited_for_a_full_worker_as_long_as_it_may() -> None:
    lab = await Lab(falls_back=True).start(0)
    with pytest.raises(EngineOverloaded):
        lab.engine.open("anna")
    stream = lab.engine.open("anna", must_speak=True)
    stream.push("One.", text_chunk_index=0)
    stream.end()
    assert await texts_of(stream) == [(0, 40, True)]
    lab.describe(10)
    lab.engine.open("anna", must_speak=True)
    assert len(opened(lab)) == 1, "a worker that has room comes first"


async def test_an_engine_beside_the_workers_speaks_what_they_do_not() -> None:
    lab = await Lab(is_beside=True, falls_back=True).start()
    engine = lab.engine
    assert [voice.id for voice in engine.voices()] == ["anna", "li", "en-us", "de"]
    assert engine.resolve_voice("en-us", None).engine == "espeak"
    assert engine.resolve_voice(None, "en").id == "anna"
    with pytest.raises(UnknownVoice, match="nobody"):
        engine.resolve_voice("nobody", None)
    with pytest.raises(LanguageUnsupported):
        engine.resolve_voice(None, "tlh")
    engine.open("en-us", 1.5)
    assert [(request.voice, request.speed) for request in lab.plain.requests] == [("en-us", 1.5)]
    assert not opened(lab)
    lose(lab, 0)
    assert engine.not_ready_because("en-us") is None
    assert engine.degraded_because is not None


async def test_an_engine_beside_the_workers_that_is_down_takes_only_its_own_voices_down() -> None:
    lab = await Lab(is_beside=True).start()
    lab.plain.restart("it starts again")
    assert lab.engine.not_ready_because("en-us") == "no worker that is ready has the voice en-us: it starts again"
    assert lab.engine.not_ready_because("anna") is None
    assert lab.engine.not_ready_because() is None


async def test_a_voice_that_gave_no_audio_is_stood_in_for_by_the_other_engine() -> None:
    lab = await Lab(is_beside=True).start()
    assert lab.engine.open_stand_in("anna") is not None
    assert [request.voice for request in lab.plain.requests] == ["en-us"]
    assert lab.engine.open_stand_in("en-us") is not None
    assert len(opened(lab)) == 1
    assert lab.engine.open_stand_in("li") is None


# --- workers that give no audio ---


async def _stalled(lab: Lab, *, during_s: float) -> tuple[list[float], asyncio.Task[Any]]:
    """Ask for a text and wait; when the fallback was asked, s, and who reads the audio."""
    await lab.start()
    started_s = asyncio.get_running_loop().time()
    reading = asyncio.create_task(texts_of(lab.speak("One.")))
    moved_s: list[float] = []
    for _ in range(round(during_s / 0.1)):
        await asyncio.sleep(0.1)
        if lab.plain.requests and not moved_s:
            moved_s.append(asyncio.get_running_loop().time() - started_s)
    return moved_s, reading


@virtual_time
async def test_a_worker_that_does_not_run_is_killed_and_the_fallback_speaks_within_a_second_of_the_stall() -> None:
    lab = Lab(falls_back=True, clock=LoopClock())
    lab.processes[0].silent_s = 2.6
    moved_s, reading = await _stalled(lab, during_s=6.0)
    assert len(lab.processes[0].restarts) == 1
    assert STALL_TIMEOUT_MS / 1000 < moved_s[0] < STALL_TIMEOUT_MS / 1000 + 1
    assert await reading == [(0, 40, True)]


@virtual_time
async def test_a_worker_that_answers_pings_is_late_and_goes_on_while_the_fallback_speaks() -> None:
    lab = Lab(falls_back=True, clock=LoopClock())
    moved_s, reading = await _stalled(lab, during_s=6.0)
    assert not lab.processes[0].restarts
    assert CancelStream(1) in lab.processes[0].sent
    assert STALL_TIMEOUT_MS / 1000 < moved_s[0] < STALL_TIMEOUT_MS / 1000 + 1
    assert await reading == [(0, 40, True)]
    again_s, reading = await _stalled_again(lab)
    assert again_s < 1.5, "the next prompt does not wait as long for a worker that is known to be late"
    assert await reading == [(0, 40, True)]
    stream = lab.speak("Three.")
    lab.speaks(50, stream_id=opened(lab)[0])
    assert await texts_of(stream) == [(0, 50, False)]
    assert not lab.processes[0].restarts


async def _stalled_again(lab: Lab) -> tuple[float, asyncio.Task[Any]]:
    before, started_s = len(lab.plain.requests), asyncio.get_running_loop().time()
    reading = asyncio.create_task(texts_of(lab.speak("Two.")))
    while len(lab.plain.requests) == before:  # noqa: ASYNC110 - a fake tells nobody
        await asyncio.sleep(0.1)
    return asyncio.get_running_loop().time() - started_s, reading


@virtual_time
async def test_without_a_fallback_a_late_worker_is_waited_for() -> None:
    lab = Lab(clock=LoopClock())
    _, reading = await _stalled(lab, during_s=9.0)
    assert not reading.done()
    lab.speaks(50, stream_id=1)
    assert await reading == [(0, 50, False)]
    assert not lab.processes[0].restarts


@virtual_time
async def test_a_worker_that_answers_pings_and_never_speaks_is_killed_in_the_end() -> None:
    lab = Lab(clock=LoopClock())
    _, reading = await _stalled(lab, during_s=1.1 * HUNG_FACTOR * STALL_TIMEOUT_MS / 1000)
    assert len(lab.processes[0].restarts) == 1
    with pytest.raises(EngineFailed, match="no audio for 15"):
        await reading


@virtual_time
async def test_a_worker_that_is_never_just_slow_is_killed_at_the_first_stall() -> None:
    lab = Lab(clock=LoopClock(), hung_factor=1.0)
    _, reading = await _stalled(lab, during_s=STALL_TIMEOUT_MS / 1000 + 0.5)
    assert len(lab.processes[0].restarts) == 1
    with pytest.raises(EngineFailed, match=r"no audio for 3\."):
        await reading


@virtual_time
async def test_the_silence_of_a_hung_worker_is_not_that_of_the_next_one() -> None:
    lab = Lab(falls_back=True, clock=LoopClock())
    _, reading = await _stalled(lab, during_s=4.0)
    await reading
    while not lab.processes[0].restarts:
        lab.describe()
        _, reading = await _stalled_again(lab)
        await reading
    lab.processes[0].state = ProcessState.READY
    lab.describe()
    reading = asyncio.create_task(texts_of(lab.speak("Four.")))
    await asyncio.sleep(0.9)
    assert len(lab.processes[0].restarts) == 1
    lab.speaks(50, stream_id=opened(lab)[0])
    assert await reading == [(0, 50, False)]


# --- generations ---


async def of_generations(*generations: str, weights: Mapping[str, float], room: int = 10, **settings: Any) -> Lab:
    """A worker of each generation, and generations with their share of the calls."""
    elsewhere = none_elsewhere()
    elsewhere.generations = weights
    lab = await Lab(len(generations), elsewhere=elsewhere, **settings).start(*[room] * len(generations))
    for link, generation in zip(lab.links, generations, strict=True):
        link.generation = generation
    return lab


async def test_a_call_keeps_its_generation() -> None:
    lab = await of_generations("old", "new", weights={"new": 0.3}, room=1000)
    used: dict[str, set[int]] = {}
    for turn in range(4):
        for number in range(60):
            before = [len(link.streams) for link in lab.links]
            lab.engine.open("anna", call_id=f"call_{number}")
            after = [len(link.streams) for link in lab.links]
            used.setdefault(f"call_{number}", set()).add(before[0] < after[0])
        assert all(len(each) == 1 for each in used.values()), turn
    assert 8 <= sum(each == {False} for each in used.values()) <= 28  # 18 are expected


async def test_speech_without_a_call_is_divided_too() -> None:
    lab = await of_generations("old", "new", weights={"new": 0.3}, room=1000)
    for _ in range(300):
        lab.engine.open("anna")
    assert len(lab.links[1].streams) == pytest.approx(90, abs=40)


async def test_a_refusal_of_the_canary_goes_to_the_other_generation() -> None:
    lab = await of_generations("old", "new", weights={"new": 1.0})
    stream = lab.engine.open("anna", call_id="call_1")
    reading = asyncio.create_task(texts_of(stream))
    await asyncio.sleep(0)
    lab.says(StreamFailed(1, "engine_overloaded", "no slot", 2), worker=1)
    await asyncio.sleep(0)
    assert [len(link.streams) for link in lab.links] == [1, 0]
    lab.says(StreamEnded(2), worker=0)
    assert await reading == []


async def test_how_streams_end_is_counted_by_generation() -> None:
    lab = await of_generations("1.0", "1.1", weights={"1.0": 1.0}, resume_on_worker_loss=False)
    streams = [lab.engine.open("anna") for _ in range(5)]
    for stream in streams:
        stream.push("Hi.", text_chunk_index=0)
        stream.push("Ho.", text_chunk_index=1)
    readings = [asyncio.create_task(texts_of(stream)) for stream in streams[:4]]
    await asyncio.sleep(0)
    for _ in range(2):
        lab.speaks(60, stream_id=1)
    lab.says(StreamFailed(2, "engine_failed", "not finite"))
    await asyncio.sleep(0)
    await streams[4].cancel()
    await streams[4].cancel()
    lose(lab, 0)
    lab.says(StreamFailed(3, "engine_overloaded", "it came too late"))
    await asyncio.gather(*readings, return_exceptions=True)
    results = {"spoken": 1, "failed": 1, "lost": 2, "cancelled": 1, "refused": None}
    for result, number in results.items():
        counted = lab.sample("engine_generation_streams_total", generation="1.0", result=result)
        assert counted == number, result
    assert lab.sample("engine_generation_first_audio_seconds_count", generation="1.0") == 1
    assert lab.sample("engine_generation_first_audio_seconds_count", generation="1.1") is None


def test_names_of_generations_cannot_fill_the_metrics() -> None:
    metrics = Metrics()
    labels = [metrics.generation_label(f"g{number}") for number in range(12)]
    assert labels == [*(f"g{number}" for number in range(8)), *["other"] * 4]
    assert metrics.generation_label("g3") == "g3"
    assert Metrics().generation_label("") == "unknown"


async def test_voices_that_came_meanwhile_can_be_asked_for_at_once() -> None:
    lab = await Lab().start()
    refreshing = asyncio.create_task(lab.engine.refresh_voices())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert lab.processes[0].sent == [RefreshVoices()]
    lab.says(EngineDescription((*VOICES, Voice("zoe", "onnx", "en"))))
    await refreshing
    assert lab.engine.resolve_voice("zoe", None).id == "zoe"


async def test_a_voice_that_gave_up_before_any_audio_has_no_span_of_first_audio() -> None:
    exported: list[Span] = []
    request = Tracer(FakeClock(), export=exported.append).begin("utterance", kind="server")
    token = CURRENT.set(request)
    try:
        lab = await Lab().start()
        silent, heard = lab.speak("Hi."), lab.speak("Hello.")
    finally:
        CURRENT.reset(token)
    lab.says(SpeechChunk(stream_id=1, gave_up_after=0.0))
    lab.says(StreamEnded(1))
    lab.says(SpeechChunk(MS * 60, stream_id=2, made_ms=7.0))
    lab.says(SpeechChunk(stream_id=2, gave_up_after=0.5))
    lab.says(StreamEnded(2))
    for stream in (silent, heard):
        assert [chunk.gave_up_after async for chunk in stream][-1] is not None
    assert [span.name for span in exported] == ["engine.first_chunk", "engine.first_chunk", "engine.stream"]
    assert [(span.error, span.attributes.get("cctts.worker_ms")) for span in exported] == [
        ("no_audio", None), ("", 7.0), ("", 7.0),
    ]  # fmt: skip


# --- several models, each with its voices


async def of_two_models(*, has_fallback: bool = True) -> Lab:
    """The first worker speaks with the model v2, the other two with v3; both models have a voice that is called li."""
    lab = Lab(3, falls_back=has_fallback)
    await lab.start()
    for worker, (model, voices) in enumerate([("v2", ("anna", "li")), ("v3", ("bert", "li")), ("v3", ("bert", "li"))]):
        lab.says(
            EngineDescription(tuple(Voice(name, "cosyvoice2", "en", model=model) for name in voices)), worker=worker
        )
    return lab


async def test_the_voice_chooses_the_model() -> None:
    lab = await of_two_models()
    assert [(each.id, each.model) for each in lab.engine.voices()] == [("anna", "v2"), ("li", "v2"), ("bert", "v3")]
    lab.engine.open("anna")
    lab.engine.open("bert")
    lab.engine.open("bert")
    assert [len(process.sent) for process in lab.processes] == [1, 1, 1]


async def test_a_voice_that_two_models_have_is_of_the_first_and_the_other_is_told() -> None:
    lab = await of_two_models()
    for _ in range(4):
        lab.engine.open("li")
    assert [len(process.sent) for process in lab.processes] == [4, 0, 0]
    (fault,) = lab.engine.voice_faults
    assert fault == "the voice li of the model v3 has the name of one of the model v2, which speaks"


async def test_a_full_model_takes_no_room_from_the_other() -> None:
    lab = await of_two_models()
    lab.says(EngineLoad(num_streams=9, first_audio_ms=1.0, utilisation=1.0, room=0, refusal="full"))
    assert (lab.engine.is_full("anna"), lab.engine.is_full("bert"), lab.engine.is_full()) == (True, False, False)
    assert lab.engine.not_ready_because("anna") is not None
    assert lab.engine.not_ready_because("bert") is None
    with pytest.raises(EngineOverloaded):
        await anext(aiter(lab.engine.open("anna")))
    lab.engine.open("bert")


@pytest.mark.parametrize("has_fallback", [True, False])
async def test_the_fallback_speaks_for_a_model_whose_workers_are_lost_alone(*, has_fallback: bool) -> None:
    lab = await of_two_models(has_fallback=has_fallback)
    assert lab.engine.degraded_because is None
    lab.processes[0].on_down("killed by SIGKILL")
    lab.processes[0].state = ProcessState.BACKOFF
    lab.engine.open("bert")
    assert lab.engine.not_ready_because("bert") is None
    if has_fallback:
        assert lab.engine.degraded_because == "no worker that is ready has the voice anna: killed by SIGKILL"
        assert lab.engine.not_ready_because("anna") is None
        assert (await anext(aiter(said_by(lab, "anna")))).data
        return
    assert "killed by SIGKILL" in str(lab.engine.not_ready_because("anna"))
    with pytest.raises(EngineFailed, match="killed by SIGKILL"):
        lab.engine.open("anna")


async def test_workers_that_do_not_say_of_which_model_they_are_speak_with_the_same_voices() -> None:
    """Those of the version before, beside new ones during an upgrade."""
    lab = Lab(2, falls_back=True)
    await lab.start()
    for worker, model in enumerate(("", "main")):
        lab.says(EngineDescription((Voice("anna", "cosyvoice2", "en", model=model),)), worker=worker)
    assert lab.engine.voice_faults == ()
    for _ in range(8):
        lab.engine.open("anna")
    assert all(process.sent for process in lab.processes)
    lab.processes[0].on_down("ended")
    lab.processes[0].state = ProcessState.BACKOFF
    before = len(lab.processes[1].sent)
    lab.engine.open("anna")
    assert len(lab.processes[1].sent) == before + 1
    assert lab.engine.degraded_because is None


async def test_a_model_with_a_worker_left_is_not_degraded() -> None:
    lab = await of_two_models()
    lab.processes[2].on_down("killed by SIGKILL")
    lab.processes[2].state = ProcessState.BACKOFF
    assert lab.engine.degraded_because is None


def said_by(lab: Lab, voice: str) -> Any:
    stream = lab.engine.open(voice)
    stream.push("Hello.", text_chunk_index=0)
    stream.end()
    return stream
