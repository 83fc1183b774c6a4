"""Handlers for speaking on a call: speak, play, stop, pause, resume; utterances and voices.

``speak`` is part of the time to first audio: nothing is awaited between the decoded body and ``call.speak()``.
"""

from typing import Final

from aiohttp import web

from cc_tts.api import schemas, views
from cc_tts.api.calls import OF_TEXT, ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.route import RouteTable
from cc_tts.errors import (
    Draining,
    DuplicateId,
    LanguageUnsupported,
    NothingToSay,
    QueueFull,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
    UtteranceNotFound,
)
from cc_tts.speech.prompt import ToneContent

_SPEAK_FIELDS: Final = {
    DuplicateId: "/utterance_id",
    UnknownVoice: "/voice",
    LanguageUnsupported: "/language",
    NothingToSay: "/text",
    TextTooLong: "/text",
}

ROUTES: Final = RouteTable()


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/speak",
    scope="call",
    status=201,
    location="/v1/utterances/",
    errors=(*ON_A_CALL, DuplicateId, QueueFull, Draining, *OF_TEXT),
)
async def speak(request: web.Request, body: schemas.Speak) -> views.Utterance:
    """Speak text; queued behind the current prompt unless queue is replace."""
    prompt = body.prompt()
    with bodies.located(_SPEAK_FIELDS):
        return views.Utterance.of(call_of(request).speak(prompt))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/play",
    scope="call",
    status=201,
    location="/v1/utterances/",
    errors=(*ON_A_CALL, DuplicateId, QueueFull, Draining, Unprocessable),
)
async def play(request: web.Request, body: schemas.Play) -> views.Utterance:
    """Play a tone or silence."""
    prompt = body.prompt()
    content = "/tone" if isinstance(prompt.content, ToneContent) else "/silence_ms"
    with bodies.located({DuplicateId: "/utterance_id", Unprocessable: content}):
        return views.Utterance.of(call_of(request).speak(prompt))


@ROUTES.add("POST", "/v1/calls/{id}/stop", scope="call", errors=ON_A_CALL)
async def stop(request: web.Request, body: schemas.Stop) -> views.Stopped:
    """Stop the current prompt, or all prompts of the call."""
    return views.Stopped(*await call_of(request).stop(body.scope))


@ROUTES.add("POST", "/v1/calls/{id}/pause", scope="call", errors=ON_A_CALL)
async def pause(request: web.Request, _body: schemas.Empty) -> views.Call:
    """Pause playback."""
    call = call_of(request)
    call.set_paused(paused=True)
    return views.Call.of(call)


@ROUTES.add("POST", "/v1/calls/{id}/resume", scope="call", errors=ON_A_CALL)
async def resume(request: web.Request, _body: schemas.Empty) -> views.Call:
    """Resume playback."""
    call = call_of(request)
    call.set_paused(paused=False)
    return views.Call.of(call)


@ROUTES.add("GET", "/v1/utterances/{id}", scope="read", errors=(UtteranceNotFound,))
async def get_utterance(request: web.Request) -> views.Utterance:
    """One utterance."""
    return views.Utterance.of(request.app[CONTEXT].registry.utterance(request.match_info["id"]))


@ROUTES.add("GET", "/v1/voices", scope="read")
async def list_voices(request: web.Request) -> views.Voices:
    """List the voices of the configured engine."""
    return views.Voices([views.Voice.of(voice) for voice in request.app[CONTEXT].speech_source.engine.voices()])
