"""Handlers for speaking on a call: speak, play, stop, pause, resume; utterances and voices.

``speak`` is part of the time to first audio: nothing is awaited between the decoded body and ``call.speak()``.
"""

from typing import Final
from urllib.parse import quote

from aiohttp import web

from cc_tts.api import schemas, views
from cc_tts.api.calls import MAX_ID_CHARS, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.errors import (
    ClientError,
    DuplicateId,
    LanguageUnsupported,
    NothingToSay,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
    UtteranceNotFound,
)
from cc_tts.speech.prompt import Prompt, ToneContent

_SPEAK_FIELDS: Final[dict[type[ClientError], str]] = {
    DuplicateId: "/utterance_id",
    UnknownVoice: "/voice",
    LanguageUnsupported: "/language",
    NothingToSay: "/text",
    TextTooLong: "/text",
}
_TONE_FIELDS: Final[dict[type[ClientError], str]] = {DuplicateId: "/utterance_id", Unprocessable: "/tone"}
_SILENCE_FIELDS: Final[dict[type[ClientError], str]] = {DuplicateId: "/utterance_id", Unprocessable: "/silence_ms"}


async def speak(request: web.Request, body: schemas.Speak) -> web.Response:
    """``POST /v1/calls/{id}/speak``."""
    return _accepted(request, body.prompt(), _SPEAK_FIELDS)


async def play(request: web.Request, body: schemas.Play) -> web.Response:
    """``POST /v1/calls/{id}/play``."""
    prompt = body.prompt()
    fields = _TONE_FIELDS if isinstance(prompt.content, ToneContent) else _SILENCE_FIELDS
    return _accepted(request, prompt, fields)


async def stop(request: web.Request, body: schemas.Stop) -> web.Response:
    """``POST /v1/calls/{id}/stop``."""
    return bodies.response(views.Stopped(*await call_of(request).stop(body.scope)))


async def pause(request: web.Request, _body: schemas.Empty) -> web.Response:
    """``POST /v1/calls/{id}/pause``."""
    call = call_of(request)
    call.set_paused(paused=True)
    return bodies.response(views.Call.of(call))


async def resume(request: web.Request, _body: schemas.Empty) -> web.Response:
    """``POST /v1/calls/{id}/resume``."""
    call = call_of(request)
    call.set_paused(paused=False)
    return bodies.response(views.Call.of(call))


async def get_utterance(request: web.Request, _body: None) -> web.Response:
    """``GET /v1/utterances/{id}``."""
    utterance_id = request.match_info["id"]
    if len(utterance_id) > MAX_ID_CHARS:
        raise UtteranceNotFound
    return bodies.response(views.Utterance.of(request.app[CONTEXT].registry.utterance(utterance_id)))


async def list_voices(request: web.Request, _body: None) -> web.Response:
    """``GET /v1/voices``."""
    voices = request.app[CONTEXT].speech_source.engine.voices()
    return bodies.response(views.Voices([views.Voice.of(voice) for voice in voices]))


def _accepted(request: web.Request, prompt: Prompt, fields: dict[type[ClientError], str]) -> web.Response:
    try:
        utterance = call_of(request).speak(prompt)
    except ClientError as error:
        raise bodies.located(error, fields) from None
    location = f"/v1/utterances/{quote(utterance.id, safe='')}"
    return bodies.response(views.Utterance.of(utterance), status=201, headers={"Location": location})
