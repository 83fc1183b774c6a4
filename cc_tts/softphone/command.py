"""``cc-tts call URI``: dial, listen, record, report. ``python -m cc_tts.softphone URI`` is the same.

::

    command              command line ▸ one call ▸ report        arguments, report, speak
    control              or: JSON lines from another program     bench/softphone is its other end
      └ phone            pjsua2: SIP only, no media of its own   call (one call), sdp
          └ rtp.endpoint our socket: kernel receive times        rtp.receiver, rtp.recording, rtp.packets (bytes ↔ values)

Runs on: the SIP thread (this process's main thread).
"""

import argparse
import heapq
import itertools
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import IO, Any, Final

import msgspec

from cc_tts import logs
from cc_tts.clock import NS_PER_MS, Clock, MonotonicClock, ms_between
from cc_tts.errors import CcTtsError
from cc_tts.softphone.arguments import CallArguments, parse
from cc_tts.softphone.control import Control
from cc_tts.softphone.phone import Phone, local_address_towards
from cc_tts.softphone.plan import PhoneSettings
from cc_tts.softphone.report import CallReport, table
from cc_tts.softphone.rtp.receiver import PAUSE_MS
from cc_tts.softphone.speak import SpeakRequest

EXIT_WRONG: Final = 2


class _Interrupt:
    """Ctrl-C and SIGTERM: noted, acted on between two polls."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True


class Progress:
    """Events in the order in which they happened: the end of a talkspurt is known only when the pause after it is over."""

    HELD_NS: Final = 2 * PAUSE_MS * NS_PER_MS

    def __init__(self) -> None:
        self._held: list[tuple[int, int, dict[str, Any]]] = []
        self._count = itertools.count()

    def add(self, event: dict[str, Any]) -> None:
        """Take one in."""
        heapq.heappush(self._held, (event["at_ns"], next(self._count), event))

    def due(self, now_ns: int) -> Iterator[dict[str, Any]]:
        """Those that nothing can come before any more, oldest first."""
        while self._held and self._held[0][0] <= now_ns - self.HELD_NS:
            yield heapq.heappop(self._held)[2]

    def rest(self) -> Iterator[dict[str, Any]]:
        """All that are left, oldest first: the call is over."""
        while self._held:
            yield heapq.heappop(self._held)[2]


class _OneCall:
    """The call of the command line: progress to standard error, report to standard output."""

    def __init__(self, arguments: CallArguments, phone: Phone, clock: Clock) -> None:
        self._arguments = arguments
        self._phone = phone
        self._clock = clock
        self._speak = SpeakRequest(arguments.speak, clock) if arguments.speak is not None else None
        self._origin_ns = 0
        self._progress = Progress()

    def run(self, interrupt: _Interrupt) -> CallReport:
        """Dial and stay until the call is over; every wait in it has a named timeout."""
        self._origin_ns = self._clock.now_ns()
        call = self._phone.dial(self._arguments.plan)
        if self._speak is not None:
            call.speak = self._speak.report
        while True:
            if interrupt.is_set:
                call.hang_up()
            for event in self._phone.poll():
                if event["event"] == "report":
                    for earlier in self._progress.rest():
                        self._print(earlier)
                    report: CallReport = event["report"]
                    return report
                self._progress.add(event)
                if event["event"] == "answered" and self._speak is not None:
                    self._speak.start(event["sip_call_id"])
                if event["event"] == "ended" and self._speak is not None:
                    self._speak.finish()
            for event in self._progress.due(self._clock.now_ns()):
                self._print(event)

    def _print(self, event: dict[str, Any]) -> None:
        if self._arguments.is_quiet or self._arguments.is_json:
            return
        detail = " ".join(
            str(event[key]) for key in ("digit", "result", "sip_code", "reason", "detail") if event.get(key)
        )
        at_s = ms_between(self._origin_ns, event["at_ns"]) / 1000
        sys.stderr.write(f"{at_s:8.3f} s  {event['event']} {detail}".rstrip() + "\n")


def _split_stdout() -> IO[bytes]:
    """Our own way to standard output. File descriptor 1 becomes standard error: C code may print there."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _run_call(arguments: CallArguments, out: IO[bytes]) -> int:
    clock = MonotonicClock()
    interrupt = _Interrupt()
    address = arguments.phone.address or local_address_towards(arguments.host, arguments.port)
    phone = Phone(replace(arguments.phone, address=address), clock)
    phone.start()
    try:
        report = _OneCall(arguments, phone, clock).run(interrupt)
    finally:
        phone.close()
    if arguments.is_json:
        out.write(msgspec.json.format(msgspec.json.encode(report.to_dict()), indent=1) + b"\n")
    else:
        out.write(table(report).encode())
    out.flush()
    if report.ending.exit_code:
        code = f"{report.ending.sip_code} " if report.ending.sip_code else ""
        sys.stderr.write(f"cc-tts call: {report.ending.result}: {code}{report.ending.reason}\n")
    return report.ending.exit_code


def _run_control(argv: Sequence[str], out: IO[bytes]) -> int:
    parser = argparse.ArgumentParser(prog="softphone --control", description="JSON lines on stdin and stdout.")
    parser.add_argument("--control", action="store_true", required=True)
    parser.add_argument("--local-address", default="127.0.0.1")
    parser.add_argument("--local-port", type=int, default=0)
    parser.add_argument("--transport", choices=("udp", "tcp"), default="udp")
    parser.add_argument("--from", dest="from_uri", default="")
    parser.add_argument("--pjsip-log-level", type=int, choices=range(7), default=0)
    given = parser.parse_args(argv)
    clock = MonotonicClock()
    interrupt = _Interrupt()
    phone = Phone(
        PhoneSettings(
            address=given.local_address,
            port=given.local_port,
            transport=given.transport,
            from_uri=given.from_uri,
            pjsip_log_level=given.pjsip_log_level,
        ),
        clock,
    )
    phone.start()
    try:
        return Control(phone, clock, out=out).run(sys.stdin.fileno(), lambda: interrupt.is_set)
    finally:
        phone.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the softphone; the return value is the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = None if "--control" in words else parse(words, os.environ)
    logs.configure(level="warning", json=False, process="softphone")
    out = _split_stdout()
    try:
        return _run_control(words, out) if arguments is None else _run_call(arguments, out)
    except CcTtsError as error:
        sys.stderr.write(f"cc-tts call: {error}\n")
        return EXIT_WRONG
