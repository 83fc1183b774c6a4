"""The pauses before something that has ended is tried again."""

from typing import Final

from cc_tts.clock import NS_PER_S, Clock

STABLE_AFTER_S: Final = 30.0
"""An attempt that lasted longer than this was no failure to start (unmeasured)."""


class Backoff:
    """Pauses between attempts, seconds: ``min_s``, doubled each time up to ``max_s``, and ``min_s`` again after an attempt
    that lasted more than :data:`STABLE_AFTER_S`.
    """

    def __init__(self, clock: Clock, *, min_s: float, max_s: float) -> None:
        self._clock = clock
        self._min_s = min_s
        self._max_s = max_s
        self._next_s = min_s
        self._begun_ns = clock.now_ns()

    def begin(self) -> None:
        self._begun_ns = self._clock.now_ns()

    def delay_s(self) -> float:
        """Return the pause before the next attempt; the last one has just ended."""
        if (self._clock.now_ns() - self._begun_ns) / NS_PER_S > STABLE_AFTER_S:
            self._next_s = self._min_s
        delay_s, self._next_s = self._next_s, min(self._next_s * 2, self._max_s)
        return delay_s
