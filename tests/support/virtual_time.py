"""An event loop whose time passes only while nothing is left to do: a minute of timers takes no time."""

import asyncio
import selectors
from typing import Any


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
