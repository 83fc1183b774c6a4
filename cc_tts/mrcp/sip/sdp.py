"""Session descriptions: the offer of an MRCP client (RFC 6787 §4.2), and our answer to it (RFC 3264).

::

    m=application 9 TCP/MRCPv2 1                        m=application 1544 TCP/MRCPv2 1
    a=setup:active  a=connection:new                    a=setup:passive  a=connection:new
    a=resource:speechsynth  a=cmid:1             ──▸    a=channel:4f1a…@speechsynth  a=cmid:1
    m=audio 4000 RTP/AVP 0 8 96                         m=audio 17000 RTP/AVP 0
    a=recvonly  a=mid:1                                 a=sendonly  a=mid:1
"""

import ipaddress
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cc_tts.config.sip_uri import MAX_PORT
from cc_tts.mrcp.control.synthesizer import RESOURCE
from cc_tts.mrcp.rtp.codecs import STATIC, Codec
from cc_tts.mrcp.sip.request import SipRefusal

MAX_MEDIA: Final = 16  # unmeasured
MAX_FORMATS: Final = 64  # unmeasured
TLS_PROTOCOL: Final = "TCP/TLS/MRCPv2"
PLAIN_PROTOCOL: Final = "TCP/MRCPv2"
_MEDIA: Final = re.compile(r"m=([\w-]{1,32}) (\d{1,5})(?:/\d{1,5})? ([\w/.-]{1,32})((?: [\w.+*-]{1,64})*)\s*", re.ASCII)
_RTPMAP: Final = re.compile(r"a=rtpmap:(\d{1,3}) +([\w.-]{1,32})/(\d{1,6})(?:/(\d{1,2}))?\s*", re.ASCII)
_ATTRIBUTE: Final = re.compile(r"a=([\w-]{1,32})(?::(.*))?")
_TOKEN: Final = re.compile(r"[\w.!#$%&'*+^`{|}~-]{1,64}", re.ASCII)
_HEARS: Final = ("recvonly", "sendrecv", "")
_UNSPECIFIED: Final = "0.0.0.0"
"""The address that old clients send for hold (RFC 3264 §8.4)."""
_DIRECTIONS: Final = ("sendrecv", "sendonly", "recvonly", "inactive")
_MAX_PAYLOAD_TYPE: Final = 127
"""A payload type has seven bits (RFC 3550 §5.1)."""


@dataclass(slots=True)
class OfferedMedia:
    """An ``m=`` section of an offer."""

    kind: str
    port: int
    protocol: str
    formats: tuple[str, ...]
    address: str
    attributes: dict[str, str] = field(default_factory=dict)
    codecs: dict[int, Codec] = field(default_factory=dict)
    direction: str = ""
    cmids: list[str] = field(default_factory=list)
    """The ``mid`` of each media line that a control line belongs to (RFC 6787 §4.4)."""
    accepted_port: int = 0
    """Our port for it, in the answer; 0 refuses it."""

    @property
    def is_control(self) -> bool:
        return self.kind == "application" and self.protocol.upper() in (PLAIN_PROTOCOL.upper(), TLS_PROTOCOL.upper())

    @property
    def is_tls(self) -> bool:
        return "/TLS/" in self.protocol.upper()

    @property
    def is_audio(self) -> bool:
        return self.kind == "audio" and self.protocol.upper() == "RTP/AVP"

    @property
    def is_heard(self) -> bool:
        return self.direction in _HEARS and self.address != _UNSPECIFIED

    @property
    def is_our_resource(self) -> bool:
        """Whether it requests a synthesiser, with a connection from the client (RFC 6787 §4.2)."""
        return (
            self.is_control
            and self.port > 0
            and self.attributes.get("resource", "").lower() == RESOURCE
            and self.attributes.get("setup", "active").lower() in ("active", "actpass")
        )

    def codec(self) -> Codec | None:
        """Return the first codec of the offer that we support."""
        for each in self.formats[:MAX_FORMATS]:
            number = int(each) if each.isascii() and each.isdigit() else -1
            codec = self.codecs.get(number) or STATIC.get(number)
            if codec is not None and codec.is_known:
                return codec
        return None


def audio_of(offer: Sequence[OfferedMedia], control: OfferedMedia | None) -> OfferedMedia | None:
    """Return the audio line of a synthesiser: among those that its control line names, or among all if it names none, the
    first on which the client receives, else the first. Beside it there may be a line on which the client only sends, for a
    recogniser.
    """
    lines = [each for each in offer if each.is_audio and each.port]
    named = [each for each in lines if control is not None and each.attributes.get("mid") in control.cmids] or lines
    return next((each for each in named if each.is_heard), next(iter(named), None))


