"""The outline of a WAV file: how loud each side is over time. Waits for the disk: runs on threads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

MAX_PEAKS: Final = 1500
"""The most pieces of an outline: more than a picture has room for (unmeasured)."""
MIN_STEP_S: Final = 0.02
"""The shortest piece is one frame of 20 ms (RFC 3551 §4.2)."""


@dataclass(frozen=True, slots=True)
class Outline:
    """The largest sample, from 0 to 1, of each piece of ``step_s``, for each channel."""

    step_s: float
    channels: tuple[tuple[float, ...], ...]


def outline(path: Path) -> Outline | None:
    """Read the outline of a file; ``None`` if it holds no audio that can be read. Raises ``OSError``."""
    import soundfile  # loads libsndfile, which only reports need

    try:
        with path.open("rb") as raw, soundfile.SoundFile(raw) as file:
            step = max(round(MIN_STEP_S * file.samplerate), -(-file.frames // MAX_PEAKS))
            peaks = [np.abs(piece).max(axis=0) for piece in file.blocks(step, dtype="float32", always_2d=True)]
            sides = np.round(peaks, 3).T if peaks else np.zeros((file.channels, 0))
            return Outline(step / file.samplerate, tuple(tuple(side.tolist()) for side in sides))
    except (soundfile.LibsndfileError, RuntimeError, TypeError, ValueError):
        return None
