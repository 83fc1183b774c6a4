"""Handlers by which a call is handed over, and their bodies."""

from dataclasses import replace
from operator import attrgetter
from typing import Annotated, ClassVar, Final, Literal

import msgspec
from aiohttp import web
from msgspec import UNSET, Meta

from cc_tts.api import schemas, sip_fields
from cc_tts.api.calls import OF_TEXT, ON_A_CALL, another_call, call_of, fields_of_text, match_lexicons
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.route import RouteTable
from cc_tts.api.views import View
from cc_tts.calls.events.types import TransferState
from cc_tts.calls.transfers.transfer import DEFAULT_TIMEOUT_MS, TransferRequest
from cc_tts.config.sip_uri import uri_fault
from cc_tts.errors import (
    DisclosureFailed,
    DuplicateId,
    FieldError,
    MalformedRequest,
    QueueFull,
    TransferActive,
    TransferNotAllowed,
    Unprocessable,
)

MAX_TIMEOUT_MS: Final = 600_000  # unmeasured

ROUTES: Final = RouteTable("Transfers")


class Transfer(schemas.Body, frozen=True, kw_only=True):
    """Whom the far side of the call is to call instead. ``hold``: the call is held first, its prompts end when the far side
    accepts. ``speak`` is said before that. The call stays up until the outcome is known.
    """

    to: Annotated[
        schemas.Uri | None,
        Meta(description="A SIP URI that a pattern of transfer.allowed takes; attended: left out, whom was consulted."),
    ] = None
    mode: Literal["blind", "attended"] = "blind"
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
    speak: schemas.Speak | None = None
    transfer_id: schemas.Id | None = None
    client_state: schemas.ClientState | None = None

    def request(self) -> TransferRequest:
        """The request to the layer below.

        Raises:
            Unprocessable: a URI, a header or the prompt cannot be used.
        """
        self._check_mode()
        uris = (("/to", self.to), ("/referred_by", self.referred_by))
        faults = [FieldError(at, fault) for at, uri in uris if uri is not None and (fault := uri_fault(uri))]
        if faults := faults + sip_fields.header_faults(self.headers, "/headers"):
            raise Unprocessable.about(*faults)
        schemas.refuse(
            "/speak/then", "the transfer ends the call", when=self.speak is not None and self.speak.then != "stay"
        )
        return TransferRequest(
            to=self.to or "",
            headers=self.headers,
            referred_by=self.referred_by or "",
            timeout_ms=self.timeout_ms,
            on_failure=self.on_failure,
            hold=self.hold,
            prompt=None if self.speak is None else self.speak.prompt(pointer="/speak"),
            transfer_id=self.transfer_id or "",
            client_state=self.client_state,
        )

    def _check_mode(self) -> None:
        is_attended = self.mode == "attended"
        if self.to is None and not is_attended:
            raise MalformedRequest.about(FieldError("/to", "is needed"))
        schemas.refuse(
            "/consult_call_id",
            "goes with mode attended, which needs it",
            when=is_attended != bool(self.consult_call_id),
        )


class TransferBegun(View, frozen=True, kw_only=True):
    """A transfer that has begun. Its events have its id."""

    derived: ClassVar = {"transfer_id": attrgetter("id")}
    transfer_id: str
    state: TransferState


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/transfer",
    scope="call",
    status=202,
    errors=(*ON_A_CALL, TransferNotAllowed, TransferActive, DuplicateId, QueueFull, DisclosureFailed, *OF_TEXT),
    examples={
        "to a person": {"to": "sip:1001@pbx.example.com", "speak": {"text": "One moment, please."}},
        "with headers": {
            "to": "sip:1001@pbx.example.com",
            "headers": {"X-Ticket": "17"},
            "timeout_ms": 20_000,
            "on_failure": "hangup",
            "transfer_id": "t17",
        },
    },
)
async def transfer_call(request: web.Request, body: Transfer) -> TransferBegun:
    """Have the far side of a call go on to somebody else, by REFER; call.transfer tells how that goes."""
    wanted = body.request()
    if body.consult_call_id is not None:
        wanted = replace(wanted, consult=another_call(request, body.consult_call_id, "/consult_call_id"))
    is_ssml = body.speak is not None and body.speak.ssml is not UNSET
    fields = fields_of_text("/speak/ssml" if is_ssml else "/speak/text", "/speak")
    with bodies.located(fields | {TransferNotAllowed: "/to"}):
        await match_lexicons(request, wanted.prompt)
        return TransferBegun.of(request.app[CONTEXT].registry.transfers.begin(call_of(request), wanted))
