"""English words for times of day: "two oh five P M", "fourteen thirty", "twelve o'clock"."""

import re

from cc_tts.text.en.numbers import amount, cardinal, digits, two_digits
from cc_tts.text.substitution import in_order, kept_stop

_HALF = r"(?P<half>[AaPp]\.\s?[Mm]\b\.?|[AaPp][Mm]\b|(?<=:\d\d)[AaPp]\b)"
_CLOCK = (
    r"(?<![\w:.])(?P<hour>[01]?\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:\.\d{1,6})?)?"
    rf"(?:Z(?!\w)|\s?{_HALF})?(?![\d:])"
)
_WITH_H = r"(?<![\w:.,])(?P<hours>[01]?\d|2[0-3])h(?P<minutes>[0-5]\d)(?!\w)"
_RATIO = r"(?<![\w:.,])(\d{1,3}):(?=\d{1,3}(?![\w:]|\.\d))(?!\d{1,3}\s?[ap]\.?m\b)"
_OF_RATIO = re.compile(
    r"\bparts?\b.{0,40}\($|\bdilut\w+|\bmix (?:the|it|this|with)\b|\b(?:ratios?|mix(?:ed|ing|ture)?|scale|odds|aspect)\b:?"
    r"(?:\s(?:is|are|was|of|at|to|in|be|about|should|must|now)){0,4}\s$",
    re.IGNORECASE,
)
_RATIO_AFTER = re.compile(r"\d{1,3}\s(?:[a-z]{1,12}\s)?ratio\b")
_PARTS = (
    r"(?<![\w:.,])(?=\d+\s?(?:d|h|hrs?|m|mins?)\s?\d)(?:(?P<days>\d{1,3})\s?d(?:ays?)?)?\s?(?:(?P<hours>\d{1,3})\s?(?:h|hrs?))?"
    r"\s?(?:(?P<minutes>\d{1,3})\s?(?:m|mins?))?\s?(?:(?P<seconds>\d{1,2})\s?(?:s|secs?))?(?<=[a-z])(?!\w)"
)
_ZONE = (
    r"(?=[A-Z]{2,4}\b)(?:(?<=\d)|(?<=\d\s)|(?<=[AaPp][Mm]\s)|(?<=[AaPp]\s[Mm]\s)|(?<=[AaPp]\.[Mm]\.\s)|(?<=\bnoon\s)|(?<=\bmidnight\s)|(?<=\bhundred\s)|(?<=teen\s)|(?<=thirty\s)|(?<=-five\s))"
    r"(?P<zone>[ECMP][SD]?T|AK[SD]?T|HST|GMT|UTC|BST|CES?T|IST|JST|AE[SD]T|NZ[SD]T|SGT|HKT)\b\.?"
)
_LENGTH = (
    r"(?i)\b((?:call length|ewt|duration|lasted|took|elapsed|remaining|(?:hold|talk|wait|run|handle) ?time"
    r"|(?:on hold|holding|waiting|waited|talked|spoke) for"
    r"|(?:expires?|starts?|begins?|ends?|resets?|restarts?|closes?|reboots?) in)(?: is| was)?:? )"
    r"(\d{1,3}):([0-5]\d)(?![\d:])(?!\s?[ap]\.?m\b)(?!\s?(?:h|hrs?|hours?|min(?:ute)?s?)\b)"
)
_LEFT = (
    r"(?<![\w:.])(\d{1,3}):([0-5]\d)"
    r"(?=\s(?:(?:long|in length|remaining|elapsed)\b|left(?=[.,;!?)]|$|\s(?:in|on)\sthe\b)))"
)
"""The 5:30 left on time, but 2:10 left in the fourth quarter."""
_MILITARY = (
    r"(?=[012]\d[0-5]\d)(?:(?<![\w:.,$-])(?P<hour>[01]\d|2[0-3])(?P<minute>\d\d)\s?(?:hours|hrs)\b"
    r"|(?:(?<=\bat )|(?<=\bbetween )|(?<=@ )"
    r"|(?<=\bby )|(?<=\bto )|(?<=\bfrom )|(?<=[a-z] )(?=\d{4}\sto\s(?:[01]\d|2[0-3])[0-5]\d\b))"
    r"(?P<h>0\d)(?P<m>\d\d)(?![\w:,-]|\.\d))"
)
_LASTS = re.compile(
    r"\b(?:waits?|length|duration|hold|(?:hold|talk|wait|run) time|clip|video|recording|voicemail|message|delay|ewt)\b"
    r"(?:\s(?:is|was|of|lasts|now|for)){0,2}:?\s$",
    re.IGNORECASE,
)
"""A length under a minute follows these; behind other words 0:45 is a time of day."""
_LETTER_HALF = (
    r"(?i)(?=\d{1,2}[ap])(?:(?<=\bat )|(?<=@ )|(?<=\bby )|(?<=\bfrom )|(?<=\buntil )|(?<=\btill )|(?<=\bbefore )"
    r"|(?<=\bafter )|(?<=\bbetween )|(?<=\bto )|(?<=\d[ap] & )|(?<=\d[ap] and ))(1[0-2]|[1-9])(?P<half>[ap])(?![\w-])"
)
_AT = re.compile(
    r"\b(?:at|by|until|till|since|from|before|after|to|between|and)\s$|(?:\d|(?-i:T)),?\s?$"
    r"|\b(?:twenty|nineteen) [a-z-]+\s$"
    r"|\b(?:the|current|local) time is(?: now)?\s$",
    re.IGNORECASE,
)
"""The words that stand before a time of day with seconds, and not before a duration."""
_ZONE_AFTER = re.compile(r"\s(?:[ECMP] (?:[SD] )?T|U T C|G M T)\b")
_SEAT_BEFORE = re.compile(r"\b\d{1,2}[B-K]\b|\b[Ss]eats?\b|\b[Rr]ow\b")
_NOON = 12


