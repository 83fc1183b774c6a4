"""Linear maps with what stands before and behind them, for cards: a block of a network in five launches.

Each is one Triton kernel: a norm, the product, and what is done with its sums, which stay in registers. They are for few
rows, where a launch costs more than its sums; of many rows the library's products are quicker, and the caller takes those.
The path of PyTorch is the oracle, and what they compute is tried against it at start (:mod:`.trial`).

For PyTorch all are operators whose inside it does not look into. Imported only where Triton is installed.

Runs on: the thread that owns the device.
"""

from typing import Final

import torch
import triton
from torch import Tensor
from triton import language as tl

from cc_tts.engines.cosyvoice.model.networks.page_kernels import MIN_BLOCK, NEVER, NUM_WARPS, dot_type

BLOCK_ROWS: Final = 16  # of a program: the least of a product on tensor cores; unmeasured
BLOCK_OUT: Final = 32  # outputs of a program; unmeasured
BLOCK_IN: Final = 64  # inputs that a program multiplies at a time; unmeasured


@triton.jit
def _statistics(x, row_at, is_row, width, eps, NORM: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_IN: tl.constexpr):
    """Mean, which a norm by the root of squares takes for 0, and inverse deviation of some rows."""
    mean = tl.zeros([BLOCK_ROWS], tl.float32)
    inverse = mean + 1.0
    if NORM == "layer":
        for first in range(0, width, BLOCK_IN):
            ins = first + tl.arange(0, BLOCK_IN)
            there = is_row[:, None] & (ins < width)[None, :]
            mean += tl.sum(tl.load(x + (row_at[:, None] + ins[None, :]), mask=there, other=0.0).to(tl.float32), axis=1)
        mean = mean / width
    if NORM != "":
        squares = tl.zeros([BLOCK_ROWS], tl.float32)
        for first in range(0, width, BLOCK_IN):
            ins = first + tl.arange(0, BLOCK_IN)
            there = is_row[:, None] & (ins < width)[None, :]
            each = tl.load(x + (row_at[:, None] + ins[None, :]), mask=there, other=0.0).to(tl.float32)
            each = tl.where(there, each - mean[:, None], 0.0)
            squares += tl.sum(each * each, axis=1)
        inverse = 1.0 / tl.sqrt(squares / width + eps)
    return mean, inverse


@triton.jit
def _inputs(x, row_at, is_row, ins, width, mean, inverse, gain, offset, NORM: tl.constexpr, HAS_OFFSET: tl.constexpr):
    """Some inputs of some rows, normed, in float32."""
    is_in = ins < width
    there = is_row[:, None] & is_in[None, :]
    each = tl.load(x + (row_at[:, None] + ins[None, :]), mask=there, other=0.0).to(tl.float32)
    if NORM != "":
        each = (each - mean[:, None]) * inverse[:, None]
        each *= tl.load(gain + ins, mask=is_in, other=0.0).to(tl.float32)[None, :]
        if HAS_OFFSET:
            each += tl.load(offset + ins, mask=is_in, other=0.0).to(tl.float32)[None, :]
    return each


@triton.jit
def _joined_parts(
    parts,
    sums,
    rows,
    is_row,
    ins,
    width,
    num_new,
    num_kv_heads,
    num_programs,
    num_splits,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):
    """Put together what some rows have mixed of the values, from the parts that their keys were split into."""
    there = is_row[:, None] & (ins < width)[None, :]
    head = ins // HEAD_DIM
    at = ((rows // num_new) * num_kv_heads)[:, None] + (head // GROUP)[None, :]
    at = (at.to(tl.int64) * GROUP + (head % GROUP)[None, :]) * num_new + (rows % num_new)[:, None]
    highest = tl.full([BLOCK_ROWS, BLOCK_IN], NEVER, tl.float32)
    total = tl.zeros([BLOCK_ROWS, BLOCK_IN], tl.float32)
    mix = tl.zeros([BLOCK_ROWS, BLOCK_IN], tl.float32)
    for split in range(num_splits):
        part_at = split * num_programs * GROUP * num_new + at
        part = tl.load(parts + (part_at * HEAD_DIM + (ins % HEAD_DIM)[None, :]), mask=there, other=0.0)
        part_highest = tl.load(sums + 2 * part_at, mask=there, other=NEVER)
        higher = tl.maximum(highest, part_highest)
        fade = tl.exp2(highest - higher)
        part_fade = tl.exp2(part_highest - higher)
        total = total * fade + tl.load(sums + 2 * part_at + 1, mask=there, other=0.0) * part_fade
        mix = mix * fade + part * part_fade
        highest = higher
    return mix / tl.where(there, total, 1.0)


@triton.jit
def _sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def _activated(x, second, ACTIVATION: tl.constexpr):
    if ACTIVATION == "silu":
        x = x * _sigmoid(x)
    if ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    if ACTIVATION == "gelu_tanh":
        x = x * _sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))  # 2 sqrt(2 / pi)
    if ACTIVATION == "gated":
        x = x * _sigmoid(x) * second
    return x


