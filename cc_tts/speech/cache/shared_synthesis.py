"""One synthesis for all calls that ask for the same prompt at the same time (single-flight), and the cache in front of it.

::

    open ─▸ in memory ──────────────────────────────────────▸ ReadyChunks
         └▸ being synthesised ─▸ SharedSynthesis ──┐
         └▸ on disk ─▸ load ───▸ SharedSynthesis ──┼────────▸ Listener
         └▸ missed ─▸ engine ──▸ SharedSynthesis ──┘ whole: PromptCache.store
         └▸ too much is being synthesised ─▸ engine ────────▸ the synthesis itself

The fastest listener sets the pace: it asks for the next chunk, as it would alone. A slower one finds the chunks there and
nobody waits for it. While further listeners may join, all chunks are held; later only those that somebody has still to
read. When the last listener leaves, the synthesis is cancelled, or finished unattended if the cache wants it.

Runs on: the event loop.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.config.schema import CacheConfig
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import ClientError
from cc_tts.media.listener_clock import ListenerClock
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.prompt_cache import PromptCache, as_cached, chunks_of, prompt_key
from cc_tts.speech.chunks import ReadyChunks, SpokenPrompt, Synthesise, now_ms

MAX_UNATTENDED: Final = 2  # unmeasured
"""The most prompts at once that are finished for the cache after all their listeners have left."""
UNATTENDED_BUFFERED_MS: Final = 60_000.0  # unmeasured
"""Reported to the engine for a prompt without listeners, so that it is not urgent."""

log = logs.get(__name__)


class CachedSource:
    """Prompts from the cache, or synthesised once for all listeners; ``max_held_bytes`` limits the audio of these."""

    def __init__(self, config: CacheConfig, metrics: Metrics) -> None:
        self.cache = PromptCache(config, metrics)
        self.max_held_bytes = config.memory_bytes
        self.max_prompt_ms = config.max_prompt_s * 1000
        """Longer prompts are neither held nor cached."""
        self._metrics = metrics
        self.shared: dict[str, SharedSynthesis] = {}
        self.running: set[SharedSynthesis] = set()
        self.held_bytes = 0
        """The audio of prompts that are being synthesised, or are complete and still being read."""
        self.identity: str | None = None
        """The engine's identity. While it is ``None`` the cache is not used."""

    async def stop(self) -> None:
        """Cancel the syntheses without listeners."""
        await asyncio.gather(*[synthesis.cancel() for synthesis in self.running if synthesis.is_unattended])

    def has(self, prompt: SpokenPrompt) -> bool:
        """Whether a prompt needs no engine."""
        if self.identity is None:
            return False
        key = prompt_key(prompt, self.identity)
        return key in self.shared or self.cache.has(key)

    def open(self, prompt: SpokenPrompt, synthesise: Synthesise, *, is_again: bool = False) -> ChunkStream:
        """Begin to read a prompt; raises as ``synthesise`` if the engine is needed. ``is_again``: the engine has refused it
        before, which already counted as a use.
        """
        if self.identity is None:
            return synthesise()
        key = prompt_key(prompt, self.identity)
        stream: ChunkStream
        if (cached := self.cache.in_memory(key)) is not None:
            result, stream = "memory", ReadyChunks(chunks_of(cached, prompt.text))
        elif key in self.shared:
            result, stream = "joined", Listener(self.shared[key], synthesise, joined=True)
        elif self.held_bytes >= self.max_held_bytes:
            result, stream = "bypassed", synthesise()
        else:
            result = "disk" if key in self.cache.files else "missed"
            stream = Listener(self.share(key, prompt, synthesise), synthesise, joined=False)
        if not is_again:
            self.cache.count_use(key)
            self._metrics.prompt_cache_requests.labels(result=result).inc()
        return stream

    def share(self, key: str, prompt: SpokenPrompt, synthesise: Synthesise) -> "SharedSynthesis":
        """Return the running synthesis of a prompt that others may join, or start a new one and raise its errors."""
        if key not in self.shared:
            synthesis = SharedSynthesis(self, key, prompt, synthesise)
            self.shared[key] = synthesis
            self.running.add(synthesis)
            self.hold(0)
        return self.shared[key]

    def hold(self, num_bytes: int) -> None:
        """Change the number of bytes that syntheses hold."""
        self.held_bytes += num_bytes
        self._metrics.prompt_cache_bytes.labels(where="making").set(self.held_bytes)
        self._metrics.prompt_cache_prompts.labels(where="making").set(len(self.running))


