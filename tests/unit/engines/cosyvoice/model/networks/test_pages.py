"""Pages keep keys and values, in the type of the weights or in 8 bits a number, and attention looks at them."""

import math
from typing import Final

import pytest

from tests.support.captured_logs import capture_logs

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch import dtype as DType  # noqa: N812
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import trial
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages, PageType, attend
from cc_tts.engines.cosyvoice.model.networks.trial import form_on
from cc_tts.engines.cosyvoice.model.sizes import FlowConfig, LmConfig
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from lab.cosyvoice.networks import flow_of
from lab.cosyvoice.tiny_model import tiny_states
from tests.support.flow_cases import new_flow, new_runner, prompt_of, run, tokens_of

pytestmark = pytest.mark.unit

PAGE_LEN: Final = 4
EIGHT_BITS: Final[tuple[PageType, ...]] = ("int8", "float8")
LEAST_SNR_DB: Final[dict[PageType, float]] = {"int8": 60.0, "float8": 45.0}
"""Of the mel of the small model, against pages in float32."""


def one_row(num_new: int, start: int = 0) -> PositionSpan:
    """New positions of one sequence, whose pages are 1 and 2."""
    return PositionSpan.of(
        torch.tensor([num_new]),
        num_new,
        chunk=PAGE_LEN,
        starts=torch.tensor([start]),
        pages=torch.tensor([[1, 2]]),
        slots=torch.tensor([1]),
    )


def written(new: Tensor, type_: PageType) -> Tensor:
    """What is read again of new keys and values [1, T, 2, heads, D] that were written to empty pages."""
    pages = Pages.new((3, PAGE_LEN, *new.shape[2:]), new, PageForm(type_))
    span = one_row(new.shape[1])
    pages.write(new, span.written)
    assert span.pages is not None
    return pages.read(span.pages, new.dtype)[:, : new.shape[1]]


def test_padding_is_kept_where_nobody_looks() -> None:
    pages = Pages.new((3, 2, 2, 1, 1), torch.zeros(1), PageForm())
    table, slots = torch.tensor([[1], [2]]), torch.tensor([1, 2])
    span = PositionSpan.of(torch.tensor([1, 2]), 2, chunk=2, starts=torch.tensor([1, 0]), pages=table, slots=slots)
    pages.write(torch.tensor([1.0, 2.0]).view(2, 1, 1).expand(2, 2, 2, 1, 1), span.written)
    assert pages.read(table, torch.float32)[..., 0, 0].tolist() == [[[0, 0], [1, 2]], [[1, 2], [1, 2]]]


@pytest.mark.parametrize("magnitude", [1e-2, 1.0, 1e3])
def test_int8_is_off_by_half_a_step_of_its_head(magnitude: float) -> None:
    torch.manual_seed(0)
    new = magnitude * torch.randn(1, 7, 2, 3, 8)
    new[..., 1, :] *= 20.0
    step = new.abs().amax(dim=-1, keepdim=True) / 127
    assert bool(((written(new, "int8") - new).abs() <= 0.51 * step + 2.0**-15).all())


def test_float8_has_four_significant_bits_and_ends_at_its_largest_number() -> None:
    torch.manual_seed(0)
    new = 3.0 * torch.randn(1, 7, 2, 3, 8)
    apart = (written(new, "float8") - new).abs()
    assert bool((apart <= new.abs() / 16 + 2.0**-10).all())
    assert written(torch.full((1, 1, 2, 1, 1), -1e4), "float8").flatten().tolist() == [-448.0] * 2


@pytest.mark.parametrize("type_", EIGHT_BITS)
def test_zeros_stay_zeros(type_: PageType) -> None:
    assert not written(torch.zeros(1, 3, 2, 2, 4), type_).any()


