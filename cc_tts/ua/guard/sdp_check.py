"""Checks a session description before PJMEDIA uses it (RFC 8866), as far as we use it. No pjsua2 here.

pjsua resolves names in ``c=`` and ``a=rtcp`` on the SIP thread, and asserts what it did not check: that an address is of its
type, that a name is short, that there is a ``c=`` for m-lines that are switched off, that a line end follows an
``a=rtpmap``. In the PyPI wheel each of these assertions ends the process.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

MAX_LINE_CHARS: Final = 1_000  # unmeasured
MAX_MEDIA: Final = 16
"""This is PJMEDIA_MAX_SDP_MEDIA; PJMEDIA passes over what comes after."""
MAX_ATTRIBUTES: Final = 68
"""This is PJMEDIA_MAX_SDP_ATTR, for one m-line; PJMEDIA passes over what comes after."""
L16_PAYLOAD_TYPE: Final = 70
"""FreeSWITCH gives this payload type to L16/8000."""
MAX_PTIME_MS: Final = 180
"""PJMEDIA takes more, but sends no packet beyond PJMEDIA_MAX_MTU, 1,500 bytes, and says nothing (tried)."""
MAX_L16_BYTES: Final = 1_280
"""PJMEDIA_MAX_MTU has room for four frames of 20 ms of L16/8000, but not for five (tried)."""
_PROFILES: Final = ("RTP/AVP", "RTP/AVPF")
"""These are served without SRTP; with it :mod:`cc_tts.ua.guard.srtp_sdp` decides."""
_STATIC: Final = {0: "PCMU/8000", 8: "PCMA/8000", 9: "G722/8000"}
"""These payload types need no ``a=rtpmap`` (RFC 3551 §6)."""
_MAPPED: Final = frozenset((L16_PAYLOAD_TYPE, *range(96, 128)))
"""PJMEDIA knows these by their ``a=rtpmap``; it compares others by number."""
_NUMBER: Final = r"\d{1,10}"
_LINE: Final = re.compile(r"([a-z])=(.*)")
_VALUES: Final = {
    "v": re.compile(r"0"),
    "o": re.compile(rf"\S+ {_NUMBER}\d{{0,10}} {_NUMBER}\d{{0,10}} IN IP[46] \S+ *"),
    "b": re.compile(rf"[\w-]+:{_NUMBER} *"),
    "t": re.compile(r"\d{1,20} \d{1,20} *"),
    "m": re.compile(r"[\w.+-]+ \d{1,5}(?:/\d{1,5})? \S+(?: +[\w.+*-]+)+ *", re.ASCII),
}
_CONNECTION: Final = re.compile(r"IN (IP4|IP6) ([^\s/]+)((?:/\d{1,3}){0,2}) *")
_RTPMAP: Final = re.compile(r"(\d{1,3}) +([\w.+-]{1,64})/([1-9]\d{0,5})(?:/([1-9]\d?))? *")
_RTPMAP_NUMBER: Final = re.compile(r"(\d{1,3}) ")
_RTCP: Final = re.compile(r"(\d{1,5})(?: (IN IP[46] \S+))? *")
_PTIME: Final = re.compile(r" *(\d{1,5})(?:\.\d*)? *")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a description is refused: 400 if it is invalid, 488 if we cannot serve it; with the warning (RFC 3261 §20.43)."""

    status: int
    warning: int
    text: str


NO_CODEC: Final = Fault(488, 305, "None of the codecs is served")
NO_AUDIO: Final = Fault(488, 304, "No audio is offered")
NO_PROFILE: Final = Fault(488, 302, "Audio is served by RTP/AVP, and by RTP/SAVP where SRTP is on")
NO_NAMES: Final = Fault(488, 301, "Addresses are served as numbers, not as names")
NO_IPV6: Final = Fault(488, 301, "Audio is served over IPv4")
NO_MULTICAST: Final = Fault(488, 330, "No multicast is served")


