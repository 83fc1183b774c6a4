"""One call of the softphone: its SIP side in pjsua2, its RTP side in :mod:`cc_tts.softphone.rtp.endpoint`.

Runs on: the SIP thread. pjsua2's callbacks only record and enqueue; :meth:`SoftphoneCall.settle` does the rest after
``libHandleEvents`` has returned.
"""

from collections.abc import Callable
from typing import Any, Final

import pjsua2 as pj

from cc_tts import logs
from cc_tts.clock import NS_PER_MS, Clock, ms_between
from cc_tts.softphone import sdp
from cc_tts.softphone.facts import CallFacts, ending_of
from cc_tts.softphone.plan import DialPlan
from cc_tts.softphone.report import (
    CallReport,
    Ending,
    KeyReport,
    RecordingReport,
    SpeakReport,
    Spurt,
    rtp_report,
)
from cc_tts.softphone.rtp.endpoint import RtpEndpoint, RtpTarget, open_socket
from cc_tts.softphone.rtp.packets import PAYLOAD_TYPES, RATE_HZ, Keypress, event_code
from cc_tts.softphone.rtp.receiver import ReceivedKey, RtpReceiver
from cc_tts.ua.sip_thread import SipThread, callback, pj_detail

log = logs.get(__name__)

_HANGUP_TIMEOUT_NS: Final = 5_000_000_000
"""Time to wait for the response to our BYE or CANCEL before the call counts as ended."""
_DTMF_TIMEOUT_REASON: Final = "the far side offers no telephone-event or is on hold"

Emit = Callable[[dict[str, Any]], None]


class _PjCall(pj.Call):  # type: ignore[misc]  # pjsua2 has no types
    """The pjsua2 call.

    It holds its owner only until it is disposed of, so that no reference cycle is left to the collector, which might
    run on another thread.
    """

    def __init__(self, account: Any, owner: "SoftphoneCall") -> None:
        super().__init__(account)
        self.owner: SoftphoneCall | None = owner

    @callback
    def onCallState(self, prm: Any) -> None:
        if self.owner is not None:
            self.owner.note_state(self.getInfo(), prm.e)

    @callback
    def onCallTsxState(self, prm: Any) -> None:
        if self.owner is not None:
            self.owner.note_transaction(prm.e)

    @callback
    def onCallSdpCreated(self, prm: Any) -> None:
        if self.owner is not None:
            if prm.remSdp.wholeSdp:
                self.owner.facts.remote_sdp = prm.remSdp.wholeSdp
            prm.sdp.wholeSdp = self.owner.own_sdp(prm.sdp.wholeSdp)

    @callback
    def onCallMediaState(self, _prm: Any) -> None:
        if self.owner is not None:
            self.owner.facts.is_media_changed = True


