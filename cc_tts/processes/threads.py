"""Threads that may hang on a file, as on a dead network disk, in a process that can end nevertheless."""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final
from weakref import WeakSet

from cc_tts import logs
from cc_tts.clock import NS_PER_S, MonotonicClock

SHUTDOWN_TIMEOUT_S: Final = 2.0
"""Threads must finish within this time when the process ends. Unmeasured."""
MAX_THREADS: Final = 8
"""The most threads of the event loop's executor: they wait for a disk, not for a processor. Unmeasured."""

log = logs.get(__name__)


class BoundedExecutor(ThreadPoolExecutor):
    """An executor whose shutdown waits at most :data:`SHUTDOWN_TIMEOUT_S`; that of its base waits for ever."""

    all: ClassVar[WeakSet["BoundedExecutor"]] = WeakSet()

    def __init__(self, max_workers: int, name: str) -> None:
        super().__init__(max_workers, name)
        self.all.add(self)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:  # noqa: FBT001, FBT002 - the base's
        """Accept no more work, and wait a while for the work that has begun."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        clock = MonotonicClock()
        until_ns = clock.now_ns() + round(SHUTDOWN_TIMEOUT_S * NS_PER_S) if wait else 0
        for thread in tuple(self._threads):
            thread.join(max(0.0, (until_ns - clock.now_ns()) / NS_PER_S))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run the event loop of a process. A hung thread does not keep it from ending; see :func:`leave`."""

    async def bounded() -> None:
        asyncio.get_running_loop().set_default_executor(BoundedExecutor(MAX_THREADS, "asyncio"))
        await main

    asyncio.run(bounded())


def leave(status: int) -> int:
    """Return the exit status, or end the process here if a thread hangs, since the interpreter would wait for it."""
    for executor in tuple(BoundedExecutor.all):
        executor.shutdown()
    hung = [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]
    if hung:
        log.warning("threads_hang", threads=sorted(each.name for each in hung), consequence="ending without them")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
