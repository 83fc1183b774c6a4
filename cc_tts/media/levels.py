"""Telephone levels: how loud speech is (ITU-T P.56), and the gain, filter and limiter that bring it to one level.

::

    PCM ─▸ without DC and rumble ─▸ gain of the voice ─▸ look-ahead limiter ─▸ PCM, the same samples at the same places

The gain is fixed for a prompt: one that followed the speech would pump. Runs on: any one thread per instance.
"""

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts.audio import AudioFormat

SPEECH_PEAK: Final = 104
"""The sample value from which PCM counts as speech: −50 dBFS."""
PEAK_DBFS: Final = -3.0
"""The peak level. G.711 and later stages keep some headroom."""
FULL_SCALE: Final = 32768.0

_BLOCK_MS: Final = 1.0  # unmeasured
_ATTACK_BLOCKS: Final = 5
"""The look-ahead of the limiter: its gain falls within this time."""
_HOLD_BLOCKS: Final = 60
"""The time for which its gain stays down: longer than the period of the deepest voice, so that it does not follow single
periods.
"""
_RUMBLE_MS: Final = 20.0
"""The length of each of two moving averages that are subtracted: −∞ at DC, −4.5 dB at 25 Hz, −0.4 dB from 75 Hz on
(unmeasured).
"""

_ENVELOPE_MS: Final = 30.0  # ITU-T P.56 method B, as the two below
_HANGOVER_MS: Final = 200.0  # ITU-T P.56
_MARGIN_DB: Final = 15.9  # ITU-T P.56
_NUM_THRESHOLDS: Final = 15

Floats = npt.NDArray[np.float64]


