"""Handlers of ``/v1/calls``: list, place, answer, hold and end calls."""

from typing import Final
from urllib.parse import quote

from aiohttp import web

from cc_tts.api import schemas, views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.calls.call import Call
from cc_tts.calls.call_state import CallState
from cc_tts.errors import (
    CallNotFound,
    ClientError,
    DuplicateId,
    LanguageUnsupported,
    MalformedRequest,
    NothingToSay,
    TextTooLong,
    UnknownVoice,
    did_you_mean,
)

MAX_ID_CHARS: Final = 200
"""An id in a path that is longer names no call or utterance."""


def call_of(request: web.Request) -> Call:
    """The call that the path names.

    Raises:
        CallNotFound: there is none.
    """
    call_id = request.match_info["id"]
    if len(call_id) > MAX_ID_CHARS:
        raise CallNotFound
    return request.app[CONTEXT].registry.call(call_id)


async def list_calls(request: web.Request, _body: None) -> web.Response:
    """``GET /v1/calls?state=``."""
    state = _state(request)
    calls = request.app[CONTEXT].registry.calls(state)
    return bodies.response(views.Calls([views.Call.of(call) for call in calls]))


async def originate(request: web.Request, body: schemas.Originate) -> web.Response:
    """``POST /v1/calls``."""
    wanted = body.request()
    text = "/speak" if isinstance(body.speak, str) else "/speak/text"
    own_voice = isinstance(body.speak, schemas.Speak) and body.speak.voice is not None
    try:
        call = await request.app[CONTEXT].registry.originate(wanted)
    except ClientError as error:
        raise bodies.located(
            error,
            {
                DuplicateId: "/call_id",
                UnknownVoice: "/speak/voice" if own_voice else "/voice",
                LanguageUnsupported: "/speak/language" if isinstance(body.speak, schemas.Speak) else text,
                NothingToSay: text,
                TextTooLong: text,
            },
        ) from None
    location = f"/v1/calls/{quote(call.id, safe='')}"
    return bodies.response(views.Call.of(call), status=201, headers={"Location": location})


async def get_call(request: web.Request, _body: None) -> web.Response:
    """``GET /v1/calls/{id}``."""
    return _response(call_of(request))


async def answer(request: web.Request, _body: schemas.Empty) -> web.Response:
    """``POST /v1/calls/{id}/answer``."""
    call = call_of(request)
    call.answer()
    return _response(call)


async def ring(request: web.Request, body: schemas.Ring) -> web.Response:
    """``POST /v1/calls/{id}/ring``."""
    call = call_of(request)
    call.ring(early_media=body.early_media)
    return _response(call)


async def hangup(request: web.Request, body: schemas.Hangup) -> web.Response:
    """``POST /v1/calls/{id}/hangup`` and ``DELETE /v1/calls/{id}``."""
    call = call_of(request)
    call.hangup(sip_code=body.sip_code, reason=body.reason)
    return _response(call)


async def hold(request: web.Request, _body: schemas.Empty) -> web.Response:
    """``POST /v1/calls/{id}/hold``."""
    call = call_of(request)
    call.set_hold(hold=True)
    return _response(call)


async def unhold(request: web.Request, _body: schemas.Empty) -> web.Response:
    """``POST /v1/calls/{id}/unhold``."""
    call = call_of(request)
    call.set_hold(hold=False)
    return _response(call)


async def dtmf(request: web.Request, body: schemas.Dtmf) -> web.Response:
    """``POST /v1/calls/{id}/dtmf``."""
    call = call_of(request)
    call.send_dtmf(body.digits, duration_ms=body.duration_ms)
    return _response(call)


def check_query(request: web.Request, *known: str) -> None:
    """Refuse unknown and repeated query parameters.

    Raises:
        MalformedRequest: there is one.
    """
    for name in request.query:
        if name not in known:
            hint = did_you_mean(name, known)
            raise MalformedRequest(f"no query parameter {name[:40]!r}; known here: {', '.join(known)}{hint}")
        if len(request.query.getall(name)) > 1:
            raise MalformedRequest(f"the query parameter {name} comes twice")


def _state(request: web.Request) -> CallState | None:
    check_query(request, "state")
    text = request.query.get("state")
    if not text:
        return None
    try:
        return CallState(text)
    except ValueError:
        raise MalformedRequest(f"state is one of {', '.join(CallState)}") from None


def _response(call: Call) -> web.Response:
    return bodies.response(views.Call.of(call))
