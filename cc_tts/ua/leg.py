"""One leg: the signalling of a pjsua2 call. Its media is in :mod:`cc_tts.ua.leg_media`. Runs on: the SIP thread."""

import functools
from collections.abc import Callable
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_MS
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.ua import messages
from cc_tts.ua.guard import srtp_sdp
from cc_tts.ua.hold_request import HoldRequest
from cc_tts.ua.leg_media import LegMedia, LegServices
from cc_tts.ua.leg_state import LegEvent, LegState
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.own_requests import OwnRequests
from cc_tts.ua.pjsip.sip_thread import callback, pj_detail
from cc_tts.ua.process.served_call import ServedCall
from cc_tts.ua.refer.leg import LegRefer
from cc_tts.ua.refer.referral import LegReferral
from cc_tts.ua.rtp.dtmf import LegDtmf
from cc_tts.ua.sip import bye
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip import reason as sip_reason
from cc_tts.ua.sip import uri as sip_uri
from cc_tts.ua.sip.redirects import Redirects

log = logs.get(__name__)

_NO_MEDIA: Final = frozenset((406, 415, 488, 606))
"""The statuses with which pjsua ends an answered call whose SDP is missing or unusable (RFC 3261 §21.4)."""
_REFUSES_OFFER: Final = frozenset((pj.PJSIP_SC_NOT_ACCEPTABLE_HERE, pj.PJSIP_SC_NOT_ACCEPTABLE_ANYWHERE))
"""The statuses that refuse a call because of its offer (RFC 3261 §21.4.26, §21.6.4)."""
_ANSWERING: Final = frozenset((pj.PJSIP_INV_STATE_EARLY, pj.PJSIP_INV_STATE_CONNECTING, pj.PJSIP_INV_STATE_CONFIRMED))
"""The states that follow an answer in a response or in the ACK."""
_HELD_BY: Final[dict[int, messages.HeldBy]] = {
    pj.PJSUA_CALL_MEDIA_ACTIVE: "none",
    pj.PJSUA_CALL_MEDIA_REMOTE_HOLD: "remote",
    pj.PJSUA_CALL_MEDIA_LOCAL_HOLD: "local",
}


