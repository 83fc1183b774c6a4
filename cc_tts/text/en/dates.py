"""English words for dates, years and decades: "November twentieth, twenty twenty-six", "nineteen nineties"."""

import re
from collections.abc import Callable

from cc_tts.text.en.numbers import NO_QUANTITY, cardinal, ordinal, plural, two_digits, year
from cc_tts.text.substitution import ends_sentence, in_order, kept_stop

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_NUM_MONTHS = len(_MONTHS)
_MAX_DAY = 31  # ISO 8601
_MONTH_BY_PREFIX = {name[:3].lower(): name for name in _MONTHS}
_ALSO_WORDS = frozenset({"may", "march", "mar"})
_WEEKDAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday", "Fri": "Friday", "Sat": "Saturday",
    "Sun": "Sunday",
}  # fmt: skip

_MONTH = (
    r"(?P<month>Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\b"
)
_YEAR = r"(?P<year>1[1-9]\d\d|20\d\d)"
_ENDS = r"(?!\w)(?![.:,/]\d)"
_YEAR_FIRST = (
    r"(?<![\w/.-])(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?:(?P<clock>[T ])"
    r"(?=\d\d:\d\d)|(?!\w)(?![.:/-]\d))"
)
_YEAR_LAST = (
    r"(?<![\w/.-])(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})(?!\w)(?![.:/-]\d)"
)
_BEFORE_DAY = re.compile(
    r"\b(?:on|as of|by|until|till|before|after|since|due|dated|from|through|thru|between|valid|starting"
    r"|beginning|ending|ends|starts|begins|re-?open(?:s|ing)?|resum(?:es?|ing)|expires|exp\.?|expiring|effective"
    r"|scheduled for|set for|moved to|week of|wk\.? of"
    r"|(?:Mon|Tues?|Wednes|Wed|Thurs?|Thu|Fri|Satur|Sat|Sun)(?:day)?\.?,?)\s$",
    re.IGNORECASE,
)
_WITHOUT_YEAR = r"(?<=\s)(?P<first>\d{1,2})/(?P<second>\d{1,2})(?![\w/]|\sof\s(?!this|next|last))"
_MONTH_OF_YEAR = r"(?<![\w/.-])(0?[1-9]|1[0-2])/((?:19|20)\d\d)(?![\w/-]|[.,]\d)"
_YEAR_AND_MONTH = (
    r"(?i)\b((?:exp(?:ir\w+)?|mf[dg]|dates?|valid|due|period|month|best before|until|thru|through|since)\b[.:]{0,2}\s)"
    r"((?:19|20)\d\d)-(0[1-9]|1[0-2])(?![\w-])"
)
_DAY_RANGE = (
    r"(?<![\w/.-])(?P<first>\d{1,2}/\d{1,2}(?:/\d{2}(?:\d\d)?)?)(?P<joint>\s?[-–—]\s?|\s(?:to|through|thru|until"
    r"|and|or)\s)(?P<last>\d{1,2}/\d{1,2}(?:/\d{2}(?:\d\d)?)?)(?![\w/-]|[.,:]\d)"
)
_DAYS = r"(?<![\w/.-])(?P<first>\d{1,2})/(?P<second>\d{1,2})\s?[-–—]\s?(?P<last>\d{1,2})(?![\w/%°-]|[.,:]\d)"
_ON_BEFORE = re.compile(r"\b(?:on|from|for|closed|open|between|dates?:?|through|thru)\s$", re.IGNORECASE)
_EXPIRY = (
    r"(?i)\b(?P<context>(?:exp(?:\.|:)?|expir(?:y|ation)(?:\sdate)?|expir(?:es|ed|ing|e)|valid\sth(?:ru|rough)"
    r"|good\sth(?:ru|rough)|exp\.?\sdate)"
    r"(?:\s(?:is|on|in|of))?:?\s)(?P<month>0?[1-9]|1[0-2])/(?P<year>\d\d|20\d\d)(?![\w/-]|[.,:]\d)"
)
_EXPIRES_AFTER = r"(?i)(?<![\w/.-])(0[1-9]|1[0-2])/(2[4-9]|3\d)(?=\s(?:is\s|as\s)?(?:the|your|its)\s(?:card's\s)?expir)"
_EXP = re.compile(r"exp[.:]{0,2}\s", re.IGNORECASE)
_CARD = re.compile(r"\b(?:cards?|visa|mastercard|amex)\b", re.IGNORECASE)
_OFFER = re.compile(r"\b(?:points|miles|coupons?|offers?|sale|vouchers?|promo|rewards)\b", re.IGNORECASE)
_EXPIRY_DATE = re.compile(r"\bexpir(?:y|ation)|\bexp\b", re.IGNORECASE)
_FIRST_EXPIRY_YEAR = 24  # a card that expired before is not spoken of; 3/15 is a day
_BEFORE_TIME = (
    r"(?i)(?<![\w/.-])(?P<first>\d{1,2})/(?P<second>\d{1,2})"
    r"(?=\s\d{1,2}:\d\d|(?:,| at| @)\s\d{1,2}(?::\d\d|\s?[ap]\.?m))"
)
_SLASHED = r"(?<![\w/.,:⁄-])(?<!\d )(?P<first>\d{1,2})/(?P<second>\d{1,2})(?![\w/⁄]|[.,]\d)"
_LABEL_OF_DAY = (
    "date|dates|due|service|statement|dob|birth|birthday|appt|appointment|visit|eta|etd|eod|cob|wk of|deadline|starts?"
    "|starting|started|ends?|ended|ships?|shipped|shipping|delivery|delivered|delivers?|arriv(?:al|es?|ed|ing)"
    "|depart(?:s|ure|ing|ed)?|pick-?\\s?up|drop-?\\s?off|check(?:ing)?-?\\s?(?:in|out)|renew(?:s|als?|ed|ing)?|posts?|posted"
    "|posting|payment|received|mailed|issued|sent|scheduled|rescheduled|booked|confirmed|expected|available|invoiced?"
    "|billed|billing|cycle|period|today|tomorrow|yesterday|tonight|install(?:ed|ation|s)?|activat(?:ed|ion|es)|dated"
    "|disconnect(?:ed|ion)?|enroll(?:ed|ment)|refunded|purchased|ordered|placed|filed|updated|admitted|discharged|refill"
    "|released|event|session|hearing|exam|class|flight|trip|stay|cancel(?:l?ed)?|cutoff|in effect|holiday|order"
)
_DONE_ON_DAY = "paid|pays?|read|closed|closes?|closing|opened|opens?|filled|refilled|processed|moved|returned|completed"
_DAY_BEFORE = re.compile(
    rf"\b(?:(?:{_LABEL_OF_DAY})\b\.?(?:\s(?:is|was|for|of|on))?(?:\s?[:,]|\s[–—-])?|(?:{_DONE_ON_DAY})\s?:)\s?\(?$"
    rf"|\b(?:{'|'.join(_MONTHS)})\s[a-z-]{{5,14}},?(?:\s(?:and|or|&|then))?\s$",
    re.IGNORECASE,
)
_DONE_BEFORE = re.compile(rf"\b(?:{_DONE_ON_DAY})\s$", re.IGNORECASE)
_PART_BEFORE = re.compile(
    r"\b(?:steps?|pages?|parts?|questions?|scor(?:e[sd]?|ing)|rate[ds]?|rating|gave|levels?|grades?|items?|slides?|chapters?"
    r"|box|attempts?|rounds?|modules?|lessons?|about|times|plus|minus|nearly|almost|over|roughly|exactly|another|ratio|odds|units?|suite|apt\.?|room|highway|route)"
    r"(?:\sis|\sof|:)?\s$",
    re.IGNORECASE,
)
_PART_AFTER = re.compile(
    r"\s?(?:[\"″'′%=]|-?(?:inch(?:es)?|mi|miles?|lbs?|oz|ounces?|cups?|tsp|tbsp|(?:tea|table)spoons?|yards?|yds?|ft|foot|feet"
    r"|hours?|hrs?|gal|gallons?|pounds?|tanks?|full|empty|price|off|of|majority|share|time|wire|cable|gauge|points?|stars?"
    r"|correct|complete|done|people|customers|members|patients|bars?|split|ratio|net|ways?|vision|x|arm)\b"
    r"|\sin\.\s[a-z])",
    re.IGNORECASE,
)
_IN = re.compile(r"\s?-?in\b")
_SLASHED_BEFORE = re.compile(r"(?<![\w/.])(?P<first>\d{1,2})/(?P<second>\d{1,2}),?(?:\s(?:and|or|&|then))?\s$")
_LISTED = frozenset({"and", "or"})
_RULER_PARTS = frozenset({2, 4, 8, 16, 32, 64})
_HIGHEST_SCORES = frozenset({5, 10})
SCORED_BEFORE = re.compile(r"\b(?:scor(?:e[sd]?|ing)|rat(?:ed|ings?)|grade[sd]?)\b", re.IGNORECASE)
_CERTAIN_DAY = re.compile(
    r"\b(?:on|by|until|till|before|after|since|due|dated|effective|starting|beginning|through|thru|posted|released|opens?)\s$",
    re.IGNORECASE,
)
_HARDLY_PARTS = frozenset({6, 7, 9, 11, 12})
"""Denominators that are rarer than the days of a month with these numbers."""
_LOOK_BACK_CHARACTERS = 40
_MONTH_DAY = (
    rf"(?i)\b(?<!\d-){_MONTH}\.?[\s-](?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s?[-–]\s?(?P<last>\d{{1,2}})(?:st|nd|rd|th)?)?"
    rf"(?:(?:,?\s|-){_YEAR})?{_ENDS}"
)
_DAY_MONTH = (
    rf"(?i)(?P<the>\bthe\s)?(?<![\w.,:/-])(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s(?:of\s)?|-){_MONTH}(?P<dot>\.?)"
    rf"(?:(?:,?\s|-){_YEAR}{_ENDS}|(?<=-.{{3}})-(?P<short_year>\d\d){_ENDS})?"
)
_MONTH_AND_DAY = re.compile(rf"{_MONTH}\.?\s\d{{1,2}}, $")
_WEEKDAY = r"(Mon|Tues?|Weds?|Thur?s?|Fri|Sat|Sun)"
_WEEKDAYS_LISTED = (
    rf"\b{_WEEKDAY}\b\.?(?:(?:,?\s(?:&|and|or|to|through|thru)\s|,\s|\s?/\s?){_WEEKDAY}\b\.?)+(?!\s?[-–—])"
)
_LETTER_DAYS = {"M": "Mon", "Tu": "Tue", "T": "Tue", "W": "Wed", "Th": "Thu", "F": "Fri", "Sa": "Sat", "Su": "Sun"}
_LETTER_DAY = "M|Tu|Th|T|W|F|Sat?|Sun?"
_LETTER_DAYS_LISTED = rf"(?<![\w/-])(?!(?:M/F|W/W|T/F|F/M)\b)(?:(?:{_LETTER_DAY})/){{1,5}}(?:{_LETTER_DAY})(?![\w/-])"
_LETTER_DAYS_RANGE = (
    rf"(?<![\w/-])(?P<first>{_LETTER_DAY})\s?[-–]\s?(?P<last>{_LETTER_DAY})(?![\w/-])"
    r"(?:(?<=M[-–]F)|(?<=[a-z])|(?=:?,?\s(?:from\s)?\d))"
)
_LETTER_DAY_ALONE = (
    r"(?=[MTWFS])(?:(?<=[,;:] )|(?<=\bhrs\. )|(?<=\bhours )|(?<=\()|^|(?<=\bdue )|(?<=\bon )|(?<=\bby ))(?!Sat|Sun)"
    rf"({_LETTER_DAY})"
)
_LETTER_DAY_AND_DATE = _LETTER_DAY_ALONE + r"(?=\s\d{1,2}/\d{1,2}(?![\d/]))"
_LETTER_DAY_AND_HOURS = _LETTER_DAY_ALONE + r"(?=\s\d{1,2}(?::\d\d)?(?:\s?[ap]m?)?\s?[-–]\s?(?:\d|noon\b))"
_OF_HOURS = re.compile(
    r"\b(?:hours?|hrs?|open|clos(?:ed?|es)|class|clinic|office|shift|schedule|appointments?|noon)\b|\d:\d\d|\d\s?[ap]\.?m\b",
    re.IGNORECASE,
)
"""Elsewhere ``M 8-10`` may be a size."""
_IN_MONTH = rf"\s(?:{'|'.join(_MONTHS)}|(?:{'|'.join(name[:3] for name in _MONTHS)})t?\b\.?\s\d)"
_IN_DAY_MONTH = rf"\s\d{{1,2}}(?:st|nd|rd|th)?\s(?:of\s)?{_MONTH.replace('?P<month>', '?:')}"
_TO_MONTH = (
    r"(?:(?<=\d)|(?<=\d(?:st|nd|rd|th)))\s?[-–—]\s?(?=(?:[A-Z][a-z]+day,?\s)?"
    rf"(?:{'|'.join(name[:3] for name in _MONTHS)})[a-z]{{0,6}}\.?\s\d)"
)
_HOUR = r"\s\d{1,2}(?::\d\d)?(?:\s?[AaPp]\.?[Mm]\b|\s?[-–]\s?(?:\d|noon\b|midnight\b))"
_DAY = re.compile(r"(?P<first>\d{1,2})/(?P<second>\d{1,2})(?:/(?P<year>\d{4}|\d{2}))?")
_BEFORE_WEEKDAY = re.compile(
    r"\b(?:on|by|until|till|since|next|last|this|every|before|after|from|through|for|open|closed|\d{1,2}\s?[ap]\.?m?\.?,?)\s$",
    re.IGNORECASE,
)
_AGE = (
    r"(?i)\b(?P<before>(?:in|into|past) (?:his|her|their|my|your|our|its|the) (?:(?:early|mid|late|middle)[ -])?|\b"
    r"(?:early|mid|late|low|lower|high|upper)[ -])(?P<ten>[1-9]0)'?s\b"
)
_COUNTED = r"(?!\s(?:dollars|euros|pounds|points|people|units|items|minutes|hours|days|miles|times|copies|million)\b)"
_MIN_FULL_YEAR_DIGITS = 4  # unmeasured
_CENTURIES_AGO = (
    r"((?:\b(?:from|between|ruled|reigned|lived|circa|years?|born|in)\s|\())"
    r"(1[1-8]\d\d)(?:\s?[-–—]\s?| to )(1[1-9]\d\d)(?![\w/:%-])(?![.,]\d)"
)
_NAME_BEFORE = re.compile(r"\b[A-Z][a-z]+ \($")
_PIVOT = 70
_FIRST_BIRTH_YEAR = 30
_BIRTH = re.compile(r"\b(?:DOB|D\.O\.B\.|births?|birthdate|birthday|born)\b", re.IGNORECASE)


