"""The real worker process with the small model, driven by the client that the server drives it by."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")

from cc_tts.clock import MonotonicClock  # noqa: E402
from cc_tts.config.sections.log import LogConfig  # noqa: E402
from cc_tts.engines.speech_chunk import SpeechChunk  # noqa: E402
from cc_tts.engines.worker import link as link_module  # noqa: E402
from cc_tts.engines.worker.client import WorkerEngine  # noqa: E402
from cc_tts.engines.worker.link import WorkerLink, WorkerLost, WorkerStream, child_worker  # noqa: E402
from cc_tts.engines.worker.messages import Purpose, WorkerSettings  # noqa: E402
from cc_tts.errors import EngineFailed, EngineOverloaded, ProcessFailed, Unprocessable  # noqa: E402
from cc_tts.metrics import Metrics  # noqa: E402
from cc_tts.processes.supervisor import Supervisor  # noqa: E402
from lab.cosyvoice.tiny_model import make_tiny_model  # noqa: E402
from lab.waiting import until  # noqa: E402
from tests.fakes.worker_here import none_elsewhere  # noqa: E402
from tests.support.neural_settings import neural_settings  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

VOICE = "anna"
START_S = 150.0
"""A worker imports PyTorch and measures, beside other tests."""
MAX_AHEAD_S = 4.0
"""Of audio, after which a stream whose client does not read gets no more."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    torch.save({VOICE: {"embedding": torch.ones(1, 192)}}, directory / "spk2info.pt")
    return directory


def make_engine(
    directory: Path,
    on_starting: Callable[[str], None] = lambda _detail: None,
    *,
    device: str = "cpu",
    purpose: Purpose = "serve",
    **changes: Any,
) -> WorkerEngine:
    limits = {
        "num_threads": 1,
        "max_streams": 6,
        "first_audio_target_ms": 60_000.0,
        "max_utilisation": 1.0,
        "state_memory_bytes": 300 << 20,
        "worker_start_timeout_s": START_S,
    }
    tts = neural_settings(changes.pop("model_dir", directory), **{**limits, **changes})
    settings = WorkerSettings(device=device, purpose=purpose, tts=tts, log=LogConfig(level="warning"))
    clock, metrics = MonotonicClock(), Metrics()
    link = WorkerLink(
        "worker",
        child_worker("worker", settings, clock=clock, on_starting=on_starting),
        clock=clock,
        metrics=metrics,
        stall_timeout_ms=settings.tts.stall_timeout_ms,
    )
    return WorkerEngine(settings.tts, [link], none_elsewhere(), metrics=metrics)


def pid_of(engine: WorkerEngine) -> int | None:
    process = engine.workers[0].process
    assert isinstance(process, Supervisor)
    return process.pid


def open_stream(engine: WorkerEngine, *texts: str, end: bool = True, speed: float = 1.0) -> WorkerStream:
    stream = engine.open(voice=VOICE, speed=speed)
    assert isinstance(stream, WorkerStream)  # where there is one worker, nothing stands between
    for index, text in enumerate(texts):
        stream.push(text, text_chunk_index=index)
    if end:
        stream.end()
    return stream


async def open_streams(engine: WorkerEngine, at_most: int) -> list[WorkerStream]:
    """As many streams as the engine takes: one at least when it is idle, fewer on a machine that was late just now."""
    streams = [open_stream(engine, *["hello and welcome to the service line"] * 4)]
    with contextlib.suppress(EngineOverloaded):
        while len(streams) < at_most:
            streams.append(open_stream(engine, *["hello and welcome to the service line"] * 4))
    link = engine.workers[0]
    taken: list[WorkerStream] = []

    def all_are_taken() -> bool:
        taken[:] = [stream for stream in streams if stream.stream_id in link.streams]  # the worker may refuse, too
        return link.load is not None and link.load.num_streams == len(taken)

    await until(all_are_taken)
    return taken


async def spoken_when_taken(engine: WorkerEngine, *texts: str) -> bytes:
    """A busy machine may refuse it until the other streams are further."""
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(EngineOverloaded):
                return await pcm_of(open_stream(engine, *texts))
            await asyncio.sleep(0.02)


