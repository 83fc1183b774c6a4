"""English words for times of day: "two oh five P M", "fourteen thirty", "twelve o'clock".

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.en.numbers import cardinal, two_digits
from cc_tts.text.substitution import ends_sentence, substitute

_HALF = r"(?P<half>[AaPp]\.\s?[Mm]\b\.?|[AaPp][Mm]\b)"
_CLOCK = re.compile(
    rf"(?<![\w:.])(?P<hour>\d{{1,2}}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d{{1,6}})?)?(?:Z(?!\w)|\s?{_HALF})?(?![\d:])"
)
_DOTTED_CLOCK = re.compile(rf"(?<![\w:.])(?P<hour>\d{{1,2}})\.(?P<minute>[0-5]\d)\s?{_HALF}")
_DURATION = re.compile(
    r"(?<![\w:.,])(?:(?P<hours>\d{1,3})\s?(?:h|hrs?)\s?(?P<minutes>\d{1,2})\s?(?:m|mins?)(?:\s?(?P<seconds>\d{1,2})\s?(?:s|secs?))?|"
    r"(?P<minutes_first>\d{1,3})\s?(?:m|mins?)\s?(?P<seconds_last>\d{1,2})\s?(?:s|secs?))(?!\w)"
)
_ZONE = re.compile(
    r"(?P<before>\d\s?|\b[AaPp]\.?\s?[Mm]\.?\s)(?P<zone>[ECMP][SD]?T|AK[SD]?T|HST|GMT|UTC|BST|CES?T|IST|JST|AE[SD]T)\b(?P<dot>\.?)"
)
_DOTTED_ZONE = re.compile(r"\b([ECMP])\.\s?([SD]\.\s?)?T\b\.?")
_HOUR = re.compile(rf"(?<![\w:.,])(?P<hour>\d{{1,2}})\s?{_HALF}")
_RATIO = re.compile(r"(?<![\w:.])(\d{1,4}):(?=\d{1,4}(?![\w:]))")
_HALF_ALONE = re.compile(r"\b(?P<half>[ap]\.\s?m\b\.?)", re.IGNORECASE)
_AT = re.compile(r"\b(?:at|by|until|till|since|from|before|after|to|between|and)\s$|[\dT],?\s?$", re.IGNORECASE)
"""What stands before a time of day with seconds, and not before a duration."""
_NOON = 12
_MAX_HOUR = 24
_MAX_MINUTE = 59


def say_times(text: str) -> str:
    """Times of day in words; 3:2 as a ratio. Ranges of times are joined by "to" before this."""
    text = substitute(_DURATION, _duration, text)
    text = substitute(_DOTTED_ZONE, _dotted_zone, text)
    text = substitute(_ZONE, _zone, text)
    text = substitute(_DOTTED_CLOCK, _clock, text)
    text = substitute(_CLOCK, _clock, text)
    text = substitute(_HOUR, _hour, text)
    text = substitute(_HALF_ALONE, _half, text)
    return substitute(_RATIO, lambda match: f"{cardinal(int(match[1]))} to ", text)


def _duration(match: re.Match[str]) -> str:
    """``1h 25m`` as "one hour twenty-five minutes", ``45m 10s`` likewise."""
    parts = (
        (match["hours"], "hour"),
        (match["minutes"] or match["minutes_first"], "minute"),
        (match["seconds"] or match["seconds_last"], "second"),
    )
    return " ".join(f"{cardinal(int(count))} {unit}{'' if int(count) == 1 else 's'}" for count, unit in parts if count)


def _dotted_zone(match: re.Match[str]) -> str:
    """``E.S.T.`` as ``EST``, keeping the full stop that also ends the sentence."""
    letters = "".join(character for character in match.group() if character.isalpha())
    return letters + ("." if match.group().endswith(".") and ends_sentence(match) else "")


def _zone(match: re.Match[str]) -> str:
    """The zone behind a time letter by letter: ``EST`` is no "established"."""
    return f"{match['before']}{' '.join(match['zone'])}{match['dot'] if ends_sentence(match) else ''}"


def _half(match: re.Match[str]) -> str:
    """``p.m.`` as "P M", keeping the full stop that also ends the sentence."""
    written = match["half"] or ""
    letters = " ".join(character for character in written.upper() if character.isalpha())
    return letters + ("." if written.endswith(".") and ends_sentence(match) else "")


def _hour(match: re.Match[str]) -> str:
    return f"{cardinal(int(match['hour']))} {_half(match)}"


def _clock(match: re.Match[str]) -> str | None:
    hour, minute = int(match["hour"]), int(match["minute"])
    second = int(match.groupdict().get("second") or 0)
    if hour > _MAX_HOUR or minute > _MAX_MINUTE or second > _MAX_MINUTE:
        return None
    if match.groupdict().get("second") and not match["half"] and not _AT.search(match.string[: match.start()]):
        return _spelled_out(hour, minute, second)
    said = _hour_and_minute(hour, minute, has_half=bool(match["half"]), has_second=bool(second))
    if second:
        said = f"{said} and {cardinal(second)} {'second' if second == 1 else 'seconds'}"
    return f"{said} {_half(match)}" if match["half"] else said


def _spelled_out(hour: int, minute: int, second: int) -> str:
    """``1:02:03`` as "one hour two minutes and three seconds": a duration, or as good for a time of day."""
    parts = [(hour, "hour"), (minute, "minute"), (second, "second")]
    said = [f"{cardinal(count)} {unit}{'' if count == 1 else 's'}" for count, unit in parts if count]
    return " and ".join([" ".join(said[:-1]), said[-1]]) if len(said) > 1 else (said or ["zero seconds"])[0]


def _hour_and_minute(hour: int, minute: int, *, has_half: bool, has_second: bool) -> str:
    if minute:
        return f"{cardinal(hour)} {two_digits(minute)}"
    if has_half or has_second:
        return cardinal(hour)
    if hour == 0:
        return "midnight"
    return f"{cardinal(hour)} o'clock" if hour <= _NOON else f"{cardinal(hour)} hundred"
