"""Figures of the engine's benches: flatness, shards, texts' lengths. No torch, no clock."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from lab.server_under_test import Json

TOKENS_PER_S: Final = 25
FLAT: Final = 0.2
"""How far a chunk's cost may be from the median of all to be called flat."""

ROW_SECONDS: Final = (
    3.2, 9.1, 5.4, 6.8, 4.1, 11.6, 7.3, 5.9, 2.8, 8.4, 6.1, 7.7, 4.6,
    10.2, 5.2, 6.5, 3.7, 12.3, 6.9, 5.6, 8.0, 4.9, 7.1, 6.3, 5.0, 6.4,
)  # fmt: skip
"""Seconds of speech of 26 rows, 171 s in all: as many and as much as the published rows have (engine-performance §2.1).
How that amount is spread over the rows is made up."""


def shards(rows: Sequence[int], num_tasks: int) -> list[list[int]]:
    """Contiguous parts of ``rows``, the first ones longer by one; a closed loop works on each (§2.1)."""
    if num_tasks < 1:
        raise ValueError(f"{num_tasks} tasks")
    each, more = divmod(len(rows), num_tasks)
    result = []
    begin = 0
    for task in range(num_tasks):
        end = begin + each + (task < more)
        result.append(list(rows[begin:end]))
        begin = end
    return result


def ratios(rounds: Sequence[Mapping[str, float]], base: str) -> Json:
    """Of each variant the median cost, and how many times less it is than ``base``.

    Every round ran all variants one after the other, so its noise hits all of them: the ratio is taken within the round, and
    of these the median and the extremes are given.
    """
    if not rounds:
        return {}
    result: Json = {}
    for name in rounds[0]:
        times = [costs[base] / costs[name] for costs in rounds]
        result[name] = {
            "median_ms": round(statistics.median(costs[name] for costs in rounds), 2),
            "times_less": round(statistics.median(times), 2),
            "times_less_from": round(min(times), 2),
            "times_less_to": round(max(times), 2),
        }
    return result


def flatness(costs_ms: Sequence[float]) -> Json:
    """Whether chunks cost the same from first to last: none is more than ``FLAT`` from their median."""
    middle = statistics.median(costs_ms)
    worst = max(abs(cost / middle - 1.0) for cost in costs_ms)
    return {
        "median_ms": round(middle, 3),
        "worst_deviation": round(worst, 3),
        "last_to_first": round(costs_ms[-1] / costs_ms[0], 3),
        "is_flat": worst <= FLAT,
    }
