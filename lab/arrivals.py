"""Waiting for as many of something as there must be."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

Arrived = TypeVar("Arrived")


async def exactly(
    count: int, found: Callable[[], list[Arrived]], changed: asyncio.Event, *, what: str, timeout_s: float
) -> list[Arrived]:
    """Wait until ``found`` lists so many, looking again whenever ``changed`` is set; there must not be more by then."""
    try:
        async with asyncio.timeout(timeout_s):
            while len(listed := found()) < count:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        raise TimeoutError(f"not {count} {what} within {timeout_s} s: {listed}") from None
    assert len(listed) == count, listed
    return listed
