"""A queue of items for one reader. A slow reader cannot delay the server."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, Generic, TypeVar

ITEMS_A_TURN: Final = 50
"""This many items are sent before other tasks of the event loop run; unmeasured."""

T = TypeVar("T")


class Outbox(Generic[T]):
    """A bounded queue. It ends with ``overflowed`` when it is full, since the reader is too slow. Its initial items do not
    count.
    """

    def __init__(self, max_queued: int, begin_with: Iterable[T] = ()) -> None:
        self._max_queued = max_queued
        self._queue = deque(begin_with)
        self._num_earlier = len(self._queue)
        self._num_taken = 0
        self._wake = asyncio.Event()
        self._was_taken = asyncio.Event()
        self.is_closed = False
        """Whether no more items are accepted."""
        self.overflowed = False
        self.displaced = False
        """Whether another reader has taken the place of this one."""

    def put(self, item: T) -> None:
        """Queue an item; does nothing after the end."""
        if self.is_closed:
            return
        if len(self._queue) - self._num_earlier < self._max_queued:
            self._queue.append(item)
            self._wake.set()
        else:
            self.overflowed = True
            self.close()

    async def has_room(self) -> None:
        """Wait until less than half of the queue is used, or for the end. Producers that can wait use it."""
        while len(self._queue) >= self._max_queued // 2 and not self.is_closed:
            self._was_taken.clear()
            await self._was_taken.wait()

    def drop(self, is_dropped: Callable[[T], bool]) -> list[T]:
        """Remove queued items that are no longer wanted."""
        dropped = [item for item in self._queue if is_dropped(item)]
        self._queue = deque(item for item in self._queue if not is_dropped(item))
        self._num_earlier = min(self._num_earlier, len(self._queue))
        self._was_taken.set()
        return dropped

    def close(self) -> None:
        """Accept no more items. The iteration ends after those that are queued. Safe to call twice."""
        self.is_closed = True
        self._wake.set()
        self._was_taken.set()

    @property
    def has_queued(self) -> bool:
        return bool(self._queue)

    async def wait(self) -> bool:
        """Wait for an item; return whether there is one, or false at the end. Other tasks run after every
        :data:`ITEMS_A_TURN` items.
        """
        if self._num_taken >= ITEMS_A_TURN:
            self._num_taken = 0
            await asyncio.sleep(0)
        while not self._queue and not self.is_closed:
            self._wake.clear()
            await self._wake.wait()
        return bool(self._queue)

    def take(self) -> T:
        """Return the oldest item; :meth:`wait` has said that there is one."""
        self._num_earlier = max(0, self._num_earlier - 1)
        self._num_taken += 1
        self._was_taken.set()
        return self._queue.popleft()

    async def __aiter__(self) -> AsyncIterator[T]:
        while await self.wait():
            yield self.take()
