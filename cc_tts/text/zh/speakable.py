"""Chinese on the telephone: wetext for quantities, dates, times, money and units; our rules for what it lacks.

wetext needs more than linear time, so it gets one clause at a time. A lock guards it, because it does not promise to be
reentrant.
"""

import re
import threading
import unicodedata
from functools import cache
from typing import Any

from cc_tts.text.characters import digits_to_ascii, one_line
from cc_tts.text.web_addresses import say_addresses
from cc_tts.text.zh.identifiers import say_digits, say_identifiers
from cc_tts.text.zh.numbers import AS_QUANTITY, say_plain_numbers
from cc_tts.text.zh.quantities import prepare_quantities

_MAX_CLAUSE_CHARS = 64
_WETEXT_LOCK = threading.Lock()
ADDRESS_SIGNS = {
    "@": "艾特", ".": "点", "-": "杠", "_": "下划线", "+": "加", "/": "斜杠", "?": "问号", "=": "等于", "&": "和",
    "#": "井号", "%": "百分号", ":": "冒号",
}  # fmt: skip
_COMPATIBILITY = re.compile("[０-９Ａ-Ｚａ-ｚ＋－＃＊＠％＄￥￡＝～㌀-㏿①-⒛Ⅰ-ⅿ¼-¾⅐-⅞]+")
_AFTER_WHOLE = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞])")
_SUPERSCRIPTS = str.maketrans({"²": "平方", "³": "立方", "№": "编号"})
_SQUARED_UNIT = re.compile("(?<=[A-Za-z])([²³])")
_SQUARED_AND_CUBED = {
    "mm²": "平方毫米", "cm²": "平方厘米", "m²": "平方米", "km²": "平方千米", "cm³": "立方厘米", "m³": "立方米",
}  # fmt: skip
_QUANTITY_SQUARED = re.compile(r"(?<=\d)\s?(mm²|cm²|km²|m²|cm³|m³)(?![A-Za-z])")
_UNITS = {
    "mAh": "毫安时", "kWh": "千瓦时", "kW": "千瓦", "MHz": "兆赫兹", "GHz": "吉赫兹", "kHz": "千赫兹", "Hz": "赫兹",
    "Mbps": "兆比特每秒", "Gbps": "吉比特每秒", "MB": "兆", "GB": "G", "mph": "英里每小时", "V": "伏", "W": "瓦",
    "min": "分钟", "°F": "华氏度",
}  # fmt: skip
_UNIT = re.compile(rf"(?<=\d)\s?({'|'.join(sorted(_UNITS, key=len, reverse=True))})(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,5}(?!\d|,\d)")
_YUAN_CODE = re.compile(r"(?<![A-Za-z])(?:RMB\s?(?=\d)|CNY\s?(?=\d[\d,.]*\s?[万萬亿億千]))")
_CURRENCY_FIRST = re.compile(r"(?<![A-Za-z])(USD|EUR|GBP|JPY|HKD)\s?(?=\d)")
_CURRENCY_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "JPY", "HKD": "HK$"}
_NAMED_CURRENCY = re.compile(r"(?P<code>JPY|HK\$|US\$)(?P<amount>\d{1,15}(?:\.\d{1,9})?)")
_CURRENCY_NAMES = {"JPY": "日元", "HK$": "港元", "US$": "美元"}
_CURRENCY_LAST = re.compile(r"(?<=\d)\s?(USD|EUR|GBP|JPY|CNY|RMB|HKD)(?![A-Za-z])")
_CURRENCY_WORDS = {
    "USD": "美元", "EUR": "欧元", "GBP": "英镑", "JPY": "日元", "CNY": "人民币", "RMB": "元", "HKD": "港元",
}  # fmt: skip
_YEAR_MONTH = r"(?!(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?!\d))"
_RANGE = re.compile(
    rf"(?<![\d:.：/-]){_YEAR_MONTH}(\d{{1,12}}(?:\.\d{{1,6}})?[%％]?)\s?[-~～〜–—]\s?(?=\d{{1,12}}(?:\.\d{{1,6}})?(?![\d:：/-]))"
)
_PERCENT_RANGE = re.compile(r"(?<![\d.])(\d{1,6}(?:\.\d{1,6})?)\s?[-~～〜–—]\s?(?=\d{1,6}(?:\.\d{1,6})?[%％])")
_NEGATIVE_PERCENT = re.compile(r"(?<![\w)])-(?=\d{1,12}(?:\.\d{1,6})?[%％])", re.ASCII)
_SCORE = re.compile(r"[\u4e00-\u9fff]+ ?\d{1,2}[-/]\d{1,2}(?=$|[\s，。！？；,.!?;])")
_HALF_OF_DAY = re.compile(r"(?<![\d:：])(\d{1,2}[:：]\d\d)\s?([AaPp])\.?[Mm]\b\.?", re.ASCII)
_TIME_RANGE = re.compile(r"(?<=:\d\d)\s?[-~～〜–—]\s?(?=\d{1,2}:\d\d)")
_DOTTED = re.compile(r"(?<![\d.])\d{1,6}(?:\.\d{1,6}){2,9}(?![\d.])")
_WIDE_COLON = re.compile(r"(?<=\d)：(?=\d)")
_CLAUSE = re.compile(r"[^。！？；，、!?;,…]+|[。！？；，、!?;,…]+")
_KEYS = (
    (re.compile(r"#(?=\s?[键鍵号號])|(?<=[按键鍵])\s?#"), "井号"),
    (re.compile(r"\*(?=\s?[键鍵号號])|(?<=[按键鍵])\s?\*"), "星号"),
    (re.compile(r"井号\s?[号號]"), "井号"),
    (re.compile(r"星号\s?[号號]"), "星号"),
)
_SIGNS = {
    "&": "和", "@": "艾特", "#": "井号", "+": "加", "=": "等于", "%": "百分号", "％": "百分号", "×": "乘",
    "÷": "除以", "$": "美元", "€": "欧元", "£": "英镑", "¥": "元", "°": "度",
}  # fmt: skip
_SIGN = re.compile(f"[{''.join(re.escape(sign) for sign in _SIGNS)}]")
_DROPPED = re.compile(r"[（）()【】\[\]{}「」『』《》〈〉<>“”\"‘’`*_^|\\~～•·#]")
_FULL_STOP = re.compile(r"(?<![A-Za-z. ])\.|\.(?=\s*$)|\.(?=[\u3400-\u9fff])")
_PER = re.compile("(?<=[元块塊])/(?=[\u4e00-\u9fff])")
_DASHES = re.compile(r"\s*(?:—+|–+|\s-\s)\s*")
_SPACE = re.compile(r"(?<![\x21-\x7e]) | (?![\x21-\x7e])")
_REPEATED_COMMA = re.compile(r"[，,、](?:\s*[，,、])+")
_MARK_AFTER_MARK = re.compile(r"[，,、]+(?=[。！？；!?;])|(?<=[。！？；!?;])[，,、]+")


