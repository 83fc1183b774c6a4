"""Attention that reads keys and values where they lie, for cards: a Triton kernel for flow and language model.

The path of PyTorch (:mod:`.pages`, :mod:`.lm.lm`) copies what it looks at and masks what a query does not see; here each
row has its own length, pages are found by the row's table, and numbers of 8 bits become wide in registers. Keys are split
into parts of a fixed length that are attended to beside each other and put together by a second kernel. The parts do not
depend on the batch, so neither do the results.

For PyTorch both are operators whose inside it does not look into. Imported only where Triton is installed. With
``TRITON_INTERPRET=1`` all runs on a CPU, slowly, as the tests do.

Runs on: the thread that owns the device.
"""

import math
from typing import Any, Final

import torch
import triton
from torch import Tensor
from triton import language as tl

BLOCK_QUERIES: Final = 64  # of a program, at most; unmeasured
BLOCK_KEYS: Final = 64  # that a program loads at a time; unmeasured
MIN_BLOCK: Final = 16  # of a product of matrices on CUDA tensor cores
BLOCK_ITEMS: Final = 64  # heads that a program writes; unmeasured
NUM_WARPS: Final = 4  # unmeasured
NEVER: Final = tl.constexpr(-1.0e30)
"""The score of a key that is not seen: finite, since infinity less infinity is not a number."""
IS_INTERPRETED: Final = triton.knobs.runtime.interpret


