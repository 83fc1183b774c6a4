"""One leg: a call of pjsua2 with its playout buffer. Runs on: the SIP thread, except where a docstring says otherwise."""

import contextlib
import secrets
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.media import playout_events
from cc_tts.media.playout_buffer import PlayoutBuffer
from cc_tts.media.quality import Quality
from cc_tts.processes.channel import Message
from cc_tts.state_machine import StateMachine
from cc_tts.ua import messages, pj_info
from cc_tts.ua.guard import srtp_sdp
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.leg_state import LEG_TABLE, LegEvent, LegState
from cc_tts.ua.rtp.audio_port import AudioPort, AudioPorts
from cc_tts.ua.rtp.figures import CallFigures
from cc_tts.ua.rtp.frame_queue import FrameQueue
from cc_tts.ua.rtp.intake import Intake
from cc_tts.ua.rtp.keys import Key, Keypad
from cc_tts.ua.rtp.other_payloads import Decoded
from cc_tts.ua.rtp.source import RtpSourceWatch, port_of
from cc_tts.ua.sip import bye, info_keys
from cc_tts.ua.sip import event_type as events
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip import reason as sip_reason
from cc_tts.ua.sip.redirects import Redirects
from cc_tts.ua.sip_thread import callback, pj_detail

log = logs.get(__name__)

PauseReason = Literal["hold", "request", "speech", "unacked"]
MAX_REINVITES: Final = 5
"""How often a hold is tried while the far side answers 491."""
_NO_MEDIA: Final = frozenset((406, 415, 488, 606))
"""With which pjsua ends an answered call for its SDP, or for want of one (RFC 3261 §21.4)."""
_REFUSES_OFFER: Final = frozenset((pj.PJSIP_SC_NOT_ACCEPTABLE_HERE, pj.PJSIP_SC_NOT_ACCEPTABLE_ANYWHERE))
"""Refusals of a call because of what was offered (RFC 3261 §21.4.26, §21.6.4)."""
_ANSWERING: Final = frozenset((pj.PJSIP_INV_STATE_EARLY, pj.PJSIP_INV_STATE_CONNECTING, pj.PJSIP_INV_STATE_CONFIRMED))
"""States that an answer in a response or in the ACK leads to."""
_DIGITS: Final = frozenset("0123456789*#ABCDR")
"""Events 0 to 16 of RFC 4733 §3.2; R is the hook flash."""
_HELD_BY: Final[dict[int, messages.HeldBy]] = {
    pj.PJSUA_CALL_MEDIA_ACTIVE: "none",
    pj.PJSUA_CALL_MEDIA_REMOTE_HOLD: "remote",
    pj.PJSUA_CALL_MEDIA_LOCAL_HOLD: "local",
}


def _weakly(method: Callable[[str], None]) -> Callable[[str], None]:
    """The method of a leg, for a part of it. A leg that its own parts refer to is destroyed late, and pjsua2 then hangs up
    whichever call has its number by then.
    """
    found = weakref.WeakMethod(method)

    def call(text: str) -> None:
        if (alive := found()) is not None:
            alive(text)

    return call


@dataclass(slots=True)
class _HoldRequest:
    """A re-INVITE to hold or unhold that has no answer yet; ``again_ns``: when to send it once more."""

    hold: bool
    num_pending: int = 0
    again_ns: int | None = None


def glare_pause(*, owns_call_id: bool) -> int:
    """How long to wait after a 491, in units of 10 ms (RFC 3261 §14.1)."""
    return 210 + secrets.randbelow(191) if owns_call_id else secrets.randbelow(201)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegServices:
    """What every leg of a user agent needs. ``before_offer`` gets the codec that the call speaks so far; ``place_again``
    sends another INVITE for a leg whose first one was refused.
    """

    settings: messages.UaSettings
    clock: Clock
    library: CLibrary
    ports: AudioPorts
    send: Callable[[Message], None]
    on_over: Callable[["Leg"], None]
    place_again: Callable[["Leg"], None]
    before_offer: Callable[[str], None]
    intake: Intake
    follows_rtp: bool


