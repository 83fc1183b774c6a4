"""A stream that waits for a full engine.

::

    hold the tenant's share ─▸ open ─▸ chunks
        └─ refused ─────────────┴─▸ wait ─▸ ask again … ─▸ after ``wait_ms`` it must speak, or its refusal is raised

Runs on: the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineFailed, EngineOverloaded, QuotaExceeded
from cc_tts.speech.chunks import now_ms
from cc_tts.tenants.quotas import Reservation

OVERLOAD_POLL_S: Final = 0.05  # unmeasured
"""The interval of asking again while the engine takes nothing."""
CHUNK_TIMEOUT_S: Final = 15.0  # unmeasured
"""The longest that an engine may take for one chunk of speech without a call."""


class Open(Protocol):
    """Opens the stream. ``is_again``: it was opened before and gave nothing; ``must_speak``: it has waited long enough."""

    def __call__(self, *, is_again: bool, must_speak: bool) -> ChunkStream: ...


class AdmittedStream:
    """A :class:`cc_tts.engines.engine.ChunkStream` that ``open_stream`` opens, again while the engine or the tenant's share
    is full. Words and audio come once: after the first, a refusal is raised.

    ``hold`` reserves the tenant's share for each attempt, and ``asking`` is around it. The time begins anew as long as
    ``is_early``: nobody waits for the audio yet. ``reopens``: an attempt does not use up what is spoken.
    ``chunk_timeout_s``: the longest that an engine which has room may take for one chunk.
    """

    def __init__(
        self,
        open_stream: Open,
        wait_ms: float,
        *,
        hold: Callable[[], Reservation] = Reservation,
        asking: Callable[[], AbstractContextManager[None]] = nullcontext,
        is_early: Callable[[], bool] = lambda: False,
        is_again: bool = False,
        reopens: bool = True,
        chunk_timeout_s: float | None = None,
    ) -> None:
        self._open = open_stream
        self._wait_ms = wait_ms
        self._hold = hold
        self._asking = asking
        self._is_early = is_early
        self._is_again = is_again
        self._reopens = reopens
        self._chunk_timeout_s = chunk_timeout_s
        self._held = Reservation()
        self._stream: ChunkStream | None = None
        self._is_cancelled = False
        self.has_given = False
        """Whether words or audio have come."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        if self._stream is not None:
            self._stream.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        self._is_cancelled = True
        await self._close()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        begun_ms = now_ms()
        while not self._is_cancelled:
            if self._is_early():
                begun_ms = now_ms()
            must_speak = now_ms() - begun_ms >= self._wait_ms
            was_opened = False
            try:
                self._held = self._hold()
                with self._asking():
                    stream = self._stream = self._open(is_again=self._is_again, must_speak=must_speak)
                    was_opened = self._is_again = True
                    chunks = aiter(stream)
                    while (chunk := await self._next(chunks)) is not None:
                        self.has_given = self.has_given or bool(chunk.data or chunk.begins_source)
                        yield chunk
            except (EngineOverloaded, QuotaExceeded):
                if self.has_given or must_speak or (was_opened and not self._reopens):
                    raise
            else:
                return
            finally:
                await self._close()
            await asyncio.sleep(OVERLOAD_POLL_S)

    async def _next(self, chunks: AsyncIterator[SpeechChunk]) -> SpeechChunk | None:
        if self._chunk_timeout_s is None:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout(self._chunk_timeout_s):
                return await anext(chunks, None)
        except TimeoutError:
            raise EngineFailed(f"no audio for {self._chunk_timeout_s:g} s") from None

    async def _close(self) -> None:
        self._held.release()
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.cancel()
