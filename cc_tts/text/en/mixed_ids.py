"""Ids of letters and digits mixed: ``AB12CD34`` and ``7f3e91`` letter by letter, but not 5GB, 1st or COVID-19."""

import re

from cc_tts.text.en.numbers import digits
from cc_tts.text.en.postal_addresses import spelled
from cc_tts.text.en.units import UNIT_SYMBOLS

_RUNS = re.compile(r"[A-Za-z]+|\d+")
NUMBER_WITH_SUFFIX = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|k|m|bn|x)|\d{1,3}b", re.IGNORECASE)
_NUMBER_AND_LETTER = re.compile("[0-9]+[A-JLN-Z]")
_PRONOUNCEABLE = re.compile(r"(?i)(?![a-z]*[^aeiouy]{5})(?:[^aeiouy]{0,2}|s[cpt][hlr]|[cpst]hr|sch)[aeiouy]")
_SERIES = re.compile("i[3579]")
_MIN_ID_DIGITS = 3  # unmeasured
_MIN_ID_RUNS = 3  # unmeasured
_MIN_ID_CHARACTERS = 5  # unmeasured
_MIN_WORD_LETTERS = 4  # unmeasured
_MIN_HASH_RUNS = 5  # unmeasured
_MAX_HASH_LETTERS = 4  # unmeasured
_COUNTING_LETTERS = frozenset("xdhms")


def mixed_id(match: re.Match[str]) -> str | None:
    token = match.group()
    if _is_hash(token):
        return spelled(token)
    if not _is_id(token):
        return None
    return ", ".join(" ".join(_spelled(run) for run in _RUNS.findall(part)) for part in token.split("-"))


def _is_id(token: str) -> bool:
    """Letters and digits mixed as in AB12CD34, ORD-2026-0001 or A320B: not 5GB, 1st, COVID-19, iPhone15 or 24-hour."""
    runs, parts = _RUNS.findall(token), token.split("-")
    num_digits = sum(map(str.isdigit, token))
    if len(runs) == 1 or not 0 < num_digits < len(token.replace("-", "")) or not _are_of_code(parts):
        return False
    return num_digits >= _MIN_ID_DIGITS or (len(runs) >= _MIN_ID_RUNS and len(token) >= _MIN_ID_CHARACTERS)


def _is_hash(token: str) -> bool:
    """Small letters and digits in turn: ``7f3e91``, but neither 4x4x10 nor 1h30m10s."""
    runs = _RUNS.findall(token)
    return (
        token.islower()
        and len(runs) >= _MIN_HASH_RUNS
        and not all(run.isdigit() or run in _COUNTING_LETTERS or len(run) > _MAX_HASH_LETTERS for run in runs)
    )


def _are_of_code(parts: list[str]) -> bool:
    if (all(map(_is_quantity, parts)) and not _is_numbered_letter(parts)) or any(map(_is_small, parts)):
        return False
    return any(map(_has_code_letters, parts))


def _is_small(part: str) -> bool:
    """Whether a part is a word or the like; ``i7`` names a processor."""
    return part.islower() and _SERIES.fullmatch(part) is None


def _is_numbered_letter(parts: list[str]) -> bool:
    """``24V-064``, which is no range of volts."""
    return _NUMBER_AND_LETTER.fullmatch(parts[0]) is not None and parts[-1].isdigit() and len(parts[-1]) > 1


def _is_quantity(part: str) -> bool:
    return part.isdigit() or _is_suffixed(part)


def _has_code_letters(part: str) -> bool:
    """Whether letters of it are capitals or stand beside digits."""
    return any(run.isalpha() and (run.isupper() or part != run) for run in _RUNS.findall(part))


def _is_suffixed(part: str) -> bool:
    if NUMBER_WITH_SUFFIX.fullmatch(part):
        return True
    runs = _RUNS.findall(part)
    return len(runs) == 2 and runs[0].isdigit() and runs[1] in UNIT_SYMBOLS  # noqa: PLR2004 - a number and its unit


def _spelled(run: str) -> str:
    if run.isdigit():
        return digits(run)
    is_word = len(run) >= _MIN_WORD_LETTERS and _PRONOUNCEABLE.match(run) is not None
    return run if is_word or (run.islower() and len(run) > 1) else " ".join(run.upper())
