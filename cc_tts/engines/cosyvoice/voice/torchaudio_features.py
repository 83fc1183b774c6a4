"""The parts that :mod:`features` is made of, with torchaudio. Importing it fails where torchaudio does not load."""

import math
from functools import cache
from typing import Final

import numpy as np
import torch
import torchaudio.compliance.kaldi
import torchaudio.functional
from torch import Tensor

from cc_tts.engines.cosyvoice.voice import numpy_features
from cc_tts.engines.cosyvoice.voice.numpy_features import Audio, Features, Floats

MAX_FILTER_TAPS: Final = 1 << 20
"""torchaudio's table for a pair of rates has about as many taps as the product of both, reduced. For odd rates, such as
44,101 to 16,000 Hz, that is gigabytes; there numpy computes.
"""


def resample(audio: Audio, from_hz: int, to_hz: int) -> Audio:
    """Change the sample rate; a Hann-windowed sinc is the default of ``torchaudio.functional.resample``."""
    divisor = math.gcd(from_hz, to_hz)
    if (from_hz // divisor) * (to_hz // divisor) > MAX_FILTER_TAPS:
        return numpy_features.resample(audio, from_hz, to_hz)
    resampled = torchaudio.functional.resample(
        _tensor(audio),
        from_hz,
        to_hz,
        lowpass_filter_width=numpy_features.SINC_ZEROS,
        rolloff=numpy_features.ROLLOFF,
    )
    return np.asarray(resampled, dtype=np.float32)


def kaldi_fbank(audio: Audio) -> Features:
    """Kaldi's log filter bank of 16 kHz audio, ``[frames, 80]``."""
    fbank = torchaudio.compliance.kaldi.fbank(
        _tensor(audio)[None], num_mel_bins=80, dither=0.0, sample_frequency=16_000
    )
    return np.asarray(fbank, dtype=np.float32)


def spectrum(audio: Audio, *, length: int, hop: int) -> Floats:
    """Power spectrum ``[frames, length / 2 + 1]`` of ``audio``, under a periodic Hann window."""
    power = torchaudio.functional.spectrogram(
        _tensor(audio),
        pad=0,
        window=torch.hann_window(length),
        n_fft=length,
        hop_length=hop,
        win_length=length,
        power=2.0,
        normalized=False,
        center=False,
    )
    return np.asarray(power.T, dtype=np.float64)


@cache
def mel_filters(rate_hz: int, fft_length: int, num_bins: int, top_hz: float) -> Floats:
    """Triangles ``[frequencies, num_bins]`` from 0 to ``top_hz`` on Slaney's mel scale, each of area 1."""
    filters = torchaudio.functional.melscale_fbanks(
        fft_length // 2 + 1, 0.0, top_hz, num_bins, rate_hz, norm="slaney", mel_scale="slaney"
    )
    return np.asarray(filters, dtype=np.float64)


def _tensor(audio: Audio) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(audio, dtype=np.float32))
