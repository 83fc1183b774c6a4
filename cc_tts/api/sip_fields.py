"""Checks the URIs and headers that clients put into SIP requests, so that nothing can be injected."""

import re
from collections.abc import Mapping
from typing import Final

from cc_tts.api.http.bodies import pointer_to
from cc_tts.config.sip_uri import uri_fault
from cc_tts.errors import FieldError

MAX_HEADERS: Final = 20  # unmeasured
MAX_HEADER_NAME_CHARS: Final = 64  # unmeasured
MAX_HEADER_VALUE_CHARS: Final = 1024  # unmeasured
MAX_HEADERS_CHARS: Final = 4096  # unmeasured
"""The limit for all names and values together."""
MAX_REASON_CHARS: Final = 128  # unmeasured

_TEL: Final = re.compile(r"tel:\+?[0-9*#().-]{1,40}", re.IGNORECASE)
"""A telephone number (RFC 3966 §3), without parameters."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]+")
"""A header's name (RFC 3261 §25.1, ``token``)."""
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]*")


def display_name_fault(name: str) -> str | None:
    return None if name.isprintable() else "printable characters only"


def identity_fault(uri: str) -> str | None:
    """Return the fault of a URI for a caller's asserted identity; ``None`` if it is valid."""
    return None if _TEL.fullmatch(uri) else uri_fault(uri)


def header_faults(headers: Mapping[str, str]) -> list[FieldError]:
    """Yield the faults of a body's ``headers`` for an INVITE."""
    if len(headers) > MAX_HEADERS:
        return [FieldError("/headers", f"at most {MAX_HEADERS} headers")]
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEADERS_CHARS:
        return [FieldError("/headers", f"at most {MAX_HEADERS_CHARS} characters in all headers together")]
    faults: list[FieldError] = []
    seen: set[str] = set()
    for name, value in headers.items():
        fault = _header_fault(name, value)
        if fault is None and name.lower() in seen:
            fault = "this header is there already (names are compared without case)"
        seen.add(name.lower())
        if fault is not None:
            faults.append(FieldError("/headers" + pointer_to(name), fault))
    return faults


def _header_fault(name: str, value: str) -> str | None:
    key = name.lower()
    if len(name) > MAX_HEADER_NAME_CHARS or not _TOKEN.fullmatch(name):
        return f"a header's name is a token of at most {MAX_HEADER_NAME_CHARS} characters (RFC 3261 §25.1)"
    if not (key.startswith("x-") and len(key) > len("x-")) and key != "user-to-user":
        return "only X-* and User-to-User may be set"
    if len(value) > MAX_HEADER_VALUE_CHARS:
        return f"a header's value has at most {MAX_HEADER_VALUE_CHARS} characters"
    if not _PRINTABLE.fullmatch(value):
        return "a header's value is printable ASCII; write other text percent-encoded"
    return None
