"""REFERs (RFC 3515) from the far side of a call: the decision about each, the call that it asks for, and its outcome.

Runs on: the event loop.

The call that is asked for is one of ours beside the old one. When it is answered the referrer is told, and hangs up the old
one; if it does not, we do. When it is not answered the old one stays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.call import Call
from cc_tts.calls.call_info import CallTimer
from cc_tts.calls.call_state import CallState
from cc_tts.calls.call_table import CallTable
from cc_tts.calls.dialplan import routing
from cc_tts.calls.events import types
from cc_tts.calls.originate import OriginateRequest, OutgoingCalls
from cc_tts.calls.services import CallServices
from cc_tts.calls.transfers.transfers import Transfers
from cc_tts.errors import CcTtsError, ReferNotFound
from cc_tts.ua import messages

BYE_AFTER_S: Final = 2.0
"""A referrer that was told of the success hangs up within this time, or we do (RFC 5589 §6.1: it should; unmeasured)."""
_TRYING: Final = 100
_OK: Final = 200
_REFUSED: Final = 300
_DECLINED: Final = 603
_TERMINATED: Final = 487

log = logs.get(__name__)


@dataclass(eq=False, slots=True)
class Referral:
    """A REFER without an outcome. ``call_id`` is the call on which it arrived, ``new_call_id`` the call that
    it asked for.
    """

    id: str
    call_id: str
    timer: CallTimer
    asked: messages.ReferRequested | None = None
    new_call_id: str = ""


class Referrals:
    """All REFERs that wait for a decision or an outcome."""

    def __init__(self, services: CallServices, table: CallTable, transfers: Transfers, outgoing: OutgoingCalls) -> None:
        self._services = services
        self._table = table
        self._transfers = transfers
        self._outgoing = outgoing
        self._waiting: dict[str, Referral] = {}
        self._placed: dict[str, Referral] = {}
        """Referrals by the call that each asked for, until that call is answered or over."""
        self._untold: dict[str, Callable[[], None]] = {}
        """Outcomes that could not be reported yet, by the call on which the REFER arrived. That call may
        still be adopted.
        """

    def take(self, call: Call, asked: messages.ReferRequested) -> None:
        """Handle a REFER that the user agent has accepted; the far side waits for its outcome."""
        referral = Referral(asked.refer_id, call.id, CallTimer(call.id), asked)
        self._waiting[referral.id] = referral
        config = self._services.config
        route = config.routes.get(call.route)
        policy = "refuse" if route is None else route.refer
        timeout_s = config.transfer.refer_timeout_s
        call.publish(
            types.CallReferRequested(
                refer_id=referral.id,
                to=asked.to,
                headers=asked.headers,
                referred_by=asked.referred_by or None,
                replaces="Replaces" in asked.headers,
                answer_within_ms=round(timeout_s * 1000) if policy == "ask" else None,
            )
        )
        if policy == "ask":
            referral.timer.set(timeout_s, partial(self._finish, referral, "timeout", _DECLINED))
        elif policy == "allow":
            self._allow(call, referral)
        else:
            self._finish(referral, "refused", _DECLINED)

    def _allow(self, call: Call, referral: Referral) -> None:
        """Place the call, since the route allows it. The called party hears the route's greeting."""
        try:
            greeting = routing.greeting_of(self._services.config.routes[call.route])
            self._place(call, referral, OriginateRequest(to="", prompt=greeting))
        except CcTtsError as error:
            self._refuse_for(referral, error)

    def accept(self, call: Call, refer_id: str, request: OriginateRequest) -> Call:
        """Place the call that a REFER asks for. ``request`` has everything except the target.

        Raises:
            ReferNotFound: no REFER of this id waits for an answer on this call.
            CcTtsError: as :meth:`.OutgoingCalls.place`; the REFER still waits.
        """
        return self._place(call, self._waits(call, refer_id), request)

    def refuse(self, call: Call, refer_id: str, sip_code: int) -> None:
        """End a REFER with this status; raises as :meth:`accept`."""
        self._finish(self._waits(call, refer_id), "refused", sip_code)

    def _waits(self, call: Call, refer_id: str) -> Referral:
        referral = self._waiting.get(refer_id)
        if referral is None or referral.call_id != call.id:
            raise ReferNotFound(f"no REFER {refer_id[:80]!r} waits for an answer on call {call.id}")
        return referral

    def _place(self, call: Call, referral: Referral, request: OriginateRequest) -> Call:
        asked = referral.asked
        assert asked is not None
        self._transfers.check_target(asked.to)  # the patterns may have changed since the call came in
        # RFC 3892 §2.2: the new call names whoever asked for it
        referred_by = {"Referred-By": f"<{asked.referred_by}>"} if asked.referred_by else {}
        placed = self._outgoing.place(
            replace(
                request,
                to=asked.to,
                headers={**asked.headers, **referred_by},
                voice=request.voice or call.defaults.voice,
                metadata=request.metadata or dict(call.metadata),
                client_state=request.client_state or call.client_state,
                webhook=call.webhook,
                tenant=call.tenant,
                referral=(call.id, referral.id),
            )
        )
        referral.timer.cancel()
        del self._waiting[referral.id]
        referral.new_call_id = placed.id
        self._placed[placed.id] = referral
        self._tell(referral, _TRYING)
        return placed

    def adopt(self, call: Call | None) -> None:
        """Continue with a call that an earlier server placed for a REFER, or report the outcome of a REFER on this call."""
        if call is None:
            return
        if (tell := self._untold.pop(call.id, None)) is not None:
            tell()
        if call.referral is None:
            return
        old_call_id, refer_id = call.referral
        referral = Referral(refer_id, old_call_id, CallTimer(old_call_id), new_call_id=call.id)
        if call.state is CallState.ESTABLISHED:
            self._finish(referral, "succeeded", _OK)
        else:
            self._placed[call.id] = referral

    # --- what becomes of the call that was placed ------------------------------------------------------------------------

    def on_report(self, call: Call, report: messages.CallReport) -> None:
        """Report the progress of a call to the referrer, if a REFER asked for the call."""
        referral = self._placed.get(call.id)
        if referral is None:
            return
        if isinstance(report, messages.CallRinging):
            self._tell(referral, report.sip_code)
        elif isinstance(report, messages.CallEstablished):
            self._finish(referral, "succeeded", _OK)
        elif call.ending is not None:
            self.call_over(call)

    def call_over(self, call: Call) -> None:
        """A call was not answered, or its user agent has ended."""
        referral = self._placed.get(call.id)
        if referral is not None:
            sip_code = call.ending.sip_code if call.ending is not None and call.ending.sip_code else 0
            self._finish(referral, "failed", sip_code if sip_code >= _REFUSED else _TERMINATED)

    def _refuse_for(self, referral: Referral, error: CcTtsError) -> None:
        log.warning("refer_failed", call_id=referral.call_id, refer_id=referral.id, code=error.code)
        self._finish(referral, "failed", error.sip_status)

    def _finish(self, referral: Referral, result: types.ReferResult, sip_code: int) -> None:
        """Report the outcome to the referrer and the application, once."""
        referral.timer.cancel()
        self._waiting.pop(referral.id, None)
        self._placed.pop(referral.new_call_id, None)
        everyone: Mapping[str, Call] = self._table.live if referral.call_id in self._table.live else self._table.ended
        call = everyone.get(referral.call_id)
        if call is None and referral.asked is None:
            self._untold[referral.call_id] = partial(self._finish, referral, result, sip_code)
            return
        self._tell(referral, sip_code)
        self._services.metrics.refers.labels(result=result).inc()
        log.info("refer", call_id=referral.call_id, refer_id=referral.id, result=result, sip_code=sip_code)
        if call is None:
            return
        call.publish(
            types.CallReferComplete(
                refer_id=referral.id,
                result=result,
                sip_code=sip_code,
                new_call_id=referral.new_call_id or UNSET,
            )
        )
        if result == "succeeded":
            referral.timer.set(BYE_AFTER_S, partial(call.end, "transferred", transfer_result="succeeded"))

    def _tell(self, referral: Referral, sip_code: int) -> None:
        told = messages.TellReferrer(call_id=referral.call_id, refer_id=referral.id, sip_code=sip_code)
        self._services.ua.tell(told)
