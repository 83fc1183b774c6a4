"""Coverage-guided fuzzing of our parsers: ``make fuzz SECONDS=N``, or ``python -m tests.fuzz.run_fuzz [TARGET ...]``.

Every target runs in a process of its own, as many at once as there are processors, for its part of the seconds. What is
found is in ``build/fuzz-findings``; ``TARGET --input FILE`` shows it again. The inputs that reached new code are kept in
``build/fuzz-corpus``. Needs atheris (requirements/fuzz.txt).
"""

import argparse
import contextlib
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from cc_tts import logs

ROOT: Final = Path(__file__).resolve().parents[2] / "build"
FINDINGS: Final = ROOT / "fuzz-findings"
CORPUS: Final = ROOT / "fuzz-corpus"
MAX_INPUT_BYTES: Final = 8192
"""More than a datagram of SIP, or than what a parser does differently with more."""
MAX_SECONDS_OF_AN_INPUT: Final = 30
"""A hang, also on a slow and busy machine."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run_fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="of processor time, over all targets")
    parser.add_argument("--seed", type=int, default=0, help="the same inputs again, as in CI; 0: others each time")
    parser.add_argument("--input", type=Path, metavar="FILE", help="run one target on this")
    options = parser.parse_args()
    if options.input is not None:
        (name,) = options.targets
        _targets()[name](options.input.read_bytes())
        return 0
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["cc_tts"]):
        targets = _targets()
    names = options.targets or list(targets)
    logs.configure(level="critical")
    FINDINGS.mkdir(parents=True, exist_ok=True)
    each_s = max(1, options.seconds // len(names))
    failed: list[str] = []
    running: dict[int, str] = {}
    waiting = list(names)
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            name = waiting.pop(0)
            running[_fork(atheris, name, targets[name], each_s, options.seed)] = name
        pid, status = os.wait()
        name = running.pop(pid)
        print(f"{name}: {'ok' if status == 0 else 'FOUND, see build/fuzz-findings'}: {_last_words(name)}", flush=True)
        if status != 0:
            failed.append(name)
    for name in failed:
        print(f"\n== {name}\n{_log(name).read_text(errors='replace')[-4000:]}")
    return 1 if failed else 0


def _targets() -> Any:
    return importlib.import_module("tests.fuzz.targets").TARGETS


def _fork(atheris: Any, name: str, target: Any, seconds: int, random_seed: int) -> int:
    if pid := os.fork():
        return pid
    descriptor = os.open(_log(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    arguments = [
        f"-max_total_time={seconds}",
        f"-seed={random_seed}",
        f"-max_len={MAX_INPUT_BYTES}",
        f"-timeout={MAX_SECONDS_OF_AN_INPUT}",
        f"-artifact_prefix={FINDINGS}/{name}-",
    ]
    with contextlib.chdir(tempfile.gettempdir()):
        atheris.Setup([name, *arguments, str(corpus)], target)
        atheris.Fuzz()
    os._exit(0)


def _log(name: str) -> Path:
    return FINDINGS / f"{name}.log"


def _last_words(name: str) -> str:
    lines = [line for line in _log(name).read_text(errors="replace").splitlines() if line.startswith(("Done", "#"))]
    return lines[-1] if lines else "nothing was run"


if __name__ == "__main__":
    sys.exit(main())
