"""jambonz' custom speech vendor: one text over HTTP, and the texts of a call over a WebSocket.

FreeSWITCH's module of jambonz asks for MP3 by ``Accept`` and by nothing else, and decodes nothing else; the feature server
takes linear PCM, too.
"""

from typing import Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.api.plugs.connection import SOCKET_ROUTE, Messages, TextsInTurn, serve
from cc_tts.api.plugs.encoder import FORMATS, AudioFileFormat, Output
from cc_tts.api.plugs.response import RESPONSE_ROUTE, respond
from cc_tts.api.plugs.speech_context import SpeechContext
from cc_tts.errors import CcTtsError
from cc_tts.speech.prompt import TextContent

LINE_RATE_HZ: Final = 8000
RATES_HZ: Final = (8000, 16_000, 24_000, 32_000, 48_000)
"""The rates of ``audio/l16`` that jambonz accepts."""
IDLE_TIMEOUT_S: Final = 60.0  # unmeasured
ABSENT: Final = frozenset(("", "undefined", "null"))
"""The words that JavaScript's templates insert for a missing value."""
MP3: Final = "audio/mpeg"
LINEAR: Final = AudioFileFormat("audio/l16;rate={rate_hz}")
"""Linear PCM with the media type spelled as jambonz compares it."""

_VOICE: Final = Query("voice", "An id of GET /v1/voices.")
_LANGUAGE: Final = Query("language", "A BCP 47 tag; found from the text if left out.")
_RATE: Final = Query("sampleRate", f"{', '.join(map(str, RATES_HZ))}; {LINE_RATE_HZ} if left out.")

ROUTES: Final = RouteTable("jambonz")


class JambonzText(msgspec.Struct, frozen=True):
    """The text to say. Unknown fields have no effect."""

    text: schemas.Text
    type: Literal["text", "ssml"] = "text"
    voice: str | None = None
    language: str | None = None


class JambonzMessage(msgspec.Struct, frozen=True):
    """A message of jambonz. Unknown fields have no effect."""

    type: Literal["stream", "flush", "clear", "stop"]
    text: str = ""


@ROUTES.add(
    "POST",
    "/v1/jambonz/speech",
    content_types=(MP3, "audio/l16"),
    examples={"text": {"language": "en-US", "voice": "en-us", "type": "text", "text": "One moment please."}},
    **RESPONSE_ROUTE,
)
async def speak_for_jambonz(request: web.Request, body: JambonzText) -> web.StreamResponse:
    """Speech of a text as jambonz' custom vendor asks for it: MP3 if Accept names only that, else audio/l16 at 8 kHz."""
    style = TextContent("", _present(body.voice), _present(body.language))
    is_ssml = body.type == "ssml"
    text, ssml = (UNSET, body.text) if is_ssml else (body.text, UNSET)
    content = schemas.words(text, ssml, style, text_field="text", ssml_field="text")
    is_mp3 = request.headers.get("Accept", "").strip() == MP3
    output = Output(FORMATS["mp3"] if is_mp3 else LINEAR, LINE_RATE_HZ)
    return await respond(request, content, output, pointers=fields_of_text("/text"))


@ROUTES.add("GET", "/v1/jambonz/stream", query=(_VOICE, _LANGUAGE, _RATE), **SOCKET_ROUTE)
async def stream_for_jambonz(request: web.Request) -> web.StreamResponse:
    """The texts of a call of jambonz as they arrive, over a WebSocket."""
    return await serve(request, JambonzConnection)


class JambonzConnection(TextsInTurn):
    frames = JambonzMessage

    def __init__(self, request: web.Request) -> None:
        rates_hz = {str(each): each for each in RATES_HZ}
        rate_hz = rates_hz.get(request.query.get(_RATE.name, ""), LINE_RATE_HZ)
        words = TextContent("", _present(request.query.get(_VOICE.name)), _present(request.query.get(_LANGUAGE.name)))
        super().__init__(request, words, Output(FORMATS["pcm"], rate_hz), idle_timeout_s=IDLE_TIMEOUT_S)
        self.tell([{"type": "connect", "data": {"sample_rate": rate_hz, "base64_encoding": False}}])

    def handle(self, incoming: JambonzMessage) -> None:
        match incoming.type:
            case "stream":
                self.add(incoming.text)
            case "flush":
                self.end_text()
            case "clear":
                self.interrupt_all()
            case "stop":
                self.interrupt_all()
                self.end_all()

    def final(self, context: SpeechContext) -> Messages:  # noqa: ARG002
        return ()

    def failed(self, context_id: str, error: CcTtsError) -> Messages:
        if context_id == self.text_id:
            self.begin_text()  # the next text is a new sentence
        return [{"error": f"{error.code}: {error.detail or error.title}"}]


def _present(value: str | None) -> str | None:
    return None if value is None or value in ABSENT else value
