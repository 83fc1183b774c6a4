"""The timer of what a call waits for. Runs on: the event loop."""

import asyncio
from collections.abc import Callable

from cc_tts import logs
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