# Sizes that change from call to call are not specialised: each variant would be compiled when it is first met, for a second
# or so in which nobody is spoken to.
@triton.jit(do_not_specialize=["written", "num_new", "num_items"])
def _write_kernel(
    new,
    kept,
    scales,
    written,
    row_stride,
    place_stride,
    pair_stride,
    head_stride,
    num_new,
    num_heads,
    num_items,
    MOST: tl.constexpr,
    LEAST_SCALE: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_ITEMS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    """Write some heads, of keys and of values, to the places of their positions; ``kept`` and ``scales`` are contiguous."""
    items = tl.program_id(0) * BLOCK_ITEMS + tl.arange(0, BLOCK_ITEMS)
    is_item = items < num_items
    index = items // (2 * num_heads)  # of the position
    head = items % (2 * num_heads)  # those of the keys, then those of the values
    dims = tl.arange(0, BLOCK_DIM)
    there = is_item[:, None] & (dims < HEAD_DIM)[None, :]
    source = (index // num_new).to(tl.int64) * row_stride + (index % num_new) * place_stride
    source += (head // num_heads) * pair_stride + (head % num_heads) * head_stride
    x = tl.load(new + (source[:, None] + dims[None, :]), mask=there, other=0)
    target = tl.load(written + index, mask=is_item, other=0) * 2 * num_heads + head
    if HAS_SCALES:
        x = x.to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(x), axis=1) / MOST, LEAST_SCALE).to(tl.float16)
        tl.store(scales + target, scale, mask=is_item)
        x = tl.floor(x / scale.to(tl.float32)[:, None] + 0.5)
    tl.store(kept + (target[:, None] * HEAD_DIM + dims[None, :]), x.to(kept.dtype.element_ty), mask=there)


@triton.jit(
    do_not_specialize=[
        *("table", "starts", "ends", "left_out", "table_stride", "start_stride", "num_keys", "num_new", "num_programs"),
        *("distance_row_stride", "distance_head_stride", "distance_place_stride", "lowest", "num_distances"),
    ]
)
def _attend_kernel(
    queries,
    kept,
    scales,
    table,
    starts,
    ends,
    left_out,
    distances,
    mixed,
    sums,
    query_row_stride,
    query_head_stride,
    query_place_stride,
    page_stride,
    place_stride,
    pair_stride,
    head_stride,
    table_stride,
    start_stride,
    distance_row_stride,
    distance_head_stride,
    distance_place_stride,
    lowest,
    num_distances,
    num_keys,
    num_new,
    num_kv_heads,
    num_programs,
    factor,
    PAGE_LEN: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    SPLIT_KEYS: tl.constexpr,
    SINK: tl.constexpr,
    CONTEXT: tl.constexpr,
    HAS_ENDS: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SCALES: tl.constexpr,
    HAS_DISTANCES: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    DOT_TYPE: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    """Attend from some queries of one head of keys to one part of the keys of their row.

    The queries of a head of keys are those of its ``GROUP`` heads, one head after the other. Scores are in bits.
    """
    program = tl.program_id(0)
    row = program // num_kv_heads
    kv_head = program % num_kv_heads
    split = tl.program_id(2)
    places = tl.program_id(1) * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    is_query = places < GROUP * num_new
    head = kv_head * GROUP + places // num_new
    step = places % num_new
    dims = tl.arange(0, BLOCK_DIM)
    is_dim = dims < HEAD_DIM
    start = tl.load(starts + row * start_stride).to(tl.int32)
    end = num_keys
    if HAS_ENDS:
        end = tl.load(ends + row).to(tl.int32)
    position = start + step
    limit = tl.minimum(end, (position // CHUNK + 1) * CHUNK)  # no key from there on is seen
    limit = tl.where(is_query, limit, 0)

    query_at = row.to(tl.int64) * query_row_stride + head * query_head_stride + step * query_place_stride
    there = is_query[:, None] & is_dim[None, :]
    query = tl.load(queries + (query_at[:, None] + dims[None, :]), mask=there, other=0.0).to(DOT_TYPE)

    highest = tl.full([BLOCK_QUERIES], NEVER, tl.float32)
    total = tl.zeros([BLOCK_QUERIES], tl.float32)
    mix = tl.zeros([BLOCK_QUERIES, BLOCK_DIM], tl.float32)
    first = split * SPLIT_KEYS
    last = tl.max(limit, axis=0)
    gap = 0  # between the positions of the sink and those behind it
    if HAS_WINDOW:
        gap = tl.load(left_out + row).to(tl.int32) * PAGE_LEN
        last -= gap
    last = tl.minimum(last, first + SPLIT_KEYS)
    for begin in range(first, last, BLOCK_KEYS):
        keys = begin + tl.arange(0, BLOCK_KEYS)
        is_key = keys < last
        page = tl.load(table + row * table_stride + keys // PAGE_LEN, mask=is_key, other=0).to(tl.int64)
        key_at = page * page_stride + (keys % PAGE_LEN) * place_stride + kv_head * head_stride
        key = tl.load(kept + (key_at[None, :] + dims[:, None]), mask=is_key[None, :] & is_dim[:, None], other=0.0)
        scores = tl.dot(query, key.to(DOT_TYPE), input_precision="ieee") * factor
        scale_at = (page * PAGE_LEN + keys % PAGE_LEN) * 2 * num_kv_heads + kv_head
        if HAS_SCALES:
            scores *= tl.load(scales + scale_at, mask=is_key, other=0.0).to(tl.float32)[None, :]
        at = keys  # their positions in the sequence
        if HAS_WINDOW:
            at = tl.where(keys < SINK, keys, keys + gap)
        if HAS_DISTANCES:
            apart = tl.minimum(tl.maximum(position[:, None] - at[None, :] - lowest, 0), num_distances - 1)
            apart_at = row.to(tl.int64) * distance_row_stride + head * distance_head_stride
            apart_at += step * distance_place_stride
            bias = tl.load(distances + (apart_at[:, None] + apart), mask=is_query[:, None] & is_key[None, :], other=0.0)
            scores += bias.to(tl.float32) * 1.4426950408889634  # a nat in bits
        is_seen = is_key[None, :] & (at[None, :] < limit[:, None])
        if HAS_WINDOW:
            is_seen &= (at[None, :] < SINK) | (at[None, :] >= (position // CHUNK * CHUNK - CONTEXT)[:, None])
        scores = tl.where(is_seen, scores, NEVER)
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.where(is_seen, tl.exp2(scores - higher[:, None]), 0.0)
        fade = tl.exp2(highest - higher)
        total = total * fade + tl.sum(weights, axis=1)
        value = tl.load(
            kept + (key_at[:, None] + pair_stride + dims[None, :]), mask=is_key[:, None] & is_dim[None, :], other=0.0
        )
        if HAS_SCALES:
            value_scale = tl.load(scales + scale_at + num_kv_heads, mask=is_key, other=0.0).to(tl.float32)
            value = value.to(tl.float32) * value_scale[:, None]
        mix = mix * fade[:, None] + tl.dot(weights.to(DOT_TYPE), value.to(DOT_TYPE), input_precision="ieee")
        highest = higher

    if IS_SPLIT:
        part_at = (split * num_programs + program).to(tl.int64) * GROUP * num_new + places
        tl.store(mixed + (part_at[:, None] * HEAD_DIM + dims[None, :]), mix, mask=there)
        tl.store(sums + 2 * part_at, highest, mask=is_query)
        tl.store(sums + 2 * part_at + 1, total, mask=is_query)
    else:
        mix = mix / tl.where(is_query, total, 1.0)[:, None]
        mixed_at = (row.to(tl.int64) * num_new + step) * (num_kv_heads * GROUP) + head
        tl.store(mixed + (mixed_at[:, None] * HEAD_DIM + dims[None, :]), mix.to(mixed.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["num_new", "num_programs", "num_splits"])
def _join_kernel(
    parts,
    sums,
    mixed,
    num_new,
    num_kv_heads,
    num_programs,
    num_splits,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
):
    """Put the parts that the keys were split into together."""
    program = tl.program_id(0)
    row = program // num_kv_heads
    places = tl.program_id(1) * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    is_query = places < GROUP * num_new
    dims = tl.arange(0, BLOCK_DIM)
    there = is_query[:, None] & (dims < HEAD_DIM)[None, :]
    highest = tl.full([BLOCK_QUERIES], NEVER, tl.float32)
    total = tl.zeros([BLOCK_QUERIES], tl.float32)
    mix = tl.zeros([BLOCK_QUERIES, BLOCK_DIM], tl.float32)
    for split in range(num_splits):
        part_at = (split * num_programs + program).to(tl.int64) * GROUP * num_new + places
        part = tl.load(parts + (part_at[:, None] * HEAD_DIM + dims[None, :]), mask=there, other=0.0)
        part_highest = tl.load(sums + 2 * part_at, mask=is_query, other=NEVER)
        higher = tl.maximum(highest, part_highest)
        fade = tl.exp2(highest - higher)
        part_fade = tl.exp2(part_highest - higher)
        total = total * fade + tl.load(sums + 2 * part_at + 1, mask=is_query, other=0.0) * part_fade
        mix = mix * fade[:, None] + part * part_fade[:, None]
        highest = higher
    mix = mix / tl.where(is_query, total, 1.0)[:, None]
    head = (program % num_kv_heads) * GROUP + places // num_new
    mixed_at = (row.to(tl.int64) * num_new + places % num_new) * (num_kv_heads * GROUP) + head
    tl.store(mixed + (mixed_at[:, None] * HEAD_DIM + dims[None, :]), mix.to(mixed.dtype.element_ty), mask=there)


@torch.library.custom_op("cc_tts::write_pages", mutates_args=("kept", "scales"))
def write(
    new: Tensor,  # [B, T, 2, heads, D]
    kept: Tensor,  # [pages, page_len, 2, heads, D]
    scales: Tensor | None,  # [pages, page_len, 2, heads]
    written: Tensor,  # [B, T]: the place of each; contiguous
    most: float,  # that a number is, with scales
    least_scale: float,
) -> None:
    """Write new keys and values to their places. They have the type of ``kept``, or with scales any."""
    num_rows, num_new, _, num_heads, head_dim = new.shape
    num_items = num_rows * num_new * 2 * num_heads
    _write_kernel[(triton.cdiv(num_items, BLOCK_ITEMS),)](
        new,
        kept,
        kept if scales is None else scales,
        written,
        *new.stride()[:4],
        num_new,
        num_heads,
        num_items,
        MOST=most,
        LEAST_SCALE=least_scale,
        HAS_SCALES=scales is not None,
        HEAD_DIM=head_dim,
        BLOCK_ITEMS=BLOCK_ITEMS,
        BLOCK_DIM=triton.next_power_of_2(head_dim),
        num_warps=NUM_WARPS,
    )


@write.register_fake
def _write_nothing(
    new: Tensor, kept: Tensor, scales: Tensor | None, written: Tensor, most: float, least_scale: float
) -> None:
    del new, kept, scales, written, most, least_scale


@torch.library.custom_op("cc_tts::attend_to_pages", mutates_args=())
def _attend(
    queries: Tensor,  # [B, heads, T, D], those of a head of keys beside each other
    kept: Tensor,  # [pages, page_len, 2, kv_heads, D]
    table: Tensor,  # [B, n]: the pages of each row, from the start of its sequence
    starts: Tensor,  # [B]: the position of the first query of each row; perhaps a column of a table
    num_keys: int,  # no row has more
    chunk: int,  # a query sees to the end of its own chunk
    split_keys: int,  # that are attended to at a time
    ends: Tensor | None = None,  # [B]: where the keys of each row end, if chunks alone do not say it
    left_out: Tensor | None = None,  # [B]: with a window the pages that are not in the table, behind the sink
    sink: int = 0,  # positions at the start that a window never leaves out
    context: int = 0,  # positions before its own chunk that a query sees in a window
    scales: Tensor | None = None,  # [pages, page_len, 2, kv_heads]
    distances: Tensor | None = None,  # [B, heads, T, distances]: added to scores, by the distance of query and key
    lowest: int = 0,  # the first of the distances
    in_parts: bool = False,  # noqa: FBT002 - an operator has no keyword-only arguments with a default
) -> tuple[Tensor, Tensor]:
    """Mixed values, [B, T, heads * D], and nothing besides; or the parts of :func:`attend_in_parts`."""
    num_rows, num_heads, num_new, head_dim = queries.shape
    num_kv_heads = kept.shape[3]
    group, is_split = num_heads // num_kv_heads, in_parts or num_keys > split_keys
    num_programs, block = num_rows * num_kv_heads, _block_queries(group * num_new)
    grid = (num_programs, triton.cdiv(group * num_new, block), triton.cdiv(num_keys, split_keys))
    parts, sums = _room(queries, kept, num_keys, split_keys, in_parts=is_split)
    block_dim = max(MIN_BLOCK, triton.next_power_of_2(head_dim))
    _attend_kernel[grid](
        queries,
        kept,
        kept if scales is None else scales,
        table,
        starts,
        starts if ends is None else ends,
        starts if left_out is None else left_out,
        queries if distances is None else distances,
        parts,
        sums,
        *queries.stride()[:3],
        *kept.stride()[:4],
        table.stride(0),
        starts.stride(0),
        *((0, 0, 0) if distances is None else distances.stride()[:3]),
        lowest,
        0 if distances is None else distances.shape[3],
        num_keys,
        num_new,
        num_kv_heads,
        num_programs,
        math.log2(math.e) / math.sqrt(head_dim),
        PAGE_LEN=kept.shape[1],
        CHUNK=chunk,
        GROUP=group,
        HEAD_DIM=head_dim,
        SPLIT_KEYS=split_keys,
        SINK=sink,
        CONTEXT=context,
        HAS_ENDS=ends is not None,
        HAS_WINDOW=left_out is not None,
        HAS_SCALES=scales is not None,
        HAS_DISTANCES=distances is not None,
        IS_SPLIT=is_split,
        DOT_TYPE=dot_type(queries.dtype),
        BLOCK_QUERIES=block,
        BLOCK_KEYS=BLOCK_KEYS,
        BLOCK_DIM=block_dim,
        num_warps=NUM_WARPS,
    )
    if in_parts or not is_split:
        return parts, sums
    mixed, nothing = _room(queries, kept, num_keys, split_keys, in_parts=False)
    _join_kernel[grid[:2]](
        parts,
        sums,
        mixed,
        num_new,
        num_kv_heads,
        num_programs,
        grid[2],
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_QUERIES=block,
        BLOCK_DIM=block_dim,
        num_warps=NUM_WARPS,
    )
    return mixed, nothing


@_attend.register_fake
def _attend_to_nothing(
    queries: Tensor,
    kept: Tensor,
    _table: Tensor,
    _starts: Tensor,
    num_keys: int,
    _chunk: int,
    split_keys: int,
    *others: object,
) -> tuple[Tensor, Tensor]:
    return _room(queries, kept, num_keys, split_keys, in_parts=bool(others[7:] and others[7]))


def _room(queries: Tensor, kept: Tensor, num_keys: int, split_keys: int, *, in_parts: bool) -> tuple[Tensor, Tensor]:
    """Room for mixed values, or for the parts of them and their sums."""
    num_rows, num_heads, num_new, head_dim = queries.shape
    num_kv_heads = kept.shape[3]
    if not in_parts:
        return queries.new_empty((num_rows, num_new, num_heads * head_dim)), queries.new_empty(0, dtype=torch.float32)
    shape = (-(-num_keys // split_keys), num_rows * num_kv_heads, num_heads // num_kv_heads * num_new)
    return (
        queries.new_empty((*shape, head_dim), dtype=torch.float32),
        queries.new_empty((*shape, 2), dtype=torch.float32),
    )


def _block_queries(num_places: int) -> int:
    block: int = max(MIN_BLOCK, min(BLOCK_QUERIES, triton.next_power_of_2(num_places)))
    return block


def attend(*given: Any, **more: Any) -> Tensor:
    """Mix the values that each query sees, [B, T, heads * D]; arguments as of :func:`_attend`."""
    mixed: Tensor = _attend(*given, **more)[0]
    return mixed


def attend_in_parts(*given: Any, **more: Any) -> tuple[Tensor, Tensor]:
    """Attend as :func:`attend`, but return what each part of the keys gives: values, [splits, B * kv_heads, group * T, D],
    and highest score and sum of weights, [..., 2]. The caller combines them.
    """
    parts, sums = _attend(*given, **more, in_parts=True)
    return parts, sums


def dot_type(dtype: torch.dtype) -> tl.dtype:
    """The type in which matrices are multiplied; the interpreter knows no products in bfloat16."""
    if dtype == torch.float16:
        return tl.float16
    return tl.bfloat16 if dtype == torch.bfloat16 and not IS_INTERPRETED else tl.float32
