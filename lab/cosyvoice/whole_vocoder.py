"""The vocoder on whole mels, and with the phase of the reference."""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.vocoder.source import Source
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.runners.vocoder import VocoderRunner

ALWAYS_FLOAT32: Final = ("f0_predictor.", "m_source.")
"""Whatever the type of the rest: pitch is in Hz and the phase is a running sum of it (spec §5.1, §5.2)."""


class CoarseSource(Source):
    """Lets the phase grow in float32 as the reference does, where it is coarse after some seconds."""

    def _phase(self, f0: Tensor) -> Tensor:
        hop = self.config.hop_samples
        phase = self._turns(f0).cumsum(dim=1) * 2 * math.pi  # [B, T, harmonics]
        return functional.interpolate(phase.transpose(1, 2) * hop, scale_factor=hop, mode="linear")


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


class NoiselessVocoderRunner(VocoderRunner):
    """The engine's runner without noise in the source."""

    def _noise(self, seeds: Tensor, starts: Tensor, num_frames: int) -> Tensor:
        return torch.zeros_like(super()._noise(seeds, starts, num_frames))


def vocode(
    vocoder: Vocoder,
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
    source = vocoder.source(vocoder.f0(mel, mel_len), noise=draws)
    if cache_source is not None:
        source = torch.cat((cache_source, source[:, :, cache_source.shape[2] :]), dim=2)
    return vocoder.synthesize(mel, source, mel_len), source
