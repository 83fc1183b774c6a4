"""Numbers that name something and count nothing are said digit by digit: telephones, cards, accounts, codes, ids."""

import re

from cc_tts.text.en.numbers import DIGIT_BY_DIGIT_FROM, digit_groups, digits, grouped_digits, integer, two_digits, year
from cc_tts.text.en.postal_addresses import house_number, spelled
from cc_tts.text.en.units import UNIT_SYMBOLS
from cc_tts.text.substitution import Say, in_order

_EXTENSION = r"(?:,?\s?(?:ext\.?|extension|x)\s?(?P<extension>\d{1,6}))?(?!\w)"
_NORTH_AMERICAN = (
    rf"(?i)(?<![\w.-])(?P<number>(?:1[ .-])?(?:\(\d{{3}}\)[ -]?|\d{{3}}[ ./-])\d{{3}}[ .-]\d{{4}}){_EXTENSION}(?!-\d)"
)
_NOT_COUNTED = r"(?![\w-]|[.,:/]\d)"
_CARRIER = r"(?:[Ff]lights?|Train|train(?=\s(?:number|no|#))|Amtrak|Acela)"
_FLIGHT = (
    rf"\b(?P<flight>{_CARRIER}\s(?:number\s|no\.?\s|#)?)(?:(?P<airline>[A-Z]{{2}}|[A-Z]\d|\d[A-Z])[ -]?)?"
    r"(?P<number>\d{1,4})(?![\w-]|[.,:/]\d|\s?%)"
)
_ROOM = r"(?i)\b((?:room|rm\.?|suite|ste\.|apartment|apt\.?|gate|unit)\s)(\d{1,2})(\d\d)(?![\w-]|[.,:/]\d|\s?[%°])"
_ROOMS = {"Acct": "account", "Apt": "apartment", "Ste": "suite", "Rm": "room", "Bldg": "building"}
"""Without a stop; those with one are in ``abbreviations``."""
_LAST_DIGITS = (
    r"(?i)\b(last (?:4|four|5|five|6|six)(?: digits)?(?: (?:of|on|for) [\w' ]{1,30}?)?(?: (?:are|is))?:? )(\d{4,6})"
    + _NOT_COUNTED
)
_LONG_RUN = (
    rf"(?<![\w.,$£€¥₹-])\d{{{DIGIT_BY_DIGIT_FROM},}}+(?![\w%°$£€¥]|[.,]\d|\s(?:million|billion|dollars|euros|pounds)\b)"
)
_MASK = "[*xX•·#…]"
_MASKED = (
    rf"(?i)(?<!\w)(?P<before>end(?:ing|s)(?:\s(?:in|with))?:?\s)?(?:{_MASK}{{2,19}}"
    rf"(?:[ -]?{_MASK}{{2,19}}){{0,4}}[ -]?(?P<digits>\d{{2,6}})|(?:\*|\.{{3}}\s?|(?<=ending )x|(?<=ending in )x)"
    r"(?P<tail>\d{4,6}))(?!\w)"
)

_NAMED_STRONG = "passcode|password|code|pin|otp|zip|postcode|confirmation|reference|ref|extension|routing|tracking|iban"
_NAMED_WEAK = (
    "accounts?|acct|cards?|orders?|tickets?|cases?|claims?|policy|invoice|booking|reservation|flight|member|membership|"
    "customer|employee|serial|p\\.?\\s?o\\.?\\s?box|po|part|lot|id|ids|identification|phone|telephone|fax|ssn|badge|agent"
    "|transaction|itinerary|vin|sku|item|batch|meter"
)
_CONNECTORS = (
    r"(?P<connector>(?:[ ]?(?:number|numbers|no\.|num|code|id|pin|\#))?"
    r"(?:[ ]?(?:is|was|:|=|ending in|ending with|ends in|ending))?)[ ]?"
)
_VALUE = r"(?P<value>\d+(?:-\d+){1,5}|\d{2,6}(?:[ ]\d{2,6}){1,6}|\d+)(?![\w-])(?![.,:/]\d)(?![ ]?%)"
_STRONG = re.compile(_NAMED_STRONG, re.IGNORECASE)
_MIN_WEAK_DIGITS = 4
_NAME_BEFORE = re.compile(rf"\b(?:{_NAMED_STRONG}|{_NAMED_WEAK}|model)\.?\s$", re.IGNORECASE)
_NAMED_BEFORE = re.compile(rf"\b(?:{_NAMED_STRONG}|{_NAMED_WEAK})\b{_CONNECTORS}$", re.IGNORECASE)
_STRONG_BEFORE = re.compile(rf"\b(?:{_NAMED_STRONG}),\s$", re.IGNORECASE)

