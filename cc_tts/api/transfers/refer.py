"""Handlers with which an application decides about a REFER of the far side, and their bodies."""

from typing import Annotated, Final

import msgspec
from aiohttp import web
from msgspec import Meta

from cc_tts.api import schemas, views
from cc_tts.api.calls import OF_PLACING, ON_A_CALL, call_of, fields_of_prompt, match_lexicons
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies
from cc_tts.api.http.route import RouteTable
from cc_tts.calls.originate import OriginateRequest
from cc_tts.errors import DuplicateId, ReferNotFound, TransferNotAllowed

DECLINE: Final = 603

ROUTES: Final = RouteTable("Transfers")


class AcceptRefer(schemas.Body, frozen=True, kw_only=True):
    """The REFER that is accepted, and what becomes of the call that it asks for. ``metadata`` and ``client_state`` are those
    of the old call where they are left out; ``speak`` is said when somebody answers.
    """

    refer_id: Annotated[schemas.Id, Meta(description="Of call.refer_requested.")]
    call_id: schemas.Id | None = None
    timeout_s: schemas.RingTimeout | None = None
    speak: schemas.Speak | None = None
    metadata: schemas.Metadata = msgspec.field(default_factory=dict)
    client_state: schemas.ClientState | None = None

    def request(self) -> OriginateRequest:
        """Return the request for the calls layer, without the target."""
        return OriginateRequest(
            to="",
            call_id=self.call_id,
            timeout_s=self.timeout_s,
            prompt=None if self.speak is None else self.speak.prompt(pointer="/speak"),
            metadata=self.metadata,
            client_state=self.client_state,
        )


class RefuseRefer(schemas.Body, frozen=True, kw_only=True):
    """The REFER that is refused, and the status that the far side is told."""

    refer_id: Annotated[schemas.Id, Meta(description="Of call.refer_requested.")]
    sip_code: Annotated[int, Meta(ge=400, le=699)] = DECLINE


class ReferRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The REFER that was refused."""

    refer_id: str
    sip_code: int


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/refer/accept",
    scope="call",
    status=201,
    location="/v1/calls/",
    errors=(*ON_A_CALL, ReferNotFound, TransferNotAllowed, *OF_PLACING),
    examples={"with a greeting": {"refer_id": "refer_5a7e8a3f1c2b9d40", "speak": {"text": "Hello, how can I help?"}}},
)
async def accept_refer(request: web.Request, body: AcceptRefer) -> views.Call:
    """Place the call that a REFER of the far side asks for; call.refer_complete tells how that went."""
    wanted = body.request()
    fields = {} if wanted.prompt is None else fields_of_prompt(wanted.prompt, "/speak")
    with bodies.located(fields | {ReferNotFound: "/refer_id", DuplicateId: "/call_id"}):
        await match_lexicons(request, wanted.prompt)
        return views.Call.of(request.app[CONTEXT].registry.referrals.accept(call_of(request), body.refer_id, wanted))


@ROUTES.add(
    "POST",
    "/v1/calls/{id}/refer/refuse",
    scope="call",
    errors=(*ON_A_CALL, ReferNotFound),
    examples={"declined": {"refer_id": "refer_5a7e8a3f1c2b9d40"}},
)
async def refuse_refer(request: web.Request, body: RefuseRefer) -> ReferRefused:
    """Refuse a REFER of the far side; the call stays up."""
    with bodies.located({ReferNotFound: "/refer_id"}):
        request.app[CONTEXT].registry.referrals.refuse(call_of(request), body.refer_id, body.sip_code)
    return ReferRefused(refer_id=body.refer_id, sip_code=body.sip_code)
