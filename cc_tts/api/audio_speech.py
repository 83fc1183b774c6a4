"""``POST /v1/audio/speech``: speech without a call, streamed while it is made.

Nothing is sent before the first chunk of audio is there, so that every refusal still is a problem document. After that
a failure breaks the connection off: a response that ends properly is complete. A reader that takes nothing for
:data:`WRITE_TIMEOUT_S` is cut off; a client that hangs up cancels the synthesis within :data:`CLIENT_POLL_S`.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from cc_tts import logs
from cc_tts.api import schemas
from cc_tts.api.context import CONTEXT, ApiContext
from cc_tts.api.http import bodies
from cc_tts.api.http.connections import is_gone
from cc_tts.clock import ms_between
from cc_tts.errors import (
    CapacityExceeded,
    ClientError,
    Draining,
    EngineFailed,
    LanguageUnsupported,
    NothingToSay,
    TextTooLong,
    UnknownVoice,
)
from cc_tts.media.g711 import ulaw_encode
from cc_tts.speech.source import ChunkStream, SpeechChunk

DEFAULT_RATE_HZ: Final = 24_000
ULAW_RATE_HZ: Final = 8000
WRITE_TIMEOUT_S: Final = 10.0
"""How long one write may wait for the reader."""
CHUNK_TIMEOUT_S: Final = 15.0
"""How long the engine may take for one chunk."""
CLIENT_POLL_S: Final = 0.1
"""How often a wait for the engine looks whether the client is still there."""
RETRY_AFTER_S: Final = 1

_UNKNOWN_SIZE: Final = 0xFFFF_FFFF
_FIELDS: Final[dict[type[ClientError], str]] = {
    UnknownVoice: "/voice",
    LanguageUnsupported: "/language",
    NothingToSay: "/input",
    TextTooLong: "/input",
}

log = logs.get(__name__)


class StreamSlots:
    """How many responses may be streamed at the same time. Runs on: the event loop."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self.num_taken = 0

    def take(self) -> None:
        """Take one.

        Raises:
            CapacityExceeded: all are taken.
        """
        if self.num_taken >= self._max_streams:
            raise CapacityExceeded(
                f"{self._max_streams} speech streams are running (http.max_speech_streams)", retry_after_s=RETRY_AFTER_S
            )
        self.num_taken += 1

    def give_back(self) -> None:
        """Give one back."""
        self.num_taken -= 1


SLOTS: Final = web.AppKey("speech_slots", StreamSlots)


class ClientGone(ConnectionError):
    """The client hung up."""


async def audio_speech(request: web.Request, body: schemas.AudioSpeech) -> web.StreamResponse:
    """``POST /v1/audio/speech``."""
    context = request.app[CONTEXT]
    started_ns = context.clock.now_ns()
    content = body.content()
    rate_hz = ULAW_RATE_HZ if body.response_format == "ulaw" else body.sample_rate_hz or DEFAULT_RATE_HZ
    if context.registry.draining:
        raise Draining(retry_after_s=context.config.sip.retry_after_s)
    slots = request.app[SLOTS]
    slots.take()
    context.metrics.speech_streams.set(slots.num_taken)
    try:
        try:
            voice = context.speech_source.check(content)
            stream = context.speech_source.open(content, rate_hz=rate_hz)
        except ClientError as error:
            raise bodies.located(error, _FIELDS) from None
        reader = _ChunkReader(request, stream)
        try:
            first = await _first_chunk(reader)
            if voice is not None:
                elapsed_ms = ms_between(started_ns, context.clock.now_ns())
                context.metrics.time_to_first_pcm.labels(engine=voice.engine).observe(elapsed_ms / 1000)
            return await _send(request, body, rate_hz, first, reader)
        finally:
            await reader.close()
    finally:
        slots.give_back()
        context.metrics.speech_streams.set(slots.num_taken)


def wav_header(rate_hz: int) -> bytes:
    """RIFF header of 16-bit mono PCM whose length is not known yet.

    Both sizes are 0xFFFFFFFF, as ffmpeg and SoX write and read them for pipes.
    """
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", _UNKNOWN_SIZE, b"WAVE",
        b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16,
        b"data", _UNKNOWN_SIZE,
    )  # fmt: skip


class _ChunkReader:
    """Reads a stream chunk by chunk with an eye on the client."""

    def __init__(self, request: web.Request, stream: ChunkStream) -> None:
        self._request = request
        self._stream = stream
        self._chunks: AsyncIterator[SpeechChunk] = aiter(stream)
        self._next: asyncio.Task[SpeechChunk | None] | None = None

    async def next(self) -> SpeechChunk | None:
        """The next chunk; ``None`` at the end.

        Raises:
            ClientGone: it hung up.
            EngineFailed: no chunk came for :data:`CHUNK_TIMEOUT_S`, or synthesis broke off.
        """
        self._next = asyncio.ensure_future(_next(self._chunks))
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CHUNK_TIMEOUT_S
        while not self._next.done():
            await asyncio.wait({self._next}, timeout=CLIENT_POLL_S)
            if is_gone(self._request):
                raise ClientGone
            if not self._next.done() and loop.time() > deadline_s:
                raise EngineFailed(f"no audio for {CHUNK_TIMEOUT_S:g} s")
        return self._next.result()

    async def close(self) -> None:
        """Cancel the stream; after its end this does nothing."""
        if self._next is not None and not self._next.done():
            self._next.cancel()
            await asyncio.wait({self._next})
        await self._stream.cancel()
        if (close := getattr(self._chunks, "aclose", None)) is not None:
            await close()


async def _next(chunks: AsyncIterator[SpeechChunk]) -> SpeechChunk | None:
    return await anext(chunks, None)


async def _first_chunk(reader: _ChunkReader) -> SpeechChunk:
    try:
        first = await reader.next()
    except ClientError as error:
        raise bodies.located(error, _FIELDS) from None
    if first is None:
        raise bodies.located(NothingToSay(), _FIELDS)
    return first


async def _send(
    request: web.Request, body: schemas.AudioSpeech, rate_hz: int, first: SpeechChunk, reader: _ChunkReader
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": _content_type(body, rate_hz)})
    try:
        await response.prepare(request)
        if body.response_format == "wav":
            await _write(response, wav_header(rate_hz))
        chunk: SpeechChunk | None = first
        while chunk is not None:
            await _write(response, ulaw_encode(chunk.data) if body.response_format == "ulaw" else chunk.data)
            chunk = await reader.next()
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write_eof()
    except ConnectionError:
        log.debug("speech_stream_client_gone")
    except TimeoutError:
        log.info("speech_stream_reader_too_slow", limit_s=WRITE_TIMEOUT_S)
        _break_off(request)
    except Exception as error:  # noqa: BLE001 - the head is out: only breaking off tells the client
        log.warning("speech_stream_failed", error=type(error).__name__, code=getattr(error, "code", "internal"))
        _break_off(request)
    return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await response.write(data)


def _break_off(request: web.Request) -> None:
    transport = request.transport
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def _content_type(body: schemas.AudioSpeech, rate_hz: int) -> str:
    match body.response_format:
        case "wav":
            return "audio/wav"
        case "pcm":
            return f"audio/pcm;rate={rate_hz}"
        case "ulaw":
            return "audio/basic"  # RFC 2046 §4.3: 8000 Hz, one channel, μ-law


def slots_for(context: ApiContext) -> StreamSlots:
    """As many as the config allows."""
    return StreamSlots(context.config.http.max_speech_streams)