_NAMED_MIXED = (
    rf"\b(?P<name>{_NAMED_STRONG})\b\.?{_CONNECTORS}(?P<value>(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{{4,20}})(?![\w-]|[.@]\w)"
)
_RUNS = re.compile(r"[A-Za-z]+|\d+")
_NUMBER_WITH_SUFFIX = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|k|m|b|bn|x)", re.IGNORECASE)
_DIALLED = re.compile(r"\b(?:emergenc|call|dial|911|nine one one)", re.IGNORECASE)
_KEYS = {"*": "star", "#": "pound"}
_MIN_ID_DIGITS = 3
_MIN_ID_RUNS = 3
_MIN_ID_CHARACTERS = 5
_MIN_IBAN_DIGITS = 10
_MIN_WORD_LETTERS = 4


def _after(before: re.Pattern[str], say: Say) -> Say:
    """Only where ``before`` stands in front of the match."""
    return lambda match: say(match) if before.search(match.string, max(0, match.start() - 40), match.start()) else None


def _each_digit(match: re.Match[str]) -> str:
    return digits(match.group())


def _digits_of(match: re.Match[str]) -> str:
    return match[1] + digits(match[2])


def _groups(match: re.Match[str]) -> str:
    return digit_groups(match.group())


def _telephone(match: re.Match[str]) -> str:
    number = match["number"]
    words = digit_groups(number)
    if number.startswith("+"):
        unseparated = number[1:].isdigit()
        is_north_american = unseparated and number.startswith("+1")
        words = f"plus {grouped_digits(number[1:]) if is_north_american else words}"
    if match["extension"]:
        words = f"{words}, extension {digits(match['extension'])}"
    return words


def _named(match: re.Match[str]) -> str | None:
    value = match["value"]
    named_outright = _STRONG.fullmatch(match["name"]) or match["connector"].strip()
    if not named_outright and len(value) < _MIN_WEAK_DIGITS:
        return None
    before = match.group().removesuffix(value)
    return f"{before.replace('#', ' number ').replace('no.', 'number')}{digit_groups(value)}"


def _named_mixed(match: re.Match[str]) -> str | None:
    """A code in small letters, spelled: ``your otp is ab9453``; "code 4th" is none."""
    value = match["value"]
    return None if _NUMBER_WITH_SUFFIX.fullmatch(value) else match.group().removesuffix(value) + spelled(value)


def _masked(match: re.Match[str]) -> str:
    return (match["before"] or "ending in ") + digits(match["digits"] or match["tail"])


def _iban(match: re.Match[str]) -> str | None:
    """In groups of four, as it is printed; a word of capitals and digits is none without enough digits."""
    written = re.sub(r"\s", "", match.group())
    if sum(character.isdigit() for character in written) < _MIN_IBAN_DIGITS:
        return None
    return spelled(" ".join(written[start : start + 4] for start in range(0, len(written), 4)))


def _dialled(match: re.Match[str]) -> str:
    """``*#06#`` as "star pound zero six pound"."""
    return " ".join(_KEYS.get(key) or digits(key) for key in re.findall(r"[*#]|\d+", match.group()))


def _flight(match: re.Match[str]) -> str:
    """``Flight UA 1549`` as "Flight U A fifteen forty-nine"."""
    number = match["number"]
    said = f"{spelled(match['airline'])} " if match["airline"] else ""
    paired = len(number) > 2 and not number.endswith("00") and number[0] != "0"  # noqa: PLR2004
    return f"{match['flight']}{said}{house_number(number) if paired else integer(number)}"


def _room(match: re.Match[str]) -> str:
    """Room 204 as "two oh four", suite 1200 as "twelve hundred"."""
    rest = "hundred" if match[3] == "00" else two_digits(int(match[3]))
    return f"{match[1]}{integer(match[2])} {rest}"


