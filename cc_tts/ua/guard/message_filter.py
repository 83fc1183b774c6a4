"""Answers what must not become a call, and keeps from PJSIP what it asserts of a message and does not check.

pjsua offers no callback to change its own answers. The way of PJSIP is a module before its own. There are three:

* *Before the transactions* responses are seen. They cannot be refused: what cannot be used is taken out. A 183 is then as a
  180; a 200 without an answer ends the call; where Contact is no SIP URI requests go to the one that we called. Without a
  tag in To a response belongs to no dialog once the far side has one (RFC 3261 §12.1.2), and is dropped. Where we have a
  password of our own, so is a challenge of a caller to our BYE: PJSIP would answer with a digest of it, which can be
  attacked offline.
* *Before the dialogs* every request is seen that is no retransmission. It is refused as :mod:`cc_tts.ua.guard.policy` says.
  INFO is answered here: PJSIP reads past the end of a line that has none, and knows no ``application/dtmf``. So are REFER,
  and NOTIFY of a REFER of ours (RFC 3515), of which PJSIP asserts what it is like.
* *Before pjsua* what is outside a dialog is seen: OPTIONS (RFC 3261 §11.2), INVITE over the limit (503, §21.5.4), methods
  that are not served there (405, 481 or 489, §8.2.1, §12.2.2).

A session description that is none, or of which nothing can be served, gets 400, 415 or 488 with a Warning (RFC 3261
§20.43), also inside a call; out of an ACK it is taken, so that the call ends as one whose offer nobody answered (RFC 3264
§4). Whatever belongs to a call that is over gets 481 or is dropped: a dialog of PJSIP outlives its call and goes on naming
the call slot, which PJSUA has given to another call by then. So does an offer after our BYE (RFC 3261
§15.1.1): of a re-INVITE without SDP PJSIP asserts that something was negotiated before. Runs on: the SIP thread.
"""

import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from cc_tts import logs
from cc_tts.ua.dialogs import Dialogs
from cc_tts.ua.guard import sdp_check, srtp_sdp
from cc_tts.ua.guard.c_library import CLibrary, guarded
from cc_tts.ua.guard.policy import InboundPolicy, RefusalResponse
from cc_tts.ua.guard.sdp_repair import repaired
from cc_tts.ua.messages import UaSettings
from cc_tts.ua.pjsip.codecs import SDP_NAMES
from cc_tts.ua.refer import message as refer
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip.reason import remote_reasons

_BEFORE_TRANSACTIONS: Final = 12
"""This is before PJSIP_MOD_PRIORITY_TSX_LAYER (16), which passes responses to their transactions."""
_BEFORE_DIALOGS: Final = 30
"""This is after PJSIP_MOD_PRIORITY_TSX_LAYER (16), which takes retransmissions, before PJSIP_MOD_PRIORITY_UA_PROXY_LAYER
(32), which finds dialogs.
"""
_BEFORE_PJSUA: Final = 62
"""This is before PJSIP_MOD_PRIORITY_APPLICATION (64) and the modules just under it, after the dialogs' usages (48)."""
METHODS: Final = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "INFO", "PRACK", "UPDATE", "NOTIFY")
"""The methods in Allow, without REFER, which only some routes accept."""
_STRAY: Final = ("BYE", "CANCEL", "INFO", "PRACK", "UPDATE", "NOTIFY")
"""The methods that need a dialog: without one they get 481 (RFC 3261 §12.2.2)."""
EXTENSIONS: Final = ("100rel", "timer")
_OFFERING: Final = ("INVITE", "UPDATE", "PRACK")
"""The requests that may carry an offer, and whose responses an answer (RFC 3261 §13.1, RFC 3311 §5.1, RFC 3262 §5)."""
_ROUTING: Final = ("Contact", "Record-Route", "Service-Route")
"""The headers of a response that determine where requests are sent."""
MAX_SERVICE_ROUTES: Final = 8
"""This is PJSUA_ACC_MAX_PROXIES; pjsua writes more of these headers past the end of its table (RFC 3608)."""
MAX_EXPIRES_S: Final = 1 << 31
"""PJSIP takes 2^32 - 1 for "not said" and asserts that it was."""
MIN_FLOW_TIMER_S: Final = 2
"""PJSIP waits 80% of Flow-Timer, rounded down, between keep-alives (RFC 5626 §4.4.1): with 1 it does not wait."""

