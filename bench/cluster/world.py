"""Virtual time: a queue of what happens next. Nothing waits, so an hour takes as long as its events."""

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, Final

from cc_tts.clock import NS_PER_MS

MS_PER_S: Final = 1000.0


class World:
    """The clock of a simulation, what is to happen, and its random numbers. See :class:`cc_tts.clock.Clock`."""

    def __init__(self, seed: int) -> None:
        self.now_ms = 0.0
        self._seed = seed
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._serials = itertools.count()

    def random(self, name: str) -> random.Random:
        """Random numbers of their own for one part, so that a change elsewhere does not change them."""
        return random.Random(f"{self._seed} {name}")

    def at(self, when_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` at an instant, or now if that has passed; at the same instant in the order of these calls."""
        heapq.heappush(self._events, (max(when_ms, self.now_ms), next(self._serials), action, arguments))

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call ``action`` so long from now."""
        self.at(self.now_ms + delay_ms, action, *arguments)

    def run(self, until_ms: float) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(events)
            action(*arguments)
        self.now_ms = until_ms

    def now_ns(self) -> int:
        """Instant, ns."""
        return round(self.now_ms * NS_PER_MS)

    def wall_s(self) -> float:
        """Seconds since the begin."""
        return self.now_ms / MS_PER_S
