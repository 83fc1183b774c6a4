"""``POST /v1/audio/speech``: speech without a call, streamed while it is made.

Nothing is sent before the first chunk of audio is there, so that every refusal still is a problem document. After that
a failure breaks the connection off: a response that ends properly is complete. A reader that takes nothing for
:data:`WRITE_TIMEOUT_S` is cut off; a client that hangs up cancels the synthesis within :data:`CLIENT_POLL_S`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Final, Literal

from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from cc_tts import logs, wav_file
from cc_tts.api import schemas
from cc_tts.api.calls import OF_TEXT, fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import current_tenant
from cc_tts.api.http.connections import abort, is_gone
from cc_tts.api.http.route import RouteTable
from cc_tts.audio import AudioFormat
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.clock import ms_between
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import CapacityExceeded, Draining, EngineFailed, NoAudio
from cc_tts.media import synthetic_label
from cc_tts.media.g711 import ulaw_encode
from cc_tts.speech.chunks import ChunkStream
from cc_tts.speech.prompt import Content, SequenceContent, TextContent, text_of
from cc_tts.tenants.accounting import UtteranceLine

DEFAULT_RATE_HZ: Final = 24_000
ULAW_RATE_HZ: Final = 8000
WRITE_TIMEOUT_S: Final = 10.0  # unmeasured
"""How long one write may wait for the reader."""
CHUNK_TIMEOUT_S: Final = 15.0  # unmeasured
"""How long the engine may take for one chunk."""
CLIENT_POLL_S: Final = 0.1  # unmeasured
"""How often a wait for the engine looks whether the client is still there."""

_CONTENT_TYPES: Final = {"wav": "audio/wav", "pcm": "audio/pcm;rate={rate_hz}", "ulaw": "audio/basic"}
"""audio/basic is μ-law of one channel at 8000 Hz (RFC 2046 §4.3)."""

log = logs.get(__name__)


STREAMS: Final = web.AppKey("speech_streams", asyncio.Semaphore)
"""All that run at the same time hold so much."""
SampleRate = Literal[8000, 16000, 22050, 24000, 44100, 48000]

ROUTES: Final = RouteTable("Speech")


class AudioSpeech(schemas.Body, frozen=True):
    """Speech without a call, in OpenAI's shape, or with ``ssml`` for ``input``. ``model`` is accepted and ignored."""

    exactly_one: ClassVar[tuple[str, ...]] = ("input", "ssml")
    input: schemas.Text | UnsetType = UNSET
    ssml: schemas.Ssml | UnsetType = UNSET
    model: Annotated[str, Meta(max_length=128)] | None = None
    voice: schemas.VoiceId | None = None
    language: schemas.Language | None = None
    response_format: Annotated[
        Literal["wav", "pcm", "ulaw"],
        Meta(description="pcm: 16-bit little-endian mono without header; ulaw: G.711 μ-law at 8 kHz without header."),
    ] = "wav"
    sample_rate_hz: SampleRate | None = None
    speed: schemas.Speed | None = None
    lexicons: schemas.LexiconNames = ()
    stream_format: Literal["audio"] = "audio"

    def content(self) -> TextContent | SequenceContent:
        """The text to say, as a prompt.

        Raises:
            Unprocessable: text with NUL, or a sample rate that μ-law does not have.
            SsmlMalformed: an SSML document that cannot be read.
            MalformedRequest: not exactly one of input and ssml.
        """
        is_other_rate = self.sample_rate_hz not in (None, 8000)
        schemas.refuse("/sample_rate_hz", "ulaw is 8000 Hz", when=self.response_format == "ulaw" and is_other_rate)
        style = TextContent("", self.voice, self.language, self.speed, lexicons=self.lexicons)
        return schemas.words(self.input, self.ssml, style, text_field="input")


@ROUTES.add(
    "POST",
    "/v1/audio/speech",
    scope="call",
    content_types=("audio/wav", "audio/pcm", "audio/basic"),
    errors=(CapacityExceeded, Draining, EngineFailed, NoAudio, *OF_TEXT),
    for_tenants=True,
    examples={
        "wav": {"input": "One moment please.", "voice": "en-gb", "response_format": "wav"},
        "for a PBX": {"input": "One moment please.", "response_format": "ulaw"},
    },
    streams=True,
    is_synthetic=True,
)
async def create_speech(request: web.Request, body: AudioSpeech) -> web.StreamResponse:
    """Speech without a call, streamed during synthesis (Idempotency-Key has no effect)."""
    context = request.app[CONTEXT]
    started_ns = context.clock.now_ns()
    content = body.content()
    if context.registry.draining:
        raise Draining(retry_after_s=context.config.sip.retry_after_s)
    if (streams := request.app[STREAMS]).locked():
        limit = context.config.http.max_speech_streams
        raise CapacityExceeded(f"{limit} speech streams are running (http.max_speech_streams)", retry_after_s=1)
    async with streams:
        with context.metrics.speech_streams.track_inprogress():
            return await _speak(request, body, content, started_ns)


