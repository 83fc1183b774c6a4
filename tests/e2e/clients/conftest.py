from pathlib import Path

import pytest

from lab import needs

PYTHON = Path(__file__).resolve().parents[3] / "build" / "clients" / "bin" / "python"


@pytest.fixture(scope="session")
def clients() -> Path:
    """The Python that has the client packages."""
    if not PYTHON.exists():
        needs.missing("clients", "the client packages are not installed: make clients")
    return PYTHON
