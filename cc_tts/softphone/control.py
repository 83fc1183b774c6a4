"""The softphone driven by another program: JSON lines on standard input and output.

Commands: ``{"cmd": "dial", "call": "a", "uri": "sip:…", …}``, ``dtmf``, ``hold``, ``unhold``, ``hangup``, ``mark-now``,
``quit`` (the types below). Events: ``{"event": …, "call": …, "at_ns": …}`` with ready, dialing, ringing, answered,
speech_start, speech_end, dtmf_sent, dtmf_received, held, unheld, ended, report, mark, error, bye. Instants are
CLOCK_MONOTONIC ns. The end of standard input is ``quit``.

Runs on: the SIP thread. Standard input is looked at between two polls of the library: a thread blocked in a read would
be in the way at exit.
"""

import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal

import msgspec

from cc_tts import wav_file
from cc_tts.clock import Clock
from cc_tts.errors import CcTtsError
from cc_tts.softphone.arguments import checked_duration_ms, parse_header, parse_key_plan, parse_uri
from cc_tts.softphone.phone import Phone
from cc_tts.softphone.plan import DialPlan
from cc_tts.softphone.report import CallReport

_QUIT_TIMEOUT_NS: Final = 6_000_000_000
"""Time ``quit`` waits for calls to end. Longer than a call waits for the response to its BYE."""

_READ_BYTES: Final = 65_536

CallId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Dial(msgspec.Struct, tag_field="cmd", tag="dial", forbid_unknown_fields=True, kw_only=True):
    """Begin a call."""

    uri: str
    call: CallId = "1"
    codec: Literal["pcmu", "pcma"] = "pcmu"
    headers: dict[str, str] = {}
    rtp_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    record: str = ""
    dtmf: str = ""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 30.0
    max_talk_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 3600.0

    def plan(self) -> DialPlan:
        """The same, checked."""
        record = Path(self.record) if self.record else None
        if record is not None:
            wav_file.check_path(record)
        return DialPlan(
            call=self.call,
            uri=parse_uri(self.uri)[0],
            codec=self.codec,
            headers=dict(parse_header(f"{name}: {value}") for name, value in self.headers.items()),
            rtp_port=self.rtp_port,
            record=record,
            keys=parse_key_plan(self.dtmf) if self.dtmf else (),
            answer_timeout_s=self.timeout_s,
            max_talk_s=self.max_talk_s,
        )


class Dtmf(msgspec.Struct, tag_field="cmd", tag="dtmf", forbid_unknown_fields=True, kw_only=True):
    """Press keys now, one after the other."""

    digits: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    call: CallId = "1"
    duration_ms: int = 100


class Hold(msgspec.Struct, tag_field="cmd", tag="hold", forbid_unknown_fields=True, kw_only=True):
    """Put the far side on hold."""

    call: CallId = "1"


class Unhold(msgspec.Struct, tag_field="cmd", tag="unhold", forbid_unknown_fields=True, kw_only=True):
    """Take the far side off hold."""

    call: CallId = "1"


class Hangup(msgspec.Struct, tag_field="cmd", tag="hangup", forbid_unknown_fields=True, kw_only=True):
    """BYE, or CANCEL."""

    call: CallId = "1"


class MarkNow(msgspec.Struct, tag_field="cmd", tag="mark-now", forbid_unknown_fields=True, kw_only=True):
    """Report the current instant; ``id`` is echoed."""

    id: str = ""


class Quit(msgspec.Struct, tag_field="cmd", tag="quit", forbid_unknown_fields=True, kw_only=True):
    """Hang everything up and end."""


Command = Dial | Dtmf | Hold | Unhold | Hangup | MarkNow | Quit


class Control:
    """Runs a phone by commands until ``quit``."""

    def __init__(self, phone: Phone, clock: Clock, *, out: IO[bytes]) -> None:
        self._phone = phone
        self._clock = clock
        self._out = out
        self._unread = b""
        self._decoder = msgspec.json.Decoder(Command)
        self._encoder = msgspec.json.Encoder()
        self._quit_ns: int | None = None

    def run(self, source_fd: int, is_ending: Callable[[], bool]) -> int:
        """Serve commands from a file descriptor until quit, its end, or ``is_ending``."""
        self._write_event({"event": "ready", "at_ns": self._clock.now_ns()})
        while not self._is_over():
            if is_ending():
                self._begin_quit()
            self._take_commands(source_fd)
            for event in self._phone.poll():
                self._write_event(event)
        self._write_event({"event": "bye", "at_ns": self._clock.now_ns()})
        return 0

    def _is_over(self) -> bool:
        if self._quit_ns is None:
            return False
        return not self._phone.has_calls or self._clock.now_ns() - self._quit_ns > _QUIT_TIMEOUT_NS

    def _begin_quit(self) -> None:
        if self._quit_ns is None:
            self._quit_ns = self._clock.now_ns()
            self._phone.hang_up_all()

    def _take_commands(self, source_fd: int) -> None:
        while self._quit_ns is None and select.select([source_fd], [], [], 0)[0]:
            data = os.read(source_fd, _READ_BYTES)
            if not data:
                self._begin_quit()
                return
            *lines, self._unread = (self._unread + data).split(b"\n")
            for line in lines:
                if line.strip():
                    self._take(line)

    def _take(self, line: bytes) -> None:
        call = ""
        try:
            command = self._decoder.decode(line)
            call = getattr(command, "call", "")
            self._do(command)
        except (msgspec.MsgspecError, ValueError, CcTtsError) as error:
            self._write_event({"event": "error", "call": call, "at_ns": self._clock.now_ns(), "detail": str(error)})

    def _do(self, command: Command) -> None:
        match command:
            case Dial():
                self._phone.dial(command.plan())
            case Dtmf():
                duration_ms = checked_duration_ms(command.duration_ms)
                self._phone.call(command.call).press(command.digits, duration_ms=duration_ms)
            case Hold():
                self._phone.call(command.call).hold()
            case Unhold():
                self._phone.call(command.call).unhold()
            case Hangup():
                self._phone.call(command.call).hang_up()
            case MarkNow():
                self._write_event({"event": "mark", "id": command.id, "at_ns": self._clock.now_ns()})
            case Quit():
                self._begin_quit()

    def _write_event(self, event: dict[str, Any]) -> None:
        if isinstance(event.get("report"), CallReport):
            event = event | {"report": event["report"].to_dict()}
        try:
            self._out.write(self._encoder.encode(event) + b"\n")
            self._out.flush()
        except BrokenPipeError:  # the controlling program has ended
            self._begin_quit()
