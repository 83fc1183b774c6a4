"""Products with what is before and behind them compute what PyTorch does step by step. They run on the CPU here."""

from typing import Any, Final

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch import dtype as DType  # noqa: N812
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import fused, page_kernels
from cc_tts.engines.cosyvoice.model.networks.flow.estimator import ConvBlock, FlowResBlock
from cc_tts.engines.cosyvoice.model.networks.fused import Contexts, InputNorm, Turns
from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, JoinedLinears, PastInputs, PositionSpan
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm, rotate, rotation
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages, PageType
from cc_tts.engines.cosyvoice.model.networks.trial import fused_difference
from cc_tts.engines.cosyvoice.model.sizes import (
    DitConfig,
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    LmConfig,
    LookaheadConfig,
)
from tests.support.torch_threads import one_thread_without_gradients

pytestmark = pytest.mark.unit

if not page_kernels.IS_INTERPRETED:
    pytest.skip("a card is here: tests/gpu tries the kernels on it", allow_module_level=True)

TOLERANCES: Final = {torch.float32: 3e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}
ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "": lambda x: x,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gated": lambda x: functional.silu(x.chunk(2, dim=-1)[0]) * x.chunk(2, dim=-1)[1],
}
SIZES: Final = ((1, 1, 65, 33), (2, 9, 24, 17), (3, 13, 130, 70))  # rows, positions, inputs, outputs

_one_thread = pytest.fixture(autouse=True)(one_thread_without_gradients)


