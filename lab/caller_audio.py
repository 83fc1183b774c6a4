"""What a telephone line carries from a caller: speech of espeak-ng, tones and noise at a level, through μ-law."""

import ctypes
from functools import cache
from typing import Final

import espeakng_loader
import numpy as np
import numpy.typing as npt
import soxr

from cc_tts.engines.cpu.libespeak import EspeakLibrary
from cc_tts.media.g711 import ulaw_decode, ulaw_encode
from cc_tts.media.levels import FULL_SCALE, active_level_dbfs
from cc_tts.media.tones import tone

RATE_HZ: Final = 8000
SENTENCE: Final = "I would like to speak to somebody about my last invoice, please."
PROMPT: Final = "Thank you for calling. Your balance is twelve dollars and fifty cents. For payments press one."

Samples = npt.NDArray[np.float64]
"""Of full scale 1."""


@cache
def _library() -> EspeakLibrary:
    """espeak-ng draws the breath of its voices, by default by the time of day: two runs would not hear the same."""
    library = EspeakLibrary()
    ctypes.CDLL(espeakng_loader.get_library_path()).espeak_ng_SetRandSeed(ctypes.c_long(1))
    return library


@cache
def said(text: str = SENTENCE, level_dbfs: float = -24.0, voice: str = "en-us", rate_hz: int = RATE_HZ) -> Samples:
    """Words at an active speech level (ITU-T P.56), without silence around them."""
    library, parts = _library(), []
    base, plus, variant = voice.partition("+")
    identifier = library.identifier_of(base) + plus + variant

    def take(pcm: bytes, _words: object) -> bool:
        parts.append(pcm)
        return True

    library.synthesise(text, voice=identifier, rate_wpm=160, on_audio=take)
    samples = np.frombuffer(b"".join(parts), "<i2") / FULL_SCALE
    heard = np.flatnonzero(np.abs(samples) > np.abs(samples).max() / 30)
    samples = samples[heard[0] : heard[-1] + 1]
    line = soxr.resample(samples, library.sample_rate_hz, rate_hz)
    level = active_level_dbfs(pcm_of(line), rate_hz)
    assert level is not None
    scaled: Samples = line * 10 ** ((level_dbfs - level) / 20)
    return scaled


def silence(ms: float, rate_hz: int = RATE_HZ) -> Samples:
    return np.zeros(round(rate_hz * ms / 1000))


def noise(ms: float, rms_dbfs: float, *, seed: int = 1, rate_hz: int = RATE_HZ) -> Samples:
    drawn = np.random.default_rng(seed).standard_normal(round(rate_hz * ms / 1000))
    scaled: Samples = drawn * 10 ** (rms_dbfs / 20)
    return scaled


def cough(level_dbfs: float = -18.0, *, ms: float = 250.0, seed: int = 3, rate_hz: int = RATE_HZ) -> Samples:
    """A burst of noise that begins at once and dies away."""
    burst = noise(ms, level_dbfs, seed=seed, rate_hz=rate_hz)
    faded: Samples = burst * np.exp(-np.arange(len(burst)) / (len(burst) / 4))
    return faded


def sound(spec: str, ms: int, rate_hz: int = RATE_HZ) -> Samples:
    """A tone as ``cc_tts.media.tones`` makes it."""
    return np.frombuffer(tone(spec, rate_hz, max_ms=ms), "<i2") / FULL_SCALE


def mixed(*parts: Samples) -> Samples:
    total = np.zeros(max(map(len, parts)))
    for part in parts:
        total[: len(part)] += part
    return total


def pcm_of(samples: Samples) -> bytes:
    return np.clip(np.rint(samples * FULL_SCALE), -32768, 32767).astype("<i2").tobytes()


def line_pcm(*parts: Samples) -> bytes:
    """One after the other as the line delivers it: 16-bit PCM that went through μ-law."""
    return ulaw_decode(ulaw_encode(pcm_of(np.concatenate(parts))))


def frames(pcm: bytes, *, ms: int = 20, rate_hz: int = RATE_HZ) -> list[bytes]:
    """PCM in frames; a rest that is no whole frame is left out."""
    size = 2 * rate_hz * ms // 1000
    return [pcm[at : at + size] for at in range(0, len(pcm) - size + 1, size)]
