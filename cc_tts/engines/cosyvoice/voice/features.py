"""The features of reference audio that the networks read (spec §7.3): two log-mels, one filter bank, and the resampler
before them.

======================  =======  ==========================================  ==========================
function                rate     recipe                                      who reads it
======================  =======  ==========================================  ==========================
``whisper_log_mel``     16 kHz   Whisper's 128 bins, 25/10 ms                speech tokenizer
``kaldi_fbank``         16 kHz   Kaldi's 80 bins, 25/10 ms, no dither        speaker encoder
``reference_mel``       24 kHz   80 bins, 80/20 ms                           flow, as the start of its mel
======================  =======  ==========================================  ==========================

Audio is mono float32 in −1 … 1, a second of it or more; features are float32. All is computed in
float64, so that the results are those of the reference within its own float32 rounding. Why not by torchaudio:
``docs/decisions/0007-features-with-numpy.md``.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

Audio = npt.NDArray[np.float32]
Features = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

VERSION: Final = 1
"""The version of the numbers that are computed here. Another one makes voices be enrolled again."""

TOKENIZER_RATE_HZ: Final = 16_000  # of the speech tokenizer and of the speaker encoder
MEL_RATE_HZ: Final = 24_000
WHISPER_BINS: Final = 128
FBANK_BINS: Final = 80
MEL_BINS: Final = 80
MEL_TOP_HZ: Final[Mapping[int, float]] = {2: 8000.0, 3: 12_000.0}
"""The top of the reference's mel, by generation: 8 kHz, and the Nyquist frequency (spec §2, v3 §7)."""

_SINC_ZEROS: Final = 6  # zero crossings of the resampling filter on either side
_ROLLOFF: Final = 0.99  # cut-off of the resampling filter, as a share of the lower Nyquist frequency
_RESAMPLE_BLOCK: Final = 1 << 15  # output samples computed at once; bounds the memory that a long recording needs
_FLOAT32_EPSILON: Final = float(np.finfo(np.float32).eps)  # Kaldi's floor under the energies


