"""A source: the text or audio of one utterance that a client sends while it is played. Runs on: the event loop."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable


class IncrementalSource(ABC):
    """A client appends, and the call's player takes. ``on_taken`` is called after the player has taken something."""

    def __init__(self, on_taken: Callable[[], None]) -> None:
        self._on_taken = on_taken
        self._changed = asyncio.Event()
        self.has_ended = False
        self.is_over = False
        """Whether everything was taken and no more will come."""

    @property
    @abstractmethod
    def num_pending(self) -> float:
        """Return the characters of text, or milliseconds of audio, that were not taken yet."""

    @abstractmethod
    def mark(self, name: str) -> None:
        """Set a mark behind the input so far. A source that :attr:`is_over` accepts no marks."""

    def end(self) -> None:
        """No more will come."""
        self.has_ended = True
        self._changed.set()

    async def changed(self, timeout_s: float) -> bool:
        """Wait for more input or for the end; return whether that came in time."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
                return True
        return False
