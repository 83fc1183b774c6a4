"""Reads headers that pjsua2 does not expose from the text of a message that PJSIP has parsed already. No pjsua2 here."""

import functools
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from cc_tts.config.sip_uri import maddrs_of, may_be_host, transports_of

MAX_HEADERS: Final = 64  # unmeasured
_OURS: Final = "x-tts-"
MAX_VALUE_CHARS: Final = 65_535
"""No build of PJSIP accepts a longer message, so no value is cut."""
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)', re.DOTALL)
"""An unclosed quotation extends to the end of the text, so that no text takes more than one pass."""
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BARE_LINE_END: Final = re.compile(r"(?<!\r)\n|\r(?!\n)")
_COMPACT: Final = {
    "c": "content-type",
    "f": "from",
    "i": "call-id",
    "l": "content-length",
    "b": "referred-by",
    "m": "contact",
    "o": "event",
    "r": "refer-to",
    "t": "to",
}
"""The compact forms of the headers that are read here (RFC 3261 §7.3.3)."""
_CSEQ: Final = re.compile(r"(\d{1,10})[ \t]+[A-Z]+", re.ASCII)
_SINGLE: Final = ("call-id", "from", "to", "cseq")
_OPTION_TAG: Final = re.compile(r"[a-z0-9.!%*_+`'~-]{1,64}")
MAX_OPTION_TAGS: Final = 20  # unmeasured
MAX_CONTACTS: Final = 10  # unmeasured
MAX_CONTACT_CHARS: Final = 512  # unmeasured
_SECONDS: Final = re.compile(r"\d{1,9}", re.ASCII)
_CONTACT: Final = re.compile(r"<([^<>]*)>[^,]*|([^,;<>]+)[^,<>]*")
"""An address with or without brackets (RFC 3261 §20.10: without, the part after a semicolon does not belong to the URI)."""
_IDENTITY: Final = ("P-Asserted-Identity", "Remote-Party-ID", "Diversion", "History-Info")
MAX_LENGTH_DIGITS: Final = 9
"""The most digits of Content-Length: PJSIP accepts no more than 65,535 bytes."""
_TAG: Final = re.compile(r";\s*tag\s*=\s*([^\s;,?]+)", re.IGNORECASE)
_SIP_URI: Final = re.compile(
    r"sips?:(?:[^@<>\s]+@)?(?:\[[0-9a-f:.]+\]|([\w.-]+))(?::\d{1,5})?(?:[;?][^<>\s]*)?", re.IGNORECASE | re.ASCII
)
_ADDRESSES: Final = re.compile(r"(?:[^,<]|<[^>]*>)+")
_EXPIRES: Final = re.compile(r";\s*expires\s*=\s*([^\s;,>]*)", re.IGNORECASE)
_DTMF_RELAY: Final = re.compile(r"[ \t]*signal[ \t]*=([^=]*)", re.IGNORECASE)
_DURATION: Final = re.compile(r"[ \t]*duration[ \t]*=[ \t]*(\d{1,5})[ \t]*", re.IGNORECASE)
_EVENTS: Final = {"10": "*", "11": "#", "12": "A", "13": "B", "14": "C", "15": "D", "16": "R", "!": "R"}
"""These events of RFC 4733 §3.2 are not written as the key is; ``!`` is the hook flash of gateways."""
DTMF_TYPES: Final = ("application/dtmf-relay", "application/dtmf")
_UNWRITABLE: Final = re.compile(r"[:@]\[\]|;\s*hide\s*(?:[;=?>,]|$)", re.IGNORECASE)
"""PJSIP asserts that a URI which it writes has a host, and that a route with ``hide``, its own parameter, has ``lr``."""
_NOT_LOOKED_UP: Final = frozenset({"dtls", "loop", "sctp"})
"""PJSIP knows these transports, and asserts that it looks up no name for them."""
_VIA: Final = re.compile(r"^(?:Via|v)[ \t]*:\s*SIP\s*/\s*2\.0\s*/\s*([A-Za-z]{1,8})\s", re.MULTILINE | re.IGNORECASE)


