"""The growing pauses before something that has failed is tried again. No pjsua2 here."""

from typing import Final

from cc_tts.clock import NS_PER_S, Clock

MAX_PAUSE_S: Final = 300.0  # unmeasured


class RetryPace:
    """Pauses of ``first_s``, ``base_s``, twice that and so on, to :data:`MAX_PAUSE_S` or ``base_s`` if that is more."""

    def __init__(self, *, first_s: float, base_s: float, clock: Clock) -> None:
        self._first_s = first_s
        self._base_s = base_s
        self._clock = clock
        self._failures = 0
        self._due_ns: int | None = None

    def failed(self) -> None:
        """The last attempt failed: the next one follows after the next pause."""
        pause_s = self._first_s
        if self._failures:
            pause_s = min(self._base_s * 2.0 ** min(self._failures - 1, 20), max(MAX_PAUSE_S, self._base_s))
        self._failures += 1
        self._due_ns = self._clock.now_ns() + round(pause_s * NS_PER_S)

    def succeeded(self) -> None:
        """The last attempt succeeded: nothing is due until one fails."""
        self._failures, self._due_ns = 0, None

    def stop(self) -> None:
        """Give up: there are no more attempts."""
        self._due_ns = None

    def is_due(self) -> bool:
        """Whether to try now; true once for each pause."""
        if self._due_ns is None or self._clock.now_ns() < self._due_ns:
            return False
        self._due_ns = None
        return True
