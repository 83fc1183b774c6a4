"""Which NVIDIA driver there is, and whether it suits the PyTorch."""

from pathlib import Path

import pytest

from cc_tts.engines.cosyvoice import gpu_driver
from cc_tts.engines.cosyvoice.gpu_driver import driver_version, installed_driver, why_no_gpu

pytestmark = pytest.mark.unit

OPEN_MODULE = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder)
GCC version:  gcc version 13.2.0
"""


@pytest.mark.parametrize(
    ("kernel_module", "nvidia_smi", "expected"),
    [
        (OPEN_MODULE, "", "570.86.15"),
        ("", "535.183.01\n535.183.01\n", "535.183.01"),
        ("", "Failed to initialize NVML: Driver/library version mismatch", ""),
        ("", "", ""),
    ],
)
def test_the_version_is_found(kernel_module: str, nvidia_smi: str, expected: str) -> None:
    assert driver_version(kernel_module, nvidia_smi) == expected


def test_the_installed_driver_is_that_of_the_kernel_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_driver, "NVIDIA_SMI", (str(tmp_path / "absent"),))
    assert installed_driver(tmp_path) == ""
    file = tmp_path / gpu_driver.KERNEL_MODULE
    file.parent.mkdir(parents=True)
    file.write_text(OPEN_MODULE)
    assert installed_driver(tmp_path) == "570.86.15"


@pytest.mark.parametrize(
    ("cuda", "driver", "detail", "remedy"),
    [
        ("", "580.1", "built without CUDA", "requirements/gpu.lock"),
        ("13.0", "", "no NVIDIA driver was found", "install the driver"),
        ("13.0", "570.86.15", "needs driver 580 or newer", "CUDA 12 "),
        ("12.6", "535.183.01", "new enough", "CUDA_VISIBLE_DEVICES"),
        ("99.0", "580.1", "CUDA 99.0", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_why_there_is_no_gpu(cuda: str, driver: str, detail: str, remedy: str) -> None:
    found = why_no_gpu("2.13.0", cuda, driver)
    assert detail in found[0]
    assert remedy in found[1]
