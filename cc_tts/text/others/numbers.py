"""Numbers of other languages in words, for engines that read no digits (CosyVoice2)."""

import re
from functools import lru_cache
from typing import Final

from num2words import num2words

from cc_tts.text.characters import digits_to_ascii
from cc_tts.text.language import subtags
from cc_tts.text.others.signs import decimal_mark

_DIGIT_BY_DIGIT_FROM: Final = 7
_COMMA_DECIMALS: Final = r"(?P<whole>\d{1,3}(?:[.\u00a0\u202f ]\d{3})+|\d+)(?:,(?P<part>\d{1,12}))?"
_POINT_DECIMALS: Final = r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?:\.(?P<part>\d{1,12}))?"


def say_numbers(text: str, language: str) -> str:
    """``text`` with its numbers in words; as it is where num2words does not know the language."""
    code = subtags(language)[0]
    text = digits_to_ascii(text)
    if not any(map(str.isdigit, text)) or _words(0, code) is None:
        return text
    number = _POINT_DECIMALS if decimal_mark(code) == "." else _COMMA_DECIMALS
    text = re.sub(r"(?<=\d):(?=\d\d(?!\d))", " ", text)
    return " ".join(re.sub(number, lambda match: _apart(match, code), text).split())


def _apart(match: re.Match[str], code: str) -> str:
    """An amount with a space where the words would run into a letter."""
    before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
    left, right = (" " if each.isalpha() and each.isascii() else "" for each in (before, after))
    return f"{left}{_amount(match, code)}{right}"


def _amount(match: re.Match[str], code: str) -> str:
    whole, part = re.sub(r"\D", "", match["whole"]), match["part"]
    if not part:
        return _whole(match["whole"], code)
    said = num2words(float(f"{whole}.{part}"), lang=code) if len(whole) < _DIGIT_BY_DIGIT_FROM else ""
    return said or f"{_whole(match['whole'], code)} {_digits(part, code)}"


def _whole(written: str, code: str) -> str:
    digits = re.sub(r"\D", "", written)
    is_long = digits == written and len(digits) >= _DIGIT_BY_DIGIT_FROM
    if is_long or (len(digits) > 1 and digits[0] == "0"):
        return _digits(digits, code)
    return _words(int(digits), code) or _digits(digits, code)


def _digits(run: str, code: str) -> str:
    return " ".join(_words(int(digit), code) or digit for digit in run)


@lru_cache(maxsize=4096)
def _words(number: int, code: str) -> str | None:
    """A whole number; ``None`` where num2words has none for the language."""
    try:
        return str(num2words(number, lang=code))
    except Exception:  # noqa: BLE001 - NotImplementedError for an unknown language, OverflowError and others for a number
        return None
