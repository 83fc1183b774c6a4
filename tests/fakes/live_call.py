"""An established call whose line plays, in virtual time."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from cc_tts.calls.prompts.utterance import CompletionCause
from lab.waiting import until
from tests.fakes.exchange import Exchange
from tests.fakes.playing_ua import PlayingUa
from tests.support.virtual_time import LoopClock


class LiveCall:
    """``given`` is for the exchange. The words of a class that ``speaks`` become a tone by the real rules of text."""

    speaks = True

    def __init__(self, *, user: str = "silent", **given: Any) -> None:
        self.clock = LoopClock()
        self.ua = PlayingUa(self.clock)
        self.exchange = Exchange(ua=self.ua, **given)
        self.exchange.use_clock(self.clock)
        if self.speaks:
            self.exchange.use_real_speech()
        self.call = self.exchange.registry.call(self.exchange.talking(user))
        self.leg = self.ua.legs[self.call.id]
        self.ua.start()

    @classmethod
    @asynccontextmanager
    async def made(cls, **given: Any) -> AsyncIterator[Self]:
        live = cls(**given)
        try:
            yield live
        finally:
            live.call.player.close(CompletionCause.CALL_ENDED)
            await live.ua.stop()

    async def until(self, condition: Callable[[], object], *, timeout_s: float = 300.0) -> None:
        await until(condition, timeout_s)

    async def until_quiet(self) -> None:
        await self.until(lambda: not self.call.player.queue)
