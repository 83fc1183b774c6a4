"""The comparison at full size, which takes minutes and gigabytes: ``CC_TTS_FULL=1 pytest -m full -s``.

``CC_TTS_GOLDEN`` names the directory of the reference's outputs, laid out as ``tests/data/golden`` is, with ``full.npz``
and ``full_state_dict.json``; without it ``../shared/golden`` beside the checkout is looked for.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

torch = pytest.importorskip("torch")

ROOT: Final = Path(__file__).resolve().parents[3]
GOLDEN: Final = Path(os.environ.get("CC_TTS_GOLDEN") or ROOT.parent / "shared" / "golden")
COMMAND: Final = (sys.executable, "-m", "tests.parity")
MAX_S: Final = 3600

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(MAX_S + 60),
    pytest.mark.skipif(
        os.environ.get("CC_TTS_FULL") != "1", reason="minutes and gigabytes: asked for by CC_TTS_FULL=1"
    ),
    pytest.mark.skipif(not (GOLDEN / "full.npz").is_file(), reason="no full.npz of the reference (CC_TTS_GOLDEN)"),
]


def test_the_references_of_full_size_are_met(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [*COMMAND, str(GOLDEN), "--size", "full", "--engine", "--json", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=MAX_S
    )
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    sys.stdout.write(done.stdout)
    sys.stdout.write(
        f"at most {usage.ru_maxrss / 1024:,.0f} MiB, {usage.ru_utime + usage.ru_stime:.0f} s of processor\n"
    )
    assert done.returncode == 0, done.stdout
    result: dict[str, Any] = json.loads(out.read_text())
    assert result["ok"]
    assert result["size"] == "full"
    cases = {case["case"] for case in result["cases"]}
    assert {"llm_logp", "mel_offline", "mel_chunk1 step()", "wav_chunk1", "hift_b_wav"} <= cases
    assert {"engine llm_logp", "engine ids", "engine mel_chunk1", "engine wav_chunk1"} <= cases
