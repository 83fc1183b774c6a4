"""Chinese words for digits, and for the numbers, percentages and times of day that need no context to be read."""

import re

AS_QUANTITY = str.maketrans("0123456789", "零一二三四五六七八九")
"""For :meth:`str.translate`: digits one by one, of years, decimals and rooms."""
AS_NAME = str.maketrans("0123456789", "零幺二三四五六七八九")
"""Digits one by one as on the telephone, 1 as 幺."""

_POWERS = ("", "十", "百", "千")
_AMOUNT = r"(?:0|[1-9]\d{0,3}|[1-9]\d{5,6}|[1-9]\d{4}(?=[元.%％]))(?:\.\d{1,6})?"
_PLAIN = re.compile(
    r"(?P<hour>[1-9]|1\d|2[0-4]):(?P<minute>[0-5]\d)(?![\d:元月日年号分点万亿人天个克度多])"
    rf"|(?P<percent>{_AMOUNT})[%％]"
    r"|(?!2(?![\d.])|\d{4}年|\d0后|(?:1[0-2]|\d{4})\.[0-3]\d(?![\d元])|1(?:1[01249]|2[02])(?![\d.元]))"
    rf"(?P<amount>{_AMOUNT})(?![\d.%％:])"
)
"""2 alone may be 两, years and 80后 are read by their digits, 11.11 may be a day, and 110 is a telephone number."""
_ONLY_WORDS_AND_NUMBERS = re.compile(
    r"(?:[\d.:%％\u4e00-\u9fff ]|(?<![\d.:%％])(?<![\d.%％] )[A-Za-z](?! ?[\d.:%％]))*"
)


def say_plain_numbers(clause: str) -> str | None:
    """A clause of words and plain numbers as wetext says it, but 100 times as fast; ``None`` if it needs wetext."""
    if not _ONLY_WORDS_AND_NUMBERS.fullmatch(clause):
        return None
    said = _PLAIN.sub(_plain, clause)
    return said if said.replace(" ", "").isalpha() else None


def _plain(match: re.Match[str]) -> str:
    if match["hour"]:
        hour = "两" if match["hour"] == "2" else cardinal(match["hour"])
        minute = f"{'零' if match['minute'] < '10' else ''}{cardinal(match['minute'].lstrip('0'))}分"
        return f"{hour}点{minute if match['minute'] != '00' else ''}"
    whole, _, fraction = (match["percent"] or match["amount"]).partition(".")
    said = cardinal(whole) if whole != "2" else "二"
    said = f"{said}点{fraction.translate(AS_QUANTITY)}" if fraction else said
    return f"百分之{said}" if match["percent"] else said


def cardinal(run: str) -> str:
    """``12345`` as 一万二千三百四十五; up to eight digits."""
    high, low = run[:-4], run[-4:].lstrip("0")
    said = f"{_up_to_four(high)}万" if high else ""
    said += "零" if high and 0 < len(low) < 4 else ""  # noqa: PLR2004 - thousands are missing
    said += _up_to_four(low) if low or not high else ""
    said = said.removeprefix("一") if said.startswith("一十") else said
    return f"两{said[1:]}" if said[0] == "二" and said[1:2] in ("百", "千", "万") else said


def _up_to_four(run: str) -> str:
    said = ""
    for power, digit in zip(range(len(run) - 1, -1, -1), run, strict=True):
        if digit != "0":
            said += digit.translate(AS_QUANTITY) + _POWERS[power]
        elif not said.endswith("零"):
            said += "零"
    return said.rstrip("零") or "零"
