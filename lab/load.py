"""Many calls at once from SIPp, which speak one prompt of the cache, and what the server's processes spend on them."""

import asyncio
import contextlib
import csv
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

from lab.crowd import Crowd
from lab.ports import HOST, free_ports
from lab.server_under_test import Json, Server, entries, pids_under

SCENARIO = Path(__file__).parents[1] / "sip" / "scenarios" / "load.xml"
SENTENCE = "Your call is important to us, and all of our agents are talking to other customers at the moment. "
PROMPT_SENTENCES = 9
"""About 50 seconds: longer than a level lasts, shorter than cache.max_prompt_s."""
SETTLE_S = 2.0
GRACE_S = 20.0
RTP_FIRST_PORT = 16_384
COOLING_PAIRS = 1000
"""RTP ports in cooldown after their calls, at 50 calls a second and a few seconds each, and some to spare."""


class Meter:
    """CPU of groups of processes, by /proc."""

    def __init__(self, **pids: int | Sequence[int]) -> None:
        self._pids = {name: [some] if isinstance(some, int) else some for name, some in pids.items()}
        self._begun_s = asyncio.get_running_loop().time()
        self._cpu_s = {name: sum(map(cpu_s, some)) for name, some in self._pids.items()}
        self._machine_s = machine_cpu_s()

    def cores(self) -> dict[str, float]:
        """Cores each has used on average since the meter was made, and ``machine``, everything that runs on it."""
        elapsed_s = asyncio.get_running_loop().time() - self._begun_s
        used_s = {name: sum(map(cpu_s, some)) - self._cpu_s[name] for name, some in self._pids.items()}
        used_s["machine"] = machine_cpu_s() - self._machine_s
        return {name: round(some_s / elapsed_s, 3) for name, some_s in used_s.items()}


def cpu_s(pid: int) -> float:
    """User and system time a process has used, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_s() -> float:
    """Time in which the cores of the machine were not idle, summed, seconds."""
    user, nice, system, _idle, _iowait, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def footprint(pid: int) -> Json:
    """Resident memory, threads and descriptors of a process."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return {
        "rss_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "threads": int(status["Threads"]),
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def growth(before: Json, after: Json) -> Json:
    """Difference of the footprints of each process that is in both."""
    return {
        name: {key: round(after[name][key] - figure, 1) for key, figure in of_process.items()}
        for name, of_process in before.items()
        if isinstance(of_process, dict) and name in after
    }


async def counter(server: Server, name: str) -> float:
    """Sum of a Prometheus series over its labels."""
    lines = (await server.get_text("/metrics"))[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)


