"""Waiting for what must come. How long it takes is no measure of anything: the machine may be busy with other things."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Final, TypeVar

Arrived = TypeVar("Arrived")

PATIENCE_S: Final = 60.0
"""After this time a test gives up, half of what pytest gives it; three times what was seen beside four busy processes."""
POLL_S: Final = 0.01


async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Wait until it holds, or what it returns to wait for does; for what no event tells of."""
    async with asyncio.timeout(timeout_s):
        while not (await found if inspect.isawaitable(found := condition()) else found):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)


async def exactly(
    count: int, found: Callable[[], list[Arrived]], changed: asyncio.Event, *, what: str, timeout_s: float = PATIENCE_S
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
