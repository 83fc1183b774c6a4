"""A flood of one kind of request while a few calls go on; what becomes of the calls, of memory, and of the answers."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

from bench.hostile.media import offer
from bench.hostile.peer import Peer
from bench.hostile.traffic import Traffic
from bench.hostile.watch import CallsInProgress, Watch, live_calls, staged
from lab.load import Meter
from lab.server_under_test import Json

TURN_S: Final = 0.01
QUIET_TIMEOUT_S: Final = 90.0
SETTLE_S: Final = 5.0
TRANSACTIONS_S: Final = 40.0
"""64·T1 and some (RFC 3261 §17)."""


async def flood(traffic: Traffic, kind: str, *, rate: float, seconds: float) -> int:
    """Send new requests at ``rate`` a second, in turns of 10 ms; returns how many."""
    method = kind.upper()
    sent, begun_s = 0, time.monotonic()
    while (elapsed_s := time.monotonic() - begun_s) < seconds:
        due = int(elapsed_s * rate) + 1
        for number in range(sent, min(due, sent + round(rate))):
            body = offer(traffic.peer.rtp_port) if method == "INVITE" else ""
            sip = traffic.request(method, f"flood{begun_s}.{number}", user="flood", body=body)
            if method == "REGISTER":
                sip.add(traffic.peer.rng, "Expires", "3600")
            traffic.peer.send(sip.render())
        sent = max(sent, due)
        traffic.peer.sweep()
        await asyncio.sleep(TURN_S)
    return sent


async def _round(
    traffic: Traffic, kept: CallsInProgress, watch: Watch, kind: str, *, rate: float, seconds: float
) -> Json:
    """One flood; then until only the calls in progress are left, and the transactions of the others with them."""
    watch.meter = Meter(**watch.pids)
    sent = await flood(traffic, kind, rate=rate, seconds=seconds)
    heard = await kept.window()
    at_end = await watch.sample(what="at the end of the flood")
    cores = watch.meter.cores()
    begun_s = time.monotonic()
    answered, _ = await traffic.ask(traffic.request("OPTIONS", f"after{begun_s}"))
    answer_s = time.monotonic() - begun_s
    deadline = begun_s + TRANSACTIONS_S
    while time.monotonic() < deadline:
        traffic.peer.sweep()
        await asyncio.sleep(0.2)
    await kept.window()
    rested, _ = await traffic.ask(traffic.request("OPTIONS", f"rested{begun_s}"))
    return {
        "sent": sent,
        "sent_per_s": round(sent / seconds, 1),
        "heard": heard,
        "cores": cores,
        "options_at_once": {"status": answered, "s": round(answer_s, 3)},
        "options_later": rested,
        "at_end": at_end,
        "later": await watch.sample(what="when the transactions are over"),
    }


async def run(
    kind: str, settings: Sequence[str], *, rate: float, seconds: float, num_kept: int, num_rounds: int
) -> Json:
    """Before, during and after; the result as it is saved."""
    async with staged(Peer(random.Random(0)), settings, seed=0, num_kept=num_kept) as stage:
        server, traffic, watch, kept = stage.server, stage.traffic, stage.watch, stage.kept
        before = await watch.sample(what="idle")
        await kept.place()
        await asyncio.sleep(SETTLE_S)
        quiet = await kept.window()
        kept.windows.clear()
        rounds = [await _round(traffic, kept, watch, kind, rate=rate, seconds=seconds) for _ in range(num_rounds)]
        summary = kept.summary()
        await kept.hang_up()
        after = await watch.until_quiet(QUIET_TIMEOUT_S)
        left = list(await live_calls(server))
        crash = watch.crash()
        exit_status = await server.end()
        described = stage.described()
    return {
        "what": f"a flood of {kind.upper()} from one address, {num_kept} calls in progress",
        **described,
        "wanted_per_s": rate,
        "answers": dict(sorted(traffic.peer.ledger.answers.items())),
        "gap_ms_before": quiet["gap_ms"],
        "rounds": rounds,
        "in_progress": summary,
        "crash": crash,
        "exit_status": exit_status,
        "before": before,
        "after": after,
        "calls_left": left,
    }