def is_ambiguous(message: str) -> bool:
    """Whether PJSIP may read the message otherwise than this module does.

    It takes a bare CR or LF for the end of a line, and of a header that may come once the last one (RFC 3261 §7.3, §7.3.1).
    Otherwise a sender could show these checks one message and PJSIP another.
    """
    if _BARE_LINE_END.search(message.split("\r\n\r\n", 1)[0]):
        return True
    names = [name for _, name, _ in _fields(message)]
    return any(names.count(name) != 1 for name in _SINGLE)


def is_unwritable(message: str) -> bool:
    """Whether PJSIP would assert a URI that it repeats in an answer (RFC 3261 §8.2.6.2), or in the routes of requests."""
    values = header_values(message, "from", "to", "record-route", "service-route")
    return any(_UNWRITABLE.search(unquote(value)) for value in values)


def body_of(message: str) -> str:
    return message.partition("\r\n\r\n")[2]


def has_body(message: str) -> bool:
    """Whether it has more of a body than line ends. What follows a body of zero bytes is none (RFC 3261 §18.3)."""
    length = header_value(message, "content-length")
    return bool(body_of(message).strip()) and (not length or bool(length.strip("0")))


def cseq_of(message: str) -> int:
    """Return the number in CSeq; -1 if there is none."""
    match = _CSEQ.match(header_value(message, "cseq"))
    return int(match[1]) if match else -1


def cseq_method(message: str) -> str:
    return header_value(message, "cseq").rpartition(" ")[2]


def contradiction(message: str) -> str:
    """Return what is wrong with CSeq or Content-Length of a request, in words for a reason phrase; empty if nothing is.
    PJSIP checks neither the method in CSeq (RFC 3261 §8.1.1.5) nor, in a datagram, Content-Length against the actual body
    (§18.3).
    """
    method = message.partition(" ")[0]
    if header_value(message, "cseq").split()[1:] != [method]:
        return "CSeq of another method"
    length = header_value(message, "content-length")
    if not (length.isascii() and length.isdigit()):
        return ""  # none, or one that PJSIP drops the request for
    if len(length) > MAX_LENGTH_DIGITS or int(length) > len(body_of(message).encode("utf-8", "surrogateescape")):
        return "The body ends before its Content-Length"
    return ""


def request_uri(message: str) -> str:
    """Return the Request-URI of a request (RFC 3261 §7.1); empty if the start line is not that of a request."""
    parts = message.split("\r\n", 1)[0].split(" ")
    return parts[1] if len(parts) == 3 and parts[2].startswith("SIP/") else ""  # noqa: PLR2004 - method, URI, version


def has_foreign_uri(message: str, *names: str) -> bool:
    """Whether one of these headers holds anything but SIP URIs of a host and a transport that can be looked up."""
    return not all(map(_has_sip_uris, header_values(message, *names)))


def _has_sip_uris(value: str) -> bool:
    addresses = _ADDRESSES.findall(_QUOTED.sub("", value))
    uris = [_SIP_URI.fullmatch(uri_of(address)) for address in addresses]
    return (
        bool(uris)
        and all(uri and may_be_host(uri[1] or "") for uri in uris)
        and all(map(may_be_host, maddrs_of(value)))
        and transports_of(value).isdisjoint(_NOT_LOOKED_UP)
    )


def is_answered_elsewhere(message: str, source: str) -> bool:
    """Whether the first Via has the answer sent to another host than its source (``maddr``, RFC 3261 §18.2.2)."""
    via = next(iter(header_values(message, "via", "v")), "")
    return any(host != source for host in maddrs_of(via))


def first_uri(value: str) -> str:
    """Return the first URI of a header that lists addresses; empty if there is none."""
    addresses = _ADDRESSES.findall(_QUOTED.sub("", value))
    return uri_of(addresses[0]) if addresses else ""