def _date_rules(*, day_first: bool) -> Callable[[str], str]:
    def numeric(match: re.Match[str]) -> str | None:
        first, second = int(match["first"]), int(match["second"])
        groups = match.groupdict()
        swapped = day_first or groups.get("mark") == "."
        begins_with_day = (swapped and second <= _NUM_MONTHS) or first > _NUM_MONTHS
        month, day = (second, first) if begins_with_day else (first, second)
        written = groups.get("year")
        in_year = full_year(written) if written else None
        if written and in_year is not None and _BIRTH.search(match.string, max(0, match.start() - 30), match.start()):
            in_year = _year_of_birth(written)
        return spoken_date(in_year, month, day, day_first=begins_with_day)

    def day_range(match: re.Match[str]) -> str | None:
        days = [_DAY.fullmatch(match[name]) for name in ("first", "last")]
        said = [numeric(day) for day in days if day]
        if match["joint"].strip() in _LISTED and not NO_QUANTITY.match(match.string, match.end()):
            return None
        joint = match["joint"] if match["joint"].strip().isalpha() else " to "
        return joint.join(day for day in said if day) if all(said) else None

    def days(match: re.Match[str]) -> str | None:
        before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
        is_later = int(match["second"]) < int(match["last"]) <= _MAX_DAY
        said = numeric(match) if is_later and (_ON_BEFORE.search(before) or _is_day(match)) else None
        return said and f"{said} to {ordinal(int(match['last']))}"

    return in_order(
        (r"'(?<=\d, ')(\d\d)(?![\w'])", _year_behind_day),
        (rf"\b{_MONTH}\.?\s?'(\d\d){_ENDS}", lambda match: f"{match['month']} {full_year(match[2])}"),
        (
            r"(?<![\w/-])(?=[MTWF][MTWFu])(M)?(Tu|T(?!h))?(W)?(Th)?(F)?(?=\s\d{1,2}(?::\d\d)?(?:\s?[ap]m?)?\s?[-–]\s?\d)",
            lambda match: ", ".join(map(_letter_day, filter(None, match.groups()))),
        ),  # MWF 9-10
        (_LETTER_DAY_AND_DATE, lambda match: _letter_day(match[1])),
        (_LETTER_DAY_AND_HOURS, lambda match: _letter_day(match[1]) if _OF_HOURS.search(match.string) else None),
        (_EXPIRY, _expiry),
        (r"(?<!\w)((?:1[1-9]|20)\d0)'?s\s?[-–—]\s?'?((?:1[1-9]|20)?\d0)'?s\b", _decades),
        (_YEAR_AND_MONTH, lambda match: f"{match[1]}{_MONTHS[int(match[3]) - 1]} {year(int(match[2]))}"),
        (_MONTH_OF_YEAR, lambda match: f"{_MONTHS[int(match[1]) - 1]} {year(int(match[2]))}"),
        (r"(?<![\w/])(20\d\d)/(\d\d)(?![\w/-]|[.,]\d)", _season),
        (_EXPIRES_AFTER, lambda match: f"{_MONTHS[int(match[1]) - 1]} {year(full_year(match[2]))}"),
        (_DAY_RANGE, day_range),
        (_DAYS, days),
        (_YEAR_FIRST, _year_first),
        (_YEAR_LAST, numeric),
        (
            _WITHOUT_YEAR,
            lambda match: numeric(match) if _is_behind(_BEFORE_DAY, match) and not _is_score(match) else None,
        ),
        (_BEFORE_TIME, numeric),
        (_LETTER_DAYS_RANGE, lambda match: f"{_letter_day(match['first'])} to {_letter_day(match['last'])}"),
        (
            r"(?<![\w/.-])(Tu|Th|Sa|Su)(?![\w/.'’-])",
            lambda match: _letter_day(match[1]) if _OF_HOURS.search(match.string) else None,
        ),
        (_LETTER_DAYS_LISTED, lambda match: ", ".join(map(_letter_day, match.group().split("/")))),
        (_WEEKDAYS_LISTED, _weekday_list),
        (
            rf"\b{_WEEKDAY}\.?\s?[-–—]\s?{_WEEKDAY}\b\.?",
            lambda match: f"{_weekday(match[1])} to {_weekday(match[2])}{kept_stop(match)}",
        ),
        (
            rf"\b{_WEEKDAY}\b\.?,?\s(\d{{1,2}})(?:st|nd|rd|th)?\s?[-–—]\s?(?={_WEEKDAY}\b\.?,?\s\d)",
            lambda match: f"{_weekday(match[1])} the {ordinal(int(match[2]))} to ",
        ),
        (
            rf"\b{_WEEKDAY}(?:\.,?(?=\s(?:[A-Z][a-z]{{2,8}}\.?\s)?\d|{_IN_MONTH})|,(?=\s)|(?={_IN_MONTH}|{_IN_DAY_MONTH}|{_HOUR}|\s(?:@|at|from|by|until|till?|til|after|before|thru|through)\s?\d))",
            lambda match: f"{_weekday(match[1])},",
        ),
        (
            rf"\b{_WEEKDAY}\b(?![.'’-]|\s[A-Z])",
            lambda match: _weekday(match[1]) if _is_behind(_BEFORE_WEEKDAY, match) else None,
        ),
        (rf"\b{_WEEKDAY}\.?(?=\s(?:(?:morning|afternoon|evening|night)s?|[AP]M)\b)", lambda match: _weekday(match[1])),
        (
            rf"\b{_WEEKDAY}\.(?!\w)(?=\s[a-z]|[,;:)]|$)",
            lambda match: _weekday(match[1]) + kept_stop(match),
        ),
        (
            _TO_MONTH,
            " to ",
        ),
        (
            rf"(?:\bthe\s)?(?<![\w.,:/-])(\d{{1,2}})(?:st|nd|rd|th)?(?:\s?[-–—]\s?|\s(to|and|or)\s)(?={_IN_DAY_MONTH[2:]})",
            lambda match: f"the {ordinal(int(match[1]))} {match[2] or 'to'} ",
        ),
        (
            rf"\b{_MONTH}\.?\s?[-–]\s?{_MONTH.replace('month', 'until')}\.?",
            lambda match: f"{_month_name(match['month'])} to {_month_name(match['until'])}{kept_stop(match)}",
        ),
        (_MONTH_DAY, _month_day),
        (_DAY_MONTH, _day_month),
        (rf"(?i)\b{_MONTH}\.?,?\s{_YEAR}{_ENDS}", _month_year),
        (r"(?<![\w/.])9/11(?![\w/])", "nine eleven"),
        (_SLASHED, lambda match: numeric(match) if _is_day(match) else None),
        (_AGE, lambda match: match["before"] + plural(cardinal(int(match["ten"])))),
        (
            r"(?:(?<=st)|(?<=nd)|(?<=rd)|(?<=th)|(?<=:\d\d))\s?[-–]\s?(?=(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, )",
            " to ",
        ),
        (
            r"\b(Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.(?!\w)",
            lambda match: _month_name(match[1]) + kept_stop(match),
        ),
    )