class SharedSynthesis:
    """One synthesis that any number of listeners read while it runs. A prompt on disk is loaded at the first read."""

    def __init__(self, owner: CachedSource, key: str, prompt: SpokenPrompt, synthesise: Synthesise) -> None:
        self.key = key
        self.prompt = prompt
        self.is_shared = True
        self.is_unattended = False
        self.is_over = False
        self.listeners: set[Listener] = set()
        self.owner = owner
        self._synthesise = synthesise
        self._stream = None if key in owner.cache.files else synthesise()
        self.format = AudioFormat(prompt.rate_hz)
        self._num_bytes = 0
        self._chunks: list[SpeechChunk] = []
        self._num_dropped = 0
        self._failure: Exception | None = None
        self._most_urgent: Listener | None = None
        self._changed = asyncio.Event()
        self._demand = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def read(self, listener: "Listener") -> SpeechChunk | None:
        """Return the listener's next chunk; ``None`` at the end, and for a listener that has left. Raises the synthesis's
        error after its chunks; at once for a listener that joined and has heard nothing yet, so that it can begin again.
        """
        while listener in self.listeners:
            place = listener.num_read - self._num_dropped
            is_there = place < len(self._chunks)
            if self._failure is not None and (listener.may_begin_again or not is_there):
                raise self._failure
            if is_there:
                return self._chunks[place]
            if self.is_over:
                break
            self._demand.set()
            if self._task is None:
                self._task = asyncio.create_task(self._run(), name="shared synthesis")
            await self._changed.wait()
        return None

    def update_urgency(self, listener: "Listener") -> None:
        """Note the new lead of ``listener``; the engine gets that of the listener that runs dry first."""
        if listener not in self.listeners or self.is_over:
            return
        urgent = self._most_urgent
        if urgent not in self.listeners or listener is urgent or listener.lead_ms < urgent.lead_ms:
            self._most_urgent = min(self.listeners, key=lambda each: each.lead_ms)
            self._set_buffered_ms(max(0.0, self._most_urgent.lead_ms + self._made_ms()))

    def _made_ms(self) -> float:
        return self.format.ms_for_bytes(self._num_bytes)

    def _set_buffered_ms(self, buffered_ms: float) -> None:
        if self._stream is not None:
            self._stream.set_buffered_ms(buffered_ms)

    async def leave(self, listener: "Listener") -> None:
        """Remove ``listener``. Safe to call twice."""
        if listener not in self.listeners:
            return
        self.listeners.discard(listener)
        self._notify()  # the synthesis may be waiting in another task
        self.drop_read()
        if self.listeners or self.is_over:
            return
        if self.is_shared and self._num_bytes and self._may_finish():
            self.is_unattended = True
            self._set_buffered_ms(UNATTENDED_BUFFERED_MS)
            self._demand.set()
        else:
            await self.cancel()

    def _may_finish(self) -> bool:
        """Whether it continues for the cache. Otherwise a prompt that is interrupted each time would never be cached."""
        num_unattended = sum(each.is_unattended for each in self.owner.running)
        return self.is_unattended or (num_unattended < MAX_UNATTENDED and self.owner.cache.is_wanted(self.key))

    async def cancel(self) -> None:
        """Stop. The remaining listeners get the chunks so far."""
        if self._task is not None:
            self._task.cancel()
        self._end()
        if self._stream is not None:
            await self._stream.cancel()

    def drop_read(self) -> None:
        """Once no listener can join, drop the chunks that all listeners have read."""
        if self.is_shared:
            return
        num_made = self._num_dropped + len(self._chunks)
        first = min((listener.num_read for listener in self.listeners), default=num_made)
        dropped = self._chunks[: first - self._num_dropped]
        del self._chunks[: len(dropped)]
        self._num_dropped += len(dropped)
        self.owner.hold(-sum(len(chunk.data) for chunk in dropped))

    async def _run(self) -> None:
        try:
            if self._stream is None:
                self._stream = await self._load()
            async for chunk in self._stream:
                self._add(chunk)
                if not self.listeners and not self.is_shared:
                    self._end()
                    break
                if not self.is_unattended:
                    self._demand.clear()
                    await self._demand.wait()
            else:
                self._end(whole=self.is_shared)
        except Exception as error:  # noqa: BLE001 - raised where the audio is read
            self._failure = error
            self._end()
        if self._stream is not None:
            await self._stream.cancel()

    def _add(self, chunk: SpeechChunk) -> None:
        self._chunks.append(chunk)
        self._num_bytes += len(chunk.data)
        self.owner.hold(len(chunk.data))
        too_long = self._made_ms() > self.owner.max_prompt_ms
        if self.is_shared and (too_long or self.owner.held_bytes > self.owner.max_held_bytes):
            self._unshare()
        self._notify()

    async def _load(self) -> ChunkStream:
        cached = await self.owner.cache.load(self.key)
        return self._synthesise() if cached is None else ReadyChunks(chunks_of(cached, self.prompt.text))

    def _end(self, *, whole: bool = False) -> None:
        if self.is_over:
            return
        self.is_over = True
        is_new = whole and self._chunks and not self._chunks[0].cached
        if is_new and (cached := as_cached(self._chunks, self.prompt.text)) is not None:
            self.owner.cache.store(self.key, cached)
        self.owner.running.discard(self)
        self._unshare()
        self._notify()

    def _unshare(self) -> None:
        """Let no further listener join."""
        self.is_shared = False
        if self.owner.shared.get(self.key) is self:
            del self.owner.shared[self.key]
        self.drop_read()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


