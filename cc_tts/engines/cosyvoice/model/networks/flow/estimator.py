"""The flow's estimator: the velocity of every mel frame at a moment of the way from noise to speech (§4.7).

A U-Net with a single level: nothing is ever downsampled. All convolutions look backwards and attention sees to the end of
its chunk, so under the chunk mask the frames of whole chunks never change and their keys and values may be kept.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import fused
from cc_tts.engines.cosyvoice.model.networks.flow.transformer import FeedForward, FlowLayer, SelfAttention
from cc_tts.engines.cosyvoice.model.networks.fused import Contexts
from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, PastInputs, PositionSpan, untouched_zeros
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages
from cc_tts.engines.cosyvoice.model.sizes import EstimatorConfig

_KERNEL: Final = 3
NUM_PAST: Final = _KERNEL - 1  # inputs before the new ones that each convolution sees
_TIME_SCALE: Final = 1000.0
_TIME_BASE: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class EstimatorCache:
    """The state that the estimator keeps of the past of many sequences at one Euler step, or at all of them with one
    more dimension.

    Each sequence has two pages a chunk, and two slots, side by side: with and without condition.
    """

    attention: Pages  # [blocks, pages, page_len, 2, heads, D]
    contexts: Tensor  # the last inputs of all causal convolutions side by side, [slots, kernel - 1, all C]

    def at(self, step: int) -> "EstimatorCache":
        return EstimatorCache(self.attention[step], self.contexts[step])


_Seen = PastInputs | Contexts | None
"""The past of the convolutions of a call; :class:`Contexts` where the parts of a network are fused."""


def time_sinusoids(t: Tensor, width: int) -> Tensor:
    """Sines, then cosines, of the moments ``t`` [B]: [B, width], float32 (§4.7)."""
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=t.device)
    frequencies = torch.exp(steps * (-math.log(_TIME_BASE) / (half - 1)))
    angles = _TIME_SCALE * t.to(torch.float32)[:, None] * frequencies
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


class ConvBlock(nn.Module):
    """Causal convolution, norm over the channels, Mish."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.block = nn.ModuleDict(
            {"0": CausalConv(in_channels, out_channels, _KERNEL), "2": nn.LayerNorm(out_channels)}
        )

    def forward(
        self,
        x: Tensor,
        past: _Seen,
        *,
        shift: Tensor | None = None,  # what is added to every frame, [B, 1, out]
        shortcut: tuple[nn.Conv1d, Tensor] | None = None,  # a map whose results are added, and its inputs
    ) -> Tensor:
        """Map [B, T, in] to [B, T, out]."""
        conv, norm = cast("CausalConv", self.block["0"]), self.block["2"]
        if isinstance(past, Contexts):
            moment = None if shift is None else shift.view(shift.shape[-1])  # one for all rows
            return past.convolve(conv, x, norm=norm, shift=moment, shortcut=shortcut)
        hidden = functional.mish(norm(_convolve(conv, x, past)))
        if shift is not None:
            hidden = hidden + shift
        return hidden if shortcut is None else hidden + _pointwise(*shortcut)


class FlowResBlock(nn.Module):
    """Two convolution blocks with the time between them, around them a shortcut; ``index`` is its place among its kind."""

    index: int = 0

    def __init__(self, in_channels: int, config: EstimatorConfig) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Mish(), nn.Linear(config.num_time, config.channels))
        self.block1 = ConvBlock(in_channels, config.channels)
        self.block2 = ConvBlock(config.channels, config.channels)
        self.res_conv = nn.Conv1d(in_channels, config.channels, 1)

    def shift(self, time: Tensor) -> Tensor:
        """Return what the time [B, time] adds to every frame, [B, 1, channels]."""
        return cast("Tensor", self.mlp(time)[:, None])

    def forward(self, x: Tensor, shifts: Sequence[Tensor], past: _Seen) -> Tensor:
        """Map [B, T, in] to [B, T, channels]."""
        hidden = self.block1(x, past, shift=shifts[self.index])
        return cast("Tensor", self.block2(hidden, past, shortcut=(self.res_conv, x)))


def _layer(config: EstimatorConfig) -> FlowLayer:
    """A layer without positions and without time."""
    names = ("to_q", "to_k", "to_v", "to_out.0")
    attention = SelfAttention(config.channels, config.num_attention, config.head_dim, names, bias=False)
    feed_forward = FeedForward(config.channels, config.num_hidden, "gelu", ("net.0.proj", "net.2"))
    return FlowLayer(config.channels, attention, feed_forward, ("norm1", "attn1", "norm3", "ff"))


class Stage(nn.ModuleList):
    """A residual block, its transformer layers and, in the first and last stage, a convolution after them."""

    def __init__(self, in_channels: int, config: EstimatorConfig, *, with_conv: bool) -> None:
        layers = nn.ModuleList(_layer(config) for _ in range(config.num_blocks))
        parts: list[nn.Module] = [FlowResBlock(in_channels, config), layers]
        if with_conv:
            parts.append(CausalConv(config.channels, config.channels, _KERNEL))
        super().__init__(parts)

    def blocks(
        self, x: Tensor, shifts: Sequence[Tensor], span: PositionSpan, past: _Seen, cache: EstimatorCache | None
    ) -> Tensor:
        """All but the last convolution, from [B, T, in] to [B, T, channels]."""
        x = self[0](x, shifts, past)
        for layer in cast("Sequence[FlowLayer]", self[1]):
            x = layer(x, span, None if cache is None else cache.attention[layer.index])
        return x

    def conv(self, x: Tensor, past: _Seen) -> Tensor:
        """The convolution that ends the first and the last stage, [B, T, channels]."""
        return _convolve(cast("CausalConv", self[2]), x, past)


