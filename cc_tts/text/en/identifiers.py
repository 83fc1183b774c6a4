"""Numbers that name something and count nothing are said digit by digit: telephones, cards, accounts, codes, ids.

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.en.numbers import (
    DIGIT_BY_DIGIT_FROM,
    digit_groups,
    digits,
    grouped_digits,
    integer,
    two_digits,
    year,
)
from cc_tts.text.en.postal_addresses import house_number, spelled
from cc_tts.text.en.units import UNIT_SYMBOLS
from cc_tts.text.substitution import substitute

_EXTENSION = r"(?:,?\s?(?:ext\.?|extension|x)\s?(?P<extension>\d{1,6}))?(?!\w)"
_INTERNATIONAL = re.compile(rf"(?<![\w+])(?P<number>\+(?:[ .()-]{{0,2}}\d){{7,15}}){_EXTENSION}", re.IGNORECASE)
_NORTH_AMERICAN = re.compile(
    rf"(?<![\w.-])(?P<number>(?:1[ .-])?(?:\(\d{{3}}\)[ -]?|\d{{3}}[ .-])\d{{3}}[ .-]\d{{4}}){_EXTENSION}(?!-\d)",
    re.IGNORECASE,
)
_TRUNK_PREFIXED = re.compile(rf"(?<![\w.-])(?P<number>0\d{{2,4}}[ -]\d{{3,4}}[ -]?\d{{3,4}}){_EXTENSION}(?!-\d)")
_LOCAL = re.compile(rf"(?<![\w.-])(?P<number>\d{{3}}-\d{{4}}){_EXTENSION}(?!-\d)", re.IGNORECASE)
_VANITY = re.compile(r"(?<![\w-])1-(\d{3})-((?:[A-Z]{2,10}-)?[A-Z]{4,10})\b")
_LAST_DIGITS = re.compile(
    r"\b(last (?:4|four|5|five|6|six)(?: digits)?(?: (?:of|on|for) [\w' ]{1,30}?)?(?: (?:are|is))?:? )(\d{4,6})"
    r"(?![\w-]|[.,:/]\d)",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"(?<![\w.,$-])(10(?:40|98|99))(?:-(?=[A-Z]{1,4}\b)|(?=s?\s[Ff]orm))|(?<=\b[Ff]orm )(\d{4})(?![\w.,])"
)
_RETIREMENT = re.compile(r"(?<!\w)(\d{3})\(([a-z])\)")
_SERVICE = re.compile(r"\b((?:call|dial|text|dialing|calling)\s)(\d{3,6})(?![\w-]|[.,:/]\d|\s?%)", re.IGNORECASE)
_SHORT_CODE = re.compile(r"\b(text \w{1,20} to )(\d{4,6})(?![\w-]|[.,:/]\d)", re.IGNORECASE)
_EMERGENCY = re.compile(r"(?<![\w$£€.,/#-])(911|988)(?![\w%/-]|[.,]\d)")
_SINGLE_DIGITS = re.compile(r"(?<![\w-])\d(?:-\d){2,19}(?![\w-])")
_STAR_CODE = re.compile(r"(?<![\w*])\*(\d{1,3})(?P<hash>#?)(?![\w*])|(?<![\w#])#(\d{1,3})#(?!\w)")
_ISBN = re.compile(r"\b(ISBN(?:-1[03])?:?\s)([\dX-]{10,17})(?!\w)")
_IBAN = re.compile(r"(?<![\w-])[A-Z]{2}\d{2}(?:\s?[A-Z0-9]{4}){3,7}(?:\s?[A-Z0-9]{1,3})?(?![\w-])")
_FLIGHT = re.compile(
    r"\b(?P<flight>[Ff]lights?\s(?:number\s|no\.?\s|#)?)(?:(?P<airline>[A-Z]{2}|[A-Z]\d|\d[A-Z])[ -]?)?"
    r"(?P<number>\d{1,4})(?![\w-]|[.,:/]\d|\s?%)"
)
_FISCAL_YEAR = re.compile(r"\bFY\s?'?(20\d\d|\d\d)(?!\w)")
_ROOM = re.compile(
    r"\b((?:room|rm\.?|suite|ste\.|apartment|apt\.?|gate|unit)\s)(\d{1,2})(\d\d)(?![\w-]|[.,:/]\d|\s?[%°])",
    re.IGNORECASE,
)
_NUMBER_SIGN = re.compile(r"#(?=[A-Z]{1,4}-?\d)")
_EXTENSION_ALONE = re.compile(r"\bext(?:\.|\b)\s?(\d{1,6})(?!\w)", re.IGNORECASE)

_CARD = re.compile(r"(?<![\w-])(?:\d{4}(?:[ -]\d{4}){2,4}|\d{4}[ -]\d{6}[ -]\d{5})(?![\w-])")
_SOCIAL_SECURITY = re.compile(r"(?<![\w-])(?:\d{3}-\d{2}-\d{4}|\d{5}-\d{4})(?![\w-])")
_LONG_RUN = re.compile(
    rf"(?<![\w.,$£€¥₹-])\d{{{DIGIT_BY_DIGIT_FROM},}}+(?![\w%°$£€¥]|[.,]\d|\s(?:million|billion|dollars|euros|pounds)\b)"
)
_MASK = "[*xX•·#…]"
_MASKED = re.compile(
    rf"(?<!\w)(?P<before>end(?:ing|s)(?:\s(?:in|with))?:?\s)?(?:{_MASK}{{2,19}}"
    rf"(?:[ -]?{_MASK}{{2,19}}){{0,4}}[ -]?(?P<digits>\d{{2,6}})|\*(?P<tail>\d{{4,6}}))(?!\w)",
    re.IGNORECASE,
)

_NAMED_STRONG = "passcode|password|code|pin|otp|zip|postcode|confirmation|reference|ref|extension|routing|tracking|iban"
_NAMED_WEAK = (
    "accounts?|acct|cards?|orders?|tickets?|cases?|claims?|policy|invoice|booking|reservation|flight|member|membership|"
    "customer|employee|serial|p\\.?\\s?o\\.?\\s?box|po|part|lot|id|ids|identification|phone|telephone|fax|ssn|badge|agent"
    "|transaction|itinerary|vin"
)
_CONNECTORS = (
    r"(?P<connector>(?:[ ]?(?:number|numbers|no\.|num|code|id|pin|\#))?"
    r"(?:[ ]?(?:is|was|:|=|ending in|ending with|ends in|ending))?)[ ]?"
)
_VALUE = r"(?P<value>\d+(?:-\d+){1,5}|\d{2,6}(?:[ ]\d{2,6}){1,6}|\d+)(?![\w-])(?![.,:/]\d)(?![ ]?%)"
_NAMED = re.compile(rf"\b(?P<name>{_NAMED_STRONG}|{_NAMED_WEAK})\b\.?{_CONNECTORS}{_VALUE}", re.IGNORECASE)
_STRONG = re.compile(_NAMED_STRONG, re.IGNORECASE)
_ENDING = re.compile(r"\b(end(?:ing|s)(?: (?:in|with))? )(\d{2,10})(?![\w-]|[.,:/]\d|\s?%)", re.IGNORECASE)
_MIN_WEAK_DIGITS = 4

_CHAIN = re.compile(r"(?<![\w.-])\d{3,4}(?:-\d{1,6}){2,5}(?![\w-])")
_DATE_WITH_HYPHENS = re.compile(r"(?:19|20)\d\d-\d{1,2}-\d{1,2}")
_NAMED_MIXED = re.compile(
    rf"\b(?P<name>{_NAMED_STRONG})\b\.?{_CONNECTORS}(?P<value>(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{{4,20}})(?![\w-]|[.@]\w)"
)
_TOKEN = re.compile(r"(?<![\w-])(?!\d{4}-\d\d-\d\dT\d\d:)[A-Za-z0-9]++(?:-[A-Za-z0-9]++)*+(?![\w-])")
_RUNS = re.compile(r"[A-Za-z]+|\d+")
_NUMBER_WITH_SUFFIX = re.compile(r"\d+(?:st|nd|rd|th|s|am|pm|k|m|b|bn|x)", re.IGNORECASE)
_MIN_ID_DIGITS = 3
_MIN_ID_RUNS = 3
_MIN_ID_CHARACTERS = 5
_MIN_IBAN_DIGITS = 10
_MIN_WORD_LETTERS = 4


def say_identifiers(text: str) -> str:
    """Telephone, card, account and reference numbers and ids of letters and digits in words."""
    text = substitute(_MASKED, _masked, text)
    text = substitute(_IBAN, _iban, text)
    text = substitute(_ISBN, lambda match: match[1] + spelled(match[2]), text)
    for pattern in (_INTERNATIONAL, _NORTH_AMERICAN, _TRUNK_PREFIXED, _LOCAL):
        text = substitute(pattern, _telephone, text)
    text = substitute(_VANITY, lambda match: f"one, {digits(match[1])}, {match[2].replace('-', ' ')}", text)
    text = substitute(_SINGLE_DIGITS, lambda match: digits(match.group()), text)
    text = substitute(_FLIGHT, _flight, text)
    text = substitute(_FISCAL_YEAR, _fiscal_year, text)
    for pattern in (_CARD, _SOCIAL_SECURITY):
        text = substitute(pattern, lambda match: digit_groups(match.group()), text)
    text = substitute(_CHAIN, _chain, text)
    text = substitute(_NAMED, _named, text)
    text = substitute(_NAMED_MIXED, _named_mixed, text)
    text = substitute(_FORM, lambda match: f"{year(int(match[1] or match[2]))} ", text)
    text = substitute(_RETIREMENT, lambda match: f"{house_number(match[1])} {match[2].upper()}", text)
    for pattern in (_LAST_DIGITS, _ENDING, _SERVICE, _SHORT_CODE):
        text = substitute(pattern, lambda match: match[1] + digits(match[2]), text)
    text = substitute(_EXTENSION_ALONE, lambda match: f"extension {digits(match[1])}", text)
    text = substitute(_EMERGENCY, lambda match: digits(match.group()), text)
    text = substitute(_STAR_CODE, _star_code, text)
    text = substitute(_LONG_RUN, lambda match: grouped_digits(match.group()), text)
    text = substitute(_ROOM, _room, text)
    return substitute(_TOKEN, _mixed_id, _NUMBER_SIGN.sub("number ", text))


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
    before = match.group()[: match.start("value") - match.start()]
    return f"{before.replace('#', ' number ').replace('no.', 'number')}{digit_groups(value)}"


def _chain(match: re.Match[str]) -> str | None:
    """Three groups of digits and more name something: ``123-456-7890-11``."""
    return None if _DATE_WITH_HYPHENS.fullmatch(match.group()) else digit_groups(match.group())


def _named_mixed(match: re.Match[str]) -> str | None:
    """A code in small letters, spelled: ``your otp is ab9453``; "code 4th" is none."""
    value = match["value"]
    if _NUMBER_WITH_SUFFIX.fullmatch(value):
        return None
    before = match.group()[: match.start("value") - match.start()]
    return before + spelled(value)


def _masked(match: re.Match[str]) -> str:
    said = digits(match["digits"] or match["tail"])
    return f"{match['before'] or 'ending in '}{said}"


def _iban(match: re.Match[str]) -> str | None:
    """In groups of four, as it is printed; a word of capitals and digits is none without enough digits."""
    written = re.sub(r"\s", "", match.group())
    if sum(character.isdigit() for character in written) < _MIN_IBAN_DIGITS:
        return None
    return spelled(" ".join(written[start : start + 4] for start in range(0, len(written), 4)))


def _star_code(match: re.Match[str]) -> str:
    if match[1]:
        return f"star {digits(match[1])}{' pound' if match['hash'] else ''}"
    return f"pound {digits(match[3])} pound"


def _flight(match: re.Match[str]) -> str:
    """``Flight UA 1549`` as "Flight U A fifteen forty-nine"."""
    number = match["number"]
    said = f"{spelled(match['airline'])} " if match["airline"] else ""
    paired = len(number) > 2 and not number.endswith("00") and number[0] != "0"  # noqa: PLR2004
    return f"{match['flight']}{said}{house_number(number) if paired else integer(number)}"


def _fiscal_year(match: re.Match[str]) -> str:
    return f"F Y {year(int(match[1]) if len(match[1]) > 2 else 2000 + int(match[1]))}"  # noqa: PLR2004


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
