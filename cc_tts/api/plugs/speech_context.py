"""The speech of one text for one client, without a call. Every plug opens, feeds and reads it.

::

    SpeechContext ─▸ append · flush · end ─▸ speech ─▸ chunks ─▸ the plug's own messages
                                                └─ leaving it frees the engine
    speech_of(content) ─▸ chunks                    a text that is there as a whole

Limits of the server and of the tenant, metrics and the accounting line are those of ``POST /v1/audio/speech``. Runs on: the
event loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Annotated, Any, Final

from aiohttp import web
from msgspec import Meta

from cc_tts.api.calls import OF_TEXT
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import current_tenant
from cc_tts.api.http.connections import is_gone
from cc_tts.api.plugs.alignment import Aligner
from cc_tts.audio import AudioFormat
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.clock import ms_between
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED, ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import (
    CapacityExceeded,
    CcTtsError,
    ClientError,
    Draining,
    EngineFailed,
    LanguageUnsupported,
    NoAudio,
    TextTooLong,
)
from cc_tts.speech.admission import CHUNK_TIMEOUT_S
from cc_tts.speech.incremental.text import IncrementalText, segmenting_of
from cc_tts.speech.prompt import Content, IncrementalContent, TextContent, text_of
from cc_tts.tenants.accounting import UtteranceLine
from cc_tts.text.characters import has_speech
from cc_tts.voices.voice import Voice

CLIENT_POLL_S: Final = 0.1  # unmeasured
"""While it waits for the engine, the server checks this often whether the client is still connected."""
STREAMS: Final = web.AppKey("speech_streams", asyncio.Semaphore)
"""Counts the streams that run; at most ``http.max_speech_streams``."""
NO_POINTERS: Final[Mapping[type[ClientError], str]] = {}
ClientSpeed = Annotated[
    float, Meta(ge=0.25, le=4.0, description=f"Beyond {MIN_SPEED} to {MAX_SPEED} the nearer of these is used.")
]
"""The speed that clients of other services ask for. The bounds are OpenAI's."""
ERRORS: Final = (CapacityExceeded, Draining, EngineFailed, NoAudio, *OF_TEXT)
ROUTE: Final[dict[str, Any]] = {"scope": "call", "for_tenants": True, "ignores_unknown_query": True, "streams": True}
"""The options of the routes of all plugs."""


