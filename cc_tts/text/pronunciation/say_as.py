"""Readings that ``<say-as interpret-as="…" format="…">`` of SSML asks for: a part of a text read as digits, a date,
money and so on.

The names are those on which Amazon Polly, Google and Azure agree; SSML 1.1 (W3C) §3.1.9 leaves them open. English and
Chinese by the rules for these languages, ordinals of others by num2words; what has no rule in a language is read as any
text is.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from num2words import num2words

from cc_tts.text.characters import clean, digits_to_ascii
from cc_tts.text.en import dates, numbers
from cc_tts.text.en import speakable as en
from cc_tts.text.language import rule_set, subtags, writes_day_first
from cc_tts.text.zh import identifiers as zh_identifiers
from cc_tts.text.zh import speakable as zh
from cc_tts.text.zh.numbers import AS_QUANTITY
from cc_tts.text.zh.signs import ADDRESS_SIGNS

KINDS: Final = dict.fromkeys(("characters", "spell-out", "spellout", "letters", "verbatim"), "characters") | {
    "digits": "digits", "number_digit": "digits", "telephone": "telephone", "cardinal": "cardinal",
    "number": "cardinal", "ordinal": "ordinal", "fraction": "fraction", "unit": "unit", "currency": "currency",
    "date": "date", "time": "time", "duration": "time", "address": "address",
}  # fmt: skip
"""Every ``interpret-as`` and the reading it stands for; ``expletive`` and ``bleep`` are a tone, not a reading."""

_DIGITS_OF_GROUP: Final = 3
_MAX_GROUP_DIGITS: Final = 4  # unmeasured
_MAX_ORDINAL_DIGITS: Final = 9  # unmeasured
_SIGN_NAMES: Final = {
    "en": en.ADDRESS_SIGNS | {
        "$": "dollar", "!": "exclamation mark", ",": "comma", ";": "semicolon", "'": "apostrophe",
        '"': "quote", "(": "open bracket", ")": "close bracket", "\\": "backslash", "|": "bar", "<": "less than",
        ">": "greater than",
    },
    "zh": ADDRESS_SIGNS,
}  # fmt: skip
_MIXED_NUMBER: Final = re.compile(r"(?:(?P<whole>\d{1,9})[ +]{1,3})?(?P<top>\d{1,6})\s?/\s?(?P<bottom>\d{1,6})")
_WHOLE: Final = re.compile(r"(?:第|№|#)?\s?(\d[\d,. ]*)\s?(?:st|nd|rd|th|[ºª°]|[eè]r?e?)?", re.IGNORECASE)
_DECIMAL: Final = re.compile(r"(-?)((?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,12})?)")
_MINUTES: Final = re.compile(r"(\d{1,3})['′](?:\s?(\d{1,2})[\"″])?")
_MILITARY: Final = re.compile(r"([01]\d|2[0-4])([0-5]\d)")
_FULL_YEAR_DIGITS: Final = 4
_PARTS_OF_DATE: Final = {"y": "年", "m": "月", "d": "日"}
_DIGITS_OF_RULES: Final[dict[str, Callable[[str], str]]] = {
    "en": numbers.digits, "zh": lambda run: run.translate(AS_QUANTITY), "none": " ".join,
}  # fmt: skip
_KEY_NAMES: Final = {
    "en": {"*": "star", "#": "pound", "+": "plus", "−": "minus", "‧": "point"},
    "zh": {"*": "星号", "#": "井号", "+": "加", "−": "负", "‧": "点"},
    "none": {"−": "-", "‧": "."},
}  # fmt: skip
_MINUS_SIGN, _POINT_SIGN = "−", "‧"
"""Stand for a hyphen and a full stop that part no groups; what was cleaned holds neither."""
_NEGATIVE: Final = re.compile(r"^-(?=[\d.])")
_POINT: Final = re.compile(r"(?<=\d)\.(?=\d)")
_PIECES: Final = re.compile(r"\d+|[^\W\d_]+|[\s().,;-]+|[^\w\s]|_")
_BETWEEN_GROUPS: Final = re.compile(r"[\s().,;-]+")
_PAUSE, _SOFT_PAUSE = ", ", ",\x00"
"""The second gives way beside a sign."""
_EXTENSION: Final = re.compile(r"[;,]?\s*\b(?:ext(?:ension|n)?\.?|x)[\s=:]*(?=\d{1,6}$)", re.IGNORECASE)
_BEFORE_EXTENSION: Final = frozenset({"extension", "转", "轉", "分机", "分機"})
_SUM: Final = re.compile(
    r"(?P<minus>-?)\s?(?:(?P<low>\d[\d,]{0,20}(?:\.\d{1,12})?)\s?(?:[-–~]|to|到|至)\s?)?"
    r"(?P<amount>(?=\.?\d)(?:\d[\d,]{0,20})?(?:\.\d{1,12})?)\.?"
)
_SPEAKABLE: Final = {"en": en.speakable, "zh": zh.speakable}
_MINUS_AND_TO: Final = {"en": ("minus ", " to "), "zh": ("负", "到")}
_ANY: Final = "any"
"""The mark that stands for any language."""


def say_as(written: str, how: str, language: str) -> str:
    """The words for ``written``; ``how`` is a reading of :data:`KINDS` and, behind a colon, the format.

    Empty where there is no rule for it, and it is to be read as any text. Never raises, whatever the text.
    """
    kind, _, form = how.partition(":")
    text = " ".join(digits_to_ascii(clean(written)).split())
    rules = rule_set(language)
    read = _READINGS.get((kind, rules)) or _READINGS.get((kind, _ANY))
    return read(text, form, language) if read else ""


def _characters(text: str, _form: str, language: str) -> str:
    rules = rule_set(language)
    names = _SIGN_NAMES.get(rules, {})
    words = (" ".join(filter(None, (_character(each, rules, names) for each in part))) for part in text.split(" "))
    return ", ".join(filter(None, words))


def _character(character: str, rules: str, names: dict[str, str]) -> str:
    if character.isascii() and character.isdigit():
        return _DIGITS_OF_RULES[rules](character)
    return character.upper() if character.isalnum() else names.get(character) or _name(character, rules)


def _name(character: str, rules: str) -> str:
    """The name of a sign that the rules have no word for: nothing of what is spelled may be lost."""
    return unicodedata.name(character, "").lower() if rules == "en" else character


def _digits(text: str, _form: str, language: str) -> str:
    """Digit by digit, in the groups in which they are written; a run without groups by threes."""
    if text.isdecimal() and len(text) > _MAX_GROUP_DIGITS:
        text = " ".join(re.findall(rf"\d{{1,{_DIGITS_OF_GROUP}}}", text))
    if text.count(".") == 1:
        text = _POINT.sub(_POINT_SIGN, text)
    text = _NEGATIVE.sub(_MINUS_SIGN, text)
    return _joined(text, rule_set(language), _DIGITS_OF_RULES[rule_set(language)], _spaced_letters)


def _telephone(text: str, _form: str, language: str) -> str:
    """In its groups; a word in it (``1-800-FLOWERS``) as a word, ``x12`` as an extension, ``*`` and ``#`` as keys."""
    match rule_set(language):
        case "en":
            return _joined(_EXTENSION.sub(" extension ", text), "en", numbers.digit_groups, numbers.letters)
        case "zh":
            return _joined(text, "zh", zh_identifiers.say_digits, str).replace(", ", "，")
    return _digits(text, "", language)


