"""Pages of keys and values, and the attention that looks at them (§4.9).

Pages are an arena that many sequences share; a row brings a table of its own. They have the type of the weights, or 8 bits
a number. Attention copies what it looks at out of them or, on cards with Triton (:mod:`.page_kernels`), reads them in place.

Runs on: the thread that owns the device.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.layers import SINK_CHUNKS, PositionSpan, join_heads, untouched_zeros

PageType = Literal["auto", "int8", "float8"]
_STORED: Final = {"int8": torch.int8, "float8": torch.float8_e4m3fn}
MOST_INT8: Final = 127.0
MOST_FLOAT8: Final = 448.0
LEAST_SCALE: Final = 2.0**-14
"""The least normal float16 of IEEE 754, which scales are: numbers below a hundredth are kept with a step of that."""
SPLIT_KEYS: Final = 512  # of the flow that are attended to by one program of a kernel; unmeasured


@dataclass(frozen=True, slots=True)
class PageForm:
    """How pages are kept and read; the same for all of a flow."""

    type: PageType = "auto"  # that of the weights, or 8 bits: int8 with a scale for each head and position, or e4m3
    in_place: bool = False  # attention reads them where they lie
    fused: bool = False  # and where rows are few, what is around it is fused with its products (:mod:`.fused`)


@dataclass(frozen=True, slots=True)
class Pages:
    """Keys and values of many sequences, at more dimensions first: of layers, say."""

    kept: Tensor  # [..., pages, page_len, 2, heads, D]
    scales: Tensor | None = None  # [..., pages, page_len, 2, heads] of int8, float16
    in_place: bool = False
    fused: bool = False
    page_len: int = 0  # of pages that lie behind each other: [pages * page_len, 2, heads, D]

    @classmethod
    def new(cls, shape: Sequence[int], like: Tensor, form: PageForm) -> Self:
        """Pages with nothing in them, in the place of ``like``."""
        kept = untouched_zeros(shape, like, _STORED.get(form.type))
        scales = untouched_zeros(shape[:-1], like, torch.float16) if form.type == "int8" else None
        return cls(kept, scales, form.in_place, form.fused)

    def __getitem__(self, index: int) -> "Pages":
        """Return the pages of one layer, as a view."""
        scales = None if self.scales is None else self.scales[index]
        return Pages(self.kept[index], scales, self.in_place, self.fused)

    def apart(self) -> "tuple[Pages, ...]":
        """Return the pages of each layer, for compiled code, which copies all of what it writes a part of."""
        scales = [None] * len(self.kept) if self.scales is None else list(self.scales)
        if self.in_place:
            return tuple(Pages(*each, True, self.fused) for each in zip(self.kept, scales, strict=True))  # noqa: FBT003
        flat = (
            (kept.flatten(0, 1), None if its is None else its.flatten(0, 1))
            for kept, its in zip(self.kept, scales, strict=True)
        )
        return tuple(Pages(*each, page_len=self.kept.shape[2]) for each in flat)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.kept,) if self.scales is None else (self.kept, self.scales)

    def write(self, new: Tensor, written: Tensor) -> None:
        """Keep new keys and values [B, T, 2, heads, D] of one layer at the places ``written`` [B, T]."""
        if self.kept.dtype == torch.float8_e4m3fn:  # more than its largest number would become none
            new = new.clamp(-MOST_FLOAT8, MOST_FLOAT8).to(self.kept.dtype)
        if self.in_place:
            from cc_tts.engines.cosyvoice.model.networks import page_kernels

            page_kernels.write(_movable(new), _movable(self.kept), self.scales, written, MOST_INT8, LEAST_SCALE)
            return
        if self.scales is not None:
            wide = new.to(torch.float32)
            scales = (wide.abs().amax(dim=-1) / MOST_INT8).clamp(min=LEAST_SCALE).to(torch.float16)
            self._places(self.scales)[written] = scales
            new = torch.floor(wide / scales.to(torch.float32)[..., None] + 0.5).to(torch.int8)
        self._places(_movable(self.kept))[written] = _movable(new)

    def _places(self, numbers: Tensor) -> Tensor:
        return numbers if self.page_len else numbers.flatten(0, 1)

    def _paged(self, numbers: Tensor) -> Tensor:
        return numbers.view(-1, self.page_len, *numbers.shape[1:]) if self.page_len else numbers

    def read(self, pages: Tensor, dtype: torch.dtype) -> Tensor:
        """Copy the pages [B, n] of one layer: [B, n * page_len, 2, heads, D]."""
        table = pages.flatten()
        seen = self._paged(_movable(self.kept)).index_select(0, table).view(self.kept.dtype).to(dtype)
        if self.scales is not None:
            seen = seen * self._paged(self.scales).index_select(0, table)[..., None].to(dtype)
        return seen.view(pages.shape[0], -1, *seen.shape[2:])


def _movable(numbers: Tensor) -> Tensor:
    """A view that PyTorch can index, which it cannot do with floating-point numbers of 8 bits."""
    return numbers.view(torch.int8) if numbers.dtype == torch.float8_e4m3fn else numbers


def attend(
    queries: Tensor,  # [B, heads, T, D]
    new: Tensor,  # the new keys and values, [B, T, 2, heads, D]
    pages: Pages | None,  # of this layer; the new ones are kept there
    span: PositionSpan,
    by_distance: Tensor | None = None,  # what is added to scores, [B, heads, T, distances from ``span.lowest`` on]
) -> Tensor:
    """Mix the values that each query sees, [B, T, heads * D]."""
    if pages is not None:
        assert span.pages is not None
        pages.write(new, span.written)
        if pages.in_place:
            mixed: Tensor = _in_place("attend", queries, pages, span, by_distance)
            return mixed
        new = pages.read(span.pages, new.dtype)
    keys, values = new.transpose(1, 3).unbind(dim=2)  # [B, heads, K, D] each
    mask = span.visible if span.bias is None else span.bias
    if by_distance is not None:
        mask = _relative(by_distance, span)
    return join_heads(functional.scaled_dot_product_attention(queries, keys, values, mask))


def _relative(by_distance: Tensor, span: PositionSpan) -> Tensor:
    picked = (span.distance - span.lowest).clamp(0, by_distance.shape[-1] - 1)[:, None]  # [B, 1, T, K]
    bias = by_distance.gather(-1, picked.expand(-1, by_distance.shape[1], -1, -1))
    return bias.masked_fill(~span.visible, -math.inf)


def in_parts(queries: Tensor, by_distance: Tensor | None, pages: Pages, span: PositionSpan) -> tuple[Tensor, Tensor]:
    """Attend as :func:`attend` to what was written before, but the parts of each query's keys are not put together."""
    parts: tuple[Tensor, Tensor] = _in_place("attend_in_parts", queries, pages, span, by_distance)
    return parts


def _in_place(kernel: str, queries: Tensor, pages: Pages, span: PositionSpan, by_distance: Tensor | None) -> Any:
    from cc_tts.engines.cosyvoice.model.networks import page_kernels

    assert span.pages is not None
    return getattr(page_kernels, kernel)(
        queries,
        pages.kept,
        scales=pages.scales,
        table=span.pages,
        starts=span.starts,
        ends=span.ends,
        left_out=span.left_out,
        sink=SINK_CHUNKS * span.page_len,
        context=span.context,
        num_keys=span.pages.shape[1] * span.page_len,
        chunk=span.page_len,
        split_keys=SPLIT_KEYS,
        distances=by_distance,
        lowest=span.lowest,
    )