@triton.jit(do_not_specialize=["num_rows", "num_new", "num_programs", "num_splits"])
def _product_kernel(
    x,
    sums,
    weight,
    bias,
    gain,
    offset,
    gate,
    residual,
    result,
    num_rows,
    width,
    num_out,
    eps,
    num_new,
    num_kv_heads,
    num_programs,
    num_splits,
    NORM: tl.constexpr,
    ACTIVATION: tl.constexpr,
    HAS_PARTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    HAS_GATE: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):
    """Some outputs of some rows. With gates, the first half of the outputs are those of the second."""
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = rows < num_rows
    row_at = rows.to(tl.int64) * width
    outs = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    is_out = outs < num_out
    mean, inverse = _statistics(x, row_at, is_row, width, eps, NORM, BLOCK_ROWS, BLOCK_IN)
    acc = tl.zeros([BLOCK_ROWS, BLOCK_OUT], tl.float32)
    second = tl.zeros([BLOCK_ROWS, BLOCK_OUT], tl.float32)
    for first in range(0, width, BLOCK_IN):
        ins = first + tl.arange(0, BLOCK_IN)
        if HAS_PARTS:
            each = _joined_parts(
                x, sums, rows, is_row, ins, width, num_new, num_kv_heads, num_programs, num_splits,
                GROUP, HEAD_DIM, BLOCK_ROWS, BLOCK_IN,
            )  # fmt: skip
        else:
            each = _inputs(x, row_at, is_row, ins, width, mean, inverse, gain, offset, NORM, HAS_OFFSET)
        each = each.to(weight.dtype.element_ty).to(DOT_TYPE)
        weight_at = outs.to(tl.int64)[None, :] * width + ins[:, None]
        there = (ins < width)[:, None] & is_out[None, :]
        factors = tl.load(weight + weight_at, mask=there, other=0.0).to(DOT_TYPE)
        acc += tl.dot(each, factors, input_precision="ieee")
        if ACTIVATION == "gated":
            weight_at = (outs + num_out).to(tl.int64)[None, :] * width + ins[:, None]
            factors = tl.load(weight + weight_at, mask=there, other=0.0).to(DOT_TYPE)
            second += tl.dot(each, factors, input_precision="ieee")
    if HAS_BIAS:
        acc += tl.load(bias + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    acc = _activated(acc, second, ACTIVATION)
    if HAS_GATE:
        acc *= tl.load(gate + outs, mask=is_out, other=0.0).to(tl.float32)[None, :]
    at = rows.to(tl.int64)[:, None] * num_out + outs[None, :]
    there = is_row[:, None] & is_out[None, :]
    if HAS_RESIDUAL:
        acc += tl.load(residual + at, mask=there, other=0.0).to(tl.float32)
    tl.store(result + at, acc.to(result.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["written", "num_rows", "num_new", "cos_row_stride", "sin_row_stride"])
def _project_kernel(
    x,
    weight,
    bias,
    gain,
    offset,
    cos,
    sin,
    queries,
    kept,
    scales,
    written,
    num_rows,
    width,
    eps,
    num_new,
    cos_row_stride,
    cos_place_stride,
    sin_row_stride,
    sin_place_stride,
    page_stride,
    place_stride,
    pair_stride,
    head_stride,
    page_len,
    num_heads,
    num_kv_heads,
    num_turned,
    MOST: tl.constexpr,
    LEAST_SCALE: tl.constexpr,
    NORM: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_OFFSET: tl.constexpr,
    HAS_TURNS: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    APART: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_IN: tl.constexpr,
):
    """One head of some rows: of queries, or of keys or values, which go to their places.

    A head is computed in two halves, whose channels are turned against each other; they are ``APART`` channels apart.
    """
    rows = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = rows < num_rows
    row_at = rows.to(tl.int64) * width
    head = tl.program_id(1)
    pairs = tl.arange(0, BLOCK_HALF)
    is_pair = pairs < HEAD_DIM // 2
    dims = pairs
    if APART == 1:
        dims = 2 * pairs
    mean, inverse = _statistics(x, row_at, is_row, width, eps, NORM, BLOCK_ROWS, BLOCK_IN)
    low = tl.zeros([BLOCK_ROWS, BLOCK_HALF], tl.float32)
    high = tl.zeros([BLOCK_ROWS, BLOCK_HALF], tl.float32)
    outs = head * HEAD_DIM + dims
    for first in range(0, width, BLOCK_IN):
        ins = first + tl.arange(0, BLOCK_IN)
        each = _inputs(x, row_at, is_row, ins, width, mean, inverse, gain, offset, NORM, HAS_OFFSET)
        each = each.to(weight.dtype.element_ty).to(DOT_TYPE)
        weight_at = outs.to(tl.int64)[None, :] * width + ins[:, None]
        there = (ins < width)[:, None] & is_pair[None, :]
        low += tl.dot(each, tl.load(weight + weight_at, mask=there, other=0.0).to(DOT_TYPE), input_precision="ieee")
        factors = tl.load(weight + weight_at + APART * width, mask=there, other=0.0).to(DOT_TYPE)
        high += tl.dot(each, factors, input_precision="ieee")
    if HAS_BIAS:
        low += tl.load(bias + outs, mask=is_pair, other=0.0).to(tl.float32)[None, :]
        high += tl.load(bias + outs + APART, mask=is_pair, other=0.0).to(tl.float32)[None, :]
    if HAS_TURNS:
        is_turned = (head < num_turned) | ((head >= num_heads) & (head < num_heads + num_turned))
        if is_turned & (head < num_heads + num_kv_heads):
            there = is_row[:, None] & is_pair[None, :]
            cos_at = (rows // num_new) * cos_row_stride + (rows % num_new) * cos_place_stride
            sin_at = (rows // num_new) * sin_row_stride + (rows % num_new) * sin_place_stride
            c = tl.load(cos + (cos_at[:, None] + pairs[None, :]), mask=there, other=1.0)
            s = tl.load(sin + (sin_at[:, None] + pairs[None, :]), mask=there, other=0.0)
            turned = low * c - high * s
            high = high * c + low * s
            low = turned
    there = is_row[:, None] & is_pair[None, :]
    low = low.to(queries.dtype.element_ty)
    high = high.to(queries.dtype.element_ty)
    if head < num_heads:
        query_at = (rows.to(tl.int64) * num_heads + head)[:, None] * HEAD_DIM + dims[None, :]
        tl.store(queries + query_at, low, mask=there)
        tl.store(queries + query_at + APART, high, mask=there)
    else:
        pair = (head - num_heads) // num_kv_heads
        kv_head = (head - num_heads) % num_kv_heads
        place = tl.load(written + rows, mask=is_row, other=0)
        kept_at = (place // page_len) * page_stride + (place % page_len) * place_stride
        kept_at += pair * pair_stride + kv_head * head_stride
        kept_low = low
        kept_high = high
        if HAS_SCALES:
            wide_low = low.to(tl.float32)
            wide_high = high.to(tl.float32)
            largest = tl.maximum(tl.max(tl.abs(wide_low), axis=1), tl.max(tl.abs(wide_high), axis=1))
            scale = tl.maximum(largest / MOST, LEAST_SCALE).to(tl.float16)
            tl.store(scales + (place * 2 + pair) * num_kv_heads + kv_head, scale, mask=is_row)
            kept_low = tl.floor(wide_low / scale.to(tl.float32)[:, None] + 0.5)
            kept_high = tl.floor(wide_high / scale.to(tl.float32)[:, None] + 0.5)
        tl.store(kept + (kept_at[:, None] + dims[None, :]), kept_low.to(kept.dtype.element_ty), mask=there)
        tl.store(kept + (kept_at[:, None] + dims[None, :] + APART), kept_high.to(kept.dtype.element_ty), mask=there)


@torch.library.custom_op("cc_tts::product", mutates_args=())
def product(
    x: Tensor,  # [B, T, in], or the parts of :func:`.page_kernels.attend_in_parts`
    sums: Tensor | None,  # of the parts, which are put together
    weight: Tensor,  # [out, in], or [2 out, in] with gates
    bias: Tensor | None,
    norm: str,  # of ``x``
    gain: Tensor | None,  # [in], of the norm
    offset: Tensor | None,  # [in]
    eps: float,
    activation: str,
    gate: Tensor | None,  # [out]: factors of the result
    residual: Tensor | None,  # [B, T, out]: what is added to it; needed with parts
) -> Tensor:
    """The product of normed rows, [B, T, out]."""
    result = _room(x, weight, activation, residual)
    num_rows, num_new, num_out = result.shape
    num_kv_heads = num_programs = num_splits = group = head_dim = 1
    if sums is not None:
        num_splits, num_programs, num_places, head_dim = x.shape
        num_kv_heads, group = num_programs // num_rows, num_places // num_new
    _product_kernel[(triton.cdiv(num_rows * num_new, BLOCK_ROWS), triton.cdiv(num_out, BLOCK_OUT))](
        x.contiguous(),
        x if sums is None else sums,
        weight,
        *(weight if each is None else each for each in (bias, gain, offset, gate)),
        weight if residual is None else residual.contiguous(),
        result,
        num_rows * num_new,
        weight.shape[1],
        num_out,
        eps,
        num_new,
        num_kv_heads,
        num_programs,
        num_splits,
        NORM=norm,
        ACTIVATION=activation,
        HAS_PARTS=sums is not None,
        HAS_BIAS=bias is not None,
        HAS_OFFSET=offset is not None,
        HAS_GATE=gate is not None,
        HAS_RESIDUAL=residual is not None,
        GROUP=group,
        HEAD_DIM=head_dim,
        DOT_TYPE=dot_type(weight.dtype),
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_OUT=BLOCK_OUT,
        BLOCK_IN=BLOCK_IN,
        num_warps=NUM_WARPS,
    )
    return result


@product.register_fake
def _no_product(
    x: Tensor,
    _sums: Tensor | None,
    weight: Tensor,
    _bias: Tensor | None,
    _norm: str,
    _gain: Tensor | None,
    _offset: Tensor | None,
    _eps: float,
    activation: str,
    _gate: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    return _room(x, weight, activation, residual)


def _room(x: Tensor, weight: Tensor, activation: str, residual: Tensor | None) -> Tensor:
    """Room for the result of a product."""
    if residual is not None:
        return residual.new_empty(residual.shape)
    return x.new_empty((*x.shape[:2], weight.shape[0] // (2 if activation == "gated" else 1)))


@torch.library.custom_op("cc_tts::project", mutates_args=("kept", "scales"))
def project(
    x: Tensor,  # [B, T, in]
    weight: Tensor,  # [(heads + 2 kv_heads) * D, in]: of queries, keys and values
    bias: Tensor | None,
    norm: str,  # of ``x``
    gain: Tensor,  # [in], of the norm
    offset: Tensor | None,  # [in]
    eps: float,
    kept: Tensor,  # [pages, page_len, 2, kv_heads, D]: where keys and values go
    scales: Tensor | None,  # [pages, page_len, 2, kv_heads]
    most: float,  # that a number is, with scales
    least_scale: float,
    written: Tensor,  # [B, T]: the places of the new positions, page after page
    num_turned: int,  # the first of the heads of queries, and of keys, that are turned to their positions
    cos: Tensor | None,  # [B, T, D / 2]
    sin: Tensor | None,  # [B, T, D / 2]
    is_interleaved: bool,  # channels beside each other are turned against each other, not those half a head apart
) -> Tensor:
    """Queries of normed rows, [B, T, heads * D]; their keys and values are written."""
    num_rows = x.shape[0] * x.shape[1]
    num_kv_heads, head_dim = kept.shape[3:]
    num_heads = weight.shape[0] // head_dim - 2 * num_kv_heads
    queries = x.new_empty((*x.shape[:2], num_heads * head_dim))
    _project_kernel[(triton.cdiv(num_rows, BLOCK_ROWS), num_heads + 2 * num_kv_heads)](
        x.contiguous(),
        weight,
        weight if bias is None else bias,
        gain,
        gain if offset is None else offset,
        x if cos is None else cos,
        x if sin is None else sin,
        queries,
        kept,
        kept if scales is None else scales,
        written.contiguous(),
        num_rows,
        weight.shape[1],
        eps,
        x.shape[1],
        *((0, 0) if cos is None else cos.stride()[:2]),
        *((0, 0) if sin is None else sin.stride()[:2]),
        *kept.stride()[:4],
        kept.shape[1],
        num_heads,
        num_kv_heads,
        num_turned,
        MOST=most,
        LEAST_SCALE=least_scale,
        NORM=norm,
        HAS_BIAS=bias is not None,
        HAS_OFFSET=offset is not None,
        HAS_TURNS=cos is not None,
        HAS_SCALES=scales is not None,
        APART=1 if is_interleaved else head_dim // 2,
        HEAD_DIM=head_dim,
        DOT_TYPE=dot_type(weight.dtype),
        BLOCK_ROWS=BLOCK_ROWS,
        BLOCK_HALF=max(MIN_BLOCK, triton.next_power_of_2(head_dim // 2)),
        BLOCK_IN=BLOCK_IN,
        num_warps=NUM_WARPS,
    )
    return queries


@project.register_fake
def _no_projection(
    x: Tensor,
    weight: Tensor,
    _bias: Tensor | None,
    _norm: str,
    _gain: Tensor,
    _offset: Tensor | None,
    _eps: float,
    kept: Tensor,
    *_others: object,
) -> Tensor:
    return x.new_empty((*x.shape[:2], weight.shape[0] - 2 * kept.shape[3] * kept.shape[4]))
