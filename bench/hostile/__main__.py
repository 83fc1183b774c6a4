"""Hostile traffic: mutated SIP, SDP, RTP, RTCP and REST for as long as wanted, while a few callers are spoken to.

``python -m bench.hostile --minutes 60 --seed 1``; ``--flood invite --rate 2000 --seconds 30`` instead floods it;
``--replay FILE`` sends the messages again that were kept when something broke. ``CC_TTS_PJSUA2`` chooses the build.
Everything stays on loopback.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.hostile import flood as hostile_flood
from bench.hostile.peer import Peer
from bench.hostile.replay import replay, write_dump
from bench.hostile.traffic import KINDS, Traffic
from bench.hostile.watch import CallsInProgress, Orphans, Watch, live_calls, staged
from bench.report import save
from cc_tts.processes.tasks import cancel_all
from lab.server_under_test import Json, Server

NUM_KEPT = 3
NUM_KEPT_WHEEL = 1
"""Of the four calls the PyPI wheel takes."""
MAX_CALLS = 200
MAX_CRASHES = 20
SAMPLE_S = 10.0
WINDOW_S = 60.0
ORPHAN_AGE_S = 45.0
"""Longer than 64·T1 (RFC 3261 §17), the RTP timeout below, and any call the traffic itself ends."""
QUIET_TIMEOUT_S = 90.0
"""Longer than 64·T1 and the RTP timeout below: by then every call a mutation has left behind must have ended."""
SETTINGS = (
    f"sip.max_calls={MAX_CALLS}",
    'sip.nameservers=["127.0.0.1"]',
    "rtp.inactivity_timeout_s=10",
    "calls.max_announcement_s=86400",
    "calls.max_duration_s=0",
    "calls.max_repeat=1000",
    "calls.originate_timeout_s=3",
    "calls.ended_retention_s=5",
    "calls.max_ended_calls=100",
    "routes.load.answer=now",
    "routes.probe.answer=now",
    "routes.flood.answer=now",
    "routes.silent.answer=now",
    "routes.ring.answer=ring",
    "routes.ring.ring_ms=300",
    "routes.manual.answer=manual",
    "calls.manual_answer_timeout_s=2",
    "cache.min_uses=1",
    "log.level=info",
)


def num_kept() -> int:
    """Calls in progress beside the traffic."""
    return NUM_KEPT_WHEEL if os.environ.get("CC_TTS_PJSUA2") == "wheel" else NUM_KEPT


def rtp_settings() -> tuple[str, str]:
    """Media ports for ``MAX_CALLS``."""
    first = random.randrange(20_000, 50_000, 2)
    return f"rtp.port_min={first}", f"rtp.port_max={first + 2 * MAX_CALLS + 200}"


class Run:
    def __init__(self, server: Server, traffic: Traffic, kept: CallsInProgress, watch: Watch, seed: int) -> None:
        self._server = server
        self._traffic = traffic
        self._kept = kept
        self._watch = watch
        self._seed = seed
        self.crashes: list[Json] = []
        self.orphans = Orphans(server, traffic)

    async def go(self, *, seconds: float, rate: float) -> int:
        """Send at ``rate`` messages a second; returns how many were sent."""
        begun_s = next_s = time.monotonic()
        sample_s, window_s = begun_s + SAMPLE_S, begun_s + WINDOW_S
        number = 0
        while time.monotonic() - begun_s < seconds and len(self.crashes) < MAX_CRASHES:
            number += 1
            self._traffic.tick(number)
            next_s = max(next_s + 1 / rate, time.monotonic() - 1)
            if next_s > time.monotonic():
                await asyncio.sleep(next_s - time.monotonic())
            if (reason := self._watch.crash()) and not await self._crashed(reason, number):
                break
            if time.monotonic() > sample_s:
                sample_s += SAMPLE_S
                await self._watch.sample(messages=number)
            if time.monotonic() > window_s:
                window_s += WINDOW_S
                heard = await self._kept.window()
                await self.orphans.hang_up(self._kept.dialogs, older_than_s=ORPHAN_AGE_S)
                print(
                    json.dumps({"messages": number, **self._watch.samples[-1], "gap_ms": heard["gap_ms"]}), flush=True
                )
        await self._kept.window()
        return number

    async def _crashed(self, reason: str, number: int) -> bool:
        self._watch.log.read()
        assertion, self._watch.log.last_assertion = self._watch.log.last_assertion, ""
        path = write_dump(self._traffic.peer, self._seed, f"{reason}; {assertion}", len(self.crashes) + 1)
        self.crashes.append({"at_message": number, "reason": reason, "assertion": assertion, "replay": path.name})
        print(f"message {number}: {reason}; {assertion}; {path}", flush=True)
        if self._server.returncode is not None:
            return False
        await self._watch.until_ready()
        self._traffic.peer.dialogs.clear()
        await self._kept.place()
        return True


async def events_by_type(server: Server, counts: Counter[str]) -> None:
    """Count what ``/v1/events`` tells, until cancelled; which of our handlers the traffic has reached."""
    while True:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with server.http.ws_connect(f"{server.url}/v1/events") as socket:
                await socket.send_str('{"a":')
                async for message in socket:
                    event = json.loads(message.data)
                    data = event["data"]
                    kind = event["type"]
                    if kind == "call.terminated":
                        kind += f" {data['ending']['result']}/{data['ending']['reason']}"
                    elif kind == "call.command_failed":
                        kind += f" {data['command']}"
                    counts[kind] += 1
        await asyncio.sleep(0.5)


async def mutated(*, minutes: float, seed: int, rate: float, kinds: Sequence[str]) -> Json:
    """The whole run; the result as it is saved."""
    events: Counter[str] = Counter()
    peer = Peer(random.Random(seed))
    settings = (*SETTINGS, *rtp_settings())
    async with staged(peer, settings, seed=seed, num_kept=num_kept(), kinds=kinds) as stage:
        server, traffic, watch, kept = stage.server, stage.traffic, stage.watch, stage.kept
        idle = await watch.sample(what="idle")
        await kept.place()
        peer.hostile = True
        counting = asyncio.create_task(events_by_type(server, events))
        run = Run(server, traffic, kept, watch, seed)
        begun_s = time.monotonic()
        number = await run.go(seconds=minutes * 60, rate=rate)
        elapsed_s = time.monotonic() - begun_s
        cores: dict[str, float] = {}
        with contextlib.suppress(OSError):  # a process has died since the last look
            cores = watch.meter.cores()
        await traffic.settle()
        in_progress = kept.summary()
        await kept.hang_up()
        left: list[Json] = []
        if server.returncode is None:
            deadline = time.monotonic() + 10
            while peer.dialogs and time.monotonic() < deadline:
                peer.sweep()
                await asyncio.sleep(0.5)
            await asyncio.sleep(ORPHAN_AGE_S)
            await run.orphans.hang_up((), older_than_s=ORPHAN_AGE_S)
            await watch.until_quiet(QUIET_TIMEOUT_S)
            left = list(await live_calls(server))
        await cancel_all(counting)
        exit_status = await server.end()
        described = stage.described()
    warm = max(1, len(watch.samples) // 6)
    return {
        "what": "mutated SIP, SDP, RTP, RTCP, telephone events and REST against one server, seeded",
        **described,
        "seed": seed,
        "minutes": round(elapsed_s / 60, 1),
        "messages": number,
        "rate_per_s": round(number / elapsed_s, 1),
        "process_deaths": len(run.crashes),
        "crashes": run.crashes,
        "failed_assertions": dict(watch.log.assertions.most_common()),
        "exit_status": exit_status,
        "orphans": {"hung_up": run.orphans.count, "stuck": run.orphans.stuck, "examples": run.orphans.examples[:5]},
        "calls_left": left,
        "in_progress": in_progress,
        "probes": dict(sorted(traffic.probes.items())),
        "cores": cores,
        "growth_since_sample": {"at_s": watch.samples[warm]["at_s"], **watch.growth(warm)},
        "idle_before": idle,
        "idle_after": watch.samples[-1],
        "answers": dict(sorted(peer.ledger.answers.items())),
        "rest": dict(sorted(traffic.rest.items())),
        "asked_by_server": dict(sorted(peer.ledger.asked.items())),
        "events": dict(sorted(events.items())),
        "sent_kinds": len(peer.ledger.kinds),
        "sent": by_first_word(peer.ledger.kinds),
        "samples": watch.samples[:: max(1, len(watch.samples) // 60)],
    }


def by_first_word(kinds: Counter[str]) -> dict[str, int]:
    """Sums of the kinds of messages by what they begin with."""
    sums: Counter[str] = Counter()
    for kind, count in kinds.items():
        sums[
            " ".join(kind.split(" ")[:2]) if kind.startswith(("within", "rtp", "rtcp", "rest")) else kind.split(" ")[0]
        ] += count
    return dict(sorted(sums.items()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS), help="of messages; all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second: 50, or 2000 for a flood")
    parser.add_argument("--flood", choices=("invite", "register", "options"))
    parser.add_argument("--seconds", type=float, default=30.0, help="of a flood")
    parser.add_argument("--rounds", type=int, default=3, help="floods in a row; memory must not grow with each")
    parser.add_argument("--replay", type=Path, help="a file of messages that were kept")
    parser.add_argument("--name", default="", help="of the file in bench/results; hostile, or hostile_FLOOD")
    given = parser.parse_args()
    os.environ.setdefault("CC_TTS_PJSUA2", "server")
    settings = (*SETTINGS, *rtp_settings())
    if given.replay:
        print(
            json.dumps(
                asyncio.run(replay(json.loads(given.replay.read_text()), settings, rate=given.rate or 50)), indent=1
            )
        )
    elif given.flood:
        result = asyncio.run(
            hostile_flood.run(
                given.flood,
                settings,
                rate=given.rate or 2000,
                seconds=given.seconds,
                num_kept=num_kept(),
                num_rounds=given.rounds,
            )
        )
        print(save(given.name or f"hostile_{given.flood}", result))
    else:
        result = asyncio.run(mutated(minutes=given.minutes, seed=given.seed, rate=given.rate or 50, kinds=given.kinds))
        print(save(given.name or "hostile", result))


if __name__ == "__main__":
    main()
