"""ElevenLabs' routes for whole texts, and its lists of voices."""

import base64
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from aiohttp import web
from msgspec import UNSET

from cc_tts.api import schemas
from cc_tts.api.calls import fields_of_text
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.auth import current_tenant
from cc_tts.api.http.route import ELEVENLABS, RouteTable
from cc_tts.api.plugs.alignment import AlignedAudio, Aligner
from cc_tts.api.plugs.elevenlabs.shapes import (
    LANGUAGE,
    NO_LIMIT,
    OUTPUT_FORMAT,
    Subscription,
    TextToSpeech,
    User,
    Voice,
    VoicePage,
    in_seconds,
    output_of,
    voices_of,
    words_of,
)
from cc_tts.api.plugs.encoder import MEDIA_TYPES
from cc_tts.api.plugs.response import RESPONSE_ROUTE, SpeechResponse, respond
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import UnknownVoice

OPERATOR: Final = "operator"
"""The user name of a token without a tenant."""
_OPTIONS: Final = RESPONSE_ROUTE | {"query": (OUTPUT_FORMAT, LANGUAGE)}

ROUTES: Final = RouteTable("ElevenLabs", ELEVENLABS)


class _Timed(SpeechResponse):
    """A JSON object, one a line, for each piece of audio with its characters. Times count from the start of all audio."""

    content_type = "application/x-ndjson"

    def pieces(self, chunks: AsyncIterator[SpeechChunk]) -> AsyncIterator[AlignedAudio]:
        return Aligner(self._output.rate_hz).pieces(chunks)

    def part(self, audio: bytes, piece: AlignedAudio | None) -> bytes:
        return msgspec.json.encode(self._timed(audio, piece)) + b"\n" if audio or piece else b""

    def _timed(self, audio: bytes, piece: AlignedAudio | None) -> dict[str, Any]:
        alignment = None
        if piece is not None and piece.characters is not None:
            alignment = in_seconds(piece.characters, offset_ms=piece.begin_ms)
        return {
            "audio_base64": base64.b64encode(audio).decode(),
            "alignment": alignment,
            "normalized_alignment": alignment,
        }


class _TimedAtOnce(_Timed):
    """One JSON object with all the audio."""

    content_type = "application/json"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._audio = bytearray()
        self._alignment: dict[str, list[Any]] = {}

    def part(self, audio: bytes, piece: AlignedAudio | None) -> bytes:
        self._audio += audio
        for name, values in (self._timed(b"", piece)["alignment"] or {}).items():
            self._alignment.setdefault(name, []).extend(values)
        return b""

    def last(self) -> bytes:
        audio = base64.b64encode(self._audio).decode()
        said = {"audio_base64": audio, "alignment": self._alignment, "normalized_alignment": self._alignment}
        return msgspec.json.encode(said)


@ROUTES.add("POST", "/v1/text-to-speech/{voice}", content_types=MEDIA_TYPES, **_OPTIONS)
async def convert_text(request: web.Request, body: TextToSpeech) -> web.StreamResponse:
    """Speech of a text, sent during synthesis."""
    return await _respond(request, body, SpeechResponse)


@ROUTES.add("POST", "/v1/text-to-speech/{voice}/stream", content_types=MEDIA_TYPES, **_OPTIONS)
async def convert_as_stream(request: web.Request, body: TextToSpeech) -> web.StreamResponse:
    """Speech of a text, sent during synthesis, as the path without stream."""
    return await _respond(request, body, SpeechResponse)


@ROUTES.add("POST", "/v1/text-to-speech/{voice}/with-timestamps", content_types=("application/json",), **_OPTIONS)
async def convert_with_timestamps(request: web.Request, body: TextToSpeech) -> web.StreamResponse:
    """Speech of a text with the times of its characters, as one JSON object."""
    return await _respond(request, body, _TimedAtOnce)


@ROUTES.add(
    "POST", "/v1/text-to-speech/{voice}/stream/with-timestamps", content_types=(_Timed.content_type,), **_OPTIONS
)
async def convert_as_stream_with_timestamps(request: web.Request, body: TextToSpeech) -> web.StreamResponse:
    """Speech of a text with the times of its characters, a JSON object a line, sent during synthesis."""
    return await _respond(request, body, _Timed)


@ROUTES.add("GET", "/v2/voices", scope="read", for_tenants=True, ignores_unknown_query=True)
async def list_voices_in_pages(request: web.Request) -> VoicePage:
    """List the voices, all in one page."""
    voices = voices_of(request)
    return VoicePage(voices, total_count=len(voices))


@ROUTES.add(
    "GET", "/v1/voices/{voice}", scope="read", errors=(UnknownVoice,), for_tenants=True, ignores_unknown_query=True
)
async def get_voice(request: web.Request) -> Voice:
    """Show one of the voices."""
    name = request.match_info["voice"]
    found = [each for each in voices_of(request) if each.voice_id == name]
    if not found:
        raise UnknownVoice(f"no voice is called {name[:80]!r}")
    return found[0]


@ROUTES.add("GET", "/v1/user", scope="read", for_tenants=True, ignores_unknown_query=True)
async def get_user(request: web.Request) -> User:
    """Show whose token it is, and how many characters of today are used up."""
    tenants, tenant = request.app[CONTEXT].services.tenants, current_tenant()
    use, limit = tenants.used().get(tenant), tenants.limit(tenant, "characters")
    count = 0 if use is None else use.characters
    return User(tenant or OPERATOR, Subscription(count, NO_LIMIT if limit is None else limit))


async def _respond(request: web.Request, body: TextToSpeech, kind: type[SpeechResponse]) -> web.StreamResponse:
    output = output_of(request)
    style = words_of(request, body.voice_settings, language=body.language_code)
    content = schemas.words(body.text, UNSET, style, text_field="text")
    return await respond(request, content, output, pointers=fields_of_text("/text"), kind=kind)
