"""Masks in SIP messages what nobody but the two ends shall read: texts to be spoken, credentials, keys of media, digits.

What is masked keeps its length, so that Content-Length and offsets stay right.
"""

import re
from typing import Final

_VALUE: Final = rb"((?:[^\r\n]|\r?\n[ \t])*)"
"""The value of a header, also a folded one (RFC 3261 §7.3.1)."""
_SECRET_HEADERS: Final = re.compile(
    rb"^((?:x-tts-(?:text|ssml|digits)|(?:proxy-)?authorization|authentication-info)[ \t]*:)" + _VALUE,
    re.IGNORECASE | re.MULTILINE,
)
_PLAY: Final = re.compile(
    rb"((?:;|%3b)[ \t]*(?:p|%70)(?:l|%6c)(?:a|%61)(?:y|%79)[ \t]*(?:=|%3d))([^;>?\s\"]*)", re.IGNORECASE
)
"""The parameter that names what is played (RFC 4240 §3), which may be a text; its letters may be escaped."""
_URI_HEADERS: Final = re.compile(
    rb"([?&](?:x-tts-(?:text|ssml|digits)|(?:proxy-)?authorization)=)([^&>\s;\"]*)", re.IGNORECASE
)
"""Headers that a URI asks for (RFC 3261 §19.1.1)."""
_PASSWORD: Final = re.compile(rb"(sips?:[^@:;>\s\"]+:)([^@>\s\"]+)(?=@)", re.IGNORECASE)
_SDP_KEYS: Final = re.compile(
    rb"^(a=crypto:[^\r\n]*?inline:|a=key-mgmt:|a=ice-pwd:|k=)([^\r\n]*)", re.IGNORECASE | re.MULTILINE
)
_KEYS_BODY: Final = re.compile(rb"^(?:content-type|c)[ \t]*:[ \t]*application/dtmf", re.IGNORECASE | re.MULTILINE)
_END_OF_HEADERS: Final = re.compile(rb"\r?\n\r?\n")
_LETTERS: Final = re.compile(rb"[^\r\n \t]")
_MASK: Final = b"*"


def masked(message: bytes) -> bytes:
    """Return a message with asterisks in place of its secrets."""
    for pattern in (_SECRET_HEADERS, _PLAY, _URI_HEADERS, _PASSWORD):
        message = pattern.sub(_hidden, message)  # a body may be a part of a message, too
    end = _END_OF_HEADERS.search(message)
    at = end.end() if end else len(message)
    head, body = message[:at], message[at:]
    if _KEYS_BODY.search(head):
        return head + _LETTERS.sub(_MASK, body)
    return head + _SDP_KEYS.sub(_hidden, body)


def _hidden(match: re.Match[bytes]) -> bytes:
    return match[1] + _LETTERS.sub(_MASK, match[2])
