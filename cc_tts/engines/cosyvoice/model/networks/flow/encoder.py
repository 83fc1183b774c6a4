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

from cc_tts.engines.cosyvoice.model.networks.flow.transformer import FeedForward, FlowLayer, SelfAttention
from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, PositionSpan, split_heads
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages
from cc_tts.engines.cosyvoice.model.sizes import EncoderConfig, LookaheadConfig

LOOKAHEAD_SLOPE: Final = 0.01
_NORM_EPS: Final = 1e-5
_LAYER_NORM_EPS: Final = 1e-12
_POSITION_BASE: Final = 10_000.0
FRAMES_PER_TOKEN: Final = 2


@dataclass(frozen=True, slots=True)
class TokenCache:
    """The state of the past of many sequences that is kept before the estimator, in pages and slots; written in place."""

    paged: tuple[Pages, ...]
    """Pages of tokens and of frames, [layers, pages, page_len, 2, heads, D] each; none in the third generation."""
    contexts: tuple[Tensor, ...]
    """Inputs of the second lookahead convolution, and of that after the doubling, [slots, kernel - 1, width] each; the
    third generation has only the first.
    """


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


class RelativeAttention(SelfAttention):
    """Attention whose scores also depend on the distance between query and key (§4.3)."""

    def __init__(self, config: EncoderConfig) -> None:
        names = ("linear_q", "linear_k", "linear_v", "linear_out")
        super().__init__(config.width, config.width, config.head_dim, names)
        self.linear_pos = nn.Linear(config.width, config.width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(config.num_heads, config.head_dim))
        self.pos_bias_v = nn.Parameter(torch.zeros(config.num_heads, config.head_dim))

    def project_distances(self, positions: Tensor) -> Tensor:
        """Positions [distances, width] as the scores use them, [1, heads, D, distances]."""
        return split_heads(self.linear_pos(positions)[None], self.head_dim).transpose(-1, -2)

    def scored(self, queries: Tensor, distances: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the queries, and what is added to their scores by distance; projected ``distances`` begin at
        ``span.lowest``.
        """
        assert distances is not None
        near = (queries + self.pos_bias_v[:, None]) / math.sqrt(self.head_dim) @ distances
        return queries + self.pos_bias_u[:, None], near


def _layer(config: EncoderConfig) -> FlowLayer:
    feed_forward = FeedForward(config.width, config.num_hidden, "silu", ("w_1", "w_2"))
    names = ("norm_mha", "self_attn", "norm_ff", "feed_forward")
    return FlowLayer(config.width, RelativeAttention(config), feed_forward, names, _LAYER_NORM_EPS)


def _embed(width: int) -> nn.ModuleDict:
    """A linear map and a norm, whose results are to be scaled by the root of the width (§4.2): the letter A of the
    specification.
    """
    return nn.ModuleDict({"out": nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width, eps=_NORM_EPS))})


class LookaheadLayer(nn.Module):
    """Mixes each token with the few after it (§4.2)."""

    def __init__(self, config: EncoderConfig | LookaheadConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(config.width, config.lookahead_hidden, config.lookahead + 1)
        self.conv2 = CausalConv(config.lookahead_hidden, config.width, config.lookahead_kernel)

    def new_slots(self, num_slots: int) -> TokenCache:
        """Empty contexts of ``num_slots`` slots; slot 0 is scratch."""
        weight = self.conv2.weight
        return TokenCache((), (weight.new_zeros((num_slots, self.conv2.num_past, weight.shape[1])),))

    def forward(self, x: Tensor, span: PositionSpan, contexts: Tensor | None) -> Tensor:
        """Map ``x`` [B, T + lookahead, width] to [B, T, width]."""
        mixed = functional.leaky_relu(self.conv1(x.transpose(1, 2)), LOOKAHEAD_SLOPE).transpose(1, 2)
        return self.conv2.behind(contexts, mixed, span) + x[:, : mixed.shape[1]]


class FlowEncoder(nn.Module):
    """Embedded tokens in, hidden frames out (§4.2, §4.5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self._scale = math.sqrt(config.width)
        self.embed = _embed(config.width)
        self.pre_lookahead_layer = LookaheadLayer(config)
        self.encoders = nn.ModuleList(_layer(config) for _ in range(config.num_layers))
        self.up_layer = nn.ModuleDict({"conv": CausalConv(config.width, config.width, config.up_kernel)})
        self.up_embed = _embed(config.width)
        self.up_encoders = nn.ModuleList(_layer(config) for _ in range(config.num_up_layers))
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

    def new_pages(self, num_slots: int, num_pages: int, page_tokens: int, form: PageForm) -> TokenCache:
        """An arena of pages of ``page_tokens`` and of slots, nothing in it; page 0 and slot 0 are scratch."""
        config, weight = self.config, self.after_norm.weight
        heads = (2, config.num_heads, config.head_dim)
        page_frames = page_tokens * FRAMES_PER_TOKEN
        return TokenCache(
            paged=(
                Pages.new((config.num_layers, num_pages, page_tokens, *heads), weight, form),
                Pages.new((config.num_up_layers, num_pages, page_frames, *heads), weight, form),
            ),
            contexts=(
                weight.new_zeros((num_slots, config.lookahead_kernel - 1, config.width)),
                weight.new_zeros((num_slots, config.up_kernel - 1, config.width)),
            ),
        )

    def forward(
        self,
        x: Tensor,  # embedded tokens, the lookahead included, [B, T + lookahead, width]
        known: Tensor,  # which of them are tokens and not padding, [B, T + lookahead]
        tokens: PositionSpan,  # where the T tokens lie
        frames: PositionSpan,  # where their 2 T frames lie
        cache: TokenCache | None = None,
    ) -> Tensor:
        """Hidden frames of the new tokens, [B, 2 T, width].

        Where a sequence ends, zeros stand for its lookahead, after the first linear map (§4.2).
        """
        of_tokens, of_frames = (None, None) if cache is None else cache.paged
        looking, doubling = (None, None) if cache is None else cache.contexts
        x = (self.embed["out"](x) * self._scale).masked_fill(~known[..., None], 0.0)
        x = self.pre_lookahead_layer(x, tokens, looking)
        x = self._stack(self.encoders, x, tokens, of_tokens)
        x = x.repeat_interleave(FRAMES_PER_TOKEN, dim=1)  # every token becomes two frames (§4.5)
        x = cast("CausalConv", self.up_layer["conv"]).behind(doubling, x, frames)
        x = self.up_embed["out"](x) * self._scale
        x = self._stack(self.up_encoders, x, frames, of_frames)
        return cast("Tensor", self.after_norm(x))

    def _stack(self, layers: nn.ModuleList, x: Tensor, span: PositionSpan, cache: Pages | None) -> Tensor:
        distances = self._distances(layers, span.lowest, span.highest)
        for index, (layer, ours) in enumerate(zip(layers, distances, strict=True)):
            x = layer(x, span, None if cache is None else cache[index], ours)
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
        return (cast("RelativeAttention", layer.self_attn).project_distances(positions) for layer in layers)