def _count(number: int, unit: str) -> str:
    return f"{cardinal(number)} {unit}{'' if number == 1 else 's'}"


def _duration(match: re.Match[str]) -> str | None:
    """``1h 25m`` as "one hour twenty-five minutes", ``9d 4h`` and ``45m 10s`` likewise; one part alone may be a length."""
    said = [_count(int(number), unit[:-1]) for unit, number in match.groupdict().items() if number]
    return " ".join(said) if len(said) > 1 else None


def _ratio(match: re.Match[str]) -> str | None:
    before = match.string[: match.start()]
    is_ratio = _OF_RATIO.search(before) or _RATIO_AFTER.match(match.string, match.end())
    return f"{match[1]} to " if is_ratio and not _AT.search(before) else None


def _is_seat(match: re.Match[str]) -> bool:
    """Whether ``9A`` is a seat: "from 14C to 9A"."""
    return (
        match["half"].isupper()
        and _SEAT_BEFORE.search(match.string, max(0, match.start() - 40), match.start()) is not None
    )


def _zone(match: re.Match[str]) -> str:
    """The zone behind a time letter by letter: ``EST`` is no "established"."""
    return " ".join(match["zone"]) + kept_stop(match)


def _half(match: re.Match[str]) -> str:
    """``p.m.`` as "P M", keeping the full stop that also ends the sentence."""
    stop = "" if _ZONE_AFTER.match(match.string, match.end()) else kept_stop(match)
    return f"{match['half'][0].upper()} M{stop}"


def _clock(match: re.Match[str]) -> str:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if match["second"] and not match["half"] and not _AT.search(match.string[: match.start()]):
        return _spelled_out(hour, minute, second)
    said = _hour_and_minute(hour, minute, has_half=bool(match["half"]), has_second=bool(second))
    if second:
        said = f"{said} and {_count(second, 'second')}"
    if match.group().endswith("Z"):
        return f"{said} U T C"
    return f"{said} {_half(match)}" if match["half"] else said