Dialog = tuple[str, str, str]

log = logs.get(__name__)


class MessageFilter:
    """The modules in front of PJSIP. ``refusal`` is called for each new INVITE and OPTIONS that may be taken: seconds for
    Retry-After, or ``None`` to let it pass; ``on_refused`` after the refusal of an INVITE. ``on_offer`` gets which of our
    codecs a request offers, just before PJSIP answers it.
    """

    def __init__(
        self,
        library: CLibrary,
        settings: UaSettings,
        *,
        policy: InboundPolicy,
        dialogs: Dialogs,
        refusal: Callable[[], int | None],
        on_refused: Callable[[], None],
        on_offer: Callable[[frozenset[str]], None],
    ) -> None:
        self._c = library
        self._policy = policy
        self._dialogs = dialogs
        self._refusal = refusal
        self._on_refused = on_refused
        self._on_offer = on_offer
        self._codecs = frozenset(SDP_NAMES[name] for name in settings.rtp.codecs)
        self._srtp = settings.rtp.srtp != "off"
        self._takes_refer = settings.takes_refer

    def install(self) -> None:
        """Register with PJSIP, which keeps the modules. Raises ``RuntimeError`` if it refuses one."""
        self._set_capabilities()
        register = self._c.register_module
        register(
            b"mod-cc-tts-transactions",
            _BEFORE_TRANSACTIONS,
            on_request=guarded(self._is_unanswerable, otherwise=True),
            on_response=guarded(self._on_response, otherwise=True),
        )
        register(b"mod-cc-tts-dialogs", _BEFORE_DIALOGS, on_request=guarded(self._on_request, otherwise=True))
        register(b"mod-cc-tts-pjsua", _BEFORE_PJSUA, on_request=guarded(self._on_new_request, otherwise=True))

    def reload(self, settings: UaSettings) -> None:
        if settings.takes_refer != self._takes_refer:
            self._takes_refer = settings.takes_refer
            self._set_capabilities()

    @property
    def _capabilities(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """The headers of a 200 to OPTIONS (RFC 3261 §11.2): PJSIP's number of each (``pjsip_hdr_e``), and its tokens."""
        methods = (*METHODS, "REFER") if self._takes_refer else METHODS
        return {"Allow": (4, methods), "Accept": (0, ("application/sdp",)), "Supported": (36, EXTENSIONS)}

    def _set_capabilities(self) -> None:
        """Make PJSIP's own messages list the same capabilities as ours."""
        for name, (kind, tokens) in self._capabilities.items():
            try:
                self._c.set_capability(kind, name, tokens)
            except RuntimeError as error:
                log.warning("capability_not_set", detail=str(error), consequence="answers name what is not served")

    # --- requests; each of the following returns to PJSIP whether the message is dealt with here ------------------------

    def _is_unanswerable(self, rdata: int) -> bool:
        """Drop a request that no answer can repeat, and an ACK without a tag in To: each final response of ours has one (RFC
        3261 §17.1.1.3). PJSIP's transactions take such an ACK for a merged request, would answer it with 482 and assert that
        nothing answers an ACK.
        """
        host, message = self._c.message(rdata)
        if sip_message.is_unwritable(message):
            self._policy.note_malformed(host)
            return True
        return self._c.method_of(rdata) == "ACK" and sip_message.dialog_of(message) is None

    def _on_request(self, rdata: int) -> bool:
        method = self._c.method_of(rdata)
        host, message = self._c.message(rdata)
        dialog = sip_message.dialog_of(message)

        @functools.cache
        def in_dialog() -> bool:
            return dialog is not None and self._c.has_dialog(*dialog)

        if method != "ACK" and self._is_refused(  # nothing answers an ACK (RFC 3261 §17)
            rdata, lambda: self._policy.on_request(method, host, message, in_dialog=in_dialog)
        ):
            return True
        if dialog is None:
            if method == "CANCEL":  # it has no tag in To (RFC 3261 §9.1)
                self._take_reasons(sip_message.header_value(message, "call-id"), message)
            elif method == "INVITE" and self._is_taken(message):
                # it came twice (RFC 3261 §8.2.2.2); after the ACK PJSIP would take another call
                self._c.respond(rdata, 482)
                return True
            return False
        if method == "OPTIONS" or method not in METHODS:
            self._answer_in_dialog(rdata, method, message, dialog, is_known=in_dialog())
            return True
        return self._take_in_dialog(rdata, method, host, message, dialog)

    def _is_taken(self, invite: str) -> bool:
        """Whether an INVITE outside a dialog is that of a call that is up."""
        leg = self._dialogs.leg_of(sip_message.header_value(invite, "call-id"), sip_message.from_tag(invite))
        return leg is not None and leg.is_incoming

    def _take_reasons(self, call_id: str, message: str) -> None:
        """PJSIP is about to process a BYE or CANCEL."""
        if (leg := self._dialogs.leg_of(call_id, sip_message.from_tag(message))) is not None:
            leg.take_reasons(remote_reasons(message))

    def _on_new_request(self, rdata: int) -> bool:
        """Look at a request that belongs to no dialog of PJSIP."""
        method = self._c.method_of(rdata)
        host, message = self._c.message(rdata)
        if method in _STRAY:
            self._c.respond(rdata, 481)
        elif method not in ("INVITE", "OPTIONS", "ACK"):
            self._refuse_method(rdata, method)
        elif method == "INVITE" and self._is_refused(rdata, lambda: self._policy.on_invite(host, message)):
            pass
        elif method != "ACK" and (retry_after_s := self._refusal()) is not None:
            self._c.respond(rdata, 503, (("Retry-After", str(retry_after_s)),))
            if method == "INVITE":
                self._on_refused()
        elif method == "OPTIONS":
            self._answer_options(rdata, message)
        else:
            return sip_message.dialog_of(message) is None and self._take_description(rdata, host, message, method)
        return True

    def _is_refused(self, rdata: int, judge: Callable[[], RefusalResponse | None]) -> bool:
        """Whether the policy refuses a request, which is answered then. One for which it fails passes only if the policy
        refuses no callers.
        """
        try:
            refusal = judge()
        except Exception:
            log.exception("policy_failed")
            return self._policy.is_closed
        if refusal is not None and refusal.code:
            self._c.respond(rdata, refusal.code, refusal.headers, reason=refusal.reason)
        return refusal is not None

    def _answer_in_dialog(self, rdata: int, method: str, message: str, dialog: Dialog, *, is_known: bool) -> None:
        if not is_known:
            self._c.respond(rdata, 481)  # PJSIP takes a call whose far side has no tag yet for any dialog
        elif method == "OPTIONS":
            self._answer_options(rdata, message)  # as outside a dialog (RFC 3261 §11); PJSIP would answer 500
        elif method == "REFER":
            self._c.respond(rdata, *self._dialogs.on_refer(dialog[0], dialog[2], message))
        else:
            self._refuse_method(rdata, method)

    def _refuse_method(self, rdata: int, method: str) -> None:
        if method == "SUBSCRIBE":
            self._c.respond(rdata, 489)  # Bad Event (RFC 6665 §4.2.1): no event package is served
        else:
            self._c.respond(rdata, 405, (("Allow", ", ".join(self._capabilities["Allow"][1])),))

    def _answer_options(self, rdata: int, message: str) -> None:
        """Answer OPTIONS: 200, or 420 if it requires an extension that we lack (RFC 3261 §8.2.2.3)."""
        unknown = [tag for tag in sip_message.required_extensions(message) if tag not in EXTENSIONS]
        if unknown:
            tags = sip_message.option_tags(unknown)
            self._c.respond(rdata, 420, (("Unsupported", tags),) if tags else ())
        else:
            self._c.respond(rdata, 200, [(name, ", ".join(tokens)) for name, (_, tokens) in self._capabilities.items()])

    def _take_in_dialog(self, rdata: int, method: str, host: str, message: str, dialog: Dialog) -> bool:
        if self._is_over(*dialog):
            if method != "ACK":
                self._c.respond(rdata, 481)
            return True
        if method == "INFO":
            self._answer_info(rdata, message, dialog)
            return True
        if method == "NOTIFY":
            self._answer_notify(rdata, message, dialog)
            return True
        if method == "BYE":
            self._take_reasons(dialog[0], message)
        elif method != "ACK" and ((leg := self._dialogs.leg_of(dialog[0], dialog[2])) is None or leg.is_ending):
            self._c.respond(rdata, 481)  # our BYE is on its way: PJSUA reports an end of ours before that
            return True
        return self._take_description(rdata, host, message, method)

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
            self._policy.note_malformed(host)
        warning = (("Warning", f'{fault.warning} cc-tts "{fault.text}"'),)
        self._c.respond(rdata, fault.status, (*warning, *(_ACCEPT if fault is _NO_OFFER else ())))
        return True

    # --- responses ------------------------------------------------------------------------------------------------------

    def _on_response(self, rdata: int) -> bool:
        host, message = self._c.message(rdata)
        is_challenge = self._policy.has_password and self._c.method_of(rdata) in ("401", "407", "")
        if is_challenge and self._policy.is_unsolicited_challenge(host, message, is_ours=self._dialogs.is_ours):
            return True  # the request times out
        status = message.partition(" ")[2][:3]
        method = sip_message.cseq_method(message)
        if sip_message.is_ambiguous(message) or sip_message.is_unwritable(message):
            log.debug(
                "response_dropped", reason="line ends, a header that may come once, or a URI that cannot be repeated"
            )
            self._dialogs.on_unreadable(message)
        elif method == "INVITE" and "100" < status < "300" and self._is_stray(message):
            log.debug("response_dropped", sip_code=status)
        elif method == "REFER" and status == "408":
            log.debug("response_dropped", reason="PJSIP would end the call", sip_code=status)
        elif method == "NOTIFY" and status in ("408", "481"):
            log.debug("response_dropped", reason="PJSIP would end the call", sip_code=status)
            call_id, _, remote_tag = sip_message.dialog_of_response(message)
            if (leg := self._dialogs.leg_of(call_id, remote_tag)) is not None:
                leg.referral.refused()
            return True
        else:
            if status < "300" and method in _OFFERING:
                self._drop_unusable_answer(rdata, host, message, method, status)
            for name in sorted(_unusable_headers(message, method)):
                self._c.drop_headers(rdata, name)
            return False
        self._policy.note_malformed(host)
        return True

    def _drop_unusable_answer(self, rdata: int, host: str, message: str, method: str, status: str = "") -> None:
        if sip_message.body_of(message) and (fault := self._fault_of_answer(rdata)):
            log.debug("answer_unusable", method=method, sip_code=status, detail=fault.text)
            self._policy.note_malformed(host)
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

    def _answer_info(self, rdata: int, message: str, dialog: Dialog) -> None:
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
            if (leg := self._dialogs.leg_of(dialog[0], dialog[2])) is not None:
                leg.dtmf.info(max(0, sip_message.cseq_of(message)), key[0], duration_ms=key[1])

    def _answer_notify(self, rdata: int, message: str, dialog: Dialog) -> None:
        """Answer a NOTIFY about a REFER. A body without a status is accepted, and has no effect."""
        notification = refer.notification(message)
        if not self._c.has_dialog(*dialog):  # PJSIP may know it by less, as long as the far side has no tag
            self._c.respond(rdata, 481)
        elif notification is None:
            self._c.respond(rdata, 489)  # Bad Event (RFC 6665 §4.1.3): we subscribe to nothing else
        else:
            leg = self._dialogs.leg_of(dialog[0], dialog[2])
            self._c.respond(rdata, 200 if leg is not None and leg.refer.take(notification) else 481)


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
    if not all(_seconds(text) >= MIN_FLOW_TIMER_S for text in sip_message.header_values(message, "flow-timer")):
        unusable.add("Flow-Timer")
    return unusable


def _is_endless(message: str) -> bool:
    """Whether a registrar's response has a lifetime that PJSIP cannot count."""
    lifetimes = [*sip_message.header_values(message, "expires"), *sip_message.contact_lifetimes(message)]
    return not all(_seconds(text) >= 0 for text in lifetimes)


def _seconds(text: str) -> int:
    """Return the number; -1 if it is none, or more than PJSIP can count."""
    seconds = int(text[:12]) if text.isascii() and text.isdigit() else -1
    return seconds if seconds < MAX_EXPIRES_S else -1
