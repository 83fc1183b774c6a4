"""Finds the leg of a request that a filter answers in front of PJSIP, by its dialog. Runs on: the SIP thread."""

from collections.abc import Mapping

from cc_tts.ua.leg import Leg
from cc_tts.ua.refer.referral import Answer
from cc_tts.ua.sip import message as sip_message


class Dialogs:
    """The dialogs of ``legs``, by Call-ID and the far side's tag."""

    def __init__(self, legs: Mapping[str, Leg]) -> None:
        self._legs = legs
        self._referred: list[Leg] = []

    def is_ours(self, sip_call_id: str) -> bool:
        return any(leg.dialog[0] == sip_call_id for leg in self._legs.values() if not leg.is_incoming)

    def on_unreadable(self, response: str) -> None:
        """PJSIP cannot be shown a response, and would wait for another."""
        call_id = sip_message.header_value(response, "call-id")
        if sip_message.cseq_method(response) == "INVITE" and (leg := self.leg_of(call_id, "")) is not None:
            leg.unreadable(response)

    def on_refer(self, sip_call_id: str, remote_tag: str, message: str) -> Answer:
        """A REFER has arrived; return the response to it. :meth:`begin_referrals` follows once that is sent."""
        leg = self.leg_of(sip_call_id, remote_tag)
        if leg is None:
            return 481, ()
        self._referred.append(leg)
        return leg.referral.answer(message)

    def begin_referrals(self) -> None:
        """Continue with the REFERs that have been answered."""
        while self._referred:
            leg = self._referred.pop()
            if not leg.is_over:
                leg.referral.begin()

    def leg_of(self, sip_call_id: str, remote_tag: str) -> Leg | None:
        """Return the leg of this dialog that is not over; ``None`` if there is none."""
        # a call to ourselves has two legs of one Call-ID
        for dialog in ((sip_call_id, remote_tag), (sip_call_id, "")):
            for leg in self._legs.values():
                if leg.dialog == dialog and not leg.is_over:
                    return leg
        return None
