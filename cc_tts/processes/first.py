"""Several things at the same time until the first of them has ended. Runs on: the event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_of(*running: Coroutine[Any, Any, Any]) -> int:
    """Run these until one has ended, and cancel the others. Returns its place, counted from 0, the lowest if several have
    ended; raises what it raised.
    """
    tasks = [asyncio.create_task(each) for each in running]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        have_ended = [task.done() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    place = have_ended.index(True)
    tasks[place].result()
    return place
