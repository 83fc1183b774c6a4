"""Measures for how long the other side of a channel has been silent. Runs on: the thread that watches."""

from cc_tts.clock import NS_PER_S, Clock


class Watchdog:
    """Counts for how long a sign of life has been owed, seconds.

    Time counts in steps from one :meth:`poll` to the next, each of at most ``max_step_s``: what is beyond that was a pause
    of this process (a frozen container, SIGSTOP), in which it could have heard nothing.
    """

    def __init__(self, clock: Clock, *, max_step_s: float) -> None:
        self._clock = clock
        self._max_step_s = max_step_s
        self._looked_ns = clock.now_ns()
        self.seconds = 0.0

    def heard(self) -> None:
        """Start again: there was a sign of life, or none is owed yet."""
        self._looked_ns = self._clock.now_ns()
        self.seconds = 0.0

    def count(self, *, owed: bool) -> None:
        """Call :meth:`poll` while a sign of life is owed, else start again."""
        if owed:
            self.poll()
        else:
            self.heard()

    def rest(self) -> None:
        """Pause, since nothing is owed now: the time since the last look does not count, earlier time does."""
        self._looked_ns = self._clock.now_ns()

    def poll(self) -> float:
        """Count the time since the last look; returns ``seconds``."""
        now_ns = self._clock.now_ns()
        self.seconds += min((now_ns - self._looked_ns) / NS_PER_S, self._max_step_s)
        self._looked_ns = now_ns
        return self.seconds
