"""The softphone's command line. Error messages show the right form."""

import argparse
import functools
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import wav_file
from cc_tts.softphone.plan import DialPlan, PhoneSettings, parse_header, parse_uri, seconds_of
from cc_tts.softphone.speak import SpeakRequest

PASSWORD_VARIABLE: Final = "CC_TTS_CALL_PASSWORD"  # noqa: S105 - a name, not a password
TOKEN_VARIABLE: Final = "CC_TTS_CALL_TOKEN"  # noqa: S105


@dataclass(frozen=True, slots=True)
class CallArguments:
    """One call as asked for on the command line. ``phone.local_address`` is empty where the route decides."""

    plan: DialPlan
    phone: PhoneSettings
    speak: SpeakRequest | None
    is_json: bool
    is_quiet: bool
    report: str = ""


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
    """Return the parser of ``cc-tts call``."""
    parser = argparse.ArgumentParser(
        prog="cc-tts call",
        description="Dial a SIP URI, record, and report packets and timing.",
        epilog="Exit status: 0 the call was answered, 1 refused or not answered, 2 no response or wrong arguments.",
    )
    add = parser.add_argument
    add_time = functools.partial(add, type=_seconds, metavar="S")
    add("uri", metavar="URI", help="sip:USER@HOST[:PORT], such as sip:hello@127.0.0.1:5060")
    add("--from", dest="from_uri", default="", metavar="URI", help="who calls (default sip:softphone@…)")
    add("--codec", choices=("pcmu", "pcma"), default="pcmu", help="G.711 flavour offered")
    add("--dtmf", default="", metavar="PLAN", help="keys after the answer, as in 12@2.5s,#@4s (RFC 4733)")
    add("--play", default="", metavar="FILE", help="say a WAV file of 8 kHz after the answer, as in question.wav@4s")
    add("--report", default="", metavar="FILE", help="write a page of HTML with a picture of the call")
    add_time("--duration", dest="max_talk_s", default=60.0, help="hang up S after the answer (60)")
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
    add("--voice", default="", help="for --speak")
    add("--json", action="store_true", help="print the report as one JSON document")
    add("--quiet", action="store_true", help="print no progress")
    return parser


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> CallArguments:
    """Read the command line; a fault ends the process with status 2, as argparse does."""
    parser = build_parser(environ)
    given = parser.parse_args(argv)
    try:
        if given.from_uri:
            given.from_uri = parse_uri(given.from_uri)[0]
        given.headers = dict(parse_header(text) for text in given.headers)
        plan = msgspec.convert(given, DialPlan, from_attributes=True)
        if given.report:
            wav_file.check_writable(Path(given.report))
        speak = _speak_order(given.speak, given.api, given.token, given.voice)
    except ValueError as error:
        parser.error(str(error))
    if given.transport == "tcp" and ";transport=" not in plan.uri:
        plan.uri += ";transport=tcp"
    phone = msgspec.convert(given, PhoneSettings, from_attributes=True)
    return CallArguments(plan, phone, speak, given.json, given.quiet, given.report)


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
