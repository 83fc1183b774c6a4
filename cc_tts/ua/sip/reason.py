"""Why the far side ended a call: the Reason header (RFC 3326) of BYE, CANCEL and refusals (RFC 6432). No pjsua2 here."""

import re
from dataclasses import dataclass
from typing import Final

from cc_tts.ua.sip import message as sip_message

MAX_REASONS: Final = 4
"""RFC 3326 §2 has one reason a protocol; those in use are Q.850, SIP and a few of vendors."""
MAX_TEXT_CHARS: Final = 128  # unmeasured
MAX_HEADER_CHARS: Final = 1024  # unmeasured
_CAUSES: Final = {"Q.850": range(128), "SIP": range(100, 700)}
"""A cause has seven bits (ITU-T Q.850 §2.2.6), or is a status of RFC 3261 §7.2."""
_OTHER_CAUSES: Final = range(100_000)
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_VALUE: Final = re.compile(
    rf"[ \t]*([\w.!%*+`'~-]{{1,32}})"
    rf"((?:[ \t]*;[ \t]*[\w.-]{{1,32}}(?:[ \t]*=[ \t]*(?:{_QUOTED}|[^\s;,\"]*))?)*)[ \t]*(?:,|\Z)",
    re.ASCII,
)
_PARAMETER: Final = re.compile(rf";[ \t]*([\w.-]+)[ \t]*=[ \t]*({_QUOTED}|[^\s;,\"]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class RemoteReason:
    """One value of the header. ``cause``: of ITU-T Q.850 or a SIP status, depending on ``protocol``; ``None`` if there is
    none.
    """

    protocol: str
    cause: int | None = None
    text: str = ""


def remote_reasons(message: str) -> tuple[RemoteReason, ...]:
    """Return the reasons in a message of the far side, at most :data:`MAX_REASONS`; malformed ones are left out."""
    found: list[RemoteReason] = []
    for header in sip_message.header_values(message, "reason")[:MAX_REASONS]:
        value, at = header[:MAX_HEADER_CHARS], 0
        while len(found) < MAX_REASONS and at < len(value) and (match := _VALUE.match(value, at)):
            at = match.end()
            if (reason := _reason(match[1], match[2])) is not None:
                found.append(reason)
    return tuple(found)


def _reason(protocol: str, parameters: str) -> RemoteReason | None:
    protocol = protocol.upper() if protocol.upper() in _CAUSES else protocol
    given = {name.lower(): _unquoted(value) for name, value in reversed(_PARAMETER.findall(parameters))}
    text = "".join(each for each in given.get("text", "") if each.isprintable())[:MAX_TEXT_CHARS]
    digits = given.get("cause", "")
    if not digits:
        return RemoteReason(protocol, text=text)
    if not (digits.isascii() and digits.isdigit() and len(digits) < 8):  # noqa: PLR2004 - more than any cause has
        return None
    cause = int(digits)
    return RemoteReason(protocol, cause, text) if cause in _CAUSES.get(protocol, _OTHER_CAUSES) else None


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
