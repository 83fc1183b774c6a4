"""``tests/run.sh``: what fails beside other tests runs once more, alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def run(folder: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(source)
    return subprocess.run(
        [ROOT / "tests/run.sh", "-q", "-p", "xdist", *options, "test_it.py"],
        cwd=folder,
        env=os.environ
        | {"PYTEST": str(Path(sys.executable).with_name("pytest")), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_passes_alone_passes_and_is_named(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "from pathlib import Path\n"
        "def test_second_time():\n"
        "    was_here = Path('here').exists()\n"
        "    Path('here').touch()\n"
        "    assert was_here\n"
        "def test_passes():\n"
        "    assert not Path('once').exists()\n"
        "    Path('once').touch()\n",
        *("-n", "2", "--dist", "worksteal"),
    )
    assert done.returncode == 0, done.stdout
    assert "FAILED test_it.py::test_second_time" in done.stdout
    assert "1 passed, 1 deselected" in done.stdout


@pytest.mark.parametrize(
    ("source", "workers", "code", "runs"),
    [("def test_it():\n    assert 0\n", "0", 1, 2), ("import nothing_like_this\n", "2", 2, 2), ("", "0", 5, 1)],
    ids=["fails alone", "cannot be imported", "has no test"],
)
def test_what_fails_alone_fails(tmp_path: Path, source: str, workers: str, code: int, runs: int) -> None:
    done = run(tmp_path, source, "-n", workers)
    assert done.returncode == code, done.stdout
    assert done.stdout.count("once more, alone") == runs - 1
