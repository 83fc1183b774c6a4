"""The flow: speech tokens become a mel spectrogram (§4).

:meth:`Flow.run_pages` runs what is new and reads the past from pages: keys and values of encoder and estimator (of every
Euler step) and the last inputs of the causal convolutions. Under the chunk mask that gives the frames of a run over the
whole, because nothing behind the end of a chunk is seen in it.

Lengths that shapes depend on are numbers of the host; no tensor is asked for its value.

Runs on: the thread that owns the device.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.compiling import compiled, vary, vary_all
from cc_tts.engines.cosyvoice.model.networks.flow.dit import DitEstimator
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import (
    FRAMES_PER_TOKEN,
    FlowEncoder,
    LookaheadLayer,
    TokenCache,
)
from cc_tts.engines.cosyvoice.model.networks.flow.estimator import Estimator, EstimatorCache
from cc_tts.engines.cosyvoice.model.networks.flow.ode import euler_grid, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.layers import CausalConv, PositionSpan, Window, within
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, Pages
from cc_tts.engines.cosyvoice.model.sizes import DitConfig, EncoderConfig, EstimatorConfig, FlowConfig

__all__ = ["Flow", "FlowReference", "fixed_noise"]


@dataclass(frozen=True, slots=True)
class FlowReference:
    token: Tensor  # [1, P]
    feat: Tensor  # [1, 2 P, mels]
    embedding: Tensor  # [1, embedding]


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of the solver, whose moment and length are fixed."""

    shifts: tuple[Tensor, ...]  # what its moment gives to the estimator
    length: Tensor  # float32


@dataclass(frozen=True, slots=True)
class _Guided:
    """The inputs that all Euler steps of a call share, with and without condition."""

    mu: Tensor  # [2 B, T, mels]
    speaker: Tensor  # [2 B, speaker]
    cond: Tensor  # [2 B, T, mels]
    span: PositionSpan


