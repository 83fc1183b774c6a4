"""A causal convolution with what stands behind it, for cards: norm, Mish, shift and shortcut in one launch.

The inputs before the new ones are read where they are kept, and replaced there. For few rows, as :mod:`.product_kernels`.

Runs on: the thread that owns the device.
"""

from typing import Final

import torch
import triton
from torch import Tensor
from triton import language as tl

from cc_tts.engines.cosyvoice.model.networks.page_kernels import MIN_BLOCK, NUM_WARPS, dot_type
from cc_tts.engines.cosyvoice.model.networks.product_kernels import BLOCK_ROWS

BLOCK_IN: Final = 32  # inputs that a program multiplies at a time; unmeasured


@triton.jit
def _mish(x):
    """``x tanh(log(1 + exp x))``, without a logarithm."""
    e = tl.exp(tl.minimum(x, 20.0))  # from there on it is x in float32
    e = e * (e + 2.0)
    return x * (e / (e + 2.0))


@triton.jit(do_not_specialize=["slots", "num_kept", "num_new"])
def _convolve_kernel(
    x,
    contexts,
    slots,
    num_kept,
    weight,
    bias,
    gain,
    offset,
    shift,
    shortcut,
    shortcut_weight,
    shortcut_bias,
    result,
    num_new,
    width,
    num_out,
    shortcut_width,
    slot_stride,
    input_stride,
    channel_at,
    eps,
    HAS_NORM: tl.constexpr,
    HAS_SHIFT: tl.constexpr,
    HAS_SHORTCUT: tl.constexpr,
    NUM_PAST: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK_PAST: tl.constexpr,
):
    """All outputs of some positions of one row. The first program of a row is the only one that sees what was before the new
    positions, and replaces it.
    """
    row = tl.program_id(0)
    steps = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_step = steps < num_new
    outs = tl.arange(0, BLOCK_OUT)
    is_out = outs < num_out
    context = contexts + tl.load(slots + row).to(tl.int64) * slot_stride + channel_at
    row_at = row.to(tl.int64) * num_new
    acc = tl.zeros([BLOCK_ROWS, BLOCK_OUT], tl.float32)
    for tap in tl.static_range(NUM_PAST + 1):
        place = steps + (tap - NUM_PAST)
        for first in range(0, width, BLOCK_IN):
            ins = first + tl.arange(0, BLOCK_IN)
            is_in = (ins < width)[None, :]
            here = (is_step & (place >= 0))[:, None] & is_in
            before = (is_step & (place < 0))[:, None] & is_in
            each = tl.load(x + ((row_at + place)[:, None] * width + ins[None, :]), mask=here, other=0.0)
            past_at = (NUM_PAST + place)[:, None] * input_stride + ins[None, :]
            each = tl.where(before, tl.load(context + past_at, mask=before, other=0.0), each)
            weight_at = outs[None, :] * ((NUM_PAST + 1) * width) + tap * width + ins[:, None]
            there = (ins < width)[:, None] & is_out[None, :]
            factors = tl.load(weight + weight_at, mask=there, other=0.0)
            acc += tl.dot(each.to(DOT_TYPE), factors.to(DOT_TYPE), input_precision="ieee")
    acc += tl.load(bias + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    if HAS_NORM:
        mean = tl.sum(tl.where(is_out[None, :], acc, 0.0), axis=1) / num_out
        apart = tl.where(is_out[None, :], acc - mean[:, None], 0.0)
        acc = apart / tl.sqrt(tl.sum(apart * apart, axis=1) / num_out + eps)[:, None]
        acc *= tl.load(gain + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
        acc += tl.load(offset + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
        acc = _mish(acc)
    if HAS_SHIFT:
        acc += tl.load(shift + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    if HAS_SHORTCUT:
        for first in range(0, shortcut_width, BLOCK_IN):
            ins = first + tl.arange(0, BLOCK_IN)
            there = is_step[:, None] & (ins < shortcut_width)[None, :]
            each = tl.load(
                shortcut + ((row_at + steps)[:, None] * shortcut_width + ins[None, :]), mask=there, other=0.0
            )
            there = (ins < shortcut_width)[:, None] & is_out[None, :]
            weight_at = outs[None, :] * shortcut_width + ins[:, None]
            factors = tl.load(shortcut_weight + weight_at, mask=there, other=0.0)
            acc += tl.dot(each.to(DOT_TYPE), factors.to(DOT_TYPE), input_precision="ieee")
        acc += tl.load(shortcut_bias + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    there = is_step[:, None] & is_out[None, :]
    result_at = (row_at + steps)[:, None] * num_out + outs[None, :]
    tl.store(result + result_at, acc.to(result.dtype.element_ty), mask=there)

    if tl.program_id(1) == 0:
        past = tl.arange(0, BLOCK_PAST)
        from_place = tl.load(num_kept + row).to(tl.int32) + past - NUM_PAST
        for first in range(0, width, BLOCK_IN):
            ins = first + tl.arange(0, BLOCK_IN)
            is_kept = (past < NUM_PAST)[:, None] & (ins < width)[None, :]
            is_new = is_kept & (from_place >= 0)[:, None]
            is_past = is_kept & (from_place < 0)[:, None]
            new = tl.load(x + ((row_at + from_place)[:, None] * width + ins[None, :]), mask=is_new, other=0.0)
            old_at = (NUM_PAST + from_place)[:, None] * input_stride + ins[None, :]
            old = tl.load(context + old_at, mask=is_past, other=0.0)
            tl.debug_barrier()  # all have read what is replaced
            tl.store(context + (past[:, None] * input_stride + ins[None, :]), tl.where(is_past, old, new), mask=is_kept)


@torch.library.custom_op("cc_tts::convolve", mutates_args=("contexts",))
def convolve(
    x: Tensor,  # [B, T, in]
    contexts: Tensor,  # [slots, kernel - 1, channels of all convolutions]: the inputs before those; they are replaced
    slots: Tensor,  # [B]; only slot 0 may be there twice
    num_kept: Tensor,  # [B]: how many of the new positions the next call has behind it
    channel_at: int,  # where the channels of this convolution begin
    weight: Tensor,  # [out, kernel * in]
    bias: Tensor,
    gain: Tensor | None,  # [out], of the norm over the outputs, which is followed by Mish
    offset: Tensor | None,  # [out]
    eps: float,
    shift: Tensor | None,  # [out]: what is added behind that
    shortcut: Tensor | None,  # [B, T, other]: inputs of a linear map whose results are added
    shortcut_weight: Tensor | None,  # [out, other]
    shortcut_bias: Tensor | None,
) -> Tensor:
    """A convolution of new positions and those before them, [B, T, out]."""
    num_rows, num_new, width = x.shape
    num_out, num_past = weight.shape[0], contexts.shape[1]
    assert num_past <= BLOCK_ROWS, "more than one program would see the past"
    result = x.new_empty((num_rows, num_new, num_out))
    others = (
        bias if each is None else each for each in (gain, offset, shift, shortcut, shortcut_weight, shortcut_bias)
    )
    _convolve_kernel[(num_rows, triton.cdiv(num_new, BLOCK_ROWS))](
        x.contiguous(),
        contexts,
        slots.contiguous(),
        num_kept.contiguous(),
        weight,
        bias,
        *(each.contiguous() for each in others),
        result,
        num_new,
        width,
        num_out,
        1 if shortcut is None else shortcut.shape[2],
        *contexts.stride()[:2],
        channel_at,
        eps,
        HAS_NORM=gain is not None,
        HAS_SHIFT=shift is not None,
        HAS_SHORTCUT=shortcut is not None,
        NUM_PAST=num_past,
        DOT_TYPE=dot_type(weight.dtype),
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_OUT=max(MIN_BLOCK, triton.next_power_of_2(num_out)),
        BLOCK_IN=BLOCK_IN,
        BLOCK_PAST=triton.next_power_of_2(num_past),
        num_warps=2 * NUM_WARPS,
    )
    return result


@convolve.register_fake
def _no_convolution(
    x: Tensor, _contexts: Tensor, _slots: Tensor, _num_kept: Tensor, _channel_at: int, weight: Tensor, *_others: object
) -> Tensor:
    return x.new_empty((*x.shape[:2], weight.shape[0]))