def contact_lifetimes(message: str) -> list[str]:
    """Return ``expires`` of the addresses in Contact (RFC 3261 §20.10), as written."""
    values = header_values(message, "contact")
    return [match[1] for value in values for match in _EXPIRES.finditer(_QUOTED.sub("", value))]


def uri_of(address: str) -> str:
    """Return the URI of a name-addr or addr-spec (RFC 3261 §20.10)."""
    _, bracket, rest = address.partition("<")
    return (rest.partition(">")[0] if bracket else address.partition(";")[0]).strip()


def media_type(message: str) -> str:
    """Return type and subtype of the body, lower case, without parameters; empty if nothing is said."""
    return header_value(message, "content-type").partition(";")[0].replace(" ", "").lower()


def key_of(message: str) -> tuple[str, int] | None:
    """Return the key in an INFO, and its duration in ms, 0 if unknown; ``None`` if its body is malformed.

    ``application/dtmf-relay`` has lines, ``application/dtmf`` the key alone; in both the key is written as itself or as the
    number of its event.
    """
    lines = [line for line in re.split(r"[\r\n]+", body_of(message)) if line.strip()]
    is_bare = media_type(message) == "application/dtmf"
    keys = lines if is_bare else [match[1] for match in map(_DTMF_RELAY.fullmatch, lines) if match]
    durations = [int(match[1]) for match in map(_DURATION.fullmatch, lines) if match]
    key = keys[0].strip().upper() if len(keys) == 1 else ""
    key = _EVENTS.get(key, key)
    return (key, next(iter(durations), 0)) if re.fullmatch(r"[0-9A-D*#R]", key) else None


def is_for_sip(request: str) -> bool:
    """Whether the Request-URI is a ``sip:`` or ``sips:`` URI, also if there are extra blanks, which PJSIP accepts."""
    return any(word.lower().startswith(("sip:", "sips:")) for word in request.split(maxsplit=2)[1:2])


def via_transport(message: str) -> str:
    """Return the transport of the topmost Via (RFC 3261 §20.42), lower case; in a response to us that is the one we sent
    over.
    """
    match = _VIA.search(message.split("\r\n\r\n", 1)[0])
    return match[1].lower() if match else ""


def extension_headers(message: str) -> dict[str, str]:
    """Return headers for the application: ``X-*`` and ``User-to-User`` (RFC 7433), by their names as sent.

    Folded lines are joined (RFC 3261 §7.3.1). Of a header that comes twice the first counts. At most
    :data:`MAX_HEADERS` headers besides ``X-TTS-*``, and :data:`MAX_VALUE_CHARS` characters a value are kept.
    """
    found: dict[str, tuple[str, str]] = {}
    for sent, name, value in _fields(message):
        is_ours = name.startswith(_OURS)
        if value is None or not (is_ours or name.startswith("x-") or name == "user-to-user"):
            continue
        if is_ours or len(found) < MAX_HEADERS:
            found.setdefault(name, (sent, value[:MAX_VALUE_CHARS]))
    return dict(found.values())


def contradicting_headers(message: str) -> tuple[str, ...]:
    """Return the names of the ``X-TTS-*`` headers that come more than once, with different values."""
    values: dict[str, set[str]] = {}
    for _, name, value in _fields(message):
        if value is not None and name.startswith(_OURS):
            values.setdefault(name, set()).add(value)
    return tuple(name for name, different in values.items() if len(different) > 1)


def identity_headers(message: str) -> dict[str, str]:
    """Return who is calling and by which detour, as the network before us asserts it: P-Asserted-Identity (RFC 3325),
    Remote-Party-ID, Diversion (RFC 5806), History-Info (RFC 7044). A header that comes more than once is a list.
    """
    found = {name: ", ".join(header_values(message, name)[:MAX_HEADERS]) for name in _IDENTITY}
    return {name: value[:MAX_VALUE_CHARS] for name, value in found.items() if value}


