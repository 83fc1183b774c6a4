"""A source is what a client sends of one utterance while it is played, text or audio. Runs on: the event loop."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable


class IncrementalSource(ABC):
    """A client appends, the call's player takes. ``on_taken`` is called after the player took something."""

    def __init__(self, on_taken: Callable[[], None]) -> None:
        self._on_taken = on_taken
        self._changed = asyncio.Event()
        self.has_ended = False
        self.is_over = False
        """Everything was taken that ever will be."""

    @property
    @abstractmethod
    def num_pending(self) -> float:
        """Characters of text, or milliseconds of audio, that were not taken yet."""

    @abstractmethod
    def mark(self, name: str) -> None:
        """Name the place behind what has come so far. A source that :attr:`is_over` takes no marks."""

    def end(self) -> None:
        """No more will come."""
        self.has_ended = True
        self._changed.set()

    async def changed(self, timeout_s: float) -> bool:
        """Wait for more or for the end; returns whether that came in time."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
                return True
        return False
