"""The kernels compile for a card, which the interpreter of the other tests does not show."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [pytest.mark.unit, pytest.mark.timeout(900)]


def test_all_kernels_compile_for_the_least_card() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "lab.cosyvoice.compiled_kernels", "--capability", "80"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    compiled = {line.split()[0] for line in done.stdout.splitlines()}
    assert compiled == {
        "_attend_kernel",
        "_convolve_kernel",
        "_join_kernel",
        "_product_kernel",
        "_project_kernel",
        "_write_kernel",
    }
