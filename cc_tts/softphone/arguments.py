"""The softphone's command line. Its error messages show the right form."""

import argparse
import functools
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import wav_file
from cc_tts.softphone.plan import DialPlan, PhoneSettings, parse_header, parse_key_plan, parse_uri, seconds_of
from cc_tts.softphone.probe import plan as probe_plan
from cc_tts.softphone.probe.plan import ProbePlan
from cc_tts.softphone.speak import SpeakRequest

PASSWORD_VARIABLE: Final = "CC_TTS_CALL_PASSWORD"  # noqa: S105 - a name, not a password
TOKEN_VARIABLE: Final = "CC_TTS_CALL_TOKEN"  # noqa: S105


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The call that the command line describes. ``phone.local_address`` is empty where the route decides."""

    plan: DialPlan
    phone: PhoneSettings
    speak: SpeakRequest | None
    json: str
    """The target of the JSON document: a file, ``-`` for standard output, or nothing."""
    is_quiet: bool
    report: str = ""
    probe: ProbePlan | None = None


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 0xFFFF:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is no port; right is 0 (any free one) to 65535")
    return int(text)


def _seconds(text: str) -> float:
    value = seconds_of(text) or 0.0
    if not 0 < value <= 86_400:  # noqa: PLR2004 - a day
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; right is seconds, as in 10 or 2.5s")
    return value


def build_parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cc-tts call",
        description="Dial a SIP URI, record, and report packets and timing.",
        epilog="Exit status: 0 the call was answered (and the agent of a probe spoke), 1 refused or not answered (or that "
        "agent was silent), 2 no response, wrong arguments, or a file that could not be written.",
    )
    add = parser.add_argument
    add_time = functools.partial(add, type=_seconds, metavar="S")
    add("uri", metavar="URI", help="sip:USER@HOST[:PORT], such as sip:hello@127.0.0.1:5060")
    add("--from", dest="from_uri", default="", metavar="URI", help="who calls (default sip:softphone@…)")
    add("--codec", choices=("pcmu", "pcma"), default="pcmu", help="G.711 flavour offered")
    add("--dtmf", default="", metavar="PLAN", help="keys after the answer, as in 12@2.5s,#@4s (RFC 4733)")
    add("--play", default="", metavar="FILE", help="say a WAV file of 8 kHz after the answer, as in question.wav@4s")
    add("--report", default="", metavar="FILE", help="write a page of HTML with a picture of the call")
    add_time("--duration", dest="max_talk_s", help="hang up S after the answer (60; with --probe 1800)")
    add("--record", default="", metavar="FILE", help="write what was heard as WAV, 8 kHz")
    add("--transport", choices=("udp", "tcp"), default="udp", help="SIP transport")
    add("--local-address", default="", metavar="IP", help="address to use (default: the route's)")
    add("--local-port", type=_port, default=0, metavar="PORT", help="SIP port (0: any)")
    add("--rtp-port", type=_port, default=0, metavar="PORT", help="RTP port (0: any)")
    add("--username", default="", help="for digest authentication")
    add(
        "--password", default=environ.get(PASSWORD_VARIABLE, ""), help=f"better in the environment: {PASSWORD_VARIABLE}"
    )
    add("--header", dest="headers", action="append", default=[], metavar="'X-Foo: bar'", help="extra INVITE header")
    add_time("--timeout", dest="timeout_s", default=30.0, help="give up if not answered in S (30)")
    add("--speak", default="", metavar="TEXT", help="after the answer, ask the server to speak TEXT")
    add("--api", default="", metavar="URL", help="the server's REST address, for --speak")
    token_help = f"for --api; better in {TOKEN_VARIABLE}"
    add("--token", default=environ.get(TOKEN_VARIABLE, ""), metavar="T", help=token_help)
    add("--voice", default="", help="for --speak, and for the words of --probe")
    json_help = "write the report as one JSON document: alone or with - to standard output"
    add("--json", nargs="?", const="-", default="", metavar="FILE.json", help=json_help)
    add("--quiet", action="store_true", help="print no progress")
    _add_probe(parser, add_time)
    return parser


def _add_probe(parser: argparse.ArgumentParser, add_time: Callable[..., object]) -> None:
    """Add the options of a probe; the plan has the defaults."""
    add, words = parser.add_argument, "what is said: a text, or a WAV file of 8 kHz whose name ends in .wav"
    probe_help = "measure an agent: wait for its greeting, say a sentence, interrupt the answer, press a key, hang up"
    add("--probe", action="store_true", help=probe_help)
    add("--sentence", metavar="TEXT|WAV", help=words)
    add("--interruption", metavar="TEXT|WAV", help="what is said into the answer, likewise")
    add("--rounds", type=int, metavar="N", help="how often the sentence is said and the answer interrupted (1)")
    add("--key", metavar="KEY", help="the key that is pressed at the end (1); '' presses none")
    add_time(
        "--wait", dest="wait_s", help=f"the longest wait for the agent to speak or to stop ({probe_plan.WAIT_S:g})"
    )
    add_time("--dead-air", dest="dead_air_s", help=f"longer silence is dead air ({probe_plan.DEAD_AIR_S:g})")


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> CallArguments:
    """Read the command line; a fault ends the process with status 2, as argparse does."""
    parser = build_parser(environ)
    given = parser.parse_args(_with_json_file(argv))
    try:
        probe = _probe_plan(given)
        if given.max_talk_s is None:
            given.max_talk_s = 60.0 if probe is None else 1800.0
        if given.from_uri:
            given.from_uri = parse_uri(given.from_uri)[0]
        given.headers = dict(parse_header(text) for text in given.headers)
        plan = msgspec.convert(given, DialPlan, from_attributes=True)
        for name in (given.report, given.json):
            if name not in {"", "-"}:
                wav_file.check_writable(Path(name))
        speak = _speak_order(given.speak, given.api, given.token, "" if probe is not None else given.voice)
    except ValueError as error:
        parser.error(str(error))
    if given.transport == "tcp" and ";transport=" not in plan.uri:
        plan.uri += ";transport=tcp"
    phone = msgspec.convert(given, PhoneSettings, from_attributes=True)
    return CallArguments(plan, phone, speak, given.json, given.quiet, given.report, probe)


def _with_json_file(argv: Sequence[str]) -> list[str]:
    """``--json`` takes what follows it as a file only if that is ``-`` or ends in .json: it may stand before the URI."""
    following = [*argv[1:], ""]
    return [
        "--json=-" if each == "--json" and not (after == "-" or after.endswith(".json")) else each
        for each, after in zip(argv, following, strict=False)
    ]


def _probe_plan(given: argparse.Namespace) -> ProbePlan | None:
    """Return the plan of a probe from the command line; raises ``ValueError``."""
    names = ("sentence", "interruption", "rounds", "key", "wait_s", "dead_air_s")
    values = {name: value for name in names if (value := getattr(given, name)) is not None}
    if not given.probe:
        if values:
            raise ValueError("--sentence, --interruption, --rounds, --key, --wait and --dead-air go with --probe")
        return None
    if given.speak or given.dtmf or given.play:
        raise ValueError("--probe says words and presses a key of its own: leave --speak, --dtmf and --play out")
    plan = ProbePlan(**values, voice=given.voice)
    if not 1 <= plan.rounds <= probe_plan.MAX_ROUNDS:
        raise ValueError(f"--rounds is 1 to {probe_plan.MAX_ROUNDS}, got {plan.rounds}")
    if not (plan.sentence.strip() and plan.interruption.strip()):
        raise ValueError("--sentence and --interruption: there is nothing to say")
    if len(parse_key_plan(plan.key)) > 1:
        raise ValueError(f"--key is one key, got {plan.key!r}")
    probe_plan.check(plan)
    return plan


def _speak_order(text: str, api: str, token: str, voice: str) -> SpeakRequest | None:
    if not text.strip():
        if text:
            raise ValueError("--speak: empty text")
        if voice or api:
            raise ValueError("--api and --voice go with --speak TEXT")
        return None
    url = urllib.parse.urlsplit(api)
    if url.scheme not in {"http", "https"} or not url.netloc:
        raise ValueError(f"--speak needs --api URL; right is http://HOST:PORT, got {api!r}")
    return SpeakRequest(text=text, api=api, token=token, voice=voice)
