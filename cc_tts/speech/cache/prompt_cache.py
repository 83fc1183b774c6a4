"""The cache of frequently spoken prompts, as audio at line rate: in memory, and on disk if a folder is configured.

::

    load:  key ─▸ memory ─▸ PromptFiles ─▸ memory
    store: used often enough? ─▸ memory, least recently used go ─▸ PromptFiles

The key is a hash over everything that makes a difference to the audio: the text as the caller wrote it, what decides how it
is read, the engine and its voices; the program's version stands for the rules of reading. No text is stored.

Runs on: the event loop.
"""

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from cc_tts import __version__
from cc_tts.config.schema import CacheConfig, Config
from cc_tts.config.sections.models import each_model
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.prompt_files import FORMAT_VERSION, CachedChunk, CachedPrompt, PromptFiles
from cc_tts.speech.chunks import ReadyChunks, SpokenPrompt
from cc_tts.speech.staged.audio_file import amplified
from cc_tts.voices.folder import files_in

_LIBRARIES: Final = ("espeakng-loader", "hibari-tts", "num2words", "onnxruntime", "soxr", "wetext")
"""The libraries whose versions affect the audio, besides the model."""
MAX_KEYS_REMEMBERED: Final = 16_384  # unmeasured
"""The most prompts whose uses are counted; the least recently used ones are forgotten."""


class PromptCache:
    """Cached prompts, by key. ``files``: those on disk."""

    def __init__(self, config: CacheConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._memory: OrderedDict[str, CachedPrompt] = OrderedDict()
        self._uses: OrderedDict[str, int] = OrderedDict()
        self.files = PromptFiles(config, metrics)
        self.memory_bytes = 0

    def __str__(self) -> str:
        disk = f", {self._config.disk_bytes >> 20} MiB on disk" if self._config.disk_dir else ""
        return f"cache {self._config.memory_bytes >> 20} MiB{disk}"

    def count_use(self, key: str) -> None:
        self._uses[key] = self._uses.pop(key, 0) + 1
        while len(self._uses) > MAX_KEYS_REMEMBERED:
            self._uses.popitem(last=False)

    def is_wanted(self, key: str) -> bool:
        """Whether it was used often enough to be cached."""
        return self._uses.get(key, 0) >= self._config.min_uses

    def in_memory(self, key: str) -> CachedPrompt | None:
        """Return the prompt if it is in memory."""
        if (prompt := self._memory.get(key)) is not None:
            self._memory.move_to_end(key)
            self.files.used(key)
        return prompt

    def has(self, key: str) -> bool:
        """Whether it is in memory or on disk; this does not count as a use."""
        return key in self._memory or key in self.files

    async def load(self, key: str) -> CachedPrompt | None:
        """Load a prompt from disk into memory; ``None`` if it is gone or damaged."""
        if (prompt := await self.files.load(key)) is not None:
            self._remember(key, prompt)
        return prompt

    def store(self, key: str, prompt: CachedPrompt) -> None:
        """Cache a complete prompt if it was used often enough."""
        if self.is_wanted(key):
            self._remember(key, prompt)
            self.files.store(key, prompt)

    def _remember(self, key: str, prompt: CachedPrompt) -> None:
        if prompt.num_bytes > self._config.memory_bytes:
            return
        if (before := self._memory.pop(key, None)) is not None:
            self.memory_bytes -= before.num_bytes
        self._memory[key] = prompt
        self.memory_bytes += prompt.num_bytes
        num_evicted = 0
        while self.memory_bytes > self._config.memory_bytes:
            _, victim = self._memory.popitem(last=False)
            self.memory_bytes -= victim.num_bytes
            num_evicted += 1
        metrics = self._metrics
        metrics.prompt_cache_evictions.labels(where="memory").inc(num_evicted)
        metrics.prompt_cache_bytes.labels(where="memory").set(self.memory_bytes)
        metrics.prompt_cache_prompts.labels(where="memory").set(len(self._memory))


def engine_identity(config: Config, of_workers: str = "") -> str:
    """Return a digest of what an engine's name and voices stand for: the libraries, the files of the model and of the voices
    (name, size, time of change), and ``of_workers``, the identity of those on other machines. Another identity means other
    audio. Runs on: a thread.
    """
    parts = [f"{name} {_version(name)}" for name in _LIBRARIES]
    for tts in each_model(config.tts):
        parts += [f"{name} {model.sound}" for name, model in tts.models.items()]
        with contextlib.suppress(OSError):  # the engine says what is wrong with a folder when it starts
            files = [
                path for model in tts.models.values() for path in sorted(Path(model.model_dir).expanduser().iterdir())
            ]
            files += files_in(Path(tts.voices_dir).expanduser()) if tts.voices_dir else []
            parts += [_state_of(path) for path in files if path.is_file()]
    if of_workers:
        parts.append(of_workers)
    return _digest(*parts)


def prompt_key(prompt: SpokenPrompt, identity: str) -> str:
    """64 hexadecimal digits; every field of ``prompt`` makes a difference."""
    return _digest(FORMAT_VERSION, __version__, identity, prompt)


def _digest(*parts: object) -> str:
    return hashlib.sha256(ascii(parts).encode("ascii")).hexdigest()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _state_of(path: Path) -> str:
    status = path.stat()
    return f"{path.name} {status.st_size} {status.st_mtime_ns}"


def as_cached(chunks: Sequence[SpeechChunk], text: str) -> CachedPrompt | None:
    """Return the prompt in the form of the cache; ``None`` if the words of its chunks do not add up to ``text``, or if some
    of it was spoken after a worker was lost.
    """
    if any(chunk.is_resumed or chunk.gave_up_after is not None for chunk in chunks):
        return None
    cached = []
    num_chars = 0
    for chunk in chunks:
        source = chunk.begins_source or ""
        if not text.startswith(source, num_chars):
            return None
        num_chars += len(source)
        num_source = None if chunk.begins_source is None else len(source)
        cached.append(CachedChunk(chunk.data, num_source, chunk.words, chunk.paces))
    return CachedPrompt(tuple(cached))


def ready(cached: CachedPrompt, text: str, gain_db: float) -> ReadyChunks:
    """Return a complete prompt as a stream, ``gain_db`` louder."""
    return ReadyChunks(_louder(chunk, gain_db) for chunk in chunks_of(cached, text))


def _louder(chunk: SpeechChunk, gain_db: float) -> SpeechChunk:
    chunk.data = amplified(chunk.data, gain_db)
    return chunk


def chunks_of(cached: CachedPrompt, text: str) -> Iterator[SpeechChunk]:
    """Yield the chunks of a cached prompt, with words from ``text``."""
    num_chars = 0
    for chunk in cached.chunks:
        source = None
        if chunk.source_chars is not None:
            source = text[num_chars : num_chars + chunk.source_chars]
            num_chars += chunk.source_chars
        yield SpeechChunk(chunk.pcm, source, chunk.words, cached=True, paces=chunk.paces)
