"""Layers that the networks share: masks, causal convolutions with context, caches of keys and values, joined linear maps.

Sequences are [batch, time, channel] in the flow. Lengths are tensors and never read on the host, so that everything here
can be captured in a CUDA graph. A cache belongs to the caller and is written in place: an arena of pages that many sequences
share, each page one chunk of one sequence. A row brings a table of its pages; page 0 belongs to nobody and takes what need
not be remembered. Contexts of convolutions lie in slots, slot 0 likewise.

Runs on: the thread that owns the device.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


def within(lengths: Tensor, width: int) -> Tensor:
    """Return which of ``width`` places lie within each row's length [B]: [B, width]."""
    return torch.arange(width, device=lengths.device) < lengths[:, None]


def untouched_zeros(shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros in the place of ``like`` and in its type, or another one, for caches that stay mostly empty: on a CPU their
    memory is only taken where something is written.
    """
    dtype = dtype or like.dtype
    if like.device.type == "cpu":
        num_bytes = math.prod(shape) * dtype.itemsize
        return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(tuple(shape))
    return like.new_zeros(tuple(shape), dtype=dtype)


SINK_CHUNKS: Final = 1
"""The chunks at the start of a sequence that a window never leaves out; unmeasured."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of its past that a position sees: :data:`SINK_CHUNKS`, and ``num_chunks`` before its own."""

    num_chunks: int
    left_out: Tensor  # [B]: chunks behind those at the start that are not among the pages of each row; 0 without pages
    max_chunks: int  # of a sequence


@dataclass(frozen=True, slots=True)
class PositionSpan:
    """Where the new positions of a call lie in their sequences, and what each of them sees; one for all layers (§4.4)."""

    num_kept: Tensor  # [B]: how many new positions of each row belong to the past of the next call
    starts: Tensor  # [B]: the position of the first new one
    ends: Tensor  # [B]: no key from there on is seen
    distance: Tensor  # [B, T, K]: position of the query less that of the key
    visible: Tensor  # [B, 1, T, K]
    written: Tensor  # [B, T]: the place in the cache of each new position; padding goes to the scratch page
    lowest: int  # no visible key is further ahead than this, a negative distance
    highest: int  # and none further behind
    pages: Tensor | None = None  # [B, n]: of each row, from the start of its sequence; None: there is no cache
    slots: Tensor | None = None  # [B]: where the contexts of each row lie; with pages
    page_len: int = 0  # positions of a page
    left_out: Tensor | None = None  # [B]: with a window, see :class:`Window`
    context: int = 0  # positions before its own chunk that a query sees in a window
    bias: Tensor | None = None  # ``visible`` as what is added to scores, where many layers need it
    last: Tensor | None = None  # [B, kernel - 1]: see :func:`last_inputs`, where many convolutions need it
    turns: tuple[Tensor, Tensor] | None = None  # cosines and sines of the positions, where many layers need them

    @classmethod
    def of(
        cls,
        num_new: Tensor,  # real positions of each row, [B]
        width: int,  # positions of the tensors, the same for all rows
        *,
        chunk: int | None,  # a query sees to the end of its own chunk, from the start of the sequence; None: everything
        num_kept: Tensor | None = None,  # real positions that are past for the next call, [B]; all, when left out
        starts: Tensor | None = None,  # how many positions each row has in the cache already, [B]; none, when left out
        pages: Tensor | None = None,  # [B, n], each as long as a chunk; attention looks at all of them
        slots: Tensor | None = None,  # where the contexts of each row lie, [B]; needed with pages
        window: Window | None = None,  # how far a query sees, in chunks; to the start of the sequence, when left out
    ) -> Self:
        """A span of new positions. What is not kept is run again, from the same place.

        The pages of a row hold at least ``max(starts + num_new)`` positions, less those that its window leaves out; behind
        those that it has there may be any, say 0. Without pages attention looks at the new positions.
        """
        page_len, num_keys = 0, width
        if pages is not None:
            assert chunk is not None
            page_len, num_keys = chunk, pages.shape[1] * chunk
        device = num_new.device
        steps = torch.arange(width, device=device)
        first = torch.zeros_like(num_new) if starts is None else starts
        queries = first[:, None] + steps  # [B, T]
        ends = (first + num_new).clamp(min=1)
        keys = torch.arange(num_keys, device=device)  # of all rows, or [B, 1, K]
        left_out = None if window is None or pages is None else window.left_out[:, None]  # [B, 1]
        if left_out is not None:
            keys = (keys + torch.where(keys < SINK_CHUNKS * page_len, 0, left_out * page_len))[:, None]
        visible = keys < ends[:, None, None]  # [B, 1, K]
        visible = visible.expand(-1, width, -1)
        if chunk is not None:
            own = queries // chunk
            visible = visible & (keys < (own + 1)[..., None] * chunk)
            if window is not None:
                visible &= (keys >= (own - window.num_chunks)[..., None] * chunk) | (keys < SINK_CHUNKS * chunk)
        places = queries
        if pages is not None:
            in_table = queries // page_len if left_out is None else queries // page_len - left_out
            in_table = in_table.clamp(max=pages.shape[1] - 1)
            places = pages.gather(1, in_table) * page_len + queries % page_len
        written = torch.where(steps < num_new[:, None], places, 0)
        distance = queries[..., None] - keys
        lowest = 1 - (width if chunk is None else chunk)
        highest = num_keys - 1 if left_out is None or window is None else window.max_chunks * page_len - 1
        kept = num_new if num_kept is None else num_kept
        span = cls(kept, first, ends, distance, visible[:, None], written, lowest, highest, pages, slots, page_len)
        if left_out is None or window is None:
            return span
        return replace(span, left_out=left_out[:, 0], context=window.num_chunks * page_len)

    def twice(self, dtype: torch.dtype, *, num_past: int) -> Self:
        """The span of the two halves of a batch, with and without condition (§4.6), for the estimator.

        Page and slot i become 2 i and 2 i + 1. It has the bias, and the places for convolutions over ``num_past`` inputs, so
        that not every layer makes them anew.
        """
        written, pages, slots = self.written.repeat(2, 1), None, None
        if self.pages is not None and self.slots is not None:
            first = self.written + self.written // self.page_len * self.page_len
            written = torch.cat((first, first + self.page_len))
            pages = torch.cat((2 * self.pages, 2 * self.pages + 1))
            slots = torch.cat((2 * self.slots, 2 * self.slots + 1))
        visible, num_kept = self.visible.repeat(2, 1, 1, 1), self.num_kept.repeat(2)
        return replace(
            self,
            num_kept=num_kept,
            starts=self.starts.repeat(2),
            ends=self.ends.repeat(2),
            left_out=None if self.left_out is None else self.left_out.repeat(2),
            distance=self.distance.repeat(2, 1, 1),
            visible=visible,
            written=written,
            pages=pages,
            slots=slots,
            bias=torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, -math.inf),
            last=last_inputs(num_kept, num_past),
        )


