"""Cartesia's text-to-speech API: one text over HTTP, and texts in contexts over a WebSocket."""

import base64
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from aiohttp import web
from msgspec import UNSET, Meta

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.route import CARTESIA, Query, RouteTable
from cc_tts.api.plugs.alignment import AlignedAudio, Characters
from cc_tts.api.plugs.connection import ONLY, SOCKET_ROUTE, Message, Messages, SpeechConnection, serve
from cc_tts.api.plugs.encoder import FORMATS, AudioFileFormat, Output
from cc_tts.api.plugs.response import RESPONSE_ROUTE, respond
from cc_tts.api.plugs.speech_context import ClientSpeed, SpeechContext
from cc_tts.errors import CcTtsError, FieldError, MalformedRequest, Unprocessable
from cc_tts.speech.prompt import TextContent

IDLE_TIMEOUT_S: Final = 300.0
"""Cartesia closes idle connections after five minutes (unmeasured)."""
DEFAULT_RATE_HZ: Final = 24_000
PCM_SCALE: Final = 32_768.0
"""The full scale of 16-bit samples."""


def _as_floats(pcm: bytes) -> bytes:
    return (np.frombuffer(pcm, "<i2").astype("<f4") / PCM_SCALE).tobytes()


ENCODINGS: Final = {
    "pcm_s16le": FORMATS["pcm"],
    "pcm_mulaw": FORMATS["ulaw"],
    "pcm_alaw": FORMATS["alaw"],
    "pcm_f32le": AudioFileFormat("audio/pcm;encoding=float32;rate={rate_hz}", convert=_as_floats),
}
"""The encodings of raw audio, by Cartesia's names."""
SampleRate = Literal[8000, 16000, 22050, 24000, 32000, 44100, 48000]

ROUTES: Final = RouteTable("Cartesia", CARTESIA)


class CartesiaVoice(msgspec.Struct, frozen=True):
    """The voice of a text, by its id."""

    id: schemas.VoiceId


class CartesiaFormat(msgspec.Struct, frozen=True):
    """The audio that is asked for."""

    container: Literal["raw", "wav", "mp3"] = "raw"
    encoding: Literal["pcm_s16le", "pcm_mulaw", "pcm_alaw", "pcm_f32le"] = "pcm_s16le"
    sample_rate: SampleRate = DEFAULT_RATE_HZ

    @property
    def output(self) -> Output:
        """Return the output format; raises ``Unprocessable`` if we do not have it."""
        audio_format = ENCODINGS[self.encoding] if self.container == "raw" else FORMATS[self.container]
        is_other = self.container == "wav" and self.encoding != "pcm_s16le"
        if is_other or (audio_format.rates_hz and self.sample_rate not in audio_format.rates_hz):
            detail = f"there is no {self.container} of {self.encoding} at {self.sample_rate} Hz here"
            raise Unprocessable(detail, field_errors=[FieldError("/output_format", detail)])
        return Output(audio_format, self.sample_rate)


class GenerationConfig(msgspec.Struct, frozen=True):
    """The speed has an effect."""

    speed: ClientSpeed | None = None


class CartesiaText(msgspec.Struct, frozen=True, kw_only=True):
    """The text to say. Unknown fields have no effect."""

    transcript: schemas.Text
    voice: CartesiaVoice
    output_format: CartesiaFormat = CartesiaFormat()
    language: schemas.Language | None = None
    generation_config: GenerationConfig | None = None

    @property
    def words(self) -> TextContent:
        """Return the style of the text; its own text is empty."""
        speed = self.generation_config.speed if self.generation_config else None
        return TextContent("", self.voice.id, self.language, speed)


class CartesiaMessage(CartesiaText, frozen=True, kw_only=True):
    """A message of a client. Those of a context but the first need its id and the transcript only."""

    transcript: str = ""
    voice: CartesiaVoice = CartesiaVoice("")
    context_id: Annotated[str, Meta(max_length=256)] | None = None
    is_continued: bool = msgspec.field(default=False, name="continue")
    cancel: bool = False
    flush: bool = False
    add_timestamps: bool = False


class ListedVoice(msgspec.Struct, frozen=True):
    """A voice, as Cartesia's API lists it."""

    id: str
    name: str
    description: str
    language: str
    tagline: str = ""
    locales: tuple[str, ...] = ()
    is_owner: bool = False
    access: Literal["public"] = "public"
    visibility: Literal["all"] = "all"
    created_at: str = "1970-01-01T00:00:00Z"
    """Always empty, since the time is not known."""


class ListedVoices(msgspec.Struct, frozen=True):
    """All voices of the server."""

    data: list[ListedVoice]
    has_more: bool = False


