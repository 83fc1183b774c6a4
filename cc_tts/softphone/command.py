"""``cc-tts call URI``: dial, listen, record, report. ``python -m cc_tts.softphone URI`` is the same.

::

    command              command line ▸ one call ▸ report        arguments, report, speak
    control              or: JSON lines from another program     bench/softphone is its other end
      └ phone            pjsua2: SIP only, no media of its own   call (one call), sdp
          └ rtp.endpoint our socket: kernel receive times        rtp.receiver, rtp.recording, rtp.packets (bytes ↔ values)

Runs on: the SIP thread (this process's main thread).
"""

import argparse
import bisect
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final

import msgspec

from cc_tts import logs
from cc_tts.clock import NS_PER_MS, Clock, MonotonicClock, ms_between
from cc_tts.errors import CcTtsError
from cc_tts.softphone.arguments import CallArguments, parse
from cc_tts.softphone.control import Control
from cc_tts.softphone.phone import Phone, local_address_towards
from cc_tts.softphone.plan import PhoneSettings, parse_uri
from cc_tts.softphone.report import CallReport, table
from cc_tts.softphone.rtp.receiver import PAUSE_MS
from cc_tts.softphone.speak import SpeakRequest

EXIT_WRONG: Final = 2


class Progress:
    """Events in the order in which they happened: the end of a talkspurt is known only when the pause after it is over."""

    HELD_NS: Final = 2 * PAUSE_MS * NS_PER_MS

    def __init__(self) -> None:
        self._held: list[dict[str, Any]] = []

    def add(self, event: dict[str, Any]) -> None:
        """Take one in."""
        bisect.insort(self._held, event, key=lambda each: each["at_ns"])

    def due(self, now_ns: int | None = None) -> Iterator[dict[str, Any]]:
        """Those that nothing can come before any more, oldest first; without ``now_ns`` all: the call is over."""
        while self._held and (now_ns is None or self._held[0]["at_ns"] <= now_ns - self.HELD_NS):
            yield self._held.pop(0)


def _run_call(arguments: CallArguments, phone: Phone, clock: Clock, is_interrupted: Callable[[], bool]) -> CallReport:
    """Dial and stay until the call is over, progress to standard error; every wait in it has a named timeout."""
    origin_ns = clock.now_ns()
    progress = Progress()
    speak = None if arguments.speak is None else SpeakRequest(arguments.speak, clock)

    def write(events: Iterator[dict[str, Any]]) -> None:
        for event in events:
            if not arguments.is_quiet and not arguments.is_json:
                sys.stderr.write(_progress_line(origin_ns, event))

    call = phone.dial(arguments.plan)
    while True:
        if is_interrupted():
            call.hang_up()
        for event in phone.poll():
            if event["event"] == "report":
                write(progress.due())
                report: CallReport = event["report"]
                if speak is not None:
                    report.speak = speak.finish(report.talkspurts)
                return report
            progress.add(event)
            if event["event"] == "answered" and speak is not None:
                speak.start(event["sip_call_id"])
        write(progress.due(clock.now_ns()))


def _progress_line(origin_ns: int, event: dict[str, Any]) -> str:
    detail = " ".join(str(event[key]) for key in ("digit", "result", "sip_code", "reason", "detail") if event.get(key))
    return f"{ms_between(origin_ns, event['at_ns']) / 1000:8.3f} s  {event['event']} {detail}".rstrip() + "\n"


def _write_report(report: CallReport, out: IO[bytes], *, is_json: bool) -> int:
    out.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n" if is_json else table(report).encode())
    out.flush()
    ending = report.ending
    if ending.exit_code:
        code = f"{ending.sip_code} " if ending.sip_code else ""
        sys.stderr.write(f"cc-tts call: {ending.result}: {code}{ending.reason}\n")
    return ending.exit_code


def _control_settings(words: Sequence[str]) -> PhoneSettings:
    parser = argparse.ArgumentParser(prog="softphone --control", description="JSON lines on stdin and stdout.")
    parser.add_argument("--control", action="store_true", required=True)
    parser.add_argument("--transport", choices=("udp", "tcp"), default="udp")
    return PhoneSettings(transport=parser.parse_args(words).transport)


def _split_stdout() -> IO[bytes]:
    """Our own way to standard output. PJLIB prints to file descriptor 1 while it starts and ends: that goes nowhere."""
    out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Run the softphone; the return value is the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = None if "--control" in words else parse(words, os.environ)
    settings = _control_settings(words) if arguments is None else arguments.phone
    logs.configure(level="warning", json=False, process="softphone")
    out = _split_stdout()
    interrupted = threading.Event()  # acted on between two polls
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    clock = MonotonicClock()
    try:
        if arguments is not None and not settings.local_address:
            address = local_address_towards(*parse_uri(arguments.plan.uri)[1:])
            settings = msgspec.structs.replace(settings, local_address=address)
        phone = Phone(settings, clock)
        phone.start()
        try:
            if arguments is None:
                return Control(phone, clock, out=out).run(sys.stdin.fileno(), interrupted.is_set)
            report = _run_call(arguments, phone, clock, interrupted.is_set)
        finally:
            phone.close()
        return _write_report(report, out, is_json=arguments.is_json)
    except CcTtsError as error:
        sys.stderr.write(f"cc-tts call: {error}\n")
        return EXIT_WRONG
