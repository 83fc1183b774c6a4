"""The lines that are logged during a test. A ``conftest.py`` may import :func:`quiet`."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import pytest

from cc_tts import logs


@contextlib.contextmanager
def capture_logs() -> Iterator[list[logs.Line]]:
    """Collect the lines instead of writing them, each with its level as ``log_level``."""
    lines: list[logs.Line] = []
    with mock.patch.object(logs, "write", lambda level, line: lines.append({**line, "log_level": level})):
        yield lines


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures made on purpose are not printed with all their locals."""
    with capture_logs():
        yield