class SoftphoneCall:
    """One call from the INVITE to the report."""

    def __init__(self, plan: DialPlan, *, account: Any, address: str, clock: Clock, emit: Emit) -> None:
        self.plan = plan
        self.facts = CallFacts()
        self.speak: SpeakReport | None = None
        self.ending: Ending | None = None
        self._clock = clock
        self._emit = emit
        self._address = address
        self._receiver = RtpReceiver(on_edge=self._on_edge, on_key=self._on_key_received)
        self._rtp = RtpEndpoint(
            open_socket(address, plan.rtp_port), self._receiver, clock, on_key_sent=self._on_key_sent
        )
        self._keys_sent: list[tuple[Keypress, int]] = []
        self._is_answer_reported = False
        self._is_ringing_reported = False
        self._is_held: bool | None = None
        self._pj: _PjCall | None = _PjCall(account, self)

    # commands, on the SIP thread ------------------------------------------------------------------------------------

    def dial(self) -> None:
        """Send the INVITE."""
        SipThread.check()
        assert self._pj is not None
        param = pj.CallOpParam(True)  # noqa: FBT003 - pjsua2: "use default call settings"
        param.opt.audioCount = 1
        param.opt.videoCount = 0
        headers = pj.SipHeaderVector()
        for name, value in self.plan.headers.items():
            header = pj.SipHeader()
            header.hName, header.hValue = name, value
            headers.append(header)
        param.txOption.headers = headers
        self._rtp.start()
        self.facts.invite_ns = self._clock.now_ns()
        try:
            self._pj.makeCall(f"<{self.plan.uri}>", param)  # so that ;parameters stay the URI's own
        except pj.Error as error:
            self._end(Ending("unreachable", "nobody", reason=pj_detail(error)))
            return
        self.facts.sip_call_id = self._pj.getInfo().callIdString
        self._report_event(
            "dialing", self.facts.invite_ns, sip_call_id=self.facts.sip_call_id, rtp_port=self._rtp.local_port
        )

    def press(self, digits: str, *, duration_ms: int = 100, at_ns: int = 0) -> None:
        """Press keys by RFC 4733, not before ``at_ns``."""
        keys = [Keypress(event_code(digit), duration_ms, at_ns) for digit in digits]
        if self._is_answer_reported and not self._rtp.can_press:
            raise ValueError(f"no DTMF now: {_DTMF_TIMEOUT_REASON}")
        for key in keys:
            self._rtp.press(key)

    def hold(self) -> None:
        """Re-INVITE with a=sendonly (RFC 3264 §8.4)."""
        SipThread.check()
        if self._pj is not None and self.facts.is_connected:
            self._try(lambda call: call.setHold(pj.CallOpParam(True)))  # noqa: FBT003

    def unhold(self) -> None:
        """Re-INVITE with a=sendrecv."""
        SipThread.check()

        def reinvite(call: Any) -> None:
            param = pj.CallOpParam(True)  # noqa: FBT003 - without it the m= line is disabled
            param.opt.audioCount = 1
            param.opt.videoCount = 0
            param.opt.flag = pj.PJSUA_CALL_UNHOLD
            call.reinvite(param)

        if self._pj is not None and self.facts.is_connected:
            self._try(reinvite)

    def hang_up(self) -> None:
        """BYE, or CANCEL before the answer."""
        SipThread.check()
        if self.facts.hangup_ns is None and self.ending is None and not self.facts.is_disconnected:
            self.facts.hangup_ns = self._clock.now_ns()
            self._try(lambda call: call.hangup(pj.CallOpParam()))

    def _try(self, command: Callable[[Any], None]) -> None:
        try:
            command(self._pj)
        except pj.Error as error:
            self._report_event("error", self._clock.now_ns(), detail=pj_detail(error))

    def dispose(self) -> None:
        """Delete the pjsua2 call: outside callbacks, on the SIP thread, before the library goes."""
        SipThread.check()
        if self._pj is not None:
            self._pj.owner = None
            self._pj = None
        self._rtp.close()

    # callbacks: record only -----------------------------------------------------------------------------------------

    def note_state(self, info: Any, event: Any) -> None:
        """``onCallState``: instants of ringing, answer and end."""
        now_ns = self._clock.now_ns()
        facts = self.facts
        self._note_message(event)
        if info.state == pj.PJSIP_INV_STATE_EARLY and facts.ringing_ns is None:
            facts.ringing_ns = now_ns
        if info.state == pj.PJSIP_INV_STATE_CONNECTING and facts.answered_ns is None:
            facts.answered_ns = now_ns
        if info.state == pj.PJSIP_INV_STATE_CONFIRMED:
            facts.is_connected = True
        if info.state == pj.PJSIP_INV_STATE_DISCONNECTED:
            facts.is_disconnected = True
            facts.ended_ns = now_ns
            facts.last_code, facts.last_reason = info.lastStatusCode, info.lastReason

    def note_transaction(self, event: Any) -> None:
        """``onCallTsxState``: 100 Trying, the peer's BYE."""
        transaction = event.body.tsxState.tsx
        if transaction.method == "BYE" and transaction.role == pj.PJSIP_ROLE_UAS:
            self.facts.has_remote_bye = True
        self._note_message(event)

    def _note_message(self, event: Any) -> None:
        if event.type != pj.PJSIP_EVENT_TSX_STATE or event.body.tsxState.type != pj.PJSIP_EVENT_RX_MSG:
            return
        message: str = event.body.tsxState.src.rdata.wholeMsg
        facts = self.facts
        if message.startswith("SIP/2.0 "):
            facts.has_any_response = True
            facts.retry_after = sdp.header_of(message, "Retry-After") or facts.retry_after
            if message.startswith("SIP/2.0 100") and facts.trying_ns is None:
                facts.trying_ns = self._clock.now_ns()
        facts.remote_sdp = sdp.body_of(message) or facts.remote_sdp

    def own_sdp(self, description: str) -> str:
        """``onCallSdpCreated``: our RTP port and codec in pjmedia's description."""
        return sdp.with_own_media(description, address=self._address, port=self._rtp.local_port, codec=self.plan.codec)

    # from the RTP thread: enqueue only ------------------------------------------------------------------------------

    def _on_edge(self, edge: str, at_ns: int) -> None:
        self._report_event(edge, at_ns)

    def _on_key_sent(self, key: Keypress, at_ns: int) -> None:
        self._keys_sent.append((key, at_ns))
        self._report_event("dtmf_sent", at_ns, digit=key.digit, duration_ms=key.duration_ms)

    def _on_key_received(self, key: ReceivedKey) -> None:
        self._report_event("dtmf_received", key.start_ns, digit=key.digit)

    def _report_event(self, event: str, at_ns: int, **values: Any) -> None:
        self._emit({"event": event, "call": self.plan.call, "at_ns": at_ns, **values})

    # the rest of the work, after libHandleEvents --------------------------------------------------------------------

    def settle(self) -> None:
        """Act on what the callbacks recorded; watch the named timeouts."""
        SipThread.check()
        if self.ending is not None:
            return
        facts = self.facts
        if facts.ringing_ns is not None and not self._is_ringing_reported:
            self._is_ringing_reported = True
            self._report_event("ringing", facts.ringing_ns)
        if facts.is_media_changed and self._pj is not None and not facts.is_disconnected:
            facts.is_media_changed = False
            self._follow_media(self._pj.getInfo())
        if facts.is_connected and not self._is_answer_reported:
            self._answered()
        if facts.is_disconnected:
            self._end(ending_of(self.facts, self.plan))
            return
        self._watch_time(self._clock.now_ns())

    def _answered(self) -> None:
        self._is_answer_reported = True
        answered_ns = self.facts.answered_ns or self._clock.now_ns()
        self.facts.answered_ns = answered_ns
        self._report_event("answered", answered_ns, sip_call_id=self.facts.sip_call_id)
        for keys in self.plan.keys:
            at_ns = answered_ns + round(keys.at_ms * NS_PER_MS)
            try:
                self.press(keys.digits, duration_ms=keys.duration_ms, at_ns=at_ns)
            except ValueError as error:
                self._report_event("error", self._clock.now_ns(), detail=str(error))

    def _watch_time(self, now_ns: int) -> None:
        facts, plan = self.facts, self.plan
        if self.facts.hangup_ns is not None:
            if now_ns - self.facts.hangup_ns > _HANGUP_TIMEOUT_NS:
                facts.ended_ns = now_ns
                facts.last_reason = "the far side did not answer our BYE or CANCEL"
                self._end(ending_of(self.facts, self.plan))
        elif facts.answered_ns is None:
            if now_ns - facts.invite_ns > plan.answer_timeout_s * 1e9:
                self.facts.is_timed_out = True
                self.hang_up()
                if not facts.has_any_response:  # nobody is there to answer a CANCEL
                    facts.ended_ns = now_ns
                    self._end(ending_of(self.facts, self.plan))
        elif plan.max_talk_s is not None and now_ns - facts.answered_ns > plan.max_talk_s * 1e9:
            self.hang_up()

    def _follow_media(self, info: Any) -> None:
        """Send where the peer's description says, unless either side holds."""
        remote = sdp.remote_audio(self.facts.remote_sdp)
        media = next((each for each in info.media if each.type == pj.PJMEDIA_TYPE_AUDIO), None)
        if remote is None or media is None:
            return
        is_active = media.status == pj.PJSUA_CALL_MEDIA_ACTIVE and bool(media.dir & pj.PJMEDIA_DIR_ENCODING)
        wanted = PAYLOAD_TYPES[self.plan.codec]
        self._rtp.set_target(
            RtpTarget(
                remote.address,
                remote.port,
                wanted,
                remote.event_payload_type,
                is_sending=is_active and remote.port > 0 and wanted in remote.payload_types,
            )
        )
        is_held = media.status in (pj.PJSUA_CALL_MEDIA_LOCAL_HOLD, pj.PJSUA_CALL_MEDIA_REMOTE_HOLD)
        if is_held != bool(self._is_held):
            by = "us" if media.status == pj.PJSUA_CALL_MEDIA_LOCAL_HOLD else "them"
            values = {"by": by} if is_held else {}
            self._report_event("held" if is_held else "unheld", self._clock.now_ns(), **values)
        self._is_held = is_held

    def _end(self, ending: Ending) -> None:
        self.ending = ending
        self.facts.ended_ns = self.facts.ended_ns or self._clock.now_ns()
        self._rtp.close()
        self._report_event(
            "ended",
            self.facts.ended_ns,
            result=ending.result,
            by=ending.by,
            sip_code=ending.sip_code,
            reason=ending.reason,
        )

    # the report -----------------------------------------------------------------------------------------------------

    def report(self) -> CallReport:
        """Figures of the whole call; writes the recording. Call it once, after the end."""
        assert self.ending is not None
        facts, receiver = self.facts, self._receiver
        origin_ns = facts.answered_ns if facts.answered_ns is not None else facts.invite_ns
        spurts = receiver.detector.talkspurts
        first_rtp_ns = receiver.figures.first_packet_ns or None
        first_speech_ns = spurts[0].start_ns if spurts else None
        if self.speak is not None:
            self.speak.measure(spurts)
        return CallReport(
            call=self.plan.call,
            uri=self.plan.uri,
            sip_call_id=facts.sip_call_id,
            codec=self.plan.codec,
            ending=self.ending,
            invite_at_ns=facts.invite_ns,
            answered_at_ns=facts.answered_ns,
            ended_at_ns=facts.ended_ns,
            trying_ms=_between(facts.invite_ns, facts.trying_ns),
            ringing_ms=_between(facts.invite_ns, facts.ringing_ns),
            answered_ms=_between(facts.invite_ns, facts.answered_ns),
            talk_ms=_between(facts.answered_ns, facts.ended_ns),
            first_rtp_at_ns=first_rtp_ns,
            first_speech_at_ns=first_speech_ns,
            answer_to_first_rtp_ms=_after(facts.answered_ns, first_rtp_ns),
            answer_to_first_speech_ms=_after(facts.answered_ns, first_speech_ns),
            rtp=rtp_report(receiver, packets_sent=self._rtp.packets_sent),
            talkspurts=tuple(
                Spurt(
                    ms_between(origin_ns, each.start_ns), ms_between(origin_ns, each.end_ns), each.start_ns, each.end_ns
                )
                for each in spurts
            ),
            dtmf_sent=tuple(
                KeyReport(key.digit, ms_between(origin_ns, at_ns), at_ns, key.duration_ms)
                for key, at_ns in self._keys_sent
            ),
            dtmf_received=tuple(
                KeyReport(
                    key.digit, ms_between(origin_ns, key.start_ns), key.start_ns, key.duration_ticks * 1000 / RATE_HZ
                )
                for key in receiver.keys
            ),
            recording=self._write_recording(),
            speak=self.speak,
        )

    def _write_recording(self) -> RecordingReport | None:
        if self.plan.record is None:
            return None
        recording = self._receiver.recording
        try:
            recording.write_wav(self.plan.record)
        except OSError as error:
            self._report_event("error", self._clock.now_ns(), detail=f"{self.plan.record}: {error.strerror}")
            return None
        return RecordingReport(
            file=str(self.plan.record),
            duration_ms=recording.num_samples * 1000 / RATE_HZ,
            starts_at_ns=recording.starts_at_ns,
            is_truncated=recording.is_truncated,
        )


def _after(answered_ns: int | None, first_ns: int | None) -> float | None:
    """From the 200 to what was heard first; 0 for what came before it, as early media, or because RTP outran SIP."""
    between_ms = _between(answered_ns, first_ns)
    return None if between_ms is None else max(0.0, between_ms)


def _between(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else ms_between(start_ns, end_ns)
