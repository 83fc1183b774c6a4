"""Compile the kernels for a card that is not here, which the interpreter of the tests does not do.

It lets a variable change its type, say.
python -m lab.cosyvoice.compiled_kernels [--capability 80] [--dtype bfloat16] [--generation 2] [--pages int8]
"""

import argparse
import os
from typing import Any, get_args

os.environ.pop("TRITON_INTERPRET", None)  # it is asked for when Triton is first imported

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from cc_tts.engines.cosyvoice.model.networks.pages import PageType
from cc_tts.engines.cosyvoice.model.networks.trial import attention_apart, fused_apart
from cc_tts.engines.cosyvoice.model.sizes import DitConfig, FlowConfig, LmConfig, LookaheadConfig


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capability", type=int, default=80)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--generation", type=int, choices=(2, 3), default=2)
    parser.add_argument("--pages", choices=get_args(PageType), default="int8")
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
    flow = FlowConfig() if arguments.generation == 2 else FlowConfig(encoder=LookaheadConfig(), estimator=DitConfig())
    cpu, dtype = torch.device("cpu"), getattr(torch, arguments.dtype)
    attention_apart(cpu, dtype, arguments.pages)
    fused_apart(cpu, dtype, arguments.pages, LmConfig(generation=arguments.generation), flow)


if __name__ == "__main__":
    main()
