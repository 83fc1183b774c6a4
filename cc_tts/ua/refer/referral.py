"""A REFER from the far side of a leg: our response, and our NOTIFYs about its progress (RFC 3515). The server decides about
it and places the call. Runs on: the SIP thread.

PJSIP sees no REFER: the filter in front of it answers, with what is said here.
"""

import weakref
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_S
from cc_tts.config.sip_uri import AllowedTargets
from cc_tts.ua import messages
from cc_tts.ua.leg_media import LegServices
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.own_requests import ANSWER_TIMEOUT_NS, OwnRequests
from cc_tts.ua.pjsip.sip_thread import pj_detail
from cc_tts.ua.refer import message as refer
from cc_tts.ua.refer.request import refer_request
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip.bye import quoted

SUBSCRIPTION_S: Final = 300
"""A REFER without an outcome is given up after this time; a call rings for less (unmeasured)."""
_OK: Final = 200
_PHRASES: Final = {
    100: "Trying", 180: "Ringing", 181: "Call Is Being Forwarded", 182: "Queued", 183: "Session Progress", 200: "OK",
    403: "Forbidden", 404: "Not Found", 408: "Request Timeout", 480: "Temporarily Unavailable", 486: "Busy Here",
    487: "Request Terminated", 488: "Not Acceptable Here", 500: "Server Internal Error", 503: "Service Unavailable",
    600: "Busy Everywhere", 603: "Decline",
}  # fmt: skip
"""Reason phrases of RFC 3261 §21. A phrase may be empty (§25.1), as that of any other status is."""

Answer = tuple[int, tuple[tuple[str, str], ...]]
"""The status and the headers of a final response."""

log = logs.get(__name__)


class LegReferral:
    """The REFERs that arrive on one leg, one at a time. Without :meth:`allow` each is declined, since a caller could
    otherwise make us call anybody.
    """

    def __init__(self, services: LegServices, call: Any) -> None:
        self._call: Any = weakref.proxy(call)  # see LegMedia
        self._call_id: str = call.call_id
        self._clock = services.clock
        self._send = services.send
        self._targets: AllowedTargets | None = None
        self._has_server = True
        self._cseq = -1
        self._answer: Answer = (pj.PJSIP_SC_DECLINE, ())
        self._request: messages.ReferRequested | None = None  # the one without outcome so far
        self._request_cseq = -1
        self._num_taken = 0
        self._is_begun = self._is_decided = False
        self._last_told = 0
        self._begun_ns = 0
        self._notifies = OwnRequests(services.library, services.clock)

    def allow(self, allowed: messages.AllowRefers) -> None:
        self._targets = AllowedTargets(allowed.targets)

    def answer(self, message: str) -> Answer:
        """Return the response to a REFER. A repeated one gets the same response, and has no other effect."""
        cseq = sip_message.cseq_of(message)
        if cseq != self._cseq:
            self._answer, self._cseq = self._decide(message, cseq), cseq
            if self._targets is not None:
                log.info("refer_answered", call_id=self._call_id, sip_code=self._answer[0])
        return self._answer

    def _decide(self, message: str, cseq: int) -> Answer:
        if self._targets is None:
            return pj.PJSIP_SC_DECLINE, ()
        if unknown := sip_message.required_extensions(message):
            tags = sip_message.option_tags(unknown)
            return pj.PJSIP_SC_BAD_EXTENSION, (("Unsupported", tags),) if tags else ()
        try:
            request = refer_request(message, self._call_id)
        except ValueError as error:
            return pj.PJSIP_SC_BAD_REQUEST, _warning(str(error))
        if self._request is not None:
            return pj.PJSIP_SC_REQUEST_PENDING, ()
        if request.to not in self._targets:
            return pj.PJSIP_SC_FORBIDDEN, _warning("no pattern of transfer.allowed takes this target")
        if not self._has_server:
            return pj.PJSIP_SC_SERVICE_UNAVAILABLE, ()
        self._request, self._request_cseq = request, cseq
        self._is_begun, self._is_decided, self._last_told = False, False, 0
        return pj.PJSIP_SC_ACCEPTED, ()

    def begin(self) -> None:
        """Send the first NOTIFY of an accepted REFER (RFC 3515 §2.4.4), and let the server decide."""
        if self._request is None or self._is_begun:
            return
        self._num_taken += 1
        self._is_begun, self._begun_ns = True, self._clock.now_ns()
        request = self._request
        self._notify(pj.PJSIP_SC_TRYING)
        self._send(request)

    def tell(self, told: messages.TellReferrer) -> None:
        """Report the progress of the REFER to the far side; 100: the server has decided to place the call."""
        if self._request is None or told.refer_id != self._request.refer_id:
            return
        self._is_decided = True
        if told.sip_code != self._last_told:
            self._notify(told.sip_code)

    def detach_server(self) -> None:
        """The server is gone, so nobody decides until another one is there. A call that is already placed is adopted, and
        its outcome reported then.
        """
        self._has_server = False
        if self._request is not None and not self._is_decided:
            self._notify(pj.PJSIP_SC_SERVICE_UNAVAILABLE)

    def attach_server(self) -> None:
        self._has_server = True

    def changed(self, change: Any) -> None:
        self._notifies.note(change)

    def refused(self) -> None:
        """The far side no longer knows its subscription: it gets no further NOTIFY (RFC 6665 §4.2.2)."""
        self._request = None
        self.end()

    def tick(self, now_ns: int) -> None:
        """Give up NOTIFYs without a response, and a REFER without an outcome."""
        self._notifies.end(timeout_ns=ANSWER_TIMEOUT_NS)
        if self._request is not None and self._is_begun and now_ns - self._begun_ns >= SUBSCRIPTION_S * NS_PER_S:
            self._notify(pj.PJSIP_SC_REQUEST_TIMEOUT)

    def end(self) -> None:
        """End the NOTIFYs without a response."""
        self._notifies.end()

    def _notify(self, sip_code: int) -> None:
        """Send a NOTIFY with a status line (RFC 3515 §2.4.5); a final status ends the subscription."""
        assert self._request is not None
        left_s = SUBSCRIPTION_S - (self._clock.now_ns() - self._begun_ns) // NS_PER_S
        is_last = sip_code >= _OK
        param = pj.CallSendRequestParam()
        param.method = "NOTIFY"
        headers = {
            # the first REFER of a dialog needs no id, and there are peers that want none (RFC 3515 §2.4.6)
            "Event": refer.EVENT if self._num_taken == 1 else f"{refer.EVENT};id={self._request_cseq}",
            "Subscription-State": "terminated;reason=noresource" if is_last else f"active;expires={max(1, left_s)}",
        }
        pj_info.add_headers(param, headers)
        param.txOption.contentType = "message/sipfrag;version=2.0"
        param.txOption.msgBody = f"SIP/2.0 {sip_code} {_PHRASES.get(sip_code, '')}\r\n"
        self._last_told = sip_code
        if is_last:
            self._request = None
        try:
            self._call.sendRequest(param)
        except pj.Error as error:
            log.warning("notify_failed", call_id=self._call_id, detail=pj_detail(error))


def _warning(text: str) -> tuple[tuple[str, str], ...]:
    return (("Warning", f"399 cc-tts {quoted(text)}"),)
