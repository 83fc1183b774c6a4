"""A fixture that keeps log lines from being printed; a ``conftest.py`` imports it where failures are made on purpose."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures made on purpose are not printed with all their locals."""
    with structlog.testing.capture_logs():
        yield