class Speech:
    """The audio of one text. ``voice`` speaks the beginning, ``None`` for SSML without words. ``reason`` and ``error`` are
    for the accounting, and the plug sets them.
    """

    def __init__(self, request: web.Request, stream: ChunkStream, voice: Voice | None) -> None:
        self.id = request.app[CONTEXT].services.nodes.new_id("utt")
        self.voice = voice
        self.reason = CompletionCause.CANCELLED
        self.error: str | None = None
        self._request = request
        self._stream = stream
        self._chunks = aiter(stream)
        self._begun: deque[SpeechChunk] = deque()
        """The chunks up to the first audio."""
        self._num_bytes = 0
        self._is_cached = False
        self._awaits_text = False

    @property
    def label(self) -> tuple[str, str]:
        """Return the label of a file: the id, and the producer."""
        return self.id, self._request.app[CONTEXT].config.tts.producer

    async def begin(self) -> None:
        """Wait for the first audio, so that a refusal can still be an error response; raises as :meth:`chunks`.

        Raises:
            NoAudio: the text was synthesised, and not one sample came of it.
        """
        while not self._begun or not self._begun[-1].data:
            if (chunk := await self._next()) is None:
                raise NoAudio("the text was synthesised, and not one sample came of it")
            self._begun.append(chunk)

    async def chunks(self) -> AsyncIterator[SpeechChunk]:
        """Yield the audio during synthesis.

        Raises:
            ConnectionError: the client hung up.
            EngineFailed: no chunk came for :data:`CHUNK_TIMEOUT_S`, or synthesis broke off.
            LanguageUnsupported: no voice speaks what comes next of a text that is growing.
        """
        while (chunk := self._begun.popleft() if self._begun else await self._next()) is not None:
            if chunk.refused_because:
                raise LanguageUnsupported(chunk.refused_because)
            self._num_bytes += len(chunk.data)
            self._is_cached = self._is_cached or chunk.cached
            yield chunk
        self.reason = CompletionCause.NORMAL

    async def cancel(self) -> None:
        """Free the engine. Safe to call twice."""
        await self._stream.cancel()
        if (close := getattr(self._chunks, "aclose", None)) is not None:
            await close()

    def line(self, content: Content, rate_hz: int) -> UtteranceLine:
        return UtteranceLine(
            tenant=current_tenant(),
            call_id=None,
            utterance_id=self.id,
            characters=len(text_of(content)),
            played_ms=round(AudioFormat(rate_hz).ms_for_bytes(self._num_bytes)),
            cached=self._is_cached,
            voice="" if self.voice is None else self.voice.id,
            engine="" if self.voice is None else self.voice.engine,
            reason=self.reason,
            error=self.error,
        )

    async def _next(self) -> SpeechChunk | None:
        """Return the next chunk; ``None`` at the end."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CHUNK_TIMEOUT_S
        pending = asyncio.ensure_future(anext(self._chunks, None))
        try:
            while not pending.done():
                await asyncio.wait({pending}, timeout=CLIENT_POLL_S)
                if is_gone(self._request):
                    raise ConnectionResetError
                if not pending.done() and not self._awaits_text and loop.time() > deadline_s:
                    raise EngineFailed(f"no audio for {CHUNK_TIMEOUT_S:g} s")
            chunk = pending.result()
            self._awaits_text = chunk is not None and chunk.awaits_text
            return chunk
        finally:
            if not pending.done():
                pending.cancel()
                await asyncio.wait({pending})


def refuse_if_draining(request: web.Request) -> None:
    """Raise ``Draining`` if this server takes nothing new."""
    context = request.app[CONTEXT]
    if context.registry.draining:
        raise Draining(retry_after_s=context.config.sip.retry_after_s)


async def streams_over(app: web.Application) -> None:
    """Wait until no speech is being sent. The server drains, so no new speech begins."""
    streams = app[STREAMS]
    for _ in range(app[CONTEXT].config.http.max_speech_streams):
        await streams.acquire()


@asynccontextmanager
async def speech_of(
    request: web.Request, content: Content, *, rate_hz: int, pointers: Mapping[type[ClientError], str] = NO_POINTERS
) -> AsyncIterator[Speech]:
    """Open the speech of a text, with its first audio if the text is complete. ``pointers`` maps errors to fields. The
    characters of a growing text are charged when they are appended.

    Raises:
        CapacityExceeded, Draining, EngineFailed, NoAudio, and those of text: it cannot be spoken.
        ConnectionError: the client hung up.
    """
    context = request.app[CONTEXT]
    started_ns = context.services.clock.now_ns()
    source, tenants, tenant = context.services.source, context.services.tenants, current_tenant()
    is_whole = not isinstance(content, IncrementalContent)
    refuse_if_draining(request)
    if (streams := request.app[STREAMS]).locked():
        limit = context.config.http.max_speech_streams
        raise CapacityExceeded(f"{limit} speech streams are running (http.max_speech_streams)", retry_after_s=1)
    async with streams, AsyncExitStack() as stack:
        stack.enter_context(context.services.metrics.speech_streams.track_inprogress())
        await source.match_lexicons(content)
        with bodies.located(pointers):
            voice = source.check(content)
            if is_whole:
                stack.enter_context(tenants.characters(tenant, len(text_of(content))))
            stack.enter_context(tenants.hold_stream(tenant, lambda: source.utilisation(content)))
            with tenants.asking_engine(tenant):
                speech = Speech(request, source.open(content, rate_hz=rate_hz), voice)
                stack.push_async_callback(speech.cancel)
                if is_whole:
                    await speech.begin()
        if is_whole and voice is not None:
            elapsed_ms = ms_between(started_ns, context.services.clock.now_ns())
            context.services.metrics.time_to_first_pcm.labels(engine=voice.engine).observe(elapsed_ms / 1000)
        try:
            yield speech
        except CcTtsError as error:
            speech.reason, speech.error = CompletionCause.ERROR, error.code
            raise
        finally:
            context.services.accounting.add(speech.line(content, rate_hz))


class SpeechContext:
    """One text that a client sends in pieces, and its audio. ``words`` give its style; their own text is empty.

    Nothing is held for it before its first letter or digit, so that a client may keep contexts open; from then on it is one
    of the streams that run. A text to which nothing is added for ``idle_timeout_s`` ends by itself.
    """

    def __init__(
        self, request: web.Request, id_: str, words: TextContent, *, rate_hz: int, idle_timeout_s: float
    ) -> None:
        self.id = id_
        self.task: asyncio.Task[None] | None = None
        """The task that speaks it."""
        self.has_failed = False
        self.is_timed = False
        self.aligner = Aligner(rate_hz)
        self._request = request
        self._context = context = request.app[CONTEXT]
        self._rate_hz = rate_hz
        self._text = IncrementalText(
            context.services.clock, segmenting=segmenting_of(context.config.tts), idle_timeout_s=idle_timeout_s
        )
        self._content = IncrementalContent(replace(words, may_cache=False), self._text)
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._has_begun = asyncio.Event()
        self._last = ""
        """The last character so far."""
        self._was_flushed = False
        context.services.source.check(self._content)

    @property
    def text(self) -> str:
        return self._text.text

    @property
    def has_ended(self) -> bool:
        return self._text.has_ended

    def append(self, text: str) -> None:
        """Append text that has arrived.

        Raises:
            TextTooLong: more waits than ``stream.max_buffered_chars``, or the message is longer than ``tts.max_text_chars``.
            QuotaExceeded: the tenant has used up its characters.
        """
        config = self._context.config
        if len(text) > config.tts.max_text_chars:
            raise TextTooLong(
                f"{len(text)} characters in one message; tts.max_text_chars is {config.tts.max_text_chars}"
            )
        limit = config.stream.max_buffered_chars + config.tts.max_text_chars
        if self._text.num_pending + len(text) > limit:
            raise TextTooLong(f"more than {limit} characters wait (stream.max_buffered_chars and tts.max_text_chars)")
        with self._context.services.tenants.characters(current_tenant(), len(text)):
            self._text.append(" " + text if self._is_new_sentence(text) else text)
        self._heard_s = self._loop.time()
        self._last = text[-1:] or self._last
        self._was_flushed = False
        if not self._has_begun.is_set() and has_speech(self._text.text):
            self._has_begun.set()

    def _is_new_sentence(self, text: str) -> bool:
        """Whether a blank must be inserted before the text, since some clients send sentences without blanks
        between them.
        """
        begins = text[:1]
        if not begins.isalnum() or not begins.isascii() or not self._last or self._last.isspace():
            return False
        return self._was_flushed or (self._last in ".!?" and begins.isupper())

    def keep(self) -> None:
        self._heard_s = self._loop.time()
        self._text.append("")

    def flush(self) -> None:
        self._text.flush()
        self._was_flushed = True

    def end(self) -> None:
        self._text.end()
        self._has_begun.set()

    async def begins(self) -> bool:
        """Wait for the first words; return whether any came before the end."""
        while not self._has_begun.is_set():
            if (left_s := self._idle_timeout_s - (self._loop.time() - self._heard_s)) <= 0:
                self.end()
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._has_begun.wait()
        return has_speech(self._text.text)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def speech(self) -> AbstractAsyncContextManager[Speech]:
        """Return the speech; raises as :func:`speech_of`."""
        return speech_of(self._request, self._content, rate_hz=self._rate_hz)