def read(sdp: str) -> tuple[OfferedMedia, ...]:
    """Return the ``m=`` sections of an offer. Raises ``Refusal``."""
    if not sdp.startswith("v=0"):
        raise SipRefusal(400, "a description begins with v=0")
    head, *parts = re.split(r"^(?=m=)", sdp, flags=re.MULTILINE)
    if not parts:
        raise SipRefusal(400, "there is no m= line")
    if len(parts) > MAX_MEDIA:
        raise SipRefusal(400, f"there are more than {MAX_MEDIA} m= lines")
    address = _address(_lines(head), "")
    direction = next((line[2:] for line in _lines(head) if line[2:] in _DIRECTIONS), "")
    return tuple(_media(_lines(part), address, direction) for part in parts)


def _lines(text: str) -> list[str]:
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _media(lines: list[str], address: str, direction: str) -> OfferedMedia:
    match = _MEDIA.fullmatch(lines[0])
    if match is None or int(match[2]) > MAX_PORT:
        raise SipRefusal(400, "an m= line is malformed")
    media = OfferedMedia(match[1].lower(), int(match[2]), match[3], tuple(match[4].split()), _address(lines, address))
    media.direction = direction
    for line in lines[1:]:
        _attribute(media, line)
    return media


def _attribute(media: OfferedMedia, line: str) -> None:
    if (mapped := _RTPMAP.fullmatch(line)) is not None:
        number, channels = int(mapped[1]), int(mapped[4] or 1)
        if channels == 1 and number <= _MAX_PAYLOAD_TYPE:
            media.codecs[number] = Codec(mapped[2].upper(), int(mapped[3]), number)
    elif (match := _ATTRIBUTE.fullmatch(line)) is not None:
        if match[1] in _DIRECTIONS:
            media.direction = match[1]
        elif match[1].lower() == "cmid":
            media.cmids.append((match[2] or "").strip())
        else:
            media.attributes.setdefault(match[1].lower(), (match[2] or "").strip())


def _address(lines: list[str], otherwise: str) -> str:
    """Return the IPv4 address of the first ``c=`` line. Names are not looked up."""
    found = next((line for line in lines if line.startswith("c=IN IP4 ")), None)
    if found is None:
        return otherwise
    try:
        return str(ipaddress.IPv4Address(found.removeprefix("c=IN IP4 ").split("/")[0].strip()))
    except ValueError:
        return ""


def answer(offer: Sequence[OfferedMedia], *, channel: str, address: str, sdp_id: int, version: int) -> str:
    """Return our answer, with an ``m=`` section for each one of the offer, in its order (RFC 3264 §6). ``channel`` is that
    of our synthesiser, and names the session even where it is refused.
    """
    head = ["v=0", f"o=cc-tts {sdp_id} {version} IN IP4 {address}", "s=-", f"c=IN IP4 {address}", "t=0 0"]
    sections = (line for media in offer for line in _section(media, channel))
    return "".join(f"{line}\r\n" for line in (*head, *sections))


def _section(media: OfferedMedia, channel: str) -> Iterator[str]:
    codec = media.codec() if media.accepted_port else None
    if media.is_control:
        yield f"m=application {media.accepted_port} {media.protocol} 1"
        if media.accepted_port:
            connection = "existing" if media.attributes.get("connection", "").lower() == "existing" else "new"
            yield from ("a=setup:passive", f"a=connection:{connection}", f"a=channel:{channel}")
        elif _TOKEN.fullmatch(resource := media.attributes.get("resource", "")):
            # UniMRCP knows its session by the first control line of all, also if that is refused
            yield f"a=channel:{channel.partition('@')[0]}@{resource}"
        yield from (f"a=cmid:{each}" for each in media.cmids if _TOKEN.fullmatch(each))
    elif codec is not None:
        yield f"m=audio {media.accepted_port} RTP/AVP {codec.payload_type}"
        yield f"a=rtpmap:{codec.payload_type} {codec.name}/{codec.rate_hz}"
        yield from (f"a={'sendonly' if media.is_heard else 'inactive'}", "a=ptime:20")
    else:
        yield f"m={media.kind} 0 {media.protocol} {' '.join(media.formats) or '0'}"
    if _TOKEN.fullmatch(mid := media.attributes.get("mid", "")):  # UniMRCP takes a line without it for 0 from then on
        yield f"a=mid:{mid}"


def capabilities(*, address: str, has_tls: bool, has_plain: bool) -> str:
    """Return the description in the answer to OPTIONS (RFC 6787 §7)."""
    protocols = [*([PLAIN_PROTOCOL] if has_plain else []), *([TLS_PROTOCOL] if has_tls else [])]
    head = ["v=0", f"o=cc-tts 0 0 IN IP4 {address}", "s=-", f"c=IN IP4 {address}", "t=0 0"]
    control = [line for each in protocols for line in (f"m=application 0 {each} 1", f"a=resource:{RESOURCE}")]
    audio = [
        "m=audio 0 RTP/AVP 0 8 96",
        "a=rtpmap:0 PCMU/8000",
        "a=rtpmap:8 PCMA/8000",
        "a=rtpmap:96 L16/8000",
        "a=sendonly",
    ]
    return "".join(f"{line}\r\n" for line in (*head, *control, *audio))
