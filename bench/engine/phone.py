"""Benchmark B: callers who listen in real time, directly on the engine.

python -m bench.engine.phone [--size tiny|full] [--device cpu|cuda] [--calls 1,2,4,8] [--seconds 30]

Three loads for each number of calls: N who always listen, each asking for the next sentence of 2 to 10 s when it has heard
the last one, with staggered starts; N at one instant; and sentences at random instants (Poisson), as many as keep N callers
busy on average. Admission is on. Times are those of the caller, from the instant it asks. The engine's thread plays the
callers, too: what their bookkeeping costs is in all figures but ``busy_share``.
"""

import argparse
import random
import resource
from typing import Final

from bench.engine.lab import Lab, Rig, keep, lab_of, parser_of
from bench.engine.phone_load import Caller, PhoneLoad, figures
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from lab.server_under_test import Json

CALLS: Final = {"cpu": (1, 2, 4, 8), "cuda": (1, 4, 8, 16, 32, 64, 128, 256, 512)}
SECONDS: Final = {"cpu": 20.0, "cuda": 30.0}
STAGGER_MS: Final = 4000.0
WARM_UP_SHARE: Final = 0.2
MEAN_SENTENCE_S: Final = 6.0
BURST_S: Final = 8.0
TARGET_MS: Final = {"cpu": 1500.0, "cuda": 300.0}
"""First audio, for admission and for the headline; with less a CPU would take hardly anybody."""


def always(count: int, draw: random.Random) -> list[Caller]:
    """So many who always listen, begun one after the other."""
    return [Caller(next_ms=draw.uniform(0.0, STAGGER_MS)) for _ in range(count)]


def burst(count: int) -> list[Caller]:
    """So many at one instant, for one sentence."""
    return [Caller(next_ms=0.0, speaks_on=False) for _ in range(count)]


def poisson(count: int, for_ms: float, draw: random.Random) -> list[Caller]:
    """Sentences at random instants, ``count`` of them under way on average."""
    callers = []
    at_ms = 0.0
    while (at_ms := at_ms + draw.expovariate(count / MEAN_SENTENCE_S) * 1000.0) < for_ms:
        callers.append(Caller(next_ms=at_ms, speaks_on=False))
    return callers


def measure(rig: Rig, callers: list[Caller], *, for_ms: float, warm_up_ms: float, target_ms: float, seed: int) -> Json:
    engine = rig.engine(EngineConfig(first_audio_target_ms=target_ms))
    load = PhoneLoad(engine, rig.clock, seed=seed)
    runner = rig.runner
    num_before = runner.num_not_finite
    tally = load.run(
        callers,
        for_ms=for_ms,
        warm_up_ms=warm_up_ms,
        num_pages_used=lambda: runner.num_pages - runner.num_free_pages,
    )
    engine.close()
    return figures(tally) | {"not_finite": runner.num_not_finite - num_before, "max_rss_mib": _max_rss_mib()}


def _max_rss_mib() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def run(lab: Lab, arguments: argparse.Namespace) -> Json:
    """All loads for all numbers of calls; each is saved as soon as it is measured."""
    kind = lab.device.type
    arguments.target_ms = arguments.target_ms or TARGET_MS[kind]
    calls = [int(each) for each in arguments.calls.split(",")] if arguments.calls else list(CALLS[kind])
    for_ms = 1000.0 * (arguments.seconds or SECONDS[kind])
    loads = arguments.loads.split(",")
    rig = lab.rig(max_streams=max(calls))
    result: Json = {
        "seconds": for_ms / 1000.0,
        "first_audio_target_ms": arguments.target_ms,
        "sentences": "2 to 10 s",
        "client_buffer_ms": 0,
        "loads": {load: {} for load in loads},
    }
    for_warm_up = always(2, random.Random(0))  # what is lazy comes up
    measure(rig, for_warm_up, for_ms=min(5000.0, for_ms), warm_up_ms=0.0, target_ms=arguments.target_ms, seed=0)
    for load in loads:
        for count in calls:
            if count > rig.max_streams:
                result["loads"][load][str(count)] = f"memory holds {rig.max_streams} streams"
            else:
                cell = _cell(rig, load, count, arguments, for_ms)
                result["loads"][load][str(count)] = cell
                _print(load, count, cell)
            result["most_sustained"] = most_sustained(result["loads"].get("always", {}), arguments.target_ms)
            result["memory"], result["kernels"] = rig.memory(), rig.kernels()
            keep(lab, arguments, result)  # what is there stays if this is ended
    return result


def _cell(rig: Rig, load: str, count: int, arguments: argparse.Namespace, for_ms: float) -> Json:
    draw = random.Random(count)
    if load == "burst":
        callers, warm_up_ms, for_ms = burst(count), 0.0, min(for_ms, 1000.0 * BURST_S)
    elif load == "poisson":
        callers, warm_up_ms = poisson(count, for_ms, draw), WARM_UP_SHARE * for_ms
    else:
        callers, warm_up_ms = always(count, draw), max(STAGGER_MS, WARM_UP_SHARE * for_ms)
    return measure(
        rig,
        callers,
        for_ms=for_ms,
        warm_up_ms=min(warm_up_ms, for_ms / 2),
        target_ms=arguments.target_ms,
        seed=arguments.seed,
    )


def most_sustained(cells: Json, target_ms: float) -> int:
    """The headline: the most calls whose first audio is under the target at p95, without underrun and without refusal."""
    good = [
        int(count)
        for count, cell in cells.items()
        if isinstance(cell, dict)
        and cell["first_audio_ms"].get("p95", target_ms) < target_ms
        and not cell["underrun_rate"]["any"]
        and not cell["refused"]
    ]
    return max(good, default=0)


def _print(load: str, count: int, cell: Json) -> None:
    first = cell["first_audio_ms"]
    rate = cell["underrun_rate"]["any"]
    p50, p95 = first.get("p50", "-"), first.get("p95", "-")
    print(
        f"{load:8} {count:>4}  {cell['sentences']:>4} sentences, first audio p50 {p50:>9} p95 {p95:>9} ms"
        f"  underruns {'-' if rate is None else rate:>7}  refused {cell['refused']:>4}  busy {cell['busy_share']}",
        flush=True,
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--calls", default="", help="numbers of calls; what suits the device without it")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each load; what suits the device without it")
    parser.add_argument("--loads", default="always,burst,poisson")
    parser.add_argument("--target-ms", type=float, default=0.0, help="first audio; what suits the device without it")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.calls, arguments.seconds = "1,2", 6.0
    with lab_of(arguments) as lab:
        run(lab, arguments)


if __name__ == "__main__":
    main()
