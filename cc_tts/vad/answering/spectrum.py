"""The sound of half a window of a line: how loud it is, and whether it is a tone. Many legs at once.

A spectrum is taken of 32 ms every 16 ms, so that a beep of 80 ms holds at least three whole ones.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

LOWEST_HZ: Final = 250.0
"""Hum of the mains and its loud harmonics are below."""
HIGHEST_HZ: Final = 3600.0
"""A telephone line carries little above 3.4 kHz."""
MEAN_OF_RMS: Final = 0.8
"""Mean of the absolute values of speech and noise as a share of their RMS: 0.80 for Gaussian noise, less for speech."""
PEAK_BINS: Final = 2
"""A sine lies in this many bins on either side of its peak with a Hann window."""


class Sound(NamedTuple):
    """``level``: mean amplitude between 250 and 3600 Hz, of 32767. ``hz``, ``second_hz``: of the two
    loudest components. ``purity``: their share in the power, 1 for a tone of one or two frequencies.
    """

    level: float
    hz: float
    second_hz: float
    purity: float


@cache
def _bins(size: int, rate_hz: int) -> tuple[Floats, npt.NDArray[np.float64], slice]:
    """The window function, the frequencies, and the bins of the line."""
    window = np.hanning(size).astype(np.float32)
    hz = np.fft.rfftfreq(size, 1 / rate_hz)
    first, last = np.searchsorted(hz, (LOWEST_HZ, HIGHEST_HZ))
    return window, hz.astype(np.float64), slice(int(first), int(last))


def sounds(windows: Floats, rate_hz: int) -> list[Sound]:
    """The sound of each row, samples of full scale 1."""
    size = windows.shape[1]
    window, hz, line = _bins(size, rate_hz)
    power = np.abs(np.fft.rfft(windows * window, axis=1)[:, line]) ** 2
    total = power.sum(axis=1)
    rows = np.arange(len(power))
    first = power.argmax(axis=1)
    loudest = _around(power, first)
    rest = power.copy()
    for step in range(-PEAK_BINS, PEAK_BINS + 1):
        rest[rows, np.clip(first + step, 0, power.shape[1] - 1)] = 0
    second = rest.argmax(axis=1)
    loudest += _around(rest, second)
    mean_square = 2 * total / (size * float((window**2).sum()))
    level = 32768 * MEAN_OF_RMS * np.sqrt(mean_square)
    purity = loudest / np.maximum(total, 1e-12)
    peak_hz = _interpolated(power, first, rows) * (hz[1] - hz[0]) + hz[line.start]
    return [Sound(*map(float, each)) for each in zip(level, peak_hz, hz[line][second], purity, strict=True)]


def _around(power: Floats, peak: npt.NDArray[np.intp]) -> Floats:
    """The power of a peak with the bins beside it."""
    rows, last = np.arange(len(power)), power.shape[1] - 1
    found = np.zeros(len(power), power.dtype)
    for step in range(-PEAK_BINS, PEAK_BINS + 1):
        at = peak + step
        found += np.where((at >= 0) & (at <= last), power[rows, np.clip(at, 0, last)], 0)
    return found


def _interpolated(power: Floats, peak: npt.NDArray[np.intp], rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
    """The place of a peak between the bins, by a parabola through three logarithms."""
    last = power.shape[1] - 1
    left, middle, right = (
        np.log(np.maximum(power[rows, np.clip(peak + step, 0, last)], 1e-12)).astype(np.float64) for step in (-1, 0, 1)
    )
    curve = left - 2 * middle + right
    step = np.where(np.abs(curve) > 1e-9, 0.5 * (left - right) / np.where(curve == 0, 1, curve), 0)  # noqa: PLR2004 - flat
    found: npt.NDArray[np.float64] = peak + np.clip(step, -0.5, 0.5)
    return found