@dataclass(eq=False)
class Listener:
    """A :class:`cc_tts.engines.engine.ChunkStream` of a shared synthesis from its beginning. ``joined``: another listener
    had started it.
    """

    synthesis: SharedSynthesis
    synthesise: Synthesise
    joined: bool
    num_read: int = 0
    is_on_line: bool = False
    """Whether it reports what it has not played."""
    clock: ListenerClock = field(default_factory=ListenerClock)

    def __post_init__(self) -> None:
        self.synthesis.listeners.add(self)

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self.is_on_line = True
        self.clock.holds(now_ms(), buffered_ms)
        self.synthesis.update_urgency(self)

    @property
    def lead_ms(self) -> float:
        """Return the audio that is left to play less what was read; the listener with the least runs dry first."""
        return self.clock.left_ms(now_ms()) - self.clock.sent_ms if self.is_on_line else math.inf

    async def cancel(self) -> None:
        await self.synthesis.leave(self)

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        while (chunk := await self._next()) is not None:
            self.num_read += 1
            self.clock.sent(now_ms(), self.synthesis.format.ms_for_bytes(len(chunk.data)))
            self.synthesis.drop_read()
            yield copy(chunk)  # a copy: other listeners read the same chunk
        await self.cancel()

    @property
    def may_begin_again(self) -> bool:
        """Whether it can start again if the synthesis of another listener fails: it has heard nothing yet."""
        return self.joined and not self.num_read

    async def _next(self) -> SpeechChunk | None:
        try:
            return await self.synthesis.read(self)
        except Exception as error:
            if not self.may_begin_again or isinstance(error, ClientError):
                raise
            log.info("prompt_taken_over", reason=type(error).__name__)
        # the synthesis that another listener began has failed and gave this one nothing: start again, once
        failed = self.synthesis
        await failed.leave(self)
        self.joined = False
        self.synthesis = failed.owner.share(failed.key, failed.prompt, self.synthesise)
        self.synthesis.listeners.add(self)
        return await self.synthesis.read(self)
