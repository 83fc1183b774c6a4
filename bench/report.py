"""What every bench reports: percentiles, the machine, and a result file; and a load on every core."""

import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from cc_tts import __version__
from lab.server_under_test import Json

RESULTS = Path(__file__).parent / "results"


class BusyCores:
    """One child for every core that does nothing but count, for as long as the context lasts."""

    def __init__(self) -> None:
        self._children: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        for _ in range(os.cpu_count() or 1):
            self._children.append(await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass"))
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for child in self._children:
            child.kill()
            await child.wait()


def percentiles(values: Sequence[float]) -> Json:
    """n, mean, p50, p90, p95, p99, max; rounded to 0.01. Only n of nothing."""
    if not values:
        return {"n": 0}
    figures = zip(("p50", "p90", "p95", "p99", "max"), np.percentile(values, [50, 90, 95, 99, 100]), strict=True)
    result: Json = {"n": len(values), "mean": round(statistics.fmean(values), 2)}
    return result | {name: round(float(figure), 2) for name, figure in figures}


def machine() -> Json:
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    memory_kib = 0
    with contextlib.suppress(OSError):
        memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory_kib / 1024 / 1024, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cc_tts": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def save(name: str, result: Json, folder: Path = RESULTS) -> Path:
    """Write ``NAME.json`` there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def add_voice(name: str, voice: str, result: Json, **about: str) -> Path:
    """Put the result of a voice among those of other voices in ``NAME.json``."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text(encoding="utf-8"))["voices"] if path.exists() else {}
    return save(name, {"machine": machine(), **about, "voices": before | {voice: result}})


def show(title: str, rows: Sequence[tuple[str, Json]]) -> None:
    """Print percentiles as a table."""
    print(f"\n{title:44} {'n':>5} {'p50':>8} {'p95':>8} {'p99':>8} {'max':>8}  ms")
    for name, figures in rows:
        cells = " ".join(f"{figures.get(key, '-'):>8}" for key in ("p50", "p95", "p99", "max"))
        print(f"  {name:42} {figures['n']:>5} {cells}")