def _is_day(match: re.Match[str]) -> bool:
    """Whether ``10/2`` is a day of a month and no fraction: by the words around it, else by what fractions people write."""
    before = match.string[max(0, match.start() - _LOOK_BACK_CHARACTERS) : match.start()]
    if _PART_BEFORE.search(before) or (
        _PART_AFTER.match(match.string, match.end()) and not _closes_quotation(match.string, match.end())
    ):
        return False
    if _DAY_BEFORE.search(before):
        return True
    if _is_score(match):
        return False
    if not NO_QUANTITY.match(match.string, match.end()):
        return False
    previous = _SLASHED_BEFORE.search(before)
    return _is_hardly_part(match, before) or (previous is not None and _is_hardly_part(previous, ""))


def _is_score(match: re.Match[str]) -> bool:
    """``7/10`` where a score is spoken of; not "scores come out on 7/10"."""
    is_part = int(match["first"]) <= int(match["second"]) in _HIGHEST_SCORES
    return (
        is_part
        and SCORED_BEFORE.search(match.string, 0, match.start()) is not None
        and not _is_behind(_CERTAIN_DAY, match)
    )


def _closes_quotation(text: str, at: int) -> bool:
    """Whether a mark that could stand for inches ends a quotation."""
    return text.startswith('"', at) and text.count('"', 0, at) % 2 == 1