def warm_up() -> None:
    """Load wetext (its import reads every transducer from the wheel). Blocks for part of a second."""
    _say_quantities("您好1")


def speakable(text: str) -> str:
    """The words of a Chinese text that was cleaned by :func:`cc_tts.text.characters.clean`."""
    text = say_addresses(_folded(text), ADDRESS_SIGNS, say_digits)
    text = _HALF_OF_DAY.sub(lambda match: f"{'上' if match[2] in 'Aa' else '下'}午{match[1]}", text)
    text = _prepared(say_identifiers(text))
    text = "".join(_say_quantities(clause) for clause in _clauses(text))
    return _tidy(_PER.sub("每", text.translate(AS_QUANTITY)))


@cache
def _wetext() -> Any:
    from wetext import Normalizer

    return Normalizer(lang="zh", operator="tn", remove_erhua=False)


def _say_quantities(clause: str) -> str:
    if not any(character.isdigit() for character in clause):
        return clause
    written = clause.strip()
    said = say_plain_numbers(written)
    if said is None:
        with _WETEXT_LOCK:
            said = str(_wetext().normalize(written.replace("\\", " ").replace('"', " ")))
    return clause.replace(written, said)


def _folded(text: str) -> str:
    text = _COMPATIBILITY.sub(
        lambda match: unicodedata.normalize("NFKC", digits_to_ascii(match.group())).replace("⁄", "/"),
        _AFTER_WHOLE.sub("又", text),
    )
    text = _QUANTITY_SQUARED.sub(lambda match: _SQUARED_AND_CUBED[match[1]], text)
    text = _SQUARED_UNIT.sub(lambda match: "平方" if match[1] == "²" else "立方", text).translate(_SUPERSCRIPTS)
    return one_line(digits_to_ascii(text).replace("\n", "\n\n"), pause="，")


def _prepared(text: str) -> str:
    """What wetext reads wrongly, written so that it reads it right."""
    text = _YUAN_CODE.sub("¥", text)
    text = prepare_quantities(_SCORE.sub(_score, text))
    text = _WIDE_COLON.sub(":", _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text))
    text = _CURRENCY_FIRST.sub(lambda match: _CURRENCY_SIGNS[match[1]], text)
    text = _NAMED_CURRENCY.sub(lambda match: f"{match['amount']}{_CURRENCY_NAMES[match['code']]}", text)
    text = _CURRENCY_LAST.sub(lambda match: _CURRENCY_WORDS[match[1]], text)
    text = _DOTTED.sub(lambda match: match.group().replace(".", "点").translate(AS_QUANTITY), text)
    text = _TIME_RANGE.sub("到", text)
    text = _NEGATIVE_PERCENT.sub("负", text)
    text = _PERCENT_RANGE.sub(r"\1%到", text)
    text = _RANGE.sub(r"\1到", text)
    text = _UNIT.sub(lambda match: _UNITS[match[1]], text)
    for pattern, words in _KEYS:
        text = pattern.sub(words, text)
    return text


def _score(match: re.Match[str]) -> str:
    """``1-2`` after the name of a team is a score; wetext knows the teams."""
    said = _say_quantities(match.group())
    return said if "比" in said and "比" not in match.group() else match.group()


def _clauses(text: str) -> list[str]:
    """The clauses that wetext reads one at a time: cut at punctuation, too long ones between words."""
    clauses: list[str] = []
    for clause in _CLAUSE.findall(text):
        rest = clause
        while len(rest) > _MAX_CLAUSE_CHARS:
            cut = max(
                (i for i in range(_MAX_CLAUSE_CHARS // 2, _MAX_CLAUSE_CHARS) if _is_seam(rest, i)),
                default=_MAX_CLAUSE_CHARS,
            )
            clauses.append(rest[:cut])
            rest = rest[cut:]
        clauses.append(rest)
    return clauses


def _is_seam(text: str, position: int) -> bool:
    return text[position].isspace() or not (text[position - 1].isascii() or text[position].isascii())


def _tidy(text: str) -> str:
    text = _SIGN.sub(lambda match: _SIGNS[match.group()], _DROPPED.sub("", text))
    text = _DASHES.sub("，", text)
    text = _FULL_STOP.sub("。", text)
    text = _SPACE.sub("", " ".join(text.split()))
    text = _MARK_AFTER_MARK.sub("", _REPEATED_COMMA.sub("，", text))
    return text.lstrip(" ，,、；;。").rstrip()
