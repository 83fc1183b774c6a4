import shutil
from pathlib import Path

import pytest

from lab import needs

BUILD = Path(__file__).resolve().parents[3] / "build"
PYTHON = BUILD / "clients" / "bin" / "python"
PACKAGES = BUILD / "clients-npm" / "node_modules"


@pytest.fixture(scope="session")
def clients() -> Path:
    if not PYTHON.exists():
        needs.missing("clients", "the client packages are not installed: make clients")
    return PYTHON


@pytest.fixture(scope="session")
def node() -> tuple[str, str]:
    program = shutil.which("node")
    if program is None or not PACKAGES.exists():
        needs.missing("clients-npm", "the client packages for Node.js are not installed: make clients")
    return program, f"{PACKAGES.parent}/"


@pytest.fixture(scope="session")
def jambonz() -> None:
    if not (PACKAGES / "@jambonz").exists():
        needs.missing("jambonz", "the package @jambonz/speech-utils is not installed: make clients JAMBONZ=1")
