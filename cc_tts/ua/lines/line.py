"""One call of Asterisk without SIP; the counterpart of :class:`cc_tts.ua.leg.Leg`.

Runs on: the thread of the loop.
"""

from collections.abc import Callable
from typing import Final, Protocol

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.media.playout_events import PlayoutEvent
from cc_tts.processes.channel import Message
from cc_tts.ua import messages
from cc_tts.ua.leg_state import LegEvent, LegState
from cc_tts.ua.lines.media import LineMedia
from cc_tts.ua.lines.playout import QueueSink
from cc_tts.ua.process.served_call import ServedCall

CANCELLED: Final = 487
OK: Final = 200
DECLINED: Final = 603
"""The SIP statuses for events on a line, which has none of its own (RFC 3261 §21)."""
_KEYS: Final = frozenset("0123456789*#ABCD")

log = logs.get(__name__)


class LineLink(Protocol):
    """The connection that carries a line."""

    transport: str
    encoding: str
    queue: QueueSink | None
    """The link as a queue, if Asterisk queues the audio that it gets."""

    def answer(self) -> None:
        """Tell Asterisk that the call is answered."""

    def hang_up(self) -> None:
        """Make Asterisk hang up, and close the connection."""

    def send(self, pcm: bytes) -> None:
        """Send whole frames at the rate of the line."""


class Line(ServedCall):
    """A call and its reports."""

    media: LineMedia

    def __init__(
        self,
        link: LineLink,
        invite: messages.IncomingCall,
        settings: messages.UaSettings,
        *,
        clock: Clock,
        send: Callable[[Message], None],
        on_over: Callable[["Line"], None],
    ) -> None:
        super().__init__(invite.call_id, clock, send)
        self.invite = invite
        self.dialog = (invite.sip_call_id, "")
        self._transport = link.transport
        self._link = link
        self._on_over = on_over
        self._rate_hz = settings.rtp.clock_rate_hz
        self._timeout_ns = round(settings.rtp.inactivity_timeout_s * NS_PER_S)
        self.heard_ns = clock.now_ns()
        """When the far side last sent anything. It need not do so before the answer."""
        self.media = LineMedia(
            self.call_id,
            AudioFormat(self._rate_hz),
            max_buffered_ms=settings.playout_max_buffered_ms,
            window_ms=settings.playout_window_ms,
            send=link.send,
            queue=link.queue,
            report=self._report,
        )

    def _report(self, event: PlayoutEvent) -> None:
        self._send(messages.PlayoutReport(call_id=self.call_id, event=event))

    # --- what the server asks for ----------------------------------------------------------------------------------------

    def command(self, message: messages.CallCommand) -> None:
        """Carry out a command of the server; report it if a line cannot do it."""
        match message:
            case messages.KeepRecord():
                self.keep_record(message)
            case messages.Ring():
                self._ring(message)
            case messages.Answer():
                self._accept(message)
            case messages.Hangup():
                self.hang_up(message)
            case messages.SetListening(directions=directions):
                self.media.set_listening(directions)
            case messages.MeasureLevels():
                self.media.meter.look(self._clock.now_ns())
            case messages.AllowRefers() | messages.WithholdKeys():
                pass  # no REFER comes by a line, and no bridge passes its keys
            case _:
                self._refuse(message)

    def _refuse(self, message: messages.CallCommand) -> None:
        names: dict[type[messages.CallCommand], str] = {messages.SetHold: "hold", messages.SendDtmf: "dtmf"}
        name = names.get(type(message), type(message).__name__.lower())
        detail = f"a line by {self._link.transport} has no such thing"
        self._send(messages.CommandFailed(call_id=self.call_id, command=name, detail=detail))

    def _ring(self, ring: messages.Ring) -> None:
        self.media.lead_in_ms = ring.lead_in_ms
        self._tell_ringing(183 if ring.early_media else 180)
        if ring.early_media:
            self._open()

    def _accept(self, answer: messages.Answer) -> None:
        if self._machine.state is not LegState.INVITED:
            return
        self.media.lead_in_ms = answer.lead_in_ms
        self._machine.fire(LegEvent.ANSWER)
        self._machine.fire(LegEvent.ACK)
        self._link.answer()
        self._open()
        self.heard_ns = self._clock.now_ns()
        self._tell_established(self.heard_ns)

    def _open(self) -> None:
        if self.media.active is None:
            self.media.active = messages.MediaActive(
                call_id=self.call_id,
                codec=self._link.encoding,
                clock_rate_hz=self._rate_hz,
                srtp=False,
                dtmf=None,
            )
            self._send(self.media.active)
            self.media.open(self._clock.now_ns())

    def hang_up(self, hangup: messages.Hangup, ended_by: messages.EndedBy = "local") -> None:
        if self.is_over:
            return
        if not (is_up := self._is_established):
            log.info("line_refused", call_id=self.call_id, sip_code=hangup.sip_code, reason=hangup.cause)
        self._link.hang_up()
        self._finish(OK if is_up else hangup.sip_code or DECLINED, ended_by)

    # --- what the line reports -------------------------------------------------------------------------------------------

    def key(self, digit: str) -> None:
        """The caller has pressed a key; Asterisk does not give its duration. Anything else is left alone."""
        if (key := digit.upper()) in _KEYS:
            at_ns = self._clock.now_ns()
            self._send(
                messages.DtmfReceived(call_id=self.call_id, digit=key, duration_ms=0, method="line", at_ns=at_ns)
            )

    def lost(self, ended_by: messages.EndedBy = "remote") -> None:
        """The far side has hung up or is gone; does nothing if the call is over."""
        if not self.is_over:
            is_up = self._is_established
            self._finish(OK if is_up else CANCELLED, ended_by)

    def _finish(self, sip_code: int, ended_by: messages.EndedBy) -> None:
        self._machine.fire(LegEvent.END)
        self._on_over(self)
        self._send(
            messages.CallEnded(
                call_id=self.call_id,
                sip_code=sip_code,
                ended_by=ended_by,
                quality=self.media.quality,
                at_ns=self._clock.now_ns(),
            )
        )
        self.media.buffer.cut(None)  # reported to nobody: that the call is over says it

    # --- every second ----------------------------------------------------------------------------------------------------

    def watch(self, now_ns: int) -> None:
        """Report the quality; end the call when nothing has come for too long."""
        levels = self.media.meter.take()
        self._send(messages.QualityReport(call_id=self.call_id, quality=self.media.quality, levels=levels))
        is_up = self._is_established
        if is_up and self._timeout_ns and now_ns - self.heard_ns > self._timeout_ns:
            self.hang_up(messages.Hangup(call_id=self.call_id), "rtp_inactivity")
