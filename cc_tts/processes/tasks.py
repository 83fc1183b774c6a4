"""Several tasks at the same time. Runs on: the event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def cancel_all(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel these tasks, ignoring ``None``, and wait for the end of each."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def first_of(*running: Coroutine[Any, Any, Any]) -> int:
    """Run these until one has ended, and cancel the others. Returns its index, the lowest if several have ended; raises its
    error.
    """
    tasks = [asyncio.create_task(each) for each in running]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        have_ended = [task.done() for task in tasks]
        await cancel_all(*tasks)
    place = have_ended.index(True)
    tasks[place].result()
    return place


class TaskSet:
    """Tasks that run at the same time, and are forgotten when they end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def ended(self) -> None:
        """Wait for the end of those that run now."""
        await asyncio.gather(*self._running, return_exceptions=True)

    async def stop(self, timeout_s: float = 0.0) -> None:
        """Cancel the tasks that have not ended after this time, and wait for their end."""
        if self._running and timeout_s:
            await asyncio.wait(self._running, timeout=timeout_s)
        await cancel_all(*self._running)
