"""Speech workers behind gRPC: real processes of ``cc-tts worker`` on loopback, with the voice that is packaged."""

import asyncio
import contextlib
import dataclasses
import importlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("grpc")

from cc_tts import __version__
from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config, RemoteConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine import SpeechStream
from cc_tts.engines.factory import make_engine
from cc_tts.engines.remote import relay
from cc_tts.engines.remote.connection import RemoteConnection
from cc_tts.engines.remote.wire import NOT_SERVING, SERVING
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.link import WorkerLost
from cc_tts.errors import EngineFailed, ProcessFailed
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import PROTOCOL_VERSION
from cc_tts.startup import check
from lab.certificates import Authority
from lab.ports import free_ports
from lab.waiting import until
from tests.support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

VOICE = "hibari-heart"
SENTENCE = "Thank you for calling, please hold the line, somebody will be with you shortly."
WITHIN_S = 60.0
NUM_CHUNKS = 8
MAX_OPENED = 40
UNREACHED = "grpc://127.0.0.1:9"


class Worker:
    """A ``cc-tts worker``, and what it logs."""

    def __init__(self, process: asyncio.subprocess.Process, host: str, port: int) -> None:
        self.process = process
        self.host = host
        self.port = port
        self.lines: list[str] = []
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        *settings: str,
        host: str = "127.0.0.1",
        port: int = 0,
        code: str = "",
        generation: str = "",
        wait: bool = True,
    ) -> "Worker":
        port = port or free_ports()
        run = (
            ["-c", f"{code}\nimport sys; from cc_tts.cli import main; sys.exit(main())"]
            if code
            else ["-m", "cc_tts.cli"]
        )
        argv = [sys.executable, *run, "worker", "--listen", f"{host}:{port}", "--generation", generation]
        for setting in ("tts.engine=onnx", "tts.num_threads=1", "tts.first_audio_target_ms=60000", *settings):
            argv += ["--set", setting]
        process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE)
        worker = cls(process, host, port)
        if wait:
            await worker.logs("worker_listens")
        return worker

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode())

    async def logs(self, event: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not any(event in line for line in self.lines):
                assert self.process.returncode is None, self.lines
                await asyncio.sleep(0.02)

    @property
    def url(self) -> str:
        return f"grpc://{self.host}:{self.port}"

    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    async def end_by_itself(self) -> int:
        async with asyncio.timeout(WITHIN_S):
            await self._reading
            return await self.process.wait()

    async def end(self) -> int:
        if self.process.returncode is None:
            self.kill(signal.SIGCONT)
            self.kill(signal.SIGKILL)
        status = await self.process.wait()
        await self._reading
        return status


ESPEAK: dict[str, Any] = {"engine": "espeak"}
"""For what does not depend on the engine: this one loads in no time."""


def engine_of(
    *workers: str,
    remote: RemoteConfig | None = None,
    metrics: Metrics | None = None,
    **settings: Any,
) -> WorkerEngine:
    tts = TtsConfig(engine="onnx", devices=(), workers=workers, worker_start_timeout_s=WITHIN_S)
    config = Config(tts=dataclasses.replace(tts, **settings), remote=remote or RemoteConfig())
    engine = make_engine(config, metrics=metrics)
    assert isinstance(engine, WorkerEngine)
    return engine


@contextlib.asynccontextmanager
async def started(engine: WorkerEngine) -> AsyncIterator[WorkerEngine]:
    async with asyncio.timeout(WITHIN_S):
        await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


def speak(engine: WorkerEngine, num_chunks: int = 1, voice: str = VOICE) -> SpeechStream:
    stream = engine.open(voice)
    for index in range(num_chunks):
        stream.push(SENTENCE, text_chunk_index=index)
    stream.end()
    return stream


async def heard(stream: SpeechStream) -> list[SpeechChunk]:
    async with asyncio.timeout(WITHIN_S):
        return [chunk async for chunk in stream]


async def heard_until(stream: SpeechStream, num_chunks: int, event: Callable[[], None]) -> list[SpeechChunk]:
    """All of it; ``event`` is called when so many text chunks were begun."""
    found: list[SpeechChunk] = []
    is_due = True
    async with asyncio.timeout(WITHIN_S):
        async for chunk in stream:
            found.append(chunk)
            if is_due and chunk.text_chunk_index >= num_chunks - 1:
                is_due = False
                event()
                await asyncio.sleep(0.05)
    return found


def durations_ms(chunks: Sequence[SpeechChunk], num_chunks: int) -> list[float]:
    assert [chunk.text_chunk_index for chunk in chunks] == sorted(chunk.text_chunk_index for chunk in chunks)
    return [
        sum(chunk.duration_ms for chunk in chunks if chunk.text_chunk_index == index) for index in range(num_chunks)
    ]


def ready_in(engine: WorkerEngine) -> list[str]:
    return [link.name for link in engine.workers if link.is_ready]


async def ready(engine: WorkerEngine, num_workers: int) -> None:
    await until(lambda: len(ready_in(engine)) == num_workers)


def serving(engine: WorkerEngine, *workers: Worker) -> Worker:
    (name,) = [link.name for link in engine.workers if link.streams]
    return next(worker for worker in workers if worker.url == name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers() -> AsyncIterator[tuple[Worker, Worker]]:
    both = await asyncio.gather(Worker.start(), Worker.start())
    yield both
    for worker in both:
        await worker.end()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sentence_ms(workers: tuple[Worker, Worker]) -> float:
    async with started(engine_of(workers[0].url)) as engine:
        return sum(chunk.duration_ms for chunk in await heard(speak(engine)))


def must_be_complete(chunks: Sequence[SpeechChunk], sentence_ms: float) -> None:
    """Every text chunk was heard, from its beginning, and none was twice heard in full."""
    durations = durations_ms(chunks, NUM_CHUNKS)
    assert all(ms >= 1500.0 for ms in durations), durations
    assert sum(ms >= 0.95 * sentence_ms for ms in durations) >= NUM_CHUNKS - 1, durations
    assert max(durations) < 1.9 * sentence_ms, durations


async def test_two_servers_share_a_worker_and_hear_their_own_speech(workers: tuple[Worker, Worker]) -> None:
    async with started(engine_of(workers[0].url)) as first, started(engine_of(workers[0].url)) as second:
        assert [voice.id for voice in first.voices()] == [VOICE]
        assert first.identity == second.identity != ""
        streams = [speak(first, 1), speak(second, 3), speak(first, 2), speak(second, 4)]
        all_heard = await asyncio.gather(*map(heard, streams))
        lengths = [sum(chunk.duration_ms for chunk in chunks) for chunks in all_heard]
        for length, num_chunks in zip(lengths, (1, 3, 2, 4), strict=True):
            assert abs(length / lengths[0] - num_chunks) < 0.25
        cancelled, kept = speak(first, NUM_CHUNKS), speak(second, 2)
        await anext(aiter(cancelled))
        await cancelled.cancel()
        assert durations_ms(await heard(kept), 2)[1] > 1000
        (link,) = second.workers
        await until(lambda: link.load is not None and link.load.num_streams == 0)


async def test_a_killed_worker_is_replaced_by_another(workers: tuple[Worker, Worker], sentence_ms: float) -> None:
    victim = await Worker.start()
    port = victim.port
    metrics = Metrics()
    async with started(engine_of(victim.url, workers[0].url, metrics=metrics)) as engine:
        await ready(engine, 2)
        streams = [speak(engine, NUM_CHUNKS) for _ in range(4)]
        while not all(link.streams for link in engine.workers) and len(streams) < MAX_OPENED:
            streams.append(speak(engine, NUM_CHUNKS))  # one of them was measured as slower, on a busy machine
        num_on_victim = len(engine.workers[0].streams)
        assert 1 <= num_on_victim <= len(streams) - 1
        spoken = await asyncio.gather(
            *(
                heard_until(stream, 2, victim.kill if number == 0 else lambda: None)
                for number, stream in enumerate(streams)
            )
        )
        for chunks in spoken:
            must_be_complete(chunks, sentence_ms)
        num_resumed = sum(any(chunk.is_resumed for chunk in chunks) for chunks in spoken)
        counted = metrics.registry.get_sample_value("cctts_engine_resumed_total")
        assert counted is not None
        assert num_resumed <= counted  # one of which nothing had come yet is not altered by it
        assert 1 <= counted <= num_on_victim
        assert metrics.registry.get_sample_value("cctts_engine_room", {"worker": victim.url}) == 0
        await victim.end()
        again = await Worker.start(port=port)
        await ready(engine, 2)
        await again.end()


async def test_a_worker_that_hangs_is_given_up_and_used_again(
    workers: tuple[Worker, Worker], sentence_ms: float
) -> None:
    async with started(engine_of(*(worker.url for worker in workers))) as engine:
        await ready(engine, 2)
        stream = speak(engine, NUM_CHUNKS)
        hung = serving(engine, *workers)
        try:
            must_be_complete(await heard_until(stream, 2, lambda: hung.kill(signal.SIGSTOP)), sentence_ms)
            (lost,) = [link for link in engine.workers if not link.is_ready]
            assert lost.name == hung.url
            assert lost.down_reason == "3 pings were not answered"
        finally:
            hung.kill(signal.SIGCONT)
        await ready(engine, 2)


async def test_without_resumption_or_another_worker_a_lost_one_is_an_error(workers: tuple[Worker, Worker]) -> None:
    victim = await Worker.start()
    engine = engine_of(victim.url, workers[0].url, resume_on_worker_loss=False)
    async with started(engine), started(engine_of(victim.url)) as alone:
        await ready(engine, 2)
        streams = [speak(engine, NUM_CHUNKS), speak(engine, NUM_CHUNKS), speak(alone, NUM_CHUNKS)]
        for stream in streams:
            await anext(aiter(stream))
        num_lost = len(engine.workers[0].streams)
        victim.kill()
        *of_two, of_one = await asyncio.gather(*map(heard, streams), return_exceptions=True)
        assert [type(answer).__name__ for answer in of_two].count("WorkerLost") == num_lost
        assert isinstance(of_one, WorkerLost)
        assert of_one.code == EngineFailed.code
        assert "no engine worker is ready" in str(alone.not_ready_because())
        with pytest.raises(EngineFailed):
            speak(alone)
    await victim.end()


@pytest.mark.parametrize("how", ["cut", "hold"])
async def test_a_connection_that_is_cut_or_half_open(
    workers: tuple[Worker, Worker], sentence_ms: float, how: str
) -> None:
    proxy = TcpProxy(workers[1].port)
    await proxy.start()
    through = f"grpc://127.0.0.1:{proxy.port}"
    async with started(engine_of(through)) as engine, started(engine_of(workers[1].url)) as witness:
        (link,) = engine.workers
        (seen,) = witness.workers
        stream = speak(engine, NUM_CHUNKS)
        await anext(aiter(stream))
        await until(lambda: seen.load is not None and seen.load.num_streams == 1)
        getattr(proxy, how)()
        with pytest.raises(WorkerLost):
            await heard(stream)
        if how == "cut":
            await ready(engine, 1)
            durations_ms(await heard(speak(engine)), 1)
        else:
            await until(lambda: not link.is_ready)
        await until(lambda: seen.load is not None and seen.load.num_streams == 0)  # the worker has freed it
    assert relay.SERVER_TIMEOUT_S < WITHIN_S
    await proxy.stop()


async def test_the_engine_behind_a_worker_dies_and_the_connection_stays(
    workers: tuple[Worker, Worker], sentence_ms: float
) -> None:
    async with started(engine_of(*(worker.url for worker in workers))) as engine:
        await ready(engine, 2)
        stream = speak(engine, NUM_CHUNKS)
        victim = serving(engine, *workers)
        children = victim.children()
        link = next(link for link in engine.workers if link.name == victim.url)
        must_be_complete(await heard_until(stream, 2, lambda: os.kill(children[0], signal.SIGKILL)), sentence_ms)
        assert link.is_ready
        await until(lambda: link.room > 0)


async def test_a_worker_that_answers_pings_and_gives_no_audio_is_left(
    workers: tuple[Worker, Worker], sentence_ms: float
) -> None:
    metrics = Metrics()
    urls = [worker.url for worker in workers]
    async with started(engine_of(*urls, stall_timeout_ms=1000.0, metrics=metrics)) as engine:
        await ready(engine, 2)
        stream = speak(engine, NUM_CHUNKS)
        victim = serving(engine, *workers)
        (child,) = victim.children()
        try:
            must_be_complete(await heard_until(stream, 2, lambda: os.kill(child, signal.SIGSTOP)), sentence_ms)
        finally:
            os.kill(child, signal.SIGCONT)
        assert metrics.registry.get_sample_value("cctts_engine_resumed_total") == 1
        await ready(engine, 2)


async def test_all_workers_are_lost_and_espeak_speaks_until_one_is_back() -> None:
    victim = await Worker.start()
    async with started(engine_of(victim.url, fallback_engine="espeak")) as engine:
        stream = speak(engine, NUM_CHUNKS)
        spoken = await heard_until(stream, 2, victim.kill)
        assert all(ms > 1000 for ms in durations_ms(spoken, NUM_CHUNKS))
        assert {chunk.rate_hz for chunk in spoken} == {24_000, 22_050}
        assert spoken[-1].is_resumed
        await until(lambda: engine.degraded_because is not None)
        assert engine.not_ready_because() is None
        assert all(chunk.is_resumed for chunk in await heard(speak(engine)))
        await victim.end()
        again = await Worker.start(port=victim.port)
        await until(lambda: engine.degraded_because is None)
        assert not any(chunk.is_resumed for chunk in await heard(speak(engine)))
        assert engine.not_ready_because() is None
        await again.end()


async def test_espeak_on_another_machine_has_its_variants_and_says_where_words_begin() -> None:
    worker = await Worker.start("tts.engine=espeak")
    try:
        async with started(engine_of(worker.url, engine="espeak")) as engine:
            assert engine.resolve_voice(None, None).id == "en-us"
            stream = engine.open("en+f3")
            stream.push("Hello there.", text_chunk_index=0)
            stream.end()
            chunks = await heard(stream)
            assert {chunk.rate_hz for chunk in chunks} == {22_050}
            assert [word.position for chunk in chunks for word in chunk.spoken_words] == [0, 6]
    finally:
        await worker.end()


async def test_workers_of_a_name_come_and_go(
    workers: tuple[Worker, Worker], monkeypatch: pytest.MonkeyPatch, sentence_ms: float
) -> None:
    monkeypatch.setattr("cc_tts.engines.remote.workers.LOOK_UP_INTERVAL_S", 0.1)
    other = await Worker.start(host="127.0.0.2", port=workers[0].port)
    addresses = ["127.0.0.1"]

    async def look_up(name: str, port: int) -> Sequence[str]:
        assert (name, port) == ("workers.test", other.port)
        if not addresses:
            raise OSError("no name server")
        return tuple(addresses)

    tts = TtsConfig(engine="onnx", devices=(), workers=(f"dns:workers.test:{other.port}",))
    metrics = Metrics()
    elsewhere = RemoteWorkers(Config(tts=tts), clock=MonotonicClock(), metrics=metrics, look_up=look_up)
    async with started(WorkerEngine(tts, [], elsewhere, metrics=metrics)) as engine:
        assert ready_in(engine) == [f"127.0.0.1:{other.port}"]
        addresses.append("127.0.0.2")
        await ready(engine, 2)
        addresses.clear()
        await until(lambda: any("no name server" in fault for fault in elsewhere.faults))
        assert len(ready_in(engine)) == 2
        stream = speak(engine, NUM_CHUNKS)
        await anext(aiter(stream))
        (used,) = [link for link in engine.workers if link.streams]
        addresses.append(next(each for each in ("127.0.0.1", "127.0.0.2") if each not in used.name))
        await ready(engine, 1)
        assert used in engine.workers  # until it has spoken to the end
        assert not any(chunk.is_resumed for chunk in await heard(stream))
        await until(lambda: used not in engine.workers)
        series = ("cctts_engine_room", {"worker": used.name})
        await until(lambda: metrics.registry.get_sample_value(*series) is None)
    await other.end()


async def test_the_newest_generation_speaks_a_canary_gets_its_share_and_either_takes_over(
    workers: tuple[Worker, Worker],
) -> None:
    old, new = workers[0], await Worker.start(generation="999.0")
    metrics = Metrics()
    engine = engine_of(old.url, new.url, metrics=metrics)
    async with started(engine):
        await ready(engine, 2)
        assert {worker.address: worker.generation for worker in engine.elsewhere.workers} == {
            old.url: __version__,
            new.url: "999.0",
        }

        async def used() -> set[Worker]:
            found = set()
            for number in range(4):
                stream = engine.open(VOICE, call_id=f"call_{number}")
                found.add(serving(engine, old, new))
                await stream.cancel()
            return found

        assert await used() == {new}
        engine.elsewhere.generations = {"999.0": 0.0}
        assert await used() == {old}
        engine.elsewhere.generations = {"999.0": 1.0}
        stream = speak(engine, NUM_CHUNKS)
        assert serving(engine, old, new) is new
        assert all(ms > 1000 for ms in durations_ms(await heard_until(stream, 2, new.kill), NUM_CHUNKS))
        assert await used() == {old}
        sample = metrics.registry.get_sample_value
        assert sample("cctts_engine_generation_streams_total", {"generation": "999.0", "result": "lost"}) == 1
        assert sample("cctts_engine_generation_streams_total", {"generation": __version__, "result": "spoken"}) == 1
    await new.end()


async def test_a_worker_whose_generation_has_no_usable_name_is_refused() -> None:
    worker = await Worker.start(generation="no label", wait=False)
    assert await worker.end_by_itself() == 2
    assert "'no label' is no name of a generation" in "".join(worker.lines)
    lies = "import cc_tts.engines.remote.host as host; host.__version__ = 'x' * 33; "
    lies += "import cc_tts.config.remote as remote; remote.check_generation = lambda *_: None"
    worker = await Worker.start("tts.engine=espeak", code=lies)
    with pytest.raises(ProcessFailed, match="its generation is called 'xxxxx"):
        await engine_of(worker.url, worker_start_timeout_s=1.0, **ESPEAK).start()
    await worker.end()


async def test_a_worker_of_another_protocol_is_refused() -> None:
    lies = "import cc_tts.engines.remote.host as host; host.PROTOCOL_VERSION = 99"
    worker = await Worker.start("tts.engine=espeak", code=lies)
    engine = engine_of(worker.url, worker_start_timeout_s=2.0, **ESPEAK)
    refusal = f"speaks protocol 99, this server {PROTOCOL_VERSION}: run the same version of cc-tts on both"
    with pytest.raises(ProcessFailed, match=refusal):
        await engine.start()
    await worker.end()


async def test_a_worker_of_another_engine_is_refused(workers: tuple[Worker, Worker]) -> None:
    engine = engine_of(workers[0].url, engine="cosyvoice2", worker_start_timeout_s=2.0)
    with pytest.raises(
        ProcessFailed, match=r"it runs the engine 'onnx', this server uses 'cosyvoice2': set tts\.engine"
    ):
        await engine.start()


async def test_a_token_is_asked_for() -> None:
    worker = await Worker.start("tts.engine=espeak", "remote.token=horse-battery")
    for token in ("", "another"):
        engine = engine_of(worker.url, remote=RemoteConfig(token=token), worker_start_timeout_s=2.0, **ESPEAK)
        with pytest.raises(ProcessFailed, match=r"asks for the token.*set remote\.token alike.*check that"):
            await engine.start()
    async with started(engine_of(worker.url, remote=RemoteConfig(token="horse-battery"), **ESPEAK)) as engine:
        assert await heard(speak(engine, voice="en-us"))
    assert "horse-battery" not in "".join(worker.lines)
    await worker.end()


async def test_tls_with_certificates_at_both_ends(tmp_path: Path) -> None:
    ours, strange = Authority.create(tmp_path / "ours"), Authority.create(tmp_path / "strange")

    def files(ca: Authority, pair_of: Authority | None, name: str) -> RemoteConfig:
        if pair_of is None:
            return RemoteConfig(ca_file=str(ca.certificate))
        pair = pair_of.issue(name)
        return RemoteConfig(
            ca_file=str(ca.certificate), certificate_file=str(pair.certificate), private_key_file=str(pair.key)
        )

    of_worker = files(ours, ours, "worker")
    keys = ("ca_file", "certificate_file", "private_key_file")
    files_of_worker = (f"remote.{key}={getattr(of_worker, key)}" for key in keys)
    worker = await Worker.start("tts.engine=espeak", *files_of_worker)
    url = worker.url.replace("grpc:", "grpcs:")
    for wrong in (files(ours, None, ""), files(ours, strange, "server"), files(strange, ours, "server")):
        with pytest.raises(ProcessFailed, match="cannot be used"):
            await engine_of(url, remote=wrong, worker_start_timeout_s=1.0, **ESPEAK).start()
    async with started(engine_of(url, remote=files(ours, ours, "server"), **ESPEAK)) as engine:
        assert await heard(speak(engine, voice="en-us"))
    await worker.end()


async def test_a_drained_worker_speaks_to_the_end_and_says_so() -> None:
    grpc: Any = importlib.import_module("grpc")
    worker = await Worker.start()
    async with started(engine_of(worker.url)) as engine:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{worker.port}") as channel:
            ask = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert await ask(b"") == SERVING
            stream = speak(engine, NUM_CHUNKS)
            await anext(aiter(stream))
            worker.kill(signal.SIGTERM)
            await until(lambda: engine.not_ready_because() == "the worker is draining")
            assert await ask(b"") == NOT_SERVING
        await heard(stream)
        assert await worker.process.wait() == 0
    await worker.end()


async def test_the_check_says_which_worker_is_not_reached(workers: tuple[Worker, Worker]) -> None:
    tts = TtsConfig(engine="onnx", devices=(), workers=(workers[0].url, UNREACHED))
    warnings, _ = await check(Config(tts=tts))
    (warning,) = [each for each in warnings if "speech worker" in each]
    assert UNREACHED in warning
    assert "check that `cc-tts worker` runs there" in warning


async def test_a_server_that_starts_first_waits_for_a_worker() -> None:
    port = free_ports()
    engine = engine_of(f"grpc://127.0.0.1:{port}", **ESPEAK)
    starting = asyncio.create_task(engine.start())
    worker = await Worker.start("tts.engine=espeak", port=port)
    async with asyncio.timeout(WITHIN_S):
        await starting
    assert await heard(speak(engine, voice="en-us"))
    (link,) = engine.workers
    assert isinstance(link.process, RemoteConnection)
    await engine.stop()
    await worker.end()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("0.0.0.0", "without TLS only loopback and private addresses"),
        ("192.168.77.1", "anybody there could use the worker; set remote.token"),
    ],
)
async def test_a_worker_that_may_not_listen_says_why(host: str, reason: str) -> None:
    worker = await Worker.start(host=host, port=7400, wait=False)
    assert await worker.end_by_itself() == 2
    assert reason in "".join(worker.lines)
