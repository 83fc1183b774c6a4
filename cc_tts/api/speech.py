"""Handlers for speaking on a call: speak, play, stop, pause, resume; utterances and voices.

``speak`` is part of the time to first audio: between the decoded body and ``call.speak()`` only long texts wait, for their
lexicons.
"""

from typing import Final

from aiohttp import web
from msgspec import UNSET

from cc_tts.api import schemas, views
from cc_tts.api.calls import OF_PROMPT, OF_TEXT, ON_A_CALL, call_of, command, fields_of_prompt, match_lexicons
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.auth import current_tenant
from cc_tts.api.http.route import ELEVENLABS, Query, RouteTable
from cc_tts.errors import (
    UrlNotAllowed,
    UtteranceNotFound,
)

_WORDS: Final = Query("words", "true: with the words that were played and when.", ("false", "true"))

ROUTES: Final = RouteTable("Speech")


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/speak",
    scope="call",
    status=201,
    location="/v1/utterances/",
    errors=(*ON_A_CALL, *OF_PROMPT, *OF_TEXT),
    examples={
        "text": {"text": "Your balance is $12.50.", "client_state": "step-3"},
        "ssml": {"ssml": "<speak>Your code is <say-as interpret-as='digits'>4711</say-as>.</speak>", "voice": "en-gb"},
        "goodbye": {"text": "Goodbye.", "queue": "replace", "barge_in": {"dtmf": False}, "then": "hangup"},
    },
)
async def speak_on_call(request: web.Request, body: schemas.Speak) -> views.Accepted:
    """Speak text or SSML; queued behind the current prompt unless queue is replace."""
    prompt = body.prompt()
    with bodies.located(fields_of_prompt(prompt)):
        await match_lexicons(request, prompt)
        return views.Accepted.of(call_of(request).speak(prompt))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/play",
    scope="call",
    status=201,
    location="/v1/utterances/",
    errors=(*ON_A_CALL, *OF_PROMPT, UrlNotAllowed),
    examples={
        "music": {"prompt_id": "hold-music", "loop": True, "volume_db": -6},
        "file": {"url": "https://media.example.com/announcements/closed.mp3"},
        "tone": {"tone": "beep", "duration_ms": 500},
        "cadence": {"tone": "440+480/2000,0/4000", "duration_ms": 12_000},
        "silence": {"silence_ms": 750},
    },
)
async def play_on_call(request: web.Request, body: schemas.Play) -> views.Utterance:
    """Play a staged prompt, an audio file at a URL, a tone or silence."""
    prompt = body.prompt()
    with bodies.located(fields_of_prompt(prompt)):
        return views.Utterance.of(call_of(request).speak(prompt))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/stop",
    scope="call",
    errors=ON_A_CALL,
    examples={"all": {"scope": "all"}},
)
async def stop_prompts(request: web.Request, body: schemas.Stop) -> views.Stopped:
    """Stop the current prompt, or all prompts of the call."""
    return views.Stopped(*await call_of(request).stop(body.scope))


@ROUTES.add("POST", "/v1/calls/{id}/pause", scope="call", errors=ON_A_CALL)
async def pause_prompts(request: web.Request, body: schemas.Command) -> views.Call:
    """Pause the prompts of a call."""
    return command(request, body.client_state, lambda call: call.set_paused(paused=True))


@ROUTES.add("POST", "/v1/calls/{id}/resume", scope="call", errors=ON_A_CALL)
async def resume_prompts(request: web.Request, body: schemas.Command) -> views.Call:
    """Resume the prompts of a call."""
    return command(request, body.client_state, lambda call: call.set_paused(paused=False))


@ROUTES.add(
    "GET",
    "/v1/utterances/{id}",
    scope="read",
    query=(_WORDS,),
    errors=(UtteranceNotFound,),
)
async def get_utterance(request: web.Request) -> views.Utterance:
    """Show one utterance of a call."""
    registry, utterance_id, tenant = request.app[CONTEXT].registry, request.match_info["id"], current_tenant()
    utterance = registry.services.utterances.get(utterance_id)
    if tenant and registry.call(utterance.call_id).tenant != tenant:
        raise UtteranceNotFound.named(utterance_id)
    words = utterance.words if _WORDS.choice(request) == "true" else UNSET
    return views.Utterance.of(utterance, words=words)


@ROUTES.add("GET", "/v1/voices", scope="read", for_tenants=True, ignores_unknown_query=True, mounts=(ELEVENLABS,))
async def list_voices(request: web.Request) -> views.Voices:
    """List the voices of the configured engine."""
    return views.Voices([views.Voice.of(voice) for voice in request.app[CONTEXT].services.source.engine.voices()])
