"""Masks secrets in SIP messages: texts to be spoken, credentials, media keys, digits. A mask has the length of the original,
so that Content-Length and offsets stay right. Patterns are looked for in lower case.
"""

import re
from typing import Final

_VALUE: Final = rb"((?:[^\r\n]|\r?\n[ \t])*)"
"""The value of a header, including folded lines (RFC 3261 §7.3.1)."""
_SECRET_HEADERS: Final = re.compile(
    rb"^(?:x-tts-(?:text|ssml|instructions|digits)|(?:proxy-)?authorization|authentication-info)[ \t]*:" + _VALUE,
    re.MULTILINE,
)
_PLAY: Final = re.compile(
    rb"(?:;|%3b)[ \t]*(?:p|%70)(?:l|%6c)(?:a|%61)(?:y|%79)[ \t]*(?:=|%3d)(\"[^\"\r\n]*|[^;>?\s]*)"
)
"""The parameter that names what is played (RFC 4240 §3). It may be a text, also in quotes; its characters may be escaped."""
_URI_HEADERS: Final = re.compile(
    rb"[?&](?:x-tts-(?:text|ssml|instructions|digits)|(?:proxy-)?authorization)=([^&>\s;\"]*)"
)
"""Headers in a URI (RFC 3261 §19.1.1)."""
_PASSWORD: Final = re.compile(rb"sips?:[^@:>\s\"]*+(?::(?:([^@>\s\"]++)@|[^@>\s\"]*+))?")
"""The password of a URI. What has none is passed as a whole: a search from each "sip:" in it takes quadratic time."""
_SDP_KEYS: Final = re.compile(rb"\n(?:a=crypto:[^\r\n]*?inline:|a=key-mgmt:|a=ice-pwd:|k=)([^\r\n]*)")
_KEYS_BODY: Final = re.compile(rb"\n(?:content-type|c)[ \t]*:\s*application/dtmf")
_END_OF_HEADERS: Final = re.compile(rb"\r?\n\r?\n")
_SECRETS: Final = (_SECRET_HEADERS, _PLAY, _URI_HEADERS, _PASSWORD, _SDP_KEYS)
_MASK: Final = bytes(each if each in b"\r\n \t" else ord("*") for each in range(256))


def masked(message: bytes) -> bytes:
    lower = message.lower()
    spans = [match.span(1) for pattern in _SECRETS for match in pattern.finditer(lower) if match[1] is not None]
    if b"application/dtmf" in lower:
        end = _END_OF_HEADERS.search(lower)
        if end is not None and _KEYS_BODY.search(lower, 0, end.end()):
            spans.append((end.end(), len(message)))
    if not spans:
        return message
    bare = bytearray(message)
    for start, stop in spans:
        bare[start:stop] = bare[start:stop].translate(_MASK)
    return bytes(bare)
