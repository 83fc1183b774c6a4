"""The flow: speech tokens become a mel spectrogram (§4).

:meth:`Flow.run_pages` runs what is new and reads the past from pages: keys and values of encoder and estimator (of every
Euler step) and the last inputs of the causal convolutions. Under the chunk mask that gives the frames of a run over the
whole, because nothing behind the end of a chunk is seen in it.

Lengths that shapes depend on are numbers of the host; no tensor is asked for its value.

Runs on: the thread that owns the device.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.flow.dit import DitEstimator
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import (
    FRAMES_PER_TOKEN,
    EncoderCache,
    FlowEncoder,
    LookaheadCache,
    LookaheadLayer,
)
from cc_tts.engines.cosyvoice.model.networks.flow.estimator import Estimator, EstimatorCache
from cc_tts.engines.cosyvoice.model.networks.flow.ode import euler_grid, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, Span, within
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm
from cc_tts.engines.cosyvoice.model.sizes import DitConfig, EncoderConfig, EstimatorConfig, FlowConfig

__all__ = ["Flow", "FlowReference", "fixed_noise"]


@dataclass(frozen=True, slots=True)
class FlowReference:
    """The voice, as the flow needs it."""

    token: Tensor  # [1, P]
    feat: Tensor  # [1, 2 P, mels]
    embedding: Tensor  # [1, embedding]


TokenCache = EncoderCache | LookaheadCache


class Flow(nn.Module):
    """Speech tokens, a prompt and a speaker in, mel frames out (§4).

    The second generation has an encoder and a U-Net, the third a lookahead layer and a diffusion transformer (v3 §4).
    """

    def __init__(self, config: FlowConfig) -> None:
        super().__init__()
        self.config = config
        self.input_embedding = nn.Embedding(config.vocab_size, config.encoder.width)
        self.spk_embed_affine_layer = nn.Linear(config.num_embedding, config.estimator.num_mels)
        if isinstance(config.encoder, EncoderConfig):
            self.encoder = FlowEncoder(config.encoder)
            self.encoder_proj = nn.Linear(config.encoder.width, config.estimator.num_mels)
        else:
            self.pre_lookahead_layer = LookaheadLayer(config.encoder)
        self.decoder = nn.ModuleDict({"estimator": _estimator(config.estimator)})
        self.page_form = PageForm()
        """How its pages are kept and read; to be set before there are any."""
        self._grid = euler_grid(config.num_steps)
        self._shifts: list[tuple[Tensor, ...]] = []

    @property
    def estimator(self) -> Estimator | DitEstimator:
        """The velocity of the frames."""
        return cast("Estimator | DitEstimator", self.decoder["estimator"])

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return self.spk_embed_affine_layer.weight.dtype

    def use_steps(self, num_steps: int) -> None:
        """Solve with so many Euler steps from now on: fewer are quicker and less exact. Before anything is kept of it."""
        self.config = replace(self.config, num_steps=num_steps)
        self._grid = euler_grid(num_steps)

    def new_pages(self, num_slots: int, num_pages: int) -> tuple[TokenCache, EstimatorCache]:
        """Arenas for what comes before the estimator and for it, nothing in them; page 0 and slot 0 are scratch."""
        config, form = self.config, self.page_form
        estimator = self.estimator.new_pages(config.num_steps, num_slots, num_pages, config.chunk_frames, form)
        if isinstance(config.encoder, EncoderConfig):
            return self.encoder.new_pages(num_slots, num_pages, config.chunk_tokens, form), estimator
        return self.pre_lookahead_layer.new_slots(num_slots), estimator

    @torch.no_grad()
    def keep_constants(self, num_chunks: int) -> None:
        """Have what depends on weights, distances and Euler steps alone at hand from now on; of sequences of ``num_chunks``.

        For one type and one place: not to be called before the weights are where they will be used.
        """
        if isinstance(self.config.encoder, EncoderConfig):
            self.encoder.keep_distances(num_chunks, self.config.chunk_tokens)
        self._shifts = [self._shifts_at(moment) for moment, _ in self._grid]
        for module in self.modules():
            if isinstance(module, CausalConv):
                module.keep_flat()

    def _shifts_at(self, moment: float) -> tuple[Tensor, ...]:
        device = self.spk_embed_affine_layer.weight.device
        return self.estimator.shifts(torch.full((1,), moment, dtype=torch.float32, device=device))

    def speaker(self, embedding: Tensor) -> Tensor:
        """The speaker vector [B, speaker] of a speaker embedding [B, embedding] (§4.1)."""
        weight = self.spk_embed_affine_layer.weight
        return cast("Tensor", self.spk_embed_affine_layer(functional.normalize(embedding, dim=1).to(weight.dtype)))

    def run_pages(
        self,
        encoder: TokenCache,
        estimator: EstimatorCache,
        window: Tensor,  # the T tokens that are run and those of the lookahead, [B, T + lookahead]
        counts: Tensor,  # [4, B]: tokens kept so far; tokens of the window that are known, are run, will be kept
        *,
        pages: Tensor,  # of each row, from the start of its sequence, [B, n]; any, say 0, behind the last one
        slots: Tensor,  # where the contexts of each row lie, [B]
        speaker: Tensor,  # vector of each row, [B, speaker]
        cond: Tensor,  # the prompt's mel at those of the 2 T frames that belong to it, zeros elsewhere, [B, 2 T, mels]
        noise: Tensor,  # what the frames start from, [B, 2 T, mels]
    ) -> Tensor:
        """Run new tokens of sequences of any age, whose past lies in pages: [B, 2 T, mels], float32.

        Made of tensors only, so that it can be captured in a CUDA graph. Rows that only fill the batch have counts of zero.
        """
        starts, known, run, kept = counts.unbind()
        width = window.shape[1] - self.config.encoder.lookahead
        tokens, frames = (
            Span.of(
                run * scale,
                width * scale,
                chunk=self.config.chunk_tokens * scale,
                num_kept=kept * scale,
                starts=starts * scale,
                pages=pages,
                slots=slots,
            )
            for scale in (1, FRAMES_PER_TOKEN)
        )
        mu = self._mu(window, within(known, window.shape[1]), tokens, frames, encoder)
        return self._solve(mu, speaker, cond, noise, frames, estimator)

    def _mu(self, window: Tensor, known: Tensor, tokens: Span, frames: Span, cache: TokenCache | None) -> Tensor:
        """Return the frames that the estimator follows, [B, 2 T, mels]."""
        embedded = self.input_embedding(window.clamp(min=0))
        if isinstance(self.config.encoder, EncoderConfig):
            return cast("Tensor", self.encoder_proj(self.encoder(embedded, known, tokens, frames, cache)))
        embedded = embedded.masked_fill(~known[..., None], 0.0)
        context = None if cache is None else cache.lookahead_context
        mixed = self.pre_lookahead_layer(embedded, tokens.num_kept, context, tokens.slots)
        return cast("Tensor", mixed.repeat_interleave(FRAMES_PER_TOKEN, dim=1))

    def _solve(
        self, mu: Tensor, speaker: Tensor, cond: Tensor, x: Tensor, frames: Span, cache: EstimatorCache | None
    ) -> Tensor:
        """Integrate from noise ``x`` [B, T, mels] to mel, with and without condition at once (§4.6)."""
        dtype = mu.dtype
        both = self.estimator.placed(frames, dtype)
        mu, speaker, cond = (torch.cat((part, torch.zeros_like(part))) for part in (mu, speaker, cond.to(dtype)))
        guidance = self.config.guidance
        x = x.to(torch.float32)
        for step, (moment, length) in enumerate(self._grid):
            shifts = self._shifts[step] if self._shifts else self._shifts_at(moment)
            rows = torch.cat((x, x)).to(dtype)
            past = None if cache is None else cache.at(step)
            with_, without = self.estimator(rows, mu, shifts, speaker, cond, both, past).to(torch.float32).chunk(2)
            x = torch.add(x, torch.lerp(with_, without, -guidance), alpha=length)
        return x


def _estimator(config: EstimatorConfig | DitConfig) -> Estimator | DitEstimator:
    return Estimator(config) if isinstance(config, EstimatorConfig) else DitEstimator(config)
