"""Keeps from PJSIP what it asserts of a message and does not check, and answers what it answers wrongly.

In a request: a session description that is none, or of which nothing can be served, gets 400, 415 or 488 with a Warning (RFC
3261 §20.43), also inside a call; out of an ACK it is taken, so that the call ends as one whose offer nobody answered (RFC
3264 §4). INFO is answered here: PJSIP reads past the end of a line that has none, and knows no ``application/dtmf``. So is
NOTIFY of a REFER of ours (RFC 3515), of which PJSIP asserts what it is like.

In a response, which cannot be refused: what cannot be used is taken out. A 183 is then as a 180; a 200 without an answer
ends the call; where Contact is no SIP URI requests go to the one that we called. Without a tag in To a response belongs to
no dialog once the far side has one (RFC 3261 §12.1.2), and is dropped.

Whatever belongs to a call that is over gets 481 or is dropped: a dialog of PJSIP outlives its call and goes on naming the
call slot, which PJSUA has given to another call by then. Runs on: the SIP thread.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from cc_tts import logs
from cc_tts.ua.guard import sdp_check, srtp_sdp
from cc_tts.ua.guard.c_library import CLibrary, OnMessage
from cc_tts.ua.guard.sdp_repair import repaired
from cc_tts.ua.refer import message as refer
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip.reason import RemoteReason, remote_reasons

_FIRST_PRIORITY: Final = 13
"""This is after the response filter (12), before PJSIP_MOD_PRIORITY_TSX_LAYER (16)."""
_IN_CALLS_PRIORITY: Final = 31
"""This is after the transport filter (30), before PJSIP_MOD_PRIORITY_UA_PROXY_LAYER (32), which finds dialogs."""
_PRIORITY: Final = 63
"""This is after the request filter, before PJSIP_MOD_PRIORITY_APPLICATION (64), where pjsua is."""
_OFFERING: Final = ("INVITE", "UPDATE", "PRACK")
"""The requests that may carry an offer, and whose responses an answer (RFC 3261 §13.1, RFC 3311 §5.1, RFC 3262 §5)."""
_ROUTING: Final = ("Contact", "Record-Route", "Service-Route")
"""The headers of a response that determine where requests are sent."""
MAX_SERVICE_ROUTES: Final = 8
"""This is PJSUA_ACC_MAX_PROXIES; pjsua writes more of these headers past the end of its table (RFC 3608)."""
_CSEQ: Final = re.compile(r"[0-9]{1,10}")
MAX_EXPIRES_S: Final = 1 << 31
"""PJSIP takes 2^32 - 1 for "not said" and asserts that it was."""

log = logs.get(__name__)


class MessageFilter:
    """``codecs`` are served, such as ``PCMU/8000``. ``on_key`` gets a key of INFO: Call-ID, the far side's tag, CSeq, key,
    duration in ms; ``on_end`` the same names and the reasons of a BYE or CANCEL; ``on_notify`` the same names and what a
    NOTIFY says, and it returns whether that was asked for; ``on_notify_refused`` the same names when a NOTIFY of ours got
    what PJSIP would end the call for; ``on_offer`` which of ``codecs`` a request offers, just before
    PJSIP answers it; ``on_malformed`` the host that sent what cannot be used.
    """

    def __init__(
        self,
        library: CLibrary,
        *,
        codecs: frozenset[str],
        srtp: bool,
        on_key: Callable[[str, str, int, str, int], None],
        on_end: Callable[[str, str, tuple[RemoteReason, ...]], None],
        on_notify: Callable[[str, str, refer.Notification], bool],
        on_notify_refused: Callable[[str, str], None],
        on_offer: Callable[[frozenset[str]], None],
        on_malformed: Callable[[str], None],
    ) -> None:
        self._c = library
        self._codecs = codecs
        self._srtp = srtp
        self._on_key = on_key
        self._on_end = on_end
        self._on_notify = on_notify
        self._on_notify_refused = on_notify_refused
        self._on_offer = on_offer
        self._on_malformed = on_malformed

    def install(self) -> None:
        """Register with PJSIP. Raises ``RuntimeError`` if it refuses a module."""
        register = self._c.register_module
        register(
            b"mod-cc-tts-filter-first",
            _FIRST_PRIORITY,
            on_request=_guarded(self._on_request),
            on_response=_guarded(self._on_response),
        )
        register(b"mod-cc-tts-filter-in-calls", _IN_CALLS_PRIORITY, on_request=_guarded(self._on_request_in_call))
        register(b"mod-cc-tts-filter", _PRIORITY, on_request=_guarded(self._on_new_request))

    # Each of the following returns to PJSIP whether the message is dealt with here.

    def _on_request(self, rdata: int) -> bool:
        """Drop an ACK without a tag in To: each final response of ours has one (RFC 3261 §17.1.1.3). PJSIP's transactions
        take it for a merged request, would answer it with 482 and assert that nothing answers an ACK.
        """
        return self._c.method_of(rdata) == "ACK" and sip_message.dialog_of(self._c.message(rdata)[1]) is None

    def _on_request_in_call(self, rdata: int) -> bool:
        host, message = self._c.message(rdata)
        dialog = sip_message.dialog_of(message)
        method = self._c.method_of(rdata)
        if dialog is None:
            if method == "CANCEL":  # it has no tag in To (RFC 3261 §9.1)
                call_id = sip_message.header_value(message, "call-id")
                self._on_end(call_id, sip_message.from_tag(message), remote_reasons(message))
            return False
        if self._is_over(*dialog):
            if method != "ACK":  # nothing answers an ACK (RFC 3261 §17)
                self._c.respond(rdata, 481)
            return True
        if method == "INFO":
            self._answer_info(rdata, message, dialog)
            return True
        if method == "NOTIFY":
            self._answer_notify(rdata, message, dialog)
            return True
        if method == "BYE":
            self._on_end(dialog[0], dialog[2], remote_reasons(message))
        return self._take_description(rdata, host, message, method)

    def _on_new_request(self, rdata: int) -> bool:
        method = self._c.method_of(rdata)
        if method != "ACK" and method not in _OFFERING:
            return False
        host, message = self._c.message(rdata)
        return sip_message.dialog_of(message) is None and self._take_description(rdata, host, message, method)

    def _take_description(self, rdata: int, host: str, message: str, method: str) -> bool:
        """Refuse an unusable offer. An ACK cannot be refused, so it continues without its answer."""
        if method == "ACK":
            self._drop_unusable_answer(rdata, host, message, method)
        if method not in _OFFERING:
            return False
        fault = self._fault_of_offer(rdata, has_body=sip_message.has_body(message))
        if fault is None:
            return False
        if fault.status == HTTPStatus.BAD_REQUEST:
            self._on_malformed(host)
        warning = (("Warning", f'{fault.warning} cc-tts "{fault.text}"'),)
        self._c.respond(rdata, fault.status, (*warning, *(_ACCEPT if fault is _NO_OFFER else ())))
        return True

    def _on_response(self, rdata: int) -> bool:
        host, message = self._c.message(rdata)
        status = message.partition(" ")[2][:3]
        method = sip_message.cseq_method(message)
        if sip_message.is_ambiguous(message):
            log.debug("response_dropped", reason="line ends, or a header that may come once")
        elif method == "INVITE" and "100" < status < "300" and self._is_stray(message):
            log.debug("response_dropped", sip_code=status)
        elif method == "REFER" and status == "408":
            log.debug("response_dropped", reason="PJSIP would end the call", sip_code=status)
        elif method == "NOTIFY" and status in ("408", "481"):
            log.debug("response_dropped", reason="PJSIP would end the call", sip_code=status)
            self._on_notify_refused(*sip_message.dialog_of_response(message)[::2])
            return True
        else:
            if status < "300" and method in _OFFERING:
                self._drop_unusable_answer(rdata, host, message, method, status)
            for name in sorted(_unusable_headers(message, method)):
                self._c.drop_headers(rdata, name)
            return False
        self._on_malformed(host)
        return True

    def _drop_unusable_answer(self, rdata: int, host: str, message: str, method: str, status: str = "") -> None:
        if sip_message.body_of(message) and (fault := self._fault_of_answer(rdata)):
            log.debug("answer_unusable", method=method, sip_code=status, detail=fault.text)
            self._on_malformed(host)
            self._c.drop_body(rdata)

    def _is_stray(self, message: str) -> bool:
        """Whether its call is over, or it lacks the tag of the far side, which PJSIP would take for a fork."""
        call_id, local_tag, remote_tag = sip_message.dialog_of_response(message)
        if not remote_tag:
            return self._c.is_over(call_id, local_tag, "") is not False
        return self._is_over(call_id, local_tag, remote_tag)

    def _is_over(self, call_id: str, local_tag: str, remote_tag: str) -> bool:
        """Whether this dialog's call is over. PJSUA would apply the message to the call that has its slot by now."""
        is_over = self._c.is_over(call_id, local_tag, remote_tag)
        if is_over is None:  # while the far side has no tag, PJSIP accepts messages with any tag
            is_over = self._c.is_over(call_id, local_tag, "")
        return is_over is True

    def _fault_of_answer(self, rdata: int) -> sdp_check.Fault | None:
        """Return why a body cannot be used as an answer, for instance because it is no session description."""
        found = self._c.sdp(rdata, repaired)
        if found is None:
            return _NO_SDP
        checked = self._check(*found)
        return checked.fault or (_NOT_OFFERED if checked.unusable else None)

    def _fault_of_offer(self, rdata: int, *, has_body: bool) -> sdp_check.Fault | None:
        """Return why an offer cannot be used. In a usable one m-lines are switched off and codecs reported."""
        found = self._c.sdp(rdata, repaired)
        if found is None and has_body:  # PJSIP takes what it cannot read for no body, and would answer with an offer
            return _NO_OFFER
        checked = self._check(*found) if found else sdp_check.Checked()
        if checked.fault is not None:
            return checked.fault
        if found and self._srtp and (text := srtp_sdp.fault_of(found[0])):
            return sdp_check.Fault(488, 399, text)  # 399: what has no number of its own (RFC 3261 §20.43)
        if checked.unusable:
            self._c.switch_off(rdata, checked.unusable, num_media=checked.num_media)
        self._on_offer(checked.codecs)
        return None

    def _check(self, sdp: str, is_readable: bool) -> sdp_check.Checked:  # noqa: FBT001 - as CLibrary.sdp() returns them
        checked = sdp_check.check(sdp, codecs=self._codecs, secure=self._srtp)
        return checked if checked.fault or is_readable else sdp_check.Checked(_UNREADABLE)

    def _answer_info(self, rdata: int, message: str, dialog: tuple[str, str, str]) -> None:
        """Answer an INFO of a call without an Info-Package (RFC 6086 Appendix A)."""
        key = sip_message.key_of(message)
        if not self._c.has_dialog(*dialog):  # PJSIP may know it by less, as long as the far side has no tag
            self._c.respond(rdata, 481)
        elif not sip_message.body_of(message):
            self._c.respond(rdata, 200)
        elif sip_message.media_type(message) not in sip_message.DTMF_TYPES:
            self._c.respond(rdata, 415, (("Accept", ", ".join(sip_message.DTMF_TYPES)),))
        elif key is None:
            self._c.respond(rdata, 400, reason="The body names no key")
        else:
            self._c.respond(rdata, 200)
            cseq = sip_message.header_value(message, "cseq").partition(" ")[0]
            self._on_key(dialog[0], dialog[2], int(cseq) if _CSEQ.fullmatch(cseq) else 0, *key)

    def _answer_notify(self, rdata: int, message: str, dialog: tuple[str, str, str]) -> None:
        """Answer a NOTIFY about a REFER. A body without a status is accepted, and has no effect."""
        notification = refer.notification(message)
        if not self._c.has_dialog(*dialog):  # PJSIP may know it by less, as long as the far side has no tag
            self._c.respond(rdata, 481)
        elif notification is None:
            self._c.respond(rdata, 489)  # Bad Event (RFC 6665 §4.1.3): we subscribe to nothing else
        else:
            self._c.respond(rdata, 200 if self._on_notify(dialog[0], dialog[2], notification) else 481)


