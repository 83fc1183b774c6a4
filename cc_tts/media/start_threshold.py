"""The audio that an utterance needs before it starts: little while the engine is smooth, more after underruns."""

from typing import Final

_RISE: Final = 1.5
_DECAY: Final = 0.8


class StartThreshold:
    """The threshold rises after an underrun by half and by the missing time, and falls after a smooth utterance by a fifth
    towards its minimum.

    Runs on: the thread that counts the underruns.
    """

    def __init__(self, *, floor_ms: float, ceiling_ms: float) -> None:
        self.floor_ms = floor_ms
        self.ceiling_ms = ceiling_ms
        self._current_ms = floor_ms

    def __str__(self) -> str:
        return f"starts at {self.floor_ms:g} to {self.ceiling_ms:g} ms"

    @property
    def current_ms(self) -> int:
        return round(self._current_ms)

    def underrun(self, missing_ms: float) -> None:
        self._current_ms = min(self.ceiling_ms, self._current_ms * _RISE + max(0.0, missing_ms))

    def smooth(self) -> None:
        """Count an utterance that was played without an underrun."""
        self._current_ms = self.floor_ms + (self._current_ms - self.floor_ms) * _DECAY
        if self._current_ms - self.floor_ms < 1:
            self._current_ms = self.floor_ms
