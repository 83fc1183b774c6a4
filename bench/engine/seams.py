"""Clicks and end noise in audio, as numbers. No torch.

A click is a jump of the first difference of the samples against what is usual around it. How large a jump is usual
depends on the sound, so every figure is held against the same figure of the same speech made in one piece.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lab.server_under_test import Json

Samples = npt.NDArray[np.float64]

RATE_HZ: Final = 24_000
NEAR: Final = 24
"""1 ms on each side of a join: where its jump is looked for."""
AROUND: Final = 480
"""20 ms on each side: what is usual there."""
COMB: Final = 1201
"""Distance of the places at which the whole run is sampled for what is usual; no multiple of a frame."""
MARGIN: Final = 1.5
"""A join that jumps so many times more than anything in the whole run is a click."""
TAIL_MS: Final = 40
BODY_MS: Final = 400


def jump(audio: Samples, place: int) -> float:
    """The largest first difference at ``place`` against the median of those around it; 0 without any sound."""
    differences = np.abs(np.diff(audio[max(0, place - AROUND) : place + AROUND]))
    centre = place - max(0, place - AROUND)
    near = differences[max(0, centre - NEAR) : centre + NEAR]
    usual = float(np.median(differences)) if differences.size else 0.0
    return float(near.max()) / usual if near.size and usual > 0.0 else 0.0


def comb(audio: Samples) -> list[float]:
    """Jumps at places all over ``audio``: what is usual in this speech."""
    return [jump(audio, place) for place in range(AROUND, len(audio) - AROUND, COMB)]


def seams(streamed: Samples, whole: Samples, joins: Sequence[int]) -> Json:
    """Jumps at the joins of the streamed audio, at the same places of the whole, and how many of them are clicks.

    ``joins`` are samples at which a new piece begins, or at which its fade is over.
    """
    at_joins = [jump(streamed, place) for place in joins]
    same = [jump(whole, place) for place in joins]
    limit = MARGIN * max(comb(whole), default=0.0)
    return {
        "num_joins": len(joins),
        "jump_at_joins": _median_and_max(at_joins),
        "jump_of_whole_there": _median_and_max(same),
        "jump_of_whole_anywhere": _median_and_max(comb(whole)),
        "click_limit": round(limit, 2),
        "num_clicks": sum(score > limit for score in at_joins),
    }


def end_noise(audio: Samples) -> Json:
    """The last 40 ms against the 400 ms before them: loudness and the largest first difference."""
    tail = audio[-RATE_HZ * TAIL_MS // 1000 :]
    body = audio[-RATE_HZ * (TAIL_MS + BODY_MS) // 1000 : -RATE_HZ * TAIL_MS // 1000]
    return {"rms_ratio": _ratio(_rms(tail), _rms(body)), "step_ratio": _ratio(_step(tail), _step(body))}


def _rms(audio: Samples) -> float:
    return float(np.sqrt(np.mean(audio**2))) if audio.size else 0.0


def _step(audio: Samples) -> float:
    return float(np.abs(np.diff(audio)).max()) if audio.size > 1 else 0.0


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole > 0.0 else None


def _median_and_max(values: Sequence[float]) -> Json:
    if not values:
        return {"n": 0}
    return {"n": len(values), "median": round(float(np.median(values)), 2), "max": round(float(max(values)), 2)}
