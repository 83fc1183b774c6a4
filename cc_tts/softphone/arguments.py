"""The softphone's command line. Error messages show the right form."""

import argparse
import ipaddress
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cc_tts import wav_file
from cc_tts.softphone.plan import TimedKeys
from cc_tts.softphone.rtp.packets import MAX_EVENT_MS, event_code
from cc_tts.softphone.speak import SpeakOrder

PASSWORD_VARIABLE: Final = "CC_TTS_CALL_PASSWORD"  # noqa: S105 - a name, not a password
TOKEN_VARIABLE: Final = "CC_TTS_CALL_TOKEN"  # noqa: S105
_URI: Final = re.compile(
    r"sip:(?:[^@\s<>\"]+@)?(?P<host>[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?(?:[;?][^\s<>\"]*)?", re.ASCII
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9.!%*_+`'~-]+", re.ASCII)  # token of RFC 3261 §25.1
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallArguments:
    """One call as asked for on the command line."""

    uri: str
    host: str
    port: int
    from_uri: str
    codec: str
    keys: tuple[TimedKeys, ...]
    duration_s: float
    record: Path | None
    transport: str
    local_address: str
    local_port: int
    rtp_port: int
    username: str
    password: str
    headers: Mapping[str, str]
    timeout_s: float
    speak: SpeakOrder | None
    is_json: bool
    is_quiet: bool
    pjsip_log_level: int


def parse_uri(text: str) -> tuple[str, str, int]:
    """A SIP URI (RFC 3261 §19.1) with its host and port. ``user@host`` is taken as ``sip:user@host``.

    Raises:
        ValueError: it is none.
    """
    if re.fullmatch(r"(sip:)?\+?[\d*#-]+|\w+", text, re.ASCII):
        user = text.removeprefix("sip:")
        raise ValueError(
            f"{text!r} names no host; right is sip:USER@HOST[:PORT], such as sip:{user}@127.0.0.1:5060 for a server on "
            "this machine"
        )
    uri = text if ":" in text.partition("@")[0] else f"sip:{text}"
    match = _URI.fullmatch(uri)
    if match is None or _is_broken_address(match["host"]):
        raise ValueError(
            f"{text!r} is no SIP URI the softphone can dial; right is sip:USER@HOST[:PORT], IPv4 or a name"
        )
    port = int(match["port"] or 5060)
    if not 0 < port <= 0xFFFF:  # noqa: PLR2004
        raise ValueError(f"{text!r}: {port} is no port; right is sip:USER@HOST[:PORT] with 1 to 65535")
    return uri, match["host"], port


def _is_broken_address(host: str) -> bool:
    """Whether it is made of digits and dots, and no IPv4 address: no host name looks like that."""
    try:
        return not host.strip(".0123456789") and not ipaddress.IPv4Address(host)
    except ValueError:
        return True


def parse_header(text: str) -> tuple[str, str]:
    """``Name: value`` as one SIP header.

    Raises:
        ValueError: no name, or a value that would break the message.
    """
    name, colon, value = text.partition(":")
    if not colon or not _HEADER_NAME.fullmatch(name.strip()):
        raise ValueError(f"{text!r} is no header; right is 'X-Name: value'")
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"header {name.strip()}: only printable ASCII; percent-encode the rest (RFC 3986)")
    return name.strip(), value


def parse_key_plan(text: str) -> tuple[TimedKeys, ...]:
    """``12@2.5s,#@4s``: digits and when to press them, counted from the answer; digits without a time at once.

    Raises:
        ValueError: a digit or a time cannot be read.
    """
    plan: list[TimedKeys] = []
    for item in (part.strip() for part in text.split(",")):
        digits, at, when = item.partition("@")
        match = _TIME.fullmatch(when)
        if not digits or (at and match is None):
            raise ValueError(f"{item!r} in the DTMF plan; right is DIGITS@TIME, as in 12@2.5s or #@300ms")
        for digit in digits:
            event_code(digit)
        at_ms = 0.0 if match is None else float(match[1]) * (1 if match[2] == "ms" else 1000)
        plan.append(TimedKeys(digits, at_ms))
    return tuple(plan)


def checked_duration_ms(duration_ms: int) -> int:
    """A key's duration.

    Raises:
        ValueError: it is too short or too long.
    """
    if not 40 <= duration_ms <= MAX_EVENT_MS:  # noqa: PLR2004 - ITU-T Q.24: 40 ms must be recognised
        raise ValueError(f"a key is pressed for 40 to {MAX_EVENT_MS} ms, got {duration_ms}")
    return duration_ms


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 0xFFFF:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is no port; right is 0 (any free one) to 65535")
    return int(text)


def _seconds(text: str) -> float:
    match = _TIME.fullmatch(text)
    value = 0.0 if match is None else float(match[1]) / (1000 if match[2] == "ms" else 1)
    if not 0 < value <= 86_400:  # noqa: PLR2004 - a day
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time; right is seconds, as in 10 or 2.5s")
    return value


def build_parser() -> argparse.ArgumentParser:
    """Every argument, with help."""
    parser = argparse.ArgumentParser(
        prog="cc-tts call",
        description="Dial a SIP URI, record, and report packets and timing.",
        epilog="Exit status: 0 the call was answered, 1 refused or not answered, 2 no response or wrong arguments.",
    )
    parser.add_argument("uri", metavar="URI", help="sip:USER@HOST[:PORT], such as sip:hello@127.0.0.1:5060")
    parser.add_argument(
        "--from", dest="from_uri", default="", metavar="URI", help="who calls (default sip:softphone@…)"
    )
    parser.add_argument("--codec", choices=("pcmu", "pcma"), default="pcmu", help="G.711 flavour offered")
    parser.add_argument(
        "--dtmf", default="", metavar="PLAN", help="keys after the answer, as in 12@2.5s,#@4s (RFC 4733)"
    )
    parser.add_argument("--duration", type=_seconds, default=60.0, metavar="S", help="hang up S after the answer (60)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what was heard as WAV, 8 kHz")
    parser.add_argument("--transport", choices=("udp", "tcp"), default="udp", help="SIP transport")
    parser.add_argument("--local-address", default="", metavar="IP", help="address to use (default: the route's)")
    parser.add_argument("--local-port", type=_port, default=0, metavar="PORT", help="SIP port (0: any)")
    parser.add_argument("--rtp-port", type=_port, default=0, metavar="PORT", help="RTP port (0: any)")
    parser.add_argument("--username", default="", help="for digest authentication")
    parser.add_argument("--password", default=None, help=f"better in the environment: {PASSWORD_VARIABLE}")
    parser.add_argument("--header", action="append", default=[], metavar="'X-Foo: bar'", help="extra INVITE header")
    parser.add_argument("--timeout", type=_seconds, default=30.0, metavar="S", help="give up if not answered in S (30)")
    parser.add_argument("--speak", default="", metavar="TEXT", help="after the answer, ask the server to speak TEXT")
    parser.add_argument("--api", default="", metavar="URL", help="the server's REST address, for --speak")
    parser.add_argument("--token", default=None, metavar="T", help=f"for --api; better in {TOKEN_VARIABLE}")
    parser.add_argument("--voice", default="", help="for --speak")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON document")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    parser.add_argument(
        "--pjsip-log-level", type=int, choices=range(7), default=0, metavar="0-6", help=argparse.SUPPRESS
    )
    return parser


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> CallArguments:
    """Read the command line; a fault ends the process with status 2, as argparse does."""
    parser = build_parser()
    given = parser.parse_args(argv)
    try:
        uri, host, port = parse_uri(given.uri)
        if given.from_uri:
            given.from_uri = parse_uri(given.from_uri)[0]
        if given.transport == "tcp" and ";transport=" not in uri:
            uri += ";transport=tcp"
        keys = parse_key_plan(given.dtmf) if given.dtmf else ()
        headers = dict(parse_header(text) for text in given.header)
        token = environ.get(TOKEN_VARIABLE, "") if given.token is None else given.token
        speak = _speak_order(given.speak, given.api, token, given.voice)
        if given.record is not None:
            wav_file.check_path(given.record)
    except ValueError as error:
        parser.error(str(error))
    return CallArguments(
        uri=uri,
        host=host,
        port=port,
        from_uri=given.from_uri,
        codec=given.codec,
        keys=keys,
        duration_s=given.duration,
        record=given.record,
        transport=given.transport,
        local_address=given.local_address,
        local_port=given.local_port,
        rtp_port=given.rtp_port,
        username=given.username,
        password=environ.get(PASSWORD_VARIABLE, "") if given.password is None else given.password,
        headers=headers,
        timeout_s=given.timeout,
        speak=speak,
        is_json=given.json,
        is_quiet=given.quiet,
        pjsip_log_level=given.pjsip_log_level,
    )


def _speak_order(text: str, api: str, token: str, voice: str) -> SpeakOrder | None:
    if not text.strip():
        if text:
            raise ValueError("--speak: empty text")
        if voice or api:
            raise ValueError("--api and --voice go with --speak TEXT")
        return None
    url = urllib.parse.urlsplit(api)
    if url.scheme not in {"http", "https"} or not url.netloc:
        raise ValueError(f"--speak needs --api URL; right is http://HOST:PORT, got {api!r}")
    return SpeakOrder(text=text, api=api, token=token, voice=voice)
