"""The media clock of the MRCP process: every 20 ms it sends a frame of every busy line. Runs on: the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from cc_tts import logs
from cc_tts.audio import PTIME_NS
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.mrcp.rtp.line import RtpLine

MAX_BEHIND_NS: Final = 5 * PTIME_NS
"""Missed ticks are made up for up to this much; beyond it the clock starts again from now. Unmeasured."""

log = logs.get(__name__)


class Pacer:
    """Ticks while a line is busy. ``lines`` returns those that there are."""

    def __init__(self, lines: Callable[[], Sequence[RtpLine]], clock: Clock) -> None:
        self._lines = lines
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """A line may have something to play."""
        if self._task is None or self._task.done():  # it may be done before its callback has run
            self._task = asyncio.create_task(self._run(), name="media clock")
            self._task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("media_clock_failed", exc_info=error)

    async def _run(self) -> None:
        due_ns = self._clock.now_ns()
        while busy := [line for line in self._lines() if line.is_busy]:
            for line in busy:
                self._tick(line, due_ns)
            due_ns += PTIME_NS
            now_ns = self._clock.now_ns()
            if now_ns - due_ns > MAX_BEHIND_NS:
                due_ns = now_ns
            await asyncio.sleep(max(0.0, (due_ns - now_ns) / NS_PER_S))

    def _tick(self, line: RtpLine, now_ns: int) -> None:
        """Play one frame of each line; a fault in one session does not affect the others."""
        try:
            line.tick(now_ns)
        except Exception as error:
            log.exception("frame_failed")
            line.fail(type(error).__name__)
