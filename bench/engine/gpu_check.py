"""What the first person with a card runs: is the engine right on it, and how much does it carry? One table to send back.

python -m bench.engine.gpu_check [--golden DIR] [--minutes 9.5] [--out build/gpu-check]      (make gpu-check)

Needs no network and no model: the weights are of the published size and filled by rule. With ``--golden``, the folder of the
reference outputs at full size, the networks are compared with those; without it, speech in batched streams from graphs is
compared with speech in one piece. The exit status is 1 if a step did not end well, 2 without a card that can be used.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.engine.gpu import FOLDERS, SUMMARY, Step, run
from bench.engine.model import Size, model_at
from bench.report import machine
from cc_tts import logs
from cc_tts.engines.cosyvoice2.gpu_driver import installed_driver
from cc_tts.engines.cosyvoice2.model.loader import dtype_for
from cc_tts.engines.cosyvoice2.worker_engine import check_build, choose_device
from cc_tts.errors import ConfigError
from lab.server_under_test import Json

NO_CARD: Final = 2
MINUTES: Final = 9.5
TABLE: Final = "gpu-check.md"
CALLS: Final = "1,4,8,16,32,64,128"
NOT_THERE: Final = "not measured"
_LADDER: Final = "engine_gpu_phone.json"
_QUALITY: Final = "engine_gpu_quality.json"
_PARITY: Final = "engine_gpu_parity.json"


def plan(device: str, size: Size, model_dir: Path, golden: Path | None, out: Path, calls: str = CALLS) -> list[Step]:
    """Its steps: is it right, then how fast. Their limits add up to less than the ten minutes."""
    place = ("--size", size, "--device", device, "--model-dir", str(model_dir), "--out", str(out))
    same: tuple[str, ...] = ("-m", "bench.engine.quality_gates", *place, "--name", Path(_QUALITY).stem, "--quick")
    if golden is not None:
        where = (str(golden), "--size", size, "--device", device, "--engine", "--graphs", "--json", str(out / _PARITY))
        same = ("-m", "tests.parity", *where)
    load = ("--name", Path(_LADDER).stem, "--loads", "burst,always", "--calls", calls, "--seconds", "12")
    steps = [Step("parity", same, 150.0), Step("ladder", ("-m", "bench.engine.phone", *place, *load), 260.0)]
    if device.startswith("cuda"):
        steps.insert(0, Step("tests", ("-m", "pytest", "-q", "-m", "gpu", "tests/gpu"), 120.0))
    return steps


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
    ladder = _read(out / _LADDER)
    loads, bursts = (ladder.get("loads", {}).get(load, {}) for load in ("always", "burst"))
    rows.append(("first audio alone, p50 / p95 ms", _first(bursts.get("1"))))
    rows.append(
        ("most streams under 300 ms at p95, no underrun, none refused", str(ladder.get("most_sustained", NOT_THERE)))
    )
    rows += [(f"memory, {name}", str(value)) for name, value in ladder.get("memory", {}).items()]
    lines = ["| what | found |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += ["| streams | first audio p50 / p95 ms | with underruns | refused | audio s per s | pages |"]
    lines += ["| --- | --- | --- | --- | --- | --- |", *(_rung(count, cell) for count, cell in loads.items())]
    return "\n".join(lines) + "\n"


def _ending(step: Json) -> str:
    words = {0: "passed", "ran past its time": "ran past its time"}
    return f"{words.get(step['status'], 'FAILED')} after {step['took_s']} s"


def _rightness(out: Path) -> list[tuple[str, str]]:
    quality, parity = _read(out / _QUALITY), _read(out / _PARITY)
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


def _read(path: Path) -> Json:
    found: Json = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.1f} GiB"


def main(arguments: list[str] | None = None) -> int:
    """Look for the card, do the steps, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", type=Path, help="folder of the reference outputs at this size")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal")
    parser.add_argument("--size", choices=list(FOLDERS), default="full", help="of the networks")
    parser.add_argument("--calls", default=CALLS, help="the ladder of streams")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--out", type=Path, default=Path("build") / "gpu-check")
    options = parser.parse_args(arguments)
    until_s = time.monotonic() + 60.0 * options.minutes
    logs.configure(level="warning", json=False, process="gpu-check")
    try:
        of_card = card(options.device)
    except ConfigError as error:
        print(f"Nothing was checked, as no card can be used. {error.detail}", file=sys.stderr)
        return NO_CARD
    options.out.mkdir(parents=True, exist_ok=True)
    for name in (SUMMARY, TABLE, _LADDER, _QUALITY, _PARITY):  # of an earlier run, perhaps on another card
        (options.out / name).unlink(missing_ok=True)
    folder = model_at(FOLDERS[options.size], options.size)
    steps = plan(options.device, options.size, folder, options.golden, options.out, options.calls)
    done = run(steps, options.out, until_s)
    text = table(of_card, machine(), done, options.out)
    (options.out / TABLE).write_text(text, encoding="utf-8")
    print(f"\n{text}\nThis is {options.out / TABLE}; please send it back.")
    return 0 if len(done) == len(steps) and all(step["status"] == 0 for step in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
