"""One call of the softphone: its SIP side in pjsua2, its RTP side in :mod:`cc_tts.softphone.rtp.endpoint`.

Runs on: the SIP thread. pjsua2's callbacks only look and enqueue; :meth:`SoftphoneCall.settle` ends the call after
``libHandleEvents`` has returned.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cc_tts import wav_file
from cc_tts.clock import NS_PER_S, Clock, ms_between
from cc_tts.softphone import sdp
from cc_tts.softphone.facts import CallFacts, ending_of
from cc_tts.softphone.library import pj
from cc_tts.softphone.plan import DialPlan, parse_key_plan, read_play
from cc_tts.softphone.report import RecordingReport, SoftphoneEnding, SoftphoneReport, rtp_report
from cc_tts.softphone.rtp.endpoint import RtpEndpoint, open_socket
from cc_tts.softphone.rtp.packets import PAYLOAD_TYPES, RATE_HZ, Keypress
from cc_tts.softphone.rtp.receiver import Interval, Packet, RtpReceiver
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.sip_thread import SipThread, callback, pj_detail
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip.reason import remote_reasons

_HANGUP_TIMEOUT_NS: Final = 5_000_000_000
"""How long to wait for the response to our BYE or CANCEL before the call counts as ended."""
_HELD_BY: Final = {pj.PJSUA_CALL_MEDIA_LOCAL_HOLD: {"by": "us"}, pj.PJSUA_CALL_MEDIA_REMOTE_HOLD: {"by": "them"}}


class _PjCall(pj.Call):  # type: ignore[misc]  # pjsua2 has no types
    """The pjsua2 call. Its owner releases it in ``dispose``, so that no reference cycle is left to the garbage collector,
    which might run on another thread.
    """

    def __init__(self, account: Any, owner: "SoftphoneCall") -> None:
        super().__init__(account)
        self.owner = owner

    @callback
    def onCallState(self, prm: Any) -> None:
        self.owner.note_state(self.getInfo(), prm)

    @callback
    def onCallTsxState(self, prm: Any) -> None:
        self.owner.note_transaction(prm)

    @callback
    def onCallSdpCreated(self, prm: Any) -> None:
        if prm.remSdp.wholeSdp:
            self.owner.facts.remote_sdp = prm.remSdp.wholeSdp
        prm.sdp.wholeSdp = self.owner.own_sdp(prm.sdp.wholeSdp)

    @callback
    def onCallMediaState(self, _prm: Any) -> None:
        self.owner.follow_media(self.getInfo())


class SoftphoneCall:
    """One call from the INVITE to the report."""

    def __init__(
        self, plan: DialPlan, *, account: Any, address: str, clock: Clock, emit: Callable[[dict[str, Any]], None]
    ) -> None:
        self.plan = plan
        self.facts = CallFacts()
        self.ending: SoftphoneEnding | None = None
        self._clock = clock
        self._emit = emit
        self._address = address
        self._receiver = RtpReceiver(self._report_event)
        sock, payload_type = open_socket(address, plan.rtp_port), PAYLOAD_TYPES[plan.codec]
        self._rtp = RtpEndpoint(sock, payload_type, self._receiver, clock, self._report_event)
        self._is_held = False
        self._pj: _PjCall | None = _PjCall(account, self)

    # commands, on the SIP thread ------------------------------------------------------------------------------------

    def dial(self) -> None:
        SipThread.check()
        assert self._pj is not None
        param = _audio_param()
        pj_info.add_headers(param, self.plan.headers)
        self.facts.invite_ns = self._clock.now_ns()
        try:
            self._pj.makeCall(f"<{self.plan.uri}>", param)  # in <>, so that ;parameters belong to the URI
        except pj.Error as error:
            self._end(SoftphoneEnding("unreachable", "nobody", reason=pj_detail(error)))
            return
        self.facts.sip_call_id = self._pj.getInfo().callIdString
        self._report_event(
            "dialing", self.facts.invite_ns, sip_call_id=self.facts.sip_call_id, rtp_port=self._rtp.local_port
        )

    def press(self, keys: Iterable[Keypress]) -> None:
        """Press keys (RFC 4733)."""
        if self.facts.is_connected and not self._rtp.can_press:
            raise ValueError("no DTMF now: the far side offers no telephone-event or is on hold")
        for key in keys:
            self._rtp.press(key)

    def say(self, octets: bytes, *, after_ms: float = 0.0) -> None:
        """Send audio in the codec's own octets, ``after_ms`` from now."""
        self._rtp.say(octets, after_ms=after_ms)

    @property
    def said(self) -> list[Interval]:
        return self._rtp.said

    def listen(self, listener: Callable[[Packet], object]) -> None:
        """Pass packets with audio to ``listener``, on the RTP thread, as they arrive."""
        self._receiver.listener = listener

    def hold(self) -> None:
        """Re-INVITE with a=sendonly (RFC 3264 §8.4)."""
        if self.facts.is_connected:
            self._try(lambda call: call.setHold(pj.CallOpParam(True)))  # noqa: FBT003

    def unhold(self) -> None:
        """Take the call off hold: send a re-INVITE with a=sendrecv."""
        param = _audio_param()
        param.opt.flag = pj.PJSUA_CALL_UNHOLD
        if self.facts.is_connected:
            self._try(lambda call: call.reinvite(param))

    def hang_up(self) -> None:
        """Send BYE, or CANCEL before the answer."""
        if self.facts.hangup_ns is None and not self.facts.ended_ns:
            self.facts.hangup_ns = self._clock.now_ns()
            self._try(lambda call: call.hangup(pj.CallOpParam()))

    def _try(self, command: Callable[[Any], None]) -> None:
        SipThread.check()
        try:
            command(self._pj)
        except pj.Error as error:
            self._report_event("error", self._clock.now_ns(), detail=pj_detail(error))

    def dispose(self) -> None:
        """Delete the pjsua2 call, outside of callbacks, on the SIP thread, before the library ends."""
        SipThread.check()
        self._pj = None
        self._rtp.close()

    # callbacks: look and enqueue -----------------------------------------------------------------------------------------

    def note_state(self, info: Any, event: Any) -> None:
        """``onCallState``: instants of ringing, answer and end."""
        now_ns = self._clock.now_ns()
        facts = self.facts
        self._note_message(pj_info.received(event))
        match info.state:
            case pj.PJSIP_INV_STATE_EARLY if facts.ringing_ns is None:
                facts.ringing_ns = now_ns
                self._report_event("ringing", now_ns)
            case pj.PJSIP_INV_STATE_CONNECTING if facts.answered_ns is None:
                facts.answered_ns = now_ns
            case pj.PJSIP_INV_STATE_CONFIRMED:
                self._answered(facts.answered_ns or now_ns)
            case pj.PJSIP_INV_STATE_DISCONNECTED:
                facts.ended_ns = now_ns
                facts.last_code, facts.last_reason = info.lastStatusCode, info.lastReason

    def _answered(self, answered_ns: int) -> None:
        self.facts.is_connected = True
        self.facts.answered_ns = answered_ns
        self._report_event("answered", answered_ns, sip_call_id=self.facts.sip_call_id)
        octets, after_ms = read_play(self.plan.play)
        self.say(octets, after_ms=after_ms)
        keys = parse_key_plan(self.plan.dtmf)
        try:
            self.press(replace(key, not_before_ns=answered_ns + key.not_before_ns) for key in keys)
        except ValueError as error:
            self._report_event("error", self._clock.now_ns(), detail=str(error))

    def note_transaction(self, event: Any) -> None:
        """``onCallTsxState``: 100 Trying, the peer's BYE."""
        transaction, message = event.e.body.tsxState.tsx, pj_info.received(event)
        if transaction.method == "BYE" and transaction.role == pj.PJSIP_ROLE_UAS:
            self.facts.has_remote_bye = True
            if message:
                self.facts.remote_reasons = remote_reasons(message)
        self._note_message(message)

    def _note_message(self, message: str) -> None:
        """Note what the far side has sent, if anything."""
        facts = self.facts
        if message.startswith("SIP/2.0 "):
            facts.has_any_response = True
            facts.retry_after_s = sip_message.retry_after_s(message)
            if message.startswith("SIP/2.0 100") and facts.trying_ns is None:
                facts.trying_ns = self._clock.now_ns()
        if sip_message.media_type(message) == "application/sdp":
            facts.remote_sdp = sip_message.body_of(message) or facts.remote_sdp

    def own_sdp(self, description: str) -> str:
        """``onCallSdpCreated``: our RTP port and codec in pjmedia's description."""
        return sdp.with_own_media(description, address=self._address, port=self._rtp.local_port, codec=self.plan.codec)

    def follow_media(self, info: Any) -> None:
        """``onCallMediaState``: send where the peer's description says, unless either side holds."""
        remote = sdp.remote_audio(self.facts.remote_sdp)
        media = next((each for each in info.media if each.type == pj.PJMEDIA_TYPE_AUDIO), None)
        if remote is None or media is None:
            return
        is_active = media.status == pj.PJSUA_CALL_MEDIA_ACTIVE and bool(media.dir & pj.PJMEDIA_DIR_ENCODING)
        is_ours = PAYLOAD_TYPES[self.plan.codec] in remote.payload_types
        self._rtp.set_remote(remote, is_sending=is_active and remote.port > 0 and is_ours)
        held_by = _HELD_BY.get(media.status, {})
        if bool(held_by) != self._is_held:
            self._is_held = bool(held_by)
            self._report_event("held" if held_by else "unheld", self._clock.now_ns(), **held_by)

    def _report_event(self, event: str, at_ns: int, **values: Any) -> None:
        self._emit({"event": event, "call": self.plan.call, "at_ns": at_ns, **values})

    # the rest of the work, after libHandleEvents --------------------------------------------------------------------

    def settle(self) -> None:
        """Act on what the callbacks recorded; watch the named timeouts."""
        SipThread.check()
        if not self.facts.ended_ns:
            self._watch_time(self._clock.now_ns())
        if self.facts.ended_ns and self.ending is None:
            self._end(ending_of(self.facts, self.plan))

    def _watch_time(self, now_ns: int) -> None:
        facts, plan = self.facts, self.plan
        if facts.hangup_ns is not None:
            if now_ns - facts.hangup_ns > _HANGUP_TIMEOUT_NS:
                facts.ended_ns = now_ns
                facts.last_reason = "the far side did not answer our BYE or CANCEL"
        elif facts.answered_ns is not None:
            if now_ns - facts.answered_ns > plan.max_talk_s * NS_PER_S:
                self.hang_up()
        elif now_ns - facts.invite_ns > plan.timeout_s * NS_PER_S:
            facts.is_timed_out = True
            self.hang_up()
            if not facts.has_any_response:  # no response came, so nobody would answer a CANCEL
                facts.ended_ns = now_ns

    def _end(self, ending: SoftphoneEnding) -> None:
        self.ending = ending
        self.facts.ended_ns = self.facts.ended_ns or self._clock.now_ns()
        self._rtp.close()
        values = {"result": ending.result, "by": ending.by, "sip_code": ending.sip_code, "reason": ending.reason}
        self._report_event("ended", self.facts.ended_ns, **values)

    # the report -----------------------------------------------------------------------------------------------------

    def report(self) -> SoftphoneReport:
        """Figures of the whole call; writes the recording. Call it once, after the end."""
        assert self.ending is not None
        facts, receiver = self.facts, self._receiver
        origin_ns = facts.invite_ns if facts.answered_ns is None else facts.answered_ns
        spurts = receiver.detector.talkspurts
        first_speech_ns = spurts[0].start_at_ns if spurts else None
        for spurt in spurts:
            spurt.start_ms, spurt.end_ms = (ms_between(origin_ns, at) for at in (spurt.start_at_ns, spurt.end_at_ns))
        for key in (*self._rtp.keys_sent, *receiver.keys):
            key.at_ms = ms_between(origin_ns, key.at_ns)
        return SoftphoneReport(
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
            first_rtp_at_ns=receiver.first_packet_ns,
            first_speech_at_ns=first_speech_ns,
            answer_to_first_rtp_ms=_after(facts.answered_ns, receiver.first_packet_ns),
            answer_to_first_speech_ms=_after(facts.answered_ns, first_speech_ns),
            rtp=rtp_report(receiver, packets_sent=self._rtp.packets_sent, round_trip_ms=self._rtp.round_trip_ms),
            talkspurts=spurts,
            dtmf_sent=self._rtp.keys_sent,
            dtmf_received=receiver.keys,
            recording=self._write_recording(),
        )

    def _write_recording(self) -> RecordingReport | None:
        if not self.plan.record:
            return None
        recording = self._receiver.recording
        try:
            wav_file.write(Path(self.plan.record), bytes(recording.pcm), rate_hz=RATE_HZ, is_private=True)
        except OSError as error:
            self._report_event("error", self._clock.now_ns(), detail=f"{self.plan.record}: {error.strerror}")
            return None
        return RecordingReport(
            file=self.plan.record,
            duration_ms=recording.num_samples * 1000 / RATE_HZ,
            starts_at_ns=recording.starts_at_ns,
            is_truncated=recording.is_truncated,
        )


def _audio_param() -> Any:
    """Options of an INVITE or re-INVITE with one audio stream."""
    param = pj_info.call_options()
    param.opt.audioCount, param.opt.videoCount = 1, 0
    return param


def _after(answered_ns: int | None, first_ns: int | None) -> float | None:
    """Return the time from the 200 to what was heard first; 0 for what came before it, as early media, or because RTP
    outran SIP.
    """
    between_ms = _between(answered_ns, first_ns)
    return None if between_ms is None else max(0.0, between_ms)


def _between(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else ms_between(start_ns, end_ns)
