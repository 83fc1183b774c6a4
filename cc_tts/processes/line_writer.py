"""Lines that a thread appends to a file.

The file is opened for each writing, so that it may be moved (logrotate) at any time. While it cannot be written lines wait,
up to :data:`MAX_WAITING_LINES`; those beyond are lost and counted. Runs on: the event loop.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import Gauge

from cc_tts import atomic_file, logs
from cc_tts.processes.tasks import cancel_all

INTERVAL_S: Final = 0.2
"""The interval of the writes. A line waits no longer, unless the disk is slower (unmeasured)."""
RETRY_INTERVAL_S: Final = 1.0  # unmeasured
MAX_WAITING_LINES: Final = 20_000  # unmeasured
MAX_LINES_A_WRITE: Final = 1000  # unmeasured
STOP_TIMEOUT_S: Final = 3.0
"""The time that the last lines may take when the server stops (unmeasured)."""

log = logs.get(__name__)


class LineWriter:
    """``name`` names the lines in the log. ``sync``: written lines survive a power cut. ``on_lost`` gets the number of lost
    lines. ``unwritable`` is 1 while the file cannot be written. ``anew`` is called before each write, and may return lines
    that replace the file's contents.
    """

    def __init__(
        self,
        file: Path,
        name: str,
        *,
        mode: int = 0o600,
        sync: bool = False,
        on_lost: Callable[[int], object],
        unwritable: Gauge,
        anew: Callable[[], Sequence[bytes] | None] = lambda: None,
    ) -> None:
        self._file = file
        self._name = name
        self._mode = mode
        self._sync = sync
        self._on_lost = on_lost
        self._unwritable = unwritable
        self._anew = anew
        self._waiting: deque[tuple[bytes, Callable[[], object]]] = deque()
        self._news = asyncio.Event()
        self._is_stopping = False
        self._has_failed = False
        self._task: asyncio.Task[None] | None = None
        self.num_lines = 0
        """The lines in the file that were written here."""

    async def start(self, first: Sequence[bytes] | None = None) -> None:
        """Start to write. These lines replace the contents of the file; ``None``: lines are appended. Raises ``OSError`` if
        the file cannot be written.
        """
        if first is None:
            await asyncio.to_thread(self._append, b"")
        else:
            await asyncio.to_thread(self._replace, b"".join(first))
            self.num_lines = len(first)
        self._task = asyncio.create_task(self._write_all(), name=self._name)

    async def stop(self) -> None:
        """Write the waiting lines, for at most :data:`STOP_TIMEOUT_S`. Safe to call twice."""
        self._is_stopping = True
        self._news.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await asyncio.shield(self._task)
            await cancel_all(self._task)
            self._task = None
        if self._waiting:
            log.error("lines_lost", what=self._name, lines=len(self._waiting))
            self._on_lost(len(self._waiting))
            self._waiting.clear()

    def add(self, line: bytes, on_written: Callable[[], object] = lambda: None) -> None:
        """Write a line soon, and then call ``on_written``."""
        if len(self._waiting) >= MAX_WAITING_LINES:
            self._on_lost(1)
            return
        self._waiting.append((line, on_written))
        self._news.set()

    async def _write_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                await self._write()
            if self._is_stopping:
                return
            await asyncio.sleep(INTERVAL_S)

    async def _write(self) -> None:
        anew = self._anew()
        num = len(self._waiting) if anew is not None else min(len(self._waiting), MAX_LINES_A_WRITE)
        written = [self._waiting[number] for number in range(num)]
        data = b"".join(anew if anew is not None else [line for line, _ in written])
        write = self._append if anew is None else self._replace
        writing = asyncio.create_task(asyncio.to_thread(write, data))
        try:
            await asyncio.wait({writing})
            writing.result()
        except OSError as error:
            await self._failed(error)
            return
        if self._has_failed:
            log.info("lines_written_again", what=self._name)
        self._note(has_failed=False)
        self.num_lines = num + self.num_lines if anew is None else len(anew)
        for _, on_written in written:
            self._waiting.popleft()
            on_written()

    async def _failed(self, error: OSError) -> None:
        if not self._has_failed:
            log.error("lines_not_written", what=self._name, detail=error.strerror, consequence="they wait")
        self._note(has_failed=True)
        await asyncio.sleep(RETRY_INTERVAL_S)

    def _note(self, *, has_failed: bool) -> None:
        self._has_failed = has_failed
        self._unwritable.set(has_failed)

    def _append(self, data: bytes) -> None:
        """Runs on: a thread."""
        atomic_file.append(self._file, data, mode=self._mode, sync=self._sync)

    def _replace(self, data: bytes) -> None:
        """Runs on: a thread."""
        atomic_file.write(self._file, data, mode=self._mode)
