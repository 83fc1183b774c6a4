"""The first check on a card: what it does, the table that it leaves, and what it says without a card."""

import json
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from bench.engine import gpu_check  # noqa: E402
from bench.engine.gpu_check import NO_CARD, main, plan, table  # noqa: E402

pytestmark = pytest.mark.unit

CARD = {"device": "NVIDIA L4", "driver": "580.95.05", "memory": "22.2 GiB, 22.0 GiB free"}
MACHINE = {"cpu": "EPYC", "cores": 8, "cc_tts": "0.1.0"}


def cell(p50: float, p95: float, *, underruns: float | None = 0.0, refused: int = 0) -> dict[str, object]:
    return {
        "first_audio_ms": {"p50": p50, "p95": p95},
        "underrun_rate": {"any": underruns},
        "refused": refused,
        "audio_s_per_s": 3.2,
        "max_pages": 40,
    }


def write(out: Path, name: str, content: object) -> None:
    (out / f"engine_gpu_{name}.json").write_text(json.dumps(content))


def test_without_a_card_it_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    begin_s = time.monotonic()
    assert main(["--out", str(tmp_path / "out")]) == NO_CARD
    assert time.monotonic() - begin_s < 10.0
    said = capsys.readouterr().err
    assert said.startswith("Nothing was checked, as no card can be used.")
    assert "driver" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("golden", [None, Path("golden")])
def test_the_steps_of_a_card_take_less_than_ten_minutes(tmp_path: Path, golden: Path | None) -> None:
    steps = plan("cuda", "full", tmp_path, golden, tmp_path)
    assert [step.name for step in steps] == ["tests", "parity", "ladder"]
    assert sum(step.limit_s for step in steps) <= 60 * gpu_check.MINUTES
    parity = steps[1].argv
    assert ("tests.parity" in parity) is (golden is not None)
    assert parity[parity.index("--size") + 1] == "full"


def test_the_table_has_what_was_measured(tmp_path: Path) -> None:
    loads = {
        "1": cell(130.0, 140.0),
        "8": cell(190.0, 240.0, underruns=0.015, refused=3),
        "16": "memory holds 12 streams",
    }
    ladder = {
        "loads": {"burst": {"1": cell(118.2, 125.9)}, "always": loads},
        "most_sustained": 4,
        "memory": {"pages": 96, "device_max_gib": 17.4},
    }
    write(tmp_path, "phone", ladder)
    whole = {"num_clicks": 0, "num_joins": 24, "mel_max_difference": 0.0123}
    write(tmp_path, "quality", {"whole": whole, "finite": {"not_finite": 0}})
    steps = {"tests": {"status": 0, "took_s": 31.0}, "ladder": {"status": 1, "took_s": 99.0}}
    lines = table(CARD, MACHINE, steps, tmp_path).splitlines()
    for line in (
        "| device | NVIDIA L4 |",
        "| step tests | passed after 31.0 s |",
        "| step ladder | FAILED after 99.0 s |",
        "| streams against one piece | 0 clicks at 24 joins, mel apart by 0.012 |",
        "| first audio alone, p50 / p95 ms | 118.2 / 125.9 |",
        "| most streams under 300 ms at p95, no underrun, none refused | 4 |",
        "| memory, device_max_gib | 17.4 |",
        "| 8 | 190.0 / 240.0 | 1.5 % | 3 | 3.2 | 40 |",
        "| 16 | memory holds 12 streams | | | | |",
    ):
        assert line in lines


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    steps = {"ladder": {"status": "ran past its time", "took_s": 260.0}}
    text = table(CARD, MACHINE, steps, tmp_path)
    assert "| step ladder | ran past its time after 260.0 s |" in text
    assert "| first audio alone, p50 / p95 ms | not measured |" in text
    assert "| streams against one piece | not measured |" in text


def test_a_step_that_failed_or_was_left_out_ends_it_badly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "model_at", lambda folder, _size: folder)
    monkeypatch.setattr(gpu_check, "card", lambda _device: CARD)
    good = {"status": 0, "took_s": 1.0}
    for done, expected in (
        ({"tests": good, "parity": good, "ladder": good}, 0),
        ({"tests": good, "parity": good}, 1),
        ({"tests": good, "parity": {"status": 1, "took_s": 1.0}, "ladder": good}, 1),
    ):
        monkeypatch.setattr(gpu_check, "run", lambda *_, done=done: done)
        assert main(["--out", str(tmp_path)]) == expected
        assert (tmp_path / gpu_check.TABLE).read_text().startswith("| what | found |")
