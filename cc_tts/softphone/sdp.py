"""The softphone's side of offer/answer: pjmedia's description with our RTP port in it, and what the peer's says.

RFC 4566 (now 8866) for the lines, RFC 3264 for their meaning, RFC 4733 §7.1.1 for telephone-event.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from cc_tts.softphone.rtp.packets import EVENT_PAYLOAD_TYPE, PAYLOAD_TYPES

_DIRECTIONS: Final = ("sendrecv", "sendonly", "recvonly", "inactive")
_OWN_ATTRIBUTES: Final = ("rtpmap:", "fmtp:", "rtcp:", "ssrc:", "ptime:", "X-nat:", "rtcp-mux")


def with_own_media(sdp: str, *, address: str, port: int, codec: str) -> str:
    """Rewrite what pjmedia made: our address and port, one codec and telephone-event; its o= line and direction stay.

    The m= section of a rejected stream (port 0, RFC 3264 §6) is left alone. Every dynamic payload type gets its rtpmap:
    pjmedia asserts, which ends the process, on a description that lacks one.
    """
    payload_type = PAYLOAD_TYPES[codec]
    lines: list[str] = []
    in_audio = False
    for line in sdp.replace("\r\n", "\n").split("\n"):
        if line.startswith("m="):
            words = line.split()
            in_audio = words[0] == "m=audio" and words[1] != "0"
            if not in_audio:
                lines.append(line)
                continue
            lines += [
                f"m=audio {port} RTP/AVP {payload_type} {EVENT_PAYLOAD_TYPE}",
                f"c=IN IP4 {address}",
                f"a=rtpmap:{payload_type} {codec.upper()}/8000",
                f"a=rtpmap:{EVENT_PAYLOAD_TYPE} telephone-event/8000",
                f"a=fmtp:{EVENT_PAYLOAD_TYPE} 0-15",
                "a=ptime:20",
            ]
        elif in_audio and (line.startswith(("c=", "b=")) or _is_own_attribute(line)):
            continue
        elif line and not _is_own_attribute(line) and not line.startswith("b="):
            lines.append(line)
    return "\r\n".join(lines) + "\r\n"


def _is_own_attribute(line: str) -> bool:
    return line.startswith("a=") and line[2:].startswith(_OWN_ATTRIBUTES)


@dataclass(frozen=True, slots=True)
class RemoteAudio:
    """What the peer's session description says about its audio stream."""

    address: str
    port: int
    payload_types: tuple[int, ...]
    event_payload_type: int | None
    direction: str


def remote_audio(sdp: str) -> RemoteAudio | None:
    """Read the first audio stream; None when there is none, or it is not IPv4 RTP/AVP."""
    session, *sections = re.split(r"^(?=m=)", sdp.replace("\r\n", "\n"), flags=re.MULTILINE)
    for section in sections:
        first, *lines = section.split("\n")
        media = _media_line(first)
        if media is None:
            continue
        port, payload_types = media
        address = _address(lines) or _address(session.split("\n"))
        direction = _direction(lines) or _direction(session.split("\n")) or "sendrecv"
        if not address:
            return None
        return RemoteAudio(address, port, payload_types, _event_payload_type(lines, payload_types), direction)
    return None


def _address(lines: list[str]) -> str:
    """Address of the first c= line. A name is not looked up: that would block the SIP thread."""
    found = (line.removeprefix("c=IN IP4 ") for line in lines if line.startswith("c=IN IP4 "))
    try:
        return str(ipaddress.IPv4Address(next(found, "").split("/")[0].strip()))
    except ValueError:
        return ""


def _direction(lines: list[str]) -> str:
    return next((line[2:].strip() for line in lines if line.startswith("a=") and line[2:].strip() in _DIRECTIONS), "")


def _event_payload_type(lines: list[str], payload_types: tuple[int, ...]) -> int | None:
    for line in lines:
        match = re.match(r"a=rtpmap:(\d{1,3}) telephone-event/8000", line, re.ASCII | re.IGNORECASE)
        if match is not None and int(match[1]) in payload_types:
            return int(match[1])
    return None


def _media_line(line: str) -> tuple[int, tuple[int, ...]] | None:
    """Port and payload types of an m=audio line; what cannot be right is left out."""
    match = re.fullmatch(r"m=audio (\d{1,5})(?:/\d+)? RTP/AVP((?: \d{1,3})+)\s*", line, re.ASCII)
    if match is None or int(match[1]) > 0xFFFF:  # noqa: PLR2004
        return None
    return int(match[1]), tuple(number for number in map(int, match[2].split()) if number < 128)  # noqa: PLR2004


def body_of(message: str) -> str:
    """Body of a SIP message that carries a session description, or nothing."""
    head, separator, body = message.partition("\r\n\r\n")
    return body if separator and "application/sdp" in head.lower() else ""


def header_of(message: str, name: str) -> str:
    """Value of the first header of this name in a SIP message, or nothing (RFC 3261 §7.3.1)."""
    for line in message.partition("\r\n\r\n")[0].split("\r\n")[1:]:
        key, colon, value = line.partition(":")
        if colon and key.strip().lower() == name.lower():
            return value.strip()
    return ""