def _spaced_letters(run: str) -> str:
    return " ".join(run.upper()) if run.isascii() else run


def _joined(text: str, rules: str, say_digits: Callable[[str], str], say_letters: Callable[[str], str]) -> str:
    """Every digit, letter and sign of ``text``: a pause between groups and around letters, none beside a sign."""
    names, close = _SIGN_NAMES.get(rules, {}) | _KEY_NAMES[rules], "" if rules == "zh" else " "
    said, joint, leads = "", "", False
    for piece in _PIECES.findall(text):
        if _BETWEEN_GROUPS.fullmatch(piece):
            joint = joint if leads else _PAUSE
            continue
        if is_sign := not piece.isalnum():
            words = names.get(piece) or _name(piece, rules)
        else:
            words = say_digits(piece) if piece.isdecimal() else say_letters(piece)
        said += f"{close if is_sign and joint != _PAUSE else joint}{words}" if said else words
        leads = piece in _BEFORE_EXTENSION
        joint = close if is_sign or leads else _SOFT_PAUSE
    return said.replace(_SOFT_PAUSE, _PAUSE)


def _cardinal(text: str, _form: str, _language: str) -> str:
    match = _DECIMAL.fullmatch(text)
    return ("minus " if match[1] else "") + numbers.amount(match[2]) if match else ""


