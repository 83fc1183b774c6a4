from collections.abc import AsyncIterator, Iterator

import pytest
import structlog

from tests.fakes.exchange import Exchange


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Failures made on purpose are not printed with all their locals."""
    with structlog.testing.capture_logs():
        yield


@pytest.fixture(autouse=True)
async def exchanges_are_closed() -> AsyncIterator[None]:
    """A prompt player that is not closed goes on feeding while the loop ends."""
    yield
    while Exchange.opened:
        exchange = Exchange.opened.pop()
        exchange.ua.die()
        await exchange.settle()
