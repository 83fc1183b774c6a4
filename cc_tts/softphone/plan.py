"""The plan of a call: the target, the local address, the audio to play, and which keys are pressed when."""

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from cc_tts import wav_file
from cc_tts.clock import NS_PER_S
from cc_tts.media.g711 import ulaw_encode
from cc_tts.softphone.rtp.packets import RATE_HZ, Keypress, event_code

_URI: Final = re.compile(
    r"sip:(?:[^@\s<>\"]+@)?(?P<host>[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?(?:[;?][^\s<>\"]*)?", re.ASCII
)
MAX_PLAY_S: Final = 600.0  # unmeasured
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9.!%*_+`'~-]+", re.ASCII)  # token of RFC 3261 §25.1


class DialPlan(msgspec.Struct, kw_only=True):
    """A call to be made; raises ``ValueError`` if the URI, a header, the DTMF plan, the file to play or the
    recording's name is wrong.
    """

    uri: str
    call: str = "1"
    codec: Literal["pcmu", "pcma"] = "pcmu"
    headers: dict[str, str] = {}
    rtp_port: int = 0
    record: str = ""
    dtmf: str = ""
    play: str = ""
    timeout_s: float = 30.0
    max_talk_s: float = 3600.0

    def __post_init__(self) -> None:
        self.uri = parse_uri(self.uri)[0]
        self.headers = dict(parse_header(f"{name}: {value}") for name, value in self.headers.items())
        parse_key_plan(self.dtmf)
        if self.play and self.codec != "pcmu":
            raise ValueError("a file is played with --codec pcmu only")
        read_play(self.play)
        if self.record:
            wav_file.check_path(Path(self.record))

    @property
    def play_file(self) -> Path | None:
        """The file that is played; ``None`` without one."""
        return Path(_file_and_time(self.play)[0]) if self.play else None

    @property
    def play_at_s(self) -> float:
        """When the file begins, in seconds after the answer."""
        return _file_and_time(self.play)[1] or 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSettings:
    """Local addresses, the From URI and credentials."""

    local_address: str = "127.0.0.1"
    local_port: int = 0
    transport: Literal["udp", "tcp"] = "udp"
    from_uri: str = ""
    username: str = ""
    password: str = field(default="", repr=False)


def parse_uri(text: str) -> tuple[str, str, int]:
    """Return a SIP URI (RFC 3261 §19.1), or ``user@host``, as URI, host and port; raises ``ValueError`` if it
    is not valid.
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
    """Return whether it consists of digits and dots but is not an IPv4 address: no host name looks like that."""
    try:
        return not host.strip(".0123456789") and not ipaddress.IPv4Address(host)
    except ValueError:
        return True


def parse_header(text: str) -> tuple[str, str]:
    """Parse ``Name: value``; raises ``ValueError`` without a name, or for a value that would break the message."""
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{text!r} is no header; right is 'X-Name: value'")
    if not value.isascii() or not value.isprintable():
        raise ValueError(f"header {name}: only printable ASCII; percent-encode the rest (RFC 3986)")
    return name, value


def seconds_of(text: str) -> float | None:
    """Return ``2.5``, ``2.5s`` or ``300ms`` in seconds; ``None`` if it is not a duration."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)?", text, re.ASCII)
    return None if match is None else float(match[1]) / (1000 if match[2] == "ms" else 1)


def parse_key_plan(text: str) -> list[Keypress]:
    """Parse ``12@2.5s,#@4s``: digits and when to press them, counted from the answer; digits without a time are pressed at
    once. Raises ``ValueError`` if a digit or a time cannot be read.
    """
    plan: list[Keypress] = []
    for item in (part.strip() for part in text.split(",") if text):
        digits, at, when = item.partition("@")
        at_s = seconds_of(when) if at else 0.0
        if not digits or at_s is None:
            raise ValueError(f"{item!r} in the DTMF plan; right is DIGITS@TIME, as in 12@2.5s or #@300ms")
        plan += (Keypress(event_code(digit), not_before_ns=round(at_s * NS_PER_S)) for digit in digits)
    return plan


def read_play(text: str) -> tuple[bytes, float]:
    """Read ``question.wav@4s``: a WAV file of 8 kHz as μ-law bytes, and how many ms after the answer it begins; nothing for
    an empty text. Raises ``ValueError`` if the time or the file cannot be read.
    """
    if not text:
        return b"", 0.0
    name, at_s = _file_and_time(text)
    if at_s is None or at_s > MAX_PLAY_S:
        raise ValueError(f"{text!r}: right is FILE or FILE@TIME, as in question.wav@4s, up to {MAX_PLAY_S:g} s")
    pcm = wav_file.read(Path(name), rate_hz=RATE_HZ, max_s=MAX_PLAY_S)
    return ulaw_encode(pcm), at_s * 1000


def _file_and_time(text: str) -> tuple[str, float | None]:
    """Split ``FILE@TIME`` into the file and the time in seconds; ``None`` for a time that cannot be read."""
    name, at, when = text.rpartition("@")
    return (name, seconds_of(when)) if at else (text, 0.0)
