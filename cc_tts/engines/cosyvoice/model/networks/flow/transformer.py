"""The transformer layers of the flow's networks, with the parts of a layer fused where kernels are used (:mod:`..fused`).

Published files call the same parts by other names, so each part is made with its names.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import fused
from cc_tts.engines.cosyvoice.model.networks.fused import InputNorm, Turns
from cc_tts.engines.cosyvoice.model.networks.layers import JoinedLinears, PositionSpan, split_attention
from cc_tts.engines.cosyvoice.model.networks.pages import Pages, attend, in_parts

_ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}
"""The names that :func:`.fused.product` gives them."""


def add_part(module: nn.Module, name: str, part: nn.Module) -> None:
    """Add a part under a name as a file has it, such as ``net.0.proj``."""
    *path, last = name.split(".")
    for step in path:
        if step not in dict(module.named_children()):
            module.add_module(step, nn.Module())
        module = module.get_submodule(step)
    module.add_module(last, part)


class SelfAttention(nn.Module):
    """Attention; ``names`` are those of the maps to queries, keys and values, and of the one behind them.

    With the turns of a span, the first head of queries and keys is turned to its position.
    """

    def __init__(self, width: int, inner: int, head_dim: int, names: tuple[str, ...], *, bias: bool = True) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.maps = (*(nn.Linear(width, inner, bias=bias) for _ in range(3)), nn.Linear(inner, width))
        for name, linear in zip(names, self.maps, strict=True):
            add_part(self, name, linear)
        self.project = JoinedLinears(*self.maps[:3])

    def forward(self, x: Tensor, span: PositionSpan, pages: Pages | None, distances: Tensor | None = None) -> Tensor:
        """Attend from ``x`` [B, T, width]; ``distances`` are for :class:`.encoder.RelativeAttention`."""
        projected = self.project(x)
        if span.turns is not None:
            first = projected.view(*x.shape[:2], 3, -1, self.head_dim)[:, :, :2, 0]  # [B, T, 2, D]: of queries and keys
            first.copy_(_turned(first, *span.turns))
        queries, new = split_attention(projected, self.head_dim)
        queries, by_distance = self.scored(queries, distances)
        return cast("Tensor", self.maps[-1](attend(queries, new, pages, span, by_distance)))

    def scored(self, queries: Tensor, distances: Tensor | None) -> tuple[Tensor, Tensor | None]:  # noqa: ARG002 - see there
        """Return the queries, and what is added to their scores by distance."""
        return queries, None

    def added_to(
        self,
        x: Tensor,
        norm: InputNorm,
        span: PositionSpan,
        pages: Pages,
        distances: Tensor | None = None,
        *,
        gate: Tensor | None = None,  # [width]: factors of the output
    ) -> Tensor:
        """Return ``x`` with the output for the normed ``x`` added, by fused products."""
        if distances is None:
            turns = None if span.turns is None else Turns(*span.turns, num_heads=1, is_interleaved=True)
            queries = fused.projected(x, norm, self.project, pages, span.written, turns)
            queries = queries.view(*queries.shape[:2], -1, self.head_dim).transpose(1, 2)
        else:
            queries, new = split_attention(fused.product(x, self.project, norm=norm), self.head_dim)
            pages.write(new, span.written)
        return fused.mixed_onto(x, in_parts(*self.scored(queries, distances), pages, span), self.maps[-1], gate)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn neighbouring channels of ``x`` [B, T, 2, D] by the angles of [B, T, D / 2]; float32 inside."""
    even, odd = x.to(torch.float32).reshape(*x.shape[:-1], -1, 2).unbind(-1)  # [B, T, 2, D / 2] each
    cos, sin = cos[:, :, None], sin[:, :, None]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2).to(x.dtype)


class FeedForward(nn.Module):
    """Two linear maps with an activation between them; ``names`` are those of the maps."""

    def __init__(self, width: int, num_hidden: int, activation: str, names: tuple[str, str]) -> None:
        super().__init__()
        self._activation = activation
        self._maps = nn.Linear(width, num_hidden), nn.Linear(num_hidden, width)
        for name, linear in zip(names, self._maps, strict=True):
            add_part(self, name, linear)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [B, T, width]."""
        first, second = self._maps
        return cast("Tensor", second(_ACTIVATIONS[self._activation](first(x))))

    def added_to(self, x: Tensor, norm: InputNorm, gate: Tensor | None = None) -> Tensor:
        """Return ``x`` with the output for the normed ``x`` added, by fused products; ``gate`` [width] are its factors."""
        first, second = self._maps
        hidden = fused.product(x, first, norm=norm, activation=self._activation)
        return fused.product(hidden, second, gate=gate, residual=x)


class FlowLayer(nn.Module):
    """Attention and feed-forward, each on the normed input and added to it; ``names`` are those of norm, attention, norm and
    feed-forward. ``index`` is its place among the layers of a network.
    """

    index: int = 0

    def __init__(
        self, width: int, attention: SelfAttention, feed_forward: FeedForward, names: tuple[str, ...], eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.parts = nn.LayerNorm(width, eps=eps), attention, nn.LayerNorm(width, eps=eps), feed_forward
        for name, part in zip(names, self.parts, strict=True):
            self.add_module(name, part)

    def forward(self, x: Tensor, span: PositionSpan, pages: Pages | None, distances: Tensor | None = None) -> Tensor:
        """Return the output, [B, T, width]."""
        first_norm, attention, second_norm, feed_forward = self.parts
        if pages is not None and fused.is_for(pages, x):
            x = attention.added_to(x, InputNorm.of(first_norm), span, pages, distances)
            return feed_forward.added_to(x, InputNorm.of(second_norm))
        x = x + attention(first_norm(x), span, pages, distances)
        return cast("Tensor", x + feed_forward(second_norm(x)))
