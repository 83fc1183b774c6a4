"""Many G.711 legs at once, all speaking one prompt from the cache: what a server carries, seen at the callers' sockets.

``python -m bench.sip_load --calls 50 100 200 400``. SIPp places the calls (``sip/scenarios/load.xml``), ``lab.rtp_crowd``
hears them, all on this machine; the figures of the server's processes come from /proc. ``CC_TTS_PJSUA2`` chooses the build
of pjsua2 (``server`` unless it is set). ``--ua-processes 1 2`` runs every level with one UA process, then with two.

``--record TURNS`` compares legs that are recorded with legs that are not, ``--hep TURNS`` a server that sends its SIP and
RTCP to a collector (HEP) with one that does not.

``--in-a-row N`` makes N short calls instead, ``--rate`` a second, and looks at memory, threads and descriptors as they go.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Self

from bench.report import machine, save
from lab.crowd import Crowd
from lab.load import (
    COOLING_PAIRS,
    GRACE_S,
    PROMPT_SENTENCES,
    RTP_FIRST_PORT,
    Meter,
    Sipp,
    counter,
    footprint,
    growth,
    level,
    loaded_server,
    prompt_of,
    server_pids,
)
from lab.ports import HOST
from lab.server_under_test import Json

BASE_RATE = 50.0
SHORT_CALL_S = 2.0
RECORDED = "recorded"
"""The user whose calls are recorded."""
LOOKS = 20
"""At the footprint, while calls are made in a row."""


async def run_in_a_row(num_calls: int, *, rate: float) -> Json:
    """``num_calls`` short calls, one after the other and some at once."""
    max_at_once = round(4 * rate * SHORT_CALL_S)
    async with loaded_server(max_at_once) as (server, _, serving), Crowd.of(max_at_once) as crowd:
        pids = {"server": server.pid, "ua": server.ua_pid()}
        begun_s = asyncio.get_running_loop().time()
        looks: list[Json] = []

        async def poll(active: float) -> None:
            calls = int(await counter(server, "cctts_calls_total"))
            looks.append(
                {"calls": calls, "active": int(active), **{name: footprint(pid) for name, pid in pids.items()}}
            )
            print(json.dumps(looks[-1]), flush=True)

        await poll(0)
        with tempfile.TemporaryDirectory() as folder:
            sipp = await Sipp.start(
                server, crowd.ports, Path(folder), rate=rate, stay_s=SHORT_CALL_S, num_calls=num_calls
            )
            meter = Meter(**server_pids(server), crowd=crowd.pid, sipp=sipp.process.pid)
            cores: Json = {}
            try:
                while sipp.process.returncode is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(sipp.process.wait(), num_calls / rate / LOOKS)
                    if sipp.process.returncode is None:
                        cores = meter.cores()
                        await poll(await counter(server, "cctts_calls_active"))
            finally:
                with contextlib.suppress(ProcessLookupError):
                    sipp.process.kill()
            signalling = sipp.result()
        elapsed_s = asyncio.get_running_loop().time() - begun_s
        await asyncio.sleep(GRACE_S / 2)
        await poll(await counter(server, "cctts_calls_active"))
    warm = looks[len(looks) // 5]
    return {
        "what": f"{num_calls} calls of {SHORT_CALL_S} s, {rate} a second; SIPp and the sockets on the same machine",
        "machine": {**machine(), "nice": os.nice(0)},
        "pjsua2": {key: serving.get(key) for key in ("pjsua2", "pjsip", "max_calls")},
        "elapsed_s": round(elapsed_s, 1),
        "signalling": signalling,
        "cores": cores,
        "growth_since_call": warm["calls"],
        "growth": growth(warm, looks[-1]),
        "looks": looks,
    }


async def run_recorded(num_calls: int, *, turns: int, rate: float, window_s: float) -> Json:
    """Legs that are recorded and legs that are not, in turns, against one server."""
    users = ("load", RECORDED)
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            f"record.dir={json.dumps(folder)}",
            "record.min_free_bytes=0",
            "sip.max_media_lateness_ms=0",
            f"routes.{RECORDED}.record=dual",
        ]
        settings += [f"routes.{RECORDED}.greeting={json.dumps(prompt_of(PROMPT_SENTENCES))}"]
        levels: list[Json] = []
        async with loaded_server(num_calls + 50, *settings, users=users) as (server, idle_kib, serving):
            for turn in range(2 * turns):
                user = users[turn % 2]
                levels.append(
                    await level(server, num_calls, rate=rate, window_s=window_s, idle_kib=idle_kib, user=user)
                )
                print(json.dumps(levels[-1]), flush=True)
            saved = await counter(server, "cctts_recordings_total")
        lost_ms = _lost_ms(Path(folder))
    cores = {user: statistics.mean(_cores(each) for each in levels if each["user"] == user) for user in users}
    return {
        "what": f"{num_calls} speaking legs, recorded (dual) and not, in turns; SIPp and the sockets on the same machine",
        "machine": {**machine(), "nice": os.nice(0)},
        "pjsua2": {key: serving.get(key) for key in ("pjsua2", "pjsip", "max_calls")},
        "cores": {user: round(some, 3) for user, some in cores.items()},
        "more_percent": round(100 * (cores[RECORDED] / cores["load"] - 1), 1),
        "recordings": int(saved),
        "lost_ms": lost_ms,
        "levels": levels,
    }


async def run_hep(num_calls: int, *, turns: int, rate: float, window_s: float) -> Json:
    """Two servers in turns, of which one sends what it traces to a socket that counts."""
    second_port = RTP_FIRST_PORT + 2 * (num_calls + 50 + COOLING_PAIRS)
    levels: list[Json] = []
    async with _Sink.of() as sink:
        to_sink = f"sip.hep={json.dumps(f'udp:{HOST}:{sink.port}')}"
        ports = f"rtp.port_min={second_port}", f"rtp.port_max={2 * second_port - RTP_FIRST_PORT}"
        async with (
            loaded_server(num_calls + 50) as (plain, idle_kib, serving),
            loaded_server(num_calls + 50, to_sink, *ports) as (traced, traced_idle_kib, _),
        ):
            for turn in range(2 * turns):
                server, kib = (traced, traced_idle_kib) if turn % 2 else (plain, idle_kib)
                sink.packets = 0
                measured = await level(server, num_calls, rate=rate, window_s=window_s, idle_kib=kib)
                levels.append({"hep": bool(turn % 2), "hep_packets": sink.packets, **measured})
                print(json.dumps(levels[-1]), flush=True)
            text = (await traced.get_text("/metrics"))[1]
    return {
        "what": f"{num_calls} speaking legs on a server with sip.hep and one without, in turns; all on the same machine",
        "machine": {**machine(), "nice": os.nice(0)},
        "pjsua2": {key: serving.get(key) for key in ("pjsua2", "pjsip", "max_calls")},
        "more_percent": {when: _more_percent(levels, when) for when in ("cores", "cores_while_ramping")},
        "counted": [line for line in text.splitlines() if line.startswith("cctts_hep_packets_total")],
        "levels": levels,
    }


class _Sink(asyncio.DatagramProtocol):
    """A collector that counts what arrives."""

    def __init__(self) -> None:
        self.packets = 0
        self.port = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls) -> AsyncIterator[Self]:
        transport, sink = await asyncio.get_running_loop().create_datagram_endpoint(cls, local_addr=(HOST, 0))
        sink.port = transport.get_extra_info("sockname")[1]
        try:
            yield sink
        finally:
            transport.close()

    def datagram_received(self, *_: object) -> None:
        self.packets += 1


def _more_percent(levels: Sequence[Json], when: str) -> float:
    """How much more a traced level cost than one that is not, processes of the server together."""
    with_hep, without = (
        statistics.mean(_cores(each, when) for each in levels if each["hep"] is traced) for traced in (True, False)
    )
    return round(100 * (with_hep / without - 1), 1)


def _lost_ms(folder: Path) -> int:
    return sum(json.loads(path.read_text()).get("lost_ms", 0) for path in folder.glob("*.json"))


def _cores(of_level: Json, when: str = "cores") -> float:
    """Cores of all processes of the server together."""
    return sum(float(of_level[when].get(name, 0.0)) for name in ("ua", "server", "dispatcher", "recorder"))


async def run(calls: Sequence[int], *, ua_processes: Sequence[int], rate: float, window_s: float) -> Json:
    """Every level against one server for each number of UA processes."""
    levels: list[Json] = []
    for number in ua_processes:
        async with loaded_server(max(calls) + 50, ua_processes=number) as (server, idle_kib, serving):
            for num_calls in calls:
                levels.append(await level(server, num_calls, rate=rate, window_s=window_s, idle_kib=idle_kib))
                print(json.dumps(levels[-1]), flush=True)
    return {
        "what": "N G.711 legs, all speaking one prompt from the cache; SIPp and the listening sockets on the same machine",
        "machine": {**machine(), "nice": os.nice(0)},
        "pjsua2": {key: serving.get(key) for key in ("pjsua2", "pjsip", "max_calls")},
        "levels": levels,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sip_load", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, nargs="+", default=[50, 100, 200, 400], metavar="N")
    parser.add_argument("--ua-processes", type=int, nargs="+", default=[1], metavar="N", help="one after the other")
    parser.add_argument("--rate", type=float, default=BASE_RATE, help="calls set up a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a level is measured")
    parser.add_argument(
        "--nice", type=int, default=0, help="priority of everything; below 0 where others use the machine"
    )
    parser.add_argument("--in-a-row", type=int, metavar="N", help="make N short calls instead, and look at the memory")
    parser.add_argument(
        "--record",
        type=int,
        metavar="TURNS",
        help="so many times the most calls without, then with a recording of each",
    )
    parser.add_argument(
        "--hep", type=int, metavar="TURNS", help="so many times the most calls without, then with sip.hep"
    )
    parser.add_argument("--name", help="of the file in bench/results")
    given = parser.parse_args()
    os.environ.setdefault("CC_TTS_PJSUA2", "server")
    os.nice(given.nice)
    if given.in_a_row:
        result = asyncio.run(run_in_a_row(given.in_a_row, rate=given.rate))
        print(save(given.name or "sip_calls_in_a_row", result))
    elif given.record:
        result = asyncio.run(
            run_recorded(max(given.calls), turns=given.record, rate=given.rate, window_s=given.seconds)
        )
        print(save(given.name or "sip_load_recorded", result))
    elif given.hep:
        result = asyncio.run(run_hep(max(given.calls), turns=given.hep, rate=given.rate, window_s=given.seconds))
        print(save(given.name or "sip_load_hep", result))
    else:
        levels = run(given.calls, ua_processes=given.ua_processes, rate=given.rate, window_s=given.seconds)
        print(save(given.name or "sip_load", asyncio.run(levels)))


if __name__ == "__main__":
    main()
