"""Pages of keys and values, and the attention that looks at them (§4.9).

Pages are an arena that many sequences share; a row brings a table of its own. They have the type of the weights, or 8 bits
a number. Attention copies what it looks at out of them or, on cards with Triton (:mod:`.page_kernels`), reads them in place.

Runs on: the thread that owns the device.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts import logs
from cc_tts.engines.cosyvoice.model.networks.layers import SINK_CHUNKS, Span, Window, join_heads, untouched_zeros

PageType = Literal["auto", "int8", "float8"]
_STORED: Final = {"int8": torch.int8, "float8": torch.float8_e4m3fn}
MOST_INT8: Final = 127.0
MOST_FLOAT8: Final = 448.0
LEAST_SCALE: Final = 2.0**-14
"""The least normal float16 of IEEE 754, which scales are: numbers below a hundredth are kept with a step of that."""
FIRST_WITH_KERNELS: Final = (8, 0)  # the least compute capability that Triton compiles for
MOST_APART: Final = 0.05  # of values of about 1 in bfloat16; unmeasured on a card
SPLIT_KEYS: Final = 512  # of the flow that are attended to by one program of a kernel; unmeasured


log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class PageForm:
    """How pages are kept and read; the same for all of a flow."""

    type: PageType = "auto"  # that of the weights, or 8 bits: int8 with a scale for each head and position, or e4m3
    in_place: bool = False  # attention reads them where they lie


@dataclass(frozen=True, slots=True)
class Pages:
    """Keys and values of many sequences, at more dimensions first: of layers, say."""

    kept: Tensor  # [..., pages, page_len, 2, heads, D]
    scales: Tensor | None = None  # [..., pages, page_len, 2, heads] of int8, float16
    in_place: bool = False
    page_len: int = 0  # of pages that lie behind each other: [pages * page_len, 2, heads, D]

    @classmethod
    def new(cls, shape: Sequence[int], like: Tensor, form: PageForm) -> Self:
        """Pages with nothing in them, in the place of ``like``."""
        kept = untouched_zeros(shape, like, _STORED.get(form.type))
        scales = untouched_zeros(shape[:-1], like, torch.float16) if form.type == "int8" else None
        return cls(kept, scales, form.in_place)

    def __getitem__(self, index: int) -> "Pages":
        """Those of one layer, a view."""
        return Pages(self.kept[index], None if self.scales is None else self.scales[index], self.in_place)

    def apart(self) -> "tuple[Pages, ...]":
        """Those of each layer, for compiled code, which copies all of what it writes a part of."""
        scales = [None] * len(self.kept) if self.scales is None else list(self.scales)
        if self.in_place:
            return tuple(Pages(kept, its, in_place=True) for kept, its in zip(self.kept, scales, strict=True))
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


def can_read_in_place(device: torch.device, dtype: torch.dtype, type_: PageType = "auto") -> bool:
    """Return whether the kernels run on a device and attend as PyTorch does, which is tried. Why not is logged."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FIRST_WITH_KERNELS:
        return False
    try:
        apart = most_apart(device, dtype, type_)
    except Exception as error:  # noqa: BLE001 - of Triton, its compiler, the driver: PyTorch can do without any of them
        log.warning("kernels_not_used", detail=f"{type(error).__name__}: {error}"[:200])
        return False
    if not apart <= MOST_APART:
        log.warning("kernels_not_used", detail=f"attention is apart from PyTorch's by {apart:.2g}")
    return apart <= MOST_APART


