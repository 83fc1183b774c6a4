"""The timers of what a call waits for. Runs on: the event loop."""

import asyncio
from collections.abc import Callable

from cc_tts import logs
from cc_tts.clock import Clock, ms_between
from cc_tts.errors import CcTtsError

log = logs.get(__name__)


class CallTimer:
    """One delayed action of a call. Exceptions of the action are logged."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether an action is waiting to run."""
        return self._handle is not None

    def set(self, delay_s: float, action: Callable[[], object]) -> None:
        """Run ``action`` after this time. It replaces the action that was waiting."""
        self.cancel()
        self._handle = asyncio.get_running_loop().call_later(delay_s, self._run, action)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self, action: Callable[[], object]) -> None:
        self._handle = None
        try:
            action()
        except CcTtsError as error:
            log.warning("timer_failed", call_id=self._call_id, code=error.code, detail=error.detail)


class PausableTimer:
    """A timer that can be paused, for several reasons at once. It runs its action once, and only while no reason is left."""

    def __init__(self, call_id: str, clock: Clock) -> None:
        self._timer = CallTimer(call_id)
        self._clock = clock
        self._action: Callable[[], None] | None = None
        self._left_ms = 0.0
        self._since_ns = 0
        self._paused_by: set[str] = set()

    def set(self, timeout_ms: float | None, action: Callable[[], None]) -> None:
        """Replace the action and its time; with ``None`` it never runs."""
        self.clear()
        if timeout_ms is not None:
            self._left_ms, self._action = timeout_ms, action
            self._go_on()

    def clear(self) -> None:
        self._timer.cancel()
        self._action = None

    def pause(self, reason: str) -> None:
        self._paused_by.add(reason)
        if self._timer.is_set:
            self._left_ms -= ms_between(self._since_ns, self._clock.now_ns())
            self._timer.cancel()

    def resume(self, reason: str) -> None:
        self._paused_by.discard(reason)
        self._go_on()

    def _go_on(self) -> None:
        if self._action is not None and not self._timer.is_set and not self._paused_by:
            self._since_ns = self._clock.now_ns()
            self._timer.set(max(0.0, self._left_ms) / 1000, self._fire)

    def _fire(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()
