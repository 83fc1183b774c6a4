"""How the engine behaves, for the model of it: the real one on the simulated H200, one worker, at rising load.

python -m bench.cluster.calibrate            about two minutes; wants torch; writes bench/results/cluster_engine.json

Then the model takes the place of the engine at the same loads, and both are in the file beside each other.
"""

import asyncio
import itertools
import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Final

from bench.cluster.simulation import Cluster, MakeWorker, Scenario, of_model
from bench.cluster.stepped import Attempt, SteppedWorker
from bench.cluster.workers import EngineModel, Worker
from bench.cluster.world import World
from bench.engine.figures import spread
from bench.report import machine, save
from cc_tts import logs
from lab.server import Json

CALLS: Final = (50, 150, 250, 350, 450, 550, 650)
EDGES: Final = (0, 1, 2, 4, 8, 12, 16, 24, 32, 40, 50, 60, 100)
"""Numbers of open streams between which requests are looked at together."""
LEAST: Final = 20
"""Requests that a point needs."""
AMPLE_MS: Final = 1000.0
"""Time left counts as so much at most: nobody listens, or nothing is due."""
ONE: Final = Scenario(servers=2, workers=1, minutes=1.0, is_flat=True, lost_share=0.0, canary_share=0.0)


async def attempts_at(scenario: Scenario, folder: Path) -> tuple[Json, list[Attempt]]:
    """A run with the real engine."""
    workers: list[SteppedWorker] = []

    def make(world: World, name: str, generation: str) -> Worker:
        workers.append(SteppedWorker(world, name, generation, folder=folder))
        return workers[-1]

    summary = await run(scenario, make)
    after_ms = 1000.0 * scenario.warm_up_s
    return summary, [each for worker in workers for each in worker.attempts if each.came_ms >= after_ms]


async def run(scenario: Scenario, make_worker: MakeWorker) -> Json:
    """What is compared of a run."""
    cluster = Cluster(scenario, make_worker)
    await cluster.run()
    report = cluster.report()
    return {
        "utterances_per_s": report["utterances_per_s"],
        "first_audio_ms": report["first_audio_ms"],
        "open_streams": report["load"]["streams_per_worker"],
        "refused_by_a_worker": report["refused_by_a_worker"],
    }


def table(attempts: Sequence[Attempt]) -> Json:
    """See :class:`bench.cluster.workers.EngineModel`."""
    points = []
    for low, high in itertools.pairwise(EDGES):
        found = [each for each in attempts if low <= each.snapshot.num_streams < high]
        logs_of_factors = [
            math.log(each.first_audio_ms / each.predicted_ms) for each in found if not math.isnan(each.first_audio_ms)
        ]
        if len(logs_of_factors) < LEAST:
            continue
        spares = sorted(min(each.snapshot.spare_ms, AMPLE_MS) for each in found)
        quarter, half = spares[len(spares) // 4], median(spares)
        points.append(
            {
                "streams": round(fmean(each.snapshot.num_streams for each in found), 1),
                "requests": len(found),
                "factor": round(math.exp(median(logs_of_factors)), 3),
                "sigma": round(pstdev(logs_of_factors), 3),
                "spare_ms": round(half, 1),
                # of the lower half, which is what admission looks at
                "spare_deviation_ms": round((half - quarter) / 0.6745, 1) if half < AMPLE_MS else 0.0,
                "rows": round(fmean(each.snapshot.num_lm_rows for each in found), 1),
            }
        )
    pending = sum(each.snapshot.num_first_pending for each in attempts)
    positions = sum(each.snapshot.pending_positions for each in attempts)
    return {"points": points, "positions_each": round(positions / max(1, pending), 1)}


async def main() -> None:
    """Measure, compare, save."""
    logs.configure(level="critical", json=False, process="bench")
    engine: Json = {}
    found: list[Attempt] = []
    with tempfile.TemporaryDirectory() as folder:
        for calls in CALLS:
            engine[str(calls)], attempts = await attempts_at(replace(ONE, calls=calls), Path(folder))
            found += attempts
            print(calls, engine[str(calls)], flush=True)
    fitted = table(found)
    model = {str(calls): await run(replace(ONE, calls=calls), of_model(EngineModel(fitted))) for calls in CALLS}
    for label, figures in model.items():
        print("model", label, figures, flush=True)
    result: Json = {
        "what": "one worker: the real engine on the simulated H200 (bench/engine/costs.py: calculated, not measured), "
        "and the model of it at the same loads",
        "machine": machine(),
        "prediction_over_all": spread([each.predicted_ms for each in found]),
        **fitted,
        "calls_a_worker": {calls: {"engine": engine[calls], "model": model[calls]} for calls in engine},
    }
    print("saved", save("cluster_engine", result))


if __name__ == "__main__":
    asyncio.run(main())
