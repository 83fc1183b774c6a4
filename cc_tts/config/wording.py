"""Messages that say what is wrong with a value in words for people: msgspec names types as Python and JSON do."""

import re
from typing import Final

_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "array": "a list",
    "object": "a group of keys",
    "null": "null",
}
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`(.*)", re.DOTALL)
_GOT: Final = re.compile(r", got `([^`]*)`", re.DOTALL)
_LENGTH: Final = re.compile(r" of length (<=|>=|==) (\d+)")
_BOUND: Final = re.compile(r" (<=|>=|<|>) (\S+)")
_FORM: Final = re.compile(r" matching regex (.*)", re.DOTALL)
_WORDS: Final = {"<=": "at most", ">=": "at least", "<": "below", ">": "above", "==": "exactly"}
_forms: Final[dict[str, str]] = {}


def form(pattern: str, words: str) -> str:
    """``pattern``, of which ``words`` say what it is: "1 to 16 of 0-9 and #"."""
    _forms[repr(pattern)] = words
    return pattern


def in_words(message: str) -> str:
    """``Expected `int` <= 65535`` as "a whole number of at most 65535 is needed"; other messages in lower case."""
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
