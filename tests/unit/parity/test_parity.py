"""The networks of both generations and the engine's runners give the numbers that the reference recorded; and what differs
is found.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.parity.command import main
from tests.support.golden import GOLDEN, read_arrays
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

CASES: Final = {
    *("llm_logp", "llm_noprompt_logp", "bi_out", "bi_logp", "noise_crc", "est_out_streaming_True", "enc_out_context"),
    *("mel_offline", "mel_chunk2 forward()", "mel_chunk2 step()", "mel_stream_final end step()", "wav_chunk3"),
    *("hift_a_wav", "hift_b_wav", "source_wav", "kaldi_fbank_80", "ras3 frequencies"),
    *("spec fade", "spec wave_with_cache", "fade_result"),
    *("engine llm_logp", "engine llm_noprompt_logp", "engine ids", "engine mel_chunk2", "engine mel_stream_final end"),
    *("engine wav_chunk3", "engine pages left over"),
}
CASES3: Final = {
    *("llm_logp", "llm_instruct_logp", "llm_stop_out", "bi_logp", "bi_fed", "bi_noprompt_logp", "bi_noprompt_fed"),
    *("pre_out_final", "pre_out_context", "est_time", "est_input", "est_block0", "est_out_streaming_True"),
    *("mel_offline", "mel_chunk2 forward()", "mel_chunk2 step()", "mel_stream_final end step()", "stream_f0"),
    *("hift_a_wav", "hift_a_wav_open", "hift_a_wav by 1", "hift_b_wav by 7", "hift_a_wav_quiet", "source_wav"),
    *("wav_chunk3", "wav_last_official", "wav_chunk3 of own mel", "special tokens", "silent tokens"),
    *("engine llm_logp", "engine llm_instruct_logp", "engine ids", "engine mel_chunk2", "engine mel_stream_final end"),
    *("engine wav_chunk3", "engine pages left over"),
}

_one_thread = pytest.fixture(autouse=True)(one_thread)


def verdicts(directory: Path, out: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status of a comparison and its rows."""
    status = main([str(directory), *options, "--json", str(out)])
    return status, {row["case"]: row for row in json.loads(out.read_text())["cases"]}


def changed(target: Path, arrays: Mapping[str, Any]) -> Path:
    """A directory of the same form in which some arrays differ or, where they are None, are missing."""
    target.mkdir()
    shutil.copy(GOLDEN / "tiny_state_dict.json", target)
    whole = read_arrays("tiny.npz") | dict(arrays)
    np.savez(target / "tiny.npz", **{key: value for key, value in whole.items() if value is not None})
    return target


def test_the_references_are_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All but the mels of the flow in its real size, which take minutes: ``make parity`` has them."""
    directory = tmp_path / "golden"
    shutil.copytree(GOLDEN, directory, ignore=shutil.ignore_patterns("flow.npz", "keys"))
    status, rows = verdicts(directory, tmp_path / "out.json", "--engine", "--seed", "1")
    printed = capsys.readouterr().out
    assert "0 failed" in printed
    assert "not there, so not compared: spec/flow.npz" in printed
    check(status, rows, CASES)


def test_the_references_of_the_third_generation_are_met(tmp_path: Path) -> None:
    options = ("--engine", "--seed", "1")
    check(*verdicts(GOLDEN.with_name("golden3"), tmp_path / "out.json", *options), CASES3)


def check(status: int, rows: Mapping[str, Mapping[str, Any]], cases: set[str]) -> None:
    assert status == 0
    assert set(rows) >= cases
    assert all(row["judged"] and row["max_abs_error"] <= row["tolerance"] for row in rows.values())


def test_what_differs_or_is_missing_fails_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = {key: read_arrays("tiny.npz")[key].copy() for key in ("mel_chunk1", "wav_chunk2")}
    for array in arrays.values():
        array.flat[-1] += 2e-3
    directory = changed(tmp_path / "golden", arrays | {"est_mu": None})
    status, rows = verdicts(directory, tmp_path / "out.json", "--engine", "--seed", "2")
    failed = [case for case, row in rows.items() if not row["ok"]]
    assert failed == [
        *("estimator", "mel_chunk1 forward()", "mel_chunk1 step()", "wav_chunk2"),
        *("engine mel_chunk1", "engine wav_chunk2"),
    ]
    assert (status, rows["estimator"]["note"]) == (1, "KeyError: 'est_mu'")
    assert f"6 failed: {', '.join(failed)}" in capsys.readouterr().out
