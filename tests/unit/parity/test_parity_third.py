"""The networks of the third generation and the engine's runners give the numbers that the reference recorded."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.parity.command import main  # noqa: E402
from tests.support.golden import GOLDEN  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

pytestmark = pytest.mark.unit

GOLDEN3: Final = GOLDEN.with_name("golden3")
CASES: Final = {
    *("llm_logp", "llm_instruct_logp", "llm_stop_out", "bi_logp", "bi_fed", "bi_noprompt_logp", "bi_noprompt_fed"),
    *("pre_out_final", "pre_out_context", "est_time", "est_input", "est_block0", "est_out_streaming_True"),
    *("mel_offline", "mel_chunk2 forward()", "mel_chunk2 step()", "mel_stream_final end step()", "stream_f0"),
    *("hift_a_wav", "hift_a_wav_open", "hift_a_wav by 1", "hift_b_wav by 7", "hift_a_wav_quiet", "source_wav"),
    *("wav_chunk3", "wav_last_official", "wav_chunk3 of own mel", "special tokens", "schedule", "silent tokens"),
    *("engine llm_logp", "engine llm_instruct_logp", "engine ids", "engine mel_chunk2", "engine mel_stream_final end"),
    *("engine wav_chunk3", "engine pages left over"),
}

_one_thread = pytest.fixture(autouse=True)(one_thread)


def verdicts(directory: Path, out: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status of a comparison and its rows."""
    status = main([str(directory), *options, "--json", str(out)])
    return status, {row["case"]: row for row in json.loads(out.read_text())["cases"]}


def test_the_references_are_met(tmp_path: Path) -> None:
    status, rows = verdicts(GOLDEN3, tmp_path / "out.json", "--engine", "--seed", "1")
    assert status == 0
    assert set(rows) >= CASES
    assert all(row["judged"] and row["max_abs_error"] <= row["tolerance"] for row in rows.values())


def test_other_weights_fail(tmp_path: Path) -> None:
    directory = tmp_path / "golden"
    directory.mkdir()
    shutil.copy(GOLDEN3 / "tiny_state_dict.json", directory)
    with np.load(GOLDEN3 / "tiny.npz") as file:
        np.savez(directory / "tiny.npz", **{key: file[key] for key in file.files} | {"salt": np.array("other")})
    status, rows = verdicts(directory, tmp_path / "out.json")
    right = {case for case, row in rows.items() if row["ok"]}
    of_no_weight = {f"{name}_{of}" for name in ("bi", "bi_noprompt") for of in ("out", "n_logp", "fed")}
    assert (status, right) == (1, of_no_weight | {"llm_stop_out", "noise_head", "noise_crc"})
