"""Explains why torch sees no GPU: the installed driver, and the driver that this PyTorch needs. No torch."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KERNEL_MODULE: Final = "proc/driver/nvidia/version"
NVIDIA_SMI: Final = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
TIMEOUT_S: Final = 5.0  # unmeasured
LEAST_DRIVER: Final[Mapping[int, int]] = {11: 450, 12: 525, 13: 580}
"""The oldest driver for a major version of CUDA: release notes of the CUDA toolkit, minimum driver for minor version
compatibility.
"""
OLDER_CUDA: Final = 'a PyTorch for CUDA 12 runs with 525 or newer (docs/operators/speech.md, "Which driver")'
_VERSION: Final = re.compile(r"\b(\d{3,4})\.\d+(?:\.\d+)*\b")


def driver_version(kernel_module: str, nvidia_smi: str) -> str:
    """Return the version from the kernel's module or else ``nvidia-smi``; empty if neither has it."""
    found = _VERSION.search(kernel_module) or _VERSION.search(nvidia_smi)
    return found[0] if found else ""


def installed_driver(root: Path = Path("/")) -> str:
    """The version of this machine's driver; empty if there is none."""
    try:
        kernel_module = (root / KERNEL_MODULE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        kernel_module = ""
    return driver_version(kernel_module, "" if kernel_module else _asked())


def _asked() -> str:
    try:
        done = subprocess.run(NVIDIA_SMI, capture_output=True, check=False, timeout=TIMEOUT_S, text=True)  # noqa: S603 - named above
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def why_no_gpu(torch_version: str, cuda: str, driver: str) -> tuple[str, str]:
    """Return why PyTorch sees no GPU, as far as is known, and what to do. ``cuda`` is the version that PyTorch is built
    for; empty if it is built without CUDA.
    """
    has = (
        f"driver {driver} was found"
        if driver
        else "no NVIDIA driver was found (nvidia-smi, /proc/driver/nvidia/version)"
    )
    if not cuda:
        return (
            f"PyTorch {torch_version} is built without CUDA; {has}",
            "pip install -r requirements/gpu.lock or 'WHEEL[gpu]'",
        )
    least = LEAST_DRIVER.get(int(cuda.partition(".")[0]))
    needs = f"PyTorch {torch_version} for CUDA {cuda} needs driver {least} or newer" if least else f"CUDA {cuda}"
    if not driver:
        return f"{has}; {needs}", "install the driver, or start the container with its GPUs"
    if least and int(driver.partition(".")[0]) < least:
        return f"{has}; {needs}", f"upgrade the driver; {OLDER_CUDA}"
    return (
        f"{has}, which is new enough: {needs}",
        "look at CUDA_VISIBLE_DEVICES, nvidia-smi and the container's devices",
    )
