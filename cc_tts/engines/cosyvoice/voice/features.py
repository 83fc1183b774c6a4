"""The features of reference audio that the networks read (spec §7.3): two log-mels, one filter bank, and the resampler
before them.

======================  =======  ==========================================  ==========================
function                rate     recipe                                      who reads it
======================  =======  ==========================================  ==========================
``whisper_log_mel``     16 kHz   Whisper's 128 bins, 25/10 ms                speech tokenizer
``kaldi_fbank``         16 kHz   Kaldi's 80 bins, 25/10 ms, no dither        speaker encoder
``reference_mel``       24 kHz   80 bins, 80/20 ms                           flow, as the start of its mel
======================  =======  ==========================================  ==========================

Audio is mono float32 in −1 … 1, a second of it or more; features are float32. torchaudio computes the parts where it
imports, as on the GPU install, and numpy elsewhere (``docs/decisions/0007-features-with-torchaudio.md``).
"""

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Final, Protocol

import numpy as np

from cc_tts.engines.cosyvoice.voice import numpy_features
from cc_tts.engines.cosyvoice.voice.numpy_features import Audio, Features, Floats

TOKENIZER_RATE_HZ: Final = 16_000  # of the speech tokenizer and of the speaker encoder
MEL_RATE_HZ: Final = 24_000
WHISPER_BINS: Final = 128
FBANK_BINS: Final = 80
MEL_BINS: Final = 80
MEL_TOP_HZ: Final[Mapping[int, float]] = {2: 8000.0, 3: 12_000.0}
"""The top of the reference's mel, by generation: 8 kHz, and the Nyquist frequency (spec §2, v3 §7)."""


class FeatureLibrary(Protocol):
    """The functions that ``numpy_features`` and ``torchaudio_features`` both define."""

    def resample(self, audio: Audio, from_hz: int, to_hz: int) -> Audio:
        """Change the sample rate, between two different rates."""

    def kaldi_fbank(self, audio: Audio) -> Features:
        """Kaldi's log filter bank of 16 kHz audio, ``[frames, 80]``."""

    def spectrum(self, audio: Audio, *, length: int, hop: int) -> Floats:
        """Power spectrum ``[frames, length / 2 + 1]``, under a periodic Hann window."""

    def mel_filters(self, rate_hz: int, fft_length: int, num_bins: int, top_hz: float) -> Floats:
        """Triangles ``[frequencies, num_bins]`` from 0 to ``top_hz`` on Slaney's mel scale, each of area 1."""


@cache
def library() -> FeatureLibrary:
    """Return what computes the parts: torchaudio where it imports, else numpy.

    PyPI has torchaudio for CUDA only: beside a PyTorch for the CPU its extension does not load.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from cc_tts.engines.cosyvoice.voice import torchaudio_features
    except (ImportError, OSError, RuntimeError):  # not installed; a missing CUDA library; another CUDA than PyTorch's
        return numpy_features
    return torchaudio_features


def resample(audio: Audio, from_hz: int, to_hz: int) -> Audio:
    """Change the sample rate with a Hann-windowed sinc (6 zero crossings, roll-off 0.99; spec §7.3 ``load_wav``), to
    ``ceil(len(audio) · to_hz / from_hz)`` samples.
    """
    return audio.astype(np.float32) if from_hz == to_hz else library().resample(audio, from_hz, to_hz)


def whisper_log_mel(audio: Audio) -> Features:
    """Log-mel of 16 kHz audio for the speech tokenizer: ``[128, samples // 160]`` (spec §7.3, "speech tokens"). Not padded
    to 30 s, unlike Whisper's own.
    """
    power = library().spectrum(_reflect(audio, 200), length=400, hop=160)[:-1]
    filters = library().mel_filters(TOKENIZER_RATE_HZ, 400, WHISPER_BINS, TOKENIZER_RATE_HZ / 2)
    log = np.log10(np.maximum(power @ filters, 1e-10))
    log = np.maximum(log, log.max() - 8.0)
    return np.ascontiguousarray(((log + 4.0) / 4.0).T, dtype=np.float32)


def reference_mel(audio: Audio, generation: int = 2) -> Features:
    """Log-mel of 24 kHz audio for the flow: ``[samples // 480, 80]``, natural log (spec §7.3, "mel 24 kHz").

    The top of the bank is another for each generation; the mel of one is wrong for the other.
    """
    magnitude = np.sqrt(library().spectrum(_reflect(audio, 720), length=1920, hop=480) + 1e-9)
    mel = magnitude @ library().mel_filters(MEL_RATE_HZ, 1920, MEL_BINS, MEL_TOP_HZ[generation])
    return np.log(np.maximum(mel, 1e-5)).astype(np.float32)


def kaldi_fbank(audio: Audio) -> Features:
    """Kaldi's log filter bank of 16 kHz audio: ``[frames, 80]``, whole frames only (spec §7.3, "CAM++").

    The mean over time is still in it. Samples are not scaled to 16 bit, and there is no dither.
    """
    return library().kaldi_fbank(audio)


def _reflect(audio: Audio, by: int) -> Audio:
    return np.pad(audio.astype(np.float32), by, mode="reflect")
