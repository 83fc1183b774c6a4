"""The events that must not be lost, in a file: a line of JSON when one is to be delivered, another when that is over.

The next server reads what is left over. A thread writes; while the file cannot be written lines wait, up to
:data:`MAX_WAITING_LINES`. What has waited for delivery longest is still in memory then. The file is of one server alone.
Runs on: the event loop.
"""

import asyncio
import contextlib
from collections import deque
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import atomic_file, logs
from cc_tts.errors import UNREADABLE, ConfigError
from cc_tts.metrics import Metrics

RETRY_INTERVAL_S: Final = 1.0  # unmeasured
MAX_WAITING_LINES: Final = 20_000  # unmeasured
MAX_LINES_A_WRITE: Final = 1000  # unmeasured
MIN_LINES_TO_COMPACT: Final = 4096
"""The file is written anew when it has so many lines and few of them are left over (unmeasured)."""
STOP_TIMEOUT_S: Final = 3.0
"""How long the last lines may take when the server stops (unmeasured)."""

log = logs.get(__name__)


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that is to be delivered. ``url`` and ``secret`` are those of a call, ``at_s`` is on the wall clock."""

    webhook: str
    id: str
    type: str
    call_id: str | None
    seq: int
    at_s: float
    body: str
    url: str = ""
    secret: str = ""

    @property
    def key(self) -> str:
        """The name of the line for the one that settles it."""
        return f"{self.webhook} {self.id}"


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line: an event, or the key of one that was taken or given up."""

    keep: Kept | None = None
    settled: str = ""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Line)


class Journal:
    """``file`` ``None``: events are kept in memory only."""

    def __init__(self, file: Path | None, metrics: Metrics) -> None:
        self._file = file
        self._metrics = metrics
        self._left: dict[str, bytes] = {}
        """The lines of events that are not settled, by key."""
        self._waiting: deque[bytes] = deque()
        self._num_lines = 0
        self._news = asyncio.Event()
        self._is_stopping = False
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> list[Kept]:
        """Begin; returns what an earlier server left over. Raises ``ConfigError`` if the file cannot be used."""
        if self._file is None:
            return []
        try:
            found = await asyncio.to_thread(_left_over, self._file)
            self._left = {kept.key: _line(Line(keep=kept)) for kept in found}
            await asyncio.to_thread(atomic_file.write, self._file, b"".join(self._left.values()))
        except OSError as error:
            raise ConfigError(f"webhooks.file: {self._file}: {error.strerror}") from None
        self._num_lines = len(found)
        self._task = asyncio.create_task(self._write_all(self._file), name="webhook journal")
        return found

    async def stop(self) -> None:
        """Write what waits, for :data:`STOP_TIMEOUT_S` at most."""
        self._is_stopping = True
        self._news.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await asyncio.shield(self._task)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def keep(self, kept: Kept) -> None:
        """Write an event that is to be delivered."""
        if self._file is not None:
            self._left[kept.key] = line = _line(Line(keep=kept))
            self._write_soon(line)

    def settle(self, key: str) -> None:
        """Write that one was taken or given up."""
        if self._left.pop(key, None) is not None:
            self._write_soon(_line(Line(settled=key)))

    def _write_soon(self, line: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING_LINES:
            self._metrics.webhooks_dropped.labels(reason="not_kept").inc()
            return
        self._waiting.append(line)
        self._news.set()

    async def _write_all(self, file: Path) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write(file)
            if self._is_stopping:
                return

    async def _write(self, file: Path) -> None:
        lines = [self._waiting[number] for number in range(min(len(self._waiting), MAX_LINES_A_WRITE))]
        is_compacted = self._num_lines > MIN_LINES_TO_COMPACT and self._num_lines > 4 * len(self._left)
        try:
            if is_compacted:
                lines = list(self._waiting)
                left = list(self._left.values())
                await asyncio.to_thread(atomic_file.write, file, b"".join(left))
                self._num_lines = len(left)
            else:
                await asyncio.to_thread(atomic_file.append, file, b"".join(lines))
                self._num_lines += len(lines)
        except OSError as error:
            await self._failed(error)
            return
        if self._has_failed:
            log.info("webhook_events_kept_again")
        self._has_failed = False
        for _ in lines:
            self._waiting.popleft()

    async def _failed(self, error: OSError) -> None:
        if not self._has_failed:
            log.error("webhook_events_not_kept", detail=error.strerror, consequence="a restart would lose them")
        self._has_failed = True
        await asyncio.sleep(RETRY_INTERVAL_S)


def _line(line: Line) -> bytes:
    return _ENCODER.encode(line) + b"\n"


def _left_over(file: Path) -> list[Kept]:
    """Read the events that are not settled, oldest first, but for a line that was cut off. Runs on: a thread."""
    found: dict[str, Kept] = {}
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    for each in lines:
        with contextlib.suppress(*UNREADABLE):
            line = _DECODER.decode(each)
            if line.keep is not None:
                found[line.keep.key] = line.keep
            else:
                found.pop(line.settled, None)
    return list(found.values())
