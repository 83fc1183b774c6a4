"""How late the media clock's 20 ms ticks are, and whether new calls are refused for that.

How many calls a machine carries depends on the machine, the codecs, and what else runs on it. What a listener notices is
measured here instead: the time between two frames of one leg, beyond the 20 ms it should be. New calls are refused while
the 99th percentile of the last seconds is above the bound, and accepted again at half of it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from cc_tts.audio import PTIME_NS
from cc_tts.clock import NS_PER_MS, NS_PER_S
from cc_tts.ua.messages import MediaLateness

TURN_NS: Final = NS_PER_S
WINDOW_TURNS: Final = 5
"""The percentile is taken over this many seconds; unmeasured."""
MIN_FRAMES: Final = 100
"""There is no percentile with fewer frames in the window, 2 s of one call (unmeasured)."""
MIN_LATE_FRAMES: Final = 10
"""No call is refused with fewer late frames: in a single call three late frames in five seconds are 1 % already
(unmeasured).
"""
PERCENTILE: Final = 0.99
RELEASE_SHARE: Final = 0.5
"""Calls are accepted again at this share of the bound; unmeasured."""
LONGEST_MS: Final = 1000
"""A leg without a request for longer than this was on hold, or had no stream (unmeasured)."""


class TickLateness:
    """The lateness of media clock ticks against a bound, ``max_ms``; 0 measures and refuses nothing."""

    def __init__(self, max_ms: float) -> None:
        self._max_ms = max_ms
        self._counts = [0] * (LONGEST_MS + 1)  # frames by whole ms of lateness; the clock's until turn() takes it
        self._window: deque[list[int]] = deque(maxlen=WINDOW_TURNS)
        self._turned_ns = 0
        self.refusing = False

    def add(self, gap_ns: int) -> None:
        """Note that a frame was requested ``gap_ns`` after the previous one of its leg. REAL-TIME. Runs on: the media
        clock's thread.
        """
        late_ms = (gap_ns - PTIME_NS) // NS_PER_MS
        if late_ms <= 0:
            self._counts[0] += 1
        elif late_ms <= LONGEST_MS:
            self._counts[late_ms] += 1

    def tick(self, now_ns: int) -> MediaLateness | None:
        """Evaluate the last seconds; ``None`` until a second has passed since the last time. Runs on: the SIP thread."""
        if now_ns - self._turned_ns < TURN_NS:
            return None
        self._turned_ns = now_ns
        self._window.append(self._counts)
        self._counts = [0] * (LONGEST_MS + 1)
        counts = [sum(column) for column in zip(*self._window, strict=True)]
        p99_ms = _percentile_ms(counts)
        if self._max_ms:
            bound_ms = self._max_ms * (RELEASE_SHARE if self.refusing else 1.0)
            self.refusing = p99_ms > bound_ms and sum(counts[int(bound_ms) + 1 :]) >= MIN_LATE_FRAMES
        return MediaLateness(p99_ms=p99_ms, refusing=self.refusing)


def _percentile_ms(counts: Sequence[int]) -> float:
    """Return the percentile from counts of frames by whole ms of lateness."""
    total = sum(counts)
    if total < MIN_FRAMES:
        return 0.0
    above = total * (1 - PERCENTILE)
    for late_ms in range(LONGEST_MS, 0, -1):
        above -= counts[late_ms]
        if above < 0:
            return float(late_ms)
    return 0.0
