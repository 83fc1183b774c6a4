"""The flow's encoder: speech tokens at 25 a second become hidden frames at 50 a second (§4.2 to §4.5).

Positions enter attention only as distances, and everything but the three tokens of lookahead looks backwards or within
its chunk. A prefix of whole chunks therefore never changes, and its keys and values may be kept.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import fused
from cc_tts.engines.cosyvoice.model.networks.fused import Norm
from cc_tts.engines.cosyvoice.model.networks.layers import (
    CausalConv,
    JoinedLinears,
    Span,
    split_attention,
    split_heads,
)
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages, attend, in_parts
from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig, LookaheadConfig

LOOKAHEAD_SLOPE: Final = 0.01
_NORM_EPS: Final = 1e-5
_LAYER_NORM_EPS: Final = 1e-12
_POSITION_BASE: Final = 10_000.0
FRAMES_PER_TOKEN: Final = 2


@dataclass(frozen=True, slots=True)
class EncoderCache:
    """The state that the encoder keeps of the past of many sequences, in pages and slots; written in place."""

    tokens: Pages  # [layers, pages, page_len, 2, heads, D]
    frames: Pages  # [up layers, pages, page_len, 2, heads, D]
    lookahead_context: Tensor  # [slots, kernel - 1, width]: inputs of the second lookahead convolution
    up_context: Tensor  # [slots, kernel - 1, width]: inputs of the convolution after the doubling

    @property
    def paged(self) -> tuple[Pages, ...]:
        """Return all pages, [layers, pages, ...]."""
        return self.tokens, self.frames

    @property
    def contexts(self) -> tuple[Tensor, ...]:
        """The tensors of slots, [slots, ...]."""
        return self.lookahead_context, self.up_context


@dataclass(frozen=True, slots=True)
class LookaheadCache:
    """The state that a lookahead layer by itself keeps of the past of many sequences; it has no pages."""

    lookahead_context: Tensor  # [slots, kernel - 1, hidden]

    @property
    def paged(self) -> tuple[Pages, ...]:
        return ()

    @property
    def contexts(self) -> tuple[Tensor, ...]:
        """The tensors of slots, [slots, ...]."""
        return (self.lookahead_context,)


def relative_positions(lowest: int, highest: int, width: int, device: torch.device) -> Tensor:
    """Sines and cosines of the distances ``lowest`` to ``highest``: [distances, width], float32 (§4.3)."""
    distances = torch.arange(lowest, highest + 1, dtype=torch.float32, device=device)
    exponents = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    angles = distances[:, None] * torch.exp(exponents * (-math.log(_POSITION_BASE) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


@dataclass(frozen=True, slots=True)
class _KeptDistances:
    """Projected distances of a stack of layers, both ends counted in."""

    lowest: int
    highest: int
    by_layer: tuple[Tensor, ...]  # [1, heads, D, distances]


class RelativeAttention(nn.Module):
    """Attention whose scores also depend on the distance between query and key (§4.3)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.width
        self.head_dim = config.head_dim
        self.linear_q = nn.Linear(width, width)
        self.linear_k = nn.Linear(width, width)
        self.linear_v = nn.Linear(width, width)
        self.linear_out = nn.Linear(width, width)
        self.project = JoinedLinears(self.linear_q, self.linear_k, self.linear_v)
        self.linear_pos = nn.Linear(width, width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(config.num_heads, config.head_dim))
        self.pos_bias_v = nn.Parameter(torch.zeros(config.num_heads, config.head_dim))

    def project_distances(self, positions: Tensor) -> Tensor:
        """Positions [distances, width] as the scores use them, [1, heads, D, distances]."""
        return split_heads(self.linear_pos(positions)[None], self.head_dim).transpose(-1, -2)

    def forward(self, x: Tensor, distances: Tensor, span: Span, cache: Pages | None) -> Tensor:
        """Attend from ``x`` [B, T, width]; ``distances`` are projected positions and begin at ``span.lowest``."""
        queries, new = split_attention(self.project(x), self.head_dim)
        mixed = attend(queries + self.pos_bias_u[:, None], new, cache, span, self._near(queries, distances))
        return cast("Tensor", self.linear_out(mixed))

    def added_to(self, x: Tensor, norm: Norm, distances: Tensor, span: Span, cache: Pages) -> Tensor:
        """Return ``x`` with the output for the normed ``x`` added."""
        queries, new = split_attention(fused.product(x, self.project, norm=norm), self.head_dim)
        cache.write(new, span.written)
        parts = in_parts(queries + self.pos_bias_u[:, None], cache, span, self._near(queries, distances))
        return fused.mixed_onto(x, parts, self.linear_out)

    def _near(self, queries: Tensor, distances: Tensor) -> Tensor:
        """Return what is added to the scores, by distance."""
        return (queries + self.pos_bias_v[:, None]) / math.sqrt(self.head_dim) @ distances


