"""Cached prompts on disk: one file each, named by its key. The total size is bounded; the least recently used are deleted
first.

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
import hashlib
import os
import re
import stat
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec

from cc_tts import atomic_file, logs
from cc_tts.audio import BYTES_PER_SAMPLE, Pace
from cc_tts.config.schema import CacheConfig
from cc_tts.errors import UNREADABLE, ConfigError
from cc_tts.metrics import Metrics
from cc_tts.processes.tasks import cancel_all
from cc_tts.processes.threads import BoundedExecutor

FORMAT_VERSION: Final = 3
"""The version of the file format and of the keys: with another number no earlier cached prompt is found."""
MAX_READS: Final = 4  # unmeasured
"""The most files that are read at once; one more is written."""
MAX_PENDING_BYTES: Final = 16 * 1024 * 1024  # unmeasured
"""The most bytes of prompts that wait to be written; further ones stay in memory only."""
BLOCK_BYTES: Final = 4096
"""The size of a file is rounded up to whole blocks, so that many small ones are bounded too."""
STOP_TIMEOUT_S: Final = 5.0  # unmeasured
RETRY_INTERVAL_S: Final = 10.0  # unmeasured
"""After the disk has refused a file, it is tried again this often."""
READ_TIMEOUT_S: Final = 2.0
"""The time that reading a file may take. After that the prompt is synthesised again, and the thread is left waiting for the
disk. Unmeasured.
"""

T = TypeVar("T")

_MAGIC: Final = b"cctts\x00p" + bytes([FORMAT_VERSION])
_PREFIX_BYTES: Final = len(_MAGIC) + hashlib.sha256().digest_size
_PROMPT_BYTES: Final = 512
_CHUNK_BYTES: Final = 128
_WORD_BYTES: Final = 160
"""The approximate memory of an object besides its PCM."""
_NAME: Final = re.compile(r"([0-9a-f]{64})\.prompt")
_BEGUN: Final = ".begun-"

log = logs.get(__name__)


class CachedChunk(msgspec.Struct, frozen=True, array_like=True):
    """PCM; a text chunk of ``source_chars`` characters of the caller's begins with it (``None``: none does); the words that
    begin in it, as in :class:`cc_tts.speech.timing.spans.SpokenSpan`.
    """

    pcm: bytes
    source_chars: Annotated[int, msgspec.Meta(ge=0)] | None = None
    words: tuple[tuple[float, float], ...] = ()
    paces: tuple[Pace, ...] = ()


class CachedPrompt(msgspec.Struct, frozen=True, array_like=True):
    """A whole prompt at line rate, without its text."""

    chunks: tuple[CachedChunk, ...]

    @property
    def pcm_bytes(self) -> int:
        return sum(len(chunk.pcm) for chunk in self.chunks)

    @property
    def num_bytes(self) -> int:
        num_words = sum(len(chunk.words) + len(chunk.paces) for chunk in self.chunks)
        return _PROMPT_BYTES + self.pcm_bytes + _CHUNK_BYTES * len(self.chunks) + _WORD_BYTES * num_words


def charged_bytes(num_bytes: int) -> int:
    """Return the bytes that a file of ``num_bytes`` is counted as."""
    return max(1, -(-num_bytes // BLOCK_BYTES)) * BLOCK_BYTES


class PromptFiles:
    """The cached prompts in ``cache.disk_dir``; always empty if that is not set."""

    def __init__(self, config: CacheConfig, metrics: Metrics) -> None:
        self._is_used = bool(config.disk_dir)
        self._folder = Path(config.disk_dir).expanduser()
        self._max_bytes = config.disk_bytes
        self._metrics = metrics
        self._index: OrderedDict[str, int] = OrderedDict()
        self._reads = asyncio.Semaphore(MAX_READS)
        self._num_hung = 0
        self._threads = BoundedExecutor(MAX_READS + 1, "prompts")
        self._pending: dict[str, CachedPrompt] = {}
        self._writer: asyncio.Task[None] | None = None
        self._used_from_memory: set[str] = set()
        self._is_failing = False
        self._stopping = asyncio.Event()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._index)

    def __contains__(self, key: str) -> bool:
        return key in self._index

    def check(self) -> None:
        """Raise ``ConfigError`` if the folder cannot be created or written."""
        if not self._is_used:
            return
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
        """Index the files, and delete the oldest ones beyond the limit. Raises ``ConfigError`` if the folder
        cannot be used.
        """
        if not self._is_used:
            return
        try:
            found = await self._on_thread(self._scan)
        except OSError as error:
            raise self._unusable(error) from None
        for _, key, num_bytes in found:
            self._index[key] = charged_bytes(num_bytes)
        self.num_bytes = sum(self._index.values())
        victims = self._make_room(0)
        await self._on_thread(self._for_each, victims, Path.unlink)
        self._changed(num_evicted=len(victims))
        log.info("prompt_cache_found", num_prompts=len(self), num_bytes=self.num_bytes)

    async def stop(self) -> None:
        """Finish writing, for a bounded time. The order of use is kept in the files' times."""
        self._stopping.set()
        if self._writer is not None:
            await asyncio.wait({self._writer}, timeout=STOP_TIMEOUT_S)
            await cancel_all(self._writer)
        used = [key for key in self._index if key in self._used_from_memory]
        await asyncio.wait({self._on_thread(self._for_each, used, os.utime)}, timeout=STOP_TIMEOUT_S)

    def used(self, key: str) -> None:
        """Note a use from memory."""
        if key in self._index:
            self._index.move_to_end(key)
            self._used_from_memory.add(key)

    async def load(self, key: str) -> CachedPrompt | None:
        """Read a file; ``None`` if it is missing or damaged. It is then forgotten."""
        if key not in self._index:
            return None
        self._index.move_to_end(key)
        async with self._reads:
            if self._num_hung >= MAX_READS:
                return None
            try:
                return await self._read_soon(key)
            except TimeoutError:
                log.warning("prompt_cache_file_hangs", file=f"{key}.prompt", consequence="synthesizing it again")
            except FileNotFoundError:
                self._forget(key)
                self._changed()
            except (OSError, ValueError) as error:
                log.warning("prompt_cache_file_damaged", file=f"{key}.prompt", reason=str(error))
                self._forget(key)
                await self._on_thread(self._for_each, [key], Path.unlink)
                self._changed(num_damaged=1)
        return None

    async def _read_soon(self, key: str) -> CachedPrompt:
        reading = self._on_thread(self._read, key)
        reading.add_done_callback(_forget_error)
        done, _ = await asyncio.wait({reading}, timeout=READ_TIMEOUT_S)
        if not done:
            self._num_hung += 1
            reading.add_done_callback(self._on_late)
            raise TimeoutError
        return reading.result()

    def _on_late(self, _reading: asyncio.Future[CachedPrompt]) -> None:
        self._num_hung -= 1

    def _on_thread(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Run a function on the threads of this object, so that a hung disk delays nothing else."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def store(self, key: str, prompt: CachedPrompt) -> None:
        """Write a prompt soon, unless it is there, or too much waits already."""
        if not self._is_used:
            return
        waiting_bytes = sum(each.pcm_bytes for each in self._pending.values())
        if key in self._index or key in self._pending or waiting_bytes + prompt.pcm_bytes > MAX_PENDING_BYTES:
            return
        self._pending[key] = prompt
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_pending(), name="prompt cache writer")

    async def _write_pending(self) -> None:
        """Write what waits, a prompt that the disk refuses again and again until the cache stops."""
        while self._pending:
            key, prompt = next(iter(self._pending.items()))
            try:
                while not await self._is_written(key, prompt):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), RETRY_INTERVAL_S)
                        return
            finally:
                del self._pending[key]

    async def _is_written(self, key: str, prompt: CachedPrompt) -> bool:
        try:
            await self._write(key, prompt)
        except OSError as error:
            if not self._is_failing:
                log.warning("prompt_cache_write_failed", reason=error.strerror or str(error))
            self._note(is_failing=True)
            return False
        if self._is_failing:
            log.info("prompt_cache_written_again")
        self._note(is_failing=False)
        return True

    def _note(self, *, is_failing: bool) -> None:
        self._is_failing = is_failing
        self._metrics.file_unwritable.labels(key="cache.disk_dir").set(is_failing)

    async def _write(self, key: str, prompt: CachedPrompt) -> None:
        data = await self._on_thread(to_file, key, prompt)
        num_bytes = charged_bytes(len(data))
        if num_bytes > self._max_bytes:
            return
        victims = self._make_room(num_bytes)
        await self._on_thread(self._for_each, victims, Path.unlink)
        try:
            await self._on_thread(partial(atomic_file.write, self._path(key), data, prefix=_BEGUN, sync=False))
            self._index[key] = num_bytes
            self.num_bytes += num_bytes
        finally:
            self._changed(num_evicted=len(victims))

    def _make_room(self, num_bytes: int) -> list[str]:
        victims = []
        while self._index and self.num_bytes + num_bytes > self._max_bytes:
            key = next(iter(self._index))
            self._forget(key)
            victims.append(key)
        return victims

    def _forget(self, key: str) -> None:
        self.num_bytes -= self._index.pop(key, 0)
        self._used_from_memory.discard(key)

    def _changed(self, *, num_evicted: int = 0, num_damaged: int = 0) -> None:
        metrics = self._metrics
        metrics.prompt_cache_evictions.labels(where="disk").inc(num_evicted)
        metrics.prompt_cache_damaged.inc(num_damaged)
        metrics.prompt_cache_bytes.labels(where="disk").set(self.num_bytes)
        metrics.prompt_cache_prompts.labels(where="disk").set(len(self))

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

    def _read(self, key: str) -> CachedPrompt:
        descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a file")
            if status.st_size > self._max_bytes:
                raise ValueError("too long")
            prompt = from_file(key, file.read(status.st_size + 1))
        self._for_each([key], os.utime)
        return prompt

    def _for_each(self, keys: list[str], change: Callable[[Path], None]) -> None:
        for key in keys:
            with contextlib.suppress(OSError):
                change(self._path(key))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.prompt"


