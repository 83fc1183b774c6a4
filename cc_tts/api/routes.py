"""Every route, once: the router and the OpenAPI document are both made from this table."""

from collections.abc import Sequence
from typing import Final

from cc_tts.api import audio_speech, calls, events, health, schemas, speech, views
from cc_tts.api.http import openapi
from cc_tts.api.http.problems import NotReady, UpgradeRequired
from cc_tts.api.http.route import Query, Route
from cc_tts.calls.call_state import CallState
from cc_tts.calls.events import EVENT_TYPES
from cc_tts.errors import (
    MAX_COMPARED_CHARS,
    CallNotFound,
    CapacityExceeded,
    Draining,
    DuplicateId,
    EngineFailed,
    EngineOverloaded,
    LanguageUnsupported,
    NothingToSay,
    QueueFull,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
    UserAgentUnavailable,
    UtteranceNotFound,
    WrongState,
    nearest,
)
from cc_tts.metrics import CONTENT_TYPE as PROMETHEUS

NOT_IN_THIS_VERSION: Final = (
    "/v1/calls/{id}/transfer",
    "/v1/calls/{id}/gather",
    "/v1/calls/{id}/record",
    "/v1/calls/{id}/recording",
    "/v1/calls/{id}/stream",
    "/v1/prompts",
    "/v1/prompts/{id}",
    "/v1/voices/{id}",
)
"""Reserved paths of version 1 of the API, which get 404."""

_ON_A_CALL: Final = (CallNotFound, WrongState, UserAgentUnavailable)
_TEXT: Final = (TextTooLong, UnknownVoice, LanguageUnsupported, NothingToSay, EngineOverloaded)

