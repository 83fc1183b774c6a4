"""OpenAI's speech API: ``/v1/audio/speech`` with what its client packages ask beside it.

Nothing is sent before the first chunk of audio is there, so that every refusal is an answer with ``error.message``. After
that a failure breaks the connection off: a response that ends properly is complete. A reader that takes nothing for
:data:`WRITE_TIMEOUT_S` is cut off; a client that hangs up cancels the synthesis.
"""

import asyncio
import base64
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Annotated, ClassVar, Final, Literal, TypeVar

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from cc_tts import logs
from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.connections import abort
from cc_tts.api.http.route import RouteTable
from cc_tts.api.plugs.encoder import FORMATS, AudioFileFormat, Encoder
from cc_tts.api.plugs.speech_context import ERRORS, Speech, speech_of
from cc_tts.calls.prompts.utterance import CompletionCause
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import ModelNotFound
from cc_tts.media import synthetic_label
from cc_tts.speech.prompt import SequenceContent, TextContent

DEFAULT_RATE_HZ: Final = 24_000
"""OpenAI's ``pcm`` has this rate."""
WRITE_TIMEOUT_S: Final = 10.0  # unmeasured
"""How long one write may wait for the reader."""
VOICES: Final = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse")
)
"""The voices of OpenAI's API reference. Those that ``tts.voice_aliases`` does not name stand for the voice of the text's
language.
"""
MODELS: Final = ("cc-tts", "tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""The names of OpenAI's models are listed for clients that look for theirs; ``model`` has no effect."""
OWNER: Final = "cc-tts"
EVENT_STREAM: Final = "text/event-stream"

SampleRate = Literal[8000, 16000, 22050, 24000, 44100, 48000]

AnySpeed = Annotated[
    float, Meta(ge=0.25, le=4.0, description=f"Beyond {MIN_SPEED} to {MAX_SPEED} the nearer of these is used: X-Speed.")
]
T = TypeVar("T")

log = logs.get(__name__)

ROUTES: Final = RouteTable("Speech")


class VoiceRef(msgspec.Struct, frozen=True):
    """A voice by its id, as newer clients send it."""

    id: schemas.VoiceId


class AudioSpeech(schemas.Body, frozen=True, forbid_unknown_fields=False):
    """Speech without a call, in OpenAI's shape, or with ``ssml`` for ``input``. Unknown fields have no effect."""

    exactly_one: ClassVar[tuple[str, ...]] = ("input", "ssml")
    input: schemas.Text | UnsetType = UNSET
    ssml: schemas.Ssml | UnsetType = UNSET
    model: Annotated[str, Meta(max_length=128, description="Has no effect.")] | None = None
    voice: schemas.VoiceId | VoiceRef | None = None
    language: schemas.Language | None = None
    response_format: Annotated[
        Literal["mp3", "opus", "aac", "flac", "wav", "pcm", "ulaw", "alaw"],
        Meta(
            description="opus: in Ogg; aac: ADTS; pcm: 16-bit little-endian mono without header; "
            "ulaw, alaw: G.711 at 8 kHz without header."
        ),
    ] = "mp3"
    sample_rate_hz: Annotated[
        SampleRate | None, Meta(description="24000 if left out. opus has no 22050 and 44100, ulaw and alaw 8000 only.")
    ] = None
    speed: AnySpeed | None = None
    instructions: Annotated[str, Meta(max_length=4096, description="Has no effect.")] | None = None
    lexicons: schemas.LexiconNames = ()
    stream_format: Literal["audio", "sse"] = "audio"

    def content(self, aliases: Collection[str] = ()) -> TextContent | SequenceContent:
        """The text to say, as a prompt. ``aliases`` are names that the configuration gives to voices.

        Raises:
            Unprocessable: text with NUL, or a sample rate that the format does not have.
            SsmlMalformed: an SSML document that cannot be read.
            MalformedRequest: not exactly one of input and ssml.
        """
        rates_hz = self.format.rates_hz
        schemas.refuse(
            "/sample_rate_hz",
            f"{self.response_format} is {' or '.join(map(str, sorted(rates_hz)))} Hz",
            when=bool(rates_hz) and self.sample_rate_hz not in (None, *rates_hz),
        )
        voice = self.voice.id if isinstance(self.voice, VoiceRef) else self.voice
        if voice in VOICES and voice not in aliases:
            voice = None
        style = TextContent("", voice, self.language, self.speed_used, lexicons=self.lexicons)
        return schemas.words(self.input, self.ssml, style, text_field="input")

    @property
    def format(self) -> AudioFileFormat:
        return FORMATS[self.response_format]

    @property
    def rate_hz(self) -> int:
        return self.sample_rate_hz or next(iter(self.format.rates_hz), DEFAULT_RATE_HZ)

    @property
    def speed_used(self) -> float | None:
        """The speed within what voices can; ``None``: the configuration's."""
        return None if self.speed is None else min(max(self.speed, MIN_SPEED), MAX_SPEED)


class Model(msgspec.Struct, frozen=True):
    """A model, as OpenAI's API lists it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = OWNER


class Models(msgspec.Struct, frozen=True):
    """The names that ``model`` may have. Any other is taken as well."""

    data: tuple[Model, ...] = tuple(map(Model, MODELS))
    object: Literal["list"] = "list"


class SpeechVoice(msgspec.Struct, frozen=True):
    """A voice as Open WebUI and the like read it."""

    id: str
    name: str


class SpeechVoices(msgspec.Struct, frozen=True):
    """The values that ``voice`` may have."""

    voices: list[SpeechVoice]


@ROUTES.add(
    "POST",
    "/v1/audio/speech",
    scope="call",
    content_types=tuple(sorted({each.content_type.partition(";")[0] for each in FORMATS.values()} | {EVENT_STREAM})),
    errors=ERRORS,
    for_tenants=True,
    examples={
        "OpenAI's shape": {"model": "tts-1", "voice": "alloy", "input": "One moment please."},
        "wav": {"input": "One moment please.", "voice": "en-gb", "response_format": "wav"},
        "for a PBX": {"input": "One moment please.", "response_format": "ulaw"},
    },
    streams=True,
    is_synthetic=True,
)
async def create_speech(request: web.Request, body: AudioSpeech) -> web.StreamResponse:
    """Speech without a call, streamed during synthesis (Idempotency-Key has no effect)."""
    content = body.content(request.app[CONTEXT].config.tts.voice_aliases)
    pointers = fields_of_text("/input" if body.ssml is UNSET else "/ssml")
    async with speech_of(request, content, rate_hz=body.rate_hz, pointers=pointers) as speech:
        return await _Response(request, body, speech).send()


@ROUTES.add("GET", "/v1/models", scope="read", for_tenants=True)
async def list_models(request: web.Request) -> Models:  # noqa: ARG001
    """List the values of model that clients of OpenAI look for."""
    return Models()


@ROUTES.add("GET", "/v1/models/{model}", scope="read", errors=(ModelNotFound,), for_tenants=True)
async def get_model(request: web.Request) -> Model:
    """Show one of the models."""
    if (name := request.match_info["model"]) not in MODELS:
        raise ModelNotFound.named(name)
    return Model(name)


@ROUTES.add("GET", "/v1/audio/voices", scope="read", for_tenants=True)
async def list_speech_voices(request: web.Request) -> SpeechVoices:
    """List the values of voice: aliases, then voices."""
    context = request.app[CONTEXT]
    aliases = context.config.tts.voice_aliases
    voices = context.speech_source.engine.voices()
    return SpeechVoices(
        [SpeechVoice(name, f"{name} ({voice})") for name, voice in aliases.items()]
        + [SpeechVoice(voice.id, voice.id) for voice in voices]
    )


class _Response:
    """The response of one request, as audio or as events."""

    def __init__(self, request: web.Request, body: AudioSpeech, speech: Speech) -> None:
        self._request = request
        self._speech = speech
        self._rate_hz = body.rate_hz
        self._format = body.format
        self._is_events = body.stream_format == "sse"
        content_type = EVENT_STREAM if self._is_events else self._format.content_type.format(rate_hz=body.rate_hz)
        headers = {"Content-Type": content_type, **synthetic_label.HEADERS}
        self._label = speech.id, request.app[CONTEXT].config.tts.producer
        if speech.voice is not None:
            headers["X-Voice"] = speech.voice.id
        if body.speed_used != body.speed:
            headers["X-Speed"] = str(body.speed_used)
        self._response = web.StreamResponse(headers=headers)

    async def send(self) -> web.StreamResponse:
        try:
            encoder = await self._encoded(partial(self._format.make, self._rate_hz, self._label))
            await self._response.prepare(self._request)
            await self._send_audio(encoder)
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._response.write_eof()
        except ConnectionError:
            self._speech.reason = CompletionCause.CANCELLED
            log.debug("speech_stream_client_gone")
        except TimeoutError:
            self._speech.reason = CompletionCause.CANCELLED
            log.info("speech_stream_reader_too_slow", limit_s=WRITE_TIMEOUT_S)
            abort(self._request)
        except Exception as error:  # noqa: BLE001 - the head is out: only breaking off tells the client
            self._speech.reason, self._speech.error = CompletionCause.ERROR, getattr(error, "code", "internal")
            log.warning("speech_stream_failed", error=type(error).__name__, code=self._speech.error)
            abort(self._request)
        return self._response

    async def _send_audio(self, encoder: Encoder) -> None:
        async for chunk in self._speech.chunks():
            await self._write(await self._encoded(partial(encoder.encode, chunk.data)))
        await self._write(await self._encoded(encoder.finish))
        if self._is_events:
            usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
            await self._write_event({"type": "speech.audio.done", "usage": usage})

    async def _encoded(self, step: Callable[[], T]) -> T:
        """Take a step of the encoder where it holds nobody up."""
        return await asyncio.to_thread(step) if self._format.is_slow else step()

    async def _write(self, audio: bytes) -> None:
        if audio and self._is_events:
            await self._write_event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})
        elif audio:
            await self._write_bytes(audio)

    async def _write_event(self, event: Mapping[str, object]) -> None:
        await self._write_bytes(b"data: " + msgspec.json.encode(event) + b"\n\n")

    async def _write_bytes(self, data: bytes) -> None:
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await self._response.write(data)