_STARTING_AFTER: Final = Query("starting_after", "The last voice of a page; nothing comes behind it.")


@ROUTES.add(
    "POST",
    "/tts/bytes",
    content_types=("audio/mpeg", "audio/wav", "audio/pcm", "audio/basic", "audio/PCMA"),
    examples={"text": {"transcript": "One moment please.", "voice": {"mode": "id", "id": "en-us"}}},
    **RESPONSE_ROUTE,
)
async def speak_for_cartesia(request: web.Request, body: CartesiaText) -> web.StreamResponse:
    """Speech of a text as Cartesia's clients ask for it."""
    output = body.output_format.output
    content = schemas.words(body.transcript, UNSET, body.words, text_field="transcript")
    return await respond(request, content, output, pointers=fields_of_text("/transcript"))


@ROUTES.add("GET", "/tts/websocket", **SOCKET_ROUTE)
async def stream_for_cartesia(request: web.Request) -> web.StreamResponse:
    """Texts of a client of Cartesia as they arrive, over a WebSocket."""
    return await serve(request, CartesiaConnection)


@ROUTES.add("GET", "/voices", query=(_STARTING_AFTER,), scope="read", for_tenants=True, ignores_unknown_query=True)
async def list_voices_for_cartesia(request: web.Request) -> ListedVoices:
    """List the voices as Cartesia's clients read them, all in one page."""
    voices = () if _STARTING_AFTER.name in request.query else request.app[CONTEXT].services.source.engine.voices()
    return ListedVoices(
        [ListedVoice(each.id, each.id, each.description, language=each.language.partition("-")[0]) for each in voices]
    )


class CartesiaConnection(SpeechConnection):
    """A client of Cartesia. The first message of a connection says which audio all of its contexts have."""

    frames = CartesiaMessage

    def __init__(self, request: web.Request) -> None:
        output = CartesiaFormat().output
        super().__init__(request, TextContent(""), output, idle_timeout_s=IDLE_TIMEOUT_S)
        self._first_format: CartesiaFormat | None = None

    def handle(self, incoming: CartesiaMessage) -> None:
        self.current_id = context_id = incoming.context_id or ONLY
        if incoming.cancel:
            self.interrupt(context_id)
            return
        if not self.is_open(context_id):
            self._check_first(incoming)
        self.say(context_id, incoming.transcript, incoming.words, is_timed=incoming.add_timestamps)
        if incoming.flush:
            self.flush(context_id)
        if not incoming.is_continued:
            self.finish(context_id)

    def audio(self, context: SpeechContext, audio: bytes, piece: AlignedAudio | None) -> Messages:
        messages = []
        if audio:
            data = base64.b64encode(audio).decode()
            messages.append(_message(context.id, "chunk", data=data, done=False, status_code=206, step_time=0))
        if piece is not None and piece.characters is not None and context.is_timed:
            words = _words_of(piece.characters, piece.begin_ms)
            messages.append(_message(context.id, "timestamps", done=False, status_code=206, word_timestamps=words))
        return messages

    def final(self, context: SpeechContext) -> Messages:
        return [_message(context.id, "done", done=True, status_code=200)]

    def failed(self, context_id: str, error: CcTtsError) -> Messages:
        told = {"message": error.detail or error.title, "title": error.title, "error_code": error.code}
        return [_message(context_id, "error", **told, error=error.code, done=True, status_code=error.http_status)]

    def _check_first(self, incoming: CartesiaMessage) -> None:
        """Check the first message of a context; the first of all says which audio the connection has."""
        if not incoming.voice.id:
            raise MalformedRequest.about(FieldError("/voice", "the first message of a context names its voice"))
        if self._first_format is None:
            self._output = incoming.output_format.output
            self._first_format = incoming.output_format
        if incoming.output_format != self._first_format:
            raise Unprocessable("the contexts of one connection have one output_format")
        self.check(incoming.words)


def _message(context_id: str, kind: str, **told: Any) -> Message:
    return {"type": kind, "context_id": context_id, **told}


def _words_of(characters: Characters, begin_ms: float) -> dict[str, list[Any]]:
    """Return the words of a piece, and when they are heard, in seconds from the start of their context."""
    told: dict[str, list[Any]] = {"words": [], "start": [], "end": []}
    is_inside = False
    for character, start_ms, length_ms in zip(
        characters.characters, characters.starts_ms, characters.durations_ms, strict=True
    ):
        if character.isspace():
            is_inside = False
            continue
        if not is_inside:
            told["words"].append("")
            told["start"].append(round((begin_ms + start_ms) / 1000, 3))
            told["end"].append(0.0)
        is_inside = True
        told["words"][-1] += character
        told["end"][-1] = round((begin_ms + start_ms + length_ms) / 1000, 3)
    return told