async def _speak(request: web.Request, body: AudioSpeech, content: Content, started_ns: int) -> web.StreamResponse:
    context = request.app[CONTEXT]
    rate_hz = ULAW_RATE_HZ if body.response_format == "ulaw" else body.sample_rate_hz or DEFAULT_RATE_HZ
    located = partial(bodies.located, fields_of_text("/input" if body.ssml is UNSET else "/ssml"))
    await context.speech_source.match_lexicons(content)
    with located():
        voice = context.speech_source.check(content)
    source, tenants, tenant = context.speech_source, context.tenants, current_tenant()
    num_chars = len(text_of(content))
    async with AsyncExitStack() as stack:
        stack.enter_context(tenants.characters(tenant, num_chars))
        stack.enter_context(tenants.hold_stream(tenant, lambda: source.utilisation(content)))
        with located(), tenants.asking_engine(tenant):
            sent = _Sent(context.nodes.new_id("utt"))
            pcm = _pcm_of(source.open(content, rate_hz=rate_hz), request, sent)
            await stack.enter_async_context(aclosing(pcm))
            if (first := await anext(pcm, None)) is None:
                raise NoAudio("the text was synthesised, and not one sample came of it")
        if voice is not None:
            elapsed_ms = ms_between(started_ns, context.clock.now_ns())
            context.metrics.time_to_first_pcm.labels(engine=voice.engine).observe(elapsed_ms / 1000)
        try:
            return await _send(request, body.response_format, rate_hz, first, pcm, sent)
        finally:
            context.accounting.add(
                UtteranceLine(
                    tenant=tenant,
                    call_id=None,
                    utterance_id=sent.id,
                    characters=num_chars,
                    played_ms=round(AudioFormat(rate_hz).ms_for_bytes(sent.num_bytes)),
                    cached=sent.cached,
                    voice="" if voice is None else voice.id,
                    engine="" if voice is None else voice.engine,
                    reason=sent.reason,
                    error=sent.error,
                )
            )


@dataclass(slots=True)
class _Sent:
    """The PCM of a response that was sent, and how it ended, for the accounting."""

    id: str
    num_bytes: int = 0
    cached: bool = False
    reason: CompletionCause = CompletionCause.CANCELLED
    error: str | None = None


async def _pcm_of(stream: ChunkStream, request: web.Request, sent: _Sent) -> AsyncGenerator[bytes, None]:
    """The audio of ``stream``, which is cancelled in the end. Raises as :func:`_next` does."""
    chunks = aiter(stream)
    try:
        while (chunk := await _next(chunks, request)) is not None:
            sent.cached = sent.cached or chunk.cached
            yield chunk.data
    finally:
        await stream.cancel()
        if (close := getattr(chunks, "aclose", None)) is not None:
            await close()


async def _next(chunks: AsyncIterator[SpeechChunk], request: web.Request) -> SpeechChunk | None:
    """The next chunk; ``None`` at the end.

    Raises:
        ConnectionError: the client hung up.
        EngineFailed: no chunk came for :data:`CHUNK_TIMEOUT_S`, or synthesis broke off.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + CHUNK_TIMEOUT_S
    pending = asyncio.ensure_future(anext(chunks, None))
    try:
        while not pending.done():
            await asyncio.wait({pending}, timeout=CLIENT_POLL_S)
            if is_gone(request):
                raise ConnectionResetError
            if not pending.done() and loop.time() > deadline_s:
                raise EngineFailed(f"no audio for {CHUNK_TIMEOUT_S:g} s")
        return pending.result()
    finally:
        if not pending.done():
            pending.cancel()
            await asyncio.wait({pending})


async def _send(
    request: web.Request, response_format: str, rate_hz: int, first: bytes, rest: AsyncIterator[bytes], sent: _Sent
) -> web.StreamResponse:
    encode: Callable[[bytes], bytes] = ulaw_encode if response_format == "ulaw" else bytes
    content_type = _CONTENT_TYPES[response_format].format(rate_hz=rate_hz)
    response = web.StreamResponse(headers={"Content-Type": content_type, **synthetic_label.HEADERS})
    try:
        await response.prepare(request)
        if response_format == "wav":
            label = synthetic_label.wav_chunks(sent.id, request.app[CONTEXT].config.tts.producer)
            await _write(response, wav_file.header(rate_hz=rate_hz, chunks=label))
        await _write(response, encode(first))
        sent.num_bytes += len(first)
        async for pcm in rest:
            await _write(response, encode(pcm))
            sent.num_bytes += len(pcm)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await response.write_eof()
        sent.reason = CompletionCause.NORMAL
    except ConnectionError:
        log.debug("speech_stream_client_gone")
    except TimeoutError:
        log.info("speech_stream_reader_too_slow", limit_s=WRITE_TIMEOUT_S)
        abort(request)
    except Exception as error:  # noqa: BLE001 - the head is out: only breaking off tells the client
        sent.reason, sent.error = CompletionCause.ERROR, getattr(error, "code", "internal")
        log.warning("speech_stream_failed", error=type(error).__name__, code=sent.error)
        abort(request)
    return response


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        await response.write(data)
