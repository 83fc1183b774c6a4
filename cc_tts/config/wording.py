"""Readable messages about wrong values; msgspec uses the type names of Python and JSON, and says nothing of equal keys."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from cc_tts.errors import MalformedRequest, did_you_mean

_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`(.*)", re.DOTALL)
_GOT: Final = re.compile(r", got `([^`]*)`", re.DOTALL)
_LENGTH: Final = re.compile(r" of length (<=|>=|==) (\d+)")
_BOUND: Final = re.compile(r" (<=|>=|<|>) (\S+)")
_FORM: Final = re.compile(r" matching regex (.*)", re.DOTALL)
_WORDS: Final = {"<=": "at most", ">=": "at least", "<": "below", ">": "above", "==": "exactly"}
_INVALID_ENUM: Final = re.compile(r"Invalid enum value (.*)", re.DOTALL)
MAX_SHOWN_CHARS: Final = 60  # unmeasured
_forms: Final[dict[str, str]] = {}


def check_keys(encoded: bytes | str) -> None:
    """Refuse JSON in which a key comes twice; raises ``MalformedRequest``. msgspec takes the last of equal keys."""
    _KEYS.decode(encoded if isinstance(encoded, str) else encoded.decode())


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    """Refuse a key that comes twice, of which other readers may take another one (RFC 8259 §4)."""
    if len(dict(pairs)) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise MalformedRequest(f"the key {name[:MAX_SHOWN_CHARS]!r} comes twice")


_KEYS: Final = json.JSONDecoder(object_pairs_hook=_check_keys, parse_int=str, parse_float=str)
"""Finds equal keys; the value that it returns is of no use."""


def form(pattern: str, words: str) -> str:
    """Return ``pattern``, and remember ``words`` that describe it: "1 to 16 of 0-9 and #"."""
    _forms[repr(pattern)] = words
    return pattern


def in_words(message: str) -> str:
    """Return ``Expected `int` <= 65535`` as "a whole number of at most 65535 is needed"; other messages in lower case."""
    expected = _EXPECTED.fullmatch(message)
    if expected is None:
        return message[:1].lower() + message[1:] if message[1:2].islower() else message
    kinds, rest = expected[1].split(" | "), expected[2]
    wanted = " or ".join(_TYPES.get(kind, kind) for kind in kinds)
    if got := _GOT.fullmatch(rest):
        return f"{wanted} is needed, not {_TYPES.get(got[1], got[1])}"
    if matching := _FORM.fullmatch(rest):
        return f"{_forms.get(matching[1], f'{wanted} that matches {matching[1]}')} is needed"
    if length := _LENGTH.fullmatch(rest):
        one, more = ("character", "characters") if "str" in kinds else ("entry", "entries")
        what = one if length[2] == "1" else more
        return f"{wanted} of {_WORDS[length[1]]} {length[2]} {what} is needed"
    if bound := _BOUND.fullmatch(rest):
        link = "of " if bound[1].endswith("=") else ""
        return f"{wanted} {link}{_WORDS[bound[1]]} {bound[2].removesuffix('.0')} is needed"
    return f"{wanted}{rest} is needed"


def none_of(message: str, kinds: Iterable[Any]) -> str:
    """Return ``Invalid enum value 'x'`` with the words that ``kinds`` has; empty for another message."""
    if (invalid := _INVALID_ENUM.fullmatch(message)) is None:
        return ""
    sent = invalid[1]
    values = [str(value) for each in kinds if get_origin(each) is Literal for value in get_args(each)]
    hint = did_you_mean(sent.strip("'"), values)
    return f"{sent[:MAX_SHOWN_CHARS]} is not one of {', '.join(filter(None, values))}{hint}"


def types_at(kind: Any, names: Sequence[str]) -> list[Any]:
    """Return the types that a value may have at this place in what is of type ``kind``."""
    kinds = alternatives(kind)
    for name in names:
        inner: list[Any] = []
        for each in kinds:
            if known := fields(each):
                inner += alternatives(known.get(name))
            else:
                inner += [part for argument in get_args(each) for part in alternatives(argument)]
        kinds = inner
    return kinds


def alternatives(kind: Any) -> list[Any]:
    if get_origin(kind) is Annotated:
        return alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [each for argument in get_args(kind) for each in alternatives(argument)]
    return [kind]


def fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a struct or data class with their types; empty for another type."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    return get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
