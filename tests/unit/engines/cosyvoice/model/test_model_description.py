from pathlib import Path

import pytest

pytest.importorskip("torch")

from cc_tts.engines.cosyvoice.model.checkpoint import ModelFileDamaged
from cc_tts.engines.cosyvoice.model.loader import estimator_head_dim

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 64),
        ("sample_rate: 24000\n", 64),
        ("    estimator: !new:x\n        attention_head_dim: 16\n        n_blocks: 4\n", 16),
        ("attention_head_dim: 64  # two of them\nb:\n  attention_head_dim: 64\n", 64),
        ("# attention_head_dim: 8\n", 64),
    ],
)
def test_the_width_of_a_head_is_in_the_description(tmp_path: Path, text: str | None, expected: int) -> None:
    if text is not None:
        (tmp_path / "cosyvoice2.yaml").write_text(text)
    assert estimator_head_dim(tmp_path) == expected


@pytest.mark.parametrize(
    "content", [b"attention_head_dim: 0\n", b"attention_head_dim: 1\nattention_head_dim: 2\n", b"\xff"]
)
def test_a_damaged_description_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cosyvoice2.yaml").write_bytes(content)
    with pytest.raises(ModelFileDamaged, match=r"cosyvoice2\.yaml"):
        estimator_head_dim(tmp_path)
