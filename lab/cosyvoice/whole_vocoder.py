"""The vocoder on whole mels, and with the phase of the reference."""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import (
    LOOKAHEAD_FRAMES,
    CausalState,
    CausalVocoder,
    Piece,
    Voiced,
    final_samples,
)
from cc_tts.engines.cosyvoice.model.networks.vocoder.source import Source
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import VocoderConfig

ALWAYS_FLOAT32: Final = ("f0_predictor.", "m_source.")
"""Whatever the type of the rest: pitch is in Hz and the phase is a running sum of it (spec §5.1, §5.2)."""


class CoarseSource(Source):
    """Lets the phase grow in float32 as the reference does, where it is coarse after some seconds."""

    def _phase(self, f0: Tensor) -> Tensor:
        hop = self.config.hop_samples
        phase = self.turns(f0).cumsum(dim=1) * 2 * math.pi  # [B, T, harmonics]
        return functional.interpolate(phase.transpose(1, 2) * hop, scale_factor=hop, mode="linear")


def two_sided(vocoder: Vocoder | CausalVocoder) -> Vocoder:
    """The vocoder, which must be of the second generation."""
    assert isinstance(vocoder, Vocoder)
    return vocoder


def with_coarse_phase(vocoder: Vocoder) -> Vocoder:
    """The same vocoder, from now on with the phase of the reference."""
    with torch.device("meta"):
        source = CoarseSource(vocoder.config)
    source.l_linear = vocoder.m_source.l_linear
    vocoder.m_source = source
    return vocoder


def cast(vocoder: Vocoder, dtype: torch.dtype) -> Vocoder:
    """The same vocoder, from now on with weights of this type. It is served in float32."""
    for name, weight in vocoder.named_parameters():
        if not name.startswith(ALWAYS_FLOAT32):
            weight.data = weight.data.to(dtype)
    return vocoder


def no_noise(seeds: Tensor, _starts: Tensor, num_frames: int, config: VocoderConfig) -> Tensor:
    """For a source of harmonics alone; see :data:`SourceNoise`."""
    return torch.zeros((len(seeds), num_frames * config.hop_samples, config.num_harmonics), device=seeds.device)


def vocode(
    vocoder: Vocoder | CausalVocoder,
    mel: Tensor,
    *,
    cache_source: Tensor | None = None,
    draws: Tensor | None = None,
    mel_len: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Audio and the source it was made with.

    Args:
        vocoder: the network.
        mel: mel frames, [B, mels, T].
        cache_source: what the source begins with, [B, 1, S], instead of its own first samples (§5.5).
        draws: standard normal numbers for the source, [B, hop T, harmonics]; zeros, when left out.
        mel_len: how many frames of each row are real, [B]; all, when left out.

    Returns:
        Audio [B, hop T], zeros behind the end of a row, and source [B, 1, hop T], both float32.

    """
    vocoder = two_sided(vocoder)
    source = vocoder.source(vocoder.f0(mel, mel_len), noise=draws)
    if cache_source is not None:
        source = torch.cat((cache_source, source[:, :, cache_source.shape[2] :]), dim=2)
    return vocoder.synthesize(mel, source, mel_len), source


@dataclass(frozen=True, slots=True)
class Heard:
    """What a mel by itself becomes."""

    f0: Tensor  # [n], Hz
    source: Tensor  # [hop n]
    audio: Tensor  # [samples]


def causal_whole(
    vocoder: CausalVocoder, mel: Tensor, uniform: Tensor, *, finalize: bool, f0: Tensor | None = None
) -> Heard:
    """One run over ``mel`` [mels, n]; not ``finalize``: the last four frames are only looked at, the pitch needs three.

    ``f0`` [1, n] stands in for the pitch of the mel.
    """
    window = functional.pad(mel, (0, LOOKAHEAD_FRAMES)) if finalize else mel
    num_frames = window.shape[1] - LOOKAHEAD_FRAMES
    given = None if f0 is None else functional.pad(f0, (0, num_frames + 1 - f0.shape[1]))
    made = _piece(vocoder, window, uniform, vocoder.new_state(1), is_first=True, is_last=finalize, f0=given)
    num_f0 = num_frames + (0 if finalize else 1)
    hop = vocoder.config.hop_samples
    samples = final_samples(num_frames, hop, is_first=True, is_last=finalize)
    return Heard(made.f0[0, :num_f0], made.source[0, : hop * num_f0], made.audio[0, samples])


class CausalStream:
    """The causal vocoder of one stream, piece by piece, of any number of frames."""

    def __init__(self, vocoder: CausalVocoder, uniform: Tensor) -> None:
        self._vocoder = vocoder
        self._uniform = uniform
        self._state = vocoder.new_state(1)
        self._waiting: Tensor | None = None
        self._num_done = 0

    def push(self, mel: Tensor, *, is_last: bool) -> Tensor:
        """New and final samples after ``mel`` [mels, n]."""
        window = mel if self._waiting is None else torch.cat((self._waiting, mel), dim=1)
        if is_last:
            window = functional.pad(window, (0, LOOKAHEAD_FRAMES))
        self._waiting = window
        num_frames = window.shape[1] - LOOKAHEAD_FRAMES
        if num_frames < 1:
            return mel.new_zeros(0)
        hop, is_first = self._vocoder.config.hop_samples, self._num_done == 0
        noise = self._uniform[hop * self._num_done :]
        made = _piece(self._vocoder, window, noise, self._state, is_first=is_first, is_last=is_last)
        self._num_done += num_frames
        self._state, self._waiting = made.state, made.state.mel[0]
        return made.audio[0, final_samples(num_frames, hop, is_first=is_first, is_last=is_last)]


def _piece(
    vocoder: CausalVocoder,
    window: Tensor,
    uniform: Tensor,
    state: CausalState,
    *,
    is_first: bool,
    is_last: bool,
    f0: Tensor | None = None,
) -> Voiced:
    num_frames = window.shape[1] - LOOKAHEAD_FRAMES
    count, first, last = (
        torch.tensor([value], device=window.device) for value in (num_frames, int(is_first), int(is_last))
    )
    noise = uniform[: vocoder.config.hop_samples * (num_frames + 1)]
    made: Voiced = vocoder(window[None], noise[None], Piece(count, first.bool(), last.bool()), state, f0)
    return made
