"""Keeps from PJSIP what it asserts of a message and does not check, and answers what it answers wrongly.

In a request: a session description that is none, or of which nothing can be served, is refused with 400 or 488 and a Warning
(RFC 3261 §20.43), also inside a call; INFO is answered here, as PJSIP reads past the end of a line that has none, and knows
no ``application/dtmf``. Such a description is taken out of an ACK, which cannot be answered: the call then ends as one whose
offer nobody answered (RFC 3264 §4).

In a response, which cannot be refused: what cannot be used is taken out. A 183 is then as a 180, so that the call waits for
its 200; a 200 without an answer ends the call; where Contact is no SIP URI requests go to the one that we called; a
registrar's ``Contact: *`` and endless ``Expires`` are ignored. Without a tag in To a response belongs to no dialog once the
far side has one (RFC 3261 §12.1.2), and is dropped.

Whatever belongs to a call that is over gets 481 or is dropped: a dialog of PJSIP outlives its call and goes on naming the
call slot, which PJSUA has given to another call by then. Runs on: the SIP thread.
"""

import functools
from collections.abc import Callable
from typing import Final

from cc_tts import logs
from cc_tts.ua.guard import sdp_check, srtp_sdp
from cc_tts.ua.guard.c_library import CLibrary, Headers
from cc_tts.ua.sip import message as sip_message

_RESPONSE_PRIORITY: Final = 13
"""After the response filter (12), before PJSIP_MOD_PRIORITY_TSX_LAYER (16)."""
_IN_CALLS_PRIORITY: Final = 31
"""After the transport filter (30), before PJSIP_MOD_PRIORITY_UA_PROXY_LAYER (32), where requests go to their dialogs."""
_PRIORITY: Final = 63
"""After the request filter, before PJSIP_MOD_PRIORITY_APPLICATION (64), where pjsua is."""
_OFFERING: Final = frozenset((b"INVITE", b"UPDATE", b"PRACK"))
"""Requests that may carry an offer (RFC 3261 §13.1, RFC 3311 §5.1, RFC 3262 §5); ACK may carry an answer."""
_DESCRIBING: Final = _OFFERING | {b"ACK"}
_ANSWERING: Final = frozenset(("INVITE", "UPDATE", "PRACK"))
_ROUTING: Final = {"Contact": ("contact", "m"), "Record-Route": ("record-route",), "Service-Route": ("service-route",)}
"""Headers of a response that say where requests are to be sent, and how they may be spelt."""
MAX_SERVICE_ROUTES: Final = 8
"""PJSUA_ACC_MAX_PROXIES; pjsua writes more of these headers past the end of its table (RFC 3608)."""
MAX_EXPIRES_S: Final = 1 << 31
"""PJSIP takes 2^32 - 1 for "not said" and asserts that it was."""
WARN_AGENT: Final = "cc-tts"

log = logs.get(__name__)


