"""Timers of an event loop in virtual time."""

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.fakes.exchange import Exchange


class VirtualLoop:
    """``call_later`` of an event loop whose time only :meth:`advance` moves."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._due: list[tuple[float, Callable[[], None], VirtualHandle]] = []
        self.now_ms = 0.0

    @property
    def module(self) -> Any:
        return SimpleNamespace(TimerHandle=asyncio.TimerHandle, get_running_loop=lambda: self)

    @property
    def num_due(self) -> int:
        """The number of calls that time will make."""
        return sum(not handle.cancelled for _, _, handle in self._due)

    def call_later(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> "VirtualHandle":
        handle = VirtualHandle()
        self._due.append((self.now_ms + delay_s * 1000, partial(action, *arguments), handle))
        return handle

    def advance(self, ms: float) -> None:
        end_ms = self.now_ms + ms
        while due := [each for each in self._due if each[0] <= end_ms and not each[2].cancelled]:
            first = min(due, key=lambda each: each[0])
            self._due.remove(first)
            self._to(first[0])
            first[1]()
        self._to(end_ms)

    def _to(self, at_ms: float) -> None:
        self._exchange.clock.advance(at_ms - self.now_ms)
        self.now_ms = at_ms


class VirtualHandle:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
