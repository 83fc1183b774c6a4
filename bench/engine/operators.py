"""How many operators the networks ask the device for: what a launch of each costs is most of what a small batch costs.

python -m bench.engine.operators [--size tiny|full] [--name engine_operators]

Counted, not timed, so nothing that the machine does besides spoils it. Views are left out: they ask for nothing. One
operator is one kernel on a card, or some; on a CPU it can be several calls.
"""

import argparse
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bench.engine.lab import Lab, keep, lab_of, parser_of
from bench.engine.work import ChunkWork, DrawWork, SpeechWork
from lab.cosyvoice2.whole_vocoder import vocode
from lab.server_under_test import Json

NUM_DRAWN: Final = (8, 16)
"""The difference of two draws is steps alone."""
NUM_CHUNKS: Final = 2
_FREE: Final = ("aten._unsafe_view", "aten.empty", "aten.split_with_sizes", "aten.unbind")


class Operators(TorchDispatchMode):
    """Counts while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for each operator."""
        if not func.is_view and not str(func).startswith(_FREE):
            self.counts[str(func).removeprefix("aten.").partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def counted(work: Callable[[], object]) -> Counter[str]:
    """The operators of ``work``, which is run once before."""
    work()
    operators = Operators()
    with operators:
        work()
    return operators.counts


@contextlib.contextmanager
def counted_in(module: nn.Module) -> Iterator[Counter[str]]:
    """The operators of one call of ``module``, made by whoever runs the network meanwhile."""
    operators, counts = Operators(), Counter[str]()

    def begin(*_args: object) -> None:
        operators.counts.clear()
        operators.__enter__()  # type: ignore[no-untyped-call]

    def end(*_args: object) -> None:
        operators.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        counts.clear()
        counts.update(operators.counts)

    handles = (module.register_forward_pre_hook(begin), module.register_forward_hook(end))
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def told(counts: Counter[str]) -> Json:
    """A count for the JSON."""
    return {"operators": counts.total(), "by_name": dict(counts.most_common())}


def run(lab: Lab) -> Json:
    """A decode step, one layer of it, and a chunk of 25 tokens through flow and through vocoder."""
    model = lab.model()
    short, long = (counted(DrawWork(lab, model, num_sequences=2, num_tokens=number).batched) for number in NUM_DRAWN)
    step = Counter({name: (long[name] - short[name]) // (NUM_DRAWN[1] - NUM_DRAWN[0]) for name in long})
    with counted_in(model.lm.backbone.layers[0]) as layer:
        DrawWork(lab, model, num_sequences=2, num_tokens=NUM_DRAWN[0]).batched()
    work = ChunkWork(SpeechWork(lab, model, num_sequences=1, num_tokens=100), num_chunks=NUM_CHUNKS)
    work.begin()
    work.incremental(work.calls[0])
    with Operators() as flow:
        work.incremental(work.calls[1])
    mel = torch.zeros((1, model.flow.config.estimator.num_mels, 50), device=lab.device)
    lengths = torch.tensor([49], device=lab.device)
    with torch.inference_mode():
        even = counted(lambda: vocode(model.vocoder, mel))
        uneven = counted(lambda: vocode(model.vocoder, mel, mel_len=lengths))
    num_steps = model.flow.config.num_steps
    return {
        "layers_of_the_language_model": model.lm.config.num_layers,
        "euler_steps": num_steps,
        "decode_step_of_2": told(step),
        "layer_of_it": told(layer),
        "flow_chunk": told(flow.counts),
        "vocoder_chunk": told(even),
        "vocoder_chunk_of_a_row_that_is_shorter": told(uneven),
    }


def main() -> None:
    """Count, print, save."""
    arguments: argparse.Namespace = parser_of(__doc__).parse_args()
    with lab_of(arguments) as lab:
        result = run(lab)
        for name in (name for name, value in result.items() if isinstance(value, dict)):
            most = ", ".join(f"{operator} {count}" for operator, count in list(result[name]["by_name"].items())[:6])
            print(f"{name:40} {result[name]['operators']:6}  {most}")
        keep(lab, arguments, result)


if __name__ == "__main__":
    main()
