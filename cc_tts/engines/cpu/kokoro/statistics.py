"""The statistics that a voice's instance norms would find in a whole sentence, known before it is synthesised.

A sentence is speech between two silences of fixed lengths. So each mean, and each mean of squares, is a straight line over
the share of silence, which is known from the number of frames. Two sentences give the line of each channel.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts import atomic_file, logs
from cc_tts.media.silence_trimmer import SILENCE_PEAK

log = logs.get(__name__)

Array = npt.NDArray[np.float32]
_LEAST_VARIANCE: Final = 0.3
"""A variance is at least this share of the least one that was measured, where the line makes it negative; unmeasured."""
_RANGE: Final = "range:"
_OTHERS: Final = ("ends", "level")
_UNREADABLE: Final = (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A whole sentence as it was measured: means and variances at each norm, the largest values at each convolution."""

    num_frames: int
    means: Mapping[str, Array]
    variances: Mapping[str, Array]
    ranges: Mapping[str, Array]
    lead: int
    """Frames of silence before the first sound, and ``trail`` behind the last one."""
    trail: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a voice at natural speed."""

    lines: Mapping[str, Array]
    """Each norm has for each channel intercept and slope of the mean and of the mean of squares, and the least variance."""
    ranges: Mapping[str, Array]
    lead: int
    trail: int
    level_dbfs: float | None = None
    """The active level of the voice (ITU-T P.56)."""

    @classmethod
    def of(cls, sentences: Sequence[Sentence]) -> "Statistics":
        """Draw the lines through what was measured."""
        solve = np.linalg.pinv(np.stack([(1.0, 1.0 / each.num_frames) for each in sentences]))
        lines = {}
        for name in sentences[0].means:
            means = np.stack([each.means[name] for each in sentences])
            variances = np.stack([each.variances[name] for each in sentences])
            rows = (*(solve @ means), *(solve @ (variances + means**2)), variances.min(axis=0))
            lines[name] = np.stack(rows).astype(np.float32)
        lead, trail = min(each.lead for each in sentences), min(each.trail for each in sentences)
        return cls(lines, largest(each.ranges for each in sentences), lead, trail)

    def at(self, name: str, num_frames: float) -> tuple[Array, Array]:
        """Return the mean and the variance of each channel at a norm, in a sentence of ``num_frames`` at natural speed."""
        intercept, slope, square, square_slope, least = self.lines[name]
        mean = intercept + slope / num_frames
        variance = np.maximum(square + square_slope / num_frames - mean**2, _LEAST_VARIANCE * least)
        return mean, variance


def largest(ranges: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """The largest value of each channel of each convolution."""
    found: dict[str, Array] = {}
    for each in ranges:
        for name, values in each.items():
            found[name] = np.maximum(found[name], values) if name in found else values
    return found


def silent_frames(audio: Array, samples_a_frame: int) -> tuple[int, int]:
    """Frames of silence at both ends."""
    loud = np.flatnonzero(np.abs(audio) > SILENCE_PEAK / 32768)
    num_frames = len(audio) // samples_a_frame
    if not loud.size:
        return 0, 0
    return int(loud[0]) // samples_a_frame, num_frames - 1 - int(loud[-1]) // samples_a_frame


def load(path: Path) -> Statistics | None:
    """Return the statistics that were kept in a file; ``None`` if there is none or it is damaged."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
            lines = {name: kept[name] for name in kept.files if not name.startswith(_RANGE) and name not in _OTHERS}
            ranges = {name.removeprefix(_RANGE): kept[name] for name in kept.files if name.startswith(_RANGE)}
            lead, trail = map(int, kept["ends"])
            level_dbfs = float(kept["level"])
    except _UNREADABLE:
        return None
    return Statistics(lines, ranges, lead, trail, level_dbfs)


def level_of(path: Path) -> float | None:
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as kept:
            return round(float(kept["level"]), 1)
    except _UNREADABLE:
        return None


def keep(path: Path, statistics: Statistics) -> None:
    """Write them to a file, if the folder takes files and the voice was heard."""
    if statistics.level_dbfs is None:
        return
    data = io.BytesIO()
    kept: dict[str, Any] = {f"{_RANGE}{name}": values for name, values in statistics.ranges.items()}
    kept |= {**statistics.lines, "ends": np.array([statistics.lead, statistics.trail]), "level": statistics.level_dbfs}
    np.savez(data, **kept)
    try:
        path.parent.mkdir(exist_ok=True)
        atomic_file.write(path, data.getvalue())
    except OSError as error:
        log.warning("statistics_not_kept", path=str(path), detail=str(error))