@torch.inference_mode()
def most_apart(device: torch.device, dtype: torch.dtype, type_: PageType) -> float:
    """Return the largest difference between the two ways to attend, for some numbers: as the flow does, with and without
    scores by distance and a window, and as a step of the language model does.
    """
    generator = torch.Generator(device="cpu").manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    projected, queries, chunk = numbers(2, 8, 4, 2, 64), numbers(2, 14, 1, 64), 8
    table, late = torch.tensor([[1, 1], [2, 2]], device=device), torch.tensor([1, 0], device=device)
    spans = [
        Span.of(
            torch.full_like(late, chunk),
            chunk,
            chunk=chunk,
            starts=starts,
            pages=table,
            slots=table[:, 0],
            window=window,
        )
        for starts, window in ((chunk * late, None), (2 * chunk * late, Window(0, late, 3)))
    ]
    by_distance = numbers(2, 2, chunk, 2 * chunk - spans[0].lowest)
    mixed = []
    for in_place in (True, False):
        pages = Pages.new((3, chunk, 2, 2, 64), projected, PageForm(type_, in_place))
        first, new = projected[:, :, 0].transpose(1, 2), projected[:, :, 1:3]
        mixed += [attend(first, new, pages, span, scores) for span in spans for scores in (None, by_distance)]
    apart = [float((one.float() - other.float()).abs().max()) for one, other in zip(mixed[:4], mixed[4:], strict=True)]
    starts = (chunk * table)[:, 0]  # the runner's numbers are columns of a table
    return max(*apart, _decode_apart(queries, numbers(3, 2, 200, 2, 64), table[:, :1], starts))


def _decode_apart(queries: Tensor, slots: Tensor, table: Tensor, starts: Tensor) -> float:
    """The same for one query of each row and slots [slots, 2, positions, kv_heads, D], which are one page each."""
    from cc_tts.engines.cosyvoice.model.networks import page_kernels

    kept, num_keys = slots.transpose(1, 2), slots.shape[2]
    mixed = page_kernels.attend(queries, kept, table, starts, num_keys, 1, 128)
    keys, values = slots[table[:, 0]].permute(1, 0, 3, 2, 4).repeat_interleave(queries.shape[1] // 2, dim=2)
    seen = torch.arange(num_keys, device=starts.device) <= starts[:, None, None, None]
    expected = functional.scaled_dot_product_attention(queries, keys, values, seen)
    return float((mixed.float() - join_heads(expected).float()).abs().max())


def _movable(numbers: Tensor) -> Tensor:
    """A view that PyTorch can index, which it cannot do with floating-point numbers of 8 bits."""
    return numbers.view(torch.int8) if numbers.dtype == torch.float8_e4m3fn else numbers


def attend(
    queries: Tensor,  # [B, heads, T, D]
    new: Tensor,  # the new keys and values, [B, T, 2, heads, D]
    pages: Pages | None,  # of this layer; the new ones are kept there
    span: Span,
    by_distance: Tensor | None = None,  # what is added to scores, [B, heads, T, distances from ``span.lowest`` on]
) -> Tensor:
    """Mix the values that each query sees, [B, T, heads * D]."""
    if pages is not None:
        assert span.pages is not None
        pages.write(new, span.written)
        if pages.in_place:
            return _in_place(queries, pages, span, by_distance)
        new = pages.read(span.pages, new.dtype)
    keys, values = new.transpose(1, 3).unbind(dim=2)  # [B, heads, K, D] each
    mask = span.visible if span.bias is None else span.bias
    if by_distance is not None:
        mask = _relative(by_distance, span)
    return join_heads(functional.scaled_dot_product_attention(queries, keys, values, mask))


def _relative(by_distance: Tensor, span: Span) -> Tensor:
    picked = (span.distance - span.lowest).clamp(0, by_distance.shape[-1] - 1)[:, None]  # [B, 1, T, K]
    bias = by_distance.gather(-1, picked.expand(-1, by_distance.shape[1], -1, -1))
    return bias.masked_fill(~span.visible, -math.inf)


def _in_place(queries: Tensor, pages: Pages, span: Span, by_distance: Tensor | None) -> Tensor:
    from cc_tts.engines.cosyvoice.model.networks import page_kernels

    assert span.pages is not None
    mixed: Tensor = page_kernels.attend(
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
    return mixed