def as_pcm(levels: npt.NDArray[Any]) -> bytes:
    """Return levels in steps of 16 bits as PCM; what is beyond full scale is clipped."""
    pcm: bytes = np.clip(np.rint(levels), -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()
    return pcm


def is_audible(pcm: bytes) -> bool:
    """REAL-TIME. Whether any sample of 16-bit PCM reaches :data:`SPEECH_PEAK`. About 3 µs for a frame of 8 kHz."""
    samples = memoryview(pcm).cast("h")
    return bool(pcm) and (max(samples) >= SPEECH_PEAK or min(samples) <= -SPEECH_PEAK)


def active_level_dbfs(pcm: bytes, rate_hz: int) -> float | None:
    """Return the active speech level (ITU-T P.56, method B), dB relative to full scale; ``None`` if there is no speech.

    The envelope is taken of blocks of 1 ms instead of samples, which changes it by less than 0.1 dB.
    """
    block = max(1, round(rate_hz * _BLOCK_MS / 1000))
    samples = np.frombuffer(pcm, np.int16).astype(np.float64) / FULL_SCALE
    num_blocks = len(samples) // block
    energy = float(np.sum(samples * samples))
    if not num_blocks or not energy:
        return None
    envelope = _envelope(np.abs(samples[: num_blocks * block]).reshape(num_blocks, block).mean(axis=1))
    hangover = round(_HANGOVER_MS / _BLOCK_MS)
    before: tuple[float, float] | None = None
    for exponent in range(_NUM_THRESHOLDS, -1, -1):
        threshold = 2.0**-exponent
        num_active = _num_active(envelope >= threshold, hangover)
        if not num_active:
            break
        level = 10 * math.log10(energy / (num_active * block))
        margin = level - 20 * math.log10(threshold)
        if margin <= _MARGIN_DB:
            if before is None:
                return level
            share = (before[1] - _MARGIN_DB) / (before[1] - margin)
            return before[0] + share * (level - before[0])
        before = level, margin
    return before[0] if before else None


def _envelope(rectified: Floats) -> Floats:
    """Smoothed twice, each with a time constant of 30 ms."""
    keep = math.exp(-_BLOCK_MS / _ENVELOPE_MS)
    once = twice = 0.0
    envelope = np.empty_like(rectified)
    for index, value in enumerate(rectified.tolist()):
        once = keep * once + (1 - keep) * value
        twice = keep * twice + (1 - keep) * once
        envelope[index] = twice
    return envelope


def _num_active(is_above: npt.NDArray[np.bool_], hangover: int) -> int:
    """Return the number of blocks above the threshold, and of those within the hangover after one."""
    places = np.flatnonzero(is_above)
    ends = np.minimum(places + hangover, len(is_above))
    return int(np.sum(np.minimum(ends, np.append(places[1:], len(is_above))) - places)) if places.size else 0


class LoudnessNormalizer:
    """One stream of PCM. The output is as long as the input, and does not depend on how it is cut. ``gain_db`` applies to
    all of it; minus infinity for silence.
    """

    def __init__(self, audio_format: AudioFormat, gain_db: float) -> None:
        self._gain = 10 ** (gain_db / 20) / FULL_SCALE
        self._window = audio_format.samples_for_ms(_RUMBLE_MS)
        self._block = audio_format.samples_for_ms(_BLOCK_MS)
        self._input = np.zeros(2 * self._window - 2, np.int64)
        self._num_early = self._window - 1
        """The filtered samples still to come that lie before the first."""
        self._pending: Floats = np.zeros(0)
        self._needed: Floats = np.ones(_HOLD_BLOCKS + _ATTACK_BLOCKS)
        """The gain that each block before ``_pending`` needs."""

    def process(self, pcm: bytes, *, last: bool = False) -> bytes:
        """Take the next chunk and return the finished samples: all but some 25 ms. ``last`` flushes; nothing
        may follow it.
        """
        filtered = self._without_rumble(np.frombuffer(pcm, np.int16).astype(np.int64), last=last)
        self._pending = np.concatenate((self._pending, filtered * self._gain))
        limited = self._limited(last=last)
        rounded: bytes = np.rint(limited * FULL_SCALE).astype(np.int16).tobytes()
        return rounded

    def _without_rumble(self, samples: npt.NDArray[np.int64], *, last: bool) -> Floats:
        """Subtract two moving averages, in integers, so that the output does not depend on how the input is cut."""
        window = self._window
        if last:
            samples = np.concatenate((samples, np.zeros(window - 1, np.int64)))
        joined = np.concatenate((self._input, samples))
        self._input = joined[len(samples) :]
        summed = _moving_sum(_moving_sum(joined, window), window)
        filtered = joined[window - 1 : window - 1 + len(summed)] - summed / (window * window)
        early = min(self._num_early, len(filtered))
        self._num_early -= early
        return filtered[early:]

    def _limited(self, *, last: bool) -> Floats:
        """Return the whole blocks whose gain is known."""
        block, pending = self._block, self._pending
        num_samples = len(pending)
        if last:
            ahead = np.zeros((_ATTACK_BLOCKS + 1) * block - num_samples % block)
            pending = np.concatenate((pending, ahead))
        num_blocks = len(pending) // block
        num_ready = max(0, num_blocks - _ATTACK_BLOCKS)
        blocks = pending[: num_blocks * block].reshape(num_blocks, block)
        ceiling = 10 ** (PEAK_DBFS / 20)
        peaks = np.maximum(np.abs(blocks).max(axis=1), ceiling) if num_blocks else np.zeros(0)
        needed = np.concatenate((self._needed, ceiling / peaks))
        ready = pending[: num_ready * block]
        if num_ready and needed.min() < 1.0:
            ready = ready * _gains(needed, num_ready, block)
        self._needed = needed[num_ready : num_ready + len(self._needed)]
        self._pending = pending[num_ready * block :]
        return ready[:num_samples] if last else ready


def _gains(needed: Floats, num_ready: int, block: int) -> Floats:
    """Return the gain of each sample of the blocks that are ready: down within the attack, held, and up again; never
    more than is needed.
    """
    reach = _HOLD_BLOCKS + _ATTACK_BLOCKS + 1
    # lowest[j + attack]: of blocks j - hold to j + attack
    lowest = np.lib.stride_tricks.sliding_window_view(needed, reach).min(axis=1)
    smooth = sum(lowest[shift : shift + num_ready + 1] for shift in range(_ATTACK_BLOCKS)) / _ATTACK_BLOCKS
    steps = np.arange(1, block + 1) / block
    rising: Floats = smooth[:-1, None] + (smooth[1:] - smooth[:-1])[:, None] * steps
    return rising.reshape(-1)


def _moving_sum(values: npt.NDArray[np.int64], window: int) -> npt.NDArray[np.int64]:
    sums = np.concatenate(([0], np.cumsum(values)))
    return sums[window:] - sums[:-window]