def contacts(message: str) -> list[str]:
    """Return the URIs in Contact, at most :data:`MAX_CONTACTS` of at most :data:`MAX_CONTACT_CHARS` characters."""
    values = (_QUOTED.sub("", value) for value in header_values(message, "contact"))
    found = ((each[1] or each[2] or "").strip() for value in values for each in _CONTACT.finditer(value))
    return [uri[:MAX_CONTACT_CHARS] for uri in found if uri not in ("", "*")][:MAX_CONTACTS]


def header_values(message: str, *names: str) -> list[str]:
    """Return the values of all headers of these names, in either form, in order."""
    wanted = {name.lower() for name in names}
    return [value for _, name, value in _fields(message) if name in wanted and value is not None]


def header_value(message: str, name: str) -> str:
    """Return the value of the first header of this name; empty if there is none."""
    return next(iter(header_values(message, name)), "")


def retry_after_s(message: str) -> int | None:
    """Return the seconds of Retry-After; a comment and parameters may follow them (RFC 3261 §20.33)."""
    match = _SECONDS.match(header_value(message, "retry-after"))
    return int(match[0]) if match else None


def required_extensions(message: str) -> list[str]:
    """Return the option tags of Require (RFC 3261 §20.32), lower case, in order, valid or not."""
    tags = (tag.strip().lower() for value in header_values(message, "require") for tag in value.split(","))
    return [tag for tag in tags if tag]


def option_tags(tags: Sequence[str]) -> str:
    """Return a header value that lists the valid ``tags``, at most :data:`MAX_OPTION_TAGS`."""
    return ", ".join([tag for tag in tags if _OPTION_TAG.fullmatch(tag)][:MAX_OPTION_TAGS])


def dialog_of(message: str) -> tuple[str, str, str] | None:
    """Return Call-ID, our tag and the far side's of a request in a dialog (RFC 3261 §12); ``None`` if To has no tag."""
    call_id, to_tag = header_value(message, "call-id"), _tag(message, "to")
    return (call_id, to_tag, from_tag(message)) if call_id and to_tag else None


def dialog_of_response(message: str) -> tuple[str, str, str]:
    """Return Call-ID, our tag and the far side's of a response to a request of ours; the last is empty if To has none."""
    return header_value(message, "call-id"), from_tag(message), _tag(message, "to")


def tags(message: str) -> tuple[str, str] | None:
    """Return our tag and the far side's of a message in a dialog; ``None`` if it lacks one of them."""
    dialog = dialog_of_response(message) if message.startswith("SIP/2.0 ") else dialog_of(message)
    return (dialog[1], dialog[2]) if dialog is not None and all(dialog) else None


def from_tag(message: str) -> str:
    return _tag(message, "from")


def _tag(message: str, name: str) -> str:
    """Return the tag of To or From: a parameter after the brackets, or after the address if there are none."""
    match = _TAG.search(_QUOTED.sub("", header_value(message, name)).rpartition(">")[2])
    return match[1] if match else ""


@functools.lru_cache(maxsize=4)
def _fields(message: str) -> tuple[tuple[str, str, str | None], ...]:
    """Return the headers after the start line: the name as sent, the name written out in lower case, and the value, ``None``
    if the line has no colon. Folded lines are joined (RFC 3261 §7.3.1). A bare CR or LF ends a line here, too, as in PJSIP.

    The result is kept, since the guards and the user agent ask a message some twenty times.
    """
    lines: list[str] = []
    for line in _LINE_END.split(message.split("\r\n\r\n", 1)[0])[1:]:
        if line[:1] in (" ", "\t") and lines:
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    return tuple(map(_field, lines))


def _field(line: str) -> tuple[str, str, str | None]:
    sent, colon, value = line.partition(":")
    sent = sent.strip()
    name = sent.lower()
    return sent, _COMPACT.get(name, name), value.strip() if colon else None


def readable(text: str) -> str:
    """Return ``text`` as PJSIP hands it over, with U+FFFD for what was not UTF-8 on the wire (lone surrogates, PEP 383):
    peers may write anything, and it must still fit into a message.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
