"""A REFER of the far side (RFC 3515), as text: the target, and the headers of the new call. No pjsua2 here."""

import re
import secrets
from typing import Final
from urllib.parse import unquote

from cc_tts.config.sip_uri import uri_fault
from cc_tts.ua.messages import ReferRequested
from cc_tts.ua.sip import message as sip_message

MAX_HEADERS: Final = 20  # unmeasured
MAX_HEADER_CHARS: Final = 1024  # unmeasured
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)', re.DOTALL)
_INVITE: Final = re.compile(r";method=INVITE(?=;|\Z)", re.IGNORECASE)
"""The method that a Refer-To means where it names none (RFC 3515 §2.1)."""
_NAME: Final = re.compile(r"(?:x-[a-z0-9.!%*_+`'~-]{1,60}|user-to-user)", re.IGNORECASE)
_PRINTABLE: Final = re.compile(r"[\x20-\x7e]*")
_REPLACES: Final = re.compile(
    r"[^\s;,<>\"]{1,256}(?:;(?:(?:to|from)-tag=[A-Za-z0-9\-.!%*_+`'~]{1,128}|early-only)){2,3}"
)
"""A dialog as RFC 3891 §3 names it; further parameters say nothing that is used."""


def refer_request(message: str, call_id: str) -> ReferRequested:
    """Read a REFER of a call. The new call gets the headers ``X-*``, ``User-to-User`` and ``Replaces`` of Refer-To; others
    are dropped (RFC 3261 §19.1.5). A referrer whose URI cannot be read is empty.

    Raises:
        ValueError: it does not name one SIP URI for a call; the text says why, for people.
    """
    values = sip_message.header_values(message, "refer-to")
    if len(values) != 1:
        raise ValueError("one Refer-To is needed (RFC 3515 2.1)")
    uri, _, asked = sip_message.uri_of(_QUOTED.sub("", values[0])).partition("?")
    uri = _INVITE.sub("", uri)
    if fault := uri_fault(uri):
        raise ValueError(f"Refer-To: {fault}")
    refer_id = f"refer_{secrets.token_hex(8)}"
    return ReferRequested(call_id, refer_id, uri, _headers_of(asked), _referred_by(message))


def _headers_of(asked: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in asked.split("&"):
        name, _, value = (unquote(each, errors="replace") for each in part.partition("="))
        if len(value) > MAX_HEADER_CHARS or not _PRINTABLE.fullmatch(value):
            continue
        if name.lower() == "replaces" and not _REPLACES.fullmatch(value):
            raise ValueError("Refer-To: Replaces names no dialog (RFC 3891 3)")
        if name.lower() == "replaces":
            found["Replaces"] = value
        elif _NAME.fullmatch(name) and len(found) < MAX_HEADERS:
            found.setdefault(name, value)
    return found


def _referred_by(message: str) -> str:
    uri = sip_message.uri_of(_QUOTED.sub("", sip_message.header_value(message, "referred-by")))
    return uri if uri and uri_fault(uri) is None else ""
