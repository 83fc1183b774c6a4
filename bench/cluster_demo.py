"""``make cluster-demo``: two line nodes, two speech workers and Kamailio, and calls that hear speech all the time. A worker
and a node are killed (signal 9), and what the callers heard of it is printed.

::

    callers ── SIP ──▸ Kamailio ──▸ line-1, line-2 ── gRPC ──▸ worker 1, worker 2
       ◂────────────────── RTP ──────┘

Everything runs on loopback, as processes of its own. The voice is a tone, which costs a worker next to nothing, so that two
cores carry the calls; and any silence in it is a gap. Exit status 1: a call ended, or a prompt broke off, that should not
have.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import aiohttp

from bench.lab import HOST, Json, LabServer, free_ports, machine, percentiles, save
from bench.sip_load import Crowd
from cc_tts.ua import pjsua2_build
from tests.e2e.children import Child
from tests.e2e.kamailio import MISSING, Kamailio, ProxiedCaller, find_kamailio

VOICES: Final = Path(__file__).parent / "tone_voice"
SENTENCE: Final = "the ships sail on over the quiet sea and the wind keeps blowing from the west "
PROMPT: Final = (SENTENCE * 30).strip()
"""About two minutes of the tone; without a full stop there is no pause in it."""
CHUNK_CHARS: Final = 60
"""About three seconds of the tone, which a worker makes at once: a longer piece would outlast the worker."""
NUM_CALLS: Final = 40
WHEEL_NUM_CALLS: Final = 8
WHEEL_PROCESSES: Final = 2
"""User agents a node with the PyPI wheel, four calls each."""
DIAL_INTERVAL_S: Final = 0.05
SETTLE_S: Final = 5.0
WATCH_S: Final = 5.0
"""After each kill."""
PAUSE_S: Final = 0.4
RESUME_TIMEOUT_S: Final = 20.0
"""A worker is some seconds ahead of what is heard."""
LOOK_INTERVAL_S: Final = 0.25
ALIVE_WITHIN_S: Final = 1.0
"""A call is up if its caller hears speech so shortly before the end."""
WORKER_START_TIMEOUT_S: Final = 60.0
TIME_LIMIT_S: Final = 240.0
NS: Final = 1_000_000_000


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
        return not self.has_bye and self.heard.get("to_ns", 0) > now_ns - ALIVE_WITHIN_S * NS

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
        self.nodes: dict[str, LabServer] = {}
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
            await cluster._start_nodes(folder, num_calls)
            nodes = [server.sip_port for server in cluster.nodes.values()]
            cluster.proxy = await Kamailio.start(folder, nodes)
            stack.push_async_callback(cluster.proxy.end)
            stack.push_async_callback(cluster._stop_listening)
            yield cluster

    async def _start_nodes(self, folder: Path, num_calls: int) -> None:
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
            ]
            if is_wheel:
                settings += [
                    f"ua.processes={WHEEL_PROCESSES}",
                    f"ua.first_port={free_ports(WHEEL_PROCESSES)}",
                    'sip.transports=["udp"]',
                ]
            else:
                settings.append(f"sip.max_calls={num_calls + 8}")
            log_path = folder / f"{name}.log"
            try:
                server = await LabServer.start(*settings, log_path=log_path, http_port=http_port)
            except RuntimeError:
                raise RuntimeError(f"{name} did not start:\n{log_path.read_text(errors='replace')[-2000:]}") from None
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
            if server.process.returncode is None:
                known = {each["sip_call_id"] for each in (await server.get("/v1/calls"))["calls"]}
                for call in dialled:
                    call.node = name if call.caller.call_id in known else call.node
        return dialled

    async def _dial(self, call: Call, ear_port: int) -> Call:
        call.status = await call.caller.dial(ear_port=ear_port)
        if call.status == HTTPStatus.OK:  # SIP has the same
            self._byes.add(asyncio.create_task(self._await_bye(call)))
        return call

    async def _await_bye(self, call: Call) -> None:
        await call.caller.request("BYE", timeout_s=TIME_LIMIT_S)
        call.has_bye = True

    async def _stop_listening(self) -> None:
        for task in self._byes:
            task.cancel()
        await asyncio.gather(*self._byes, return_exceptions=True)

    async def listen(self) -> int:
        """Put what each caller has heard so far into its call; returns the time, ns."""
        heard = await self._crowd.ask("silences")
        for call in self.calls:
            call.heard = heard.get(str(call.caller.rtp_port), {})
        return time.time_ns()

    async def kill_node(self, name: str) -> None:
        """Signal 9 for all its processes, as the machine would end them: nobody says goodbye."""
        process = self.nodes[name].process
        kill_all(process.pid)
        await process.wait()

    async def hang_up(self, calls: Sequence[Call]) -> int:
        """BYE by the callers; returns how many were answered with 200."""
        await self._stop_listening()
        answers = await asyncio.gather(*(call.caller.bye() for call in calls), return_exceptions=True)
        return sum(not isinstance(answer, BaseException) and answer.status == HTTPStatus.OK for answer in answers)

    async def metric(self, name: str) -> list[int]:
        """A series, with its labels, at each node that is alive."""
        found = []
        for server in self.nodes.values():
            if server.process.returncode is None:
                async with server.http.get(f"{server.url}/metrics") as response:
                    lines = (await response.text()).splitlines()
                found += [int(float(line.rpartition(" ")[2])) for line in lines if line.startswith(f"{name} ")]
        return found

    async def busiest_worker(self) -> tuple[Worker, int]:
        """The one with the most utterances, and how many: of all nodes together, as it reports to each."""
        names = [f'cctts_engine_streams{{worker="{worker.address}"}}' for worker in self.workers]
        counts = [max(await self.metric(name), default=0) for name in names]
        return self.workers[counts.index(max(counts))], max(counts)


@dataclass
class Run:
    """What happened, and when."""

    num_calls: int
    calls: list[Call] = field(default_factory=list)
    new_calls: list[Call] = field(default_factory=list)
    killed_node: str = ""
    begun_ns: int = 0
    worker_killed_ns: int = 0
    node_killed_ns: int = 0
    over_ns: int = 0
    heard_pause_ms: float = 0.0
    worker_streams: int = 0
    resumed: int = 0
    failed_prompts: int = 0
    redirect: str = ""
    byes_answered: int = 0

    @property
    def kept(self) -> list[Call]:
        """Calls of the line node that went on."""
        return [call for call in self.calls if call.node != self.killed_node]

    @property
    def lost(self) -> list[Call]:
        """Calls of the line node that was killed."""
        return [call for call in self.calls if call.node == self.killed_node]

    def faults(self) -> list[str]:
        """What should not have happened, a sentence each."""
        found = []
        if refused := [call for call in self.calls + self.new_calls if call.status != HTTPStatus.OK]:
            found.append(f"{len(refused)} calls were not answered: {sorted({call.status for call in refused})}")
        if ended := [call for call in self.kept + self.new_calls if not call.is_up(self.over_ns)]:
            found.append(f"{len(ended)} calls ended that no killed process had")
        if not PAUSE_S * 1000 / 2 < self.heard_pause_ms < PAUSE_S * 1000 * 10:
            found.append(
                f"a pause of {PAUSE_S * 1000:.0f} ms was heard as {self.heard_pause_ms:.0f} ms: gaps prove nothing"
            )
        if not self.lost or not self.kept:
            found.append("one node had no calls, so that nothing was shown")
        if elsewhere := [call for call in self.new_calls if call.node in ("", self.killed_node)]:
            found.append(f"{len(elsewhere)} new calls are not at the node that is left")
        if self.failed_prompts:
            found.append(f"{self.failed_prompts} prompts broke off")
        if self.resumed < self.worker_streams or not self.worker_streams:
            found.append(f"of {self.worker_streams} prompts of the killed worker {self.resumed} went on")
        if self.byes_answered != len(self.kept) + len(self.new_calls):
            found.append(f"{len(self.kept) + len(self.new_calls) - self.byes_answered} calls could not be hung up")
        return found

    def groups(self) -> dict[str, tuple[int, int]]:
        """Calls of each kind, and how many of them are up."""
        kinds = {
            f"{self.killed_node}, killed": self.lost,
            ", ".join(sorted({call.node for call in self.kept})): self.kept,
            "begun after that": self.new_calls,
        }
        return {name: (len(calls), sum(call.is_up(self.over_ns) for call in calls)) for name, calls in kinds.items()}

    def silences_ms(self) -> dict[str, Json]:
        """The longest silence of each caller, by what had been killed last."""
        phases = (
            ("before anything was killed", self.calls, self.begun_ns, self.worker_killed_ns),
            ("when a speech worker was killed", self.calls, self.worker_killed_ns, self.node_killed_ns),
            (f"when {self.killed_node} was killed, calls elsewhere", self.kept, self.node_killed_ns, self.over_ns),
        )
        return {
            name: percentiles([call.longest_silence_ms(from_ns, to_ns) for call in calls])
            for name, calls, from_ns, to_ns in phases
        }

    def result(self) -> Json:
        """For ``bench/results``."""
        return {
            "what": "two line nodes and two speech workers behind Kamailio, all on one machine; the voice is a tone",
            "machine": machine(),
            "pjsua2": os.environ.get(pjsua2_build.VARIABLE, "wheel"),
            "calls_and_kept": self.groups(),
            "longest_silence_ms": self.silences_ms(),
            f"pause_of_{PAUSE_S * 1000:.0f}_ms_heard_ms": self.heard_pause_ms,
            "prompts_of_killed_worker": self.worker_streams,
            "prompts_resumed": self.resumed,
            "new_calls_answered_s": [round(call.caller.final_after_s, 3) for call in self.new_calls],
            "faults": self.faults(),
        }

    def show(self) -> None:
        """The table."""
        print(f"\n  calls{'':37} {'n':>5} {'kept':>6} {'ended':>6}")
        for name, (num, kept) in self.groups().items():
            print(f"    {name:40} {num:>5} {kept:>6} {num - kept:>6}")
        print(f"\n  longest silence that a caller heard, ms{'':3} {'n':>5} {'p50':>7} {'p95':>7} {'max':>7}")
        for name, figures in self.silences_ms().items():
            cells = " ".join(f"{figures.get(key, 0.0):>7.0f}" for key in ("p50", "p95", "max"))
            print(f"    {name:40} {figures['n']:>5} {cells}")
        waits_s = [call.caller.final_after_s for call in self.new_calls]
        print(f"\n  prompts of the killed worker: {self.worker_streams}; said on by the other one: {self.resumed}")
        if waits_s:
            print(f"  new calls after the node was killed: answered within {max(waits_s):.1f} s")
        print(f"  {self.redirect}")


async def rehearse(cluster: Cluster, num_calls: int, say: Callable[[str], None]) -> Run:
    """The calls and the kills."""
    run = Run(num_calls)
    say(f"dialling {num_calls} calls through Kamailio …")
    run.calls = await cluster.dial(num_calls)
    shares = {name: sum(call.node == name for call in run.calls) for name in cluster.nodes}
    say(f"answered: {', '.join(f'{count} by {name}' for name, count in shares.items())}")
    await asyncio.sleep(1.0)
    run.heard_pause_ms = await pause(cluster, run.calls[0])
    say(f"one prompt paused for {PAUSE_S * 1000:.0f} ms: its caller heard {run.heard_pause_ms:.0f} ms of silence")
    run.begun_ns = time.time_ns()
    await asyncio.sleep(SETTLE_S)

    first, second = cluster.nodes
    run.redirect = await ask_elsewhere(cluster, first, second)
    victim, run.worker_streams = await cluster.busiest_worker()
    run.worker_killed_ns = time.time_ns()
    await victim.end()
    say(f"killed a worker, which was speaking on {run.worker_streams} calls")
    run.resumed = await resumed(cluster, run.worker_streams)
    say(f"{run.resumed} prompts are said on by the other worker")
    await asyncio.sleep(WATCH_S)

    run.killed_node = first
    run.node_killed_ns = time.time_ns()
    await cluster.kill_node(first)
    say(f"killed {first} with {len(run.lost)} calls")
    num_new = max(2, num_calls // 10)
    run.new_calls = await cluster.dial(num_new)
    say(f"dialled {num_new} new calls: {[call.status for call in run.new_calls]}")
    await asyncio.sleep(WATCH_S)
    run.over_ns = await cluster.listen()
    run.failed_prompts = sum(await cluster.metric('cctts_utterances_total{cause="error"}'))
    run.byes_answered = await cluster.hang_up([*run.kept, *run.new_calls])
    return run


async def pause(cluster: Cluster, call: Call) -> float:
    """Hold a prompt for a moment: would a silence be heard as one? Returns how long it was to the caller, ms."""
    server, from_ns = cluster.nodes[call.node], time.time_ns()
    call_id = await server.call_id(call.caller.call_id)
    await server.post(f"/v1/calls/{call_id}/pause")
    await asyncio.sleep(PAUSE_S)
    await server.post(f"/v1/calls/{call_id}/resume")
    await asyncio.sleep(1.0)
    return call.longest_silence_ms(from_ns, await cluster.listen())


async def resumed(cluster: Cluster, wanted: int) -> int:
    """How many prompts another worker has gone on with. What the lost one has made for a prompt is said first."""
    count = 0
    for _ in range(round(RESUME_TIMEOUT_S / LOOK_INTERVAL_S)):
        count = sum(await cluster.metric("cctts_engine_resumed_total"))
        if count >= wanted:
            break
        await asyncio.sleep(LOOK_INTERVAL_S)
    return count


async def ask_elsewhere(cluster: Cluster, owner: str, other: str) -> str:
    """Ask a node for a call of the other one; returns a line about the answer."""
    theirs = next((call["id"] for call in (await cluster.nodes[owner].get("/v1/calls"))["calls"]), "")
    server = cluster.nodes[other]
    async with server.http.get(f"{server.url}/v1/calls/{theirs}", allow_redirects=False) as response:
        location = response.headers.get("Location", "")
    if not location:
        return f"GET /v1/calls/{theirs} at {other}: {response.status}"
    async with server.http.get(location) as found:
        return f"GET /v1/calls/{theirs} at {other}: {response.status} to {owner}, {found.status} there"


def kill_all(pid: int) -> None:
    """Signal 9 for a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def missing() -> str | None:
    """What is not here, and the command that adds it."""
    if find_kamailio() is None:
        return MISSING
    if importlib.util.find_spec("grpc") is None:
        return "grpcio is not installed: .venv/bin/pip install -r requirements/remote.txt"
    return None


