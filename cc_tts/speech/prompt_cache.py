"""Audio of prompts that are said again and again, at line rate: in memory, and on disk if there is a folder.

::

    find: key ─▸ memory ─▸ PromptFiles ─▸ memory
    keep: used often enough? short enough? ─▸ memory, least recently used go ─▸ PromptFiles

A key is a hash (:mod:`cc_tts.speech.prompt_key`); no text comes here. Runs on: the event loop.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Final

from cc_tts.audio import AudioFormat
from cc_tts.config.schema import CacheConfig
from cc_tts.metrics import Metrics
from cc_tts.speech.cached_prompt import KeptPrompt, is_sound
from cc_tts.speech.prompt_files import PromptFiles

MAX_KEYS_REMEMBERED: Final = 16_384
"""Prompts whose uses are counted; the ones not used for longest are forgotten."""


class PromptCache:
    """Kept prompts, by key."""

    def __init__(self, config: CacheConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._memory: OrderedDict[str, KeptPrompt] = OrderedDict()
        self._uses: OrderedDict[str, int] = OrderedDict()
        self._files: PromptFiles | None = None
        self.memory_bytes = 0
        if config.disk_dir:
            folder = Path(config.disk_dir).expanduser()
            self._files = PromptFiles(folder, max_bytes=config.disk_bytes, on_change=self._disk_changed)

    def check(self) -> None:
        """Find out whether ``cache.disk_dir`` can be used; nothing is created.

        Raises:
            ConfigError: it cannot.
        """
        if self._files is not None:
            self._files.check()

    async def start(self) -> None:
        """Find what is on disk.

        Raises:
            ConfigError: ``cache.disk_dir`` cannot be used.
        """
        if self._files is not None:
            await self._files.start()

    async def stop(self) -> None:
        """Finish writing."""
        if self._files is not None:
            await self._files.stop()

    @property
    def max_prompt_ms(self) -> float:
        """Longer ones are not kept."""
        return self._config.max_prompt_s * 1000

    def count_use(self, key: str) -> None:
        """Somebody wants this prompt."""
        self._uses[key] = self._uses.pop(key, 0) + 1
        while len(self._uses) > MAX_KEYS_REMEMBERED:
            self._uses.popitem(last=False)

    def is_wanted(self, key: str) -> bool:
        """Whether it was used often enough to be kept."""
        return self._uses.get(key, 0) >= self._config.min_uses

    def in_memory(self, key: str) -> KeptPrompt | None:
        """The prompt if it is there at once."""
        prompt = self._memory.get(key)
        if prompt is not None:
            self._memory.move_to_end(key)
            if self._files is not None:
                self._files.used(key)
        return prompt

    def is_on_disk(self, key: str) -> bool:
        """Whether :meth:`load` will probably find it."""
        return self._files is not None and key in self._files

    def has(self, key: str) -> bool:
        """Whether it is kept anywhere; no use of it."""
        return key in self._memory or self.is_on_disk(key)

    async def load(self, key: str) -> KeptPrompt | None:
        """Bring a prompt from disk into memory; ``None`` if it is gone or damaged."""
        prompt = await self._files.load(key) if self._files is not None else None
        if prompt is not None:
            self._remember(key, prompt)
        return prompt

    def keep(self, key: str, prompt: KeptPrompt) -> None:
        """Keep a whole prompt if it is worth it."""
        duration_ms = AudioFormat(prompt.rate_hz).ms_for_bytes(len(prompt.pcm))
        if not self.is_wanted(key) or duration_ms > self.max_prompt_ms or not is_sound(prompt):
            return
        self._remember(key, prompt)
        if self._files is not None:
            self._files.store(key, prompt)

    def _remember(self, key: str, prompt: KeptPrompt) -> None:
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

    def _disk_changed(self, num_evicted: int, num_damaged: int) -> None:
        assert self._files is not None
        metrics = self._metrics
        metrics.prompt_cache_evictions.labels(where="disk").inc(num_evicted)
        metrics.prompt_cache_damaged.inc(num_damaged)
        metrics.prompt_cache_bytes.labels(where="disk").set(self._files.num_bytes)
        metrics.prompt_cache_prompts.labels(where="disk").set(len(self._files))
