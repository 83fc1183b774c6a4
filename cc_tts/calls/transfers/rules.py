"""The targets that a call may be transferred to. There are none unless the configuration names them, since a transfer can
cost money.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

_PARTS: Final = re.compile(r"(sips?):(?:([^@]*)@)?(\[[^\]]*\]|[^:;?@]+)(?::([0-9*]+))?((?:;[^?]*)?)", re.IGNORECASE)
_HARMLESS: Final = frozenset({"transport", "user"})
"""These parameters do not change who is called (RFC 3261 §19.1.1); ``maddr`` would send the request elsewhere."""
_DEFAULT_PORTS: Final = {"sip": "5060", "sips": "5061"}
_WILDCARDS: Final = {r"\*": "[^;@]*", r"\?": "[^;@]"}
"""A wildcard stands for no parameter of a user, such as ``;phone-context=`` (RFC 3966 §5.1.5)."""


class AllowedTargets:
    """The patterns of ``transfer.allowed``: ``*`` stands for any characters and ``?`` for one. Scheme, user, host and port
    are compared each by itself; without a port that of the scheme is meant.
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