def close(one: Tensor, other: Tensor) -> None:
    assert one.dtype == other.dtype
    torch.testing.assert_close(
        one, other, rtol=1e-2 if other.dtype != torch.float32 else 1e-5, atol=TOLERANCES[other.dtype]
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_product_has_its_norm_and_what_is_behind_it(dtype: DType, activation: str) -> None:
    torch.manual_seed(0)
    for number, (num_rows, num_new, num_in, num_out) in enumerate(SIZES):
        x = (torch.randn(num_rows, num_new, num_in) + 1).to(dtype)
        linear = nn.Linear(
            num_in, num_out * (2 if activation == "gated" else 1), bias=number != 1 and activation != "gated"
        )
        norms = (None, nn.LayerNorm(num_in, eps=1e-12), nn.RMSNorm(num_in, 1e-6))
        gate, residual = torch.randn(num_out).to(dtype), torch.randn(num_rows, num_new, num_out).to(dtype)
        norm = norms[number]
        for part in (linear, norm):
            if part is not None:
                part.to(dtype)
                nn.init.normal_(part.weight, std=0.3)
        expected = ACTIVATIONS[activation](linear(x if norm is None else norm(x)))
        given = {"norm": None if norm is None else InputNorm.of(norm), "activation": activation}
        close(fused.product(x, linear, **given), expected)  # type: ignore[arg-type]
        both = fused.product(x, linear, **given, gate=gate, residual=residual)  # type: ignore[arg-type]
        close(both, expected * gate + residual)


@pytest.mark.parametrize("type_", ["auto", "int8", "float8"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_keys_and_values_are_turned_and_kept_where_they_belong(dtype: DType, type_: PageType) -> None:
    torch.manual_seed(0)
    num_heads, head_dim, width = 3, 12, 37
    maps = [nn.Linear(width, num_heads * head_dim).to(dtype) for _ in range(3)]
    project, norm = JoinedLinears(*maps), nn.RMSNorm(width, 1e-6).to(dtype)
    project.join()
    x = torch.randn(2, 5, width).to(dtype)
    cos, sin = rotation(torch.arange(10).view(2, 5), torch.rand(head_dim // 2))
    written = torch.tensor([[4, 5, 6, 7, 0], [11, 12, 13, 14, 15]])
    heads = project(norm(x)).view(2, 5, 3 * num_heads, head_dim)
    turned = rotate(heads[:, :, : 2 * num_heads], cos, sin)
    keys_and_values = torch.cat((turned[:, :, num_heads:], heads[:, :, 2 * num_heads :]), dim=2)
    ours, theirs = (Pages.new((4, 4, 2, num_heads, head_dim), x, PageForm(type_)) for _ in range(2))
    theirs.write(keys_and_values.view(2, 5, 2, num_heads, head_dim), written)

    turns = Turns(cos[..., : head_dim // 2], sin[..., head_dim // 2 :], num_heads, is_interleaved=False)
    queries = fused.projected(x, InputNorm.of(norm), project, ours, written, turns)
    close(queries, turned[:, :, :num_heads].flatten(2))
    num_steps = 1.01 if type_ == "int8" else 0.0  # a sum that is rounded otherwise may be the next number
    relative = 0.13 if type_ == "float8" else 1e-2  # and a step of e4m3 is an eighth
    torch.testing.assert_close(
        ours.kept[1:].float(), theirs.kept[1:].float(), rtol=relative, atol=num_steps + TOLERANCES[dtype]
    )
    if ours.scales is not None and theirs.scales is not None:
        torch.testing.assert_close(ours.scales[1:], theirs.scales[1:], rtol=1e-2, atol=1e-4)


def test_only_the_first_heads_are_turned_and_channels_may_be_beside_each_other() -> None:
    torch.manual_seed(0)
    project = JoinedLinears(*(nn.Linear(20, 2 * 8) for _ in range(3)))
    project.join()
    norm, x = nn.LayerNorm(20), torch.randn(1, 3, 20)
    angles = torch.rand(1, 3, 4)
    pages = Pages.new((2, 4, 2, 2, 8), x, PageForm())
    written = torch.tensor([[4, 5, 6]])
    queries = fused.projected(
        *(x, InputNorm.of(norm), project, pages, written),
        turns=Turns(angles.cos(), angles.sin(), 1, is_interleaved=True),
    )
    heads = project(norm(x)).view(1, 3, 6, 8)
    even, odd = heads[:, :, :4:2, ::2], heads[:, :, :4:2, 1::2]  # the first head of queries, and of keys
    cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
    heads[:, :, :4:2] = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2)
    close(queries, heads[:, :, :2].flatten(2))
    close(pages.kept[1, :3].flatten(1), heads[0, :, 2:].flatten(1))


@pytest.mark.parametrize("num_kept", [(19, 3, 0), (1, 0, 0)])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_residual_block_sees_its_past_and_replaces_it(dtype: DType, num_kept: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    config = EstimatorConfig(channels=40, num_time=8)
    block = FlowResBlock(33, config).to(dtype)
    convs = [module for module in block.modules() if isinstance(module, CausalConv)]
    for index, conv in enumerate(convs):
        conv.index = index
        conv.keep_flat()
    x, shift = torch.randn(3, 19, 33).to(dtype), block.shift(torch.randn(1, 8).to(dtype))
    span = PositionSpan.of(
        torch.tensor([19, 3, 5]), 19, chunk=None, num_kept=torch.tensor(num_kept), slots=torch.tensor([2, 4, 1])
    )
    ours = torch.randn(5, 2, 5 + 73).to(dtype)
    theirs = ours[..., 5:].clone()  # another network's are before them
    past = PastInputs(theirs, span, (33, 40))
    hidden = x
    for conv_block in (block.block1, block.block2):
        first_of, norm = conv_block.block["0"], conv_block.block["2"]
        assert isinstance(first_of, CausalConv)
        hidden = functional.mish(norm(first_of.over(past.before(hidden, first_of.index))))
        hidden = hidden + (shift if conv_block is block.block1 else 0)
    past.keep()
    expected = hidden + functional.linear(x, block.res_conv.weight[..., 0], block.res_conv.bias)

    assert span.slots is not None
    contexts = Contexts(ours, span.slots, span.num_kept, (5, 5 + 33))
    first = contexts.convolve(convs[0], x, norm=block.block1.block["2"], shift=shift.flatten())
    second = contexts.convolve(convs[1], first, norm=block.block2.block["2"], shortcut=(block.res_conv, x))
    close(second, expected)
    close(ours[..., 5:], theirs)


def test_a_convolution_may_stand_alone() -> None:
    torch.manual_seed(0)
    conv = ConvBlock(6, 6).block["0"]
    assert isinstance(conv, CausalConv)
    conv.keep_flat()
    x, contexts = torch.randn(1, 20, 6), torch.zeros(2, 2, 6)
    given = Contexts(contexts, torch.tensor([1]), torch.tensor([20]), (0,))
    close(given.convolve(conv, x), conv(x))
    close(contexts[1], x[0, -2:])


SECOND: Final = FlowConfig(
    num_embedding=6,
    encoder=EncoderConfig(width=32, num_heads=2, num_hidden=24),
    estimator=EstimatorConfig(num_mels=4, channels=24, num_time=12, num_hidden=40, num_attention=32, head_dim=16),
)
THIRD: Final = FlowConfig(
    num_embedding=6,
    encoder=LookaheadConfig(width=4, lookahead_hidden=8),
    estimator=DitConfig(num_mels=4, width=32, head_dim=16, num_hidden=40, num_sinusoids=8, kernel=5, num_groups=4),
)
LM: Final = LmConfig(hidden_size=48, intermediate_size=56, query_size=64, key_size=32, head_dim=16)


@pytest.mark.parametrize("flow", [SECOND, THIRD], ids=["unet", "dit"])
def test_what_is_tried_on_a_card_is_apart_by_little(flow: FlowConfig) -> None:
    cpu = torch.device("cpu")
    assert fused_difference(cpu, torch.float32, "auto", LM, flow) < 1e-5
    assert 0 < fused_difference(cpu, torch.bfloat16, "auto", LM, flow) < 0.05


def test_a_product_that_is_wrong_is_found_by_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed_onto = fused.mixed_onto
    monkeypatch.setattr(fused, "mixed_onto", lambda x, *others: mixed_onto(x, *others) + 0.2 * x)
    assert fused_difference(torch.device("cpu"), torch.float32, "auto", LM, THIRD) > 0.05


def test_many_rows_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "MOST_ROWS", 3)
    calls: list[int] = []
    product = fused.product

    def counted(x: Tensor, linear: nn.Module, **more: Any) -> Tensor:
        calls.append(len(x))
        return product(x, linear, **more)

    monkeypatch.setattr(fused, "product", counted)
    lm = SpeechLm(LmConfig(hidden_size=8, intermediate_size=8, query_size=8, key_size=4, head_dim=4, num_layers=1,
                           text_vocab_size=9, num_speech_codes=9))  # fmt: skip
    lm.backbone.in_place = lm.backbone.fused = True
    for part in lm.modules():
        if isinstance(part, JoinedLinears):
            part.join()
    for num_rows in (3, 4):
        lm.decode(
            torch.zeros(num_rows, dtype=torch.int64), torch.zeros(num_rows, dtype=torch.int64), lm.new_cache(4, 8)
        )
    assert calls == [3, 3]
