"""Everything that a card is wanted for, in one command, the most valuable first.

python -m bench.engine_gpu --golden DIR [--model-dir DIR] [--minutes 25] [--out bench/results]

Each step is a process of its own with a time limit and leaves ``engine_gpu_*.json``; a step whose file is there already is
left out, so the command can be given again until all is done. ``engine_gpu.json`` says how each went.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.engine_model import model_at
from bench.lab import RESULTS, Json, machine

LEAST_S: Final = 30.0
"""A step is not begun when less is left."""
FOLDER: Final = Path("build") / "engine-model-full"


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and how long it may take."""

    name: str
    argv: tuple[str, ...]
    limit_s: float


def plan(golden: Path | None, model_dir: Path, out: Path, device: str) -> list[Step]:
    """The steps, in order of their worth: is it right, then the headline, then the rest."""
    place = ("--size", "full", "--device", device, "--model-dir", str(model_dir), "--out", str(out))

    def bench(module: str, name: str, *more: str, limit_s: float) -> Step:
        return Step(name, ("-m", f"bench.{module}", *place, "--name", f"engine_gpu_{name}", *more), limit_s)

    def parity(dtype: str) -> Step:
        file = str(out / f"engine_gpu_parity_{dtype}.json")
        where = (str(golden), "--size", "full", "--device", device, "--dtype", dtype, "--engine", "--json", file)
        return Step(f"parity_{dtype}", ("-m", "cc_tts.tts.cosyvoice2.parity", *where), 180.0)

    steps = [
        bench(
            "engine_phone", "phone", "--loads", "always", "--calls", "1,32,64,128,256", "--seconds", "20", limit_s=420.0
        ),
        bench("engine_phone", "burst", "--loads", "burst", "--calls", "1,8,64,128", limit_s=240.0),
        bench("engine_comparable", "comparable", "--only", "default", limit_s=300.0),
        bench("engine_ladder", "ladder", "--seconds", "10", limit_s=300.0),
        bench("quality_gates", "quality", limit_s=150.0),
        bench("engine_phone", "poisson", "--loads", "poisson", "--calls", "64,128", "--seconds", "20", limit_s=240.0),
        bench("engine_comparable", "schedules", "--only", "first;hop", "--concurrency", "1,4,10", limit_s=240.0),
        bench("engine_ladder", "ladder_no_graphs", "--no-graphs", "--seconds", "0", "--rounds", "2", limit_s=180.0),
    ]
    if golden is not None:
        steps.insert(0, parity("float32"))
        steps[3:3] = [parity("bfloat16"), parity("float16")]
    return steps


def run(steps: Sequence[Step], out: Path, until_s: float) -> Json:
    """Do what is not done, while there is time."""
    result: Json = {}
    for step in steps:
        left_s = until_s - time.monotonic()
        if (out / f"engine_gpu_{step.name}.json").exists():
            result[step.name] = "done before"
        elif left_s < LEAST_S:
            result[step.name] = "no time left"
        else:
            result[step.name] = _do(step, min(step.limit_s, left_s))
        print(f"== {step.name}: {result[step.name]}", flush=True)
    return result


def _do(step: Step, limit_s: float) -> Json:
    begin = time.monotonic()
    try:
        status: int | str = subprocess.run([sys.executable, *step.argv], check=False, timeout=limit_s).returncode
    except subprocess.TimeoutExpired:
        status = "ran past its time"
    return {"status": status, "took_s": round(time.monotonic() - begin, 1), "command": " ".join(step.argv)}


def main() -> None:
    """Run the steps; exit status 1 if one that ran did not end well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=Path, help="folder of the reference outputs; without it no parity is run")
    parser.add_argument("--model-dir", type=Path, default=FOLDER, help="made there when it is not, 2.5 GB")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    until_s = time.monotonic() + 60.0 * arguments.minutes
    arguments.out.mkdir(parents=True, exist_ok=True)
    model_at(arguments.model_dir, "full")
    steps = plan(arguments.golden, arguments.model_dir, arguments.out, arguments.device)
    done = run(steps, arguments.out, until_s)
    result = {"machine": machine(), "steps": done}
    (arguments.out / "engine_gpu.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if any(isinstance(step, dict) and step["status"] != 0 for step in done.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
