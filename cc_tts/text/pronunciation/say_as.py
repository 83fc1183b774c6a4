"""What ``<say-as interpret-as="…" format="…">`` of SSML asks for: a part of a text read as digits, a date, money and so on.

The names are those on which Amazon Polly, Google and Azure agree; SSML 1.1 (W3C) §3.1.9 leaves them open. English and
Chinese by the rules for these languages, ordinals of others by num2words; what has no rule in a language is read as any
text is.
"""

import re
from typing import Final

from num2words import num2words

from cc_tts.text.characters import clean, digits_to_ascii
from cc_tts.text.en import dates, numbers
from cc_tts.text.en import speakable as en
from cc_tts.text.language import rule_set, subtags, writes_day_first
from cc_tts.text.zh import identifiers as zh_identifiers
from cc_tts.text.zh import speakable as zh
from cc_tts.text.zh.numbers import AS_QUANTITY

KINDS: Final = dict.fromkeys(("characters", "spell-out", "spellout", "letters", "verbatim"), "characters") | {
    "digits": "digits", "number_digit": "digits", "telephone": "telephone", "cardinal": "cardinal",
    "number": "cardinal", "ordinal": "ordinal", "fraction": "fraction", "unit": "unit", "currency": "currency",
    "date": "date", "time": "time", "duration": "time", "address": "address",
}  # fmt: skip
"""Every ``interpret-as`` and the reading it stands for; ``expletive`` and ``bleep`` are a tone, not a reading."""

_DIGITS_OF_GROUP: Final = 3
_MAX_GROUP_DIGITS: Final = 4
_MAX_ORDINAL_DIGITS: Final = 9
_SIGN_NAMES: Final = {
    "en": en.ADDRESS_SIGNS | {
        "$": "dollar", "!": "exclamation mark", ",": "comma", ";": "semicolon", "'": "apostrophe",
        '"': "quote", "(": "open bracket", ")": "close bracket", "\\": "backslash", "|": "bar", "<": "less than",
        ">": "greater than",
    },
    "zh": zh.ADDRESS_SIGNS,
}  # fmt: skip
_MIXED_NUMBER: Final = re.compile(r"(?:(?P<whole>\d{1,9})[ +]{1,3})?(?P<top>\d{1,6})\s?/\s?(?P<bottom>\d{1,6})")
_WHOLE: Final = re.compile(r"-?(\d[\d,. ]*)")
_DECIMAL: Final = re.compile(r"(-?)((?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,12})?)")
_MINUTES: Final = re.compile(r"(\d{1,3})['′](?:\s?(\d{1,2})[\"″])?")
_MILITARY: Final = re.compile(r"([01]\d|2[0-4])([0-5]\d)")
_FULL_YEAR_DIGITS: Final = 4


def say_as(written: str, how: str, language: str) -> str:
    """The words for ``written``; ``how`` is a reading of :data:`KINDS` and, behind a colon, the format.

    Empty where there is no rule for it, and it is to be read as any text. Never raises, whatever the text.
    """
    kind, _, form = how.partition(":")
    text = " ".join(digits_to_ascii(clean(written)).split())
    rules = rule_set(language)
    match kind:
        case "characters":
            return _characters(text, rules)
        case "digits" | "telephone":
            return _digits(text, rules, grouped_as_telephone=kind == "telephone")
        case "cardinal" if rules == "en":
            return _cardinal(text)
        case "ordinal":
            return _ordinal(text, language)
        case "fraction" if rules == "en":
            return _fraction(text)
        case "currency" if rules == "en" and re.fullmatch("[A-Z]{3}", form) and text[:1].isdigit():
            return en.speakable(f"{form} {text}")
        case "date" if rules in ("en", "zh"):
            return _date(text, form, language)
        case "time" if rules == "en":
            return _time(text, form)
    return ""


def _characters(text: str, rules: str) -> str:
    names = _SIGN_NAMES.get(rules, {})
    words = (" ".join(filter(None, (_character(each, rules, names) for each in part))) for part in text.split(" "))
    return ", ".join(filter(None, words))


def _character(character: str, rules: str, names: dict[str, str]) -> str:
    if character.isascii() and character.isdigit():
        if rules == "en":
            return numbers.digits(character)
        return character.translate(AS_QUANTITY) if rules == "zh" else character
    return character.upper() if character.isalnum() else names.get(character, "")


