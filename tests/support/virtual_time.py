"""An event loop whose time passes only while nothing is left to do: a minute of timers takes no time."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

T = TypeVar("T")


class _Impatient(selectors.SelectSelector):
    """Lets the loop's time jump instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen: no timer and no socket is left")
        if not ready and timeout:
            self.now_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For ``asyncio.Runner(loop_factory=VirtualTimeLoop)``."""

    def __init__(self) -> None:
        self._impatient = _Impatient()
        super().__init__(self._impatient)

    def time(self) -> float:
        return self._impatient.now_s


class LoopClock:
    """A :class:`cc_tts.clock.Clock` with the loop's time."""

    def now_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e9)

    def wall_s(self) -> float:
        return asyncio.get_running_loop().time()


def in_virtual_time(
    make: Callable[[], AbstractAsyncContextManager[T]],
) -> Callable[[Callable[[T], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run a test in virtual time with what ``make`` makes in the loop, as its only argument."""

    def decorate(test: Callable[[T], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def run() -> None:
            async with make() as made:
                await test(made)

        @functools.wraps(test)
        def wrapped() -> None:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                runner.run(run())

        del wrapped.__wrapped__  # pytest would look for a fixture of the argument's name
        return wrapped

    return decorate
