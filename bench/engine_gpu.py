"""Everything that a card is wanted for, in one command, the most valuable first.

python -m bench.engine_gpu --golden DIR [--model-dir DIR] [--minutes 25] [--out bench/results]

Each step is a process of its own with a time limit and leaves ``engine_gpu_*.json``. ``engine_gpu.json`` says how each went;
one that came to its end is left out the next time, so the command can be given again until all is done. A step that ran past
its time keeps what it had measured by then.
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

LEAST_SHARE: Final = 0.5
"""A step is not begun when less is left than this share of its limit."""
SUMMARY: Final = "engine_gpu.json"
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

    def parity(dtype: str, *more: str, limit_s: float) -> Step:
        file = str(out / f"engine_gpu_parity_{dtype}.json")
        where = (str(golden), "--size", "full", "--device", device, "--dtype", dtype, "--engine", "--json", file, *more)
        return Step(f"parity_{dtype}", ("-m", "cc_tts.tts.cosyvoice2.parity", *where), limit_s)

    # One process for three loads: each would load, record and measure anew.
    phone = ("--loads", "burst,always,poisson", "--calls", "1,16,32,64,128", "--seconds", "20")
    steps = [
        bench("engine_phone", "phone", *phone, limit_s=540.0),
        bench("quality_gates", "quality", limit_s=180.0),
        bench("engine_comparable", "comparable", "--only", "default", limit_s=300.0),
        bench("engine_ladder", "ladder", "--seconds", "10", limit_s=400.0),
        bench("engine_comparable", "schedules", "--only", "first;hop", "--concurrency", "1,4,10", limit_s=240.0),
        bench("engine_ladder", "ladder_no_graphs", "--no-graphs", "--seconds", "0", "--rounds", "2", limit_s=180.0),
    ]
    if golden is not None:
        steps.insert(0, parity("float32", "--graphs", limit_s=300.0))
        steps[2:2] = [parity("bfloat16", limit_s=180.0), parity("float16", limit_s=180.0)]
    return steps


def run(steps: Sequence[Step], out: Path, until_s: float) -> Json:
    """Do what has not come to its end, while there is time; what was known of earlier runs is kept."""
    summary = out / SUMMARY
    done: Json = json.loads(summary.read_text(encoding="utf-8"))["steps"] if summary.exists() else {}
    for step in steps:
        left_s = until_s - time.monotonic()
        before = done.get(step.name)
        if before is not None and isinstance(before["status"], int):
            said = f"ended with {before['status']} before"
        elif left_s < LEAST_SHARE * step.limit_s:
            said = "no time left"
        else:
            done[step.name] = _do(step, min(step.limit_s, left_s))
            said = f"{done[step.name]['status']} after {done[step.name]['took_s']} s"
            summary.write_text(json.dumps({"machine": machine(), "steps": done}, indent=1) + "\n", encoding="utf-8")
        print(f"== {step.name}: {said}", flush=True)
    return done


def _do(step: Step, limit_s: float) -> Json:
    begin = time.monotonic()
    try:
        status: int | str = subprocess.run([sys.executable, *step.argv], check=False, timeout=limit_s).returncode
    except subprocess.TimeoutExpired:
        status = "ran past its time"
    return {"status": status, "took_s": round(time.monotonic() - begin, 1), "command": " ".join(step.argv)}


def main() -> None:
    """Run the steps; exit status 1 if one that ever ran did not end well."""
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
    if any(step["status"] != 0 for step in done.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
