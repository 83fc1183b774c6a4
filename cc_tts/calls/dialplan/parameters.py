"""Parameters of a header, as in ``max=4;finish=#``. This module is pure: it has no state."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cc_tts.errors import MalformedRequest

_NUMBER: Final = re.compile("[0-9]{1,9}")

Read = Callable[[str, str], object]
"""Reads a value; raises ``MalformedRequest`` with the name of the parameter, its second argument."""
Parameters = Mapping[str, tuple[str, Read]]
"""The parameters of a header, each with the field of the request and what reads its value."""


def read(parts: Iterable[str], header: str, known: Parameters) -> dict[str, Any]:
    """Return the fields that the parameters of a header set.

    Raises:
        MalformedRequest: a parameter that does not exist, comes twice or has a wrong value.
    """
    wanted: dict[str, Any] = {}
    for part in filter(str.strip, parts):
        name, _, value = (each.strip() for each in part.partition("="))
        if name.lower() not in known:
            raise MalformedRequest(f"{header}: no parameter {name[:16]!r}; known: {', '.join(known)}")
        field, reader = known[name.lower()]
        if field in wanted:
            raise MalformedRequest(f"{header}: {name}= comes twice")
        wanted[field] = reader(value, f"{header}: {name}=")
    return wanted


def whole_number(lowest: int, highest: int) -> Callable[[str, str], int]:
    def read(value: str, what: str) -> int:
        if not _NUMBER.fullmatch(value) or not lowest <= int(value) <= highest:
            raise MalformedRequest(f"{what} is a number from {lowest} to {highest}")
        return int(value)

    return read


def keys(value: str, what: str) -> str:
    if not re.fullmatch("[0-9A-D*#]{0,16}", value.upper()):
        raise MalformedRequest(f"{what} is keys of 0-9, A-D, * and #")
    return value.upper()


def yes_or_no(value: str, what: str) -> bool:
    if value not in ("yes", "no"):
        raise MalformedRequest(f"{what} is yes or no")
    return value == "yes"


def word_of(*words: str) -> Read:
    def read(value: str, what: str) -> str:
        if value.lower() not in words:
            raise MalformedRequest(f"{what} is {', '.join(words[:-1])} or {words[-1]}")
        return value.lower()

    return read
