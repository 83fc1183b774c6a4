"""A call of the process, as the server sees it. Legs and lines share it. Runs on: the thread of the loop."""

from collections.abc import Callable

from cc_tts.clock import Clock
from cc_tts.processes.channel import Message
from cc_tts.state_machine import StateMachine
from cc_tts.ua import messages
from cc_tts.ua.leg_state import LEG_TABLE, LegState
from cc_tts.ua.process.call_media import CallMedia


class ServedCall:
    """The state of a call that its reports and its snapshot tell."""

    media: CallMedia

    def __init__(self, call_id: str, clock: Clock, send: Callable[[Message], None]) -> None:
        self.call_id = call_id
        self.record = b""
        """The server's record for the server that adopts the call."""
        self.invite: messages.IncomingCall | None = None
        self.dialog = ("", "")
        """The Call-ID and the far side's tag, which is empty until it is known."""
        self.bridge_id = ""
        """The id of the bridge that the call is part of."""
        self._clock = clock
        self._send = send
        self._machine = StateMachine(LEG_TABLE, LegState.INVITED)
        self._sip_code = 0  # of the last provisional response
        self._answered_ns = self._established_ns = 0
        self._transport = ""
        self._tags = ("", "")

    @property
    def is_over(self) -> bool:
        """Whether :class:`.CallEnded` has been sent."""
        return self._machine.state is LegState.OVER

    @property
    def _is_established(self) -> bool:
        return self._machine.state is LegState.ESTABLISHED

    @property
    def transfer(self) -> tuple[messages.TransferProgress, ...]:
        """The reports about the last REFER."""
        return ()

    def keep_record(self, keep: messages.KeepRecord) -> None:
        self.record = keep.record

    def snapshot(self) -> messages.CallSnapshot:
        """Return the call's present state."""
        return messages.CallSnapshot(
            call_id=self.call_id,
            record=self.record,
            state="established" if self._established_ns else "answered" if self._answered_ns else "invited",
            sip_call_id=self.dialog[0],
            sip_code=self._sip_code,
            established_ns=self._established_ns,
            transport=self._transport,
            held_by=self.media.held_by,
            media=self.media.active,
            invite=self.invite,
            utterances=self.media.positions,
            transfer=self.transfer,
            tags=self._tags,
            bridge_id=self.bridge_id,
        )

    def _tell_ringing(self, sip_code: int, *, sip_call_id: str = "") -> None:
        self._sip_code = sip_code
        self._send(messages.CallRinging(call_id=self.call_id, sip_call_id=sip_call_id, sip_code=sip_code))

    def _tell_established(self, now_ns: int, *, sip_call_id: str = "") -> None:
        self._established_ns = now_ns
        self._send(
            messages.CallEstablished(
                call_id=self.call_id,
                sip_call_id=sip_call_id,
                at_ns=now_ns,
                transport=self._transport,
                tags=self._tags,
            )
        )
