"""Commands one after the other, each a process with a time limit; one that fails or hangs ends no other."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.server_under_test import Json

PAST_ITS_TIME: Final = "ran past its time"
NO_TIME: Final = "was not begun: no time left"
SHOW_EVERY_S: Final = 1.0
DRIVER_S: Final = 10.0  # for the end of a process that was killed; unmeasured
LAST_CHARACTERS: Final = 300
LEAST_SHARE: Final = 0.5
"""A step is not begun when less is left than this share of its limit."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and how long it may take."""

    name: str
    argv: tuple[str, ...]
    limit_s: float


def run(steps: Sequence[Step], out: Path, until_s: float, *, name: str, about: Json) -> Json:
    """Do what has not come to its end, while there is time. ``NAME.json`` keeps what is known, of earlier runs as well, and
    ``NAME_STEP.log`` what a step said.
    """
    summary = out / f"{name}.json"
    done: Json = read_json(summary).get("steps", {})
    for step in steps:
        left_s = until_s - time.monotonic()
        before = done.get(step.name)
        if before is not None and isinstance(before["status"], int):
            said = f"ended with {before['status']} before"
        else:
            if left_s < LEAST_SHARE * step.limit_s:
                done[step.name] = before or {"status": NO_TIME, "took_s": 0.0}
            else:
                done[step.name] = _do(step, min(step.limit_s, left_s), out / f"{name}_{step.name}.log")
            said = f"{done[step.name]['status']} after {done[step.name]['took_s']} s"
            summary.write_text(json.dumps({**about, "steps": done}, indent=1) + "\n", encoding="utf-8")
        print(f"== {step.name}: {said}", flush=True)
    return done


def _do(step: Step, limit_s: float, log_file: Path) -> Json:
    """Run a step; what it says is shown and kept. Processes that it leaves behind are ended: the compiler has some."""
    begin = time.monotonic()
    status: int | str = PAST_ITS_TIME
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with log_file.open("wb") as kept, log_file.open(encoding="utf-8", errors="replace") as shown:
        child = subprocess.Popen(
            [sys.executable, *step.argv], stdout=kept, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        try:
            while (left_s := limit_s + begin - time.monotonic()) > 0 and isinstance(status, str):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = child.wait(min(SHOW_EVERY_S, left_s))
                print(shown.read(), end="", flush=True)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs keeps its process
                child.wait(DRIVER_S)
    took_s = round(time.monotonic() - begin, 1)
    last = next((line for line in reversed(log_file.read_text("utf-8", "replace").splitlines()) if line.strip()), "")
    return {"status": status, "took_s": took_s, "command": " ".join(step.argv), "last": last.strip()[:LAST_CHARACTERS]}


def read_json(path: Path) -> Json:
    """What a step left; nothing where it was ended while it wrote."""
    try:
        found: Json = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found