@dataclass(slots=True)
class Media:
    """An m-line and the lines that belong to it."""

    kind: str
    port: int
    profile: str
    numbers: list[int]
    """The formats of the m-line that are payload types."""
    is_connected: bool = False
    """Whether there is a ``c=``, its own or that of the whole description."""
    names: dict[int, str] = field(default_factory=dict)
    fault: Fault | None = None
    rtcp_fault: Fault | None = None
    ptime_ms: int = 0
    num_attributes: int = 0


@dataclass(frozen=True, slots=True)
class Checked:
    """``fault`` if a description must not reach PJMEDIA; else which of its ``num_media`` m-lines must not be chosen, though
    they are switched on, such as that of IPv6 beside one of IPv4 (RFC 4091), and which of our codecs the others name.
    """

    fault: Fault | None = None
    unusable: tuple[int, ...] = ()
    num_media: int = 0
    codecs: frozenset[str] = frozenset()


def check(sdp: str, *, codecs: frozenset[str], secure: bool) -> Checked:
    """Check an offer or an answer. ``codecs`` are names with their rate (``PCMU/8000``); ``secure``: SRTP is served."""
    try:
        media = _read(sdp)
    except ValueError as error:
        return Checked(Fault(400, 399, str(error)))
    audio = {index: each for index, each in enumerate(media[:MAX_MEDIA]) if each.kind == "audio" and each.port}
    if any(NO_NAMES in (each.fault, each.rtcp_fault) for each in media if each.kind == "audio"):
        return Checked(
            NO_NAMES
        )  # PJSIP looks up the name of an m-line that is switched off, too, and asserts its length
    faults = {index: fault for index, each in audio.items() if (fault := _fault_of(each, codecs, secure=secure))}
    if len(faults) == len(audio):
        return Checked(next(iter(faults.values()), NO_AUDIO))
    spoken = set[str]().union(*(_names(each) for index, each in audio.items() if index not in faults))
    return Checked(unusable=tuple(faults), num_media=min(len(media), MAX_MEDIA), codecs=codecs & spoken)


def _fault_of(media: Media, codecs: frozenset[str], *, secure: bool) -> Fault | None:
    if media.profile not in _PROFILES and not secure:
        return NO_PROFILE
    if (fault := media.fault or media.rtcp_fault) or not (served := _names(media) & codecs):
        return fault or NO_CODEC
    most_ms = max(map(_most_ms, served))
    return Fault(488, 306, f"Packets of at most {most_ms} ms are served") if media.ptime_ms > most_ms else None


def _most_ms(codec: str) -> int:
    """Return the longest packet that PJMEDIA sends, ms."""
    name, _, rate_hz = codec.partition("/")
    return MAX_L16_BYTES * 1000 // (2 * int(rate_hz)) if name == "L16" else MAX_PTIME_MS


def _names(media: Media) -> set[str]:
    return {media.names.get(each, "") if each in _MAPPED else _STATIC.get(each, "") for each in media.numbers}


def _read(sdp: str) -> list[Media]:
    """Return the m-lines of a description. Raises ``ValueError``, with words for a reason phrase, if it is invalid."""
    whole = Media(kind="", port=0, profile="", numbers=[])
    media: list[Media] = []
    for kind, value in _lines(sdp):
        section = media[-1] if media else whole
        if kind == "m":
            media.append(_media(value, whole))
        elif kind == "c":
            section.fault, section.is_connected = _connection(value), True
        elif kind == "a":
            _add_attribute(section, value)
    for each in media:
        _check_complete(each)
    return media


def _check_complete(media: Media) -> None:
    if not media.is_connected:  # PJMEDIA asserts it of m-lines that are switched off, too
        raise ValueError("The SDP has no c= for an m-line")
    dynamic = {number for number in media.numbers if number >= 96}  # noqa: PLR2004 - RFC 3551
    if media.port and not dynamic <= media.names.keys():
        raise ValueError("A format of the SDP has no a=rtpmap")


