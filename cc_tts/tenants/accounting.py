"""The accounting file: a line of JSON for each utterance that is complete and each call that is over.

A line has what bills are made of, and what finds the call in the records of others. It has no text, no digit and no number
of a caller. Lines are written by a thread, at most
every :data:`INTERVAL_S`. The file is opened for each writing, so that it may be moved (logrotate) at any time. While it
cannot be written lines wait, up to :data:`MAX_WAITING_LINES`; those beyond are lost and counted. Runs on: the event loop.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import atomic_file, logs
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics

INTERVAL_S: Final = 0.2  # unmeasured
RETRY_INTERVAL_S: Final = 1.0  # unmeasured
MAX_WAITING_LINES: Final = 20_000  # unmeasured
MAX_LINES_A_WRITE: Final = 1000  # unmeasured
STOP_TIMEOUT_S: Final = 3.0
"""How long the last lines may take when the server stops (unmeasured)."""
FILE_MODE: Final = 0o640

log = logs.get(__name__)


class UtteranceLine(msgspec.Struct, frozen=True, kw_only=True, tag="utterance"):
    """An utterance on a call, or a response of ``/v1/audio/speech``, which has no ``call_id``. ``characters`` of its text;
    ``played_ms``: what was heard of it, or sent; ``cached``: no engine was needed; ``reason``: why it is complete.
    """

    time: float = 0.0
    node: str = ""
    tenant: str
    call_id: str | None
    utterance_id: str
    characters: int
    played_ms: int
    cached: bool
    voice: str
    engine: str
    reason: str
    error: str | None


class CallLine(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """A call. ``started``, ``answered`` and ``ended`` are seconds since the Unix epoch; ``duration_ms``: from the answer to
    the end. ``route`` is the key of ``[routes]`` that took it, empty for a call that was placed. ``recordings``: the id and
    the consent of each. ``disclosed``: when the caller had heard that a machine speaks.
    """

    time: float = 0.0
    node: str = ""
    tenant: str
    call_id: str
    sip_call_id: str
    direction: str
    route: str
    started: float
    answered: float | None
    ended: float
    duration_ms: int
    result: str
    reason: str
    sip_code: int | None
    q850_cause: int | None
    codec: str | None
    quality: Mapping[str, float | None]
    recordings: Sequence[Mapping[str, str]] = ()
    disclosed: float | None = None


Line = UtteranceLine | CallLine
_ENCODER: Final = msgspec.json.Encoder()


class AccountingLog:
    """``file`` ``None``: nothing is written. ``node``: the server's name in each line."""

    def __init__(
        self, file: Path | None = None, *, node: str = "", clock: Clock | None = None, metrics: Metrics | None = None
    ) -> None:
        self._file = file
        self._node = node
        self._clock = clock or MonotonicClock()
        self._metrics = metrics or Metrics()
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._news = asyncio.Event()
        self._is_stopping = False
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to write; raises ``ConfigError`` if the file cannot be."""
        if self._file is None:
            return
        try:
            await asyncio.to_thread(atomic_file.append, self._file, b"", mode=FILE_MODE)
        except OSError as error:
            raise ConfigError(f"accounting.file: {self._file}: {error.strerror}") from None
        self._task = asyncio.create_task(self._write_all(self._file), name="accounting")

    async def stop(self) -> None:
        """Write what waits, for :data:`STOP_TIMEOUT_S` at most. Safe to call twice."""
        self._is_stopping = True
        self._news.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await asyncio.shield(self._task)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._waiting:
            self._metrics.accounting_lost.inc(len(self._waiting))
            log.error("accounting_lines_lost", lines=len(self._waiting))
            self._waiting.clear()

    def add(self, line: Line, on_written: Callable[[], None] = lambda: None) -> None:
        """Write a line, soon, and call ``on_written`` then; at once if there is no file."""
        if self._file is None:
            on_written()
            return
        if len(self._waiting) >= MAX_WAITING_LINES:
            self._metrics.accounting_lost.inc()
            return
        stamped = msgspec.structs.replace(line, time=round(self._clock.wall_s(), 3), node=self._node)
        self._waiting.append((_ENCODER.encode(stamped) + b"\n", on_written))
        self._news.set()

    async def _write_all(self, file: Path) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write(file)
            if self._is_stopping:
                return
            await asyncio.sleep(INTERVAL_S)

    async def _write(self, file: Path) -> None:
        lines = [self._waiting[number] for number in range(min(len(self._waiting), MAX_LINES_A_WRITE))]
        data = b"".join(line for line, _ in lines)
        writing = asyncio.create_task(asyncio.to_thread(atomic_file.append, file, data, mode=FILE_MODE))
        try:
            await asyncio.wait({writing})
            writing.result()
        except OSError as error:
            if not self._has_failed:
                log.error("accounting_not_written", detail=error.strerror, consequence="lines wait")
            self._has_failed = True
            await asyncio.sleep(RETRY_INTERVAL_S)
            return
        if self._has_failed:
            log.info("accounting_written_again")
        self._has_failed = False
        for _, on_written in lines:
            self._waiting.popleft()
            on_written()