class FeedForward(nn.Module):
    """Two linear maps with SiLU between them (§4.3)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.w_1 = nn.Linear(config.width, config.num_hidden)
        self.w_2 = nn.Linear(config.num_hidden, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [B, T, width]."""
        return cast("Tensor", self.w_2(functional.silu(self.w_1(x))))

    def added_to(self, x: Tensor, norm: Norm) -> Tensor:
        """Return ``x`` with the output for the normed ``x`` added."""
        return fused.product(fused.product(x, self.w_1, norm=norm, activation="silu"), self.w_2, residual=x)


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each on the normed input and added to it (§4.3)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(config)
        self.feed_forward = FeedForward(config)
        self.norm_mha = nn.LayerNorm(config.width, eps=_LAYER_NORM_EPS)
        self.norm_ff = nn.LayerNorm(config.width, eps=_LAYER_NORM_EPS)

    def forward(self, x: Tensor, distances: Tensor, span: Span, cache: Pages | None) -> Tensor:
        """Return the output, [B, T, width]."""
        if cache is not None and fused.is_for(cache, x):
            x = self.self_attn.added_to(x, Norm.of(self.norm_mha), distances, span, cache)
            return self.feed_forward.added_to(x, Norm.of(self.norm_ff))
        x = x + self.self_attn(self.norm_mha(x), distances, span, cache)
        return cast("Tensor", x + self.feed_forward(self.norm_ff(x)))


class ScaledEmbed(nn.Module):
    """A linear map and a norm, scaled by the root of the width (§4.2): the letter A of the specification."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, eps=_NORM_EPS))
        self.scale = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [B, T, width]."""
        return cast("Tensor", self.out(x) * self.scale)


