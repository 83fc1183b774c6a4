"""The outline of a WAV file: how loud each side is over time. Waits for the disk: runs on threads."""

from pathlib import Path
from typing import Final

import numpy as np

from cc_tts.callreport.picture import Waveform

MAX_PEAKS: Final = 1500
"""The most pieces of an outline: more than a picture has room for (unmeasured)."""
MIN_STEP_S: Final = 0.02
"""The shortest piece is one frame of 20 ms (RFC 3551 §4.2)."""


def waveforms(path: Path, *names: str, begin_s: float) -> list[Waveform]:
    """Return the outline of each side of a file; none if it holds no audio that can be read. Raises ``OSError``.

    ``names``: of the sides, of which a file may have fewer. ``begin_s``: when its audio begins in the report.
    """
    import soundfile  # loads libsndfile, which only reports need

    try:
        with path.open("rb") as raw, soundfile.SoundFile(raw) as file:
            step = max(round(MIN_STEP_S * file.samplerate), -(-file.frames // MAX_PEAKS))
            peaks = [np.abs(piece).max(axis=0) for piece in file.blocks(step, dtype="float32", always_2d=True)]
            sides = np.round(peaks, 3).T if peaks else np.zeros((file.channels, 0))
            step_s = step / file.samplerate
    except (soundfile.LibsndfileError, RuntimeError, TypeError, ValueError):
        return []
    named = zip(names, sides, strict=False)
    return [Waveform(name=name, begin_s=begin_s, step_s=step_s, peaks=side.tolist()) for name, side in named]
