"""Finds the leg of a request that a filter answers in front of PJSIP, by its dialog. Runs on: the SIP thread."""

from collections.abc import Mapping

from cc_tts.ua.leg import Leg
from cc_tts.ua.refer.message import Notification
from cc_tts.ua.refer.referral import Answer
from cc_tts.ua.sip import message as sip_message
from cc_tts.ua.sip.reason import RemoteReason


class Dialogs:
    """The dialogs of ``legs``, by Call-ID and the far side's tag."""

    def __init__(self, legs: Mapping[str, Leg]) -> None:
        self._legs = legs
        self._referred: list[Leg] = []

    def is_ours(self, sip_call_id: str) -> bool:
        return any(leg.dialog[0] == sip_call_id for leg in self._legs.values() if not leg.is_incoming)

    def has_call(self, sip_call_id: str, remote_tag: str) -> bool:
        """Whether a caller with this Call-ID and tag is in a call."""
        return (leg := self._leg_of(sip_call_id, remote_tag)) is not None and leg.is_incoming

    def is_ending(self, sip_call_id: str, remote_tag: str) -> bool:
        """Whether our BYE in this dialog is on its way. PJSUA reports the end of a call that we end before that."""
        return (leg := self._leg_of(sip_call_id, remote_tag)) is None or leg.is_ending

    def on_key(self, sip_call_id: str, remote_tag: str, cseq: int, key: str, duration_ms: int) -> None:
        if (leg := self._leg_of(sip_call_id, remote_tag)) is not None:
            leg.dtmf.info(cseq, key, duration_ms=duration_ms)

    def on_end(self, sip_call_id: str, remote_tag: str, reasons: tuple[RemoteReason, ...]) -> None:
        """PJSIP is about to process a BYE or CANCEL."""
        if (leg := self._leg_of(sip_call_id, remote_tag)) is not None:
            leg.take_reasons(reasons)

    def on_unreadable(self, response: str) -> None:
        """PJSIP cannot be shown a response, and would wait for another."""
        call_id = sip_message.header_value(response, "call-id")
        if sip_message.cseq_method(response) == "INVITE" and (leg := self._leg_of(call_id, "")) is not None:
            leg.refused(response)

    def on_notify(self, sip_call_id: str, remote_tag: str, notification: Notification) -> bool:
        """A NOTIFY of a REFER has arrived; return whether we had sent such a REFER."""
        return (leg := self._leg_of(sip_call_id, remote_tag)) is not None and leg.refer.take(notification)

    def on_refer(self, sip_call_id: str, remote_tag: str, message: str) -> Answer:
        """A REFER has arrived; return the response to it. :meth:`begin_referrals` follows once that is sent."""
        leg = self._leg_of(sip_call_id, remote_tag)
        if leg is None:
            return 481, ()
        self._referred.append(leg)
        return leg.referral.answer(message)

    def on_notify_refused(self, sip_call_id: str, remote_tag: str) -> None:
        """Our NOTIFY got a response that would end the call."""
        if (leg := self._leg_of(sip_call_id, remote_tag)) is not None:
            leg.referral.refused()

    def begin_referrals(self) -> None:
        """Continue with the REFERs that have been answered."""
        while self._referred:
            leg = self._referred.pop()
            if not leg.is_over:
                leg.referral.begin()

    def _leg_of(self, sip_call_id: str, remote_tag: str) -> Leg | None:
        # a call to ourselves has two legs of one Call-ID
        for dialog in ((sip_call_id, remote_tag), (sip_call_id, "")):
            for leg in self._legs.values():
                if leg.dialog == dialog and not leg.is_over:
                    return leg
        return None