class LookaheadLayer(nn.Module):
    """Mixes each token with the few after it (§4.2)."""

    def __init__(self, config: EncoderConfig | LookaheadConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(config.width, config.lookahead_hidden, config.lookahead + 1)
        self.conv2 = CausalConv(config.lookahead_hidden, config.width, config.lookahead_kernel)

    def new_slots(self, num_slots: int) -> LookaheadCache:
        """Contexts of so many slots, nothing in them; slot 0 is scratch."""
        weight = self.conv2.weight
        return LookaheadCache(weight.new_zeros((num_slots, self.conv2.num_past, weight.shape[1])))

    def forward(self, x: Tensor, num_kept: Tensor, context: Tensor | None, slots: Tensor | None = None) -> Tensor:
        """Map ``x`` [B, T + lookahead, width] to [B, T, width]."""
        mixed = functional.leaky_relu(self.conv1(x.transpose(1, 2)), LOOKAHEAD_SLOPE).transpose(1, 2)
        return cast("Tensor", self.conv2(mixed, context, num_kept, slots)) + x[:, : mixed.shape[1]]


class UpLayer(nn.Module):
    """Every token becomes two frames, then a causal convolution (§4.5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.conv = CausalConv(config.width, config.width, config.up_kernel)

    def forward(self, x: Tensor, num_kept: Tensor, context: Tensor | None, slots: Tensor | None = None) -> Tensor:
        """Map [B, T, width] to [B, 2 T, width]; ``num_kept`` counts frames."""
        return cast("Tensor", self.conv(x.repeat_interleave(FRAMES_PER_TOKEN, dim=1), context, num_kept, slots))


class FlowEncoder(nn.Module):
    """Embedded tokens in, hidden frames out (§4.2, §4.5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = ScaledEmbed(config.width)
        self.pre_lookahead_layer = LookaheadLayer(config)
        self.encoders = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.up_layer = UpLayer(config)
        self.up_embed = ScaledEmbed(config.width)
        self.up_encoders = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_up_layers))
        self.after_norm = nn.LayerNorm(config.width, eps=_NORM_EPS)
        self._kept: dict[nn.ModuleList, _KeptDistances] = {}

    @torch.no_grad()
    def keep_distances(self, num_chunks: int, chunk: int) -> None:
        """Project all distances of sequences of ``num_chunks`` chunks of ``chunk`` tokens once, for all calls to come.

        They depend on the weights alone. Projected in every call they cost more than the rest of the encoder, and more
        the longer a sequence lasts. Longer sequences still have theirs projected.
        """
        for layers, scale in ((self.encoders, 1), (self.up_encoders, FRAMES_PER_TOKEN)):
            lowest, highest = 1 - chunk * scale, num_chunks * chunk * scale - 1
            known = self._kept.get(layers)
            if known is None or known.lowest > lowest or known.highest < highest:
                self._kept[layers] = _KeptDistances(lowest, highest, tuple(self._project(layers, lowest, highest)))

    def new_pages(self, num_slots: int, num_pages: int, page_tokens: int, form: PageForm) -> EncoderCache:
        """An arena of pages of ``page_tokens`` and of slots, nothing in it; page 0 and slot 0 are scratch."""
        config, weight = self.config, self.after_norm.weight
        heads = (2, config.num_heads, config.head_dim)
        page_frames = page_tokens * FRAMES_PER_TOKEN
        return EncoderCache(
            tokens=Pages.new((config.num_layers, num_pages, page_tokens, *heads), weight, form),
            frames=Pages.new((config.num_up_layers, num_pages, page_frames, *heads), weight, form),
            lookahead_context=weight.new_zeros((num_slots, config.lookahead_kernel - 1, config.width)),
            up_context=weight.new_zeros((num_slots, config.up_kernel - 1, config.width)),
        )

    def forward(
        self,
        x: Tensor,  # embedded tokens, the lookahead included, [B, T + lookahead, width]
        known: Tensor,  # which of them are tokens and not padding, [B, T + lookahead]
        tokens: Span,  # where the T tokens lie
        frames: Span,  # where their 2 T frames lie
        cache: EncoderCache | None = None,
    ) -> Tensor:
        """Hidden frames of the new tokens, [B, 2 T, width].

        Where a sequence ends, zeros stand for its lookahead, after the first linear map (§4.2).
        """
        x = self.embed(x).masked_fill(~known[..., None], 0.0)
        context = None if cache is None else cache.lookahead_context
        x = self.pre_lookahead_layer(x, tokens.num_kept, context, tokens.slots)
        x = self._stack(self.encoders, x, tokens, None if cache is None else cache.tokens)
        x = self.up_layer(x, frames.num_kept, None if cache is None else cache.up_context, frames.slots)
        x = self.up_embed(x)
        x = self._stack(self.up_encoders, x, frames, None if cache is None else cache.frames)
        return cast("Tensor", self.after_norm(x))

    def _stack(self, layers: nn.ModuleList, x: Tensor, span: Span, cache: Pages | None) -> Tensor:
        distances = self._distances(layers, span.lowest, span.highest)
        for index, (layer, ours) in enumerate(zip(layers, distances, strict=True)):
            x = layer(x, ours, span, None if cache is None else cache[index])
        return x

    def _distances(self, layers: nn.ModuleList, lowest: int, highest: int) -> Iterator[Tensor]:
        """Projected distances of each layer, [1, heads, D, distances]."""
        kept = self._kept.get(layers)
        if kept is None or kept.lowest > lowest or kept.highest < highest:
            return self._project(layers, lowest, highest)
        return (ours[..., lowest - kept.lowest : highest + 1 - kept.lowest] for ours in kept.by_layer)

    def _project(self, layers: nn.ModuleList, lowest: int, highest: int) -> Iterator[Tensor]:
        weight = self.after_norm.weight
        positions = relative_positions(lowest, highest, self.config.width, weight.device).to(weight.dtype)
        return (cast("EncoderLayer", layer).self_attn.project_distances(positions) for layer in layers)
