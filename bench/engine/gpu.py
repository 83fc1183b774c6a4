"""Everything that a card is wanted for, in one command, the most valuable first.

python -m bench.engine.gpu --golden DIR [--model-dir DIR] [--minutes 25] [--out bench/results]
python -m bench.engine.gpu --golden tests/data/golden --size tiny --device cpu --quick --out build/rehearsal    # a rehearsal

Each step is a process of its own with a time limit and leaves ``engine_gpu_*.json``. ``engine_gpu.json`` says how each went;
one that came to its end is left out the next time, so the command can be given again until all is done. A step that ran past
its time keeps what it had measured by then. Without a card all but the tests and the graphs can be rehearsed.
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

from bench.engine.model import Size, model_at
from bench.report import RESULTS, machine
from lab.server_under_test import Json

LEAST_SHARE: Final = 0.5
"""A step is not begun when less is left than this share of its limit."""
SUMMARY: Final = "engine_gpu.json"
FOLDERS: Final[dict[Size, Path]] = {
    "tiny": Path("build") / "engine-model-tiny",
    "full": Path("build") / "engine-model-full",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and how long it may take."""

    name: str
    argv: tuple[str, ...]
    limit_s: float


def plan(
    golden: Path | None, model_dir: Path, out: Path, device: str, *, size: Size = "full", is_quick: bool = False
) -> list[Step]:
    """The steps, in order of their worth: is it right, then the headline, then the rest."""
    is_card = device.startswith("cuda")
    place = ("--size", size, "--device", device, "--model-dir", str(model_dir), "--out", str(out))
    quick = ("--quick",) if is_quick else ()

    def bench(module: str, name: str, *more: str, limit_s: float) -> Step:
        return Step(
            name, ("-m", f"bench.engine.{module}", *place, "--name", f"engine_gpu_{name}", *more, *quick), limit_s
        )

    def parity(dtype: str, *more: str, limit_s: float) -> Step:
        file = str(out / f"engine_gpu_parity_{dtype}.json")
        what = ("--size", size, "--device", device, "--dtype", dtype, "--engine", "--json", file)
        where = (str(golden), *what, *more)
        return Step(f"parity_{dtype}", ("-m", "tests.parity", *where), limit_s)

    # One process for three loads: each would load, record and measure anew.
    phone = ("--loads", "burst,always,poisson", "--calls", "1,16,32,64,128", "--seconds", "20")
    steps = [
        bench("phone", "phone", *phone, limit_s=540.0),
        bench("quality_gates", "quality", limit_s=180.0),
        bench("comparable", "comparable", "--only", "default", limit_s=300.0),
        bench("ladder", "ladder", "--seconds", "10", limit_s=400.0),
        bench("comparable", "schedules", "--only", "first;hop", "--concurrency", "1,4,10", limit_s=240.0),
        bench("ladder", "ladder_no_graphs", "--no-graphs", "--seconds", "0", "--rounds", "2", limit_s=180.0),
    ]
    if golden is not None:
        steps.insert(0, parity("float32", *(("--graphs",) if is_card else ()), limit_s=300.0))
        if is_card:  # a CPU takes minutes for the half types, and it is not they that are rehearsed
            steps[2:2] = [parity("bfloat16", limit_s=180.0), parity("float16", limit_s=180.0)]
    if is_card:
        steps.insert(0, Step("tests", ("-m", "pytest", "-q", "-m", "gpu", "tests/gpu"), 180.0))
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
    parser.add_argument(
        "--model-dir", type=Path, help="made there when it is not, 2.5 GB; build/engine-model-SIZE without"
    )
    parser.add_argument("--size", choices=list(FOLDERS), default="full", help="of the networks")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    until_s = time.monotonic() + 60.0 * arguments.minutes
    arguments.out.mkdir(parents=True, exist_ok=True)
    folder = model_at(arguments.model_dir or FOLDERS[arguments.size], arguments.size)
    steps = plan(
        arguments.golden, folder, arguments.out, arguments.device, size=arguments.size, is_quick=arguments.quick
    )
    done = run(steps, arguments.out, until_s)
    if any(step["status"] != 0 for step in done.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
