"""Deepgram's text to speech, ``/v1/speak``: one text over HTTP, and texts over a WebSocket.

A client knows no ids: ``Flushed`` follows the last byte of what it flushed, and behind ``Cleared`` nothing comes of what was
sent before.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.media.connection import serve
from cc_tts.api.plugs.alignment import AlignedAudio
from cc_tts.api.plugs.connection import MAX_FRAME_IN_BYTES, Messages, Output, SpeechConnection
from cc_tts.api.plugs.encoder import FORMATS
from cc_tts.api.plugs.response import SpeechResponse
from cc_tts.api.plugs.speech_context import ERRORS, speech_of
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import CcTtsError, FieldError, MalformedRequest, Unprocessable
from cc_tts.speech.prompt import TextContent

DEFAULT_RATE_HZ: Final = 24_000
"""Deepgram's default rate of ``linear16``."""
RATES_HZ: Final = (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
IDLE_TIMEOUT_S: Final = 60.0
"""A text that does not go on ends after this: it holds one of http.max_speech_streams (unmeasured)."""
ENCODINGS: Final = {
    "linear16": "pcm",
    "mulaw": "ulaw",
    "alaw": "alaw",
    "mp3": "mp3",
    "opus": "opus",
    "flac": "flac",
    "aac": "aac",
}
"""Our formats by Deepgram's words for them."""

_MODEL: Final = Query("model", "A voice: an id of GET /v1/voices, or a name of tts.voice_aliases.")
_ENCODING: Final = Query("encoding", "mp3 over HTTP and linear16 over a WebSocket if left out.", tuple(ENCODINGS))
_RATE: Final = Query("sample_rate", f"Hz: {', '.join(map(str, RATES_HZ))}.")
_CONTAINER: Final = Query("container", "wav: a WAV file of linear16; else without.")
_SPEED: Final = Query("speed", f"{MIN_SPEED} to {MAX_SPEED}.")
_OPTIONS: Final[dict[str, Any]] = {
    "scope": "call",
    "query": (_MODEL, _ENCODING, _RATE, _CONTAINER, _SPEED),
    "for_tenants": True,
    "ignores_unknown_query": True,
    "streams": True,
}

ROUTES: Final = RouteTable("Deepgram")


class DeepgramText(msgspec.Struct, frozen=True):
    """The text to say. Unknown fields have no effect."""

    text: schemas.Text


class Incoming(msgspec.Struct, frozen=True):
    """A message of a client. Unknown fields have no effect."""

    type: Literal["Speak", "Flush", "Clear", "Close"]
    text: str = ""


_DECODER: Final = msgspec.json.Decoder(Incoming)


@ROUTES.add(
    "POST",
    "/v1/speak",
    content_types=tuple(sorted({each.content_type.partition(";")[0] for each in FORMATS.values()})),
    errors=ERRORS,
    is_synthetic=True,
    examples={"text": {"text": "One moment please."}},
    **_OPTIONS,
)
async def speak_for_deepgram(request: web.Request, body: DeepgramText) -> web.StreamResponse:
    """Speech of a text as Deepgram's clients ask for it."""
    output = _output_of(request, "mp3")
    content = schemas.words(body.text, UNSET, _words_of(request), text_field="text")
    async with speech_of(request, content, rate_hz=output.rate_hz, pointers=fields_of_text("/text")) as speech:
        headers = {"dg-request-id": speech.id, "dg-char-count": str(len(body.text))}
        return await SpeechResponse(request, speech, output.format, output.rate_hz, headers).send()


@ROUTES.add("GET", "/v1/speak", status=101, content_types=(), errors=(UpgradeRequired, *ERRORS), **_OPTIONS)
async def stream_for_deepgram(request: web.Request) -> web.StreamResponse:
    """Texts of a client of Deepgram as they arrive, over a WebSocket."""
    return await serve(request, lambda: DeepgramConnection(request), max_frame_bytes=MAX_FRAME_IN_BYTES)


class DeepgramConnection(SpeechConnection):
    """A client of Deepgram. Each flush ends a text; the next one follows it."""

    takes_turns = True

    def __init__(self, request: web.Request) -> None:
        self._words = _words_of(request)
        self._number = self._sequence_id = 0
        super().__init__(request, self._words, _output_of(request, "linear16"), idle_timeout_s=IDLE_TIMEOUT_S)
        request_id = request.app[CONTEXT].nodes.new_id("req")
        self.tell([_json({"type": "Metadata", "request_id": request_id, "model_name": self._words.voice or ""})])

    def take(self, data: str) -> None:
        incoming = _DECODER.decode(data)
        match incoming.type:
            case "Speak":
                self.say(str(self._number), incoming.text, self._words)
            case "Flush":
                self.say(str(self._number), "", self._words)  # it is answered, too, where nothing was to be spoken
                self.finish(str(self._number))
                self._number += 1
            case "Clear":
                self._clear()
            case "Close":
                self.end_all()

    def audio(self, context_id: str, audio: bytes, piece: AlignedAudio | None) -> Messages:  # noqa: ARG002
        return [audio] if audio else ()

    def final(self, context_id: str) -> Messages:  # noqa: ARG002
        return [self._numbered("Flushed")]

    def failed(self, context_id: str, error: CcTtsError) -> Messages:  # noqa: ARG002
        return [_json({"type": "Error", "err_code": error.code, "err_msg": error.detail or error.title})]

    def dropped(self, context_id: str) -> Messages:
        return self.final(context_id)  # each flush is answered

    def refuse(self, error: CcTtsError) -> None:
        if isinstance(error, MalformedRequest):
            self.tell([_json({"type": "Warning", "warn_code": error.code, "warn_msg": error.detail or error.title})])
        else:
            self.tell(self.failed("", error))

    def _clear(self) -> None:
        self.interrupt_all()
        self._number += 1
        self.tell([self._numbered("Cleared")])

    def _numbered(self, kind: str) -> str:
        number, self._sequence_id = self._sequence_id, self._sequence_id + 1
        return _json({"type": kind, "sequence_id": number})


def _words_of(request: web.Request) -> TextContent:
    """How the words of a request are spoken; raises ``Unprocessable``."""
    value = request.query.get(_SPEED.name)
    try:
        speed = None if value is None else float(value)
    except ValueError:
        speed = math.nan
    if speed is not None and math.isnan(speed):
        raise Unprocessable(f"speed is {MIN_SPEED} to {MAX_SPEED}")
    speed = None if speed is None else min(max(speed, MIN_SPEED), MAX_SPEED)
    return TextContent("", request.query.get(_MODEL.name) or None, None, speed)


def _output_of(request: web.Request, default: str) -> Output:
    """The audio that a request asks for; raises ``Unprocessable``."""
    encoding, rate = request.query.get(_ENCODING.name, default), request.query.get(_RATE.name, "")
    if encoding not in ENCODINGS:
        detail = f"{encoding[:40]!r} is none of {', '.join(ENCODINGS)}"
        raise Unprocessable(detail, field_errors=[FieldError("/encoding", detail)])
    is_wav = encoding == "linear16" and request.query.get(_CONTAINER.name) == "wav"
    audio_format = FORMATS["wav" if is_wav else ENCODINGS[encoding]]
    rates_hz = audio_format.rates_hz or RATES_HZ
    rate_hz = next(iter(audio_format.rates_hz), DEFAULT_RATE_HZ)
    if rate:
        rate_hz = int(rate) if rate.isdecimal() and len(rate) < len("1000000") else 0
    if rate_hz not in rates_hz:
        detail = f"{rate[:40]!r} is none of {', '.join(map(str, rates_hz))}"
        raise Unprocessable(detail, field_errors=[FieldError("/sample_rate", detail)])
    return Output(audio_format, rate_hz)


def _json(told: Mapping[str, Any]) -> str:
    return msgspec.json.encode(told).decode()
