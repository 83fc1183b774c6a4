"""How values of headers and of URI parameters are read, as in ``max=4;finish=#``. This module is pure: it has no state."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cc_tts.errors import MalformedRequest, TextTooLong
from cc_tts.speech.prompt import Content, text_of

NUMBER: Final = re.compile("[0-9]{1,9}")
_LANGUAGE: Final = re.compile(r"(?=.{1,35}$)[A-Za-z]{1,8}(?:[-_][A-Za-z0-9]{1,8})*", re.ASCII)
"""A BCP 47 language tag, as the API takes it."""
_VOICE: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")

Read = Callable[[str, str], object]
"""Reads a value. It raises ``MalformedRequest`` with the name of the parameter, which is its second argument."""
Parameters = Mapping[str, tuple[str, Read]]
"""The parameters of a header, each with its field of the request and the function that reads its value."""


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
        if not NUMBER.fullmatch(value) or not lowest <= int(value) <= highest:
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


def milliseconds(value: str, what: str, *, at_most: int | None = None) -> int:
    if not NUMBER.fullmatch(value) or (at_most is not None and int(value) > at_most):
        limit = "" if at_most is None else f", at most {at_most}"
        raise MalformedRequest(f"{what} is a number of milliseconds{limit}")
    return int(value)


def language_tag(value: str, what: str) -> str:
    """The language that a caller names; empty if none."""
    if (tag := value.strip()) and not _LANGUAGE.fullmatch(tag):
        raise MalformedRequest(f"{what}: no language tag")
    return tag


def voice_name(value: str, what: str) -> str:
    """The voice that a caller names; empty if none."""
    if (name := value.strip()) and not _VOICE.fullmatch(name):
        raise MalformedRequest(f"{what}: no name of a voice")
    return name


def bounded(content: Content, limit: int, what: str) -> Content:
    """Return the content; raises ``TextTooLong`` if its text has more than ``limit`` characters."""
    if (num_chars := len(text_of(content))) > limit:
        raise TextTooLong(f"{what} holds {num_chars} characters; tts.max_text_chars is {limit}")
    return content
