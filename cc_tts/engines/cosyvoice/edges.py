"""The edges of a sequence's audio: no click at its begin, no click and no long hiss at its end.

The reference leaves both as the vocoder makes them, so this is outside of what parity compares.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

RATE_HZ: Final = 24_000
FADE_IN_MS: Final = 5  # unmeasured
FADE_OUT_MS: Final = 15  # unmeasured
QUIET_DBFS: Final = -50.0  # unmeasured
KEPT_QUIET_MS: Final = (
    200  # of what is quiet at the end: the pause before the next sentence; the rest is left out; unmeasured
)

_FRAME: Final = RATE_HZ // 100
_QUIET: Final = 32768.0 * 10.0 ** (QUIET_DBFS / 20.0)


def soften(pcm: bytes, *, is_first: bool, is_last: bool) -> bytes:
    """Return a chunk of signed 16-bit little-endian mono at 24 kHz with soft edges: a first chunk is faded in; the quiet end
    of a last chunk is shortened, and the rest faded out.
    """
    if not pcm or not (is_first or is_last):
        return pcm
    samples = np.frombuffer(pcm, "<i2").astype(np.float32)
    if is_first:
        count = min(len(samples), FADE_IN_MS * RATE_HZ // 1000)
        samples[:count] *= np.arange(count, dtype=np.float32) / count
    if is_last:
        samples = samples[: _end(samples)]
        count = min(len(samples), FADE_OUT_MS * RATE_HZ // 1000)
        samples[len(samples) - count :] *= np.arange(count - 1, -1, -1, dtype=np.float32) / count
    return np.round(samples).astype("<i2").tobytes()


def _end(samples: npt.NDArray[np.float32]) -> int:
    """Return the number of samples to keep: up to the last 10 ms that are not quiet, and a limited part of what follows."""
    num_frames = len(samples) // _FRAME
    power = np.mean(samples[: num_frames * _FRAME].reshape(num_frames, _FRAME) ** 2, axis=1)
    loud = np.flatnonzero(power >= _QUIET**2)
    behind = (int(loud[-1]) + 1) * _FRAME if len(loud) else 0
    return min(len(samples), behind + KEPT_QUIET_MS * RATE_HZ // 1000)
