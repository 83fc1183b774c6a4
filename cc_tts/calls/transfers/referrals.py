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
from cc_tts.calls.call_state import CallState
from cc_tts.calls.call_table import CallTable
from cc_tts.calls.dialplan import routing
from cc_tts.calls.events import types
from cc_tts.calls.follower import Follower
from cc_tts.calls.originate import OriginateRequest, OutgoingCalls
from cc_tts.calls.services import CallServices
from cc_tts.calls.timer import CallTimer
from cc_tts.calls.transfers.transfers import check_target
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


@dataclass(eq=False)
class Referral(Follower):
    """A REFER without an outcome, which arrived on the call ``call_id``. It follows the call that it asked for until
    that one is answered or over.
    """

    referrals: "Referrals"
    id: str
    call_id: str
    timer: CallTimer
    asked: messages.ReferRequested | None = None
    placed: Call | None = None

    def on_report(self, report: messages.CallReport) -> None:
        """Report the progress of the new call to the referrer."""
        if isinstance(report, messages.CallRinging):
            self.referrals.tell(self, report.sip_code)
        elif isinstance(report, messages.CallEstablished):
            self.referrals.finish(self, "succeeded", _OK)

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - the status says it to the referrer
        """The new call was not answered, or its user agent has ended."""
        ending = None if self.placed is None else self.placed.ending
        sip_code = ending.sip_code if ending is not None and ending.sip_code else 0
        self.referrals.finish(self, "failed", sip_code if sip_code >= _REFUSED else _TERMINATED)


class Referrals:
    """All REFERs that wait for a decision or an outcome."""

    def __init__(self, services: CallServices, table: CallTable, outgoing: OutgoingCalls) -> None:
        self._services = services
        self._table = table
        self._outgoing = outgoing
        self._waiting: dict[str, Referral] = {}
        self._untold: dict[str, Callable[[], None]] = {}
        """Outcomes that could not be reported yet, by the call on which the REFER arrived. That call may
        still be adopted.
        """

    def take(self, call: Call, asked: messages.ReferRequested) -> None:
        """Handle a REFER that the user agent has accepted; the far side waits for its outcome."""
        referral = Referral(self, asked.refer_id, call.id, CallTimer(call.id), asked)
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
            referral.timer.set(timeout_s, partial(self.finish, referral, "timeout", _DECLINED))
        elif policy == "allow":
            self._allow(call, referral)
        else:
            self.finish(referral, "refused", _DECLINED)

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
        self.finish(self._waits(call, refer_id), "refused", sip_code)

    def _waits(self, call: Call, refer_id: str) -> Referral:
        referral = self._waiting.get(refer_id)
        if referral is None or referral.call_id != call.id:
            raise ReferNotFound(f"no REFER {refer_id[:80]!r} waits for an answer on call {call.id}")
        return referral

    def _place(self, call: Call, referral: Referral, request: OriginateRequest) -> Call:
        asked = referral.asked
        assert asked is not None
        check_target(asked.to, self._services.config)  # the patterns may have changed since the call came in
        # RFC 3892 §2.2: the new call names the referrer
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
        self._follow(referral, placed)
        self.tell(referral, _TRYING)
        return placed

    @staticmethod
    def _follow(referral: Referral, placed: Call) -> None:
        referral.placed = placed
        placed.followers.join(referral)

    def adopt(self, call: Call) -> None:
        """Continue with a call that an earlier server placed for a REFER, or report the outcome of a REFER on this call."""
        if (tell := self._untold.pop(call.id, None)) is not None:
            tell()
        if call.referral is None:
            return
        old_call_id, refer_id = call.referral
        referral = Referral(self, refer_id, old_call_id, CallTimer(old_call_id))
        self._follow(referral, call)
        if call.state is CallState.ESTABLISHED:
            self.finish(referral, "succeeded", _OK)

    def _refuse_for(self, referral: Referral, error: CcTtsError) -> None:
        log.warning("refer_failed", call_id=referral.call_id, refer_id=referral.id, code=error.code)
        self.finish(referral, "failed", error.sip_status)

    def finish(self, referral: Referral, result: types.ReferResult, sip_code: int) -> None:
        """Report the outcome to the referrer and the application, once."""
        referral.timer.cancel()
        self._waiting.pop(referral.id, None)
        if (placed := referral.placed) is not None:
            placed.followers.leave(referral)
        everyone: Mapping[str, Call] = self._table.live if referral.call_id in self._table.live else self._table.ended
        call = everyone.get(referral.call_id)
        if call is None and referral.asked is None:
            self._untold[referral.call_id] = partial(self.finish, referral, result, sip_code)
            return
        self.tell(referral, sip_code)
        self._services.metrics.refers.labels(result=result).inc()
        log.info("refer", call_id=referral.call_id, refer_id=referral.id, result=result, sip_code=sip_code)
        if call is None:
            return
        call.publish(
            types.CallReferComplete(
                refer_id=referral.id,
                result=result,
                sip_code=sip_code,
                new_call_id=UNSET if placed is None else placed.id,
            )
        )
        if result == "succeeded":
            referral.timer.set(BYE_AFTER_S, partial(call.end, "transferred", transfer_result="succeeded"))

    def tell(self, referral: Referral, sip_code: int) -> None:
        told = messages.TellReferrer(call_id=referral.call_id, refer_id=referral.id, sip_code=sip_code)
        self._services.ua.tell(told)
