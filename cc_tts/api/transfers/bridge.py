"""Handlers that bridge two calls, and their bodies."""

from typing import Annotated, Final

from aiohttp import web
from msgspec import Meta

from cc_tts.api import schemas
from cc_tts.api.calls import ON_A_CALL, WantedBridge, another_call, call_of
from cc_tts.api.http.route import RouteTable
from cc_tts.api.views import View
from cc_tts.calls.adoption.record import KeptBridge
from cc_tts.errors import BridgeActive, BridgeImpossible, LineUnsupported
from cc_tts.ua.messages import OnHangup

ROUTES: Final = RouteTable("Bridges")


class Bridge(WantedBridge, frozen=True, kw_only=True):
    """The call whose far side is to talk with that of the call in the path. Both are established."""

    client_state: schemas.ClientState | None = None


class Bridged(View, frozen=True, kw_only=True):
    """A bridge that was asked for. Its events have its id."""

    bridge_id: str
    call_id: str
    other_call_id: str
    on_hangup: Annotated[OnHangup, Meta(description="What becomes of one call when the other one ends.")]


def _shown(call_id: str, kept: KeptBridge) -> Bridged:
    return Bridged(bridge_id=kept.id, call_id=call_id, other_call_id=kept.other_call_id, on_hangup=kept.on_hangup)


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/bridge",
    scope="call",
    status=202,
    errors=(*ON_A_CALL, BridgeActive, BridgeImpossible, LineUnsupported),
    examples={
        "two callers": {"call_id": "call_5d41402abc4b2a76"},
        "the caller stays": {"call_id": "call_5d41402abc4b2a76", "on_hangup": "keep", "bridge_id": "b17"},
    },
)
async def bridge_calls(request: web.Request, body: Bridge) -> Bridged:
    """Have two calls hear each other and get each other's keys; call.bridged follows."""
    call = call_of(request)
    other = another_call(request, body.call_id, "/call_id")
    wanted = body.kept(body.client_state)
    call.bridge.begin(other.bridge, wanted)
    return _shown(call.id, wanted)


@ROUTES.add("POST", "/v1/calls/{id}/unbridge", scope="call", status=202, errors=ON_A_CALL)
async def unbridge_calls(request: web.Request) -> Bridged:
    """End the bridge of a call; both calls stay up. call.unbridged follows."""
    call = call_of(request)
    return _shown(call.id, call.bridge.ask_end())
