"""The kernels compile for a card, which the interpreter of the other tests does not show."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = [pytest.mark.unit, pytest.mark.timeout(900)]


KERNELS = {"_attend_kernel", "_convolve_kernel", "_join_kernel", "_product_kernel", "_project_kernel", "_write_kernel"}


def compiled(*options: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "lab.cosyvoice.compiled_kernels", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_all_kernels_compile_for_the_least_card() -> None:
    assert {line.split()[0] for line in compiled("--capability", "80")} == KERNELS


def test_numbers_in_8_bits_are_read_on_the_least_card_that_has_them() -> None:
    assert {line.split()[0] for line in compiled("--capability", "89", "--pages", "float8")} == KERNELS


def test_no_size_of_a_call_is_compiled_in_service() -> None:
    *before, behind = "\n".join(compiled("--sizes")).partition("other sizes")
    assert {line.split()[0] for line in before[0].splitlines()} == KERNELS
    assert behind == ""
