"""``python -m lab.softphone_control``: the softphone driven by :mod:`lab.softphone`, JSON lines on standard input and
output.

Commands: ``{"cmd": "dial", "call": "a", "uri": "sip:…", …}``, ``dtmf``, ``say``, ``hold``, ``unhold``, ``hangup``,
``mark-now``, ``quit`` (the types below). Events: ``{"event": …, "call": …, "at_ns": …}`` with ready, dialing, ringing,
answered, speech_start, speech_end, saying, dtmf_sent, dtmf_received, held, unheld, ended, report, mark, error, bye.
Instants are CLOCK_MONOTONIC ns. The end of standard input is ``quit``.

Runs on: the SIP thread. Standard input is looked at between two polls of the library: a thread blocked in a read would
be in the way at exit.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Annotated, Any, Final

import msgspec

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.errors import CcTtsError
from cc_tts.softphone.call import SoftphoneCall
from cc_tts.softphone.command import begin
from cc_tts.softphone.phone import MAX_CALLS, Phone
from cc_tts.softphone.plan import DialPlan, PhoneSettings
from cc_tts.softphone.rtp.packets import RATE_HZ, Keypress, event_code
from lab.lines import CommandLines

_QUIT_TIMEOUT_NS: Final = 6_000_000_000
"""Time ``quit`` waits for calls to end. Longer than a call waits for the response to its BYE."""

_IDLE_MS: Final = 50
"""Without a call nothing but commands is waited for, and what is left of SIP may wait (unmeasured)."""

_MAX_EVENT_MS: Final = 0xFFFF * 1000 // RATE_HZ
"""A longer event would need a second segment (RFC 4733 §2.5.1.3)."""

CallId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Dial(DialPlan, tag_field="cmd", tag="dial", forbid_unknown_fields=True, kw_only=True):
    call: CallId = "1"
    rtp_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0


class _OnCall(msgspec.Struct, tag_field="cmd", tag=str.lower, forbid_unknown_fields=True, kw_only=True):
    call: CallId = "1"


class Dtmf(_OnCall, kw_only=True):
    """Press keys now, one after the other."""

    digits: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    duration_ms: Annotated[int, msgspec.Meta(ge=40, le=_MAX_EVENT_MS)] = 100
    """ITU-T Q.24: 40 ms must be recognised."""


class Say(_OnCall, kw_only=True):
    """Send the octets of a file, in the codec of the call."""

    file: str


class Hold(_OnCall):
    """Put the far side on hold."""


class Unhold(_OnCall):
    """Take the far side off hold."""


class Hangup(_OnCall):
    """BYE, or CANCEL."""


class MarkNow(msgspec.Struct, tag_field="cmd", tag="mark-now", forbid_unknown_fields=True):
    """Report the current instant; ``id`` is echoed."""

    id: str = ""


class Quit(msgspec.Struct, tag_field="cmd", tag="quit", forbid_unknown_fields=True):
    """Hang everything up and end."""


Command = Dial | Dtmf | Say | Hold | Unhold | Hangup | MarkNow | Quit


class Control:
    """Runs a phone by commands until ``quit``."""

    def __init__(self, phone: Phone, clock: Clock, *, out: IO[bytes]) -> None:
        self._phone = phone
        self._clock = clock
        self._out = out
        self._decoder = msgspec.json.Decoder(Command)
        self._encoder = msgspec.json.Encoder()
        self._quit_ns: int | None = None

    def run(self, source_fd: int, is_ending: Callable[[], bool]) -> None:
        """Serve commands from a file descriptor until quit, its end, or ``is_ending``."""
        commands = CommandLines(source_fd)
        self._write("ready")
        while not self._is_over():
            if is_ending():
                self._begin_quit()
            self._take_commands(commands, 0 if self._phone.calls else _IDLE_MS)
            for event in self._phone.poll():
                self._write_event(event)
        self._write("bye")

    def _is_over(self) -> bool:
        if self._quit_ns is None:
            return False
        return not self._phone.calls or self._clock.now_ns() - self._quit_ns > _QUIT_TIMEOUT_NS

    def _begin_quit(self) -> None:
        if self._quit_ns is None:
            self._quit_ns = self._clock.now_ns()
            for call in self._phone.calls.values():
                call.hang_up()

    def _take_commands(self, commands: CommandLines, timeout_ms: int) -> None:
        if self._quit_ns is not None:
            return
        lines = commands.take(timeout_ms)
        if lines is None:
            self._begin_quit()
        for line in lines or ():
            self._take(line)

    def _take(self, line: str) -> None:
        call = ""
        try:
            command = self._decoder.decode(line)
            call = getattr(command, "call", "")
            self._do(command)
        except (msgspec.MsgspecError, ValueError, OSError, CcTtsError) as error:
            self._write("error", call=call, detail=str(error))

    def _do(self, command: Command) -> None:
        match command:
            case Dial():
                self._dial(command)
            case Dtmf():
                keys = [Keypress(event_code(digit), command.duration_ms) for digit in command.digits]
                self._call(command.call).press(keys)
            case Say():
                self._call(command.call).say(Path(command.file).read_bytes())
            case Hold():
                self._call(command.call).hold()
            case Unhold():
                self._call(command.call).unhold()
            case Hangup():
                self._call(command.call).hang_up()
            case MarkNow():
                self._write("mark", id=command.id)
            case Quit():
                self._begin_quit()

    def _dial(self, command: Dial) -> None:
        calls = self._phone.calls
        if len(calls) >= MAX_CALLS:
            raise ValueError(f"the softphone holds {MAX_CALLS} calls at a time")
        if command.call in calls:
            raise ValueError(f"call {command.call!r} is still up; use another id")
        self._phone.dial(command)

    def _call(self, call_id: str) -> SoftphoneCall:
        if call_id not in self._phone.calls:
            raise ValueError(f"no call {call_id!r}; calls up: {', '.join(self._phone.calls) or 'none'}")
        return self._phone.calls[call_id]

    def _write(self, event: str, **values: str) -> None:
        self._write_event({"event": event, "at_ns": self._clock.now_ns(), **values})

    def _write_event(self, event: dict[str, Any]) -> None:
        try:
            self._out.write(self._encoder.encode(event) + b"\n")
            self._out.flush()
        except BrokenPipeError:  # the controlling program has ended
            self._begin_quit()


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.softphone_control", description="JSON lines on stdin and stdout.")
    parser.add_argument("--transport", choices=("udp", "tcp"), default="udp")
    settings = PhoneSettings(transport=parser.parse_args().transport)
    out, is_interrupted = begin()
    clock = MonotonicClock()
    with Phone(settings, clock) as phone:
        Control(phone, clock, out=out).run(sys.stdin.fileno(), is_interrupted)


if __name__ == "__main__":
    main()
