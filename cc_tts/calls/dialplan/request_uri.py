"""The Request-URI of an INVITE, and percent-encoded text (RFC 3986). This module is pure: it has no state."""

import itertools
import re
from typing import Final
from urllib.parse import unquote_to_bytes

from cc_tts.errors import MalformedRequest

ANNOUNCEMENT_USER: Final = "annc"
MAX_URI_CHARS: Final = 8192
"""The longest Request-URI that is read; unmeasured. An announcement's text is in it (RFC 4240)."""
MAX_SHOWN_PARAMETERS: Final = 64
"""URI parameters that the API shows of a call; unmeasured."""


def parse_uri(uri: str) -> tuple[str, dict[str, str]]:
    """Return the user and the parameters of a SIP URI (RFC 3261 §19.1.1): names in lower case, values as sent.

    A password, and parameters of a telephone number (``+4930123;phone-context=…``), are not part of the user.

    Raises:
        MalformedRequest: not a SIP URI, or an announcement with two values of a parameter (RFC 3261 §19.1.1).
    """
    if len(uri) > MAX_URI_CHARS:
        raise MalformedRequest(f"the Request-URI is longer than {MAX_URI_CHARS} characters")
    match = re.match(r"sips?:(?:([^@]*)@)?[^;?@]+((?:;[^?]*)?)(?:\?.*)?$", uri, re.IGNORECASE | re.DOTALL)
    if match is None:
        raise MalformedRequest("the Request-URI is not a SIP URI")
    user = percent_decode(re.split("[:;]", match[1] or "", maxsplit=1)[0], "the Request-URI's user")
    parameters: dict[str, str] = {}
    for part in (match[2] or "").split(";"):
        name, _, value = part.partition("=")
        name, value = name.strip().lower(), value.strip()
        if name and parameters.setdefault(name, value) != value and user == ANNOUNCEMENT_USER:
            raise MalformedRequest(f"{name}= comes twice in the announcement's Request-URI, with different values")
    return user, parameters


def uri_parameters(uri: str) -> dict[str, str]:
    """Return the parameters that the API shows, at most :data:`MAX_SHOWN_PARAMETERS`; none if the URI cannot be read."""
    try:
        parameters = parse_uri(uri)[1]
    except MalformedRequest:
        return {}
    return dict(itertools.islice(parameters.items(), MAX_SHOWN_PARAMETERS))


def percent_decode(text: str, what: str) -> str:
    """Decode percent-encoded UTF-8 (RFC 3986 §2.1).

    Raises:
        MalformedRequest: not ASCII, a broken escape, not UTF-8, or a NUL.
    """
    if not text.isascii() or re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise MalformedRequest(f"{what} must be percent-encoded UTF-8 in ASCII")
    try:
        decoded = unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedRequest(f"{what} is not UTF-8 once its percent escapes are undone") from None
    if "\0" in decoded:
        raise MalformedRequest(f"{what} holds a NUL")
    return decoded