def _digits(text: str, rules: str, *, grouped_as_telephone: bool) -> str:
    """Digit by digit, in the groups in which they are written; a run without groups by threes, or as a telephone number."""
    plus = {"en": "plus ", "zh": "加"}.get(rules, "+ ") if text.startswith("+") else ""
    if grouped_as_telephone and rules == "zh":
        return plus + zh_identifiers.say_digits(text)
    if grouped_as_telephone and rules == "en":
        number, _, extension = re.sub(r"(?i)\s*(?:ext\.?|x)\s*(?=\d{1,6}$)", "\n", text).partition("\n")
        said = plus + numbers.digit_groups(number)
        return f"{said}, extension {numbers.digits(extension)}" if extension else said
    groups = re.findall(r"\d+", text)
    if len(groups) == 1 and len(groups[0]) > _MAX_GROUP_DIGITS:
        groups = re.findall(rf"\d{{1,{_DIGITS_OF_GROUP}}}", groups[0])
    if rules == "zh":
        return plus + ", ".join(groups).translate(AS_QUANTITY) if groups else ""
    return plus + ", ".join(map(numbers.digits if rules == "en" else " ".join, groups)) if groups else ""


def _cardinal(text: str) -> str:
    match = _DECIMAL.fullmatch(text)
    return ("minus " if match[1] else "") + numbers.amount(match[2]) if match else ""


def _ordinal(text: str, language: str) -> str:
    found = _WHOLE.match(text)
    run = re.sub(r"\D", "", found[1]) if found else ""
    if not run or len(run) > _MAX_ORDINAL_DIGITS:
        return ""
    match rule_set(language):
        case "en":
            return numbers.ordinal(int(run))
        case "zh":
            return "第" + zh.speakable(run)
    try:
        return str(num2words(int(run), lang=subtags(language)[0], to="ordinal"))
    except Exception:  # noqa: BLE001 - NotImplementedError and others: num2words lacks many languages
        return ""


def _fraction(text: str) -> str:
    match = _MIXED_NUMBER.fullmatch(text)
    if match is None:
        return ""
    top, bottom = int(match["top"]), int(match["bottom"])
    return numbers.mixed_number(int(match["whole"]), top, bottom) if match["whole"] else numbers.fraction(top, bottom)


def _date(text: str, form: str, language: str) -> str:
    """By the letters of the format, ``mdy`` or ``yyyymmdd``; without one as any date is read."""
    order = "".join(dict.fromkeys(character for character in form.lower() if character in "dmy"))
    if not order:
        return ""
    found = _numbers_of(text, order)
    if len(found) != len(order) or any(len(each) > _FULL_YEAR_DIGITS for each in found):
        return ""
    parts = dict(zip(order, map(int, found), strict=True))
    if "y" in parts and len(found[order.index("y")]) <= 2:  # noqa: PLR2004 - a year of two digits
        parts["y"] = dates.full_year(f"{parts['y']:02d}")
    said = dates.spoken_date(parts.get("y"), parts.get("m"), parts.get("d"), day_first=writes_day_first(language))
    if said and rule_set(language) == "zh":
        names = {"y": "年", "m": "月", "d": "日"}
        said = zh.speakable("".join(f"{parts[each]}{name}" for each, name in names.items() if each in parts))
    return said or ""


def _numbers_of(text: str, order: str) -> list[str]:
    """The numbers of a date, also where they are written as one: ``20261120``."""
    found = re.findall(r"\d+", text)
    if len(found) != 1 or len(order) == 1:
        return found
    widths = [(4 if len(found[0]) in (6, 8) else 2) if each == "y" else 2 for each in order]
    if sum(widths) != len(found[0]):
        return found
    rest = iter(found[0])
    return ["".join(next(rest) for _ in range(width)) for width in widths]


def _time(text: str, form: str) -> str:
    if (match := _MINUTES.fullmatch(text)) is not None:
        return en.speakable(f"{match[1]}m {match[2]}s" if match[2] else f"{match[1]} min")
    if form.startswith("hms") and (match := _MILITARY.fullmatch(text)) is not None:
        return en.speakable(f"{match[1]}:{match[2]}")
    return ""
