"""SIP URIs that calls may go to: their form, and which of them the configuration allows."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

MAX_URI_CHARS: Final = 512  # unmeasured
MAX_HOST_CHARS: Final = 242
"""The longest name of a host: with ``_sips._tcp.`` before it (RFC 3263 §4.1) a name has no more than 253 characters
(RFC 1035 §2.3.4). The PyPI wheel of PJSIP asserts that of each name that it looks up.
"""
MAX_PORT: Final = 65_535  # 16 bits, as the kernel and the protocols have it
_ESCAPED_CONTROL: Final = re.compile(r"%(?:[01][0-9A-F]|7F)", re.IGNORECASE)
_URI: Final = re.compile(
    r"sips?:"
    r"(?:(?:[A-Za-z0-9\-_.!~*'()&=+$,;/#]|%[0-9A-Fa-f]{2})+@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?:;[A-Za-z0-9\-_.!~*'()\[\]/:&+$%]+(?:=[A-Za-z0-9\-_.!~*'()\[\]/:&+$%]*)?)*",
    re.IGNORECASE,
)
"""``sip:user@host:port;parameters`` (RFC 3261 §19.1.1; ``#`` in the user is what PBXs send for feature codes)."""
_PARTS: Final = re.compile(r"(sips?):(?:([^@]*)@)?(\[[^\]]*\]|[^:;?@]+)(?::([0-9*]+))?((?:;[^?]*)?)", re.IGNORECASE)
_MADDR: Final = re.compile(r";\s*maddr\s*=\s*([^;?,>\s]*)", re.IGNORECASE)
_TRANSPORT: Final = re.compile(r";\s*transport\s*=\s*\"?([^;?,>\s\"]*)", re.IGNORECASE)
_HARMLESS: Final = frozenset({"transport", "user"})
"""Parameters that do not change the called party (RFC 3261 §19.1.1); ``maddr`` would send the request elsewhere."""
_DEFAULT_PORTS: Final = {"sip": "5060", "sips": "5061"}
_WILDCARDS: Final = {r"\*": "[^;@]*", r"\?": "[^;@]"}
"""A wildcard matches no user parameter such as ``;phone-context=`` (RFC 3966 §5.1.5)."""


def uri_fault(uri: str) -> str | None:
    """The fault of a URI that a call is to go to or come from; ``None`` if it has none.

    Stricter than RFC 3261's grammar on purpose, so that nothing can be injected: no ``?headers`` part, by which a URI adds
    headers to the INVITE (§19.1.1), no password, no escaped control characters.
    """
    if len(uri) > MAX_URI_CHARS:
        return f"at most {MAX_URI_CHARS} characters"
    match = _URI.fullmatch(uri)
    if match is None:
        return "write a SIP URI as in sip:1000@pbx.example.com:5060, without <>, spaces, password and ?headers"
    if not all(map(may_be_host, (match["host"], *maddrs_of(uri)))):
        return f"a host has at most {MAX_HOST_CHARS} characters"
    if match["port"] is not None and not 0 < int(match["port"]) <= MAX_PORT:
        return f"a port is 1 to {MAX_PORT}"
    if _ESCAPED_CONTROL.search(uri):
        return "no escaped control characters"
    return None


def maddrs_of(text: str) -> list[str]:
    """Return the values of ``maddr`` in a URI or a Via. Its name may be escaped."""
    return _MADDR.findall(unquote(text))


def transports_of(text: str) -> set[str]:
    """Return the values of ``transport`` in URIs, lower case. Its name may be escaped."""
    return {each.lower() for each in _TRANSPORT.findall(unquote(text))}


def may_be_host(text: str) -> bool:
    """Whether it is short enough for a host, and no quoted string."""
    return len(text) <= MAX_HOST_CHARS and '"' not in text


class AllowedTargets:
    """The patterns of ``transfer.allowed``: ``*`` stands for any characters and ``?`` for one. Scheme, user, host and port
    are compared each by itself; without a port that of the scheme is meant. Without patterns nobody is allowed, since a
    transfer can cost money.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [tuple(map(_compiled, parts)) for each in patterns if (parts := parts_of(each)) is not None]

    def __contains__(self, uri: str) -> bool:
        target = parts_of(uri)
        return target is not None and any(
            all(wanted.fullmatch(part) for part, wanted in zip(target, pattern, strict=True))
            for pattern in self._patterns
        )


def parts_of(uri: str) -> tuple[str, ...] | None:
    """Scheme, user, host and port of a URI or a pattern; ``None`` if it is none, or has a parameter that leads elsewhere.

    Escaped characters of the user are those that they stand for, so that none escapes a pattern.
    """
    match = _PARTS.fullmatch(uri)
    if match is None:
        return None
    scheme, user, host, port, parameters = match.groups()
    names = {each.partition("=")[0].strip().lower() for each in parameters.split(";") if each}
    if not names <= _HARMLESS:
        return None
    scheme = scheme.lower()
    return scheme, unquote(user or ""), host.lower().rstrip("."), port or _DEFAULT_PORTS[scheme]


def _compiled(pattern: str) -> re.Pattern[str]:
    expression = re.escape(pattern)
    for sign, meaning in _WILDCARDS.items():
        expression = expression.replace(sign, meaning)
    return re.compile(expression, re.DOTALL)


def is_ip_address(text: str) -> bool:
    """Return whether ``text`` is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
