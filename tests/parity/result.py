"""One comparison of our numbers with recorded ones, and its verdict."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]
Numbers: TypeAlias = Tensor | Array | Iterable[int]

EXACT: Final = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was computed and what was recorded. With the tolerance ``EXACT`` the type of the weights excuses nothing."""

    case: str
    ours: Numbers
    recorded: Numbers
    tolerance: float


Comparisons = Iterator[Comparison]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row of the table."""

    case: str
    max_error: float
    """Infinite where shapes differ or one side only is minus infinity; not a number where ours is none."""
    snr_db: float
    """Infinite when nothing differs."""
    tolerance: float
    seconds: float
    is_ok: bool
    is_judged: bool = True
    """False where the tolerance is for another type than the one that was used."""
    note: str = ""


def verdict_on(comparison: Comparison, seconds: float, *, is_float32: bool) -> Verdict:
    """Judge a comparison. In other types than float32 the tolerance is not held up, but numbers must be finite."""
    max_error, snr_db = distance(comparison.ours, comparison.recorded)
    is_judged = is_float32 or comparison.tolerance == EXACT
    is_ok = max_error <= comparison.tolerance if is_judged else bool(np.isfinite(max_error))
    return Verdict(comparison.case, max_error, snr_db, comparison.tolerance, seconds, is_ok, is_judged)


def distance(ours: Numbers, recorded: Numbers) -> tuple[float, float]:
    """Greatest absolute difference, and how far the differences lie below the recorded numbers in dB.

    Places where both are minus infinity are equal.
    """
    a, b = as_array(ours), as_array(recorded)
    if a.shape != b.shape:
        return float("inf"), float("-inf")
    if not np.array_equal(np.isneginf(a), np.isneginf(b)):
        return float("inf"), float("-inf")
    held = ~np.isneginf(b)
    difference = a[held] - b[held]
    if not difference.size:
        return 0.0, float("inf")
    noise, signal = float(np.square(difference).sum()), float(np.square(b[held]).sum())
    if noise == 0.0:
        return 0.0, float("inf")
    snr_db = 10.0 * float(np.log10(signal / noise)) if signal > 0.0 else float("-inf")
    return float(np.abs(difference).max()), snr_db


def as_array(numbers: Numbers) -> npt.NDArray[np.float64]:
    """The numbers in float64, without dimensions of one entry."""
    if isinstance(numbers, Tensor):
        numbers = numbers.detach().to("cpu").double().numpy()
    elif not isinstance(numbers, np.ndarray):
        numbers = np.array(list(numbers))
    return np.atleast_1d(numbers.astype(np.float64).squeeze())


def count_differences(ours: Iterable[object], recorded: Iterable[object]) -> tuple[list[int], list[int]]:
    """A comparison of things that are no numbers: 1 for each that differs, against zeros."""
    wrong = [int(a != b) for a, b in zip(ours, recorded, strict=True)]
    return wrong, [0] * len(wrong)