_Cache = TypeVar("_Cache", TokenCache, EstimatorCache)
_Euler = Callable[[Tensor, _Guided, _Step, EstimatorCache | None], Tensor]


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
        self._max_chunks = 0
        self._steps: list[_Step] = []

    @property
    def estimator(self) -> Estimator | DitEstimator:
        return cast("Estimator | DitEstimator", self.decoder["estimator"])

    @property
    def dtype(self) -> torch.dtype:
        return self.spk_embed_affine_layer.weight.dtype

    def use(self, *, num_steps: int, context_chunks: int = 0) -> None:
        """Solve with ``num_steps`` Euler steps from now on, and let each chunk see ``context_chunks`` before it: fewer are
        faster and less exact. Call it before :meth:`keep_constants`.
        """
        self.config = replace(self.config, num_steps=num_steps, context_chunks=context_chunks)
        self._grid = euler_grid(num_steps)

    def window(self, left_out: Tensor) -> Window | None:
        """How far a position sees, where ``left_out`` [B] chunks are not among the pages; None: to the start."""
        num_chunks = self.config.context_chunks
        return Window(num_chunks, left_out, self._max_chunks) if num_chunks else None

    def new_pages(self, num_slots: int, num_pages: int) -> tuple[TokenCache, EstimatorCache]:
        """Arenas for what comes before the estimator and for it, nothing in them; page 0 and slot 0 are scratch."""
        config, form = self.config, self.page_form
        estimator = self.estimator.new_pages(config.num_steps, num_slots, num_pages, config.chunk_frames, form)
        if isinstance(config.encoder, EncoderConfig):
            return self.encoder.new_pages(num_slots, num_pages, config.chunk_tokens, form), estimator
        return self.pre_lookahead_layer.new_slots(num_slots), estimator

    @torch.no_grad()
    def keep_constants(self, num_chunks: int) -> None:
        """Precompute what depends on weights, distances and Euler steps alone, for sequences of ``num_chunks``.

        The results have one type and device: call it when the weights are where they will be used.
        """
        self._max_chunks = num_chunks
        if isinstance(self.config.encoder, EncoderConfig):
            self.encoder.keep_distances(num_chunks, self.config.chunk_tokens)
        self._steps = [self._step(*step) for step in self._grid]
        for module in self.modules():
            if isinstance(module, CausalConv):
                module.keep_flat()

    def _step(self, moment: float, length: float) -> _Step:
        device = self.spk_embed_affine_layer.weight.device
        moments, lengths = (torch.tensor(each, dtype=torch.float32, device=device) for each in ([moment], length))
        return _Step(self.estimator.shifts(moments), lengths)

    def speaker(self, embedding: Tensor) -> Tensor:
        """The speaker vector [B, speaker] of a speaker embedding [B, embedding] (§4.1)."""
        weight = self.spk_embed_affine_layer.weight
        return cast("Tensor", self.spk_embed_affine_layer(functional.normalize(embedding, dim=1).to(weight.dtype)))

    def run_pages(
        self,
        encoder: TokenCache,
        estimator: EstimatorCache,
        window: Tensor,  # the T tokens that are run and those of the lookahead, [B, T + lookahead]
        counts: Tensor,  # [5, B]: tokens kept; of the window known, run, to be kept; chunks left out of ``pages``
        *,
        pages: Tensor,  # of each row, from the start, less those left out, [B, n]; any, say 0, behind the last one
        slots: Tensor,  # where the contexts of each row lie, [B]
        speaker: Tensor,  # vector of each row, [B, speaker]
        cond: Tensor,  # the prompt's mel at those of the 2 T frames that belong to it, zeros elsewhere, [B, 2 T, mels]
        noise: Tensor,  # what the frames start from, [B, 2 T, mels]
        in_few_kernels: bool = False,  # by compiled code, which is made when a family of shapes is first run
    ) -> Tensor:
        """Run new tokens of sequences of any age, whose past lies in pages: [B, 2 T, mels], float32.

        Made of tensors only, so that it can be captured in a CUDA graph. Rows that only fill the batch have counts of zero.
        """
        given = window, counts, pages, slots, speaker, cond
        if not in_few_kernels:
            return self._integrate(self._begin(*given, encoder), noise, estimator, self._euler)
        begin, euler = self._compiled
        return self._integrate(begin(*given, encoder), noise, estimator, euler)

    @functools.cached_property
    def _compiled(self) -> tuple[Callable[..., _Guided], _Euler]:
        """The two parts of a call: once what comes before the estimator, then each Euler step."""

        def begin(*given: Any) -> _Guided:
            *tensors, cache = given
            vary_all(tensors)
            return first(*tensors, _apart(cache))

        def euler(x: Tensor, guided: _Guided, step: _Step, past: EstimatorCache | None) -> Tensor:
            vary_all((x, guided))
            return one_step(x, guided, step, None if past is None else _apart(past))

        first: Callable[..., _Guided] = compiled(self._begin)
        one_step = compiled(self._euler)
        return begin, euler

    def _begin(
        self,
        window: Tensor,
        counts: Tensor,
        pages: Tensor,
        slots: Tensor,
        speaker: Tensor,
        cond: Tensor,
        encoder: TokenCache,
    ) -> _Guided:
        """All that comes before the estimator; arguments as in :meth:`run_pages`."""
        starts, known, run, kept, left_out = counts.unbind()
        sight = self.window(left_out)
        width = window.shape[1] - self.config.encoder.lookahead
        tokens, frames = (
            PositionSpan.of(
                run * scale,
                width * scale,
                chunk=self.config.chunk_tokens * scale,
                num_kept=kept * scale,
                starts=starts * scale,
                pages=pages,
                slots=slots,
                window=sight,
            )
            for scale in (1, FRAMES_PER_TOKEN)
        )
        return self._guided(
            self.mu(window, within(known, window.shape[1]), tokens, frames, encoder), speaker, cond, frames
        )

    def _guided(self, mu: Tensor, speaker: Tensor, cond: Tensor, frames: PositionSpan) -> _Guided:
        mu, speaker, cond = (torch.cat((part, torch.zeros_like(part))) for part in (mu, speaker, cond.to(mu.dtype)))
        return _Guided(mu, speaker, cond, self.estimator.placed(frames, mu.dtype))

    def mu(
        self, window: Tensor, known: Tensor, tokens: PositionSpan, frames: PositionSpan, cache: TokenCache | None
    ) -> Tensor:
        """Return the frames that the estimator follows, [B, 2 T, mels]."""
        embedded = self.input_embedding(window.clamp(min=0))
        if isinstance(self.config.encoder, EncoderConfig):
            return cast("Tensor", self.encoder_proj(self.encoder(embedded, known, tokens, frames, cache)))
        embedded = embedded.masked_fill(~known[..., None], 0.0)
        mixed = self.pre_lookahead_layer(embedded, tokens, None if cache is None else cache.contexts[0])
        return cast("Tensor", mixed.repeat_interleave(FRAMES_PER_TOKEN, dim=1))

    def solve(
        self, mu: Tensor, speaker: Tensor, cond: Tensor, x: Tensor, frames: PositionSpan, cache: EstimatorCache | None
    ) -> Tensor:
        """Integrate from noise ``x`` [B, T, mels] to mel, with and without condition at once (§4.6)."""
        return self._integrate(self._guided(mu, speaker, cond, frames), x, cache, self._euler)

    def _integrate(self, guided: _Guided, x: Tensor, cache: EstimatorCache | None, euler: _Euler) -> Tensor:
        x = x.to(torch.float32)
        for number, place in enumerate(self._grid):
            step = self._steps[number] if self._steps else self._step(*place)
            x = euler(x, guided, step, None if cache is None else cache.at(number))
        return x

    def _euler(self, x: Tensor, guided: _Guided, step: _Step, past: EstimatorCache | None) -> Tensor:
        """The state ``x`` [B, T, mels] after an Euler step."""
        rows = torch.cat((x, x)).to(guided.mu.dtype)
        both = self.estimator(rows, guided.mu, step.shifts, guided.speaker, guided.cond, guided.span, past)
        with_, without = both.to(torch.float32).chunk(2)
        return x + step.length * torch.lerp(with_, without, -self.config.guidance)


def _apart(cache: _Cache) -> _Cache:
    """A cache with the pages of each layer by themselves, for compiled code: :meth:`Pages.apart`."""
    paged: tuple[tuple[Pages, ...], ...]
    contexts: tuple[Tensor, ...]
    if isinstance(cache, TokenCache):
        paged, contexts = tuple(pages.apart() for pages in cache.paged), cache.contexts
        parts: dict[str, Any] = {"paged": paged}
    else:
        paged, contexts = (cache.attention.apart(),), (cache.contexts,)
        parts = {"attention": paged[0]}
    for tensor in (*contexts, *(tensor for pages in itertools.chain(*paged) for tensor in pages.tensors)):
        vary(tensor, 0)
    return replace(cache, **parts)


def _estimator(config: EstimatorConfig | DitConfig) -> Estimator | DitEstimator:
    return Estimator(config) if isinstance(config, EstimatorConfig) else DitEstimator(config)