class JoinedLinears(nn.Module):
    """Linear maps of the same input; their results lie side by side. All have a bias, or none.

    After :meth:`join` they are run as one. Their weights are views of one tensor then, so that nothing is held twice; until
    they are loaded or moved again. The maps stay parts of the module that has them, under their own names.
    """

    def __init__(self, *maps: nn.Linear) -> None:
        super().__init__()
        self.maps = maps
        self._parts: tuple[Tensor, ...] = ()  # the joined weight and perhaps bias

    @property
    def is_joined(self) -> bool:
        """Return whether the maps are run as one."""
        return bool(self._parts)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., all out]."""
        if self._parts:
            return functional.linear(x, *self._parts)
        return torch.cat([each(x) for each in self.maps], dim=-1)

    @property
    def weight(self) -> Tensor:
        """The weight of all, once they are joined."""
        return self._parts[0]

    @property
    def bias(self) -> Tensor | None:
        return self._parts[1] if len(self._parts) > 1 else None

    @property
    def num_bytes(self) -> int:
        return sum(parameter.nbytes for each in self.maps for parameter in each.parameters())

    @torch.no_grad()
    def join(self) -> None:
        """Run the maps as one from now on."""
        parts = []
        for name, first in list(self.maps[0].named_parameters()):
            whole = nn.Parameter(torch.cat([getattr(each, name) for each in self.maps]), first.requires_grad)
            parts.append(whole)
            sizes = [each.out_features for each in self.maps]
            for each, part in zip(self.maps, torch.split(whole, sizes), strict=True):
                setattr(each, name, nn.Parameter(part, requires_grad=first.requires_grad))
        self._parts = tuple(parts)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch calls it so
        """Be apart again: the maps are moved or cast each by itself."""
        self._parts = ()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        """Be apart again: the maps may get tensors of their own."""
        self._parts = ()
        super()._load_from_state_dict(*args)


def join_linears(network: nn.Module, *, most_bytes: int | None = None) -> None:
    """Join all maps of a network that have the same input: fewer operators, for a device that waits for each launch.

    Nothing is joined if that were more than ``most_bytes``: pages of a file would become memory of the process.
    """
    parts = [module for module in network.modules() if isinstance(module, JoinedLinears)]
    if most_bytes is None or sum(part.num_bytes for part in parts) <= most_bytes:
        for part in parts:
            part.join()


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """[B, T, heads * D] as [B, heads, T, D]."""
    return x.reshape(*x.shape[:2], -1, head_dim).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, heads, T, D] as [B, T, heads * D]."""
    return x.transpose(1, 2).flatten(2)