class MessageFilter:
    """``codecs`` are those that are served, as :func:`cc_tts.ua.guard.sdp_check.check` wants them. ``on_key`` gets a key
    of INFO: Call-ID, the far side's tag, CSeq, key, duration in ms; ``on_offer`` which of ``codecs`` a request offers, just
    before PJSIP answers it; ``on_malformed`` the host that sent what cannot be used.
    """

    def __init__(
        self,
        library: CLibrary,
        *,
        codecs: frozenset[str],
        srtp: bool,
        on_key: Callable[[str, str, int, str, int], None],
        on_offer: Callable[[frozenset[str]], None],
        on_malformed: Callable[[str], None],
    ) -> None:
        self._c = library
        self._codecs = codecs
        self._srtp = srtp
        self._on_key = on_key
        self._on_offer = on_offer
        self._on_malformed = on_malformed

    def install(self) -> None:
        """Register with PJSIP.

        Raises:
            RuntimeError: PJSIP refuses a module.
        """
        register = self._c.register_module
        register(b"mod-cc-tts-filter-responses", _RESPONSE_PRIORITY, on_response=self._on_response)
        in_call = functools.partial(self._on_request, in_call=True)
        register(b"mod-cc-tts-filter-in-calls", _IN_CALLS_PRIORITY, on_request=in_call)
        register(b"mod-cc-tts-filter", _PRIORITY, on_request=functools.partial(self._on_request, in_call=False))

    def _on_request(self, rdata: int, *, in_call: bool) -> bool:
        """Return to PJSIP whether the request is dealt with here."""
        try:
            return self._takes(rdata, in_call=in_call)
        except Exception:
            log.exception("filter_failed")
            return True

    def _takes(self, rdata: int, *, in_call: bool) -> bool:
        method = self._c.method_of(rdata)
        if not in_call and method not in _DESCRIBING:
            return False
        host, message = self._c.message(rdata)
        dialog = sip_message.dialog_of(message)
        if (dialog is not None) is not in_call:
            return False
        if dialog is not None:
            if self._is_over(*dialog):
                if method != b"ACK":  # nothing answers an ACK (RFC 3261 §17)
                    self._c.respond(rdata, 481)
                return True
            if method == b"INFO":
                return self._take_info(rdata, message, dialog)
        if method == b"ACK" and not sip_message.body_of(message):
            return False
        return method in _DESCRIBING and self._take_unusable(rdata, host, method)

    def _take_unusable(self, rdata: int, host: str, method: bytes) -> bool:
        """Refuse a description that cannot be used; an ACK, which cannot be refused, goes on without it."""
        is_answer = method == b"ACK"
        fault = self._fault_of(rdata, is_answer=is_answer)
        if fault is None:
            return False
        if fault.status == 400 or is_answer:  # noqa: PLR2004 - Bad Request
            self._on_malformed(host)
        if is_answer:
            self._c.drop_body(rdata)
            return False
        self._c.respond(rdata, fault.status, warning(fault))
        return True

    def _on_response(self, rdata: int) -> bool:
        """Return to PJSIP whether the response is dealt with here."""
        try:
            host, message = self._c.message(rdata)
            if sip_message.is_ambiguous(message):
                log.debug("response_dropped", reason="line ends, or a header that may come once")
                self._on_malformed(host)
                return True
            status = message.partition(" ")[2][:3]
            method = sip_message.cseq_method(message)
            if method == "INVITE" and "100" < status < "300" and self._is_stray(message):
                log.debug("response_dropped", sip_code=status)
                self._on_malformed(host)
                return True
            if status < "300" and method in _ANSWERING and sip_message.body_of(message):
                self._drop_unusable_answer(rdata, host, method, status)
            for name in sorted(_unusable_headers(message, method)):
                self._c.drop_headers(rdata, name)
        except Exception:
            log.exception("filter_failed")
            return True
        return False

    def _drop_unusable_answer(self, rdata: int, host: str, method: str, status: str) -> None:
        if fault := self._fault_of(rdata, is_answer=True):
            log.debug("answer_unusable", method=method, sip_code=status, detail=fault.text)
            self._on_malformed(host)
            self._c.drop_body(rdata)

    def _is_stray(self, message: str) -> bool:
        """Whether a response is to a call that is over, or has no tag where the far side has named one, which PJSIP takes
        for another branch of a fork.
        """
        call_id, local_tag, remote_tag = sip_message.dialog_of_response(message)
        if not remote_tag:
            return self._c.is_over(call_id, local_tag, "") is not False
        return self._is_over(call_id, local_tag, remote_tag)

    def _is_over(self, call_id: str, local_tag: str, remote_tag: str) -> bool:
        """Whether this dialog's call is over. PJSUA would apply the message to the call that has the call slot by now."""
        is_over = self._c.is_over(call_id, local_tag, remote_tag)
        if is_over is None:  # of a dialog whose far side has no tag yet PJSIP takes everything
            is_over = self._c.is_over(call_id, local_tag, "")
        return is_over is True

    def _fault_of(self, rdata: int, *, is_answer: bool) -> sdp_check.Fault | None:
        """What keeps the message's description from being used. In an answer something else than a description does, too."""
        found = self._c.sdp(rdata)
        if found is None:
            if is_answer:
                return _NO_SDP
            self._on_offer(frozenset())
            return None
        sdp, is_readable = found
        checked = sdp_check.check(sdp, codecs=self._codecs, secure=self._srtp)
        if checked.fault is not None:
            return checked.fault
        if not is_readable:
            return _UNREADABLE
        if is_answer:
            return _NOT_OFFERED if checked.unusable else None
        if self._srtp and (text := srtp_sdp.fault_of(sdp)):
            return sdp_check.Fault(488, 399, text)  # 399: what has no number of its own (RFC 3261 §20.43)
        self._take_offer(rdata, checked)
        return None

    def _take_offer(self, rdata: int, checked: sdp_check.Checked) -> None:
        """Switch off what must not be chosen of an offer that can be served, and report its codecs."""
        if checked.unusable:
            self._c.switch_off(rdata, checked.unusable, num_media=checked.num_media)
        self._on_offer(checked.codecs)

    def _take_info(self, rdata: int, message: str, dialog: tuple[str, str, str]) -> bool:
        """Answer an INFO of a call (RFC 6086 Appendix A: those without a package)."""
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
            cseq = "".join(sip_message.header_values(message, "cseq")).partition(" ")[0]
            self._on_key(dialog[0], dialog[2], int(cseq) if cseq.isdigit() else 0, *key)
        return True


_NO_SDP: Final = sdp_check.Fault(488, 399, "The body is no SDP")
_UNREADABLE: Final = sdp_check.Fault(400, 399, "The SDP is malformed")
_NOT_OFFERED: Final = sdp_check.Fault(488, 399, "More was answered than was offered")


def warning(fault: sdp_check.Fault) -> Headers:
    """The header that names a fault (RFC 3261 §20.43)."""
    return (("Warning", f'{fault.warning} {WARN_AGENT} "{fault.text}"'),)


def _unusable_headers(message: str, method: str) -> set[str]:
    """Headers of a response that PJSIP must not see."""
    unusable = {name for name, forms in _ROUTING.items() if sip_message.has_foreign_uri(message, *forms)}
    if method == "REGISTER" and _is_endless(message):
        unusable |= {"Expires", "Contact"}
    if method == "REGISTER" and len(sip_message.header_values(message, "service-route")) > MAX_SERVICE_ROUTES:
        unusable.add("Service-Route")
    return unusable


def _is_endless(message: str) -> bool:
    """Whether a registrar's answer names a lifetime that PJSIP cannot count."""
    lifetimes = [*sip_message.header_values(message, "expires"), *sip_message.contact_lifetimes(message)]
    return not all(text.isascii() and text.isdigit() and int(text[:12]) < MAX_EXPIRES_S for text in lifetimes)
