"""Handlers that transfer a call, and their bodies."""

from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta, UnsetType

from cc_tts.api import schemas, sip_fields
from cc_tts.api.calls import OF_PROMPT, OF_TEXT, ON_A_CALL, another_call, call_of, check_prompts
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.route import RouteTable
from cc_tts.api.views import View
from cc_tts.calls.events.types import TransferState
from cc_tts.calls.transfers import transfers, warm
from cc_tts.calls.transfers.transfer import DEFAULT_TIMEOUT_MS, ReferRequest
from cc_tts.calls.transfers.warm import DEFAULT_ACCEPT_MS, WarmRequest
from cc_tts.config.sip_uri import uri_fault
from cc_tts.config.wording import form
from cc_tts.errors import (
    BridgeActive,
    CapacityExceeded,
    DuplicateId,
    FieldError,
    LineUnsupported,
    MalformedRequest,
    TransferActive,
    TransferNotAllowed,
    Unprocessable,
)
from cc_tts.ua.messages import OnHangup

MAX_TIMEOUT_MS: Final = 600_000  # unmeasured
AcceptKey = Annotated[str, Meta(pattern=form(r"^[0-9*#]$(?!\n)", "one of the keys 0-9, * and #"))]
_OF_REFER: Final = ("referred_by", "hold")
_OF_WARM: Final = ("from_", "brief", "accept_key", "accept_timeout_ms", "music", "on_hangup")

ROUTES: Final = RouteTable("Transfers")


class Transfer(schemas.Body, frozen=True, kw_only=True):
    """Who is to talk with the far side of the call. Modes blind and attended: the far side calls them itself; ``hold``:
    the call is held first, its prompts end when the far side accepts. Mode warm: we call an agent, who hears ``brief`` and
    presses ``accept_key``, while the caller hears ``music``; then both are bridged. ``speak`` is said to the caller before.
    The call stays up until the outcome is known.
    """

    to: Annotated[
        schemas.Uri | None,
        Meta(description="A SIP URI that a pattern of transfer.allowed takes; attended: left out, whom was consulted."),
    ] = None
    mode: Literal["blind", "attended", "warm"] = "blind"
    consult_call_id: Annotated[
        schemas.Id | None,
        Meta(description="attended: another established call of ours, whose far side takes this one over."),
    ] = None
    headers: Annotated[
        schemas.Headers, Meta(description="X-* and User-to-User for the new call; many PBXs leave them out.")
    ] = msgspec.field(default_factory=dict)
    referred_by: Annotated[schemas.Uri | None, Meta(description="Left out: our own address of this call.")] = None
    timeout_ms: Annotated[
        int, Meta(ge=1000, le=MAX_TIMEOUT_MS, description="Up to the outcome, once it was asked for.")
    ] = DEFAULT_TIMEOUT_MS
    on_failure: Literal["keep", "hangup"] = "keep"
    hold: bool = True
    from_: Annotated[schemas.Uri | None, Meta(description="warm: as for POST /v1/calls.")] = msgspec.field(
        default=None, name="from"
    )
    brief: Annotated[
        schemas.Speak | None, Meta(description="warm: said to the agent, who does not hear the caller yet.")
    ] = None
    accept_key: Annotated[
        AcceptKey | None,
        Meta(description="warm: the agent presses it to take the call; left out: who answers takes it."),
    ] = None
    accept_timeout_ms: Annotated[
        int, Meta(ge=1000, le=MAX_TIMEOUT_MS, description="warm: for the key, once the brief is said.")
    ] = DEFAULT_ACCEPT_MS
    music: Annotated[
        schemas.Play | None,
        Meta(
            description="warm: what the caller hears meanwhile, again and again; left out: transfer.music of the config."
        ),
    ] = None
    on_hangup: Annotated[
        OnHangup, Meta(description="warm: what becomes of one of the two when the other one hangs up later.")
    ] = "end"
    speak: schemas.Speak | None = None
    transfer_id: schemas.Id | None = None
    client_state: schemas.ClientState | None = None

    def request(self) -> ReferRequest:
        """Return the request for the calls layer; raises as :meth:`_common`."""
        return ReferRequest(**self._common(), referred_by=self.referred_by or "", hold=self.hold)

    def warm_request(self) -> WarmRequest:
        """Return the request of a warm transfer for the calls layer; raises as :meth:`_common`."""
        common = self._common()
        for name in _OF_REFER:
            schemas.refuse(f"/{name}", "goes with modes blind and attended", when=self._differs(name))
        brief = self.brief
        if self.from_ is not None and (fault := uri_fault(self.from_)):
            raise Unprocessable.about(FieldError("/from", fault))
        is_ended = brief is not None and brief.then != "stay"
        schemas.refuse("/brief/then", "the agent's call goes on", when=is_ended)
        schemas.refuse(
            "/accept_key",
            "the agent hears of it in brief, which is missing",
            when=bool(self.accept_key) and brief is None,
        )
        return WarmRequest(
            **common,
            from_=self.from_,
            accept_key=self.accept_key or "",
            accept_timeout_ms=self.accept_timeout_ms,
            brief=None if brief is None else brief.prompt(pointer="/brief"),
            music=None if self.music is None else self.music.prompt(pointer="/music"),
            on_hangup=self.on_hangup,
        )

    def _common(self) -> dict[str, Any]:
        """Return the fields of every kind of transfer.

        Raises:
            Unprocessable: a URI, a header or the prompt cannot be used.
        """
        self._check_mode()
        uris = (("/to", self.to), ("/referred_by", self.referred_by))
        faults = [FieldError(at, fault) for at, uri in uris if uri is not None and (fault := uri_fault(uri))]
        if faults := faults + sip_fields.header_faults(self.headers):
            raise Unprocessable.about(*faults)
        schemas.refuse(
            "/speak/then", "the transfer ends the call", when=self.speak is not None and self.speak.then != "stay"
        )
        return {
            "to": self.to or "",
            "headers": self.headers,
            "timeout_ms": self.timeout_ms,
            "on_failure": self.on_failure,
            "prompt": None if self.speak is None else self.speak.prompt(pointer="/speak"),
            "transfer_id": self.transfer_id or "",
            "client_state": self.client_state,
        }

    def _check_mode(self) -> None:
        is_attended = self.mode == "attended"
        if self.to is None and not is_attended:
            raise MalformedRequest.about(FieldError("/to", "is needed"))
        schemas.refuse(
            "/consult_call_id",
            "goes with mode attended, which needs it",
            when=is_attended != bool(self.consult_call_id),
        )
        for name in () if self.mode == "warm" else _OF_WARM:
            schemas.refuse(f"/{name.rstrip('_')}", "goes with mode warm", when=self._differs(name))

    def _differs(self, name: str) -> bool:
        """Whether a field differs from its default."""
        return bool(getattr(self, name) != getattr(Transfer(), name))


