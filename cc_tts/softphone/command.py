"""``cc-tts call URI``: dial, listen, record, report. ``python -m cc_tts.softphone URI`` is the same.

::

    command              command line ▸ one call ▸ report        arguments, report, speak
      └ phone            pjsua2: SIP only, no media of its own   call (one call), sdp
          └ rtp.endpoint our socket: kernel receive times        rtp.receiver, rtp.recording, rtp.packets (bytes ↔ values)

Runs on: the SIP thread (this process's main thread).
"""

import bisect
import contextlib
import dataclasses
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from cc_tts import logs
from cc_tts.callreport.page import render
from cc_tts.clock import NS_PER_MS, Clock, MonotonicClock, ms_between
from cc_tts.errors import CcTtsError
from cc_tts.softphone.arguments import CallArguments, parse
from cc_tts.softphone.phone import Phone, local_address_towards
from cc_tts.softphone.picture import picture_of
from cc_tts.softphone.plan import parse_uri
from cc_tts.softphone.report import CallReport, table
from cc_tts.softphone.rtp.receiver import PAUSE_MS

EXIT_WRONG: Final = 2


class Progress:
    """Events in the order in which they happened: the end of a talkspurt is known only when the pause after it is over."""

    HELD_NS: Final = 2 * PAUSE_MS * NS_PER_MS

    def __init__(self) -> None:
        self._held: list[dict[str, Any]] = []

    def add(self, event: dict[str, Any]) -> None:
        """Add an event to the report."""
        bisect.insort(self._held, event, key=lambda each: each["at_ns"])

    def due(self, now_ns: int | None = None) -> Iterator[dict[str, Any]]:
        """Those that nothing can come before any more, oldest first; without ``now_ns`` all: the call is over."""
        while self._held and (now_ns is None or self._held[0]["at_ns"] <= now_ns - self.HELD_NS):
            yield self._held.pop(0)


def _run_call(arguments: CallArguments, phone: Phone, clock: Clock, is_interrupted: Callable[[], bool]) -> CallReport:
    """Dial and stay until the call is over, progress to standard error; every wait in it has a named timeout."""
    origin_ns = clock.now_ns()
    progress = Progress()
    speak = arguments.speak

    def write(events: Iterator[dict[str, Any]]) -> None:
        for event in events:
            words = (event.get(key) for key in ("event", "digit", "result", "sip_code", "reason", "detail"))
            at_s = ms_between(origin_ns, event["at_ns"]) / 1000
            if not (arguments.is_quiet or arguments.is_json):
                sys.stderr.write(f"{at_s:8.3f} s  {' '.join(str(word) for word in words if word)}\n")

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
                speak.start(event["sip_call_id"], clock)
        write(progress.due(clock.now_ns()))


def _write_report(report: CallReport, out: IO[bytes], *, is_json: bool) -> int:
    out.write(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n" if is_json else table(report).encode())
    out.flush()
    ending = report.ending
    if ending.exit_code:
        code = f"{ending.sip_code} " if ending.sip_code else ""
        sys.stderr.write(f"cc-tts call: {ending.result}: {code}{ending.reason}\n")
    return ending.exit_code


def begin() -> tuple[IO[bytes], Callable[[], bool]]:
    """Set up the process: its log, our own way to standard output, and whether SIGINT or SIGTERM has come.

    PJLIB prints to file descriptor 1 while it starts and ends: that goes nowhere.
    """
    logs.configure(level="warning", json=False, process="softphone")
    out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    interrupted = threading.Event()  # acted on between two polls
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    return out, interrupted.is_set


def _write_page(report: CallReport, arguments: CallArguments) -> None:
    """Write the page of ``--report``; raises ``OSError``."""
    plan = arguments.plan
    heard = Path(report.recording.file) if report.recording is not None else None
    page = render(picture_of(report, heard=heard, said=plan.play_file, said_at_s=plan.play_at_s))
    with open(arguments.report, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(page)


def main() -> int:
    """Run ``cc-tts call``; the return value is the exit status."""
    arguments = parse(sys.argv[1:], os.environ)
    with contextlib.ExitStack() as stack:
        is_kept = bool(arguments.plan.record)
        if arguments.report and not is_kept:
            arguments.plan.record = f"{stack.enter_context(tempfile.TemporaryDirectory())}/heard.wav"
        return _call(arguments, is_kept=is_kept)


def _call(arguments: CallArguments, *, is_kept: bool) -> int:
    settings = arguments.phone
    out, is_interrupted = begin()
    clock = MonotonicClock()
    try:
        if not settings.local_address:
            address = local_address_towards(*parse_uri(arguments.plan.uri)[1:])
            settings = dataclasses.replace(settings, local_address=address)
        with Phone(settings, clock) as phone:
            report = _run_call(arguments, phone, clock, is_interrupted)
    except CcTtsError as error:
        sys.stderr.write(f"cc-tts call: {error}\n")
        return EXIT_WRONG
    if arguments.report:
        try:
            _write_page(report, arguments)
        except OSError as error:
            sys.stderr.write(f"cc-tts call: {arguments.report}: {error.strerror}\n")
    if not is_kept:
        report.recording = None
    return _write_report(report, out, is_json=arguments.is_json)
