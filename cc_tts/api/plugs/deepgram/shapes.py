"""The query parameters and bodies that both of Deepgram's APIs share."""

from typing import Final

import msgspec
from aiohttp import web
from msgspec import UNSET

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.http.route import Query
from cc_tts.api.plugs.encoder import FORMATS, MEDIA_TYPES, Output
from cc_tts.api.plugs.response import RESPONSE_ROUTE, SpeechResponse
from cc_tts.api.plugs.speech_context import ClientSpeed, speech_of
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.errors import FieldError, Unprocessable
from cc_tts.speech.prompt import TextContent

DEFAULT_RATE_HZ: Final = 24_000
"""Deepgram's default rate of ``linear16``."""
RATES_HZ: Final = (8000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
IDLE_TIMEOUT_S: Final = 60.0
"""A text that does not continue ends after this time, since it occupies one of ``http.max_speech_streams`` (unmeasured)."""
ENCODINGS: Final = {
    "linear16": "pcm",
    "mulaw": "ulaw",
    "alaw": "alaw",
    "mp3": "mp3",
    "opus": "opus",
    "flac": "flac",
    "aac": "aac",
}
"""Our formats, by Deepgram's names."""
CONTAINERS: Final = {"linear16": ("none", "wav"), "opus": ("ogg",)}
"""The containers that each of these encodings may have; other encodings have none."""

_MODEL: Final = Query("model", "A voice: an id of GET /v1/voices, or a name of tts.voice_aliases.")
_ENCODING: Final = Query("encoding", "mp3 over HTTP and linear16 over a WebSocket if left out.", tuple(ENCODINGS))
_RATE: Final = Query("sample_rate", f"Hz: {', '.join(map(str, RATES_HZ))}.")
_CONTAINER: Final = Query("container", "wav: a WAV file of linear16; opus is in ogg, others in none.")
_SPEED: Final = Query("speed", f"0.25 to 4; voices speak {MIN_SPEED} to {MAX_SPEED}.")
QUERY: Final = (_MODEL, _ENCODING, _RATE, _CONTAINER, _SPEED)

HTTP_ROUTE: Final = RESPONSE_ROUTE | {
    "query": QUERY,
    "content_types": MEDIA_TYPES,
    "examples": {"text": {"text": "One moment please."}},
}
"""The options of a route for a whole text."""


class DeepgramText(msgspec.Struct, frozen=True):
    """The text to say. Unknown fields have no effect."""

    text: schemas.Text


async def respond(request: web.Request, body: DeepgramText) -> web.StreamResponse:
    output = output_of(request, "mp3")
    content = schemas.words(body.text, UNSET, words_of(request), text_field="text")
    async with speech_of(request, content, rate_hz=output.rate_hz, pointers=fields_of_text("/text")) as speech:
        headers = {"dg-request-id": speech.id, "dg-char-count": str(len(body.text))}
        return await SpeechResponse(request, speech, output, headers).send()


def words_of(request: web.Request) -> TextContent:
    """Return the style of a request's words; raises ``Unprocessable``."""
    value = request.query.get(_SPEED.name)
    try:
        speed = None if value is None else msgspec.convert(value, ClientSpeed, strict=False)
    except msgspec.ValidationError:
        raise Unprocessable("speed is a number from 0.25 to 4") from None
    return TextContent("", request.query.get(_MODEL.name) or None, None, speed)


def output_of(request: web.Request, default: str) -> Output:
    """Return the audio format that a request asks for; raises ``Unprocessable``."""
    encoding, rate = request.query.get(_ENCODING.name, default), request.query.get(_RATE.name, "")
    if encoding not in ENCODINGS:
        detail = f"{encoding[:40]!r} is not one of {', '.join(ENCODINGS)}"
        raise Unprocessable(detail, field_errors=[FieldError("/encoding", detail)])
    containers = CONTAINERS.get(encoding, ("none",))
    container = request.query.get(_CONTAINER.name) or containers[0]
    if container not in containers:
        detail = f"{encoding} in {container[:40]!r} is not here; take {' or '.join(containers)}"
        raise Unprocessable(detail, field_errors=[FieldError("/container", detail)])
    audio_format = FORMATS["wav" if container == "wav" else ENCODINGS[encoding]]
    rates_hz = audio_format.rates_hz or RATES_HZ
    rate_hz = next(iter(audio_format.rates_hz), DEFAULT_RATE_HZ)
    if rate:
        rate_hz = int(rate) if rate.isdecimal() and len(rate) < len("1000000") else 0
    if rate_hz not in rates_hz:
        detail = f"{rate[:40]!r} is not one of {', '.join(map(str, rates_hz))}"
        raise Unprocessable(detail, field_errors=[FieldError("/sample_rate", detail)])
    return Output(audio_format, rate_hz)