def _mixed_id(match: re.Match[str]) -> str | None:
    token = match.group()
    if not _is_id(token):
        return None
    return ", ".join(" ".join(_spelled(run) for run in _RUNS.findall(part)) for part in token.split("-"))


def _is_id(token: str) -> bool:
    """Letters and digits mixed as in AB12CD34, ORD-2026-0001 or A320B: not 5GB, 1st, COVID-19, iPhone15 or 24-hour."""
    runs, parts = _RUNS.findall(token), token.split("-")
    num_digits = sum(character.isdigit() for character in token)
    if len(runs) == 1 or not 0 < num_digits < len(token.replace("-", "")):
        return False
    if all(_is_suffixed(part) or part.isdigit() for part in parts) or not any(map(_has_code_letters, parts)):
        return False
    if any(part.islower() for part in parts):
        return False
    return num_digits >= _MIN_ID_DIGITS or (len(runs) >= _MIN_ID_RUNS and len(token) >= _MIN_ID_CHARACTERS)


def _has_code_letters(part: str) -> bool:
    """Whether letters of it are capitals or stand beside digits."""
    return any(run.isalpha() and (run.isupper() or part != run) for run in _RUNS.findall(part))


def _is_suffixed(part: str) -> bool:
    if _NUMBER_WITH_SUFFIX.fullmatch(part):
        return True
    runs = _RUNS.findall(part)
    return len(runs) == 2 and runs[0].isdigit() and runs[1] in UNIT_SYMBOLS  # noqa: PLR2004 - a number and its unit


def _spelled(run: str) -> str:
    if run.isdigit():
        return digits(run)
    is_word = len(run) >= _MIN_WORD_LETTERS and not set("aeiouyAEIOUY").isdisjoint(run)
    return run if is_word or (run.islower() and len(run) > 1) else " ".join(run.upper())