ROUTES: Final = (
    # --- calls
    Route(
        method="GET",
        path="/v1/calls",
        handler=calls.list_calls,
        summary="Live calls, and ended calls for calls.ended_retention_s",
        scope="read",
        response=views.Calls,
        query=(
            Query(
                name="state",
                description="Only calls in this state.",
                schema={"type": "string", "enum": [state.value for state in CallState]},
            ),
        ),
    ),
    Route(
        method="POST",
        path="/v1/calls",
        handler=calls.originate,
        summary="Place a call; its progress comes as events",
        scope="call",
        status=201,
        body=schemas.Originate,
        response=views.Call,
        errors=(DuplicateId, UserAgentUnavailable, CapacityExceeded, Draining, *_TEXT),
    ),
    Route(
        method="GET",
        path="/v1/calls/{id}",
        handler=calls.get_call,
        summary="One call",
        scope="read",
        response=views.Call,
        errors=(CallNotFound,),
    ),
    Route(
        method="DELETE",
        path="/v1/calls/{id}",
        handler=calls.hangup,
        summary="End a call; the same as hangup",
        scope="call",
        body=schemas.Hangup,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/answer",
        handler=calls.answer,
        summary="Answer a call of a route with answer = manual",
        scope="call",
        body=schemas.Empty,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/ring",
        handler=calls.ring,
        summary="Send 180, or 183 with early media",
        scope="call",
        body=schemas.Ring,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/hangup",
        handler=calls.hangup,
        summary="End a call: BYE, CANCEL or a refusal",
        scope="call",
        body=schemas.Hangup,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/hold",
        handler=calls.hold,
        summary="Put on hold",
        scope="call",
        body=schemas.Empty,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/unhold",
        handler=calls.unhold,
        summary="Take off hold",
        scope="call",
        body=schemas.Empty,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/dtmf",
        handler=calls.dtmf,
        summary="Send digits (RFC 4733)",
        scope="call",
        body=schemas.Dtmf,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    # --- speaking
    Route(
        method="POST",
        path="/v1/calls/{id}/speak",
        handler=speech.speak,
        summary="Speak text; queued behind the current prompt unless queue is replace",
        scope="call",
        status=201,
        body=schemas.Speak,
        response=views.Utterance,
        errors=(*_ON_A_CALL, DuplicateId, QueueFull, Draining, *_TEXT),
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/play",
        handler=speech.play,
        summary="Play a tone or silence",
        scope="call",
        status=201,
        body=schemas.Play,
        response=views.Utterance,
        errors=(*_ON_A_CALL, DuplicateId, QueueFull, Draining, Unprocessable),
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/stop",
        handler=speech.stop,
        summary="Stop the current prompt, or all prompts of the call",
        scope="call",
        body=schemas.Stop,
        body_is_optional=True,
        response=views.Stopped,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/pause",
        handler=speech.pause,
        summary="Pause playback",
        scope="call",
        body=schemas.Empty,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="POST",
        path="/v1/calls/{id}/resume",
        handler=speech.resume,
        summary="Resume playback",
        scope="call",
        body=schemas.Empty,
        body_is_optional=True,
        response=views.Call,
        errors=_ON_A_CALL,
    ),
    Route(
        method="GET",
        path="/v1/utterances/{id}",
        handler=speech.get_utterance,
        summary="One utterance",
        scope="read",
        response=views.Utterance,
        errors=(UtteranceNotFound,),
    ),
    Route(
        method="GET",
        path="/v1/voices",
        handler=speech.list_voices,
        summary="List the voices of the configured engine",
        scope="read",
        response=views.Voices,
    ),
    Route(
        method="POST",
        path="/v1/audio/speech",
        handler=audio_speech.audio_speech,
        summary="Speech without a call, streamed during synthesis (Idempotency-Key has no effect)",
        scope="call",
        body=schemas.AudioSpeech,
        content_types=("audio/wav", "audio/pcm", "audio/basic"),
        errors=(CapacityExceeded, Draining, EngineFailed, *_TEXT),
        streams=True,
    ),
    # --- events
    Route(
        method="GET",
        path="/v1/events",
        handler=events.events,
        summary="Events, one JSON text frame each, over a WebSocket",
        scope="read",
        status=101,
        content_types=(),
        query=(
            Query(name="call_id", description="Only events of this call.", schema={"type": "string"}),
            Query(
                name="types",
                description=f"Only these types, separated by commas: {', '.join(EVENT_TYPES)}.",
                schema={"type": "string"},
            ),
        ),
        errors=(UpgradeRequired, CapacityExceeded),
        streams=True,
    ),
    # --- operations
    Route(
        method="GET",
        path="/healthz",
        handler=health.healthz,
        summary="The process is alive",
        scope=None,
        response=views.Health,
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=health.readyz,
        summary="A call would be answered and spoken to",
        scope=None,
        response=views.Health,
        errors=(NotReady,),
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=health.prometheus,
        summary="Prometheus series",
        scope="read",
        content_types=(PROMETHEUS,),
    ),
    Route(
        method="POST",
        path="/v1/admin/drain",
        handler=health.drain,
        summary="Take no new calls; the process exits when the last call has ended",
        scope="admin",
        status=202,
        body=schemas.Empty,
        body_is_optional=True,
        response=views.Drain,
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        handler=openapi.openapi_json,
        summary="This document",
        scope=None,
        content_types=("application/json",),
    ),
)


def about_unknown_path(path: str) -> str:
    """The 404 detail for an unknown path: the nearest route, or that the path is not in this version."""
    if any(_filled(known, path) == path for known in NOT_IN_THIS_VERSION):
        return "not in this version"
    known = {_filled(route.path, path): route.path for route in ROUTES}
    near = nearest(path, known)
    return "there is nothing at this path" + (
        f", did you mean {known[near]}?" if near else "; GET /v1/openapi.json lists what there is"
    )


def _filled(template: str, path: str) -> str:
    """``template`` with the segments of ``path`` in place of its names, if both have as many."""
    asked: Sequence[str] = path[:MAX_COMPARED_CHARS].split("/")
    wanted = template.split("/")
    if len(asked) != len(wanted):
        return template
    return "/".join(a if w.startswith("{") else w for a, w in zip(asked, wanted, strict=True))
