"""The transfer of a leg: our REFER, and its recipient's NOTIFYs. Runs on: the SIP thread.

PJSIP's own subscription is not used: it asserts what a NOTIFY looks like, and its callbacks go by the number of a call,
which may be another one's when a late NOTIFY comes. The filter answers NOTIFY and hands on what it says.
"""

import weakref
from typing import Any

import pjsua2 as pj

from cc_tts.ua import messages
from cc_tts.ua.leg_media import LegServices
from cc_tts.ua.pjsip import pj_info
from cc_tts.ua.pjsip.own_requests import ANSWER_TIMEOUT_NS, OwnRequests
from cc_tts.ua.refer import message as refer
from cc_tts.ua.sip import message as sip_message


class LegRefer:
    """The REFER of one leg, if there was one; the last one counts."""

    def __init__(self, services: LegServices, call: Any) -> None:
        self._call: Any = weakref.proxy(call)  # see LegMedia
        self._call_id: str = call.call_id
        self._send = services.send
        self._cseq: int | None = None  # of the REFER whose notifications are followed
        self._pending = OwnRequests(services.library, services.clock)
        self._notified_cseq = -1
        self._is_over = False  # nothing more will be reported about it
        self.told: tuple[messages.TransferProgress, ...] = ()
        """The reports about it: at most its response and the last notification."""

    def start(self, transfer: messages.Transfer) -> None:
        """Send REFER (RFC 3515 §2.4.1), with Referred-By (RFC 3892 §2.1)."""
        self.end()  # a REFER before it that nobody has answered: its late answer is none to this one
        referred_by = transfer.referred_by or sip_message.uri_of(sip_message.readable(self._call.getInfo().localUri))
        param = pj.CallSendRequestParam()
        param.method = "REFER"
        headers = {"Refer-To": refer.refer_to(transfer.to, transfer.headers), "Referred-By": f"<{referred_by}>"}
        pj_info.add_headers(param, headers)
        self._cseq, self.told, self._is_over = None, (), False
        self._call.sendRequest(param)

    def changed(self, change: Any) -> None:
        """The transaction of a REFER has changed its state. After a 401 the REFER is sent again, with another CSeq."""
        if change.tsx.state < pj.PJSIP_TSX_STATE_COMPLETED:
            self._cseq = sip_message.cseq_of(str(change.tsx.lastTx.wholeMsg))
        if self._pending.note(change) and not self._pending:
            sip_code = int(change.tsx.statusCode)
            self._tell("answer", sip_code, is_last=sip_code >= 300)  # noqa: PLR2004 - no success (RFC 3261 §7.2)

    def take(self, notification: refer.Notification) -> bool:
        """Handle a NOTIFY; return whether it belongs to a subscription of ours. A repeated or older one has no effect."""
        is_new = notification.cseq > self._notified_cseq
        if self._cseq is None or notification.refer not in (None, self._cseq) or (is_new and self._is_over):
            return False
        if is_new:
            self._notified_cseq = notification.cseq
            self._tell("notify", notification.sip_code, is_last=notification.is_last)
        return True

    def tick(self) -> None:
        if self._pending.end(timeout_ns=ANSWER_TIMEOUT_NS):
            self._tell("answer", pj.PJSIP_SC_REQUEST_TIMEOUT, is_last=True)

    def end(self) -> None:
        self._pending.end()

    def _tell(self, by: messages.ToldBy, sip_code: int, *, is_last: bool) -> None:
        progress = messages.TransferProgress(call_id=self._call_id, by=by, sip_code=sip_code, is_last=is_last)
        self._is_over = self._is_over or is_last
        self.told = (*(each for each in self.told if each.by != by), progress)
        self._send(progress)