say_identifiers = in_order(
    (r"\b[Nn]o\.\s(?=#?\d+-?[A-Z])", "number "),
    (  # Member ID: XJH 882 910
        r"(?<= )([A-Z]{1,5}) (\d{2,6}(?: \d{2,6}){1,5})(?![\w-])",
        _after(_NAMED_BEFORE, lambda match: f"{spelled(match[1])}, {digit_groups(match[2])}"),
    ),
    (r"\b[Nn]o\.\s?(?=#?[A-Z\d])", _after(_NAME_BEFORE, lambda _: "number ")),
    (r"(?<=, )\d{4,8}(?=[,.;]|$)", _after(_STRONG_BEFORE, _each_digit)),
    (rf"\b({'|'.join(_ROOMS)})\s(?=#?\d|[A-Z]\b)", lambda match: f"{_ROOMS[match[1]]} "),
    (r"(?<![\w*#])(?:[*#]{1,2}\d{1,12}){1,4}#(?![\w*#])", _dialled),
    (_MASKED, _masked),
    (r"(?<![\w-])[A-Z]{2}\d{2}(?:\s?[A-Z0-9]{4}){3,7}(?:\s?[A-Z0-9]{1,3})?(?![\w-])", _iban),
    (r"\b(ISBN(?:-1[03])?:?\s)([\dX-]{10,17})(?!\w)", lambda match: match[1] + spelled(match[2])),
    (rf"(?i)(?<![\w+])(?P<number>\+(?:[ .()-]{{0,2}}\d){{7,15}}){_EXTENSION}", _telephone),
    (rf"(?<![\w.-])(?P<number>0(?:11|0)[ -]\d{{1,3}}(?:[ -]\d{{2,5}}){{2,4}}){_EXTENSION}(?!-\d)", _telephone),
    (_NORTH_AMERICAN, _telephone),
    (r"(?<![\w.-])(?:[6-9]\d{4} \d{5}|1[38]00[ -]\d{3}[ -]\d{3})(?![\w-])", _groups),  # of India, of Australia
    (r"(?<=\b[Cc]all )(13 \d\d \d\d)(?![\w-])", _groups),
    (rf"(?<![\w.-])(?P<number>0\d{{2,4}}[ -]\d{{3,4}}[ -]?\d{{3,4}}){_EXTENSION}(?!-\d)", _telephone),
    (rf"(?i)(?<![\w.-])(?P<number>\d{{3}}-\d{{4}}){_EXTENSION}(?!-\d)", _telephone),
    (  # 1-800-FLOWERS
        r"(?<![\w-])1-(\d{3})-((?:[A-Z]{2,10}-)?[A-Z]{4,10})\b",
        lambda match: f"one, {digits(match[1])}, {match[2].replace('-', ' ')}",
    ),
    (r"(?<![\w-])\d(?:-\d){2,19}(?![\w-])", _each_digit),
    (_FLIGHT, _flight),
    (r"\b(Q[1-4])\s?'(\d\d)\b", r"\1 20\2"),
    (r"\bFY\s?'?(20\d\d|\d\d)(?!\w)", lambda match: f"F Y {year(2000 + int(match[1]) % 2000)}"),
    (r"(?<![\w-])(?:\d{4}(?:[ -]\d{4}){2,4}|\d{4}[ -]\d{6}[ -]\d{5})(?![\w-])", _groups),  # a card
    (r"(?<![\w-])(?:\d{3}-\d{2}-\d{4}|\d{5}-\d{4})(?![\w-])", _groups),  # of social security, or ZIP+4
    (r"(?<![\w.-])(?!(?:19|20)\d\d-\d{1,2}-\d{1,2}(?![\w-]))\d{3,4}(?:-\d{1,6}){2,5}(?![\w-])", _groups),
    (rf"(?i)\b(?P<name>{_NAMED_STRONG}|{_NAMED_WEAK})\b\.?{_CONNECTORS}{_VALUE}", _named),
    (_NAMED_MIXED, _named_mixed),
    (  # 1040-EZ, Form 8889
        r"(?<![\w.,$-])(10(?:40|98|99))(?:-(?=[A-Z]{1,4}\b)|(?=s?\s[Ff]orm))|(?<=\b[Ff]orm )(\d{4})(?![\w.,])",
        lambda match: f"{year(int(match[1] or match[2]))} ",
    ),
    (r"(?<!\w)(\d{3})\(([a-z])\)", lambda match: f"{house_number(match[1])} {match[2].upper()}"),  # 401(k)
    (_LAST_DIGITS, _digits_of),
    (rf"(?i)\b(end(?:ing|s)(?: (?:in|with))? )(\d{{2,10}}){_NOT_COUNTED}(?!\s?%|\s[A-Z])", _digits_of),
    (rf"(?i)\b((?:call|dial|text|dialing|calling)\s)(\d{{3,6}}){_NOT_COUNTED}(?!\s?%)", _digits_of),
    (r"(?<=\bor )[2-8]11(?=[.,;!?]|\s(?:for|to)\b|$)", _each_digit),
    (r"(?<=, )[2-8]11(?=[.,;!?]|$)", lambda match: _each_digit(match) if _DIALLED.search(match.string) else None),
    (rf"(?i)\b(text \w{{1,20}} to )(\d{{4,6}}){_NOT_COUNTED}", _digits_of),
    (r"(?i)\bext(?:\.|\b)\s?(\d{1,6})(?!\w)", lambda match: f"extension {digits(match[1])}"),
    (r"(?<![\w$£€.,/#-])(911|988)(?![\w%/-]|[.,]\d)", _each_digit),
    (r"(?<![\w*])\*(\d{1,3})(#?)(?![\w*])", lambda match: f"star {digits(match[1])}{' pound' if match[2] else ''}"),
    (r"(?<![\w#])#(\d{1,3})#(?!\w)", lambda match: f"pound {digits(match[1])} pound"),
    (r"(?<!\w)#\s?(?=\d{4,}(?!\w|#))", "number "),
    (_LONG_RUN, lambda match: grouped_digits(match.group())),
    (_ROOM, _room),
    (r"#(?=[A-Z]{1,4}-?\d)|(?<=\w )#\s(?=[A-Z]*\d|[A-Z]\b)", "number "),
    (r"(?<![\w-])(?=[A-Za-z-]*\d)(?!\d{4}-\d\d-\d\dT\d\d:)[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*+(?![\w-])", _mixed_id),
)
"""Telephone, card, account and reference numbers and ids of letters and digits in words."""