class Sipp:
    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self._folder = folder

    @classmethod
    async def start(
        cls,
        server: Server,
        ports: Sequence[int],
        folder: Path,
        *,
        rate: float,
        stay_s: float,
        num_calls: int | None = None,
        user: str = "load",
    ) -> Self:
        """One call of ``stay_s`` to ``user`` for each of ``ports``, or ``num_calls`` that take turns; ``rate`` a second."""
        num_calls = len(ports) if num_calls is None else num_calls
        sipp = shutil.which("sipp")
        if sipp is None:
            raise SystemExit("sipp is missing: apt-get install --no-install-recommends sip-tester")
        (folder / "ports.csv").write_text("SEQUENTIAL\n" + "".join(f"{port}\n" for port in ports))
        argv = [sipp, "-sf", str(SCENARIO), "-inf", str(folder / "ports.csv"), "-s", user, "-nostdin"]
        argv += ["-m", str(num_calls), "-l", str(len(ports))]
        argv += ["-r", f"{max(1, round(rate))}", "-d", f"{stay_s * 1000:.0f}"]
        argv += ["-i", HOST, "-p", str(free_ports(1)), "-trace_stat", "-fd", "1", "-stf", str(folder / "stat.csv")]
        argv += ["-trace_err", "-error_file", str(folder / "errors.txt"), "-max_socket", "8192"]
        argv += ["-trace_rtt", "-rtt_freq", "1", f"{HOST}:{server.sip_port}"]
        with (folder / "screen.txt").open("wb") as screen:
            process = await asyncio.create_subprocess_exec(*argv, stdout=screen, stderr=screen, cwd=folder)
        return cls(process, folder)

    def result(self) -> Json:
        """Calls that succeeded and failed, and how long the 200 took."""
        with (self._folder / "stat.csv").open() as file:
            last = list(csv.DictReader(file, delimiter=";"))[-1]
        rows = [row for path in self._folder.glob("*_rtt.csv") for row in path.read_text().splitlines()[1:]]
        waits_ms = sorted(float(row.split(";")[1]) for row in rows)
        return {
            "succeeded": int(last["SuccessfulCall(C)"]),
            "failed": int(last["FailedCall(C)"]),
            "retransmissions": int(last["Retransmissions(C)"]),
            "answer_ms": {
                "p50": waits_ms[len(waits_ms) // 2],
                "p99": waits_ms[int(len(waits_ms) * 0.99)],
                "max": waits_ms[-1],
            }
            if waits_ms
            else {},
        }


def server_pids(server: Server) -> dict[str, list[int]]:
    pids = {"ua": server.pids_of("cc_tts.ua"), "server": [server.pid]}
    recorders = [pid for ua in pids["ua"] for pid in pids_under(ua, "cc_tts.recorder")]
    others = {"dispatcher": server.pids_of("cc_tts.ua.dispatcher"), "recorder": recorders}
    return pids | {name: some for name, some in others.items() if some}


def ua_rss_kib(server: Server) -> float:
    """Resident memory of the UA processes together."""
    return sum(1024 * float(footprint(pid)["rss_mib"]) for pid in server.pids_of("cc_tts.ua"))


async def level(
    server: Server, num_calls: int, *, rate: float, window_s: float, idle_kib: float, user: str = "load"
) -> Json:
    """One level: ramp up, let it settle, measure, let the callers hang up."""
    pids = server_pids(server)
    late, underruns = (
        await counter(server, "cctts_ua_late_frames_total"),
        await counter(server, "cctts_playout_underruns_total"),
    )
    async with contextlib.AsyncExitStack() as stack:
        crowd = await stack.enter_async_context(Crowd.of(num_calls))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ramp_s = num_calls / rate
        stay_s = ramp_s + 2 * SETTLE_S + window_s + 2
        ramp = Meter(**pids)
        sipp = await Sipp.start(server, crowd.ports, folder, rate=rate, stay_s=stay_s, user=user)
        try:
            await asyncio.sleep(ramp_s)
            ramp_cores = ramp.cores()
            await asyncio.sleep(SETTLE_S)
            crowd.tell("start")
            meter = Meter(**pids, crowd=crowd.pid, sipp=sipp.process.pid)
            await asyncio.sleep(window_s)
            cores, memory_kib = meter.cores(), ua_rss_kib(server)
            heard = await crowd.ask("report")
            active = await counter(server, "cctts_calls_active")
            await asyncio.wait_for(sipp.process.wait(), stay_s + GRACE_S)
            signalling = sipp.result()
        finally:
            with contextlib.suppress(ProcessLookupError):
                sipp.process.kill()
    await asyncio.sleep(SETTLE_S)
    return {
        "ua_processes": len(pids["ua"]),
        "user": user,
        "calls": num_calls,
        "calls_active": int(active),
        "setup_rate_per_s": rate,
        "signalling": signalling,
        "heard": heard,
        "cores": cores,
        "cores_while_ramping": ramp_cores,
        "ua_cpu_per_leg_percent": round(100 * cores["ua"] / num_calls, 3),
        "ua_memory_per_leg_kib": round((memory_kib - idle_kib) / num_calls, 1),
        "late_frames": int(await counter(server, "cctts_ua_late_frames_total") - late),
        "underruns": int(await counter(server, "cctts_playout_underruns_total") - underruns),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def prompt_of(num_sentences: int) -> str:
    return (SENTENCE * num_sentences).strip()


@contextlib.asynccontextmanager
async def loaded_server(
    max_calls: int,
    *more: str,
    ua_processes: int = 1,
    num_sentences: int = PROMPT_SENTENCES,
    users: Sequence[str] = ("load",),
) -> AsyncIterator[tuple[Server, float, Json]]:
    """A server whose prompt is in the cache; with the memory of its idle UA processes, KiB, and its line ``serving``."""
    settings = [
        f"sip.max_calls={max_calls}",
        "sip.max_requests_per_source_s=0",
        f"rtp.port_min={RTP_FIRST_PORT}",
        f"rtp.port_max={RTP_FIRST_PORT + 2 * (max_calls + COOLING_PAIRS)}",
        f"routes.load.greeting={json.dumps(prompt_of(num_sentences))}",
        "cache.min_uses=1",
        "log.level=info",
        *more,
    ]
    if ua_processes > 1:
        settings += [
            f"ua.processes={ua_processes}",
            f"ua.first_port={free_ports(ua_processes)}",
            'sip.transports=["udp"]',
        ]
    async with await Server.with_settings(*settings) as server:
        idle_kib = ua_rss_kib(server)
        for user in users:
            await level(server, 1, rate=1, window_s=2, idle_kib=idle_kib, user=user)  # fills the cache
        yield server, idle_kib, entries(server.log, "serving")[0]