def split_attention(projected: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Queries [B, heads, T, D], and keys with values [B, T, 2, heads, D], of [B, T, 3 * heads * D]."""
    parts = projected.view(*projected.shape[:2], 3, -1, head_dim)
    return parts[:, :, 0].transpose(1, 2), parts[:, :, 1:]


class PastInputs:
    """The contexts that the causal convolutions of one call see, side by side. What they leave is written once, by
    :meth:`keep`.
    """

    def __init__(self, contexts: Tensor, span: PositionSpan, widths: Sequence[int]) -> None:
        self._contexts = contexts  # [slots, kernel - 1, all C]
        assert span.slots is not None
        self._slots = span.slots
        self._last = last_inputs(span.num_kept, contexts.shape[1]) if span.last is None else span.last
        self._seen = torch.split(contexts.index_select(0, span.slots), list(widths), dim=2)
        self._left = list(self._seen)

    def before(self, x: Tensor, index: int) -> Tensor:
        """New inputs [B, T, C] of a convolution with those it sees before them: [B, kernel - 1 + T, C]."""
        joined = torch.cat((self._seen[index], x), dim=1)
        self._left[index] = joined.gather(1, self._last[..., None].expand(-1, -1, x.shape[2]))
        return joined

    def convolve(self, conv: "CausalConv", x: Tensor) -> Tensor:
        """Convolve new inputs [B, T, C] with those before them."""
        return conv.over(self.before(x, conv.index))

    def keep(self) -> None:
        """Every convolution has been run."""
        self._contexts[self._slots] = torch.cat(self._left, dim=2)


def last_inputs(num_kept: Tensor, num_past: int) -> Tensor:
    """Return where, behind ``num_past`` inputs and the new ones, the last ``num_past`` lie before the next call, [B,
    num_past].
    """
    return num_kept[:, None] + torch.arange(num_past, device=num_kept.device)


class CausalConv(nn.Conv1d):
    """A convolution that sees its own position and those before it; ``index`` is its place among those of a network."""

    index: int = 0

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, groups: int = 1) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups=groups)
        self.num_past = kernel_size - 1
        self._flat: Tensor | None = None

    def keep_flat(self) -> None:
        """Be a linear map of inputs side by side from now on, which is quicker than a convolution of few channels.

        For one type and one place: not to be called before the weight is where it will be used.
        """
        if self.groups == 1:
            self._flat = self.weight.transpose(1, 2).flatten(1)

    @property
    def flat(self) -> Tensor:
        """The weight of that linear map, [out, kernel * in]."""
        assert self._flat is not None
        return self._flat

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``x`` [B, T, C], before which there is nothing."""
        return self.over(functional.pad(x, (0, 0, self.num_past, 0)))

    def behind(self, contexts: Tensor | None, x: Tensor, span: PositionSpan) -> Tensor:
        """Convolve new positions ``x`` [B, T, C] behind the last inputs before them, which are replaced. ``contexts``
        [slots, kernel - 1, C] are those of this convolution alone; without them nothing is before the positions.
        """
        if contexts is None:
            return cast("Tensor", self(x))
        assert span.slots is not None
        joined = torch.cat((contexts.index_select(0, span.slots), x), dim=1)
        last = last_inputs(span.num_kept, self.num_past)
        contexts[span.slots] = joined.gather(1, last[..., None].expand(-1, -1, x.shape[-1]))
        return self.over(joined)

    def over(self, joined: Tensor) -> Tensor:
        """Convolve positions with those before them, [B, kernel - 1 + T, C]."""
        if self._flat is not None:
            num_new = joined.shape[1] - self.num_past
            shifted = [joined[:, first : first + num_new] for first in range(self.num_past + 1)]
            return functional.linear(torch.cat(shifted, dim=2), self._flat, self.bias)
        return super().forward(joined.transpose(1, 2)).transpose(1, 2)
