"""English words for times of day: "two oh five P M", "fourteen thirty", "twelve o'clock".

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.rules.en_numbers import cardinal, two_digits
from cc_tts.text.rules.substitution import ends_sentence, substitute

_HALF = r"(?P<half>[AaPp]\.\s?[Mm]\b\.?|[AaPp][Mm]\b)"
_CLOCK = re.compile(
    rf"(?<![\w:.])(?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d{{1,6}})?)?(?:Z(?!\w)|\s?{_HALF})?(?![\d:])"
)
_HOUR = re.compile(rf"(?<![\w:.,])(?P<hour>\d{{1,2}})\s?{_HALF}")
_RATIO = re.compile(r"(?<![\w:.])(\d{1,4}):(?=\d{1,4}(?![\w:]))")
_HALF_ALONE = re.compile(r"\b(?P<half>[ap]\.\s?m\b\.?)", re.IGNORECASE)
_NOON = 12
_MAX_HOUR = 24
_MAX_MINUTE = 59


def say_times(text: str) -> str:
    """Times of day in words; 3:2 as a ratio. Ranges of times are joined by "to" before this."""
    text = substitute(_CLOCK, _clock, text)
    text = substitute(_HOUR, _hour, text)
    text = substitute(_HALF_ALONE, _half, text)
    return substitute(_RATIO, lambda match: f"{cardinal(int(match[1]))} to ", text)


def _half(match: re.Match[str]) -> str:
    """``p.m.`` as "P M", keeping the full stop that also ends the sentence."""
    written = match["half"] or ""
    letters = " ".join(character for character in written.upper() if character.isalpha())
    return letters + ("." if written.endswith(".") and ends_sentence(match) else "")


def _hour(match: re.Match[str]) -> str:
    return f"{cardinal(int(match['hour']))} {_half(match)}"


def _clock(match: re.Match[str]) -> str | None:
    hour, minute = int(match["hour"]), int(match["minute"])
    second = int(match["second"] or 0)
    if hour > _MAX_HOUR or minute > _MAX_MINUTE or second > _MAX_MINUTE:
        return None
    said = _hour_and_minute(hour, minute, has_half=bool(match["half"]), has_second=bool(second))
    if second:
        said = f"{said} and {cardinal(second)} {'second' if second == 1 else 'seconds'}"
    return f"{said} {_half(match)}" if match["half"] else said


def _hour_and_minute(hour: int, minute: int, *, has_half: bool, has_second: bool) -> str:
    if minute:
        return f"{cardinal(hour)} {two_digits(minute)}"
    if has_half or has_second:
        return cardinal(hour)
    if hour == 0:
        return "midnight"
    return f"{cardinal(hour)} o'clock" if hour <= _NOON else f"{cardinal(hour)} hundred"