async def cancelled_when_taken(engine: WorkerEngine, *texts: str) -> None:
    async with asyncio.timeout(START_S):
        while True:
            with contextlib.suppress(EngineOverloaded):
                stream = open_stream(engine, *texts)
                assert await anext(aiter(stream))
                await stream.cancel()
                return
            await asyncio.sleep(0.02)


def sum_of_ms(stream: WorkerStream) -> Callable[[], float]:
    """The audio that comes for a stream from now on, whether somebody reads it or not."""
    total_ms, deliver = 0.0, stream.deliver

    def delivered(chunk: SpeechChunk) -> None:
        nonlocal total_ms
        deliver(chunk)  # which says of which rate it is
        total_ms += chunk.duration_ms

    stream.deliver = delivered  # type: ignore[method-assign]
    return lambda: total_ms


async def pcm_of(stream: WorkerStream) -> bytes:
    return b"".join([chunk.data async for chunk in stream])


async def within(waiting: Awaitable[Any]) -> Any:
    async with asyncio.timeout(START_S):
        return await waiting


async def idle(engine: WorkerEngine) -> None:
    """Nothing is open, and the worker has reported so since the last stream was asked for."""
    link = engine.workers[0]
    await until(lambda: link.load is not None and link.load.num_streams == link.load.slots_used == 0 < link.room)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(directory: Path) -> AsyncIterator[WorkerEngine]:
    engine = make_engine(directory)
    await within(engine.start())
    yield engine
    await within(engine.stop())


async def test_streams_are_spoken_cancelled_and_left_unread(engine: WorkerEngine) -> None:
    assert [voice.id for voice in engine.voices()] == [VOICE]
    assert engine.not_ready_because() is None
    await cancelled_when_taken(engine, *["please hold the line"] * 4)
    first, second = await asyncio.gather(*(spoken_when_taken(engine, "please hold", "the line") for _ in range(2)))
    assert len(first) == len(second) > 48_000 // 10
    await idle(engine)
    link = engine.workers[0]
    unread = open_stream(
        engine, *["hello and welcome to the service line"] * 3
    )  # alone: a slow machine takes no second one
    come_ms = sum_of_ms(unread)
    await until(lambda: come_ms() >= MAX_AHEAD_S * 1000)
    await asyncio.sleep(0.5)
    assert come_ms() < 3 * MAX_AHEAD_S * 1000
    assert unread.stream_id in link.streams
    await unread.cancel()
    await idle(engine)
    assert link.load is not None
    assert link.load.pages_used == 0
    assert link.load.num_not_finite == 0
    with pytest.raises(Unprocessable):
        await within(pcm_of(open_stream(engine, "hello", speed=9.0)))


async def test_a_killed_worker_fails_its_streams_and_comes_back(engine: WorkerEngine) -> None:
    await idle(engine)
    streams = await open_streams(engine, 4)
    pid = pid_of(engine)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    answers = await within(asyncio.gather(*(pcm_of(stream) for stream in streams), return_exceptions=True))
    assert [type(answer) for answer in answers] == [WorkerLost] * len(streams)
    assert all(answer.retry_after_s for answer in answers)
    with pytest.raises((EngineFailed, EngineOverloaded)):
        open_stream(engine, "hello")
    await until(lambda: engine.not_ready_because() is None, START_S)
    assert pid_of(engine) != pid
    assert await within(pcm_of(open_stream(engine, "please hold")))


async def test_a_hung_worker_fails_its_streams_and_is_started_again(engine: WorkerEngine) -> None:
    await idle(engine)
    pid = pid_of(engine)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    streams = [open_stream(engine, *["hello and welcome to the service line"] * 4)]
    answers = await within(asyncio.gather(*(pcm_of(stream) for stream in streams), return_exceptions=True))
    assert [type(answer) for answer in answers] == [WorkerLost] * len(streams)
    assert all("no audio for" in answer.detail or "no heartbeat for" in answer.detail for answer in answers)
    assert all(answer.retry_after_s for answer in answers)
    await until(lambda: engine.not_ready_because() is None, START_S)
    assert pid_of(engine) != pid
    assert await within(pcm_of(open_stream(engine, "please hold")))


