"""Which payload type telephone events have in a session description (RFC 4733 §2.4.1). No pjsua2 here."""

import re
from typing import Final

USUAL: Final = 101
"""Nearly every phone and PBX gives this to telephone events, some whatever was offered. PJMEDIA offers 120."""
_RTPMAP: Final = re.compile(r"^a=rtpmap:(\d{1,3}) +telephone-event/8000", re.MULTILINE | re.IGNORECASE)
_AUDIO: Final = re.compile(r"^m=audio .*$", re.MULTILINE)


def event_type(sdp: str) -> int | None:
    """Return the first payload type that is named, ``None`` if none is."""
    found = _RTPMAP.search(sdp)
    return int(found[1]) if found else None


def with_event_type(sdp: str, wanted: int) -> str:
    """Return the description with another payload type, unless something else has it."""
    given = event_type(sdp)
    if given is None or re.search(rf"^(m=audio .* {wanted}\b|a=rtpmap:{wanted} )", sdp, re.MULTILINE):
        return sdp
    sdp = _AUDIO.sub(lambda line: re.sub(rf" {given}(?=\s|$)", f" {wanted}", line[0]), sdp)
    return re.sub(rf"^a=(rtpmap|fmtp):{given}\b", rf"a=\g<1>:{wanted}", sdp, flags=re.MULTILINE)
