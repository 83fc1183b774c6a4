"""The server's side of the workers, with processes that are only made up."""

import asyncio
from typing import Any

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import LogConfig, TtsConfig
from cc_tts.engines.stepped import EngineLoad, StreamRequest
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.link import WorkerLink
from cc_tts.engines.worker.messages import (
    CancelStream,
    EndText,
    EngineDescription,
    PushText,
    StreamAudio,
    StreamEnded,
    StreamFailed,
    Taken,
    WorkerSettings,
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
from cc_tts.processes.supervisor import ProcessState
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.unit

VOICES = (Voice("anna", "cosyvoice2", "en", "zero_shot"), Voice("li", "cosyvoice2", "cmn", "zero_shot"))
MS = b"\1\0" * 24


class FakeSupervisor:
    """A process that is ready at once and keeps what it is sent."""

    def __init__(self) -> None:
        self.state = ProcessState.STOPPED
        self.sent: list[Message] = []
        self.pid = 4711

    async def start(self) -> None:
        self.state = ProcessState.READY

    async def stop(self) -> None:
        self.state = ProcessState.STOPPED

    def send(self, message: Message) -> None:
        if self.state is not ProcessState.READY:
            raise ProcessFailed("down")
        self.sent.append(message)


class Lab:
    """An engine of some workers that the test plays."""

    def __init__(self, num_workers: int = 1, default_voice: str = "") -> None:
        tts = TtsConfig(engine="cosyvoice2", model_dir="/m", voice=default_voice)
        settings = WorkerSettings(device="cpu", tts=tts, log=LogConfig())
        self.metrics = Metrics()
        self.engine = WorkerEngine(
            [settings] * num_workers, clock=MonotonicClock(), metrics=self.metrics, stall_timeout_ms=3000.0
        )
        self.processes: list[FakeSupervisor] = []
        for link in self.links:
            process: Any = FakeSupervisor()
            link.supervisor = process
            self.processes.append(process)

    @property
    def links(self) -> list[WorkerLink]:
        return self.engine._workers

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"cctts_{name}", labels)

    def says(self, message: Message, payload: bytes = b"", *, worker: int = 0) -> None:
        self.links[worker]._on_message(message, payload)

    def describe(self, room: int = 10, *, worker: int = 0, refusal: str = "") -> None:
        self.says(EngineDescription(VOICES, ("zh", "en", "ja")), worker=worker)
        load = EngineLoad(num_streams=0, first_audio_ms=1.0, utilisation=0.0, room=room, refusal=refusal)
        self.says(load, worker=worker)

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
    lab.says(StreamAudio(1, 0), MS * 60)
    lab.says(StreamAudio(1, 1), MS * 70)
    lab.says(StreamEnded(1))
    stream.set_buffered_ms(35.0)
    heard = [(len(chunk.data), chunk.text_chunk_index) async for chunk in stream]
    assert heard == [(2880, 0), (3360, 1)]
    assert lab.processes[0].sent[:3] == [StreamRequest(1, "anna", 1.1), PushText(1, "Hi.", 0), EndText(1)]


async def test_the_worker_hears_what_was_taken_and_what_of_it_is_not_played() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(StreamAudio(1, 0), MS * 60)
    lab.says(StreamAudio(1, 0), MS * 60)
    lab.says(StreamAudio(1, 0), MS * 60)
    reader = aiter(stream)
    await anext(reader)
    stream.set_buffered_ms(50.0)
    await anext(reader)
    stream.set_buffered_ms(90.0)
    await anext(reader)
    assert [each for each in lab.processes[0].sent if isinstance(each, Taken)] == [
        Taken(1, 120.0, 50.0),
        Taken(1, 180.0, 90.0),
    ]


async def test_a_cancelled_stream_ends_and_its_late_audio_is_dropped() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(StreamAudio(1, 0), MS)
    await stream.cancel()
    await stream.cancel()
    lab.says(StreamAudio(1, 0), MS)
    lab.says(StreamEnded(1))
    assert [chunk async for chunk in stream] == []
    assert lab.processes[0].sent.count(CancelStream(1)) == 1


async def test_what_is_made_is_heard_before_the_error() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(StreamAudio(1, 0), MS)
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
    lab = await Lab(2).start(10, 9)
    on_first = lab.engine.open("anna")
    on_second = lab.engine.open("anna")
    assert [len(process.sent) for process in lab.processes] == [1, 1]
    lab.links[0]._on_down("killed by SIGKILL")
    lab.processes[0].state = ProcessState.BACKOFF
    with pytest.raises(EngineFailed, match="killed by SIGKILL"):
        await anext(aiter(on_first))
    lab.says(StreamAudio(2, 0), MS, worker=1)
    assert (await anext(aiter(on_second))).data == MS
    assert lab.sample("process_restarts_total", process="worker") == 1
    assert lab.engine.not_ready_because() is None
    lab.links[1]._on_down("killed by SIGKILL")
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


async def test_a_refusal_by_the_worker_is_counted() -> None:
    lab = await Lab().start()
    stream = lab.engine.open("anna")
    lab.says(StreamFailed(1, "engine_overloaded", "no slot", 2))
    with pytest.raises(EngineOverloaded) as refusal:
        await anext(aiter(stream))
    assert refusal.value.retry_after_s == 2
    assert lab.sample("engine_refusals_total", where="worker") == 1


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

    def report(worker: int, num_underruns: int, num_not_finite: int) -> None:
        load = EngineLoad(
            num_streams=2,
            first_audio_ms=120.0,
            utilisation=0.5,
            num_underruns=num_underruns,
            num_not_finite=num_not_finite,
        )
        lab.says(load, worker=worker)

    report(0, 2, 0)
    report(0, 3, 1)
    report(1, 4, 0)
    lab.links[0]._on_down("killed")
    report(0, 1, 1)
    assert lab.sample("engine_underruns_total") == 8
    assert lab.sample("engine_not_finite_total") == 2
    assert lab.sample("engine_streams", worker="worker-0") == 2