def _is_hardly_part(match: re.Match[str], before: str) -> bool:
    """``10/2`` and ``1/31``; not ``3/4``, unless something was done then; not ``5/16 in``, which may be of a ruler."""
    top, bottom = int(match["first"]), int(match["second"])
    if top == bottom:
        return top == 1
    if top < bottom and bottom in _RULER_PARTS and _IN.match(match.string, match.end()):
        return False
    is_large = bottom > _NUM_MONTHS or bottom in _HARDLY_PARTS
    return top > bottom or is_large or (bottom > 4 and _DONE_BEFORE.search(before) is not None)  # noqa: PLR2004


def spoken_date(in_year: int | None, month: int | None, day: int | None, *, day_first: bool = False) -> str | None:
    """A date of which parts may be missing: "November twentieth, twenty twenty-six", with ``day_first`` "the twentieth of
    November, twenty twenty-six"; "November twenty twenty-six"; "the twentieth". ``None`` if there is no such month or day.
    """
    if not (_is_one_of(_NUM_MONTHS, month) and _is_one_of(_MAX_DAY, day)):
        return None
    said_year = "" if in_year is None else year(in_year)
    joint = ", " if month and day else " "
    return joint.join(filter(None, (_month_and_day(month, day, day_first=day_first), said_year)))


