"""A number of three to six digits without a unit is a name, said digit by digit, unless a quantity is spoken of.

What has a number (a room, a clerk, a share, a model, a law) cannot be listed; measure words, and the words that a quantity
stands behind, can.
"""

import re

from cc_tts.text.substitution import rewriter
from cc_tts.text.zh.measures import STARTS_MEASURE
from cc_tts.text.zh.numbers import AS_NAME, AS_QUANTITY, cardinal

_QUANTITY = (
    "[满滿减減送返抵充值付花赔賠赚退罚扣省剩余餘共超逾达達破第仅僅只增升涨漲降跌限购購]|(?<![预預])[约約]|(?<![附最])近|(?<![签簽代])收"
    r"|\d\s{0,2}[到至]\s{0,2}"
    "|[乘除]以|[比卖賣]|(?<!添)加|到手|[折券]后?|[卖跌降涨升][了到]|[卖花考得]了|只要|等于|抄表"
    "|[大小高低多少]于|不[到足]|最[多少大小]|至[少多]|平均|人均|[总總合累小][计計]|默认"
    "|[价價额額费費款金租薪资資税稅数數量率分度压壓重高宽深速温龄齡频頻幅径徑距厚耗阻积積]|(?<![信消])息|(?<![队隊院校班部处處科组組会會行店])[长長]|[库庫]存|成本|蛋白|[糖酸酐酯醇酶素胞板]|(?<![\u4e00-\u9fff])[语語数數英物化生政史地]"
    "|语文|数学|英语|物理|化学|生物|历史|地理|政治|听力|阅读|写作|翻译|口语|综合|[文理][科综]|指数|[A-Za-z÷×+=*-]\\s?"
)
"""A quantity stands behind what is done with sums, behind a comparison, and behind nouns of what is measured."""
_JOINT = "\\s?(?:[、和与與或及到至同]|还是|還是|以及|或者|(?:变更?|變更?|改)[为為成])\\s?"
_NUMBER = r"\d{3,6}+(?!\d)"
_BARE = (
    rf"(?<![\d.,/~～–—−+×*=·¥￥$€£@_#A-Za-z→>-])(?<!, )(?<!\d[:：]){_NUMBER}(?:{_JOINT}{_NUMBER})*+"
    rf"(?![\d:：/~～–—−+×*=%％℃°‰_#@μµ㎡㎥→-]|[.,]\d|\s?[A-Za-zμµ÷×*=+-]|{STARTS_MEASURE}|[减減乘除加比]|(?<!\d{{6}})[降涨漲升增跌]|等于)"
)
_CODE = (
    r"(?<![\d.,:：/~～–—+×*=¥￥$€£A-Za-z-])(\d{3,4}(?=-\d(?!\d))|[1-9]\d?(?=-[1-9]\d{2,3}(?<!00)(?!\d)))-(\d{1,4})"
    rf"(?![\d.,:：/~～–—+×*=%％℃°A-Za-z-]|{STARTS_MEASURE})"
)
_QUANTITY_BEFORE = re.compile(
    rf"(?:{_QUANTITY})(?:分别|合计|大?约|已|达到?|到|只?剩|有|仅|由|从|從)?(?:是|为|為|係)?[：: ]{{0,2}}$"
)
_EMERGENCY = re.compile(r"1(?:1[0-249]|2[02])(?!\d)")
"""Numbers that wetext reads by their digits wherever they stand: 110, 120."""
_COUNTED_EMERGENCY = (
    rf"(?<![\d.,:：/-])(?<![打拨撥按叫])1(?:1[0-249]|2[02])(?:(?={STARTS_MEASURE}|[比到至乘减])(?![台报報接指])"
    r"|(?<=[减減加乘比共返送约].{3})(?!\s?[\d.,:A-Za-z]))"
)
_ANY = re.compile(r"\d+")
_NO_ROUND = re.compile(r"(?<!\d)(?![1-9]\d?0{2,4}(?!\d))\d+")
_MAX_ROOM_DIGITS = 4
"""Rooms and years are said with 一, longer numbers as on the telephone (unmeasured)."""
_LOOK_BACK = 12


def _said_by_digits(match: re.Match[str]) -> str:
    number = match.group()
    return number.translate(AS_QUANTITY if len(number) <= _MAX_ROOM_DIGITS else AS_NAME)


def _is_quantity(match: re.Match[str]) -> bool:
    """Whether the words before a number are of a quantity."""
    return _QUANTITY_BEFORE.search(match.string[max(0, match.start() - _LOOK_BACK) : match.start()]) is not None


def _bare(match: re.Match[str]) -> str:
    if _is_quantity(match):
        return _EMERGENCY.sub(lambda number: cardinal(number.group()), match.group())
    if _EMERGENCY.fullmatch(match.group()):
        return match.group()
    is_room = match.string[match.end() : match.end() + 1] in ("室", "房")
    return (_ANY if is_room else _NO_ROUND).sub(_said_by_digits, match.group())


def _code(match: re.Match[str]) -> str:
    """``3-302`` is a room and ``8023-2`` an extension, no range: those are of numbers that are more alike."""
    if _is_quantity(match):
        return match.group()
    first, last = match.groups()
    return f"{first.translate(AS_QUANTITY) if len(first) > len('99') else first}杠{last.translate(AS_QUANTITY)}"


say_bare_names = rewriter((_BARE, _bare), (_CODE, _code))
say_counted_emergencies = rewriter((_COUNTED_EMERGENCY, lambda match: cardinal(match.group())))
"""110 of something is a quantity."""