def choose_build(wanted: int | None) -> int:
    """Take the server build of pjsua2 where there is one; returns how many calls to make."""
    if pjsua2_build.VARIABLE not in os.environ and pjsua2_build.is_built():
        os.environ[pjsua2_build.VARIABLE] = "server"
    if os.environ.get(pjsua2_build.VARIABLE, "wheel") != "wheel":
        return wanted or NUM_CALLS
    if wanted is None:
        print(
            f"The PyPI wheel of pjsua2 takes 4 calls a process: {WHEEL_NUM_CALLS} calls instead of {NUM_CALLS}. "
            "`make pjsua2` builds one for more, in four minutes."
        )
    return min(wanted or WHEEL_NUM_CALLS, WHEEL_NUM_CALLS)


async def main(num_calls: int, *, saves: bool) -> int:
    """Returns the exit status."""
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun_s:6.1f} s  {text}", flush=True)

    try:
        with tempfile.TemporaryDirectory() as folder:
            say("starting two workers, two line nodes and Kamailio …")
            async with asyncio.timeout(TIME_LIMIT_S), Cluster.of(Path(folder), num_calls) as cluster:
                say("everything is up")
                run = await rehearse(cluster, num_calls, say)
    except (RuntimeError, TimeoutError, aiohttp.ClientError) as error:
        print(f"FAILED: {error or f'not done within {TIME_LIMIT_S:.0f} s'}")
        return 1
    finally:
        await Child.end_all()
    run.show()
    if saves:
        print(f"  {save('cluster_demo', run.result())}")
    faults = run.faults()
    for fault in faults:
        print(f"  FAILED: {fault}")
    if not faults:
        print(f"  no call ended but those of {run.killed_node}")
    return 1 if faults else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, help=f"{NUM_CALLS} with the server build of pjsua2")
    parser.add_argument("--save", action="store_true", help="write bench/results/cluster_demo.json")
    options = parser.parse_args()
    if (what := missing()) is not None:
        sys.exit(what)
    sys.exit(asyncio.run(main(choose_build(options.calls), saves=options.save)))