def _is_one_of(many: int, number: int | None) -> bool:
    return number is None or 1 <= number <= many


def _month_and_day(month: int | None, day: int | None, *, day_first: bool) -> str:
    name = _MONTHS[month - 1] if month else ""
    if not day:
        return name
    if not name:
        return f"the {ordinal(day)}"
    return f"the {ordinal(day)} of {name}" if day_first else f"{name} {ordinal(day)}"


def full_year(written: str) -> int:
    """The year that two or four digits stand for."""
    if len(written) == _MIN_FULL_YEAR_DIGITS:
        return int(written)
    return int(written) + (1900 if int(written) >= _PIVOT else 2000)


def _year_of_birth(written: str) -> int:
    """Return the year of a birth. 58 is of the last century; years of this one begin with 0, 1 or 2."""
    is_full = len(written) == _MIN_FULL_YEAR_DIGITS
    return int(written) if is_full else int(written) + (1900 if int(written) >= _FIRST_BIRTH_YEAR else 2000)


def _month_name(written: str) -> str:
    return _MONTH_BY_PREFIX[written[:3].lower()]


def _weekday(written: str) -> str:
    return _WEEKDAYS[written[:3]]


def _is_behind(words: re.Pattern[str], match: re.Match[str]) -> bool:
    return words.search(match.string, max(0, match.start() - 20), match.start()) is not None


