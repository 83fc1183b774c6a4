"""Tests that passed earlier in the same CI run are left out of a later run of the same commit.

A run writes the node ids of its passed tests to the file that ``CC_TTS_WRITE_PASSED`` names. A run with
``CC_TTS_LEAVE_OUT_PASSED`` leaves out the tests that such a file lists.
"""

import os
from pathlib import Path
from typing import Final

import pytest

WRITE: Final = "CC_TTS_WRITE_PASSED"
LEAVE_OUT: Final = "CC_TTS_LEAVE_OUT_PASSED"


class PassedTests:
    def __init__(self) -> None:
        self._called: set[str] = set()
        self._failed: set[str] = set()

    def add(self, report: pytest.TestReport) -> None:
        if report.failed:  # a fixture may fail after its test has passed
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._called.add(report.nodeid)

    def append_to(self, file: Path) -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.writelines(f"{each}\n" for each in sorted(self._called - self._failed))


def leave_out(items: list[pytest.Item], file: Path) -> list[pytest.Item]:
    """The function removes the tests that ``file`` lists from ``items`` and returns the removed ones."""
    passed = set(file.read_text(encoding="utf-8").splitlines())
    removed = [item for item in items if item.nodeid in passed]
    items[:] = [item for item in items if item.nodeid not in passed]
    return removed


def file_of(variable: str) -> Path | None:
    """The file that an environment variable names, or None where it is not set."""
    name = os.environ.get(variable)
    return Path(name) if name else None