class TransferBegun(View, frozen=True, kw_only=True):
    """A transfer that has begun. Its events have its id."""

    derived: ClassVar = {
        "transfer_id": attrgetter("id"),
        "agent_call_id": lambda transfer: getattr(transfer, "agent_call_id", UNSET),
    }
    transfer_id: str
    state: TransferState
    agent_call_id: Annotated[str | UnsetType, Meta(description="Mode warm: the call to the agent.")] = UNSET


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/transfer",
    scope="call",
    status=202,
    errors=(
        *ON_A_CALL,
        TransferNotAllowed,
        TransferActive,
        BridgeActive,
        LineUnsupported,
        CapacityExceeded,
        *OF_PROMPT,
        *OF_TEXT,
    ),
    examples={
        "to a person": {"to": "sip:1001@pbx.example.com", "speak": {"text": "One moment, please."}},
        "with headers": {
            "to": "sip:1001@pbx.example.com",
            "headers": {"X-Ticket": "17"},
            "timeout_ms": 20_000,
            "on_failure": "hangup",
            "transfer_id": "t17",
        },
        "warm": {
            "to": "sip:1001@pbx.example.com",
            "mode": "warm",
            "speak": {"text": "One moment, please."},
            "brief": {"text": "A caller about order seventeen. Press one to take the call."},
            "accept_key": "1",
        },
    },
)
async def transfer_call(request: web.Request, body: Transfer) -> TransferBegun:
    """Transfer the far side of a call, by REFER or by a bridge; call.transfer reports the progress."""
    if body.mode == "warm":
        return await _warm_transfer(request, body)
    wanted = body.request()
    if body.consult_call_id is not None:
        wanted = replace(wanted, consult=another_call(request, body.consult_call_id, "/consult_call_id"))
    call, context = call_of(request), request.app[CONTEXT]
    await check_prompts(call, context, {"/speak": wanted.prompt})
    with bodies.located({TransferNotAllowed: "/to", DuplicateId: "/speak/utterance_id"}):
        return TransferBegun.of(transfers.begin(call, wanted))


async def _warm_transfer(request: web.Request, body: Transfer) -> TransferBegun:
    wanted = body.warm_request()
    call, context = call_of(request), request.app[CONTEXT]
    await check_prompts(call, context, {"/speak": wanted.prompt, "/brief": wanted.brief})
    with bodies.located({TransferNotAllowed: "/to", DuplicateId: "/speak/utterance_id"}):
        return TransferBegun.of(warm.begin(call, wanted, context.registry.outgoing))
