"""Tries the kernels for cards against PyTorch at start; a kernel that fails or is wrong is not used.

Runs on: the thread that owns the device.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts import logs
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.compiling import compiler_fault
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan, Window, join_heads, join_linears
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages, PageType, attend
from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig, EstimatorConfig, FlowConfig, LmConfig

FIRST_WITH_KERNELS: Final = (8, 0)  # the least compute capability that Triton compiles for
MOST_APART: Final = 0.05  # of values of about 1 in bfloat16; unmeasured on a card
_CHUNK: Final = 4  # tokens, in the flow that is tried
_CODES: Final = 32  # speech tokens, of both


log = logs.get(__name__)


def form_on(
    device: torch.device, dtype: torch.dtype, type_: PageType, lm: LmConfig, flow: FlowConfig, *, fuses: bool
) -> PageForm:
    """How pages of a type are read on a device: by kernels where they run and compute what PyTorch does, which is tried with
    networks as wide as these. Why not is logged.
    """
    plain = PageForm(type_)
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_WITH_KERNELS:
        return plain
    if not _agrees("attention", partial(attention_difference, device, dtype, type_)):
        return plain
    fused = fuses and _agrees("fused products", partial(fused_difference, device, dtype, type_, lm, flow))
    return PageForm(type_, in_place=True, fused=fused)


def _agrees(kernels: str, apart_by: Callable[[], float]) -> bool:
    """Return whether some kernels run and are as far apart from PyTorch as rounding is."""
    try:
        apart = apart_by()
    except Exception as error:  # noqa: BLE001 - of Triton, its compiler, the driver: PyTorch can do without any of them
        detail = compiler_fault() or f"{type(error).__name__}: {error}"[:200]
        log.warning("kernels_not_used", kernels=kernels, detail=detail)
        return False
    if not apart <= MOST_APART:
        log.warning("kernels_not_used", kernels=kernels, detail=f"they are apart from PyTorch by {apart:.2g}")
    return apart <= MOST_APART


@torch.inference_mode()
def fused_difference(
    device: torch.device, dtype: torch.dtype, type_: PageType, lm: LmConfig, flow: FlowConfig
) -> float:
    """Return the largest difference between networks of few layers, of these widths, with fused products and without: of
    log-probabilities and of mel, in two calls each, of which the second sees what the first has kept.
    """
    with torch.random.fork_rng([]):  # of the CPU, where weights are drawn
        torch.manual_seed(0)
        one_layer = SpeechLm(replace(lm, num_layers=1, text_vocab_size=1, num_speech_codes=_CODES))
        few_layers = Flow(_shallow(flow))
        cond, noise = torch.randn((2, 2 * _CHUNK, flow.estimator.num_mels))[:, None]
    for network in (one_layer, few_layers):
        network.to(device, dtype).eval()
        join_linears(network)
    few_layers.keep_constants(2)
    fused, plain = (
        [
            *_two_steps(one_layer, PageForm(type_, in_place=True, fused=is_fused)),
            *_two_calls(few_layers, PageForm(type_, in_place=True, fused=is_fused), cond.to(device), noise.to(device)),
        ]
        for is_fused in (True, False)
    )
    return max(float((one - other).abs().max()) for one, other in zip(fused, plain, strict=True))


def _shallow(flow: FlowConfig) -> FlowConfig:
    encoder, estimator = flow.encoder, replace(flow.estimator, num_blocks=1)
    if isinstance(encoder, EncoderConfig):
        encoder = replace(encoder, num_layers=1, num_up_layers=1)
    if isinstance(estimator, EstimatorConfig):
        estimator = replace(estimator, num_mid_blocks=1)
    return replace(
        flow,
        vocab_size=_CODES,
        chunk_tokens=_CHUNK,
        num_steps=1,
        context_chunks=0,
        encoder=encoder,
        estimator=estimator,
    )


def _two_steps(lm: SpeechLm, form: PageForm) -> list[Tensor]:
    lm.backbone.in_place, lm.backbone.fused = form.in_place, form.fused
    cache = lm.new_cache(2, 8)
    ids = torch.tensor([[3, 4], [5, 6]], device=lm.device)
    return [lm.decode(each, torch.full_like(each, start), cache)[0] for start, each in enumerate(ids)]


def _two_calls(flow: Flow, form: PageForm, cond: Tensor, noise: Tensor) -> list[Tensor]:
    flow.page_form = form
    caches = flow.new_pages(2, 3)
    device, speaker = noise.device, noise[:, 0].to(flow.dtype)
    window = torch.arange(_CHUNK + flow.config.encoder.lookahead, device=device)[None]
    mels = []
    for start in (0, _CHUNK):
        counts = torch.tensor([[start], [window.shape[1]], [_CHUNK], [_CHUNK], [0]], device=device)
        pages, slots = torch.tensor([[1, 2]], device=device), torch.tensor([1], device=device)
        mels.append(
            flow.run_pages(*caches, window, counts, pages=pages, slots=slots, speaker=speaker, cond=cond, noise=noise)
        )
    return mels


@torch.inference_mode()
def attention_difference(device: torch.device, dtype: torch.dtype, type_: PageType) -> float:
    """Return the largest difference between the two ways to attend, for some numbers: as the flow does, with and without
    scores by distance and a window, and as a step and a prefill of the language model do. As in service there are so many
    keys that they are split, and so many queries that a block of them is full.
    """
    generator = torch.Generator(device="cpu").manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    chunk, num_pages = CHUNK_TOKENS * FRAMES_PER_TOKEN, 12
    projected, queries = numbers(2, chunk, 4, 2, 64), numbers(2, 14, 20, 64)
    table = torch.tensor([[1], [2]], device=device).repeat(1, num_pages)  # each row's page again and again
    late = torch.tensor([1, 0], device=device)
    before = chunk * (num_pages - 1)
    spans = [
        PositionSpan.of(
            torch.full_like(late, chunk),
            chunk,
            chunk=chunk,
            starts=starts,
            pages=table,
            slots=table[:, 0],
            window=window,
        )
        for starts, window in ((before * late, None), ((before + chunk) * late, Window(0, late, num_pages + 1)))
    ]
    by_distance = numbers(2, 2, chunk, num_pages * chunk - spans[0].lowest)
    mixed = []
    for in_place in (True, False):
        pages = Pages.new((3, chunk, 2, 2, 64), projected, PageForm(type_, in_place))
        first, new = projected[:, :, 0].transpose(1, 2), projected[:, :, 1:3]
        mixed += [attend(first, new, pages, span, scores) for span in spans for scores in (None, by_distance)]
    apart = [float((one.float() - other.float()).abs().max()) for one, other in zip(mixed[:4], mixed[4:], strict=True)]
    starts = (chunk * table)[:, 0]  # the runner's numbers are columns of a table
    slots = numbers(3, 2, 200, 2, 64)
    return max(*apart, *(_slots_difference(each, slots, table[:, :1], starts) for each in (queries, queries[:, :, :1])))


def _slots_difference(queries: Tensor, slots: Tensor, table: Tensor, starts: Tensor) -> float:
    """The same for queries [B, heads, T, D] and slots [slots, 2, positions, kv_heads, D], which are one page each."""
    from cc_tts.engines.cosyvoice.model.networks import page_kernels

    kept, num_keys = slots.transpose(1, 2), slots.shape[2]
    mixed = page_kernels.attend(queries, kept, table=table, starts=starts, num_keys=num_keys, chunk=1, split_keys=128)
    keys, values = slots[table[:, 0]].permute(1, 0, 3, 2, 4).repeat_interleave(queries.shape[1] // 2, dim=2)
    places = starts[:, None] + torch.arange(queries.shape[2], device=starts.device)  # [B, T]
    seen = torch.arange(num_keys, device=starts.device) <= places[:, None, :, None]
    expected = functional.scaled_dot_product_attention(queries, keys, values, seen)
    return float((mixed.float() - join_heads(expected).float()).abs().max())
