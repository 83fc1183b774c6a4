"""The payload types in a session description: telephone events (RFC 4733 §2.4.1) and codecs. No pjsua2 here."""

import re
from collections.abc import Sequence
from typing import Final

USUAL: Final = 101
"""The usual payload type of telephone events; some peers use it whatever was offered. PJMEDIA offers 120."""
STATIC: Final = {"PCMU": "0", "PCMA": "8", "G722": "9"}
"""PJMEDIA's payload types of our codecs (RFC 3551 §6)."""
_RTPMAP: Final = re.compile(r"^a=rtpmap:(\d{1,3}) +telephone-event/8000", re.MULTILINE | re.IGNORECASE)
_AUDIO: Final = re.compile(r"^m=audio .*$", re.MULTILINE)


def event_type(sdp: str) -> int | None:
    """Return the first payload type of telephone events, ``None`` if there is none."""
    found = _RTPMAP.search(sdp)
    return int(found[1]) if found else None


def with_event_type(sdp: str, wanted: int) -> str:
    """Return the description with another payload type for telephone events, unless that is used already."""
    given = event_type(sdp)
    if given is None or re.search(rf"^(m=audio .* {wanted}\b|a=rtpmap:{wanted} )", sdp, re.MULTILINE):
        return sdp
    sdp = _AUDIO.sub(lambda line: re.sub(rf" {given}(?=\s|$)", f" {wanted}", line[0]), sdp)
    return re.sub(rf"^a=(rtpmap|fmtp):{given}\b", rf"a=\g<1>:{wanted}", sdp, flags=re.MULTILINE)


def with_codecs(sdp: str, names: Sequence[str]) -> str:
    """Return the description with these of our codecs, in this order, and no other; unchanged if it has none of them."""
    line = _AUDIO.search(sdp)
    if line is None:
        return sdp
    media, port, profile, *given = line[0].split()
    if not (wanted := [STATIC[name] for name in names if STATIC[name] in given]):
        return sdp
    formats = [*wanted, *(each for each in _RTPMAP.findall(sdp) if each in given)]
    sdp = sdp.replace(line[0].rstrip(), " ".join((media, port, profile, *formats)), 1)
    for left_out in set(given).difference(formats):
        sdp = re.sub(rf"^a=(?:rtpmap|fmtp):{left_out} .*(?:\r\n?|\n)", "", sdp, flags=re.MULTILINE)
    return sdp
