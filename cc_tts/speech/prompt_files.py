"""Kept prompts on disk: a file each, named by its key, never more than so many bytes, the least recently used go first.

::

    event loop                                     a thread
    index: key ─▸ bytes, in order of use
    load ────────────────────────────────────────▸ read, check, touch (at most MAX_READS at once)
    store ─▸ _pending ─▸ _write: make room ──────▸ unlink · write beside its place · move into it

The time of a file's last change is that of its last use, so that the order of use survives a restart. A folder belongs to
one server. Runs on: the event loop; files are touched in threads only.
"""

import asyncio
import contextlib
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cc_tts import logs
from cc_tts.errors import ConfigError
from cc_tts.speech.cached_prompt import KeptPrompt, from_file, to_file

MAX_READS: Final = 4
"""Files read at once; one more is written."""
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024
"""Prompts that wait to be written; beyond it they stay in memory only."""
BLOCK_BYTES: Final = 4096
"""A file is counted in whole blocks, so that many small ones are bounded too."""
STOP_TIMEOUT_S: Final = 5.0

_NAME: Final = re.compile(r"([0-9a-f]{64})\.prompt")
_BEGUN: Final = ".begun-"

log = logs.get(__name__)


def charged_bytes(num_bytes: int) -> int:
    """What a file of ``num_bytes`` is counted as."""
    return max(1, -(-num_bytes // BLOCK_BYTES)) * BLOCK_BYTES


class PromptFiles:
    """One folder of kept prompts. ``on_change`` hears of every change with how many were evicted and found damaged."""

    def __init__(self, folder: Path, *, max_bytes: int, on_change: Callable[[int, int], None]) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._on_change = on_change
        self._index: OrderedDict[str, int] = OrderedDict()
        self._reads = asyncio.Semaphore(MAX_READS)
        self._pending: OrderedDict[str, KeptPrompt] = OrderedDict()
        self._writer: asyncio.Task[None] | None = None
        self._used_elsewhere: set[str] = set()
        self._is_failing = False
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: str) -> bool:
        return key in self._index

    def check(self) -> None:
        """Find out whether the folder can be written, or made where it is not there yet. Leaves nothing behind.

        Raises:
            ConfigError: it cannot.
        """
        there = next((folder for folder in (self._folder, *self._folder.absolute().parents) if folder.exists()), None)
        try:
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cache.disk_dir: {self._folder}: {error.strerror or error}; name a folder that the server may write, "
            "or set cache.enabled = false"
        )

    async def start(self) -> None:
        """Find what is there, and drop the oldest of what is too much.

        Raises:
            ConfigError: the folder cannot be made, read or written.
        """
        try:
            found = await asyncio.to_thread(self._scan)
        except OSError as error:
            raise self._unusable(error) from None
        for _, key, num_bytes in found:
            self._index[key] = charged_bytes(num_bytes)
        self.num_bytes = sum(self._index.values())
        victims = self._make_room(0)
        await asyncio.to_thread(self._unlink, victims)
        self._on_change(len(victims), 0)
        log.info("prompt_cache_found", num_prompts=len(self), num_bytes=self.num_bytes)

    async def stop(self) -> None:
        """Finish writing, for a bounded time, and leave the order of use behind."""
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=STOP_TIMEOUT_S)
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        used = [key for key in self._index if key in self._used_elsewhere]
        await asyncio.to_thread(self._touch, used)

    def used(self, key: str) -> None:
        """It was used from memory."""
        if key in self._index:
            self._index.move_to_end(key)
            self._used_elsewhere.add(key)

    async def load(self, key: str) -> KeptPrompt | None:
        """Read one; ``None`` if it is not there or damaged, and then it is forgotten."""
        if key not in self._index:
            return None
        self._index.move_to_end(key)
        async with self._reads:
            try:
                return await asyncio.to_thread(self._read, key)
            except FileNotFoundError:
                self._forget(key)
                self._on_change(0, 0)
            except (OSError, ValueError) as error:
                log.warning("prompt_cache_file_damaged", file=f"{key}.prompt", reason=str(error))
                self._forget(key)
                await asyncio.to_thread(self._unlink, [key])
                self._on_change(0, 1)
        return None

    def store(self, key: str, prompt: KeptPrompt) -> None:
        """Write one soon, unless it is there, or too much waits already."""
        waiting_bytes = sum(len(each.pcm) for each in self._pending.values())
        if key in self._index or key in self._pending or waiting_bytes + len(prompt.pcm) > MAX_PENDING_BYTES:
            return
        self._pending[key] = prompt
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_pending(), name="prompt cache writer")

    async def _write_pending(self) -> None:
        while self._pending:
            key, prompt = next(iter(self._pending.items()))
            try:
                await self._write(key, prompt)
                self._is_failing = False
            except OSError as error:
                if not self._is_failing:
                    log.warning("prompt_cache_write_failed", reason=error.strerror or str(error))
                self._is_failing = True
            finally:
                del self._pending[key]

    async def _write(self, key: str, prompt: KeptPrompt) -> None:
        data = await asyncio.to_thread(to_file, key, prompt)
        num_bytes = charged_bytes(len(data))
        if num_bytes > self._max_bytes:
            return
        victims = self._make_room(num_bytes)
        await asyncio.to_thread(self._unlink, victims)
        try:
            await asyncio.to_thread(self._write_whole, key, data)
            self._index[key] = num_bytes
            self.num_bytes += num_bytes
        finally:
            self._on_change(len(victims), 0)

    def _make_room(self, num_bytes: int) -> list[str]:
        victims = []
        while self._index and self.num_bytes + num_bytes > self._max_bytes:
            key = next(iter(self._index))
            self._forget(key)
            victims.append(key)
        return victims

    def _forget(self, key: str) -> None:
        self.num_bytes -= self._index.pop(key, 0)
        self._used_elsewhere.discard(key)

    # --- Runs on: a thread -----------------------------------------------------------------------------------------------

    def _scan(self) -> list[tuple[int, str, int]]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder):
            pass  # found out now rather than at the first prompt: it can be written
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not entry.is_file(follow_symlinks=False):
                    continue
                if match := _NAME.fullmatch(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, match[1], status.st_size))
                elif entry.name.startswith(_BEGUN):
                    Path(entry.path).unlink(missing_ok=True)  # the last server was killed while it wrote this
        return sorted(found)

    def _read(self, key: str) -> KeptPrompt:
        path = self._path(key)
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > self._max_bytes:
                raise ValueError("too long")
            data = file.read(self._max_bytes + 1)
        prompt = from_file(key, data)
        self._touch([key])
        return prompt

    def _touch(self, keys: list[str]) -> None:
        for key in keys:
            with contextlib.suppress(OSError):
                os.utime(self._path(key))

    def _write_whole(self, key: str, data: bytes) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=_BEGUN)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                file.write(data)
            Path(name).replace(self._path(key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _unlink(self, keys: list[str]) -> None:
        for key in keys:
            with contextlib.suppress(OSError):
                self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.prompt"
