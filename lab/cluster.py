"""Two line nodes behind Kamailio and two speech workers behind them, as child processes on loopback, and their callers."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

from cc_tts.clock import NS_PER_S
from cc_tts.processes.tasks import cancel_all
from cc_tts.ua import pjsua2_build
from lab.crowd import Crowd
from lab.kamailio import Kamailio, ProxiedCaller
from lab.ports import HOST, free_ports
from lab.server_under_test import Json, Server

VOICES: Final = Path(__file__).parent / "tone_voice"
SENTENCE: Final = "the ships sail on over the quiet sea and the wind keeps blowing from the west "
PROMPT: Final = (SENTENCE * 30).strip()
"""About two minutes of the tone; without a full stop there is no pause in it."""
CHUNK_CHARS: Final = 60
"""About three seconds of the tone, which a worker makes at once: a longer piece would outlast the worker."""
WHEEL_PROCESSES: Final = 2
"""User agents a node with the PyPI wheel, four calls each."""
DIAL_INTERVAL_S: Final = 0.05
ALIVE_WITHIN_S: Final = 1.0
"""A call is up if its caller hears speech so shortly before the end."""
WORKER_START_TIMEOUT_S: Final = 60.0
KILL_TIMEOUT_S: Final = 10.0
BYE_TIMEOUT_S: Final = 240.0
"""How long a caller waits for the server's BYE: as long as the demonstration may take."""


@dataclass(eq=False)
class Call:
    """One caller, the node that took it, and when it heard of the end of its call."""

    caller: ProxiedCaller
    node: str = ""
    status: int = 0
    has_bye: bool = False
    heard: Json = field(default_factory=dict)

    def is_up(self, now_ns: int) -> bool:
        """Whether the caller has just heard speech, and no BYE."""
        return not self.has_bye and self.heard.get("to_ns", 0) > now_ns - ALIVE_WITHIN_S * NS_PER_S

    def longest_silence_ms(self, from_ns: int, to_ns: int) -> float:
        """Of those that began in this time, to the ear of this caller."""
        return max((ms for at_ns, ms in self.heard.get("silences", ()) if from_ns <= at_ns < to_ns), default=0.0)