class Leg(ServedCall, pj.Call):  # type: ignore[misc]
    """A pjsua2 call and its reports."""

    def __init__(
        self, services: LegServices, account: Any, pj_call_id: int, *, call_id: str, buffer: PlayoutBuffer
    ) -> None:
        pj.Call.__init__(self, account, pj_call_id)
        ServedCall.__init__(self, call_id, services.clock, services.send)
        self._services = services
        self._rtp = services.settings.rtp
        self._server = iter((services.settings.sip.user_agent,))  # for the first response: PJSIP keeps it in later ones
        codecs = services.settings.codecs_of(account.trunk)
        self.media: LegMedia = LegMedia(services, self, buffer, codecs=codecs)
        self.dtmf = LegDtmf(services, self)
        self.refer = LegRefer(services, self)
        self.referral = LegReferral(services, self)
        self.is_incoming = pj_call_id != pj.PJSUA_INVALID_ID
        self._negotiated = False  # offer and answer were exchanged, whatever came of it
        self._hold: HoldRequest | None = None
        self._reinvites = OwnRequests(services.library, services.clock)
        self._redirects: Redirects | None = None  # how far a 3xx is followed; None: not at all
        self.is_ending = False
        """Whether PJSIP has sent a BYE by itself, after which there is no session (RFC 3261 §15.1.1)."""
        self.originate: messages.Originate | None = None
        """The server's command that placed an outgoing call."""
        self._offers_plain = False
        self._own_tag = ""
        self._ended_by: messages.EndedBy | None = None
        self._hangup: messages.Hangup | None = None  # waits for the ACK
        self._remote_reasons: tuple[sip_reason.RemoteReason, ...] = ()
        self._unanswered_after_ns = 0
        """An INVITE without a response is given up at this time; 0: by timer B."""

    @property
    def transfer(self) -> tuple[messages.TransferProgress, ...]:
        return self.refer.told

    @property
    def whole_dialog(self) -> tuple[str, str, str]:
        """The Call-ID, our tag and the far side's (RFC 3261 §12)."""
        own, remote = self._tags
        return self.dialog[0], own or self._own_tag, remote or self.dialog[1]

    @property
    def _is_answered(self) -> bool:
        return self._machine.state in (LegState.ANSWERED, LegState.ESTABLISHED)

    @property
    def _awaits_answer(self) -> bool:
        return self.is_incoming and self._machine.state is LegState.INVITED

    # --- what the server asks for -------------------------------------------------------------------------------

    def place(self, settings: messages.UaSettings, may_redirect: Callable[[messages.Originate, str], bool]) -> None:
        """Send the INVITE of :attr:`originate`. ``may_redirect``: whether a 3xx is followed."""
        asked = self.originate
        assert asked is not None
        self._services.before_offer("")
        param = pj_info.call_options()
        if settings.sip.follow_redirects:
            self._redirects = Redirects(asked.to, functools.partial(may_redirect, asked))
        pj_info.add_headers(param, asked.headers)
        param.txOption.localUri = _local_uri(asked, settings.account_uri)
        if (trunk := settings.trunks.get(asked.trunk)) is not None and trunk.response_timeout_ms:
            self._unanswered_after_ns = self._clock.now_ns() + trunk.response_timeout_ms * NS_PER_MS
        try:
            to = sip_uri.with_transport(asked.to, settings.sip.transports)
            self.makeCall(f"<{to}>", param)  # without brackets ;parameters would be the header's (RFC 3261 §20)
            self.dialog = (sip_message.readable(self.getInfo().callIdString), "")
            self._send(messages.CallPlaced(call_id=self.call_id, sip_call_id=self.dialog[0]))
        except pj.Error as error:
            self.finish(sip_code=pj_info.status_of(error))

    def ring(self, ring: messages.Ring) -> None:
        """Send 180, or 183 with SDP (RFC 3261 §13.3.1.1, RFC 3960)."""
        code = pj.PJSIP_SC_PROGRESS if ring.early_media else pj.PJSIP_SC_RINGING
        self.media.lead_in_ms = ring.lead_in_ms
        self.answer(pj_info.response_options(code, next(self._server, "")))
        if ring.early_media:
            self.media.set_may_be_heard(may_be_heard=True)
        self._tell_ringing(code)

    def accept(self, answer: messages.Answer) -> None:
        """Send 200. Without an ACK RTP stops after ``rtp.unacked_ms``: the SDP may name somebody else's address."""
        self.media.lead_in_ms = answer.lead_in_ms
        if not self._rtp.unacked_ms:
            self.media.set_muted(muted=True)
        self.answer(pj_info.response_options(pj.PJSIP_SC_OK, next(self._server, "")))

    def hang_up(self, hangup: messages.Hangup) -> None:
        """End the call once that is possible: the called side sends no BYE before the ACK (RFC 3261 §15). PJSIP would report
        the end at once, and send a BYE without our headers later.
        """
        if self.is_incoming and self._machine.state is LegState.ANSWERED:
            self._hangup = hangup
        else:
            self.end(hangup)

    def end(self, hangup: messages.Hangup, ended_by: messages.EndedBy = "local") -> None:
        """Send BYE, CANCEL or a final refusal, depending on the state. A refusal has the status; a BYE has it in Reason."""
        if self._ended_by is None:
            self._ended_by = ended_by
        self._give_up_reinvite()
        param = pj.CallOpParam()
        if self._is_answered:
            param.statusCode = pj.PJSIP_SC_OK if ended_by == "local" else hangup.sip_code or pj.PJSIP_SC_OK
            pj_info.add_headers(param, bye.bye_headers(hangup, played_ms=self.media.played_ms))
        elif self._awaits_answer:
            param.statusCode, param.reason = hangup.sip_code or pj.PJSIP_SC_DECLINE, hangup.reason
            pj_info.add_headers(param, bye.refusal_headers(hangup, server=next(self._server, "")))
        elif ended_by != "local":
            param.statusCode = hangup.sip_code
        self.hangup(param)

    def end_for_stop(self, *, retry_after_s: int) -> None:
        """End the call because this process stops. If unanswered, it may be tried elsewhere (RFC 3261 §21.5.4)."""
        sip_code = pj.PJSIP_SC_SERVICE_UNAVAILABLE if self._awaits_answer else 0
        self.end(messages.Hangup(call_id=self.call_id, sip_code=sip_code, retry_after_s=retry_after_s))

    def unreadable(self, response: str) -> None:
        """End a call that we place, whose final response PJSIP is not shown: it would wait for another one. An answer cannot
        be acknowledged, and its sender ends the call too (RFC 3261 §13.3.1.4).
        """
        status = response[len("SIP/2.0 ") :][:3]
        if self.is_incoming or self._is_answered or not "200" <= status <= "699" or not status.isdecimal():
            return
        log.warning("response_unreadable", call_id=self.call_id, sip_code=status)
        ended_by: messages.EndedBy = "not_acceptable" if status.startswith("2") else "remote"
        is_redirect = status.startswith("3")
        self._ended_by = ended_by
        self.finish(sip_code=int(status), contacts=tuple(sip_message.contacts(response)) if is_redirect else ())
        self.end(messages.Hangup(call_id=self.call_id), ended_by)

    def take_reasons(self, reasons: tuple[sip_reason.RemoteReason, ...]) -> None:
        """Keep the reasons of a BYE or CANCEL, none if it names none. It may have no effect, so the last one counts."""
        self._remote_reasons = reasons

    def set_hold(self, request: messages.SetHold) -> None:
        """Send a re-INVITE (RFC 3264 §8.4)."""
        self._hold = HoldRequest(hold=request.hold, owns_call_id=not self.is_incoming)
        try:
            self._reinvite(hold=request.hold)
        except pj.Error:
            self._hold = None
            raise

    def _reinvite(self, *, hold: bool) -> None:
        self._services.before_offer(self.media.active.codec if self.media.active else "")
        param = pj_info.call_options()
        if hold:
            self.setHold(param)
        else:
            param.opt.flag = pj.PJSUA_CALL_UNHOLD
            self.reinvite(param)

    def send_dtmf(self, dtmf: messages.SendDtmf) -> None:
        """Send RFC 4733 telephone events, or INFO if the far side takes no events."""
        self.dtmf.send(dtmf, self.media.active.dtmf if self.media.active else None)

    # --- what the clock asks for -----------------------------------------------------------------------------------

    def watch_rtp(self) -> None:
        """Report the quality; end the call when neither RTP nor RTCP has come for too long."""
        if not self.is_over and self.media.watch(is_established=self._is_established):
            hangup = messages.Hangup(call_id=self.call_id, reason="RTP timeout", cause="rtp_inactivity")
            self.end(hangup, "rtp_inactivity")

    def check_timers(self, now_ns: int) -> None:
        """Report a key whose end was lost, stop RTP without an ACK, and repeat a re-INVITE after a 491."""
        if self.is_over:
            return
        self.dtmf.tick(now_ns)
        self.refer.tick()
        self.referral.tick(now_ns)
        is_unacked = self.is_incoming and self._machine.state is LegState.ANSWERED
        is_late = now_ns - self._answered_ns >= self._rtp.unacked_ms * NS_PER_MS
        if is_unacked and is_late and not self.media.is_muted:
            self.media.set_muted(muted=True)
        if self._hold is not None and self._hold.take_due(now_ns):
            self._send_hold_again(self._hold, now_ns)
        if self._unanswered_after_ns and now_ns >= self._unanswered_after_ns:
            log.warning("unreachable", call_id=self.call_id, detail="no response to the INVITE")
            self.end(messages.Hangup(call_id=self.call_id), "unreachable")  # PJSIP sends CANCEL if a response comes yet
            self.finish(sip_code=pj.PJSIP_SC_REQUEST_TIMEOUT)

    def _send_hold_again(self, request: HoldRequest, now_ns: int) -> None:
        try:
            self._reinvite(hold=request.hold)
        except pj.Error as error:  # a re-INVITE of the far side is under way
            request.collided(pj_detail(error), now_ns)
            self._settle_hold(request)

    def _settle_hold(self, request: HoldRequest) -> None:
        if request.is_over:
            self._hold = None
        if request.failure:
            self._send(messages.CommandFailed(call_id=self.call_id, command="hold", detail=request.failure))

    # --- what pjsua2 reports ---------------------------------------------------------------------------------------

    @callback
    def onCallState(self, prm: Any) -> None:
        info, received = self.getInfo(), pj_info.received(prm)
        if not (self.is_incoming or self._transport):
            self._transport = sip_message.via_transport(received)
        if info.state == pj.PJSIP_INV_STATE_CONNECTING:
            self._on_answer()
        self._tags = sip_message.tags(received) or self._tags
        self.media.reports.described(received)
        is_refused = info.state in _ANSWERING and self._refuse_keys(sip_message.body_of(received))
        if info.state == pj.PJSIP_INV_STATE_EARLY and not is_refused:
            if not self.is_incoming:  # ring() reports the ones that we send
                self._tell_ringing(int(info.lastStatusCode), sip_call_id=self.dialog[0])
        elif info.state == pj.PJSIP_INV_STATE_CONFIRMED:
            self._on_ack()
        elif info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            self._on_disconnected(info, received)

    def _on_answer(self) -> None:
        if self._machine.can(LegEvent.ANSWER):
            self._machine.fire(LegEvent.ANSWER)
            self.media.set_may_be_heard(may_be_heard=False)
            self._answered_ns = self._clock.now_ns()

    def _on_ack(self) -> None:
        if not self._machine.can(LegEvent.ACK):
            return
        self._machine.fire(LegEvent.ACK)
        now_ns = self._clock.now_ns()
        self.media.established(now_ns)
        self._tell_established(now_ns, sip_call_id=self.dialog[0])
        if not self._negotiated:
            self._refuse_media("No usable answer to our offer")  # the SDP in the ACK: PJSIP ignores that failure
        elif self._hangup is not None:
            self.end(self._hangup)

    def _on_disconnected(self, info: Any, response: str) -> None:
        """The call is over; ``response`` is the message that ended it, empty if there was none."""
        self._give_up_reinvite()
        self.refer.end()
        self.referral.end()
        sip_code = int(info.lastStatusCode)
        is_own_status = not self.is_incoming and not self._is_answered and self._ended_by is None and not response
        if is_own_status and sip_code >= pj.PJSIP_SC_INTERNAL_SERVER_ERROR:  # PJSIP's: the INVITE could not be sent
            self._ended_by = "unreachable"
            log.warning("unreachable", call_id=self.call_id, detail=sip_message.readable(info.lastReason)[:200])
        is_redirect = sip_code // 100 == 3  # noqa: PLR2004 - the class of the status (RFC 3261 §7.2)
        contacts = tuple(sip_message.contacts(response)) if is_redirect else ()
        if response.startswith("SIP/2.0 "):
            self._remote_reasons = sip_reason.remote_reasons(response)
            if sip_code in _REFUSES_OFFER and self._can_offer_plain():
                self._offer_plain(sip_code)
                return
        self.finish(sip_code=sip_code, contacts=contacts)

    def _can_offer_plain(self) -> bool:
        """Whether the far side may have refused our INVITE because of its keys alone. FreeSWITCH and others take no
        ``a=crypto`` in RTP/AVP, though whoever does not know an attribute has to ignore it (RFC 8866 §5.13).
        """
        is_first_offer = self.originate is not None and not self._offers_plain
        return is_first_offer and self._rtp.srtp == "optional" and not self._is_answered and self._ended_by is None

    def _offer_plain(self, sip_code: int) -> None:
        """Have the INVITE sent again without keys. For the server it is the same call."""
        log.info("offered_again_without_srtp", call_id=self.call_id, sip_code=sip_code)
        self._offers_plain = True
        self._negotiated, self.media.active, self._transport, self._sip_code = False, None, "", 0
        self.media.return_port()
        self._services.place_again(self)

    @callback
    def onCallSdpCreated(self, prm: Any) -> None:
        """We are about to make an offer, or to answer one: to that PJMEDIA answers with its payload types and keys.

        PJMEDIA puts keys into every offer while SRTP is optional: not into those of a call that is not encrypted, whose far
        side would refuse the re-INVITE.
        """
        if theirs := str(prm.remSdp.wholeSdp):
            prm.sdp.wholeSdp = self.media.answering(str(prm.sdp.wholeSdp), theirs)
            return
        sdp = self.media.offering(str(prm.sdp.wholeSdp))
        is_plain = self._offers_plain or (self.media.active is not None and not self.media.active.srtp)
        prm.sdp.wholeSdp = srtp_sdp.without_keys(sdp) if is_plain and self._rtp.srtp == "optional" else sdp

    def onCallRedirected(self, prm: Any) -> int:
        """A 3xx came, or the refusal of somebody whom a 3xx named, and ``prm.targetUri`` is next. REJECT asks for the one
        after it, and ends the call with the last status if there is none.
        """
        try:
            follow = self._follows(sip_message.readable(str(prm.targetUri)), pj_info.received(prm))
        except Exception:
            log.exception("callback_failed", callback="Leg.onCallRedirected")
            follow = False
        return int(pj.PJSIP_REDIRECT_ACCEPT if follow else pj.PJSIP_REDIRECT_REJECT)

    @callback
    def onCallTsxState(self, prm: Any) -> None:
        """A transaction has changed its state: our re-INVITEs, BYE, keys, REFER and NOTIFY matter here."""
        change = pj_info.change_of_own(prm, self.dialog[0], "INVITE", "BYE", "INFO", "REFER", "NOTIFY")
        if change is None:
            return
        if change.tsx.method in ("INVITE", "BYE"):
            self._own_tag = sip_message.from_tag(str(change.tsx.lastTx.wholeMsg)) or self._own_tag
        if change.tsx.method == "BYE":
            self._end_unacknowledged(int(change.tsx.pjTransaction))
            return
        if change.tsx.method in ("REFER", "NOTIFY"):
            (self.refer if change.tsx.method == "REFER" else self.referral).changed(change)
            return
        is_pending = change.tsx.state < pj.PJSIP_TSX_STATE_COMPLETED
        if change.tsx.state >= pj.PJSIP_TSX_STATE_PROCEEDING:
            self._unanswered_after_ns = 0
        if change.tsx.method == "INFO":
            if not (is_pending or self.is_over) and change.prevState < pj.PJSIP_TSX_STATE_COMPLETED:
                self.dtmf.answered(int(change.tsx.statusCode))
            return
        if self._is_established:
            # PJSIP reports an INVITE that it repeats before it reports that the first one has its response
            self._reinvites.note(change)
        is_news = not is_pending and change.prevState < pj.PJSIP_TSX_STATE_COMPLETED
        if self._hold is not None and is_news and not self.is_over:
            is_repeated = bool(self._reinvites)
            self._hold.answered(int(change.tsx.statusCode), self._clock.now_ns(), is_repeated=is_repeated)
            self._settle_hold(self._hold)

    def _end_unacknowledged(self, transaction: int) -> None:
        """PJSIP has sent BYE by itself, since no ACK came: the call is over, whether the BYE is answered or not. PJSIP would
        go on to refresh the session, and asserts that there was an ACK.
        """
        self.is_ending = True
        self._services.library.stop_refreshing(transaction)
        if self.is_incoming and self._machine.state is LegState.ANSWERED and self._ended_by is None:
            self.finish(sip_code=pj.PJSIP_SC_REQUEST_TIMEOUT)

    def finish(self, *, sip_code: int, contacts: tuple[str, ...] = ()) -> None:
        """Report the end and return the port, once."""
        if self.is_over:
            return
        quality = self.media.quality()
        self.dtmf.release()
        ended_by = self._ended_by or _whose_end(sip_code, is_answered=self._is_answered)
        self._machine.fire(LegEvent.END)
        self._services.on_over(self)
        if ended_by == "not_acceptable":  # PJSIP has 406 or 415 for some of its reasons, of which none was sent
            sip_code = pj.PJSIP_SC_NOT_ACCEPTABLE_HERE
        self.media.return_port()
        self.media.buffer.cut(None)
        self._send(
            messages.CallEnded(
                call_id=self.call_id,
                sip_code=sip_code,
                ended_by=ended_by,
                quality=quality,
                contacts=contacts,
                at_ns=self._clock.now_ns(),
                remote_reasons=() if ended_by in ("local", "bridge") else self._remote_reasons,
            )
        )

    @callback
    def onCallMediaState(self, prm: Any) -> None:  # noqa: ARG002
        """SDP was negotiated, the first time or again."""
        if self.is_over:
            return
        self._negotiated = True
        info = self.getInfo()
        media = pj_info.audio_media(info)
        if media is None:
            return
        held_by = _HELD_BY.get(int(media.status))
        if media.status == pj.PJSUA_CALL_MEDIA_ERROR and self._is_established:
            self._refuse_media("No usable media in the answer")  # to a re-INVITE of ours: the stream is gone
        elif held_by is not None:
            expects_rtp = bool(media.dir & pj.PJMEDIA_DIR_DECODING)
            if fault := self.media.negotiated(held_by, expects_rtp=expects_rtp):
                self._refuse_media(fault)

    @callback
    def onStreamCreated(self, prm: Any) -> None:
        self.media.open_stream(int(prm.streamIdx), int(prm.stream))

    @callback
    def onStreamDestroyed(self, prm: Any) -> None:  # noqa: ARG002
        self.media.close_stream()

    @callback
    def onCallTransferRequest(self, prm: Any) -> None:
        """Decline REFER, by which a caller could make us call anybody, and INVITE with Replaces (RFC 3891)."""
        prm.statusCode = pj.PJSIP_SC_DECLINE

    onCallReplaceRequest = onCallTransferRequest  # noqa: N815 - the name is pjsua2's

    @callback
    def onDtmfEvent(self, prm: Any) -> None:
        """A packet of a telephone event has arrived (RFC 4733). Keys by INFO go to :meth:`.LegDtmf.info`."""
        self.dtmf.packet(prm)

    # ----------------------------------------------------------------------------------------------------------------

    def _give_up_reinvite(self) -> None:
        """End its re-INVITE as well: PJSUA would apply the response to the call that has its slot by then."""
        if self._reinvites.end():
            self._hold = None

    def _follows(self, target: str, response: str) -> bool:
        if self._redirects is None or self._ended_by is not None:
            return False
        is_redirect = response.startswith("SIP/2.0 3")
        if not self._redirects.follow(target, sip_message.contacts(response) if is_redirect else ()):
            log.warning("redirect_not_followed", call_id=self.call_id)
            return False
        self._transport = ""
        log.info("redirected", call_id=self.call_id)
        return True

    def _refuse_media(self, fault: str) -> None:
        if self._ended_by is None:
            log.warning("media_refused", call_id=self.call_id, detail=fault)
            self.media.note_port()  # the peer may send there already
            status = pj.PJSIP_SC_NOT_ACCEPTABLE_HERE
            hangup = messages.Hangup(call_id=self.call_id, sip_code=status, reason=fault, cause="not_acceptable")
            self.end(hangup, "not_acceptable")

    def _refuse_keys(self, sdp: str) -> bool:
        """End the call if SRTP is on and the keys of an answer cannot be used; return whether this was done."""
        fault = "" if self._rtp.srtp == "off" else srtp_sdp.fault_of(sdp)
        if fault:
            self._refuse_media(fault)
        return bool(fault)


def _local_uri(asked: messages.Originate, account_uri: str) -> str:
    """Return the From of a call with a given caller; empty for the account's own."""
    if not (asked.from_ or asked.display_name):
        return ""
    name = f"{bye.quoted(asked.display_name)} " if asked.display_name else ""
    return f"{name}<{asked.from_ or account_uri}>"


def _whose_end(sip_code: int, *, is_answered: bool) -> messages.EndedBy:
    """Return who ended a call that the server did not end, from PJSIP's status."""
    if sip_code == pj.PJSIP_SC_REQUEST_TIMEOUT or sip_code >= pj.PJSIP_SC_INTERNAL_SERVER_ERROR:
        return "failure"
    # in an answered call the status is pjsua's own: it could not use the far side's SDP
    return "not_acceptable" if is_answered and sip_code in _NO_MEDIA else "remote"
