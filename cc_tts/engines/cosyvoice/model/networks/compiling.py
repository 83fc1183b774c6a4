"""Networks in few kernels: PyTorch's compiler joins the operators between matrix products.

One graph of a stage serves every size: its batch, its length and the caches are declared to vary, and nothing else. The
compiler makes it when it first runs, which takes a minute or so, and keeps it on disk for the next start.

Runs on: the thread that owns the device.
"""

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

import torch
from torch import Tensor

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

CACHE_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"
UNCOMPILED: Final = (
    "the engine goes on with two to three times as many kernels; graphs = true of the model says that it is meant"
)
_C_COMPILERS: Final = ("cc", "gcc", "clang")


def compiled(fn: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Return ``fn`` as one graph, compiled at its first call. Code that cannot become one graph is an error."""
    return torch.compile(fn, fullgraph=True)  # type: ignore[no-any-return, unused-ignore]


def vary(tensor: Tensor, *dims: int) -> Tensor:
    """Declare that sizes of a tensor vary from call to call, so that code compiled with it serves all of them."""
    torch._dynamo.maybe_mark_dynamic(tensor, dims)  # noqa: SLF001 - the documented name
    return tensor


def vary_all(values: Iterable[object]) -> None:
    """Declare all sizes to vary of the tensors among ``values``, and of those in records among them."""
    for value in values:
        if isinstance(value, Tensor):
            vary(value, *range(value.ndim))
        elif is_dataclass(value):
            vary_all(getattr(value, field.name) for field in fields(value))


def compiler_fault() -> str:
    """Return what the compiler lacks on this machine; empty if it can be used."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if not (os.environ.get("CC") or any(map(shutil.which, _C_COMPILERS))):
        return f"there is no C compiler ({', '.join(_C_COMPILERS)}), with which Triton starts its kernels"
    header = Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h"  # where Triton looks for it
    if not header.is_file():
        return f"there is no {header}, with which Triton starts its kernels; it is in the package python3-dev"
    return ""


def is_compilers(error: BaseException) -> bool:
    """Return whether an error comes from the compiler, so that the plain function could still run."""
    packages = ("torch._dynamo", "torch._inductor", "torch._functorch", "triton")
    return any(kind.__module__.startswith(packages) for kind in type(error).__mro__)


def keep_compiled_in(folder: Path) -> None:
    """Keep compiled code in this folder, unless the environment names another one."""
    os.environ.setdefault(CACHE_VARIABLE, str(folder))