class Estimator(nn.Module):
    """Velocity of the mel frames (§4.7)."""

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        self.config = config
        first, second = nn.Linear(config.in_channels, config.num_time), nn.Linear(config.num_time, config.num_time)
        self.time_mlp = nn.ModuleDict({"linear_1": first, "linear_2": second})
        self.down_blocks = nn.ModuleList([Stage(config.in_channels, config, with_conv=True)])
        mid = (Stage(config.channels, config, with_conv=False) for _ in range(config.num_mid_blocks))
        self.mid_blocks = nn.ModuleList(mid)
        self.up_blocks = nn.ModuleList([Stage(2 * config.channels, config, with_conv=True)])
        self.final_block = ConvBlock(config.channels, config.channels)
        self.final_proj = nn.Conv1d(config.channels, config.num_mels, 1)
        convs = [module for module in self.modules() if isinstance(module, CausalConv)]
        layers = [module for module in self.modules() if isinstance(module, FlowLayer)]
        self._res_blocks = [module for module in self.modules() if isinstance(module, FlowResBlock)]
        for kind in (convs, layers, self._res_blocks):
            for index, module in enumerate(cast("Sequence[CausalConv | FlowLayer | FlowResBlock]", kind)):
                module.index = index
        self._num_layers = len(layers)
        self._conv_widths = [conv.in_channels for conv in convs]

    def new_pages(
        self, num_steps: int, num_slots: int, num_pages: int, page_frames: int, form: PageForm
    ) -> EstimatorCache:
        """An arena of pages of ``page_frames`` and of slots at each Euler step, nothing in it: :class:`EstimatorCache`."""
        config, weight = self.config, self.final_proj.weight
        heads = config.num_attention // config.head_dim
        place = (2 * num_pages, page_frames, 2, heads, config.head_dim)
        return EstimatorCache(
            attention=Pages.new((num_steps, self._num_layers, *place), weight, form),
            contexts=untouched_zeros((num_steps, 2 * num_slots, NUM_PAST, sum(self._conv_widths)), weight),
        )

    def placed(self, frames: PositionSpan, dtype: torch.dtype) -> PositionSpan:
        """The span of frames with and without condition, with what all layers need of it."""
        return frames.twice(dtype, num_past=NUM_PAST)

    def shifts(self, t: Tensor) -> tuple[Tensor, ...]:
        """Return what the moments ``t`` [B] add in each residual block, [B, 1, channels]; nothing else depends on them."""
        waves = time_sinusoids(t, self.config.in_channels).to(self.final_proj.weight.dtype)
        time = self.time_mlp["linear_2"](functional.silu(self.time_mlp["linear_1"](waves)))
        return tuple(block.shift(time) for block in self._res_blocks)

    def forward(
        self,
        x: Tensor,  # the state, [B, T, mels]
        mu: Tensor,  # the encoder's frames, [B, T, mels]
        shifts: Sequence[Tensor],  # :meth:`shifts` of the moment of each row, or of one for all
        speaker: Tensor,  # the projected speaker vector, [B, speaker]
        cond: Tensor,  # the prompt's mel where there is a prompt, zeros elsewhere, [B, T, mels]
        span: PositionSpan,  # where the frames lie
        cache: EstimatorCache | None = None,  # the past at this Euler step
    ) -> Tensor:
        """Velocity at ``x``, [B, T, mels]."""
        past = self._past(cache, span, x)
        h = torch.cat((x, mu, speaker[:, None].expand(-1, x.shape[1], -1), cond), dim=-1)  # [B, T, in]
        down, up = cast("Stage", self.down_blocks[0]), cast("Stage", self.up_blocks[0])
        skip = down.blocks(h, shifts, span, past, cache)
        h = down.conv(skip, past)
        for stage in self.mid_blocks:
            h = cast("Stage", stage).blocks(h, shifts, span, past, cache)
        h = up.blocks(torch.cat((h, skip), dim=-1), shifts, span, past, cache)
        h = up.conv(h, past)
        velocity = _pointwise(self.final_proj, self.final_block(h, past))
        if isinstance(past, PastInputs):
            past.keep()
        return velocity

    def _past(self, cache: EstimatorCache | None, span: PositionSpan, x: Tensor) -> _Seen:
        if cache is None:
            return None
        if not fused.is_for(cache.attention, x):
            return PastInputs(cache.contexts, span, self._conv_widths)
        assert span.slots is not None
        return Contexts(cache.contexts, span.slots, span.num_kept, (0, *itertools.accumulate(self._conv_widths)))


def _convolve(conv: CausalConv, x: Tensor, past: _Seen) -> Tensor:
    return conv(x) if past is None else past.convolve(conv, x)


def _pointwise(conv: nn.Conv1d, x: Tensor) -> Tensor:
    """A convolution of one position as the linear map it is, on [B, T, C]."""
    return functional.linear(x, conv.weight[..., 0], conv.bias)
