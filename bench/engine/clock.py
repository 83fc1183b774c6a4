"""A clock that other programs on the machine cannot disturb."""

import time

from cc_tts.clock import NS_PER_MS


class WorkClock:
    """Processor time of this process, and the idle time it was told to skip, instead of waiting, as one time.

    What is measured by it is what a processor that has nothing else to do would have needed. Only for work that is done by
    this process alone, without a card; see :class:`cc_tts.clock.Clock`.
    """

    def __init__(self) -> None:
        self._skipped_ns = 0

    def now_ns(self) -> int:
        return time.process_time_ns() + self._skipped_ns

    def wall_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def rest(self, duration_ms: float) -> None:
        """Nothing is to be done for so long."""
        self._skipped_ns += int(duration_ms * NS_PER_MS)


class RealClock:
    """The machine's monotonic clock; idle time is waited for."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def wall_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def rest(self, duration_ms: float) -> None:
        """Nothing is to be done for so long."""
        time.sleep(duration_ms / 1000.0)


BenchClock = WorkClock | RealClock
