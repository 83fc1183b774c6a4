from collections.abc import AsyncIterator

import pytest

from tests.fakes.exchange import Exchange
from tests.support.captured_logs import quiet

__all__ = ["exchanges_are_closed", "quiet"]


@pytest.fixture(autouse=True)
async def exchanges_are_closed() -> AsyncIterator[None]:
    """A prompt player that is not closed goes on feeding while the loop ends."""
    yield
    while Exchange.opened:
        exchange = Exchange.opened.pop()
        exchange.ua.die()
        await exchange.settle()
