"""A cluster in virtual time: what picks, admission, a loss of workers and a canary generation make of thousands of calls.

python -m bench.cluster                  the busy hour: 50 servers, 40 workers, 10,000 calls at once; 2.5 minutes
python -m bench.cluster --parts sizes    calls a worker, up to more than it can carry
python -m bench.cluster --parts picks    which worker is picked: one at random, the better of two, the best of all
python -m bench.cluster --parts tenants  one tenant that asks for too much, beside another

The code that picks, tries a second worker, goes on after a loss and admits is that of production
(``engines/worker``, ``engines/remote/pick``, ``engine/capacity``, ``tenants``). Simulated are the clock, the network, the
callers and the speed of an engine, which ``bench.cluster.calibrate`` took from the real engine on a simulated H200:
calculated, not measured on a GPU. Reports of load come every 100 ms; a worker sends more. The same seed gives the same
figures.

The busy hour rises from 70 % of ``--calls`` to all of them and falls again, in ``--minutes`` instead of sixty, so it rises
more steeply than a real one. In the middle a tenth of the workers vanish for a minute, without closing a connection.
"""

import argparse
import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from bench.cluster import plot
from bench.cluster.simulation import Cluster, Scenario, of_model
from bench.cluster.workers import EngineModel
from bench.report import machine, save
from cc_tts import logs
from cc_tts.engines.remote import pick
from lab.server import Json

IMAGE: Final = Path(__file__).parents[2] / "docs" / "images" / "busy_hour.svg"
SIZES: Final = (100, 200, 250, 300, 350, 400, 450, 500, 600)
"""Calls a worker."""
FLAT: Final = Scenario(is_flat=True, lost_share=0.0, canary_share=0.0)
PICKS: Final = (
    ("one at random", 1, 0.0),
    ("the better of two, by any difference", 2, 0.0),
    ("the better of two, a tick being equal", 2, pick.EQUAL_WITHIN_MS),
    ("the best of all, by any difference", 1000, 0.0),
)
"""How many are compared, and what difference of first audio counts, ms."""


@contextmanager
def picking(num_compared: int, equal_within_ms: float) -> Iterator[None]:
    """Other constants of the pick."""
    kept = pick.NUM_COMPARED, pick.EQUAL_WITHIN_MS
    pick.NUM_COMPARED, pick.EQUAL_WITHIN_MS = num_compared, equal_within_ms  # type: ignore[misc]
    try:
        yield
    finally:
        pick.NUM_COMPARED, pick.EQUAL_WITHIN_MS = kept  # type: ignore[misc]


async def run(scenario: Scenario, model: EngineModel) -> Cluster:
    """One run, and how long it took."""
    begin_s = time.process_time()
    cluster = Cluster(scenario, of_model(model))
    await cluster.run()
    print(
        f"{scenario.calls} calls, {cluster.tally.asked} utterances: {time.process_time() - begin_s:.0f} s", flush=True
    )
    return cluster


async def busy_hour(scenario: Scenario, model: EngineModel) -> Json:
    """The run that the plot shows."""
    cluster = await run(scenario, model)
    return {"scenario": asdict(scenario), "figures": cluster.report(), "timeline": cluster.timeline()}


async def sizes(seed: int, model: EngineModel) -> Json:
    """Calls a worker, with four workers and five servers."""
    cells: Json = {}
    for calls in SIZES:
        scenario = replace(FLAT, servers=5, workers=4, calls=4 * calls, minutes=1.5, seed=seed)
        figures = (await run(scenario, model)).report()
        asked = max(1, figures["utterances"])
        cells[str(calls)] = {
            "utterances_per_s_a_worker": round(figures["utterances_per_s"] / 4, 1),
            "listening_a_worker": round(figures["most_listening_at_once"] / 4),
            "first_audio_ms": figures["first_audio_ms"],
            "open_streams": figures["load"]["streams_per_worker"],
            "waited_share": round(figures["asked_again"] / asked, 4),
            "refused_share": round(figures["endings"]["refused"] / asked, 4),
            "fairness_between_servers": figures["fairness_between_servers"],
        }
    return {"servers": 5, "workers": 4, "minutes": 1.5, "calls_a_worker": cells}


async def picks(seed: int, model: EngineModel) -> Json:
    """The same calls with each way of picking a worker, at two loads, with two seeds."""
    rows = []
    for each_seed, calls_a_worker in itertools.product((seed, seed + 1), (250, 400)):
        scenario = replace(FLAT, servers=25, workers=20, calls=20 * calls_a_worker, minutes=0.7, seed=each_seed)
        for name, num_compared, equal_within_ms in PICKS:
            with picking(num_compared, equal_within_ms):
                figures = (await run(scenario, model)).report()
            rows.append(
                {
                    "pick": name,
                    "calls_a_worker": calls_a_worker,
                    "seed": each_seed,
                    "variation_between_workers": figures["load"]["variation_between_workers"],
                    "most_streams_in_a_worker": figures["load"]["streams_per_worker"]["max"],
                    "first_audio_ms": figures["first_audio_ms"],
                    "refused_by_a_worker": figures["refused_by_a_worker"],
                }
            )
            print(rows[-1], flush=True)
    return {"servers": 25, "workers": 20, "minutes": 0.7, "rows": rows}


async def tenants(seed: int, model: EngineModel) -> Json:
    """More calls than four workers carry, three quarters of them of one tenant, without and with weights that are equal."""
    cells: Json = {}
    for is_fair in (False, True):
        scenario = replace(
            FLAT,
            servers=5,
            workers=4,
            calls=4 * 650,
            minutes=1.0,
            seed=seed,
            tenants=(("campaign", 0.75), ("desk", 0.25)),
            is_fair=is_fair,
        )
        figures = (await run(scenario, model)).report()
        cells["by tenant" if is_fair else "without tenants"] = figures["tenants"]
    return {"servers": 5, "workers": 4, "calls_a_worker": 650, "minutes": 1.0, "cells": cells}


async def main() -> None:
    """Run, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="hour", help="hour, sizes, picks, tenants; with commas between them")
    parser.add_argument("--servers", type=int, default=50)
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logs.configure(level="critical", json=False, process="bench")
    model, description = EngineModel.of_results(), machine()
    for part in arguments.parts.split(","):
        match part:
            case "hour":
                result = await busy_hour(
                    Scenario(
                        servers=arguments.servers,
                        workers=arguments.workers,
                        calls=arguments.calls,
                        minutes=arguments.minutes,
                        seed=arguments.seed,
                    ),
                    model,
                )
                IMAGE.write_text(plot.busy_hour(result), encoding="utf-8")
                print(result["figures"])
            case "sizes":
                result = await sizes(arguments.seed, model)
            case "picks":
                result = await picks(arguments.seed, model)
            case "tenants":
                result = await tenants(arguments.seed, model)
            case _:
                parser.error(f"no part {part!r}")
        engine = (
            "the model of cluster_engine.json, taken from the real engine on a simulated H200: calculated, not measured"
        )
        print("saved", save(f"cluster_{part}", {"machine": description, "engine": engine, **result}))


if __name__ == "__main__":
    asyncio.run(main())
