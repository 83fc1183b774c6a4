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
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from bench.report import machine, percentiles, save
from cc_tts.ua import pjsua2_build
from lab.children import Child
from lab.cluster import Call, Cluster
from lab.kamailio import MISSING, find_kamailio
from lab.server_under_test import Json

NUM_CALLS: Final = 40
WHEEL_NUM_CALLS: Final = 8
SETTLE_S: Final = 5.0
WATCH_S: Final = 5.0
"""After each kill."""
PAUSE_S: Final = 0.4
RESUME_TIMEOUT_S: Final = 20.0
"""A worker is some seconds ahead of what is heard."""
LOOK_INTERVAL_S: Final = 0.25
TIME_LIMIT_S: Final = 240.0


@dataclass
class Run:
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
    await server.ask(f"/v1/calls/{call_id}/pause")
    await asyncio.sleep(PAUSE_S)
    await server.ask(f"/v1/calls/{call_id}/resume")
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
    theirs = next((call["id"] for call in (await cluster.nodes[owner].read("/v1/calls"))["calls"]), "")
    server = cluster.nodes[other]
    async with server.http.get(f"{server.url}/v1/calls/{theirs}", allow_redirects=False) as response:
        location = response.headers.get("Location", "")
    if not location:
        return f"GET /v1/calls/{theirs} at {other}: {response.status}"
    async with server.http.get(location) as found:
        return f"GET /v1/calls/{theirs} at {other}: {response.status} to {owner}, {found.status} there"


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