def _guarded(step: OnMessage) -> OnMessage:
    """Return ``step`` as a function for PJSIP. A message for which it fails is dropped."""

    def on_message(rdata: int) -> bool:
        try:
            return step(rdata)
        except Exception:
            log.exception("filter_failed")
            return True

    return on_message


_NO_OFFER: Final = sdp_check.Fault(415, 399, "There is no SDP in the body")
_ACCEPT: Final = (("Accept", "application/sdp"),)
"""A 415 says what is accepted (RFC 3261 §21.4.13)."""
_NO_SDP: Final = sdp_check.Fault(488, 399, "The body is no SDP")
_UNREADABLE: Final = sdp_check.Fault(400, 399, "The SDP is malformed")
_NOT_OFFERED: Final = sdp_check.Fault(488, 399, "More was answered than was offered")


def _unusable_headers(message: str, method: str) -> set[str]:
    unusable = {name for name in _ROUTING if sip_message.has_foreign_uri(message, name)}
    if method != "REGISTER":
        return unusable
    if _is_endless(message):
        unusable |= {"Expires", "Contact"}
    if len(sip_message.header_values(message, "service-route")) > MAX_SERVICE_ROUTES:
        unusable.add("Service-Route")
    return unusable


def _is_endless(message: str) -> bool:
    """Whether a registrar's response has a lifetime that PJSIP cannot count."""
    lifetimes = [*sip_message.header_values(message, "expires"), *sip_message.contact_lifetimes(message)]
    return not all(text.isascii() and text.isdigit() and int(text[:12]) < MAX_EXPIRES_S for text in lifetimes)
