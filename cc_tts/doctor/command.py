"""``cc-tts doctor``: run the checks and print a line for each finding; the exit status is 1 if the server cannot run."""

import argparse
import asyncio
import dataclasses
import json
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from cc_tts import logs
from cc_tts.config.schema import Config
from cc_tts.doctor import machine, network, software
from cc_tts.doctor.finding import CHILD_S, DEEP_S, QUICK_S, TORCH_S, Check, Finding, Subject, warn
from cc_tts.doctor.path import prompt_path
from cc_tts.doctor.probes import Probes

MARGIN_S: Final = 2.0
"""A check that starts a child gives up on it by itself; this is how much later the doctor gives up on the check, s
(unmeasured).
"""

CHECKS: Final = (
    Check("pjsua2", software.check_pjsua2, CHILD_S + MARGIN_S),  # first, as the number of calls depends on it
    Check("configuration", software.check_configuration, TORCH_S + MARGIN_S),
    Check("addresses", network.check_addresses, CHILD_S),  # a name server that does not answer
    Check("ports", network.check_ports),
    Check("rtp ports", network.check_rtp, CHILD_S),
    Check("udp buffers", network.check_udp_buffers),
    Check("clock", machine.check_clock, QUICK_S + MARGIN_S),
    Check("cpu", machine.check_cpu),
    Check("ulimit -n", machine.check_descriptors),
    Check("files", machine.check_files),
    Check("vad", software.check_vad, CHILD_S + MARGIN_S),
    Check("torch", software.check_torch, TORCH_S + MARGIN_S),
    Check("model", software.check_model, DEEP_S + MARGIN_S),
    Check("voices", software.check_voices, CHILD_S),
)


def examine(subject: Subject) -> Iterator[Finding]:
    """The findings of all checks, one after the other."""
    for check in CHECKS:
        yield from bounded(check, subject)


def bounded(check: Check, subject: Subject) -> Sequence[Finding]:
    """Run one check on a thread of its own; one that takes too long or breaks becomes a finding.

    The thread of a check that hangs (on a dead network disk, say) is left behind; it does not keep the process alive.
    """
    answers: queue.SimpleQueue[Sequence[Finding]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put(tuple(check.function(subject)))
        except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
            detail = f"could not be checked: {type(error).__name__}: {error}"
            answers.put((warn(check.what, detail, "please report it"),))

    threading.Thread(target=answer, name=check.what, daemon=True).start()
    try:
        return answers.get(timeout=check.timeout_s)
    except queue.Empty:
        advice = "something on this machine hangs: a disk, a driver, a name server"
        return (warn(check.what, f"no answer within {check.timeout_s:g} s", advice),)


def add_doctor_arguments(doctor: argparse.ArgumentParser) -> None:
    """Add the options of ``cc-tts doctor`` to its parser."""
    doctor.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    doctor.add_argument("--deep", action="store_true", help="read and hash the model's files too; minutes")
    doctor.add_argument(
        "--path", action="store_true", help="print what a prompt goes through on a call, and nothing else"
    )
    doctor.add_argument("--voice", help="with --path: the voice of the prompt")
    doctor.set_defaults(run=run)


def run(options: argparse.Namespace, config: Config, *, probes: Probes | None = None) -> int:
    """Print the report; 0 if nothing failed, else 1. With ``--path``, the engine or the voice may raise ``CcTtsError``."""
    if options.path:
        logs.configure(level="critical", json=False, process="doctor")
        sys.stdout.write(asyncio.run(prompt_path(config, options.voice)) + "\n")
        return 0
    findings = []
    for finding in examine(Subject(config, probes or Probes(), options.config, deep=options.deep)):
        findings.append(finding)
        if not options.json:
            sys.stdout.write(f"{finding}\n")
            sys.stdout.flush()
    is_fit = not any(finding.status == "fail" for finding in findings)
    if options.json:
        report = {"ok": is_fit, "findings": [dataclasses.asdict(finding) for finding in findings]}
        sys.stdout.write(json.dumps(report, ensure_ascii=False, indent=1) + "\n")
    return 0 if is_fit else 1
