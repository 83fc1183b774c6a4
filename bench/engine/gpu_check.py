"""What the first person with a card runs: is the engine right on it, and how much does it carry? One table to send back.

python -m bench.engine.gpu_check [--golden DIR] [--minutes 9.5] [--out build/gpu-check]      (make gpu-check)
python -m bench.engine.gpu_check --all --golden DIR [--minutes 25] [--out bench/results]
python -m bench.engine.gpu_check --all --golden tests/data/golden --size tiny --device cpu --quick --out build/rehearsal

Needs no network and no model: the weights are of the published size and filled by rule. With ``--golden``, the folder of the
reference outputs at full size, the networks are compared with those; without it, speech in batched streams from graphs is
compared with speech in one piece. ``--all``: every bench of the engine as well, the most valuable first. The last line is a
rehearsal without a card: all but the tests and the graphs.

Each step is a process of its own with a time limit and leaves ``engine_gpu_*.json``, and its words in ``engine_gpu_*.log``;
the table has the last line of one that failed. ``engine_gpu.json`` says how each went; with ``--all``, one that came to its
end is left out the next time, so the command can be given again until all is done. A step that ran past its time keeps what
it had measured by then. The exit status is 1 if a step did not end well, 2 without a card that can be used.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.engine.model import Size, model_at
from bench.report import RESULTS, machine
from cc_tts import logs
from cc_tts.engines.cosyvoice.gpu_driver import installed_driver
from cc_tts.engines.cosyvoice.model.loader import dtype_for
from cc_tts.engines.cosyvoice.worker_engine import check_build, choose_device
from cc_tts.errors import ConfigError
from lab.server_under_test import Json
from lab.timed_steps import NO_TIME, PAST_ITS_TIME, Step, read_json, run

NO_CARD: Final = 2
MINUTES: Final = 9.5
MINUTES_OF_ALL: Final = 25.0
TABLE: Final = "gpu-check.md"
CALLS: Final = "1,4,8,16,32,64,128"
NOT_THERE: Final = "not measured"
NAME: Final = "engine_gpu"
FOLDERS: Final[dict[Size, Path]] = {
    "tiny": Path("build") / "engine-model-tiny",
    "full": Path("build") / "engine-model-full",
}
_LADDER: Final = "engine_gpu_phone.json"
_QUALITY: Final = "engine_gpu_quality.json"
_PARITY: Final = "engine_gpu_parity_float32.json"


class Plan:
    """The steps of a run, by what its command line asks for."""

    def __init__(self, options: argparse.Namespace, model_dir: Path) -> None:
        self._options = options
        size, device, out = options.size, options.device, str(options.out)
        self._place = ("--size", size, "--device", device, "--model-dir", str(model_dir), "--out", out)
        self._is_card = device.startswith("cuda")

    def _bench(self, module: str, name: str, *more: str, limit_s: float) -> Step:
        quick = ("--quick",) if self._options.quick else ()
        argv = ("-m", f"bench.engine.{module}", *self._place, "--name", f"engine_gpu_{name}", *more, *quick)
        return Step(name, argv, limit_s)

    def _parity(self, dtype: str, *, limit_s: float) -> Step:
        options, file = self._options, str(self._options.out / f"engine_gpu_parity_{dtype}.json")
        what = ("--size", options.size, "--device", options.device, "--dtype", dtype, "--engine", "--json", file)
        graphs = ("--graphs",) if self._is_card and dtype == "float32" else ()
        return Step(f"parity_{dtype}", ("-m", "tests.parity", str(options.golden), *what, *graphs), limit_s)

    def _tests(self, limit_s: float) -> list[Step]:
        return [_pytest("tests", "test_engine_on_card.py", limit_s)] if self._is_card else []

    def short(self) -> list[Step]:
        """Is it right, then how fast. Their limits add up to less than the ten minutes."""
        more = () if self._options.quick else ("--quick",)
        quality = self._bench("quality", "quality", "--parts", "gates", *more, limit_s=140.0)
        right = self._parity("float32", limit_s=140.0) if self._options.golden else quality
        load = ("--loads", "burst,always", "--calls", self._options.calls, "--seconds", "12")
        return [*self._tests(170.0), right, self._bench("phone", "phone", *load, limit_s=250.0)]

    def _levers(self, load: Sequence[str]) -> list[Step]:
        """What a model may be set to beside its defaults: is it right, then what does it gain."""
        levers = (
            ("kernels_off", ("--no-kernels",), 200.0),
            ("int8_pages", ("--page-type", "int8"), 200.0),
            ("five_steps", ("--flow-steps", "5"), 200.0),
            ("compiled", ("--compiled",), 540.0),
        )
        steps = [self._bench("phone", f"phone_{name}", *more, *load, limit_s=limit_s) for name, more, limit_s in levers]
        return [*([_pytest("tests_compiled", "test_compiled_on_card.py", 300.0)] if self._is_card else []), *steps]

    def everything(self) -> list[Step]:
        """In order of their worth: is it right, then the headline, then the rest."""
        # One process for three loads: each would load, record and measure anew.
        phone = ("--loads", "burst,always,poisson", "--calls", "1,16,32,64,128", "--seconds", "20")
        in_turns = ("--loads", "always", "--calls", "16,64,128", "--seconds", "12")  # what is gained by each lever
        has_golden = self._options.golden is not None
        # A CPU takes minutes for the half types, and it is not they that are rehearsed.
        halves = ("bfloat16", "float16") if has_golden and self._is_card else ()
        return [
            *self._tests(180.0),
            *([self._parity("float32", limit_s=300.0)] if has_golden else ()),
            self._bench("phone", "phone", *phone, limit_s=540.0),
            *(self._parity(dtype, limit_s=180.0) for dtype in halves),
            self._bench("quality", "quality", "--parts", "gates", limit_s=180.0),
            self._bench("phone", "phone_in_turns", "--no-overlap", *in_turns, limit_s=200.0),
            *self._levers(in_turns),
            self._bench("comparable", "comparable", limit_s=300.0),
            self._bench("ladder", "ladder", limit_s=300.0),
            self._bench("ladder", "ladder_no_graphs", "--no-graphs", "--rounds", "2", limit_s=180.0),
        ]


def _pytest(name: str, module: str, limit_s: float) -> Step:
    return Step(name, ("-m", "pytest", "-v", "--tb=short", "-m", "gpu", f"tests/gpu/{module}"), limit_s)


def card(device: str) -> Json:
    """Its name, memory, driver and PyTorch. Raises ``ConfigError`` if it cannot be used."""
    import torch

    chosen = choose_device(device)
    check_build(chosen)
    found: Json = {"device": str(chosen), "driver": installed_driver() or "none", "torch": torch.__version__}
    found |= {"cuda": torch.version.cuda or "none", "type": str(dtype_for(chosen)).removeprefix("torch.")}
    if chosen.type == "cuda":
        free, total = torch.cuda.mem_get_info(chosen)
        found |= {"device": torch.cuda.get_device_name(chosen), "memory": f"{_gib(total)}, {_gib(free)} free"}
    return found


def table(of_card: Json, of_machine: Json, steps: Json, out: Path) -> str:
    """Everything that was found, as Markdown."""
    rows = [(name, str(value)) for name, value in of_card.items()]
    rows += [("host", f"{of_machine['cpu']}, {of_machine['cores']} cores"), ("cc-tts", of_machine["cc_tts"])]
    rows += [(f"step {name}", _ending(step)) for name, step in steps.items()]
    rows += _rightness(out)
    ladder = read_json(out / _LADDER)
    loads, bursts = (ladder.get("loads", {}).get(load, {}) for load in ("always", "burst"))
    rows += [(name, str(value)) for name, value in ladder.get("kernels", {}).items()]
    rows.append(("first audio alone, p50 / p95 ms", _first(bursts.get("1"))))
    rows.append(
        ("most streams under 300 ms at p95, no underrun, none refused", str(ladder.get("most_sustained", NOT_THERE)))
    )
    for other in sorted(out.glob(f"{NAME}_phone_*.json")):
        setting = other.stem.removeprefix(f"{NAME}_phone_")
        rows.append((f"the same with {setting}", str(read_json(other).get("most_sustained", NOT_THERE))))
    rows += [(f"memory, {name}", str(value)) for name, value in ladder.get("memory", {}).items()]
    lines = ["| what | found |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += ["| streams | first audio p50 / p95 ms | with underruns | refused | audio s per s | pages |"]
    lines += ["| --- | --- | --- | --- | --- | --- |", *(_rung(count, cell) for count, cell in loads.items())]
    return "\n".join(lines) + "\n"


def _ending(step: Json) -> str:
    if step["status"] == NO_TIME:
        return NO_TIME
    words = {0: "passed", PAST_ITS_TIME: PAST_ITS_TIME}
    last = "" if step["status"] == 0 else f": {step.get('last', '').replace('|', '/')}"
    return f"{words.get(step['status'], 'FAILED')} after {step['took_s']} s{last}"


def _rightness(out: Path) -> list[tuple[str, str]]:
    quality, parity = read_json(out / _QUALITY), read_json(out / _PARITY)
    if parity:
        return [("parity with the reference", "see the step, and " + _PARITY)]
    if not quality:
        return [("streams against one piece", NOT_THERE)]
    whole, finite = quality["whole"], quality["finite"]
    clicks = (
        f"{whole['num_clicks']} clicks at {whole['num_joins']} joins, mel apart by {whole['mel_max_difference']:.2g}"
    )
    return [("streams against one piece", clicks), ("numbers that are not finite", str(finite["not_finite"]))]


def _first(cell: object) -> str:
    if not isinstance(cell, Mapping) or "p50" not in cell["first_audio_ms"]:
        return NOT_THERE
    return f"{cell['first_audio_ms']['p50']} / {cell['first_audio_ms']['p95']}"


def _rung(count: str, cell: object) -> str:
    if not isinstance(cell, Mapping):
        return f"| {count} | {cell} | | | | |"
    underruns = cell["underrun_rate"]["any"]
    share = NOT_THERE if underruns is None else f"{100 * underruns:.1f} %"
    return f"| {count} | {_first(cell)} | {share} | {cell['refused']} | {cell['audio_s_per_s']} | {cell['max_pages']} |"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


def main(arguments: list[str] | None = None) -> int:
    """Look for the card, do the steps, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=Path, help="folder of the reference outputs at this size")
    parser.add_argument(
        "--all", action="store_true", help="every bench of the engine; what is done already is left out"
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")
    parser.add_argument("--size", choices=list(FOLDERS), default="full", help="of the networks")
    parser.add_argument(
        "--model-dir", type=Path, help="made there if it is not, 2.5 GB; build/engine-model-SIZE without"
    )
    parser.add_argument("--calls", default=CALLS, help="the ladder of streams")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--minutes", type=float, help=f"25 for all, {MINUTES} otherwise")
    parser.add_argument("--out", type=Path, help="bench/results for all, build/gpu-check otherwise")
    options = parser.parse_args(arguments)
    options.out = options.out or (RESULTS if options.all else Path("build") / "gpu-check")
    until_s = time.monotonic() + 60.0 * (options.minutes or (MINUTES_OF_ALL if options.all else MINUTES))
    logs.configure(level="warning", json=False, process="gpu-check")
    try:
        of_card = card(options.device)
    except ConfigError as error:
        print(f"Nothing was checked, as no card can be used. {error.detail}", file=sys.stderr)
        return NO_CARD
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.all:
        for name in (f"{NAME}.json", TABLE, _LADDER, _QUALITY, _PARITY):  # of an earlier run, perhaps on another card
            (options.out / name).unlink(missing_ok=True)
    plan = Plan(options, model_at(options.model_dir or FOLDERS[options.size], options.size))
    steps = plan.everything() if options.all else plan.short()
    try:
        done = run(steps, options.out, until_s, name=NAME, about={"machine": machine()})
    except KeyboardInterrupt:
        done = read_json(options.out / f"{NAME}.json").get("steps", {})
    text = table(of_card, machine(), done, options.out)
    (options.out / TABLE).write_text(text, encoding="utf-8")
    logs_of = [f"{NAME}_{name}.log" for name, step in done.items() if step["status"] not in {0, NO_TIME}]
    with_logs = f", with {', '.join(logs_of)} beside it" if logs_of else ""
    print(f"\n{text}\nThis is {options.out / TABLE}; please send it back{with_logs}.")
    return 0 if len(done) == len(steps) and all(step["status"] == 0 for step in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
