"""Converts between 8 and 16 kHz for a conversation: a half-band filter with a delay of 2 ms.

soxr, which speech goes through, holds back up to 80 ms, which a caller who waits for an answer would notice. The filter has
63 taps. It is flat within 0.01 dB up to 3.4 kHz, the end of the telephone band, and 66 dB down from 4.6 kHz.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from cc_tts.audio import BYTES_PER_SAMPLE
from cc_tts.media.levels import as_pcm

NUM_TAPS: Final = 63
_BETA: Final = 6.5
_Floats = npt.NDArray[np.float32]


def _taps() -> _Floats:
    places = np.arange(NUM_TAPS) - NUM_TAPS // 2
    taps = np.sinc(places / 2) / 2 * np.kaiser(NUM_TAPS, _BETA)
    normal: _Floats = (taps / taps.sum()).astype(np.float32)
    return normal


_TAPS: Final = _taps()


class HalfBand:
    """One stream from 8000 or 16000 Hz to either rate. Equal rates pass through. The output does not depend on how the input
    is cut.
    """

    def __init__(self, source_rate_hz: int, target_rate_hz: int) -> None:
        if {source_rate_hz, target_rate_hz} - {8000, 16000}:
            raise ValueError(f"{source_rate_hz} Hz to {target_rate_hz} Hz is not for a half-band filter")
        self._rises = target_rate_hz > source_rate_hz
        self._falls = target_rate_hz < source_rate_hz
        self._past = np.zeros(NUM_TAPS - 1, np.float32)
        self._is_odd = False
        """Whether the next sample at 16 kHz is dropped at 8 kHz."""

    def process(self, pcm: bytes) -> bytes:
        """Return the output for the next samples, 31 samples of 16 kHz late."""
        if not pcm or not (self._rises or self._falls):
            return pcm
        samples = np.frombuffer(pcm, "<i2").astype(np.float32)
        if self._rises:
            stuffed = np.zeros(2 * len(samples), np.float32)
            stuffed[::2] = 2 * samples
            samples = stuffed
        buffer = np.concatenate((self._past, samples))
        self._past = buffer[-(NUM_TAPS - 1) :]
        filtered = np.convolve(buffer, _TAPS, "valid")
        if self._falls:
            num_samples = len(filtered)
            filtered = filtered[int(self._is_odd) :: 2]
            self._is_odd ^= bool(num_samples % 2)
        return as_pcm(filtered)

    @property
    def tail(self) -> bytes:
        """Return silence that makes :meth:`process` flush its delay."""
        num_samples = NUM_TAPS // 2 + 1
        return bytes(BYTES_PER_SAMPLE * (num_samples // 2 if self._rises else num_samples * self._falls))
