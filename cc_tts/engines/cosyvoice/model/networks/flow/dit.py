"""The flow's estimator in the third generation: a diffusion transformer over mel frames (v3 §4.3).

Attention sees to the end of its chunk, two convolutions look backwards, and everything else is of each frame alone. So
under the chunk mask the frames of whole chunks never change and their keys and values may be kept, as those of the U-Net.

Positions are told by the two convolutions, and by turning the first head alone: so the published weights were trained.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import fused
from cc_tts.engines.cosyvoice.model.networks.flow.estimator import EstimatorCache, time_sinusoids
from cc_tts.engines.cosyvoice.model.networks.flow.transformer import FeedForward, SelfAttention
from cc_tts.engines.cosyvoice.model.networks.fused import InputNorm
from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, PastInputs, PositionSpan, untouched_zeros
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages
from cc_tts.engines.cosyvoice.model.sizes import DitConfig

_NORM_EPS: Final = 1e-6
_ROTARY_BASE: Final = 10_000.0
_PARTS: Final = 6  # that the moment gives to a block: shift, scale and gate, of attention and of the feed-forward


class InputEmbedding(nn.Module):
    """Makes one vector of what is known of a frame; two convolutions tell its position."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.proj = nn.Linear(config.in_channels, config.width)
        convs = [CausalConv(config.width, config.width, config.kernel, config.num_groups) for _ in range(2)]
        for index, conv in enumerate(convs):
            conv.index = index
        parts = {f"conv{conv.index + 1}": nn.Sequential(conv, nn.Mish()) for conv in convs}
        self.conv_pos_embed = nn.ModuleDict(parts)

    def forward(self, x: Tensor, past: PastInputs | None) -> Tensor:
        """Map [B, T, in] to [B, T, width]."""
        hidden = told = self.proj(x)
        for conv, mish in cast("Sequence[tuple[CausalConv, nn.Module]]", list(self.conv_pos_embed.values())):
            told = mish(conv(told) if past is None else past.convolve(conv, told))
        return cast("Tensor", hidden + told)


class Modulation(nn.Module):
    """Parts that a moment gives to what it modulates."""

    def __init__(self, width: int, num_parts: int, scales: Sequence[int]) -> None:
        super().__init__()
        self.linear = nn.Linear(width, num_parts * width)
        self._scales = scales  # which of the parts are

    def forward(self, moment: Tensor) -> Tensor:
        """Return all parts side by side, [B, 1, parts * width]; scales are one more than the file has them."""
        parts = cast("Tensor", self.linear(functional.silu(moment))[:, None])
        width = moment.shape[-1]
        for scale in self._scales:
            parts[..., scale * width : (scale + 1) * width] += 1
        return parts


