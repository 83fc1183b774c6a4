"""Parts of a block in one launch each, where kernels are used and rows are few: what the networks take for their own path.

A norm, its product and what is added behind it are one kernel each (:mod:`.product_kernels`, :mod:`.convolution_kernels`).

Runs on: the thread that owns the device.
"""

from dataclasses import dataclass
from typing import Final, Self, cast

import torch
from torch import Tensor, nn

from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, JoinedLinears
from cc_tts.engines.cosyvoice.model.networks.pages import LEAST_SCALE, MOST_INT8, Pages

MOST_ROWS: Final = 256
"""Rows of a product, beyond which a library's is taken to be worth its launches; unmeasured on a card."""


@dataclass(frozen=True, slots=True)
class InputNorm:
    """A norm of the inputs of a product: by mean and deviation, or without an offset by the root of the squares."""

    gain: Tensor
    offset: Tensor | None
    eps: float

    @classmethod
    def of(cls, norm: nn.Module) -> Self:
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        offset = norm.bias if isinstance(norm, nn.LayerNorm) else None
        return cls(norm.weight, offset, cast("float", norm.eps))

    @property
    def kind(self) -> str:
        return "rms" if self.offset is None else "layer"


@dataclass(frozen=True, slots=True)
class Turns:
    """How heads are turned to their positions, each pair of channels by an angle."""

    cos: Tensor  # [B, T, D / 2]
    sin: Tensor
    num_heads: int  # the first of queries and of keys
    is_interleaved: bool  # a pair is two channels beside each other, not half a head apart


def are_few(x: Tensor) -> bool:
    """Return whether ``x`` [B, T, C] has so few rows that launches count."""
    return x.shape[0] * x.shape[1] <= MOST_ROWS


def is_for(layers: Pages | tuple[Pages, ...], x: Tensor) -> bool:
    """Return whether a network with the pages of these layers takes these ways for ``x`` [B, T, C]."""
    first = layers if isinstance(layers, Pages) else layers[0]
    return first.fused and are_few(x)


def product(
    x: Tensor,  # [B, T, in]
    linear: nn.Module,  # one linear map, or joined ones
    *,
    norm: InputNorm | None = None,  # of ``x``
    activation: str = "",  # or silu, gelu, gelu_tanh; gated: silu of the first half of the outputs, times the second
    gate: Tensor | None = None,  # [out]: factors of the result
    residual: Tensor | None = None,  # [B, T, out]: what is added to it
) -> Tensor:
    """A linear map with what is before and behind it, [B, T, out]."""
    from cc_tts.engines.cosyvoice.model.networks import product_kernels

    assert isinstance(linear, nn.Linear | JoinedLinears)
    normed = ("", None, None, 0.0) if norm is None else (norm.kind, norm.gain, norm.offset, norm.eps)
    mapped: Tensor = product_kernels.product(x, None, linear.weight, linear.bias, *normed, activation, gate, residual)
    return mapped


def mixed_onto(
    x: Tensor,  # [B, T, out], to which the result is added
    parts: tuple[Tensor, Tensor],  # what attention has mixed
    linear: nn.Module,
    gate: Tensor | None = None,  # [out]
) -> Tensor:
    """Map what attention has mixed, gate it, and add it to ``x``."""
    from cc_tts.engines.cosyvoice.model.networks import product_kernels

    assert isinstance(linear, nn.Linear)
    mapped: Tensor = product_kernels.product(*parts, linear.weight, linear.bias, "", None, None, 0.0, "", gate, x)
    return mapped


def projected(
    x: Tensor,  # [B, T, in]
    norm: InputNorm,
    project: JoinedLinears,
    pages: Pages,  # where keys and values go
    written: Tensor,  # [B, T]: the places of the new positions, page after page
    turns: Turns | None = None,
) -> Tensor:
    """Queries of normed rows, [B, T, heads * D], turned to their positions; keys and values are written.

    PyTorch makes numbers of e4m3, in launches of their own: the kernel cannot be tried without a card there.
    """
    from cc_tts.engines.cosyvoice.model.networks import product_kernels

    if pages.kept.dtype == torch.float8_e4m3fn:
        new = Pages(x.new_empty((*x.shape[:2], *pages.kept.shape[2:])))
        places = torch.arange(written.numel(), device=written.device).view(written.shape)
        queries = projected(x, norm, project, new, places, turns)
        pages.write(new.kept, written)
        return queries
    turning = (0, None, None, False)
    if turns is not None:
        turning = (turns.num_heads, turns.cos, turns.sin, turns.is_interleaved)  # type: ignore[assignment]
    projection: Tensor = product_kernels.project(
        *(x, project.weight, project.bias, norm.kind, norm.gain, norm.offset, norm.eps),
        *(pages.kept, pages.scales, MOST_INT8, LEAST_SCALE, written, *turning),
    )
    return projection


@dataclass(frozen=True, slots=True)
class Contexts:
    """The last inputs of the causal convolutions of a network, which each of them reads and replaces where they are."""

    kept: Tensor  # [slots, kernel - 1, channels of all]
    slots: Tensor  # [B]
    num_kept: Tensor  # [B]: how many new positions the next call has behind it
    channels_at: tuple[int, ...]  # where those of each convolution begin

    def convolve(
        self,
        conv: CausalConv,
        x: Tensor,  # [B, T, in]
        *,
        norm: nn.Module | None = None,  # of the outputs, followed by Mish
        shift: Tensor | None = None,  # [out]: what is added behind that
        shortcut: tuple[nn.Conv1d, Tensor] | None = None,  # a map of each position by itself, and its inputs
    ) -> Tensor:
        from cc_tts.engines.cosyvoice.model.networks import convolution_kernels

        normed = (None, None, 0.0)
        if norm is not None:
            assert isinstance(norm, nn.LayerNorm)
            normed = norm.weight, norm.bias, norm.eps  # type: ignore[assignment]
        other = (None, None, None)
        if shortcut is not None:
            other = shortcut[1], shortcut[0].weight[..., 0], shortcut[0].bias  # type: ignore[assignment]
        convolved: Tensor = convolution_kernels.convolve(
            *(
                x,
                self.kept,
                self.slots,
                self.num_kept,
                self.channels_at[conv.index],
                conv.flat,
                conv.bias,
                *normed,
                shift,
                *other,
            )
        )
        return convolved