def _currency(text: str, form: str, language: str) -> str:
    """``42.5`` or ``-5`` in the currency of the format, ``5-10`` too; a text that names its own is read as any text."""
    code, speakable = form.upper(), _SPEAKABLE[rule_set(language)]
    match = _SUM.fullmatch(text) if re.fullmatch("[A-Z]{3}", code) else None
    if match is None:
        return ""
    minus, to = _MINUS_AND_TO[rule_set(language)]
    low = f"{speakable(match['low'])}{to}" if match["low"] else ""
    amount = f"0{match['amount']}" if match["amount"].startswith(".") else match["amount"]
    return f"{minus if match['minus'] else ''}{low}{speakable(f'{code} {amount}')}"


def _ordinal(text: str, _form: str, language: str) -> str:
    found = _WHOLE.fullmatch(text)
    run = re.sub(r"\D", "", found[1]) if found else ""
    if not run or len(run) > _MAX_ORDINAL_DIGITS:
        return ""
    match rule_set(language):
        case "en":
            return numbers.ordinal(int(run))
        case "zh":
            return "第" + zh.speakable(run.lstrip("0") or "0")
    try:
        return str(num2words(int(run), lang=subtags(language)[0], to="ordinal"))
    except Exception:  # noqa: BLE001 - NotImplementedError and others: num2words lacks many languages
        return ""


def _fraction(text: str, _form: str, _language: str) -> str:
    match = _MIXED_NUMBER.fullmatch(text)
    if match is None:
        return ""
    top, bottom = int(match["top"]), int(match["bottom"])
    return numbers.mixed_number(int(match["whole"]), top, bottom) if match["whole"] else numbers.fraction(top, bottom)


def _date(text: str, form: str, language: str) -> str:
    """Read a date by the letters of its format, ``mdy`` or ``yyyymmdd``; without one as any date is read. A year may be
    missing: ``3/4`` with ``mdy``, or without a format, in the order of the language.
    """
    order = "".join(dict.fromkeys(re.sub("[^dmy]", "", form.lower())))
    found = [] if any(map(str.isalpha, text)) else _numbers_of(text, order)
    if len(found) == 2 and len(order or "dmy") > 2:  # noqa: PLR2004 - a day and a month
        order = (order or ("dm" if writes_day_first(language) else "md")).replace("y", "")
    if not order:
        return ""
    if len(found) != len(order) or max(map(len, found)) > _FULL_YEAR_DIGITS:
        return ""
    parts = {letter: _part_of_date(letter, run) for letter, run in zip(order, found, strict=True)}
    said = dates.spoken_date(parts.get("y"), parts.get("m"), parts.get("d"), day_first=writes_day_first(language))
    if said and rule_set(language) == "zh":
        return zh.speakable("".join(f"{parts[each]}{_PARTS_OF_DATE[each]}" for each in sorted(parts, reverse=True)))
    return said or ""


def _part_of_date(letter: str, run: str) -> int:
    is_short_year = letter == "y" and len(run) <= 2  # noqa: PLR2004 - a year of two digits
    return dates.full_year(run.zfill(2)) if is_short_year else int(run)


def _numbers_of(text: str, order: str) -> list[str]:
    """The numbers of a date, also where they are written as one: ``20261120``."""
    found = re.findall(r"\d+", text)
    if len(found) != 1 or len(order) == 1:
        return found
    year_digits = _FULL_YEAR_DIGITS if len(found[0]) in (6, 8) else 2
    pattern = "".join(rf"(\d{{{year_digits if letter == 'y' else 2}}})" for letter in order)
    parts = re.fullmatch(pattern, found[0])
    return list(parts.groups()) if parts else found


def _time(text: str, form: str, _language: str) -> str:
    if (match := _MINUTES.fullmatch(text)) is not None:
        return en.speakable(f"{match[1]}m {match[2]}s" if match[2] else f"{match[1]} min")
    if form.startswith("hms") and (match := _MILITARY.fullmatch(text)) is not None:
        return en.speakable(f"{match[1]}:{match[2]}")
    return ""


_READINGS: Final[dict[tuple[str, str], Callable[[str, str, str], str]]] = {
    ("characters", _ANY): _characters, ("digits", _ANY): _digits, ("telephone", _ANY): _telephone,
    ("cardinal", "en"): _cardinal, ("ordinal", _ANY): _ordinal, ("fraction", "en"): _fraction,
    ("currency", "en"): _currency, ("currency", "zh"): _currency, ("date", "en"): _date, ("date", "zh"): _date,
    ("time", "en"): _time,
}  # fmt: skip
"""The functions by reading and rules, each of which takes the text, its format and its language."""
