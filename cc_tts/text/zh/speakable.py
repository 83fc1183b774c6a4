"""Chinese on the telephone: wetext for quantities, dates, times, money and units; our rules for what it lacks.

wetext needs more than linear time, so it gets one clause at a time. A lock guards it, because it does not promise to be
reentrant.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

from cc_tts.text.alignment import replaced_one_by_one
from cc_tts.text.characters import digits_to_ascii, joined_lines
from cc_tts.text.substitution import rewriter
from cc_tts.text.web_addresses import say_addresses
from cc_tts.text.zh.bare_numbers import say_bare_names, say_counted_emergencies
from cc_tts.text.zh.dates import say_days
from cc_tts.text.zh.identifiers import say_digits, say_identifiers
from cc_tts.text.zh.measures import BEHIND_MEASURE, ONE_MEASURE, STARTS_MEASURE
from cc_tts.text.zh.numbers import AS_QUANTITY, cardinal, say_plain_numbers
from cc_tts.text.zh.quantities import prepare_quantities
from cc_tts.text.zh.signs import ADDRESS_SIGNS, say_signs

_MAX_CLAUSE_CHARS = 64
"""The longest clause that is read at once (unmeasured)."""
_NUM_IP_PARTS = 4
_WETEXT_LOCK = threading.Lock()
_CLAUSE = re.compile(r"[^。！？；，、!?;,…]+|[。！？；，、!?;,…]+")
_COMPATIBILITY = "[０-９Ａ-Ｚａ-ｚ＋－＃＊＠％＄￥￡＝～㌀-㏿①-⒛¼-¾⅐-⅞]+"
_SUPERSCRIPTS = str.maketrans({"²": "平方", "³": "立方", "№": "编号"})
_LENGTHS = {"mm": "毫米", "cm": "厘米", "m": "米", "km": "千米"}
_UNITS = {
    "mAh": "毫安时", "kWh": "千瓦时", "kW": "千瓦", "MHz": "兆赫兹", "GHz": "吉赫兹", "kHz": "千赫兹", "Hz": "赫兹",
    "Mbps": "兆比特每秒", "MB/s": "兆每秒", "KB/s": "K每秒", "GB/s": "G每秒",
    "Ah": "安时", "Gbps": "吉比特每秒", "MB": "兆", "GB": "G", "mph": "英里每小时", "V": "伏", "W": "瓦",
    "hrs": "小时", "hr": "小时",
    "°F": "华氏度", "mmHg": "毫米汞柱", "mmol/L": "毫摩尔每升", "mg/L": "毫克每升", "mL": "毫升",
    "ML": "毫升", "t": "吨", "M": "兆", "Kbps": "千比特每秒", "KB": "K", "rpm": "转每分钟", "dB": "分贝", "cc": "毫升",
    "MPa": "兆帕", "Pa": "帕", "kPa": "千帕", "ms": "毫秒", "Wh": "瓦时", "kVA": "千伏安", "lm": "流明",
    "lx": "勒克斯", "kV": "千伏", "bpm": "次每分钟", "pct": "个百分点", "IU": "国际单位", "KG": "千克", "Kg": "千克",
}  # fmt: skip
_UNIT = rf"(?<=[\d万亿])(?!\s[A-Z]\d)\s?({'|'.join(sorted(_UNITS, key=len, reverse=True))})(?![A-Za-z]|-\d|杠)"
_AFTER_POWER = {"km": "千米", "kg": "千克", "m": "米", "g": "克"}
_CURRENCIES = {
    "USD": "美元", "EUR": "欧元", "GBP": "英镑", "JPY": "日元", "CNY": "元", "RMB": "元", "HKD": "港元",
    "TWD": "新台币", "AUD": "澳元", "CAD": "加元", "SGD": "新加坡元",
}  # fmt: skip
_NUMERALS = "零幺一二三四五六七八九十百千万亿两"
_DASH = "[-~～〜–—]"
_YEAR_MONTH = r"(?!(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?!\d))"
_DECIMAL = r"\d{1,12}(?:\.\d{1,6})?"
_RANGE = rf"(?<![\dA-Za-z:.：/-]){_YEAR_MONTH}({_DECIMAL}[%％]?)\s?{_DASH}\s?(?={_DECIMAL}(?![\d:：/-]))"
_SIGNS = {
    "&": "和", "@": "艾特", "+": "加", "=": "等于", "%": "百分号", "％": "百分号", "×": "乘",
    "÷": "除以", "℃": "摄氏度", "$": "美元", "€": "欧元", "£": "英镑", "¥": "元", "°": "度",
} | dict.fromkeys('（）()【】〔〕[]{}「」『』《》〈〉<>“”"‘’`*_^|\\~～•·#', "")  # fmt: skip


def warm_up() -> None:
    """Compile what decides whether a clause needs wetext, and load that."""
    _say_quantities("您好1")
    _wetext().normalize("2026年3月5日")


class _Transducer:
    """A transducer of wetext, which is read when it is first applied."""

    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def _apply(self) -> Callable[[str], str]:
        import kaldifst

        transducer: Callable[[str], str] = kaldifst.TextNormalizer(self._path)
        return transducer

    def __call__(self, text: str) -> str:
        return self._apply(text)


@cache
def _wetext() -> Any:
    """Import wetext, without the transducers of all its languages and directions: 0.2 s and 27 MB (measured)."""
    import kaldifst

    reads_at_once = kaldifst.TextNormalizer
    kaldifst.TextNormalizer = _Transducer
    try:
        from wetext import Normalizer
    finally:
        kaldifst.TextNormalizer = reads_at_once
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


def _score(match: re.Match[str]) -> str:
    """``1-2`` after the name of a team is a score; wetext knows the teams."""
    said = _say_quantities(match.group())
    return said if "比" in said and "比" not in match.group() else match.group()


def _squared(match: re.Match[str]) -> str:
    return f"{'平方' if match[2] in '²2' else '立方'}{_LENGTHS[match[1]]}"


def _version(match: re.Match[str]) -> str:
    """``17.4.1`` is said as 十七点四点一, an IP address digit by digit."""
    parts = match.group().split(".")
    by_digits = len(parts) == _NUM_IP_PARTS or any(len(part) > 2 or (part[0] == "0" and part != "0") for part in parts)  # noqa: PLR2004
    return "点".join(part.translate(AS_QUANTITY) if by_digits else cardinal(part) for part in parts)


def _falling(match: re.Match[str]) -> str:
    """``12345-887`` is no range but a code."""
    return f"{say_digits(match[1])}，{say_digits(match[2])}"


def _clauses(text: str) -> Iterator[str]:
    """The clauses that wetext reads one at a time are cut at punctuation, too long ones between words."""
    for clause in _CLAUSE.findall(text):
        rest = clause
        while len(rest) > _MAX_CLAUSE_CHARS:
            seams = (at for at in range(_MAX_CLAUSE_CHARS - 1, _MAX_CLAUSE_CHARS // 2 - 1, -1) if _is_seam(rest, at))
            cut = next(seams, _MAX_CLAUSE_CHARS)
            yield rest[:cut]
            rest = rest[cut:]
        yield rest


def _is_seam(text: str, position: int) -> bool:
    return text[position].isspace() or not (text[position - 1].isascii() or text[position].isascii())


_ITEM = (
    r"(?<![第图圖表注式选選看见見和与與或及至到如是])([①-⑳])[、.．]?\s?(?=[\u4e00-\u9fff]|[A-Z]{2}|\d{4}[/年-])"
    r"(?![号號步项項条條种種类類款栏欄题題楼樓层層和与與或及至到还還所中])"
)
"""A circled number before an entry of a list: ①打开设置, but neither 第①步 nor 如图①所示."""
_folded = rewriter(
    ("∶", ":"),
    (
        r"(?<=[０-９])(?:，(?=[０-９]{3}(?![０-９]))|．(?=[０-９]))",
        lambda match: unicodedata.normalize("NFKC", match.group()),
    ),
    (r"(?<=\d)(?=[¼-¾⅐-⅞])", "又"),
    (rf"(?<=[\u4e00-\u9fff）)”])(?={_ITEM})", "，"),
    (r"(?<=\d)\s+(?=[①-⑳])", "，"),
    (_ITEM, lambda match: f"{cardinal(unicodedata.normalize('NFKC', match[1]))}，"),
    (
        _COMPATIBILITY,
        lambda match: unicodedata.normalize("NFKC", digits_to_ascii(match.group())).replace("⁄", "/"),
    ),
    (r"(?<=\d)\s?(mm|cm|km|m)([²2]|(?<=[^mk]m)[³3])(?![A-Za-z\d])", _squared),
)
_CURRENCY_SIGNS = {
    "RMB": "¥", "CNY": "¥", "USD": "US$", "EUR": "€", "GBP": "£", "JPY": "JP¥", "HKD": "HK$", "TWD": "NT$", "AUD": "A$",
    "CAD": "C$", "SGD": "S$",
}  # fmt: skip
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_DAY = rf"(?<![A-Za-z])({_DAYS})(?:[a-z]{{0,5}}day|s|rs)?\.?"


def _half_of_day(match: re.Match[str]) -> str:
    """``9am-6pm`` is said as 上午九点到下午六点."""
    half = "上午" if match[2] in "Aa" else "下午"
    clock = match[1] if len(match[1]) > len("12") else f"{match[1]}点"
    return f"{half}{clock}{'到' if match.group()[-1].lower() not in 'm.' else ''}"


def _month_and_day(match: re.Match[str]) -> str:
    """``Nov. 30`` becomes 11月30日."""
    in_year = f"{match[3]}年" if match[3] else ""
    return f"{in_year}{_MONTHS.split('|').index(match[1]) + 1}月{match[2]}日"


def _days(match: re.Match[str]) -> str:
    """``Mon-Fri`` is said as 周一到周五 by all."""
    return "到".join(f"周{'一二三四五六日'[_DAYS.split('|').index(day)]}" for day in match.groups() if day)


_before_quantities = rewriter(
    (rf"(?<![A-Za-z])({'|'.join(_CURRENCY_SIGNS)})\s?(?=-?\d)", lambda match: _CURRENCY_SIGNS[match[1]]),
    (r"(?a)(?<=\w)(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\d)\.(?=[a-z_]{2})", "点"),  # x.shape
    (r"(?<=[\w%％])\s?=\s?(?=[¥￥$€£-]?\d)", "等于"),
    (r"(?a)(?<![A-Za-z])([AP])M\s?(?=\d{1,2}[:：]\d\d)", lambda match: "上午" if match[1] == "A" else "下午"),
    (r"(?a)(?<![\d:：.])(\d{1,2}(?:[:：]\d\d)?)\s?([AaPp])\.?[Mm]\b\.?(?:\s?[-–—~]\s?(?=\d))?", _half_of_day),
    (
        rf"(?<![A-Za-z])({_MONTHS})[a-z]{{0,6}}\.?\s(\d{{1,2}})(?:st|nd|rd|th)?(?![\d.:]|,\d)(?:,?\s(\d{{4}}))?(?!\d)",
        _month_and_day,
    ),
    (rf"{_DAY}(?:\s?[-–—~]\s?{_DAY}(?![A-Za-z])|,?\s(?=\d{{1,2}}[:：点]|[上下]午))", _days),
)
_scores = rewriter(
    (r"[\u4e00-\u9fff]{1,16} ?\d{1,2}[-/]\d{1,2}(?=$|[\s，。！？；,.!?;])", _score),
)
_PER = (
    rf"(?:(?<=[元币幣镑鎊])|(?<=元起))\s?/\s?(?=[\u4e00-\u9fff])(?![一二三四五]等)|{BEHIND_MEASURE}\s?/\s?(?={STARTS_MEASURE}|疗程|療程)|(?<=\d[%％])/(?=[年月周日天季期次笔])"
    rf"|(?:(?<=[\d万亿千百%％费費价價])|(?<=\d[A-Za-z])|(?<=\d[A-Za-z]{{2}}))\s?/\s?(?={ONE_MEASURE})"
)
"""A slash between a sum or a quantity and what it is for."""
_after_quantities = rewriter(
    (
        r"(?<=[\d零幺一二三四五六七八九])(?<!\d \d) +(?=[\d零幺一二三四五六七八九])(?!\d \d)",
        "，",
    ),  # but not within 9 3 0 2
    (_PER, "每"),
    (r"(?<=\d[LlgGmMhVWA])/(?=[\u4e00-\u9fff])|(?<=\d[A-Za-z])/(?=0\.\d)|(?<=\d[A-Za-z]{2})/(?=0\.\d)", "，"),
    (r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,5}(?!\d|,\d)", lambda match: match.group().replace(",", "")),
    (r"(?<=\d)：(?=\d)", ":"),
    (rf"(?<=\d)\s?({'|'.join(_CURRENCIES)})(?![A-Za-z])", lambda match: _CURRENCIES[match[1]]),
    (
        r"(?<![\d.])\d{1,6}(?:\.\d{1,6}){2,9}(?!\d|\.\d)",
        _version,
    ),
    (r"(?<![\d.:：/-])(\d{5,12})-(\d{1,4})(?![\d.:：/%-])", _falling),
    (_RANGE, r"\1到"),
    (r"(?<=\d)\s?d(?![A-Za-z\d]|打印|动画|电影|效果|模型|建模|渲染)", "天"),
    (r"(?:(?<=次方)|(?<=[万亿]))\s?(km|kg|m|g)(?![A-Za-z])", lambda match: _AFTER_POWER[match[1]]),
    (_UNIT, lambda match: _UNITS[match[1]]),
    (
        r"(?<![\d.A-Za-z:到至])([1-9]|1[0-2])\.(\d\d|\d(?=\s?[↑↓(（]))(?=[^\dA-Za-z.%％‰℃°/:：~～到至-]|$)",
        lambda match: f"{cardinal(match[1])}点{match[2].translate(AS_QUANTITY)}",
    ),  # wetext would take it for a day
)
_tidy = rewriter(
    (f"(?<=[{_NUMERALS}])/(?=[A-Z](?![A-Z\\u4e00-\\u9fff]))", "斜杠"),
    (r"(?<=[A-Za-z])\s?/\s?(?=[A-Za-z])", " "),
    (r"\s?/\s?", "，"),
    (
        f"(?<=[A-Za-z\\d{_NUMERALS}])[）)]?[（(](?=[{_NUMERALS}])(?![{_NUMERALS}]{{1,2}}[）)]班)|(?<=[{_NUMERALS}])[）)〕\\]](?=[{_NUMERALS}])",
        "，",
    ),
    (
        r"(?<=\w)[（(](?=[^（()）]{4,80}[）)])|(?<=[^（(]{4})[）)](?=\w)",
        "，",
    ),  # （周三） and others as short need no pause
    (r"(?<=[A-Za-z])[（(）)](?=[A-Za-z])", " "),
    (r"(?<=[”’」』])(?=[“‘「『])", "，"),
    (f"[{re.escape(''.join(_SIGNS))}]", lambda match: _SIGNS[match.group()]),
    (r"\s*(?:—+|–+|\s-\s)\s*|(?<=[\u4e00-\u9fff])-(?=[\u4e00-\u9fff])", "，"),
    (r"(?<![A-Za-z. ])\.|\.(?=\s*$)|\.(?=[\u3400-\u9fff])", "。"),
    (r"\s+", " "),
    (r"(?<![\x21-\x7e]) | (?![\x21-\x7e])", ""),
    (r"[，,、](?:\s*[，,、])+", "，"),
    (r"[，,、]+(?=[。！？；!?;])|(?<=[。！？；!?;])[，,、]+|^[ ，,、；;。]+|\s+$", ""),
)


def speakable(text: str) -> str:
    """The words of a Chinese text that was cleaned by :func:`cc_tts.text.characters.clean`."""
    text = digits_to_ascii(say_signs(_folded(text)).translate(_SUPERSCRIPTS))
    text = say_addresses(joined_lines(text.replace("\n", "\n\n"), pause="，"), ADDRESS_SIGNS, say_digits)
    text = _scores(say_bare_names(say_identifiers(_before_quantities(text))))
    text = say_counted_emergencies(_after_quantities(prepare_quantities(say_days(text))))
    said = replaced_one_by_one(_clauses(text), _say_quantities)
    return _tidy(said.translate(AS_QUANTITY))