async def test_a_stream_that_nobody_reads_is_no_stall(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SLOW_ENGINE_FACTOR", 0.0)
    engine = make_engine(directory, stall_timeout_ms=300.0)
    await within(engine.start())
    try:
        pid = pid_of(engine)
        unread = open_stream(engine, *["hello and welcome to the service line"] * 3)
        come_ms = sum_of_ms(unread)
        await until(lambda: come_ms() > 0.0)
        await asyncio.sleep(2.0)
        assert pid_of(engine) == pid
        await unread.cancel()
    finally:
        await within(engine.stop())


async def test_a_stream_that_waits_for_text_is_no_stall(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "SLOW_ENGINE_FACTOR", 0.0)
    engine = make_engine(directory, stall_timeout_ms=300.0)
    await within(engine.start())
    try:
        pid = pid_of(engine)
        waiting = open_stream(engine, "please hold", end=False)
        reading = asyncio.create_task(pcm_of(waiting))
        await asyncio.sleep(2.0)
        assert pid_of(engine) == pid
        monkeypatch.setattr(
            link_module, "SLOW_ENGINE_FACTOR", 1e6
        )  # from here on it owes audio on a machine that may be slow
        waiting.push("the line", text_chunk_index=1)
        waiting.end()
        assert await within(reading)
    finally:
        await within(engine.stop())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_dir": "/nonexistent"}, "/nonexistent"),
        ({"state_memory_bytes": 1000}, r"state_memory_bytes: 1,000 hold 0 pages"),
        ({"device": "cuda:7"}, r"there is no cuda:7 here"),
    ],
    ids=["model", "memory", "device"],
)
async def test_a_worker_that_cannot_start_says_why(directory: Path, settings: dict[str, Any], reason: str) -> None:
    engine = make_engine(directory, **settings)
    with pytest.raises(ProcessFailed, match=reason):
        await within(engine.start())


async def test_a_model_without_voices_says_how_to_get_one(tmp_path: Path) -> None:
    engine = make_engine(make_tiny_model(tmp_path / "model"))
    with pytest.raises(ProcessFailed, match=r"there is no voice to speak with.*cc-tts voices enrol"):
        await within(engine.start())


async def test_for_one_text_nothing_is_measured_and_it_tells_how_far_it_is(directory: Path) -> None:
    told: list[str] = []
    engine = make_engine(directory, told.append, purpose="say", max_streams=1)
    await within(engine.start())
    assert await within(pcm_of(open_stream(engine, "please hold the line")))
    await within(engine.stop())
    loaded = [int(line.split()[1]) for line in told if line.startswith("loading ")]
    assert loaded == sorted(set(loaded))
    assert loaded[-1] == 100
    assert not [line for line in told if line.startswith("measuring")]


async def test_to_serve_it_measures_and_tells_how_far_it_is(directory: Path) -> None:
    told: list[str] = []
    engine = make_engine(directory, told.append)
    await within(engine.start())
    await within(engine.stop())
    assert [line.partition(" (")[0] for line in told if line.startswith("measuring")] == [
        "measuring 1/1"
    ]  # a CPU measures one piece


async def test_a_check_knows_the_voices_and_loads_nothing(directory: Path) -> None:
    told: list[str] = []
    engine = make_engine(directory, told.append, purpose="check")
    await within(engine.start())
    assert [voice.id for voice in engine.voices()] == [VOICE]
    await within(engine.stop())
    assert told == []


async def test_a_check_finds_a_damaged_file(tmp_path: Path) -> None:
    directory = make_tiny_model(tmp_path / "tiny")
    torch.save({VOICE: {"embedding": torch.ones(1, 192)}}, directory / "spk2info.pt")
    (directory / "flow.pt").write_bytes(b"no weights")
    engine = make_engine(directory, purpose="check")
    with pytest.raises(ProcessFailed, match=r"flow\.pt"):
        await within(engine.start())


async def test_it_can_be_stopped_while_it_loads(directory: Path) -> None:
    engine = make_engine(directory)
    starting = asyncio.create_task(engine.start())
    await until(lambda: pid_of(engine) is not None)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await within(engine.stop())
    assert pid_of(engine) is None