def _forget_error(reading: asyncio.Future[CachedPrompt]) -> None:
    """Ignore the outcome, since nobody may be waiting for it."""
    if not reading.cancelled():
        reading.exception()


def to_file(key: str, prompt: CachedPrompt) -> bytes:
    """Return the bytes of the file that :func:`from_file` reads."""
    body = msgspec.msgpack.encode((key, prompt))
    return _MAGIC + hashlib.sha256(body).digest() + body


def from_file(key: str, data: bytes) -> CachedPrompt:
    """Read a file; raises ``ValueError`` if it is incomplete, changed, or another kind of file."""
    if not data.startswith(_MAGIC):
        raise ValueError("not a cached prompt of this version")
    body = memoryview(data)[_PREFIX_BYTES:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : _PREFIX_BYTES]:
        raise ValueError("its checksum is wrong")
    try:
        found_key, prompt = msgspec.msgpack.decode(body, type=tuple[str, CachedPrompt])
    except UNREADABLE as error:
        raise ValueError(f"it cannot be read: {error}") from None
    if found_key != key:
        raise ValueError("it holds another prompt than its name says")
    if not prompt.pcm_bytes or any(len(chunk.pcm) % BYTES_PER_SAMPLE for chunk in prompt.chunks):
        raise ValueError("it has no audio, or half a sample")
    return prompt
