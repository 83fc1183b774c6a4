"""Reference audio for the end-to-end tests, made from numbers: nothing to download, nothing to install."""

import numpy as np

from cc_tts.media import g711
from lab.audio_match import Samples, samples


def voice_like(seconds: float, *, seed: int, level: float = 5000.0) -> Samples:
    """A signal with the spectrum and the syllables of speech, never silent for a whole packet."""
    count = round(seconds * 8000)
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(count + 64)
    low = np.convolve(noise, np.hanning(9) / np.hanning(9).sum(), mode="same")[:count]
    t = np.arange(count) / 8000
    syllables = 0.55 + 0.45 * np.sin(2 * np.pi * 3.3 * t)
    hum = 0.4 * np.sin(2 * np.pi * 140 * t + 3 * np.sin(2 * np.pi * 0.7 * t))
    return np.asarray((low * 2 + hum) * syllables * level).clip(-32000, 32000).astype(np.int16)


def through_ulaw(signal: Samples) -> Samples:
    """What is left after one pass through G.711 μ-law."""
    return samples(g711.ulaw_decode(g711.ulaw_encode(signal.astype("<i2").tobytes())))
