"""The softphone's side of offer and answer: pjmedia's description with our RTP port, and the content of the peer's.

RFC 4566 (now 8866) for the lines, RFC 3264 for their meaning, RFC 4733 §7.1.1 for telephone-event.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from cc_tts.softphone.rtp.packets import EVENT_PAYLOAD_TYPE, PAYLOAD_TYPES

_OWN_LINES: Final = ("b=", "a=rtpmap:", "a=fmtp:", "a=rtcp:", "a=ssrc:", "a=ptime:", "a=X-nat:", "a=rtcp-mux")
_AUDIO: Final = re.compile(r"m=audio (\d{1,5})(?:/\d+)? RTP/AVP((?: \d{1,3})+)\s*", re.ASCII)


def _sections(sdp: str) -> list[list[str]]:
    return [
        [line for line in re.split(r"\r?\n", part) if line] for part in re.split(r"^(?=m=)", sdp, flags=re.MULTILINE)
    ]


def with_own_media(sdp: str, *, address: str, port: int, codec: str) -> str:
    """Rewrite pjmedia's description: our address and port, one codec and telephone-event; its o= line and direction stay.

    The m= section of a rejected stream (port 0, RFC 3264 §6) is left alone. Every dynamic payload type gets its rtpmap:
    pjmedia asserts, which ends the process, on a description that lacks one.
    """
    payload_type = PAYLOAD_TYPES[codec]
    own_media = [
        f"m=audio {port} RTP/AVP {payload_type} {EVENT_PAYLOAD_TYPE}",
        f"c=IN IP4 {address}",
        f"a=rtpmap:{payload_type} {codec.upper()}/8000",
        f"a=rtpmap:{EVENT_PAYLOAD_TYPE} telephone-event/8000",
        f"a=fmtp:{EVENT_PAYLOAD_TYPE} 0-15",
        "a=ptime:20",
    ]
    lines: list[str] = []
    for section in _sections(sdp):
        kept = [line for line in section if not line.startswith(_OWN_LINES)]
        if re.match("m=audio (?!0 )", "".join(kept[:1])):
            kept = own_media + [line for line in kept[1:] if not line.startswith("c=")]
        lines += kept
    return "\r\n".join(lines) + "\r\n"


@dataclass(frozen=True, slots=True)
class RemoteAudio:
    """The peer's audio stream in its session description."""

    address: str
    port: int
    payload_types: tuple[int, ...]
    event_payload_type: int | None


def remote_audio(sdp: str) -> RemoteAudio | None:
    """Read the first audio stream; ``None`` without one, or if it is not IPv4 RTP/AVP."""
    session, *media = _sections(sdp)
    for first, *lines in media:
        match = _AUDIO.fullmatch(first)
        if match is None or int(match[1]) > 0xFFFF:  # noqa: PLR2004
            continue
        payload_types = tuple(number for number in map(int, match[2].split()) if number < 128)  # noqa: PLR2004
        address = _address(lines) or _address(session)
        if not address:
            return None
        return RemoteAudio(address, int(match[1]), payload_types, _event_payload_type(lines, payload_types))
    return None


def _address(lines: list[str]) -> str:
    """Return the address of the first c= line. A name is not looked up: that would block the SIP thread."""
    found = (line.removeprefix("c=IN IP4 ") for line in lines if line.startswith("c=IN IP4 "))
    try:
        return str(ipaddress.IPv4Address(next(found, "").split("/")[0].strip()))
    except ValueError:
        return ""


def _event_payload_type(lines: list[str], payload_types: tuple[int, ...]) -> int | None:
    matches = (re.match(r"a=rtpmap:(\d{1,3}) telephone-event/8000", line, re.ASCII | re.IGNORECASE) for line in lines)
    numbers = (int(match[1]) for match in matches if match is not None)
    return next((number for number in numbers if number in payload_types), None)