def resample(audio: Audio, from_hz: int, to_hz: int) -> Audio:
    """Change the sample rate with a Hann-windowed sinc (6 zero crossings, roll-off 0.99; spec §7.3 ``load_wav``), to
    ``ceil(len(audio) · to_hz / from_hz)`` samples. Only the inputs under its window are read for each output sample.
    """
    if from_hz == to_hz:
        return audio.astype(np.float32)
    divisor = math.gcd(from_hz, to_hz)
    source, target = from_hz // divisor, to_hz // divisor
    kernel, first, reach = _resampling_kernel(source, target)
    padded = np.pad(audio.astype(np.float64), (reach + 1, reach + source + 1))
    num_out = -(-len(audio) * target // source)
    result = np.empty(num_out, dtype=np.float32)
    taps = np.arange(kernel.shape[1])
    for start in range(0, num_out, _RESAMPLE_BLOCK):
        out = np.arange(start, min(start + _RESAMPLE_BLOCK, num_out))
        phase = out % target
        at = (out // target) * source + first[phase] + reach + 1  # index of the first tap in `padded`
        result[out] = np.einsum("ik,ik->i", padded[at[:, None] + taps], kernel[phase])
    return result


@cache
def _resampling_kernel(source: int, target: int) -> tuple[Floats, npt.NDArray[np.int64], int]:
    """Filter taps by output phase: weights ``[target, taps]``, first input of each phase, and the filter's reach."""
    cutoff = min(source, target) * _ROLLOFF
    reach = math.ceil(_SINC_ZEROS * source / cutoff)
    phase = np.arange(target, dtype=np.int64)
    first = phase * source // target - reach
    inputs = first[:, None] + np.arange(2 * reach + 2)
    offset = (phase / target).astype(np.float32)  # single precision, as in the reference
    at = np.clip((inputs / source - offset[:, None]) * cutoff, -_SINC_ZEROS, _SINC_ZEROS)
    window = np.cos(at * (math.pi / (2 * _SINC_ZEROS))) ** 2
    return np.sinc(at) * window * (cutoff / source), first, reach


def whisper_log_mel(audio: Audio) -> Features:
    """Log-mel of 16 kHz audio for the speech tokenizer: ``[128, samples // 160]`` (spec §7.3, "speech tokens"). Not padded
    to 30 s, unlike Whisper's own.
    """
    power = _spectrum(_reflect(audio, 200), length=400, hop=160)[:-1]
    filters = _mel_filters(TOKENIZER_RATE_HZ, 400, WHISPER_BINS, TOKENIZER_RATE_HZ / 2)
    log = np.log10(np.maximum(power @ filters, 1e-10))
    log = np.maximum(log, log.max() - 8.0)
    return np.ascontiguousarray(((log + 4.0) / 4.0).T, dtype=np.float32)


def reference_mel(audio: Audio, generation: int = 2) -> Features:
    """Log-mel of 24 kHz audio for the flow: ``[samples // 480, 80]``, natural log (spec §7.3, "mel 24 kHz").

    The top of the bank is another for each generation; the mel of one is wrong for the other.
    """
    magnitude = np.sqrt(_spectrum(_reflect(audio, 720), length=1920, hop=480) + 1e-9)
    mel = magnitude @ _mel_filters(MEL_RATE_HZ, 1920, MEL_BINS, MEL_TOP_HZ[generation])
    return np.log(np.maximum(mel, 1e-5)).astype(np.float32)


def kaldi_fbank(audio: Audio) -> Features:
    """Kaldi's log filter bank of 16 kHz audio: ``[frames, 80]``, whole frames only (spec §7.3, "CAM++").

    The mean over time is still in it. Samples are not scaled to 16 bit, and there is no dither.
    """
    frames = _frames(audio.astype(np.float64), length=400, hop=160)
    frames = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    emphasised = frames - 0.97 * before
    povey = (0.5 - 0.5 * np.cos(2 * math.pi * np.arange(400) / 399)) ** 0.85
    power = _power_spectrum(emphasised * povey, fft_length=512)
    return np.log(np.maximum(power @ _kaldi_filters(), _FLOAT32_EPSILON)).astype(np.float32)


def _reflect(audio: Audio, by: int) -> Audio:
    return np.pad(audio.astype(np.float32), by, mode="reflect")


def _spectrum(audio: Audio, *, length: int, hop: int) -> Floats:
    """Power spectrum ``[frames, length / 2 + 1]`` of ``audio``, under a periodic Hann window."""
    return _power_spectrum(_frames(audio.astype(np.float64), length=length, hop=hop) * _hann(length))


def _frames(audio: Floats, *, length: int, hop: int) -> Floats:
    """Overlapping frames ``[frames, length]``; a view, not a copy."""
    return np.lib.stride_tricks.sliding_window_view(audio, length)[::hop]


def _power_spectrum(frames: Floats, fft_length: int | None = None) -> Floats:
    complex_spectrum = np.fft.rfft(frames, fft_length)
    power: Floats = complex_spectrum.real**2 + complex_spectrum.imag**2
    return power


@cache
def _hann(length: int) -> Floats:
    window: Floats = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(length) / length)
    return window


@cache
def _mel_filters(rate_hz: int, fft_length: int, num_bins: int, top_hz: float) -> Floats:
    """Triangles ``[frequencies, num_bins]`` from 0 to ``top_hz`` on Slaney's mel scale, each of area 1.

    That scale is linear to 1 kHz (15 mel) and logarithmic above it, 27 mel for a factor of 6.4.
    """
    step = math.log(6.4) / 27.0
    top_mel = 15.0 + math.log(top_hz / 1000.0) / step if top_hz > 1000.0 else top_hz * 3.0 / 200.0  # noqa: PLR2004
    mels = np.linspace(0.0, top_mel, num_bins + 2, dtype=np.float64)
    corners = np.where(mels < 15.0, mels * 200.0 / 3.0, 1000.0 * np.exp((mels - 15.0) * step))  # noqa: PLR2004
    frequencies = np.arange(fft_length // 2 + 1, dtype=np.float64) * (rate_hz / fft_length)
    return _triangles(frequencies, corners) * (2.0 / (corners[2:] - corners[:-2]))


@cache
def _kaldi_filters() -> Floats:
    """Kaldi's 80 triangles ``[257, 80]`` from 20 Hz to 8 kHz: straight on the mel scale, of height 1."""

    def mel(hz: Floats) -> Floats:
        result: Floats = 1127.0 * np.log1p(hz / 700.0)
        return result

    low, high = mel(np.array([20.0, TOKENIZER_RATE_HZ / 2]))
    frequencies = np.arange(257, dtype=np.float64) * (TOKENIZER_RATE_HZ / 512)
    filters = _triangles(mel(frequencies), np.linspace(low, high, FBANK_BINS + 2, dtype=np.float64))
    filters[256] = 0.0  # Kaldi leaves the Nyquist frequency out
    return filters


def _triangles(points: Floats, corners: Floats) -> Floats:
    """Rise from each corner to the next and fall to the one after it, sampled at ``points``: ``[points, corners − 2]``."""
    rising = (points[:, None] - corners[:-2]) / (corners[1:-1] - corners[:-2])
    falling = (corners[2:] - points[:, None]) / (corners[2:] - corners[1:-1])
    return np.maximum(0.0, np.minimum(rising, falling))
