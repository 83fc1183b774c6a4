"""Reading the few things we need from a SIP request as text. No pjsua2 here.

PJSIP has already parsed and accepted the message; this only finds header values PJSIP does not hand over.
"""

from typing import Final

MAX_HEADERS: Final = 64
MAX_VALUE_CHARS: Final = 16_384


def request_uri(message: str) -> str:
    """The Request-URI of a request (RFC 3261 §7.1); empty if the start line is not that of a request."""
    parts = message.split("\r\n", 1)[0].split(" ")
    return parts[1] if len(parts) == 3 and parts[2].startswith("SIP/") else ""  # noqa: PLR2004 - method, URI, version


def extension_headers(message: str) -> dict[str, str]:
    """Headers for the application: ``X-*`` and ``User-to-User`` (RFC 7433), by their names as sent.

    Folded lines are joined (RFC 3261 §7.3.1). Of a header that comes twice the first counts. At most
    :data:`MAX_HEADERS` headers and :data:`MAX_VALUE_CHARS` characters a value are kept.
    """
    head = message.split("\r\n\r\n", 1)[0]
    lines: list[str] = []
    for line in head.split("\r\n")[1:]:
        if line[:1] in (" ", "\t") and lines:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    found: dict[str, str] = {}
    seen: set[str] = set()
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.strip()
        key = name.lower()
        wanted = key.startswith("x-") or key == "user-to-user"
        if colon and wanted and key not in seen and len(found) < MAX_HEADERS:
            seen.add(key)
            found[name] = value.strip()[:MAX_VALUE_CHARS]
    return found


def readable(text: str) -> str:
    """``text`` as PJSIP hands it over, with U+FFFD for what was not UTF-8 on the wire (lone surrogates, PEP 383): peers
    may write anything, and it must still fit into a message.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
