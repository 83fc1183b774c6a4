"""How many kernels the stages ask a device for, compiled and not, and whether compiled ones compute the same.

python -m bench.engine.launches [--generations 2,3] [--stages lm_step,flow_call,vocoder_call] [--name engine_launches]
python -m bench.engine.launches --compare

Operators are counted with the published sizes, without weights; views are left out. Kernels of compiled code are counted
after the compiler has joined what a card's would be, with the published layers and narrow ones: how wide they are does not
change how many. Twice: by the compiler alone, and with our own kernels, where each operator of theirs is a launch. Nothing
is measured on a card. ``--compare`` compiles the small model for the CPU instead and runs it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from bench.report import RESULTS, machine, save
from cc_tts.engines.cosyvoice.model.loader import SpeechModel, load_model
from cc_tts.engines.cosyvoice.model.sizes import FLOW_STEPS, Generation
from lab.cosyvoice.launches import published_kernels, published_operators, stages
from lab.cosyvoice.tiny_model import make_tiny_model
from lab.server_under_test import Json

GENERATIONS: Final[tuple[Generation, ...]] = (2, 3)
STAGES: Final = ("lm_step", "flow_call", "vocoder_call")
WAYS: Final = ("compiled", "fused")  # by the compiler alone, and with the kernels that are ours
NUM_STEPS: Final = 8  # of the language model, that are compared


def count(generation: Generation, name: str, *, fused: bool) -> Json:
    """The kernels of the compiled graphs of a stage; an Euler step is run as often as there are steps."""
    begin_s = time.monotonic()
    by_graph = published_kernels(generation, name, fused=fused)
    total = by_graph[0] + sum(FLOW_STEPS * each for each in by_graph[1:])
    return {"kernels": total, "by_graph": by_graph, "counted_in_s": round(time.monotonic() - begin_s, 1)}


def compared(model: SpeechModel) -> Json:
    """How far the answers of compiled code are from those of PyTorch's own kernels, on the CPU."""
    result: Json = {}
    for name in STAGES:
        runs: list[list[Tensor]] = []
        for way in ("plain", "compiled"):
            stage = stages(model)[name]
            run: Callable[[], tuple[Tensor, ...]] = getattr(stage, way)
            with torch.inference_mode():
                answers = [run() for _ in range(NUM_STEPS if name == "lm_step" else 1)]
            runs.append([*answers[-1], *stage.state])
        result[name] = max(_apart(*pair) for pair in zip(*runs, strict=True))
        print(f"{name:14} apart by {result[name]:.3g}", flush=True)
    return result


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one.to(torch.float64) - other.to(torch.float64)).abs().max())


def run(arguments: argparse.Namespace) -> Json:
    result: Json = {}
    for generation in (int(each) for each in arguments.generations.split(",")):
        found = result[f"generation_{generation}"] = {}
        published = published_operators(generation)  # type: ignore[arg-type]
        for name in arguments.stages.split(","):
            operators = published[name]
            found[name] = {"operators": operators}
            for way in arguments.ways.split(","):
                counted = count(generation, name, fused=way == "fused")  # type: ignore[arg-type]
                fewer = round(1.0 - counted["kernels"] / operators, 3)
                found[name][way] = {**counted, "fewer": fewer}
                print(
                    f"{generation} {name:14} {operators:6} operators, {way:9}{counted['kernels']:6} kernels  "
                    f"{fewer:.0%} fewer",
                    flush=True,
                )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", default="2,3")
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--compare", action="store_true", help="run the small model compiled, for the CPU")
    parser.add_argument("--name", help="save NAME.json; what it has of other stages stays")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.compare:
        with tempfile.TemporaryDirectory() as folder:
            for generation in GENERATIONS:
                compared(load_model(make_tiny_model(Path(folder), generation)))
        return
    result = run(arguments)
    if arguments.name:
        print(f"\nsaved {save(arguments.name, {'machine': machine(), **result}, arguments.out)}")


if __name__ == "__main__":
    main()
