from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from cc_tts.engines.cosyvoice.model.networks.int8 import Int8Linear, can_quantise, quantise
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SOS, speech_inputs, text_inputs
from lab.cosyvoice.networks import lm_of
from lab.cosyvoice.tiny_model import tiny_states
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = [
    pytest.mark.unit,
    pytest.mark.skipif(not can_quantise(), reason="PyTorch has no products of 8-bit numbers for this processor"),
]

_one_thread_without_gradients = pytest.fixture(autouse=True)(one_thread_without_gradients)


def snr_db(exact: Tensor, ours: Tensor) -> float:
    return float(20 * torch.log10(exact.norm() / (exact - ours).norm()))


@pytest.mark.parametrize("bias", [False, True])
def test_maps_side_by_side_are_nearly_those_in_float32(bias: bool) -> None:
    torch.manual_seed(1)
    maps = [nn.Linear(64, size, bias=bias) for size in (96, 32)]
    x = torch.randn(3, 7, 64)
    exact = torch.cat([each(x) for each in maps], dim=-1)
    ours = Int8Linear(*maps)(x)
    assert ours.shape == exact.shape
    assert snr_db(exact, ours) > 35


def test_what_a_row_gives_depends_on_no_other() -> None:
    torch.manual_seed(2)
    quantised = Int8Linear(nn.Linear(64, 96))
    row = torch.randn(1, 64)
    alone = quantised(row)
    for company in (1000.0 * torch.randn(5, 64), torch.zeros(5, 64), torch.full((5, 64), torch.nan)):
        together = quantised(torch.cat((company, row)))
        assert torch.equal(together[-1:], alone)
    assert quantised(torch.full((1, 64), torch.nan)).isnan().all()
    assert quantised(torch.full((1, 64), torch.inf)).isfinite().logical_not().all()


def test_a_language_model_in_8_bits_says_nearly_the_same() -> None:
    exact, ours = lm_of(tiny_states()["llm"]), lm_of(tiny_states()["llm"])
    quantise(ours.backbone)
    assert not any(type(module) is nn.Linear for module in ours.backbone.modules())
    assert len([module for module in ours.modules() if isinstance(module, Int8Linear)]) == 4 * ours.config.num_layers
    tables, rows, num_new = exact.pack([[SOS, *text_inputs(range(40, 60)), *speech_inputs(range(100, 140))]])
    log_probs = [lm.prefill(lm.embed(tables, rows), num_new, lm.new_cache(1, 80))[0] for lm in (exact, ours)]
    assert snr_db(*log_probs) > 30
    assert log_probs[0].argmax() == log_probs[1].argmax()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx2 avx_vnni sse", True), ("fpu avx512_vnni", True), ("fpu avx2 avx512f", False), (None, False)],
)
def test_a_processor_without_vnni_stays_with_float32(tmp_path: Path, flags: str | None, expected: bool) -> None:
    file = tmp_path / "cpuinfo"
    if flags is not None:
        file.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\n")
    assert can_quantise(file) == expected