def _letter_day(written: str) -> str:
    return _weekday(_LETTER_DAYS.get(written, written))


def _weekday_list(match: re.Match[str]) -> str:
    """``Mon, Wed. & Fri`` in full."""
    said = re.sub(rf"{_WEEKDAY}\b\.?", lambda day: _weekday(day[1]), match.group())
    return re.sub(r"\s?/\s?", ", ", said) + kept_stop(match)


def _year_first(match: re.Match[str]) -> str | None:
    said = spoken_date(int(match["year"]), int(match["month"]), int(match["day"]))
    return f"{said} at " if said and match["clock"] else said


def _year_behind_day(match: re.Match[str]) -> str | None:
    """``Apr. 10, '27`` with the full year."""
    return (
        str(full_year(match[1]))
        if _MONTH_AND_DAY.search(match.string, max(0, match.start() - 20), match.start())
        else None
    )


def _expiry(match: re.Match[str]) -> str | None:
    """The date on a card, ``09/27``; a day of the month where the words do not tell and the second number may be one."""
    context = "expires " if _EXP.fullmatch(match["context"]) else match["context"]
    said = f"{context}{_MONTHS[int(match['month']) - 1]} {year(full_year(match['year']))}"
    if len(match["year"]) == _MIN_FULL_YEAR_DIGITS or int(match["year"]) > _MAX_DAY:
        return said
    is_of_card = int(match["year"]) >= _FIRST_EXPIRY_YEAR and _speaks_of_card(match)
    return said if is_of_card else None


