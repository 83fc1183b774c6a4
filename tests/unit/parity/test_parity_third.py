"""The networks of the third generation and the engine's runners give the numbers that the reference recorded."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("torch")

from tests.parity.command import main
from tests.support.golden import GOLDEN
from tests.support.torch_threads import one_thread

pytestmark = pytest.mark.unit

GOLDEN3: Final = GOLDEN.with_name("golden3")
CASES: Final = {
    *("llm_logp", "llm_instruct_logp", "llm_stop_out", "bi_logp", "bi_fed", "bi_noprompt_logp", "bi_noprompt_fed"),
    *("pre_out_final", "pre_out_context", "est_time", "est_input", "est_block0", "est_out_streaming_True"),
    *("mel_offline", "mel_chunk2 forward()", "mel_chunk2 step()", "mel_stream_final end step()", "stream_f0"),
    *("hift_a_wav", "hift_a_wav_open", "hift_a_wav by 1", "hift_b_wav by 7", "hift_a_wav_quiet", "source_wav"),
    *("wav_chunk3", "wav_last_official", "wav_chunk3 of own mel", "special tokens", "silent tokens"),
    *("engine llm_logp", "engine llm_instruct_logp", "engine ids", "engine mel_chunk2", "engine mel_stream_final end"),
    *("engine wav_chunk3", "engine pages left over"),
}

_one_thread = pytest.fixture(autouse=True)(one_thread)


def test_the_references_are_met(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert main([str(GOLDEN3), "--engine", "--seed", "1", "--json", str(out)]) == 0
    rows: dict[str, dict[str, Any]] = {row["case"]: row for row in json.loads(out.read_text())["cases"]}
    assert set(rows) >= CASES
    assert all(row["judged"] and row["max_abs_error"] <= row["tolerance"] for row in rows.values())