class Leg(pj.Call):  # type: ignore[misc]
    """A call of pjsua2 and what is reported of it."""

    def __init__(
        self, services: LegServices, account: Any, pj_call_id: int, *, call_id: str, buffer: PlayoutBuffer
    ) -> None:
        super().__init__(account, pj_call_id)
        self._services = services
        self._rtp = services.settings.rtp
        self._server = services.settings.sip.user_agent  # the header of that name
        self._clock = services.clock
        self._send = services.send
        self.call_id = call_id
        self.buffer = buffer
        self.dialog = ("", "")
        """Call-ID and the far side's tag, which is empty as long as it is not known."""
        self._machine = StateMachine(LEG_TABLE, LegState.INVITED)
        self.underruns = 0
        self._utterance_id, self._played_ms = "", 0.0  # the last one that began, and what was played of it
        self.is_incoming = pj_call_id != pj.PJSUA_INVALID_ID
        self.rtp_ports: set[int] = set()
        self._source_watch = RtpSourceWatch(call_id, follows_rtp=services.follows_rtp)
        self._port: AudioPort | None = None
        self._heard: dict[messages.AudioDirection, FrameQueue] = {}
        """What somebody listens to."""
        self._negotiated = False  # offer and answer were exchanged, whatever came of it
        self._sent_over = ""
        self._media_sent: messages.MediaActive | None = None
        self._hold: _HoldRequest | None = None
        self._reinvites: set[int] = set()  # transactions that have no final response yet
        self.redirects: Redirects | None = None
        """How far a 3xx is followed; ``None``: not at all."""
        self.originate: messages.Originate | None = None
        """What an outgoing call was asked for with."""
        self._offers_plain = False
        self.is_clocked = False  # whether a stream asks the playout buffer for frames
        self._stream_index = 0
        self._stream = 0  # address of PJMEDIA's stream, 0 while there is none
        self._expects_rtp = True
        self._figures = CallFigures(call_id)
        self._held_by: messages.HeldBy = "none"
        self._ended_by: messages.EndedBy | None = None
        self._remote_reasons: tuple[sip_reason.RemoteReason, ...] = ()
        self._info_cseq, self._sip_code = -1, 0  # the latter of the last provisional response
        self._pause_reasons: set[PauseReason] = set()
        self._received = (-1, 0)  # packets of RTP and of RTCP
        self._last_packet_ns = 0
        self._keypad = Keypad()
        self._info_keys = info_keys.InfoKeys(_weakly(self._send_info), _weakly(self._dtmf_failed))
        self._event_type = events.USUAL  # of telephone events in our SDP
        self._answered_ns = self._established_ns = self._lead_in_ms = 0
        self._is_report_sent = self._offers_early_media = self._is_open = False
        self.record = b""
        """The server's own, for the one that adopts the call."""
        self.invite: messages.IncomingCall | None = None
        self._reached: Literal["invited", "answered", "established"] = "invited"

    @property
    def is_over(self) -> bool:
        """Whether :class:`.CallEnded` has been sent."""
        return self._machine.state is LegState.OVER

    @property
    def _is_established(self) -> bool:
        return self._machine.state is LegState.ESTABLISHED

    @property
    def _is_answered(self) -> bool:
        return self._machine.state in (LegState.ANSWERED, LegState.ESTABLISHED)

    @property
    def _awaits_answer(self) -> bool:
        """Whether it came in and has not been answered."""
        return self.is_incoming and self._machine.state is LegState.INVITED

    # --- what the server asks for -------------------------------------------------------------------------------

    def ring(self, ring: messages.Ring) -> None:
        """180, or 183 with SDP (RFC 3261 §13.3.1.1, RFC 3960)."""
        code = pj.PJSIP_SC_PROGRESS if ring.early_media else pj.PJSIP_SC_RINGING
        self._lead_in_ms = ring.lead_in_ms
        self._respond(code)
        self._offers_early_media = self._offers_early_media or ring.early_media
        self._open_buffer()
        self._sip_code = code
        self._send(messages.CallRinging(call_id=self.call_id, sip_call_id="", sip_code=code))

    def accept(self, answer: messages.Answer) -> None:
        """200. Without an ACK RTP stops after ``rtp.unacked_ms``: the INVITE may name somebody else's address in its SDP."""
        self._lead_in_ms = answer.lead_in_ms
        if not self._rtp.unacked_ms:
            self._set_muted(muted=True)
        self._respond(pj.PJSIP_SC_OK)

    def end(self, hangup: messages.Hangup, ended_by: messages.EndedBy = "local") -> None:
        """Send BYE, CANCEL or a final refusal, by the state. A refusal has the status; a BYE has it in Reason."""
        if self._ended_by is None:
            self._ended_by = ended_by
        self._give_up_reinvite()
        param = pj.CallOpParam()
        if self._is_answered:
            param.statusCode = pj.PJSIP_SC_OK if ended_by == "local" else hangup.sip_code or pj.PJSIP_SC_OK
            pj_info.add_headers(param, bye.bye_headers(hangup, played_ms=self._played_ms))
        elif self._awaits_answer:
            param.statusCode, param.reason = hangup.sip_code or pj.PJSIP_SC_DECLINE, hangup.reason
            pj_info.add_headers(param, bye.refusal_headers(hangup, server=self._server))
        elif ended_by != "local":
            param.statusCode = hangup.sip_code
        self.hangup(param)

    def end_for_stop(self, *, retry_after_s: int) -> None:
        """End it because this process stops: a call that waits for our answer may be tried elsewhere (RFC 3261 §21.5.4)."""
        sip_code = pj.PJSIP_SC_SERVICE_UNAVAILABLE if self._awaits_answer else 0
        self.end(messages.Hangup(call_id=self.call_id, sip_code=sip_code, retry_after_s=retry_after_s))

    def keep_record(self, keep: messages.KeepRecord) -> None:
        """Keep what the server knows of the call."""
        self.record = keep.record

    def detach_server(self) -> None:
        """Play what is there; nobody writes, listens, or holds the prompt for speech that it hears."""
        self.buffer.finish_all()
        self.set_paused("speech", paused=False)
        self.set_listening(messages.SetListening(call_id=self.call_id, directions=()))

    def snapshot(self) -> messages.CallSnapshot:
        """For the server that adopts the call."""
        return messages.CallSnapshot(
            call_id=self.call_id,
            record=self.record,
            state=self._reached,
            sip_call_id=self.dialog[0],
            sip_code=self._sip_code,
            established_ns=self._established_ns,
            transport=self._sent_over,
            held_by=self._held_by,
            media=self._media_sent,
            invite=self.invite,
            utterances=tuple(self.buffer.positions()),
        )

    def take_key(self, cseq: int, key: str, *, duration_ms: int) -> None:
        """A key came by INFO of this CSeq, which is higher each time unless it is sent again (RFC 3261 §12.2.2)."""
        if cseq > self._info_cseq:
            self._info_cseq = cseq
            self._report_key(Key(key, "sip_info", self._clock.now_ns(), duration_ms))

    def take_reasons(self, reasons: tuple[sip_reason.RemoteReason, ...]) -> None:
        """A BYE or CANCEL came with these, none if it names none. It may be one of no effect: the last one counts."""
        self._remote_reasons = reasons

    def set_hold(self, request: messages.SetHold) -> None:
        """Re-INVITE (RFC 3264 §8.4)."""
        self._hold = _HoldRequest(request.hold)
        try:
            self._reinvite(hold=request.hold)
        except pj.Error:
            self._hold = None
            raise

    def _reinvite(self, *, hold: bool) -> None:
        self._services.before_offer(self._media_sent.codec if self._media_sent else "")
        param = pj_info.call_options()
        if hold:
            self.setHold(param)
        else:
            param.opt.flag = pj.PJSUA_CALL_UNHOLD
            self.reinvite(param)

    def send_dtmf(self, dtmf: messages.SendDtmf) -> None:
        """RFC 4733 telephone events; INFO if the far side takes none of them."""
        if self._media_sent is not None and self._media_sent.dtmf == "sip_info":
            self._info_keys.put(dtmf.digits, dtmf.duration_ms, self._clock.now_ns())
            return
        param = pj.CallSendDtmfParam()
        param.method = pj.PJSUA_DTMF_METHOD_RFC2833
        param.digits = dtmf.digits
        param.duration = dtmf.duration_ms
        self.sendDtmf(param)

    def _send_info(self, body: str) -> None:
        param = pj.CallSendRequestParam()
        param.method, param.txOption.contentType, param.txOption.msgBody = "INFO", info_keys.MEDIA_TYPE, body
        self.sendRequest(param)

    def _dtmf_failed(self, detail: str) -> None:
        self._send(messages.CommandFailed(call_id=self.call_id, command="dtmf", detail=detail))

    def _dtmf_method(self) -> messages.DtmfMethod | None:
        if self._services.library.takes_events(self._stream):
            return "rfc4733"
        allows = self.remoteHasCap(pj.PJSIP_H_ALLOW, "", "INFO")  # of the far side's last Allow (RFC 3261 §20.5)
        return "sip_info" if allows == pj.PJSIP_DIALOG_CAP_SUPPORTED else None

    def set_listening(self, listening: messages.SetListening) -> None:
        """Keep the frames of these directions for :meth:`take_audio`. Without ``in`` nothing is decoded."""
        was_heard = "in" in self._heard
        self._heard = {each: self._heard.get(each) or FrameQueue() for each in listening.directions}
        if self._port is None:
            return  # _connect() follows
        self._port.listen(received=self._heard.get("in"), sent=self._heard.get("out"))
        if self.is_clocked and was_heard != ("in" in self._heard):
            self._connect_received(drop_old=True)

    def _connect_received(self, *, drop_old: bool = False) -> None:
        media = self.getAudioMedia(-1)
        if "in" not in self._heard:
            with contextlib.suppress(pj.Error):  # it was not connected
                media.stopTransmit(self._port)
            return
        if drop_old and self._stream:
            self._services.library.drop_received(self._stream)
        media.startTransmit(self._port)

    def take_audio(self) -> Iterator[tuple[messages.CallAudio, bytes]]:
        """The frames that were kept since the last time."""
        for direction, queue in self._heard.items():
            while (taken := queue.take()) is not None:
                at_ns, num_dropped, pcm = taken
                yield messages.CallAudio(self.call_id, direction, at_ns, num_dropped), pcm

    def set_paused(self, reason: PauseReason, *, paused: bool, restart: tuple[str, float] | None = None) -> None:
        """Stop the prompt's clock while any reason holds; ``restart`` is that of the buffer. Runs on: the SIP thread or the
        reader thread.
        """
        if paused:
            self._pause_reasons.add(reason)
        else:
            self._pause_reasons.discard(reason)
        if self._pause_reasons:
            self.buffer.pause()
        else:
            self.buffer.resume(restart=restart)

    def note_playout(self, event: playout_events.PlayoutEvent) -> None:
        """What the playout buffer reported."""
        match event:
            case playout_events.PlayoutUnderrun():
                self.underruns += 1
            case playout_events.PlayoutStarted():
                self._utterance_id, self._played_ms = event.utterance_id, 0.0
            case playout_events.PlayoutProgress() | playout_events.PlayoutFinished():
                if event.utterance_id == self._utterance_id:  # not one that was cut before it began
                    self._played_ms = event.played_ms

    # --- what is asked of the leg every second ---------------------------------------------------------------------

    def quality(self) -> Quality:
        """Figures of the call so far, over all its streams."""
        if self._port is not None:
            self._figures.late_frames = self._port.late_frames
        if self._stream:
            self._figures.poll(self, self._stream_index)
        return self._figures.quality(underruns=self.underruns)

    def watch_rtp(self) -> None:
        """Report quality; end the call when neither RTP nor RTCP has come for too long. A held leg owes none."""
        if self.is_over or self._port is None:
            return
        quality = self.quality()
        self._send(messages.QualityReport(call_id=self.call_id, quality=quality))
        if self._stream:
            self._send_first_report(quality)
            num_discarded = self._figures.num_discarded + self._services.intake.num_unknown(self._stream)
            self._source_watch.poll(self, self._stream_index, num_discarded=num_discarded)
        self._watch_inactivity(quality)

    def _send_first_report(self, quality: Quality) -> None:
        """Send an RTCP report once packets flow. PJMEDIA's first comes after five seconds, and a round trip is measured by
        what answers it (RFC 3550 §6.2: the first report may come at once).
        """
        if self._is_established and quality.packets_sent and not self._is_report_sent:
            self._is_report_sent = True
            self._services.library.send_report(self._stream)

    def _watch_inactivity(self, quality: Quality) -> None:
        now_ns, timeout_s = self._clock.now_ns(), self._rtp.inactivity_timeout_s
        owes_rtp = self._is_established and self._held_by == "none" and self._expects_rtp
        received = (quality.packets_received, self._services.intake.num_rtcp(self._stream))
        if received != self._received or not owes_rtp:
            self._received = received
            self._last_packet_ns = now_ns
        elif timeout_s and (now_ns - self._last_packet_ns) / 1e9 > timeout_s:
            hangup = messages.Hangup(call_id=self.call_id, reason="RTP timeout", cause="rtp_inactivity")
            self.end(hangup, "rtp_inactivity")

    def keep_time(self, now_ns: int) -> None:
        """Keep the playout buffer's clock going while no stream does, so that a cut is carried out on a leg that is held or
        has no media yet.
        """
        if self.is_over:
            return
        frame = self.buffer.read_frame(now_ns)
        if self._port is not None:
            self._port.keep_time(now_ns, frame)

    def check_timers(self, now_ns: int) -> None:
        """Report a key whose end was lost, stop RTP that nobody acknowledged, send a re-INVITE again after a 491."""
        self._report_key(self._keypad.overdue(now_ns))
        if not self.is_over:
            self._send_next_key(now_ns)
        is_unacked = self.is_incoming and self._machine.state is LegState.ANSWERED
        if is_unacked and not self._is_muted and now_ns - self._answered_ns >= self._rtp.unacked_ms * NS_PER_MS:
            self._set_muted(muted=True)
        if (request := self._hold) is not None and not self.is_over:
            self._send_hold_again(request, now_ns)

    def _send_next_key(self, now_ns: int) -> None:
        try:
            self._info_keys.tick(now_ns)
        except pj.Error as error:
            self._dtmf_failed(pj_detail(error))

    def _send_hold_again(self, request: _HoldRequest, now_ns: int) -> None:
        if request.again_ns is None or now_ns < request.again_ns:
            return
        request.again_ns = None
        try:
            self._reinvite(hold=request.hold)
        except pj.Error as error:  # one of the far side's is under way
            self._hold_again(request, pj_detail(error))

    # --- what pjsua2 reports ---------------------------------------------------------------------------------------

    @callback
    def onCallState(self, prm: Any) -> None:
        """The state of the INVITE session changed."""
        info = self.getInfo()
        if not (self.is_incoming or self._sent_over):
            self._sent_over = pj_info.answered_over(prm)
        if info.state == pj.PJSIP_INV_STATE_CONNECTING:
            self._on_answer()
        is_refused = info.state in _ANSWERING and self._refuse_keys(prm)
        if info.state == pj.PJSIP_INV_STATE_EARLY and not is_refused:
            self._on_provisional(int(info.lastStatusCode))
        elif info.state == pj.PJSIP_INV_STATE_CONFIRMED:
            self._on_ack()
        elif info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            self._on_disconnected(info, pj_info.received(prm))

    def _on_answer(self) -> None:
        if self._machine.can(LegEvent.ANSWER):
            self._machine.fire(LegEvent.ANSWER)
            self._reached = "answered"
            self._answered_ns = self._clock.now_ns()

    def _on_provisional(self, sip_code: int) -> None:
        if not self.is_incoming:  # what we send ourselves is reported by ring()
            self._sip_code = sip_code
            self._send(messages.CallRinging(call_id=self.call_id, sip_call_id=self.dialog[0], sip_code=sip_code))

    def _on_ack(self) -> None:
        if not self._machine.can(LegEvent.ACK):
            return
        self._machine.fire(LegEvent.ACK)
        self._reached = "established"
        self._last_packet_ns = self._established_ns = now_ns = self._clock.now_ns()
        if self._is_muted:
            self._set_muted(muted=False)
        self._open_buffer()
        self._send(
            messages.CallEstablished(
                call_id=self.call_id, sip_call_id=self.dialog[0], at_ns=now_ns, transport=self._sent_over
            )
        )
        if not self._negotiated:
            self._refuse_media("No usable answer to our offer")  # in the ACK: PJSIP lets such a call be

    def _on_disconnected(self, info: Any, response: str) -> None:
        """The call is over; ``response`` is the message that ended it, empty if none did."""
        self._give_up_reinvite()
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
        """Have the INVITE sent once more, without keys. The call is the same to the server, whatever came before."""
        log.info("offered_again_without_srtp", call_id=self.call_id, sip_code=sip_code)
        self._offers_plain = True
        self._negotiated, self._media_sent, self._sent_over, self._sip_code = False, None, "", 0
        self._return_port()
        self._services.place_again(self)

    @callback
    def onCallSdpCreated(self, prm: Any) -> None:
        """We are about to make an offer, or to answer one: to that PJMEDIA answers with its payload types and keys.

        PJMEDIA puts keys into every offer while SRTP is optional: not into those of a call that is not encrypted, whose far
        side would refuse the re-INVITE.
        """
        if theirs := str(prm.remSdp.wholeSdp):
            self._event_type = events.event_type(theirs) or self._event_type
            return
        sdp = events.with_event_type(str(prm.sdp.wholeSdp), self._event_type)
        is_plain = self._offers_plain or (self._media_sent is not None and not self._media_sent.srtp)
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
        """A transaction changed its state: of interest are our re-INVITEs and the keys that we send."""
        change = pj_info.change_of_own(prm, "INVITE", "INFO")
        if change is None:
            return
        is_pending = change.tsx.state < pj.PJSIP_TSX_STATE_COMPLETED
        if change.tsx.method == "INFO":
            if not (is_pending or self.is_over) and change.prevState < pj.PJSIP_TSX_STATE_COMPLETED:
                self._info_keys.answered(int(change.tsx.statusCode))
            return
        if self._is_established:
            # PJSIP reports an INVITE that it repeats before it reports that the first one has its response
            (self._reinvites.add if is_pending else self._reinvites.discard)(int(change.tsx.pjTransaction))
        is_news = not is_pending and change.prevState < pj.PJSIP_TSX_STATE_COMPLETED
        if self._hold is not None and is_news and not self.is_over:
            self._on_hold_answer(self._hold, int(change.tsx.statusCode))

    def _on_hold_answer(self, request: _HoldRequest, status: int) -> None:
        if status == pj.PJSIP_SC_REQUEST_PENDING:
            self._hold_again(request, "491 Request Pending")
        elif status >= pj.PJSIP_SC_MULTIPLE_CHOICES and not self._reinvites:  # PJSIP has not repeated it
            self._hold_failed(f"the far side answered {status}")
        elif 0 < status < pj.PJSIP_SC_MULTIPLE_CHOICES:
            self._hold = None

    def finish(self, *, sip_code: int, contacts: tuple[str, ...] = ()) -> None:
        """Report the end and give the port back, once."""
        if self.is_over:
            return
        quality = self.quality()
        self._report_key(self._keypad.release())
        ended_by = self._ended_by or self._whose_end(sip_code)
        self._machine.fire(LegEvent.END)
        self._services.on_over(self)
        if ended_by == "not_acceptable":  # PJSIP has 406 or 415 for some of its reasons, of which none was sent
            sip_code = pj.PJSIP_SC_NOT_ACCEPTABLE_HERE
        self._return_port()
        self.buffer.cut(None)
        self._send(
            messages.CallEnded(
                call_id=self.call_id,
                sip_code=sip_code,
                ended_by=ended_by,
                quality=quality,
                contacts=contacts,
                at_ns=self._clock.now_ns(),
                remote_reasons=() if ended_by == "local" else self._remote_reasons,
            )
        )

    def _return_port(self) -> None:
        self.is_clocked = False
        if self._port is not None:
            self._services.ports.take_back(self._port)
            self._port = None

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
            self._expects_rtp = bool(media.dir & pj.PJMEDIA_DIR_DECODING)
            self._connect(must=held_by == "none")
            self._set_held(held_by)
            self._note_port()

    @callback
    def onStreamCreated(self, prm: Any) -> None:
        """PJMEDIA has a stream for this leg, for the m-line of this index."""
        self._stream_index = int(prm.streamIdx)
        self._stream = int(prm.stream)
        self._services.intake.open(self._stream)
        if self._is_muted:
            self._services.library.pause_stream(self._stream, paused=True)
        self._source_watch.new_stream()
        if self._port is not None:
            self._port.expect_a_pause()

    @callback
    def onStreamDestroyed(self, prm: Any) -> None:  # noqa: ARG002
        """Read its figures before it goes."""
        self.quality()
        self._figures.stream_ended()
        self._services.intake.close(self._stream)
        self._stream = 0

    @callback
    def onCallTransferRequest(self, prm: Any) -> None:
        """Decline REFER, by which a caller could make us call anybody, and INVITE with Replaces (RFC 3891)."""
        prm.statusCode = pj.PJSIP_SC_DECLINE

    onCallReplaceRequest = onCallTransferRequest  # noqa: N815 - the name is pjsua2's

    @callback
    def onDtmfEvent(self, prm: Any) -> None:
        """A packet of a telephone event (RFC 4733). Keys by INFO come to :meth:`take_key`."""
        digit = str(prm.digit)[:1]
        if digit not in _DIGITS:
            return
        now_ns = self._clock.now_ns()
        edges = self._keypad.packet(
            digit,
            timestamp_ms=int(prm.timestamp),
            duration_ms=int(prm.duration),
            is_update=bool(prm.flags & pj_info.DTMF_IS_UPDATE),
            is_end=bool(prm.flags & pj_info.DTMF_IS_END),
            now_ns=now_ns,
        )
        for edge, key in edges:
            if edge == "down":
                self._send(messages.DtmfBegan(call_id=self.call_id, at_ns=key.began_ns))
            else:
                self._report_key(key)

    # ----------------------------------------------------------------------------------------------------------------

    def _give_up_reinvite(self) -> None:
        """End its re-INVITE, too: PJSUA would apply the response to the call that has this call slot by then."""
        if self._reinvites:
            self._hold = None
        while self._reinvites:
            self._services.library.end_transaction(self._reinvites.pop(), pj.PJSIP_SC_REQUEST_TERMINATED)

    def _report_key(self, key: Key | None) -> None:
        if key is not None:
            self._send(
                messages.DtmfReceived(
                    call_id=self.call_id,
                    digit=key.digit,
                    duration_ms=key.duration_ms,
                    method=key.method,
                    at_ns=key.began_ns,
                )
            )

    def _whose_end(self, sip_code: int) -> messages.EndedBy:
        """Who ended a call that the server did not end, by the status that PJSIP gives."""
        if sip_code == pj.PJSIP_SC_REQUEST_TIMEOUT or sip_code >= pj.PJSIP_SC_INTERNAL_SERVER_ERROR:
            return "failure"
        # in an answered call it is pjsua's own, when nothing can be made of the far side's SDP
        return "not_acceptable" if self._is_answered and sip_code in _NO_MEDIA else "remote"

    def _follows(self, target: str, response: str) -> bool:
        if self.redirects is None or self._ended_by is not None:
            return False
        is_redirect = response.startswith("SIP/2.0 3")
        if not self.redirects.follow(target, sip_message.contacts(response) if is_redirect else ()):
            log.warning("redirect_not_followed", call_id=self.call_id)
            return False
        self._sent_over = ""
        log.info("redirected", call_id=self.call_id)
        return True

    def _hold_again(self, request: _HoldRequest, detail: str) -> None:
        """After both sides sent a re-INVITE at once, after a time that differs between them (RFC 3261 §14.1)."""
        request.num_pending += 1
        if request.num_pending >= MAX_REINVITES:
            self._hold_failed(detail)
        else:
            request.again_ns = self._clock.now_ns() + 10 * NS_PER_MS * glare_pause(owns_call_id=not self.is_incoming)

    def _hold_failed(self, detail: str) -> None:
        self._hold = None
        self._send(messages.CommandFailed(call_id=self.call_id, command="hold", detail=detail))

    def _respond(self, code: int) -> None:
        param = pj_info.call_options()
        param.statusCode = code
        pj_info.add_headers(param, {"Server": self._server} if self._server else {})
        self.answer(param)

    def _connect(self, *, must: bool) -> None:
        """Put the playout buffer on the conference bridge again: a re-INVITE may have made a new stream."""
        is_encrypted = self._rtp.srtp != "off" and pj_info.is_encrypted(self)
        if self._rtp.srtp == "required" and self._stream and not is_encrypted:
            self._refuse_media("SRTP required")  # a re-INVITE of ours may have been answered with an empty key
            return
        if self._port is None:
            self._port = self._services.ports.lend(self.buffer)
            self._port.listen(received=self._heard.get("in"), sent=self._heard.get("out"))
        try:
            self._port.startTransmit(self.getAudioMedia(-1))
        except pj.Error:
            self.is_clocked = False  # a=inactive leaves no stream: nothing asks for frames, see keep_time()
            if must:
                raise
            return
        self.is_clocked = True
        if "in" in self._heard:
            self._connect_received()
        self._open_buffer()
        self._report_media(srtp=is_encrypted)

    def _open_buffer(self) -> None:
        """Let the prompts be heard once there is media and the far side listens: after the ACK, or while we ring with early
        media. Many a PBX connects its caller with its ACK, and what was played before that is not heard.
        """
        may_be_heard = self._is_established or (self._offers_early_media and self._awaits_answer)
        if may_be_heard and self._port is not None and not self._is_open:
            self._is_open = True
            self.buffer.open(self._clock.now_ns() + self._lead_in_ms * NS_PER_MS)

    def _report_media(self, *, srtp: bool) -> None:
        info = self.getStreamInfo(self._stream_index)
        decoded = Decoded(info.codecName, int(info.rxPt), int(info.txPt), self._event_type)
        self._services.intake.decode(self._stream, decoded)
        media = messages.MediaActive(
            call_id=self.call_id,
            codec=info.codecName,
            clock_rate_hz=self._rtp.clock_rate_hz,
            srtp=srtp,
            dtmf=self._dtmf_method(),
        )
        if media != self._media_sent:
            self._media_sent = media
            self._send(media)

    @property
    def _is_muted(self) -> bool:
        return "unacked" in self._pause_reasons

    def _set_muted(self, *, muted: bool) -> None:
        self.set_paused("unacked", paused=muted)
        if self._stream:
            self._services.library.pause_stream(self._stream, paused=muted)

    def _refuse_media(self, fault: str) -> None:
        """End the call, as there would be no audio, or it would not be encrypted."""
        if self._ended_by is None:
            log.warning("media_refused", call_id=self.call_id, detail=fault)
            self._note_port()  # the peer may send there already
            status = pj.PJSIP_SC_NOT_ACCEPTABLE_HERE
            hangup = messages.Hangup(call_id=self.call_id, sip_code=status, reason=fault, cause="not_acceptable")
            self.end(hangup, "not_acceptable")

    def _refuse_keys(self, prm: Any) -> bool:
        """With SRTP on, end the call if the keys of an answer cannot be used; returns whether that is so."""
        fault = "" if self._rtp.srtp == "off" else pj_info.fault_of_answer(prm)
        if fault:
            self._refuse_media(fault)
        return bool(fault)

    def _note_port(self) -> None:
        """Note where the peer sends RTP, for the cooldown."""
        try:
            transport = self.getMedTransportInfo(self._stream_index)
        except pj.Error:
            return
        if port := port_of(transport.localRtpName):
            self.rtp_ports.add(port)

    def _set_held(self, by: messages.HeldBy) -> None:
        if by == self._held_by:
            return
        self._held_by = by
        self.set_paused("hold", paused=by != "none")
        self._send(messages.HoldChanged(call_id=self.call_id, by=by))