class Worker:
    """``cc-tts worker`` as a child process."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process = process
        self.address = address

    @classmethod
    async def start(cls, folder: Path, number: int) -> Self:
        """Start it, and wait until it listens."""
        address = f"{HOST}:{free_ports(1)}"
        argv = [sys.executable, "-m", "cc_tts.cli", "worker", "--listen", address]
        for setting in (
            "tts.engine=onnx",
            f"tts.voices_dir={VOICES}",
            "tts.num_threads=1",
            "tts.max_utilisation=1.0",
            "tts.first_audio_target_ms=60000",
        ):
            argv += ["--set", setting]
        log_path = folder / f"worker-{number}.log"
        with log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(*argv, stderr=log)
        worker = cls(process, f"grpc://{address}")
        deadline = time.monotonic() + WORKER_START_TIMEOUT_S
        while "worker_listens" not in log_path.read_text(errors="replace"):
            if process.returncode is not None or time.monotonic() > deadline:
                await worker.end()
                raise RuntimeError(f"a worker did not start:\n{log_path.read_text(errors='replace')[-2000:]}")
            await asyncio.sleep(0.05)
        return worker

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.end()

    async def end(self) -> None:
        """Signal 9, for its engine process too: as if the machine had gone."""
        if self.process.returncode is None:
            kill_all(self.process.pid)
        await self.process.wait()


class Cluster:
    """Two line nodes behind Kamailio, two workers behind them, and the ears of all callers."""

    def __init__(self, stack: contextlib.AsyncExitStack, crowd: Crowd) -> None:
        self._stack = stack
        self._crowd = crowd
        self._byes: set[asyncio.Task[None]] = set()
        self.workers: list[Worker] = []
        self.nodes: dict[str, Server] = {}
        self.calls: list[Call] = []
        self.proxy: Kamailio

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, folder: Path, num_calls: int) -> AsyncIterator[Self]:
        """Start everything. Each node can take all of the calls, and some more."""
        async with contextlib.AsyncExitStack() as stack:
            crowd = await stack.enter_async_context(Crowd.of(2 * num_calls))
            cluster = cls(stack, crowd)
            for number in (1, 2):
                cluster.workers.append(await stack.enter_async_context(await Worker.start(folder, number)))
            await cluster._start_nodes(num_calls)
            nodes = [server.sip_port for server in cluster.nodes.values()]
            cluster.proxy = await Kamailio.start(folder, nodes)
            stack.push_async_callback(cluster.proxy.end)
            stack.push_async_callback(cluster._stop_listening)
            yield cluster

    async def _start_nodes(self, num_calls: int) -> None:
        ports = {f"line-{number}": free_ports(1) for number in (1, 2)}
        table = ", ".join(f'"{name}" = "http://{HOST}:{port}"' for name, port in ports.items())
        workers = json.dumps([worker.address for worker in self.workers])
        is_wheel = os.environ.get(pjsua2_build.VARIABLE, "wheel") == "wheel"
        for name, http_port in ports.items():
            num_rtp = 4 * num_calls + 100
            rtp_port = free_ports(num_rtp)
            settings = [
                f"server.node={name}",
                f"cluster.nodes={{{table}}}",
                "tts.engine=onnx",
                "tts.devices=[]",
                f"tts.workers={workers}",
                "tts.voice=tone",
                f"tts.chunk_max_chars={CHUNK_CHARS}",
                "cache.enabled=false",
                f"routes.tone.greeting={json.dumps(PROMPT)}",
                f"rtp.port_min={rtp_port}",
                f"rtp.port_max={rtp_port + num_rtp - 1}",
                "sip.max_media_lateness_ms=0",
                "sip.max_requests_per_source_s=0",
                "log.level=info",
                "calls.drain_timeout_s=60",  # calls end by their callers alone
            ]
            if is_wheel:
                settings += [
                    f"ua.processes={WHEEL_PROCESSES}",
                    f"ua.first_port={free_ports(WHEEL_PROCESSES)}",
                    'sip.transports=["udp"]',
                ]
            else:
                settings.append(f"sip.max_calls={num_calls + 8}")
            server = await Server.with_settings(*settings, http_port=http_port)
            self.nodes[name] = await self._stack.enter_async_context(server)

    async def dial(self, count: int) -> list[Call]:
        """So many more calls through Kamailio; returns when each is answered or refused, and which node has it."""
        calls = []
        for _ in range(count):
            port = self._crowd.ports[len(self.calls) % len(self._crowd.ports)]
            call = Call(await self._stack.enter_async_context(ProxiedCaller("tone", self.proxy.port)))
            self.calls.append(call)
            calls.append(asyncio.create_task(self._dial(call, port)))
            await asyncio.sleep(DIAL_INTERVAL_S)
        dialled = await asyncio.gather(*calls)
        for name, server in self.nodes.items():
            if server.returncode is None:
                known = {each["sip_call_id"] for each in (await server.read("/v1/calls"))["calls"]}
                for call in dialled:
                    call.node = name if call.caller.call_id in known else call.node
        return dialled

    async def _dial(self, call: Call, ear_port: int) -> Call:
        call.status = await call.caller.dial(ear_port=ear_port)
        if call.status == HTTPStatus.OK:  # SIP has the same
            self._byes.add(asyncio.create_task(self._await_bye(call)))
        return call

    async def _await_bye(self, call: Call) -> None:
        await call.caller.request("BYE", timeout_s=BYE_TIMEOUT_S)
        call.has_bye = True

    async def _stop_listening(self) -> None:
        await cancel_all(*self._byes)

    async def listen(self) -> int:
        """Put what each caller has heard so far into its call; returns the time, ns."""
        heard = await self._crowd.ask("silences")
        for call in self.calls:
            call.heard = heard.get(str(call.caller.rtp_port), {})
        return time.time_ns()

    async def kill_node(self, name: str) -> None:
        """Signal 9 for all its processes, as the machine would end them: nobody says goodbye."""
        kill_all(self.nodes[name].pid)
        await self.nodes[name].ended(KILL_TIMEOUT_S)

    async def hang_up(self, calls: Sequence[Call]) -> int:
        """BYE by the callers; returns how many were answered with 200."""
        await self._stop_listening()
        answers = await asyncio.gather(*(call.caller.bye() for call in calls), return_exceptions=True)
        return sum(not isinstance(answer, BaseException) and answer.status == HTTPStatus.OK for answer in answers)

    async def metric(self, name: str) -> list[int]:
        """A series, with its labels, at each node that is alive."""
        found = []
        for server in self.nodes.values():
            if server.returncode is None:
                lines = (await server.get_text("/metrics"))[1].splitlines()
                found += [int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(f"{name} ")]
        return found

    async def busiest_worker(self) -> tuple[Worker, int]:
        """The one with the most utterances, and how many: of all nodes together, as it reports to each."""
        names = [f'cctts_engine_streams{{worker="{worker.address}"}}' for worker in self.workers]
        counts = [max(await self.metric(name), default=0) for name in names]
        return self.workers[counts.index(max(counts))], max(counts)


def kill_all(pid: int) -> None:
    """Signal 9 for a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
