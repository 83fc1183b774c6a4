from collections.abc import AsyncIterator

import pytest

from cc_tts.calls import timer
from tests.fakes.exchange import Exchange
from tests.fakes.virtual_loop import VirtualLoop
from tests.support.captured_logs import quiet

__all__ = ["exchanges_are_closed", "quiet", "timed"]


@pytest.fixture(autouse=True)
async def exchanges_are_closed() -> AsyncIterator[None]:
    """A prompt player that is not closed goes on feeding while the loop ends."""
    yield
    while Exchange.opened:
        exchange = Exchange.opened.pop()
        exchange.ua.die()
        await exchange.settle()


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def timed(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> tuple[Exchange, VirtualLoop]:
    loop = VirtualLoop(exchange)
    monkeypatch.setattr(timer, "asyncio", loop.module)
    return exchange, loop
