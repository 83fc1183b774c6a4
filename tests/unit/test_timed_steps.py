"""Commands one after the other: where one fails or hangs, the next is done, and what it said is kept."""

import time
from pathlib import Path

import pytest

from lab.timed_steps import Step, read_json, run

pytestmark = pytest.mark.unit

HANGS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def step(name: str, program: str, limit_s: float = 30.0) -> Step:
    return Step(name, ("-c", program), limit_s)


def is_over(pid: int) -> bool:
    """Return whether a process has ended, though nobody may have asked for its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_step_that_fails_or_hangs_is_told_and_the_next_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        step("fails", "print('one'); raise SystemExit('CUDA error: out of memory')"),
        step("hangs", HANGS, limit_s=3.0),
        step("ends", "print('fine')"),
    ]
    done = run(steps, tmp_path, time.monotonic() + 60.0, name="check", about={"machine": "this"})
    assert [each["status"] for each in done.values()] == [1, "ran past its time", 0]
    assert done["fails"]["last"] == "CUDA error: out of memory"
    assert "one\n" in capsys.readouterr().out
    assert "one\n" in (tmp_path / "check_fails.log").read_text()
    assert is_over(int((tmp_path / "check_hangs.log").read_text())), "what it had begun goes on"
    assert read_json(tmp_path / "check.json") == {"machine": "this", "steps": done}


def test_a_step_without_time_is_told_and_done_the_next_time(tmp_path: Path) -> None:
    steps = [step("long", "", limit_s=100.0)]
    done = run(steps, tmp_path, time.monotonic() + 10.0, name="check", about={})
    assert done == {"long": {"status": "was not begun: no time left", "took_s": 0.0}}
    assert run(steps, tmp_path, time.monotonic() + 60.0, name="check", about={})["long"]["status"] == 0


def test_what_was_half_written_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "check.json").write_text('{"steps": {"ends"')
    done = run([step("ends", "")], tmp_path, time.monotonic() + 60.0, name="check", about={})
    assert done["ends"]["status"] == 0
    assert run([step("ends", "raise")], tmp_path, time.monotonic() + 60.0, name="check", about={}) == done
