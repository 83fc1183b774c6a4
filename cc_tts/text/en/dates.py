"""English words for dates, years and decades: "November twentieth, twenty twenty-six", "nineteen nineties".

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.en.numbers import cardinal, ordinal, plural, year
from cc_tts.text.substitution import ends_sentence, substitute

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NUM_MONTHS = len(_MONTHS)
_MAX_DAY = 31
_MONTH_BY_PREFIX = {name[:3].lower(): name for name in _MONTHS}
_ALSO_WORDS = frozenset({"may", "march", "mar"})
_WEEKDAYS = {
    "mon": "Monday",
    "tue": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "fri": "Friday",
    "sat": "Saturday",
    "sun": "Sunday",
}

_MONTH = (
    r"(?P<month>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|"
    r"Nov(?:ember)?|Dec(?:ember)?)\b"
)
_YEAR = r"(?P<year>1[1-9]\d\d|20\d\d)"
_ENDS = r"(?!\w)(?![.:,/]\d)"
_YEAR_FIRST = re.compile(
    r"(?<![\w/.-])(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?:(?P<clock>T)"
    r"(?=\d\d:)|(?!\w)(?![.:/-]\d))"
)
_YEAR_LAST = re.compile(
    r"(?<![\w/.-])(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})(?!\w)(?![.:/-]\d)"
)
_WITHOUT_YEAR = re.compile(
    r"\b(?P<context>(?:on|by|until|till|before|after|since|due|dated|from|through|thru|between|valid|starting"
    r"|beginning|ending|ends|starts|"
    r"begins|expires|exp\.?|expiring|effective|scheduled for|set for|moved to|week of|(?:Mon|Tues?|Wednes|Wed"
    r"|Thurs?|Thu|Fri|Satur|Sat|Sun)(?:day)?\.?,?)\s)(?P<first>\d{1,2})/(?P<second>\d{1,2})(?![\w/])",
    re.IGNORECASE,
)
_DAY_RANGE = re.compile(
    r"(?<![\w/.-])(?P<first>\d{1,2}/\d{1,2}(?:/\d{2}(?:\d\d)?)?)(?P<joint>\s?[-–—]\s?|\s(?:to|through|thru|until"
    r"|and|or)\s)(?P<last>\d{1,2}/\d{1,2}(?:/\d{2}(?:\d\d)?)?)(?![\w/-]|[.,:]\d)"
)
_EXPIRY = re.compile(
    r"\b(?P<context>(?:exp(?:\.|:)?|expir(?:y|ation)(?:\sdate)?|expir(?:es|ed|ing|e)|valid\sth(?:ru|rough)"
    r"|good\sth(?:ru|rough)|exp\.?\sdate)"
    r"(?:\s(?:is|on|in|of))?:?\s)(?P<month>0?[1-9]|1[0-2])/(?P<year>\d\d|20\d\d)(?![\w/-]|[.,:]\d)",
    re.IGNORECASE,
)
_EXP = re.compile(r"exp[.:]{0,2}\s", re.IGNORECASE)
_CARD = re.compile(r"\b(?:cards?|visa|mastercard|amex)\b", re.IGNORECASE)
_EXPIRY_DATE = re.compile(r"\bexpir(?:y|ation)|\bexp\b", re.IGNORECASE)
_FIRST_EXPIRY_YEAR = 24  # a card that expired before is not spoken of; 3/15 is a day
_BEFORE_TIME = re.compile(
    r"(?<![\w/.-])(?P<first>\d{1,2})/(?P<second>\d{1,2})(?=(?:,| at| @)\s\d{1,2}(?::\d\d|\s?[ap]\.?m))", re.IGNORECASE
)
_WORKDAYS = re.compile(r"(?<![\w-])M-F(?![\w-])")
_MONTH_DAY = re.compile(
    rf"\b{_MONTH}\.?[\s-](?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s?[-–]\s?(?P<last>\d{{1,2}})(?:st|nd|rd|th)?)?"
    rf"(?:(?:,?\s|-){_YEAR})?{_ENDS}",
    re.IGNORECASE,
)
_DAY_MONTH = re.compile(
    rf"(?P<the>\bthe\s)?(?<![\w.,:/-])(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH}(?P<dot>\.?)"
    rf"(?:,?\s{_YEAR}{_ENDS})?",
    re.IGNORECASE,
)
_MONTH_YEAR = re.compile(rf"\b{_MONTH}\.?,?\s{_YEAR}{_ENDS}", re.IGNORECASE)
_MONTH_DOTTED = re.compile(r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.(?!\w)")
_WEEKDAY = r"(Mon|Tues?|Wed|Thur?s?|Fri|Sat|Sun)"
_WEEKDAY_RANGE = re.compile(rf"\b{_WEEKDAY}\.?\s?[-–—]\s?{_WEEKDAY}\b\.?")
_WEEKDAY_DOTTED = re.compile(rf"\b{_WEEKDAY}(?:\.,?(?=\s(?:[A-Z][a-z]{{2,8}}\.?\s)?\d)|,(?=\s))")

_DAY = re.compile(r"(?P<first>\d{1,2})/(?P<second>\d{1,2})(?:/(?P<year>\d{4}|\d{2}))?")
_DATES_BETWEEN = re.compile(r"(?<=[/-]\d{4})\s?[-–—]\s?(?=\d{1,2}/\d{1,2}/\d{2,4})")
_AGE = re.compile(
    r"\b(?P<before>(?:in|into|past) (?:his|her|their|my|your|our|its|the) (?:(?:early|mid|late|middle)[ -])?|\b"
    r"(?:early|mid|late)[ -])(?P<ten>[1-9]0)'?s\b",
    re.IGNORECASE,
)
_SEPTEMBER_ELEVENTH = re.compile(r"(?<![\w/.])9/11(?![\w/])")
_DECADE = re.compile(r"(?<!\w)(1[1-9]\d0|20\d0)'?s\b")
_DECADES = re.compile(r"(?<!\w)((?:1[1-9]|20)\d0)'?s\s?[-–—]\s?'?((?:1[1-9]|20)?\d0)'?s\b")
_SHORT_DECADE = re.compile(r"(?:(?<=\bthe )|(?<!\w)')([2-9])0'?s\b")
_YEAR_RANGE = re.compile(r"(?<![\w.,/:-])((?:19|20)\d\d)\s?[-–—]\s?((?:19|20)?\d\d)(?![\w/:%-])(?![.,]\d)")
_COUNTED = r"(?!\s(?:dollars|euros|pounds|points|people|units|items|minutes|hours|days|miles|times|copies|million)\b)"
_MODERN_YEAR = re.compile(rf"(?<![\w/:$£€¥])(?<!\d[.,])((?:19|20)\d\d)(?![\w/:%°])(?!\s?[%°])(?![.,]\d){_COUNTED}")
_OLD_YEAR = re.compile(
    rf"\b((?:in|since|year|circa|around)\s)(1[1-8]\d\d)(?![\w/:%])(?![.,]\d){_COUNTED}", re.IGNORECASE
)
_MIN_FULL_YEAR_DIGITS = 4
_PIVOT = 70


def say_dates(text: str, *, day_first: bool = False) -> str:
    """Dates in words. ``day_first`` decides what 3/4/2026 means; a number over twelve decides for itself."""

    def numeric(match: re.Match[str]) -> str | None:
        first, second = int(match["first"]), int(match["second"])
        groups = match.groupdict()
        swapped = day_first or groups.get("mark") == "."
        begins_with_day = (swapped and second <= _NUM_MONTHS) or first > _NUM_MONTHS
        month, day = (second, first) if begins_with_day else (first, second)
        written = groups.get("year")
        said = _date(month, day, full_year(written) if written else None, day_first=begins_with_day)
        return None if said is None else groups.get("context", "") + said

    def day_range(match: re.Match[str]) -> str | None:
        days = [re.fullmatch(_DAY, match[name]) for name in ("first", "last")]
        said = [numeric(day) for day in days if day]
        joint = match["joint"] if match["joint"].strip().isalpha() else " to "
        return joint.join(day for day in said if day) if all(said) else None

    text = substitute(_EXPIRY, _expiry, text)
    text = substitute(_DECADES, _decades, text)
    text = _DATES_BETWEEN.sub(" to ", text)
    text = substitute(_DAY_RANGE, day_range, text)
    text = substitute(_YEAR_FIRST, _year_first, text)
    text = substitute(_YEAR_LAST, numeric, text)
    text = substitute(_WITHOUT_YEAR, numeric, text)
    text = substitute(_BEFORE_TIME, numeric, text)
    text = substitute(_WORKDAYS, lambda _: "Monday to Friday", text)
    text = substitute(_WEEKDAY_RANGE, _weekday_range, text)
    text = substitute(_WEEKDAY_DOTTED, lambda match: f"{_weekday(match[1])},", text)
    text = substitute(_MONTH_DAY, _month_day, text)
    text = substitute(_DAY_MONTH, _day_month, text)
    text = substitute(_MONTH_YEAR, _month_year, text)
    text = substitute(_SEPTEMBER_ELEVENTH, lambda _: "nine eleven", text)
    text = substitute(_AGE, lambda match: match["before"] + plural(cardinal(int(match["ten"]))), text)
    return substitute(_MONTH_DOTTED, lambda match: _month_name(match[1]) + _kept_dot(match), text)


def say_years(text: str) -> str:
    """Decades, ranges of years and four-digit numbers that read as years, in words."""
    text = substitute(_DECADE, lambda match: plural(year(int(match[1]))), text)
    text = substitute(_SHORT_DECADE, lambda match: plural(year(1900 + 10 * int(match[1])).split()[-1]), text)
    text = substitute(_YEAR_RANGE, _year_range, text)
    text = substitute(_MODERN_YEAR, lambda match: year(int(match[1])), text)
    return substitute(_OLD_YEAR, lambda match: match[1] + year(int(match[2])), text)


def _date(month: int, day: int, in_year: int | None, *, day_first: bool = False) -> str | None:
    if not 1 <= month <= _NUM_MONTHS or not 1 <= day <= _MAX_DAY:
        return None
    return spoken_date(in_year, month, day, day_first=day_first)


def spoken_date(in_year: int | None, month: int | None, day: int | None, *, day_first: bool = False) -> str:
    """A date of which parts may be missing: "November twentieth, twenty twenty-six", with ``day_first`` "the twentieth of
    November, twenty twenty-six"; "November twenty twenty-six"; "the twentieth".
    """
    name = _MONTHS[month - 1] if month else ""
    said_day = ordinal(day) if day else ""
    if name and day:
        said = f"the {said_day} of {name}" if day_first else f"{name} {said_day}"
        return f"{said}, {year(in_year)}" if in_year is not None else said
    said = name or (f"the {said_day}" if day else "")
    return " ".join(part for part in (said, year(in_year) if in_year is not None else "") if part)


def full_year(written: str) -> int:
    """The year that two or four digits stand for."""
    if len(written) == _MIN_FULL_YEAR_DIGITS:
        return int(written)
    return int(written) + (1900 if int(written) >= _PIVOT else 2000)


def _month_name(written: str) -> str:
    return _MONTH_BY_PREFIX[written[:3].lower()]


def _weekday(written: str) -> str:
    return _WEEKDAYS[written[:3].lower()]


def _weekday_range(match: re.Match[str]) -> str:
    return f"{_weekday(match[1])} to {_weekday(match[2])}{_kept_dot(match)}"


def _kept_dot(match: re.Match[str]) -> str:
    return "." if match.group().endswith(".") and ends_sentence(match) else ""


def _year_first(match: re.Match[str]) -> str | None:
    said = _date(int(match["month"]), int(match["day"]), int(match["year"]))
    return f"{said} at " if said and match["clock"] else said


def _expiry(match: re.Match[str]) -> str | None:
    """The date on a card, ``09/27``; a day of the month where the words do not tell and the second number may be one."""
    context = "expires " if _EXP.fullmatch(match["context"]) else match["context"]
    said = f"{context}{_MONTHS[int(match['month']) - 1]} {year(full_year(match['year']))}"
    if len(match["year"]) == _MIN_FULL_YEAR_DIGITS or int(match["year"]) > _MAX_DAY:
        return said
    before = match.string[: match.start("month")]
    says_through = re.search(r"through", context, re.IGNORECASE)
    is_card = _CARD.search(before) or (not says_through and (match["month"][0] == "0" or _EXPIRY_DATE.search(before)))
    return said if is_card and int(match["year"]) >= _FIRST_EXPIRY_YEAR else None


def _is_verb(match: re.Match[str]) -> bool:
    """``may`` and ``march`` in small letters, unless a year follows."""
    written = match["month"]
    return written.lower() in _ALSO_WORDS and written[0].islower() and not match["year"]


def _month_day(match: re.Match[str]) -> str | None:
    if _is_verb(match) or not 1 <= int(match["day"]) <= _MAX_DAY:
        return None
    said = f"{_month_name(match['month'])} {ordinal(int(match['day']))}"
    if match["last"]:
        said = f"{said} to {ordinal(int(match['last']))}"
    return f"{said}, {year(int(match['year']))}" if match["year"] else said


def _day_month(match: re.Match[str]) -> str | None:
    if _is_verb(match) or not 1 <= int(match["day"]) <= _MAX_DAY:
        return None
    said = f"{match['the'] or 'the '}{ordinal(int(match['day']))} of {_month_name(match['month'])}"
    if match["year"]:
        return f"{said}, {year(int(match['year']))}"
    is_short = match["month"] != _month_name(match["month"])
    return said + (match["dot"] if not is_short or ends_sentence(match) else "")


def _month_year(match: re.Match[str]) -> str | None:
    return None if _is_verb(match) else f"{_month_name(match['month'])} {year(int(match['year']))}"


def _decades(match: re.Match[str]) -> str:
    """``1960s-80s`` as "nineteen sixties to eighties"."""
    last = plural(year(int(match[2]) if len(match[2]) == _MIN_FULL_YEAR_DIGITS else 1900 + int(match[2])))
    return f"{plural(year(int(match[1])))} to {last if len(match[2]) == _MIN_FULL_YEAR_DIGITS else last.split()[-1]}"


def _year_range(match: re.Match[str]) -> str:
    first, last = match[1], match[2]
    full = last if len(last) == _MIN_FULL_YEAR_DIGITS else first[:2] + last
    return f"{year(int(first))} to {year(int(full))}"