def _military(match: re.Match[str]) -> str:
    """``1430 hours`` as "fourteen thirty hours", ``0800`` as "zero eight hundred"."""
    said = military(match["hour"] or match["h"], match["minute"] or match["m"])
    return f"{said} hours" if match["hour"] else said


def military(hour: str, minute: str) -> str:
    """``0800`` as "zero eight hundred", ``1430`` as "fourteen thirty"."""
    said = digits(hour) if hour[0] == "0" else cardinal(int(hour))
    return f"{said} {two_digits(int(minute)) if int(minute) else 'hundred'}"


def _spelled_out(hour: int, minute: int, second: int) -> str:
    """``1:02:03`` as "one hour two minutes and three seconds": a duration, or as good for a time of day."""
    parts = [(hour, "hour"), (minute, "minute"), (second, "second")]
    said = [_count(number, unit) for number, unit in parts if number] or ["zero seconds"]
    return " and ".join([" ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def _raced(match: re.Match[str]) -> str:
    """``1:02.45`` as "one minute two point four five seconds"."""
    minutes, seconds = int(match[1]), match[2].removeprefix("0")
    return f"{_count(minutes, 'minute') if minutes else ''} {amount(seconds)} seconds".lstrip()


def _hour_and_minute(hour: int, minute: int, *, has_half: bool, has_second: bool) -> str:
    if minute:
        return f"{cardinal(hour)} {two_digits(minute)}"
    if has_half or has_second:
        return cardinal(hour)
    if hour == 0:
        return "midnight"
    return f"{cardinal(hour)} o'clock" if hour <= _NOON else f"{cardinal(hour)} hundred"


say_times = in_order(
    (_LENGTH, lambda match: f"{match[1]}{_spelled_out(0, int(match[2]), int(match[3]))}"),
    (
        _LEFT,
        lambda match: _spelled_out(0, int(match[1]), int(match[2])),
    ),
    (
        r"(?<![\w:.])0:([0-5]\d)(?![\d:]|\s?[ap]\.?m\b)",
        lambda match: _spelled_out(0, 0, int(match[1])) if _LASTS.search(match.string[: match.start()]) else None,
    ),
    (r"(?<![\w:.])(\d{1,2}):([0-5]\d\.\d{1,3})(?![\w:])(?!\.\d)", _raced),
    (_MILITARY, _military),
    (r"(?<![\w:.$£])(1[0-2]|[1-9])([ap])(?=\s[ECMP][SD]?T\b)", r"\1 \2m"),
    (_LETTER_HALF, lambda match: None if _is_seat(match) else f"{match[1]} {match['half']}m"),
    (_PARTS, _duration),
    (
        _WITH_H,
        lambda match: f"{match[1]}:{match[2]}" if _AT.search(match.string[: match.start()]) else _duration(match),
    ),
    (r"(?<=\b[Ll]ine )(\d{1,6}):(?=\d{1,4}(?![\w:]))", r"\1 colon "),
    (_RATIO, _ratio),
    (_ZONE, _zone),
    (rf"(?<![\w:.])(?P<hour>[01]?\d|2[0-4])\.(?P<minute>[0-5]\d)(?P<second>)\s?{_HALF}", _clock),
    (_CLOCK, _clock),
    (rf"(?<![\w:.,])(?P<hour>\d{{1,2}})\s?{_HALF}", lambda match: f"{cardinal(int(match['hour']))} {_half(match)}"),
    (r"(?i)\b(?P<half>[ap]\.\s?m\b\.?)", _half),
    (r"(?<![\w:.])(\d{1,4}(?:\.\d{1,2})?):(?=\d{1,4}(?![\w:]))", lambda match: f"{amount(match[1])} to "),
)
"""Times of day in words; 3:2 as a ratio. Ranges of times are joined by "to" before this."""
