"""Our REFER and its recipient's NOTIFYs (RFC 3515), as texts. No pjsua2 here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from cc_tts.ua.sip import message as sip_message

EVENT: Final = "refer"
"""The event package of the subscription that a REFER makes (RFC 3515 §3)."""
_STATUS_LINE: Final = re.compile(r"\s*SIP/2\.0 ([1-6]\d\d)(?: |\r|\n|\Z)", re.IGNORECASE)
_ID: Final = re.compile(r";\s*id\s*=\s*(\d{1,10})\s*(?:;|\Z)", re.IGNORECASE | re.ASCII)
_FINAL: Final = 200
"""A status from here on is final (RFC 3261 §7.2)."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A NOTIFY of the package: the status in its body, 0 if there is none, and whether it is the last. ``refer`` is the CSeq
    of its REFER, ``None`` if it does not say (RFC 3515 §2.4.6).
    """

    sip_code: int
    is_last: bool
    cseq: int
    refer: int | None = None


def notification(message: str) -> Notification | None:
    """Return the content of a NOTIFY; ``None`` if it is of another package. Peers send bodies of any kind, or none."""
    event = sip_message.header_value(message, "event")
    if event.partition(";")[0].strip().lower() != EVENT:
        return None
    is_fragment = sip_message.media_type(message) in ("message/sipfrag", "")
    status = _STATUS_LINE.match(sip_message.body_of(message)) if is_fragment else None
    sip_code = int(status[1]) if status else 0
    state = sip_message.header_value(message, "subscription-state").partition(";")[0].strip().lower()
    is_last = state == "terminated" or (not state and sip_code >= _FINAL)
    named = _ID.search(event)
    return Notification(sip_code, is_last, sip_message.cseq_of(message), int(named[1]) if named else None)


def refer_to(target: str, headers: Mapping[str, str]) -> str:
    """Return the value of Refer-To. ``headers`` are for the call that the REFER asks for (RFC 3261 §19.1.1)."""
    asked = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in headers.items())
    return f"<{target}?{asked}>" if asked else f"<{target}>"


def replaces(sip_call_id: str, *, local_tag: str, remote_tag: str) -> str:
    """Return the value of Replaces that names our dialog for its far side, whose own tag is ``to-tag`` (RFC 3891 §3)."""
    return f"{sip_call_id};to-tag={remote_tag};from-tag={local_tag}"
