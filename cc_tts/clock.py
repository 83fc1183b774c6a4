"""The clock, which is injected everywhere. No other module of the package imports ``time``.

CLOCK_MONOTONIC is one clock for all processes of a machine, so instants cross process boundaries and may be subtracted.

Instants are whole nanoseconds. A duration has its unit in its name; what is in seconds or milliseconds becomes nanoseconds,
and back, by :data:`NS_PER_S`, :data:`NS_PER_MS` and :func:`ms_between`.
"""

import time
from typing import Protocol

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


def thread_cpu_ns() -> int:
    """Return the processor time that the calling thread has used."""
    return time.thread_time_ns()


class Clock(Protocol):
    """The clock that the program asks for the time."""

    def now_ns(self) -> int:
        """Instant on CLOCK_MONOTONIC, ns."""

    def wall_s(self) -> float:
        """Seconds since the Unix epoch, for people and logs; never subtracted."""


class MonotonicClock:
    def now_ns(self) -> int:
        """Instant on CLOCK_MONOTONIC, ns."""
        return time.monotonic_ns()

    def wall_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()


def ms_between(start_ns: int, end_ns: int) -> float:
    """Milliseconds from ``start_ns`` to ``end_ns``, to the microsecond."""
    return round((end_ns - start_ns) / NS_PER_MS, 3)
