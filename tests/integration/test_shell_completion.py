"""``cc-tts completion``: the scripts are taken by their shells and complete what there is."""

import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cc_tts.operate.completion import SHELLS

pytestmark = pytest.mark.integration
pytest.importorskip("shtab")

COMPLETE = """
eval "$(cat "$1")"
COMP_WORDS=({words}) COMP_CWORD={last} COMPREPLY=()
_shtab_cc_tts
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@functools.cache
def completion(shell: str) -> str:
    argv = [sys.executable, "-m", "cc_tts.cli", "completion", shell]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def script(shell: str, folder: Path) -> Path:
    path = folder / f"cc-tts.{shell}"
    path.write_text(completion(shell))
    return path


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    path = script(shell, tmp_path)
    assert "say-to" in path.read_text()
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", path], check=True)


def test_bash_completes(tmp_path: Path) -> None:
    path = script("bash", tmp_path)
    program = tmp_path / "cc-tts"
    program.write_text("#!/bin/sh\n[ \"$*\" = 'calls --ids' ] && printf 'call_17\\ncall_23\\n'\n")
    program.chmod(0o755)

    def completed(*words: str) -> list[str]:
        code = COMPLETE.format(words=" ".join(f"'{each}'" for each in words), last=len(words) - 1)
        ran = subprocess.run(
            ["bash", "-c", code, "-", path],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout.split()

    assert completed("cc-tts", "ha") == ["hangup"] or set(completed("cc-tts", "ha")) == {"hangup"}
    assert set(completed("cc-tts", "say-")) == {"say-to"}
    assert "--wait" in completed("cc-tts", "say-to", "--")
    assert set(completed("cc-tts", "hangup", "call_1")) == {"call_17"}
