"""Compile the kernels for a card that is not here, which the interpreter of the tests does not do.

It lets a variable change its type, say. With ``--sizes`` calls of several sizes are made, and then others: a kernel that is
compiled for these would be compiled in service.
python -m lab.cosyvoice.compiled_kernels [--capability 80] [--dtype bfloat16] [--generation 2] [--pages int8] [--sizes]
"""

import argparse
import os
from typing import Any, Final, get_args

os.environ.pop("TRITON_INTERPRET", None)  # it is asked for when Triton is first imported

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from cc_tts.engines.cosyvoice.model.networks import convolution_kernels, page_kernels, product_kernels
from cc_tts.engines.cosyvoice.model.networks.pages import PageType
from cc_tts.engines.cosyvoice.model.networks.trial import attention_difference, fused_difference
from cc_tts.engines.cosyvoice.model.sizes import DitConfig, FlowConfig, LmConfig, LookaheadConfig

OTHERS: Final = "other sizes"
_SIZES: Final = tuple(
    (4, num_places, num_pages) for num_places in (16, 32, 50) for num_pages in (8, 16)
)  # rows, places and pages; each block of queries, split or not
_OTHER_SIZES: Final = ((1, 1, 1), (1, 26, 3), (3, 50, 9), (5, 100, 12), (2, 300, 13), (1, 600, 20))


class _Absent:
    """A driver of a card that nothing is run on."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0


def call_all(dtype: torch.dtype, num_rows: int, num_places: int, num_pages: int) -> None:
    """Each kernel once, on pages of 50 positions and two heads."""
    new = torch.zeros((num_rows, num_places, 3, 2, 64), dtype=dtype)
    x, weight = new.flatten(2), torch.zeros((384, 384), dtype=dtype)
    kept, gain = torch.zeros((num_pages + 1, 50, 2, 2, 64), dtype=dtype), weight[0]
    # One number apart, as parts of what is copied to a card at once are.
    numbers = torch.zeros(1 + num_rows * (num_places + num_pages + 5), dtype=torch.int64)[1:]
    written, table, counts = torch.split(numbers, [num_rows * num_places, num_rows * num_pages, num_rows * 5])
    written, table, (starts, ends, left_out, slots, num_kept) = (
        *(written.view(num_rows, -1), table.view(num_rows, -1)),
        counts.view(5, -1),
    )
    distances = torch.zeros((num_rows, 2, num_places, 50 * num_pages + 49), dtype=dtype)
    page_kernels.write(new[:, :, 1:], kept, None, written, 127.0, 0.1)
    queries = new[:, :, 0].transpose(1, 2)
    seen = (kept, table, starts, 50 * num_pages, 50, 512, ends, left_out, 50, 100, None, distances, -49)
    page_kernels.attend(queries, *seen)
    parts = page_kernels.attend_in_parts(queries, *seen)
    product_kernels.product(x, None, weight, None, "rms", gain, None, 1e-6, "", None, None)
    plain = (None, "", None, None, 0.0, "", None)
    product_kernels.product(*parts, weight[:128, :128], *plain, x[..., :128].contiguous())
    turns = torch.zeros((2, num_rows, num_places, 32))
    product_kernels.project(
        *(x, weight, None, "rms", gain, None, 1e-6, kept, None, 127.0, 0.1, written, 1, *turns.unbind(), False)
    )
    contexts = torch.zeros((num_rows, 2, 384), dtype=dtype)
    flat, rest = torch.zeros((64, 3 * 384), dtype=dtype), (None, None, 0.0, None, None, None, None)
    convolution_kernels.convolve(x, contexts, slots, num_kept, 0, flat, gain[:64], *rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capability", type=int, default=80)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--generation", type=int, choices=(2, 3), default=2)
    parser.add_argument("--pages", choices=get_args(PageType), default="int8")
    parser.add_argument("--sizes", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    triton.runtime.driver.set_active(_Absent(arguments.capability))
    run, shown = JITFunction.run, set[str]()

    def only_compiled(self: Any, *given: Any, warmup: bool, **more: Any) -> Any:
        kernel = run(self, *given, warmup=True, **more)
        if kernel.hash not in shown:
            shown.add(kernel.hash)
            print(f"{self.__name__:18} {kernel.metadata.shared:6} bytes of shared memory", flush=True)
        return kernel

    JITFunction.run = only_compiled
    if arguments.sizes:
        for size in (*_SIZES, None, *_OTHER_SIZES):
            if size is None:
                print(OTHERS, flush=True)
            else:
                call_all(getattr(torch, arguments.dtype), *size)
        return
    flow = FlowConfig() if arguments.generation == 2 else FlowConfig(encoder=LookaheadConfig(), estimator=DitConfig())
    cpu, dtype = torch.device("cpu"), getattr(torch, arguments.dtype)
    attention_difference(cpu, dtype, arguments.pages)
    fused_difference(cpu, dtype, arguments.pages, LmConfig(generation=arguments.generation), flow)


if __name__ == "__main__":
    main()