def _speaks_of_card(match: re.Match[str]) -> bool:
    before = match.string[: match.start("month")]
    if _CARD.search(before) or _OFFER.search(match.string):
        return _CARD.search(before) is not None
    is_short = match["month"][0] == "0" or "thru " in match["context"].lower()
    return "through" not in match["context"].lower() and (is_short or _EXPIRY_DATE.search(before) is not None)


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
    if in_year := match["year"] or match["short_year"]:
        return f"{said}, {year(full_year(in_year))}"
    is_short = match["month"] != _month_name(match["month"])
    return said + (match["dot"] if not is_short or ends_sentence(match) else "")


def _month_year(match: re.Match[str]) -> str | None:
    return None if _is_verb(match) else f"{_month_name(match['month'])} {year(int(match['year']))}"


def _decades(match: re.Match[str]) -> str:
    """``1960s-80s`` as "nineteen sixties to eighties"."""
    last = plural(year(int(match[2]) if len(match[2]) == _MIN_FULL_YEAR_DIGITS else 1900 + int(match[2])))
    return f"{plural(year(int(match[1])))} to {last if len(match[2]) == _MIN_FULL_YEAR_DIGITS else last.split()[-1]}"


def _season(match: re.Match[str]) -> str | None:
    """``2024/25`` as "twenty twenty-four twenty-five"."""
    follows = int(match[2]) == (int(match[1]) + 1) % 100
    return f"{year(int(match[1]))} {two_digits(int(match[2]))}" if follows else None


