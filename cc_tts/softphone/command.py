"""``cc-tts call URI``: dial, listen, record, report. ``python -m cc_tts.softphone URI`` is the same.

::

    command              command line ▸ one call ▸ report        arguments, report, speak
      └ phone            pjsua2: SIP only, no media of its own   call (one call), sdp
          └ rtp.endpoint our socket: kernel receive times        rtp.receiver, rtp.recording, rtp.packets (bytes ↔ values)

Runs on: the SIP thread (this process's main thread).
"""

import bisect
import dataclasses
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from cc_tts import logs
from cc_tts.callreport.page import render
from cc_tts.callreport.picture import CallPicture
from cc_tts.clock import NS_PER_MS, Clock, MonotonicClock, ms_between
from cc_tts.errors import CcTtsError
from cc_tts.softphone.arguments import CallArguments, parse
from cc_tts.softphone.phone import Phone, local_address_towards
from cc_tts.softphone.picture import picture_of
from cc_tts.softphone.plan import DialPlan, parse_uri
from cc_tts.softphone.report import SoftphoneEnding, SoftphoneReport
from cc_tts.softphone.rtp.receiver import PAUSE_MS

if TYPE_CHECKING:
    from cc_tts.softphone.probe.probe import Probe
    from cc_tts.softphone.probe.report import ProbeReport

EXIT_WRONG: Final = 2


class ProgressEvents:
    """Events in the order in which they happened: the end of a talkspurt is known only when the pause after it is over.
    ``only_errors``: no progress is shown; errors are, else a recording would be missing without a word.
    """

    HELD_NS: Final = 2 * PAUSE_MS * NS_PER_MS

    def __init__(self, *, only_errors: bool = False) -> None:
        self._only_errors = only_errors
        self._held: list[dict[str, Any]] = []

    def add(self, event: dict[str, Any]) -> None:
        if event["event"] == "error" or not self._only_errors:
            bisect.insort(self._held, event, key=lambda each: each["at_ns"])

    def due(self, now_ns: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the entries that no other can precede any more, oldest first; without ``now_ns`` all: the call is over."""
        while self._held and (now_ns is None or self._held[0]["at_ns"] <= now_ns - self.HELD_NS):
            yield self._held.pop(0)


def _run_call(
    arguments: CallArguments, phone: Phone, clock: Clock, is_interrupted: Callable[[], bool], probe: "Probe | None"
) -> SoftphoneReport:
    """Dial and stay until the call is over, progress to standard error; every wait in it has a named timeout."""
    origin_ns = clock.now_ns()
    progress = ProgressEvents(only_errors=arguments.is_quiet or arguments.json == "-")
    speak = arguments.speak
    call = phone.dial(arguments.plan)
    if probe is not None:
        probe.begin(call)
    while True:
        if is_interrupted():
            call.hang_up()
        if probe is not None:
            probe.work()
        for event in phone.poll():
            if event["event"] == "report":
                _print(progress.due(), origin_ns)
                report: SoftphoneReport = event["report"]
                if speak is not None:
                    report.speak = speak.finish(report.talkspurts)
                return report
            progress.add(event)
            if event["event"] == "answered" and speak is not None:
                speak.start(event["sip_call_id"], clock)
        _print(progress.due(clock.now_ns()), origin_ns)


def _print(events: Iterator[dict[str, Any]], origin_ns: int) -> None:
    for event in events:
        words = (event.get(key) for key in ("event", "digit", "result", "sip_code", "reason", "detail"))
        at_s = ms_between(origin_ns, event["at_ns"]) / 1000
        sys.stderr.write(f"{at_s:8.3f} s  {' '.join(str(word) for word in words if word)}\n")


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


def main() -> int:
    """Run ``cc-tts call``; the return value is the exit status."""
    arguments = parse(sys.argv[1:], os.environ)
    with tempfile.TemporaryDirectory() as folder:
        is_kept = bool(arguments.plan.record)
        if arguments.report and not is_kept:
            arguments.plan.record = f"{folder}/heard.wav"
        return _call(arguments, Path(folder), is_kept=is_kept)


def _call(arguments: CallArguments, folder: Path, *, is_kept: bool) -> int:
    settings, plan = arguments.phone, arguments.plan
    out, is_interrupted = begin()
    clock = MonotonicClock()
    try:
        if not settings.local_address:
            address = local_address_towards(*parse_uri(plan.uri)[1:])
            settings = dataclasses.replace(settings, local_address=address)
        probe = _probe(arguments, clock)
        with Phone(settings, clock) as phone:
            report = _run_call(arguments, phone, clock, is_interrupted, probe)
    except CcTtsError as error:
        sys.stderr.write(f"cc-tts call: {error}\n")
        return EXIT_WRONG
    found: SoftphoneReport | ProbeReport = report if probe is None else probe.report(report)
    is_written = report.recording is not None or not is_kept
    if arguments.report:
        is_written &= _is_written(arguments.report, lambda: render(_picture(found, plan, probe, folder)))
    if not is_kept:
        report.recording = None
    if arguments.json not in {"", "-"}:
        is_written &= _is_written(arguments.json, lambda: _document(found))
    out.write((_document(found) if arguments.json == "-" else found.table()).encode())
    out.flush()
    _say_why(report.ending)
    return found.exit_code or (0 if is_written else EXIT_WRONG)


def _picture(
    found: "SoftphoneReport | ProbeReport", plan: DialPlan, probe: "Probe | None", folder: Path
) -> CallPicture:
    """The picture of the page; raises ``OSError``."""
    report = found if isinstance(found, SoftphoneReport) else found.call
    heard = Path(report.recording.file) if report.recording is not None else None
    if probe is not None and not isinstance(found, SoftphoneReport):
        return probe.picture(found, heard, folder)
    return picture_of(report, heard=heard, said=plan.play_file, said_at_s=plan.play_at_s)


def _probe(arguments: CallArguments, clock: Clock) -> "Probe | None":
    """Return the requested probe, ready to begin; raises ``ConfigError``."""
    if arguments.probe is None:
        return None
    from cc_tts.softphone.probe.plan import words_of
    from cc_tts.softphone.probe.probe import Probe

    return Probe(arguments.probe, words_of(arguments.probe), clock)


def _document(report: object) -> str:
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def _is_written(name: str, text: Callable[[], str]) -> bool:
    """Write a file that is this user's to read only; if that fails, say so and return false: the call was made."""
    try:
        with open(name, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text())
    except OSError as error:
        sys.stderr.write(f"cc-tts call: {name}: {error.strerror}\n")
        return False
    return True


def _say_why(ending: SoftphoneEnding) -> None:
    if ending.exit_code:
        code = f"{ending.sip_code} " if ending.sip_code else ""
        sys.stderr.write(f"cc-tts call: {ending.result}: {code}{ending.reason}\n")
