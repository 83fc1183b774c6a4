"""An event loop whose time passes only while nothing is left to do: a minute of timers takes no time."""

import asyncio
import functools
import inspect
import selectors
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Concatenate, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


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


Test = Callable[..., Coroutine[Any, Any, None]]


def virtual_time(test: Test, parameters: Sequence[inspect.Parameter] | None = None) -> Callable[..., None]:
    """Run a test in virtual time; it has these fixtures and parameters, if they are not those of ``test``."""

    @functools.wraps(test)
    def wrapped(*arguments: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(test(*arguments, **fixtures))

    if parameters is not None:
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return wrapped


class Decorator(Protocol[T_co]):
    """It decorates a test that takes what it needs as its first argument."""

    def __call__(self, test: Callable[Concatenate[T_co, ...], Coroutine[Any, Any, None]], /) -> Callable[..., None]: ...


def in_virtual_time(make: Callable[[], AbstractAsyncContextManager[T]]) -> Decorator[T]:
    """Run a test in virtual time with what ``make`` makes in the loop, as its first argument."""

    def decorate(test: Callable[Concatenate[T, ...], Coroutine[Any, Any, None]], /) -> Callable[..., None]:
        @functools.wraps(test)
        async def run(**fixtures: Any) -> None:
            async with make() as made:
                await test(made, **fixtures)

        return virtual_time(run, list(inspect.signature(test).parameters.values())[1:])

    return decorate
