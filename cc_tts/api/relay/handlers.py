"""Handlers that begin and end relays to ConversationRelay applications, and their bodies."""

from operator import attrgetter
from typing import Annotated, ClassVar, Final

from aiohttp import web
from msgspec import Meta

from cc_tts.api import schemas
from cc_tts.api.calls import ON_A_CALL, call_of
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.route import RouteTable
from cc_tts.api.views import View
from cc_tts.config.sections.relay import RelaySettings, relay_url
from cc_tts.config.webhooks import key_of
from cc_tts.errors import (
    CapacityExceeded,
    FieldError,
    LanguageUnsupported,
    RelayActive,
    RelayNotAllowed,
    RelayNotFound,
    UnknownVoice,
    Unprocessable,
)
from cc_tts.speech.prompt import PromptDefaults
from cc_tts.vad.client import SpeechNotHeard

ROUTES: Final = RouteTable("Relays")


class Relay(schemas.Body, RelaySettings, frozen=True, kw_only=True):
    """The application that is to talk with the far side of the call, in the words of TwiML's ConversationRelay."""

    relay_id: schemas.Id | None = None
    client_state: schemas.ClientState | None = None


class RelayBegun(View, frozen=True, kw_only=True):
    """A relay that was asked for. Its events have its id."""

    derived: ClassVar = {"relay_id": attrgetter("id")}
    relay_id: str
    sid: Annotated[str, Meta(description="The `sessionId` of `setup`.")]


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/relay",
    scope="call",
    status=202,
    errors=(
        *ON_A_CALL,
        RelayActive,
        RelayNotAllowed,
        CapacityExceeded,
        UnknownVoice,
        LanguageUnsupported,
        SpeechNotHeard,
    ),
    examples={
        "an application": {"url": "wss://app.example.com/relay", "welcome_greeting": "How can I help you?"},
        "with parameters": {
            "url": "wss://app.example.com/relay",
            "parameters": {"customer": "4711"},
            "interruptible": "dtmf",
            "application_reconnect": True,
            "fallback": "Sorry, this does not work at the moment.",
        },
    },
)
async def start_relay(request: web.Request, body: Relay) -> RelayBegun:
    """Have an application talk with the far side of a call; call.relay_ended is its last event."""
    faults = []
    if relay_url(body.url) is None:
        faults.append(FieldError("/url", "a ws or wss URL without user, password and fragment"))
    if body.secret:
        try:
            key_of(body.secret)
        except ValueError as error:
            faults.append(FieldError("/secret", str(error)))
    for name in ("welcome_greeting", "fallback"):
        schemas.check_text(getattr(body, name), f"/{name}")
    if faults:
        raise Unprocessable.about(*faults)
    context, call = request.app[CONTEXT], call_of(request)
    fields = {
        UnknownVoice: "/voice",
        LanguageUnsupported: "/language",
        SpeechNotHeard: "/interruptible",
        RelayNotAllowed: "/url",
    }
    with bodies.located(fields):
        context.services.source.check_defaults(PromptDefaults(voice=body.voice or None, language=body.language or None))
        return RelayBegun.of(
            context.registry.relays.begin(
                call, body, relay_id=body.relay_id, client_state=body.client_state, is_guarded=True
            )
        )


@ROUTES.add("DELETE", "/v1/calls/{id}/relay", scope="call", errors=(*ON_A_CALL, RelayNotFound))
async def stop_relay(request: web.Request) -> RelayBegun:
    """End the relay of a call; what the application said and was not heard is dropped, and the call stays up."""
    return RelayBegun.of(request.app[CONTEXT].registry.relays.stop(call_of(request)))