def _year_range(match: re.Match[str]) -> str:
    first, last = match[1], match[2]
    full = last if len(last) == _MIN_FULL_YEAR_DIGITS else first[:2] + last
    return f"{year(int(first))} to {year(int(full))}"


_SAY_MONTH_FIRST = _date_rules(day_first=False)
_SAY_DAY_FIRST = _date_rules(day_first=True)


def say_dates(text: str, *, day_first: bool) -> str:
    """Dates in words. ``day_first`` decides what 3/4/2026 means; a number over twelve decides for itself."""
    return (_SAY_DAY_FIRST if day_first else _SAY_MONTH_FIRST)(text)


say_years = in_order(
    (r"(?<!\w)(1[1-9]\d0|20\d0)'?s\b", lambda match: plural(year(int(match[1])))),
    (r"(?<=[\s(])'(\d\d)(?![\w'%]|[.:,]\d)", lambda match: two_digits(int(match[1]))),
    (r"(?:(?<=\bthe )|(?<!\w)')([2-9])0'?s\b", lambda match: plural(year(1900 + 10 * int(match[1])).split()[-1])),
    (r"(?<![\w.,/:-])((?:19|20)\d\d)\s?[-–—]\s?((?:19|20)?\d\d)(?![\w/:%-])(?![.,]\d)", _year_range),
    (
        r"(?<=[a-z] \()(1[0-8]\d\d)(?=\))",
        lambda match: year(int(match[1])) if _NAME_BEFORE.search(match.string, 0, match.start()) else None,
    ),
    (
        _CENTURIES_AGO,
        lambda match: f"{match[1]}{year(int(match[2]))} to {year(int(match[3]))}" if match[2] < match[3] else None,
    ),
    (
        rf"(?<![\w/:$£€¥])(?<!\d[.,])((?:19|20)\d\d)(?![\w/:%°])(?!\s?[%°])(?![.,]\d){_COUNTED}",
        lambda match: year(int(match[1])),
    ),
    (
        rf"(?i)\b((?:in|since|year|circa|around|established|founded|built|born|dated)\s)(1[1-8]\d\d)(?![\w/:%])(?![.,]\d){_COUNTED}",
        lambda match: match[1] + year(int(match[2])),
    ),
)
"""Decades, ranges of years and four-digit numbers that read as years, in words."""