@pytest.mark.parametrize("type_", ["auto", *EIGHT_BITS])
def test_attention_over_pages_is_attention_over_what_they_keep(type_: PageType) -> None:
    torch.manual_seed(0)
    new, queries = torch.randn(1, 6, 2, 2, 8), torch.randn(1, 2, 6, 8)
    kept = written(new, type_)
    pages = Pages.new((3, PAGE_LEN, 2, 2, 8), new, PageForm(type_))
    attend(queries[:, :, :4], new[:, :4], pages, one_row(4))
    second = attend(queries[:, :, 4:], new[:, 4:], pages, one_row(2, start=4))
    keys, values = kept.transpose(1, 3).unbind(dim=2)
    expected = functional.scaled_dot_product_attention(queries[:, :, 4:], keys, values)
    torch.testing.assert_close(second, expected.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("type_", EIGHT_BITS)
def test_speech_from_pages_of_8_bits_is_close(type_: PageType) -> None:
    """The new chunks see themselves in 8 bits, too, so nothing depends on where the pieces of a stream end."""
    prompt, tokens = prompt_of(30), tokens_of(70, 3)
    mels = []
    for form, ends in ((PageForm(), (70,)), (PageForm(type_), (70,)), (PageForm(type_), (24, 49, 70))):
        flow = new_flow()
        flow.page_form = form
        runner = new_runner(flow)
        runner.open(0, runner.add_voice(prompt))
        pieces = [tokens[start:end] for start, end in zip((0, *ends), ends, strict=False)]
        mels.append(torch.cat(run(runner, 0, pieces), dim=1))
    exact, whole, in_pieces = mels
    snr_db = 10 * torch.log10(exact.square().mean() / (whole - exact).square().mean())
    assert snr_db > LEAST_SNR_DB[type_]
    torch.testing.assert_close(in_pieces, whole, rtol=0.0, atol=1e-2)


@pytest.mark.parametrize("type_", EIGHT_BITS)
def test_wiping_leaves_nothing_of_8_bits_either(type_: PageType) -> None:
    flow = flow_of(tiny_states()["flow"])
    flow.page_form = PageForm(type_)
    arena = FlowArena(flow, num_slots=2, num_pages=3)
    tensors = [tensor for pages in (*arena.encoder.paged, arena.estimator.attention) for tensor in pages.tensors]
    for tensor in tensors:
        tensor.view(torch.uint8).fill_(0x7F)  # no number, in e4m3
    arena.wipe([1], 1)
    for tensor in tensors[:-1] if type_ == "float8" else tensors[:-2]:
        assert tensor.view(torch.uint8).flatten(2).any(2).tolist() == [[True, False, True]] * len(tensor)
    attention = arena.estimator.attention.kept.view(torch.uint8)
    assert attention[0, 0].flatten(1).any(1).tolist() == [True, True, False, False, True, True]


def form_on_a(device: str, dtype: DType = torch.bfloat16) -> PageForm:
    return form_on(torch.device(device), dtype, "int8", LmConfig(), FlowConfig(), fuses=True)


def test_without_a_card_kernels_are_not_tried() -> None:
    assert form_on_a("cpu", torch.float32) == PageForm("int8")


def test_a_card_whose_kernels_fail_or_are_wrong_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    monkeypatch.setattr(trial, "compiler_fault", lambda: "there is no Python.h")

    def no_compiler(*_given: object) -> float:
        raise RuntimeError("Failed to find C compiler")

    trials = ((no_compiler, False), (lambda *_: 1.0, False), (lambda *_: math.nan, False), (lambda *_: 0.001, True))
    for attention_difference, is_right in trials:
        monkeypatch.setattr(trial, "attention_difference", attention_difference)
        for fused_difference, is_right_too in trials:
            monkeypatch.setattr(trial, "fused_difference", fused_difference)
            with capture_logs() as logs:
                assert form_on_a("cuda") == PageForm("int8", is_right, is_right and is_right_too)
            assert [line["event"] for line in logs] == ["kernels_not_used"] * (not (is_right and is_right_too))
            if no_compiler in (attention_difference, fused_difference) and (
                attention_difference is no_compiler or is_right
            ):
                assert logs[0]["detail"] == "there is no Python.h"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (7, 0))
    assert form_on_a("cuda", torch.float16) == PageForm("int8")
