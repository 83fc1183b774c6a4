"""The keys of a leg, in both directions: telephone events (RFC 4733), or INFO if the far side takes no events. Runs on: the
SIP thread.
"""

import weakref
from typing import Any, Final

import pjsua2 as pj

from cc_tts.ua import messages
from cc_tts.ua.leg_media import LegServices
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.sip_thread import pj_detail
from cc_tts.ua.rtp.keys import DtmfKey, Keypad
from cc_tts.ua.sip import info_keys

_DIGITS: Final = frozenset("0123456789*#ABCDR")
"""These are events 0 to 16 of RFC 4733 §3.2; R is the hook flash."""


class LegDtmf:
    """The keys that the far side of one leg presses, and the keys that are sent to it."""

    def __init__(self, services: LegServices, call: Any) -> None:
        self._call: Any = weakref.proxy(call)  # see LegMedia
        self._call_id: str = call.call_id
        self._clock = services.clock
        self._send = services.send
        self._on_key = services.on_key
        self.withheld = False
        """Whether only the server gets the keys."""
        self._keypad = Keypad()
        self._info_cseq = -1
        self._info_keys = info_keys.InfoKeys(self._send_info, self._failed)

    def packet(self, prm: Any) -> None:
        digit = str(prm.digit)[:1]
        if digit not in _DIGITS:
            return
        edges = self._keypad.packet(
            digit,
            timestamp_ms=int(prm.timestamp),
            duration_ms=int(prm.duration),
            is_update=bool(prm.flags & pj_info.DTMF_IS_UPDATE),
            is_end=bool(prm.flags & pj_info.DTMF_IS_END),
            now_ns=self._clock.now_ns(),
        )
        for edge, key in edges:
            if edge == "down":
                self._send(messages.DtmfBegan(call_id=self._call_id, at_ns=key.began_ns))
            else:
                self._report(key)

    def info(self, cseq: int, key: str, *, duration_ms: int) -> None:
        """Handle a key by INFO. Its CSeq increases unless it is a retransmission (RFC 3261 §12.2.2)."""
        if cseq > self._info_cseq:
            self._info_cseq = cseq
            self._report(DtmfKey(key, "sip_info", self._clock.now_ns(), duration_ms))

    def release(self) -> None:
        """Release the key that is down, since the call ends."""
        self._report(self._keypad.release())

    def send(self, dtmf: messages.SendDtmf, method: messages.DtmfMethod | None) -> None:
        """Send keys by the method that the far side takes. If it takes none, telephone events are tried, which PJMEDIA
        refuses.
        """
        if method == "sip_info":
            self._info_keys.put(dtmf.digits, dtmf.duration_ms, self._clock.now_ns())
            return
        param = pj.CallSendDtmfParam()
        param.method = pj.PJSUA_DTMF_METHOD_RFC2833
        param.digits = dtmf.digits
        param.duration = dtmf.duration_ms
        self._call.sendDtmf(param)

    def answered(self, status: int) -> None:
        self._info_keys.answered(status)

    def tick(self, now_ns: int) -> None:
        """Report a key whose end was lost, and send the next one by INFO if it is due."""
        self._report(self._keypad.overdue(now_ns))
        try:
            self._info_keys.tick(now_ns)
        except pj.Error as error:
            self._failed(pj_detail(error))

    def _report(self, key: DtmfKey | None) -> None:
        if key is not None:
            self._send(
                messages.DtmfReceived(
                    call_id=self._call_id,
                    digit=key.digit,
                    duration_ms=key.duration_ms,
                    method=key.method,
                    at_ns=key.began_ns,
                )
            )
            if not self.withheld:
                self._on_key(self._call_id, key)

    def _send_info(self, body: str) -> None:
        param = pj.CallSendRequestParam()
        param.method, param.txOption.contentType, param.txOption.msgBody = "INFO", info_keys.MEDIA_TYPE, body
        self._call.sendRequest(param)

    def _failed(self, detail: str) -> None:
        self._send(messages.CommandFailed(call_id=self._call_id, command="dtmf", detail=detail))