class Block(nn.Module):
    """Attention and feed-forward, each on the modulated input, gated and added to it; ``index`` is its place."""

    def __init__(self, config: DitConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.attn_norm = Modulation(config.width, _PARTS, scales=(1, 4))
        names = ("to_q", "to_k", "to_v", "to_out.0")
        self.attn = SelfAttention(config.width, config.width, config.head_dim, names)
        self.ff = FeedForward(config.width, config.num_hidden, "gelu_tanh", ("ff.0.0", "ff.2"))

    def forward(self, x: Tensor, parts: Tensor, span: PositionSpan, cache: EstimatorCache | None) -> Tensor:
        """Return the output, [B, T, width]; ``parts`` are those of :class:`Modulation`."""
        shift1, scale1, gate1, shift2, scale2, gate2 = parts.chunk(_PARTS, dim=-1)
        pages = None if cache is None else cache.attention[self.index]
        if pages is not None and fused.is_for(pages, x):
            x = self.attn.added_to(x, _norm(scale1, shift1), span, pages, gate=gate1[0, 0])
            return self.ff.added_to(x, _norm(scale2, shift2), gate2[0, 0])
        mixed = self.attn(_modulated(x, scale1, shift1), span, pages)
        x = torch.addcmul(x, gate1, mixed)
        return torch.addcmul(x, gate2, self.ff(_modulated(x, scale2, shift2)))


def _modulated(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Norm the frames of ``x`` [B, T, width], then scale and shift."""
    width = (x.shape[-1],)
    if scale.shape[0] == 1:  # one moment for all rows
        return functional.layer_norm(x, width, scale[0, 0], shift[0, 0], _NORM_EPS)
    return torch.addcmul(shift, functional.layer_norm(x, width, eps=_NORM_EPS), scale)


def _norm(scale: Tensor, shift: Tensor) -> InputNorm:
    """The same as the norm before a product, of one moment for all rows."""
    return InputNorm(scale[0, 0], shift[0, 0], _NORM_EPS)


class DitEstimator(nn.Module):
    """Velocity of the mel frames; the interface is that of the U-Net (:class:`.estimator.Estimator`)."""

    def __init__(self, config: DitConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        time_mlp = nn.Sequential(nn.Linear(config.num_sinusoids, width), nn.SiLU(), nn.Linear(width, width))
        self.time_embed = nn.ModuleDict({"time_mlp": time_mlp})
        self.input_embed = InputEmbedding(config)
        self.rotary_embed = (
            nn.Module()
        )  # the frequencies of the angles in the file; they are computed instead, always in float32
        self.rotary_embed.register_buffer("inv_freq", torch.zeros(config.head_dim // 2))
        self.transformer_blocks = nn.ModuleList(Block(config, index) for index in range(config.num_blocks))
        self.norm_out = Modulation(config.width, 2, scales=(0,))
        self.proj_out = nn.Linear(config.width, config.num_mels)

    @property
    def _num_past(self) -> int:
        return self.config.kernel - 1

    def new_pages(
        self, num_steps: int, num_slots: int, num_pages: int, page_frames: int, form: PageForm
    ) -> EstimatorCache:
        """An arena of pages of ``page_frames`` and of slots at each Euler step, nothing in it: :class:`EstimatorCache`."""
        config, weight = self.config, self.proj_out.weight
        place = (2 * num_pages, page_frames, 2, config.width // config.head_dim, config.head_dim)
        return EstimatorCache(
            attention=Pages.new((num_steps, config.num_blocks, *place), weight, form),
            contexts=untouched_zeros((num_steps, 2 * num_slots, self._num_past, 2 * config.width), weight),
        )

    def placed(self, frames: PositionSpan, dtype: torch.dtype) -> PositionSpan:
        """The span of frames with and without condition, with what all layers need of it."""
        return self.turned(frames.twice(dtype, num_past=self._num_past))

    def turned(self, span: PositionSpan) -> PositionSpan:
        positions = span.distance[:, :, 0].to(torch.float32)  # from the start of the sequence, where the first key is
        pairs = torch.arange(self.config.head_dim // 2, dtype=torch.float32, device=positions.device)
        frequencies = 1.0 / _ROTARY_BASE ** (2 * pairs / self.config.head_dim)
        angles = positions[..., None] * frequencies  # [B, T, D / 2]
        return replace(span, turns=(angles.cos(), angles.sin()))

    def moment(self, t: Tensor) -> Tensor:
        """Map moments of the way [B] to [B, width], as all blocks need them."""
        waves = time_sinusoids(t, self.config.num_sinusoids)
        return cast("Tensor", self.time_embed["time_mlp"](waves.to(self.proj_out.weight.dtype)))

    def shifts(self, t: Tensor) -> tuple[Tensor, ...]:
        """Return what the moments ``t`` [B] give to each block and to the end; nothing else depends on them."""
        moment = self.moment(t)
        blocks = (cast("Block", block).attn_norm(moment) for block in self.transformer_blocks)
        return (*blocks, self.norm_out(moment))

    def forward(
        self,
        x: Tensor,  # the state, [B, T, mels]
        mu: Tensor,  # the frames of the tokens, [B, T, mels]
        shifts: Sequence[Tensor],  # :meth:`shifts` of the moment of each row, or of one for all
        speaker: Tensor,  # the projected speaker vector, [B, speaker]
        cond: Tensor,  # the prompt's mel where there is a prompt, zeros elsewhere, [B, T, mels]
        span: PositionSpan,  # where the frames lie; :meth:`placed`, or :meth:`turned`
        cache: EstimatorCache | None = None,  # the past at this Euler step
    ) -> Tensor:
        """Velocity at ``x``, [B, T, mels]."""
        width = self.config.width
        past = None if cache is None else PastInputs(cache.contexts, span, (width, width))
        h = self.input_embed(torch.cat((x, cond, mu, speaker[:, None].expand(-1, x.shape[1], -1)), dim=-1), past)
        if past is not None:
            past.keep()
        for block, parts in zip(self.transformer_blocks, shifts[:-1], strict=True):
            h = block(h, parts, span, cache)
        scale, shift = shifts[-1].chunk(2, dim=-1)  # in another order than in the blocks
        return cast("Tensor", self.proj_out(_modulated(h, scale, shift)))
