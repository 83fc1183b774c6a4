"""Chinese words for digits, and for the numbers, percentages and times of day that need no context to be read."""

import re

from cc_tts.text.substitution import rewriter

AS_QUANTITY = str.maketrans("0123456789", "零一二三四五六七八九")
"""A table for :meth:`str.translate`: digits one by one, of years, decimals and rooms."""
AS_NAME = str.maketrans("0123456789", "零幺二三四五六七八九")
"""Digits one by one as on the telephone, 1 as 幺."""

TRADITIONAL = re.compile(
    "[個張筆條間臺輛層單號樓萬億員訂餘額請們這開關費話電嘅喺冇哋係場貨滿減優圓價錢購買賣點時過還進達從來會國銀帳戶碼說課謝問題為與該訊網線級結經實際對現發處應預]"
)
"""Characters that only traditional Chinese has."""
_POWERS = ("", "十", "百", "千")
_AMOUNT = (
    r"(?:0|[1-9]\d{0,3}|[1-9]\d{5,6}|[2-8]\d{4}|[1-9]\d{4}(?=[元分公.%％]|[港美欧日澳加]元|英镑|新台币|新加坡元))"
    r"(?:\.\d{1,6})?"
)
_UNITS = {
    "kg": "千克", "mg": "毫克", "cm": "厘米", "mm": "毫米", "km": "公里", "m": "米", "L": "升", "ml": "毫升", "℃": "摄氏度",
    "h": "小时",
}  # fmt: skip
_PLAIN = re.compile(
    r"(?P<hour>0?[1-9]|1\d|2[0-4]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:元月年号分点万亿人天个克度多]|日(?![出落]))"
    rf"|(?P<left>[1-9]\d{{0,3}}):(?P<right>[1-9](?:\d{{0,3}}\.\d{{1,6}})?)(?![\d.:])"
    rf"|(?P<percent>{_AMOUNT})[%％]"
    rf"|(?P<measured>{_AMOUNT})\s?(?P<unit>{'|'.join(_UNITS)})(?![A-Za-z\d/²³])"
    r"|(?!(?<![A-Za-z])2(?=[^\W\d]|\s)|\d{4}年|\d0后"
    r"|(?<![A-Za-z幅率值额高重长约为是达涨跌距])(?<![A-Za-z] )(?:1[0-2]|(?:19|20)\d\d)\.[0-3]\d"
    r"(?![\d元点个倍米公千万亿吨升度分克毫厘斤英折秒乘])"
    r"|1(?:1[01249]|2[02])(?![\d.元]))"
    rf"(?P<amount>{_AMOUNT})(?!\d|\.\d|[%％:]|[A-Z]?[a-z])"
)
"""2 alone may be 两, years and 80后 are read by their digits, 12.10 may begin a span of days, 110 is a telephone."""
_tidied = rewriter(("零+(?=万|$)", ""), ("零+", "零"), ("^一(?=十)", ""), ("^二(?=[百千万])", "两"))
_AROUND = r"\w\s.:：，。、；！？（）()“”‘’《》【】—…·%％℃"
_NEEDS_WETEXT = re.compile(rf"\d\s?[^{_AROUND}]|[^{_AROUND}/]\s?\d|(?:CHF|CNY|KRW|THB|[A-Z]{{2}}D)\s?\d|[里米升]/")


def say_plain_numbers(clause: str) -> str | None:
    """A clause of words and plain numbers becomes what wetext says, but 100 times as fast; ``None`` if it needs wetext."""
    if _NEEDS_WETEXT.search(clause):
        return None
    said = _PLAIN.sub(_plain, clause)
    return None if any(map(str.isdigit, said)) else said


def _plain(match: re.Match[str]) -> str:
    if match["hour"]:
        return _time(match["hour"].lstrip("0"), match["minute"]) + _second(match["second"])
    if match["left"]:
        return f"{_number(match['left'])}比{_number(match['right'])}"
    if match["measured"]:
        said = "两" if match["measured"] == "2" else _number(match["measured"])
        return said + _UNITS[match["unit"]]
    said = _number(match["percent"] or match["amount"])
    return f"百分之{said}" if match["percent"] else said


def _number(written: str) -> str:
    whole, _, fraction = written.partition(".")
    said = cardinal(whole)
    return f"{said}点{fraction.translate(AS_QUANTITY)}" if fraction else said


def _time(hour: str, minute: str) -> str:
    said = f"{'两' if hour == '2' else cardinal(hour)}点"
    if minute == "00":
        return said
    return f"{said}零{minute[1].translate(AS_QUANTITY)}分" if minute[0] == "0" else f"{said}{cardinal(minute)}分"


def _second(written: str | None) -> str:
    return "" if written in (None, "00") else f"{'零' if written[0] == '0' else ''}{cardinal(written.lstrip('0'))}秒"


def by_digits(match: re.Match[str]) -> str:
    """Each digit of what was found, as in years and rooms."""
    return match.group().translate(AS_QUANTITY)


def cardinal(run: str) -> str:
    """``12345`` becomes 一万二千三百四十五; a run has up to eight digits."""
    high = f"{_with_powers(run[:-4])}万" if run[:-4] else ""
    return _tidied(high + _with_powers(run[-4:])) or "零"


def _with_powers(run: str) -> str:
    digits = zip(run, _POWERS[len(run) - 1 :: -1], strict=True)
    return "".join(f"{digit.translate(AS_QUANTITY)}{power}" if digit != "0" else "零" for digit, power in digits)
