import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from cc_tts.engines.cosyvoice2.model.sizes import TIED_HEAD  # noqa: E402
from tests.parity.cases import Recorded, groups  # noqa: E402
from tests.parity.command import made_model, main, parse, read_shapes, run_groups, write_model  # noqa: E402
from tests.parity.result import EXACT, Comparison, Comparisons, distance, verdict_on  # noqa: E402
from tests.parity.spec import _strangeness  # noqa: E402
from tests.support.golden import GOLDEN, read_arrays  # noqa: E402
from tests.support.torch_threads import one_thread  # noqa: E402

pytestmark = pytest.mark.unit

LIGHT: Final = ("spec/fade.npz", "spec/ras.json", "spec/schedule.json", "spec/bistream.json")
INF: Final = float("inf")

_one_thread = pytest.fixture(autouse=True)(one_thread)


class Ticks:
    """A clock that goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now_ns(self) -> int:
        self._now_ns += 1_000_000_000
        return self._now_ns

    def wall_s(self) -> float:
        return 0.0


def made(target: Path, files: tuple[str, ...] = (), changed: Mapping[str, Any] | None = None) -> Path:
    """A directory of the same form with some arrays changed; None takes one away."""
    (target / "spec").mkdir(parents=True)
    for name in ("tiny_state_dict.json", *files):
        shutil.copy(GOLDEN / name, target / name)
    arrays: dict[str, Any] = read_arrays("tiny.npz") | dict(changed or {})
    np.savez(target / "tiny.npz", **{key: value for key, value in arrays.items() if value is not None})
    return target


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    result = json.loads(path.read_text())
    return {row["case"]: row for row in result["cases"]}


def test_the_references_are_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = made(tmp_path / "golden", ("features.npz", *LIGHT))
    assert main([str(directory), "--json", str(tmp_path / "out.json")], clock=Ticks()) == 0
    printed = capsys.readouterr().out
    assert "0 failed" in printed
    assert re.fullmatch(r"\d+\.0 s, at most [\d,]+ MiB", printed.splitlines()[-1])
    assert "not there, so not compared: text_splitting.json, spec/llm_tiny.npz, spec/flow.npz" in printed
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["ok"]
    assert result["torch"] == torch.__version__
    assert result["peak_memory_bytes"] > 1 << 20
    rows = rows_of(tmp_path / "out.json")
    assert {"llm_logp", "bi_out", "noise_crc", "mel_chunk2 forward()", "mel_chunk2 step()", "wav_chunk3"} <= set(rows)
    assert {"hift_b_wav", "source_wav", "kaldi_fbank_80", "fade_result", "ras3 frequencies", "spec ras"} <= set(rows)
    assert rows["llm_logp"]["tolerance"] == 1e-4
    assert rows["llm_logp"]["seconds"] == 1.0
    assert result["seconds"] > len(rows)
    assert not result["engine"]
    assert not any(case.startswith("engine") for case in rows)
    assert all(row["max_abs_error"] <= row["tolerance"] for row in rows.values())


def test_other_weights_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = made(tmp_path / "golden", changed={"salt": np.array("other")})
    assert main([str(directory), "--json", str(tmp_path / "out.json")]) == 1
    rows = rows_of(tmp_path / "out.json")
    right = {case for case, row in rows.items() if row["ok"]}
    assert {"bi_out", "bi_n_logp", "noise_head", "noise_crc"} == right  # what no weight has a part in
    assert rows["mel_offline"]["max_abs_error"] > 0.1
    assert "failed: llm_logp" in capsys.readouterr().out


def recorded_anew(target: Path, salt: str) -> Path:
    """Another salt, prompt and text, other hops and steps, and what comes out of them as the record."""
    rng = np.random.default_rng(3)
    inputs: dict[str, Any] = {
        "salt": np.array(salt),
        "llm_text": rng.integers(0, 512, (1, 9)),
        "llm_prompt_text": rng.integers(0, 512, (1, 4)),
        "llm_prompt_speech": rng.integers(0, 243, (1, 23)),
        "llm_logp_steps": np.array([0, 5, 17]),
        "flow_prompt_token": rng.integers(0, 243, (1, 21)),
        "flow_prompt_feat": rng.standard_normal((1, 42, 80), dtype=np.float32),
        "flow_token": rng.integers(0, 243, (1, 66)),
        "chunk_hops": np.array([4, 25]),
        "hift_b_mel": rng.standard_normal((80, 11), dtype=np.float32),
        "source_f0": 300 * rng.random((1, 64), dtype=np.float32),
    }
    directory = made(target, changed=inputs)
    options = parse([str(directory)])
    arrays = read_arrays("tiny.npz", directory)
    device = torch.device("cpu")
    with torch.inference_mode():
        model = made_model(options, arrays, device, torch.float32)
        found = [item for _, group in groups(model, Recorded(arrays, device, 1e-4)) for item in group]
    outputs: dict[str, Any] = dict.fromkeys(key for key in arrays if "_chunk" in key)  # there are fewer of them now
    for item in found:
        if not item.case.startswith(("noise", "mel_stream_final end")):
            outputs[item.case.split()[0]] = np.asarray(item.ours)
    shutil.rmtree(directory)
    return made(target, changed=inputs | outputs)


def test_another_directory_of_the_same_form_is_met(tmp_path: Path) -> None:
    """Nothing of the recorded cases is wired in; and the salt is what makes the weights."""
    directory = recorded_anew(tmp_path / "golden", "pepper")
    assert main([str(directory), "--json", str(tmp_path / "out.json")]) == 0
    rows = rows_of(tmp_path / "out.json")
    assert {"mel_chunk1 step()", "mel_stream_final end step()", "wav_chunk2"} <= set(rows)
    assert not {"mel_chunk2 step()", "wav_chunk3"} & set(rows)
    again = made(tmp_path / "unsalted", changed=read_arrays("tiny.npz", directory) | {"salt": np.array("")})
    assert main([str(again)]) == 1


def test_an_array_that_is_missing_fails_its_group_only(tmp_path: Path) -> None:
    directory = made(tmp_path / "golden", changed={"est_mu": None})
    assert main([str(directory), "--json", str(tmp_path / "out.json")]) == 1
    rows = rows_of(tmp_path / "out.json")
    assert [case for case, row in rows.items() if not row["ok"]] == ["estimator"]
    assert rows["estimator"]["note"] == "KeyError: 'est_mu'"


def test_half_precision_is_not_held_to_tolerances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = made(tmp_path / "golden")
    out = tmp_path / "out.json"
    assert main([str(directory), "--dtype", "bfloat16", "--json", str(out)]) == 0
    rows = rows_of(out)
    assert rows["llm_logp"]["max_abs_error"] > 1e-4
    assert 20.0 < rows["mel_offline"]["snr_db"] < 60.0
    assert not rows["mel_offline"]["judged"]
    assert rows["bi_out"]["judged"]
    assert rows["hift_a_f0"]["max_abs_error"] < 1e-5  # the vocoder is float32 in any case
    assert rows["hift_a_wav"]["max_abs_error"] < 1e-5
    assert "were not held up" in capsys.readouterr().out


def test_what_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([str(tmp_path)])
    assert exit_.value.code == 2
    with pytest.raises(SystemExit, match="2"):
        main([str(GOLDEN), "--device", "paper"])
    directory = made(tmp_path / "golden")
    assert main([str(directory), "--head-dim", "15"]) == 2
    assert "attention_head_dim is 15; queries of 32 are not whole heads" in capsys.readouterr().err


def test_weights_are_written_as_published(tmp_path: Path) -> None:
    write_model(tmp_path, read_shapes(GOLDEN / "tiny_state_dict.json"), salt="", head_dim=16)
    llm, hift = (torch.load(tmp_path / f"{part}.pt", weights_only=True) for part in ("llm", "hift"))
    assert TIED_HEAD in llm
    assert all(key.startswith("generator.") for key in hift)
    assert json.loads((tmp_path / "CosyVoice-BlankEN" / "config.json").read_text())["num_key_value_heads"] == 2


@pytest.mark.parametrize(
    ("ours", "recorded", "expected"),
    [
        ([1.0, -INF], [1.0, -INF], (0.0, INF)),
        ([1.0, -INF], [1.0, 2.0], (INF, -INF)),
        ([1.0, 2.0], [1.0, -INF], (INF, -INF)),
        ([1.0], [1.0, 2.0], (INF, -INF)),
        ([10.5, -INF], [10.0, -INF], (0.5, pytest.approx(26.02, abs=0.01))),
        ([1.0], [0.0], (1.0, -INF)),
        ([], [], (0.0, INF)),
    ],
)
def test_distance(ours: list[float], recorded: list[float], expected: tuple[float, float]) -> None:
    assert distance(np.array(ours), np.array(recorded)) == expected


def test_what_is_no_number_never_passes() -> None:
    for is_float32 in (True, False):
        comparison = Comparison("x", np.array([np.nan, 1.0]), np.ones(2), 1.0)
        assert not verdict_on(comparison, 0.0, is_float32=is_float32).is_ok


def test_a_decision_that_differs_fails_in_any_type() -> None:
    assert not verdict_on(Comparison("x", [1], [2], EXACT), 0.0, is_float32=False).is_ok


def test_a_group_that_breaks_off_keeps_what_it_had() -> None:
    def broken() -> Comparisons:
        yield Comparison("first", [1], [1], EXACT)
        raise RuntimeError("no more")

    groups = iter([("broken", broken()), ("whole", iter([Comparison("last", [1], [1], EXACT)]))])
    verdicts = list(run_groups(groups, is_float32=True, device=torch.device("cpu"), clock=Ticks()))
    assert [(verdict.case, verdict.is_ok) for verdict in verdicts] == [
        ("first", True),
        ("broken", False),
        ("last", True),
    ]
    assert verdicts[1].note == "RuntimeError: no more"


def test_other_frequencies_are_strange() -> None:
    rng = np.random.default_rng(1)
    probs = np.full(20, 0.05)
    other = probs * np.linspace(0.85, 1.15, 20)
    counts = [rng.multinomial(20_000, probs) for _ in range(2)]
    assert _strangeness(*counts) < 1.0
    assert _strangeness(counts[0], rng.multinomial(20_000, other / other.sum())) > 1.0