def _lines(sdp: str) -> Iterator[tuple[str, str]]:
    """Return the type and value of each line. Raises ``ValueError`` for an invalid line."""
    if not sdp.endswith(("\r", "\n")) and sdp.rpartition("\n")[2].startswith("a=rtpmap"):
        raise ValueError("The SDP does not end with a line end")
    for line in filter(None, re.split(r"[\r\n]+", sdp)):
        if len(line) > MAX_LINE_CHARS or "\0" in line:
            raise ValueError("A line of the SDP is too long or holds NUL")
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError("A line of the SDP is malformed")
        kind, value = found.groups()
        if (pattern := _VALUES.get(kind)) and not pattern.fullmatch(value):
            raise ValueError(f"{kind}= of the SDP is malformed")
        yield kind, value


def _media(value: str, whole: Media) -> Media:
    kind, port, profile, *formats = value.split()
    media = Media(
        kind=kind.lower(),
        port=int(port.partition("/")[0]),
        profile=profile.upper(),
        numbers=[int(each) for each in formats if each.isdigit()],
        is_connected=whole.is_connected,
        fault=whole.fault,
    )
    if media.port > 0xFFFF:  # noqa: PLR2004 - of a port
        raise ValueError("m= of the SDP is malformed")
    are_types = len(media.numbers) == len(formats) and max(media.numbers) < 128  # noqa: PLR2004 - RFC 3550 §5.1
    if media.kind == "audio" and not are_types:
        raise ValueError("m= of the SDP names no payload type")
    return media


def _connection(value: str) -> Fault | None:
    """Return why the address of a ``c=`` cannot be served."""
    match = _CONNECTION.fullmatch(value)
    if match is None:
        raise ValueError("c= of the SDP is malformed")
    kind, text, more = match.groups()
    address = _address(kind, text)
    if address is None:
        return NO_NAMES
    if more or address.is_multicast:
        return NO_MULTICAST
    return None if address.version == 4 else NO_IPV6  # noqa: PLR2004 - IPv4


def _address(kind: str, text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address; ``None`` if it is a name. Raises ``ValueError`` if it is neither, or not of that kind."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if ":" in text or "%" in text or re.fullmatch(r"[\d.]*", text):
            raise ValueError("An address of the SDP is malformed") from None
        return None
    if address.version != int(kind[2]):
        raise ValueError("An address of the SDP is not of its type")
    return address


def _add_attribute(media: Media, value: str) -> None:
    name, _, value = value.partition(":")
    media.num_attributes += 1
    if name in _ATTRIBUTES and media.num_attributes <= MAX_ATTRIBUTES:
        _ATTRIBUTES[name](media, value)


def _rtpmap(media: Media, value: str) -> None:
    match = _RTPMAP.fullmatch(value)
    if match is not None and int(match[1]) < 128:  # noqa: PLR2004 - RFC 3550 §5.1
        is_mono = match[4] in (None, "1")
        media.names.setdefault(int(match[1]), f"{match[2].upper()}/{match[3]}" if is_mono else "")
        return
    # PJMEDIA makes no format of ours out of it either: FreeSWITCH writes telephone-event/0 and CN/0 in the re-INVITEs of
    # `sofia recover`
    match = _RTPMAP_NUMBER.match(value)
    if match is not None and int(match[1]) not in _STATIC:
        media.names.setdefault(int(match[1]), "")
    elif match is not None and media.kind == "audio":
        raise ValueError("a=rtpmap of the SDP is malformed")


def _rtcp(media: Media, value: str) -> None:
    if media.kind != "audio":
        return
    match = _RTCP.fullmatch(value)
    if match is None or int(match[1]) > 0xFFFF:  # noqa: PLR2004 - of a port
        raise ValueError("a=rtcp of the SDP is malformed")
    if match[2]:
        media.rtcp_fault = media.rtcp_fault or _connection(match[2])


def _ptime(media: Media, value: str) -> None:
    if match := _PTIME.fullmatch(value):
        media.ptime_ms = max(media.ptime_ms, int(match[1]))


_ATTRIBUTES: Final[Mapping[str, Callable[[Media, str], None]]] = {"rtpmap": _rtpmap, "rtcp": _rtcp, "ptime": _ptime}
"""Return the values of the attributes of an m-line."""
