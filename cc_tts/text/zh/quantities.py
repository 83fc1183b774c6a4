"""Chinese dates, ranges, sums and counts that wetext reads wrongly, rewritten so that it reads them right.

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.zh.numbers import AS_QUANTITY

_TRADITIONAL = re.compile("[個張筆條間臺輛層單號樓萬億員訂餘額請們這開關]")
_DASH = "[-~～〜–—]"

_YEAR_MONTH_DAY = re.compile(
    r"(?<![\d./-])(?P<year>(?:19|20)\d\d)(?P<mark>[./-])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?![\d./]"
    r"|-\d)(?:日(?!\w))?"
)
_FULL_DATES_BETWEEN = re.compile(rf"(?<=\d)\s?{_DASH}\s?(?=(?:19|20)\d\d[./-]\d{{1,2}}[./-]\d)")
_MONTH_DAY_RANGE = re.compile(
    rf"(?<![\d/])(\d{{1,2}})/(\d{{1,2}})\s?(?:{_DASH}|到|至)\s?(\d{{1,2}})/(\d{{1,2}})(?![\d/])"
)
_MONTH_DAY = re.compile(
    r"(?P<before>截止|截至|日期|生日|时间|時間|[于於在到至自从從])(?P<joint>[：: ]?)(?P<month>\d{1,2})/"
    r"(?P<day>\d{1,2})(?![\d/])"
)
_MONTH_DAY_BEFORE = re.compile(
    r"(?P<before>(?<![\d/])|(?<=[周週期拜][一二三四五六日天])[(（]?)(?P<joint>)(?P<month>\d{1,2})/(?P<day>\d{1,2})"
    r"(?=(?:之?前|后|後|起)(?!\w*分之)|[)）])"
)
_YEARS = re.compile(rf"(?<!\d)((?:1[5-9]|20)\d\d)\s?{_DASH}\s?(?=(?:1[5-9]|20)\d\d年)")
_TWO_DIGITS = r"(?P<month>0[1-9]|1[0-2])(?P<mark>[-/])(?P<day>0[1-9]|[12]\d|3[01])"
_PADDED_DATE = re.compile(rf"(?<![\d.:：/-]){_TWO_DIGITS}(?:(?P=mark)(?P<year>(?:19|20)\d\d))?(?![\d.:：/-])")
_MONTH_YEAR = re.compile(r"(?<![\d.:：/-])(0[1-9]|1[0-2])[-/]((?:19|20)\d\d)(?![\d.:：/-])")
_EXPIRY = re.compile(
    r"(?P<name>有效期[限至到为為是：: ]{0,3}|到期[日为為是：: ]{0,3}|过期[日为為是：: ]{0,3})(?P<month>0[1-9]"
    r"|1[0-2])/(?P<year>\d\d|20\d\d)(?![\d/])"
)
_YEAR_MONTH = re.compile(r"(?<![\d./-])((?:19|20)\d\d)/(0[1-9]|1[0-2])(?![\d/])")
_YEAR = re.compile(r"(?<![\d.,])(1[5-9]\d\d|2[01]\d\d)(?=年(?!薪|利|费|費))")
_LEADING_ZERO = re.compile(r"(?<![\d.:：/-])0(?=\d[月日号號时時点點])")
_MIDNIGHT = re.compile(r"(?<![\d:：])0?0[:：]([0-5]\d)(?![\d:：])")
_HOURS_MINUTES = re.compile(r"(?<![\dA-Za-z])(\d{1,3})\s?h\s?(\d{1,2})\s?m(?:in)?(?![A-Za-z])")
_ALL_DAY = re.compile(r"(?<![\d/])(?:24\s?/\s?7|7\s?[×xX*]\s?24|24\s?[×xX*]\s?7)(?:小时|小時|h)?(?![\d/])")
_WEEKDAYS = re.compile(
    rf"((?:周|週|星期|礼拜|禮拜)[一二三四五六日天])\s?{_DASH}\s?(?=(?:周|週|星期|礼拜|禮拜)?[一二三四五六日天])"
)
_PART_OF_DAY = "(?:凌晨|早上|上午|中午|下午|傍晚|晚上|次日|当天|當天)"
_RANGE = re.compile(
    rf"(?:(?<=[\d%％元块塊点點时時分日号號月年岁歲万萬亿億千百折℃])|(?<=\d度))\s?{_DASH}\s?(?={_PART_OF_DAY}?[¥￥$€£]?\d)"
)

_SUMS = {
    "¥": "元", "￥": "元", "$": "美元", "US$": "美元", "€": "欧元", "£": "英镑", "HK$": "港元", "NT$": "新台币",
    "A$": "澳元", "AU$": "澳元", "C$": "加元", "CA$": "加元", "S$": "新加坡元", "JP¥": "日元", "₩": "韩元", "₹": "卢比",
}  # fmt: skip
_SIGN = "|".join(re.escape(sign) for sign in sorted(_SUMS, key=len, reverse=True))
_SUM = re.compile(
    rf"(?P<minus>(?<![\w)\d])[-−])?(?<![A-Za-z])(?P<sign>{_SIGN})\s?(?P<minus_inside>[-−])?(?P<amount>\d[\d,]*"
    rf"(?:\.\d+)?)\s?(?P<scale>万亿|萬億|千万|千萬|百万|百萬|[万萬亿億千百])?"
)
_MINUS = re.compile(r"(?<![\w)）])[-−](?=\d)", re.ASCII)

_MASK = re.compile(
    r"(?:(?P<head>(?<![\d.])\d{2,6})[ -]?)?(?:[*•·]{2,19}|(?<![A-Za-z])[xX]{3,19})(?:[ -]?[*•·xX]{2,19}){0,4}"
    r"[ -]?(?P<digits>\d{2,6})(?!\d)|\*(?P<tail>\d{4})(?!\d)"
)
_DIGITS_BEFORE = tuple("0123456789零幺二三四五六七八九")
_MIN_CODE_DIGITS = 3
_LETTER_DASH_NUMBER = re.compile(r"(?<![A-Za-z0-9-])([A-Za-z]{1,3})-(\d{1,12})(?![\dA-Za-z.-])")
_ROOM = re.compile(r"(?<![\d.-])(\d{3,4})(?=室|房(?!间数|價|价))|(?<=房间|单元|單元|\d[层層])(\d{3,4})(?!\d)")
_HOUSE_PARTS = re.compile(r"(?<![\d.-])(\d{1,3})-(\d{1,3})-(\d{3,4})(?=室|房|$|[，。、,\s])")
_FRACTION = re.compile(r"(?<![\d/.])(\d{1,4})/(\d{1,4})(?![\d/.])")
_LESS_OR_GREATER = re.compile(r"([<>＜＞])\s?(?=[¥￥$]?\d)")
_NUMBER_SIGN = re.compile(r"(?:编号|編號)?(?<![A-Za-z])N[oO]\.\s?(?=\d)")
_PER_MILLE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)‰")
_GRAMS = re.compile(r"(?<=\d)\s?g(?![A-Za-z/])")

_ORDINAL_TWO = re.compile(r"(?<=第)2(?![\d.])")
_FLOOR_TWO = re.compile("(?<=[楼樓下院元])2(?=[层層门門])")
_NAMED_TWO = re.compile(
    r"(?<![\d.,:/A-Za-z-])2(?=\s?(?:日|号|號|月(?!票)|楼|樓|单元|單元|栋|棟|室|班|路|线|線|级|級|年级|年級|期"
    r"|车间|車間|折|等|手|维|維|进制|維碼|维码|分之|代|环|環))"
)
_LETTER_TWO = re.compile(r"(?<=[A-Za-z])2(?=[\u4e00-\u9fff])")
_COUNTED_TWO = re.compile(
    r"(?<![\d.,:/A-Za-z第-])(?<!分之)2(?=\s?(?:个|個|台|臺|次|位|天|年|周|週|小时|小時|分钟|分鐘|秒|元|块|塊|万|萬|千|亿"
    r"|億|百|条|條|张|張|笔|筆|件|份|只|隻|辆|輛|套|名|本|家|间|間|"
    r"双|雙|对|對|瓶|杯|盒|包|箱|种|種|项|項|步|部|支|把|片|颗|顆|首|段|米|公里|斤|公斤|吨|噸|升|倍|人|岁|歲|晚"
    r"|层|層|户|戶|页|頁|行|口|点|點|封|通|枚|届|屆|组|組|座|场|場|句|遍|趟|顿|頓|门|門|款|类|類|批|克))"
)


def prepare_quantities(text: str) -> str:
    """``text`` with dates, ranges, sums, masks and the numeral two written as wetext reads them right."""
    text = _ALL_DAY.sub("七乘二十四小时", text)
    text = _MASK.sub(_masked, text)
    text = _dates(text)
    text = _HOURS_MINUTES.sub(r"\1小时\2分钟", _MIDNIGHT.sub(r"零点\1分", text))
    text = _LEADING_ZERO.sub("", text)
    text = _SUM.sub(_sum, text).replace("元/分钟", "元每分钟")  # wetext takes 分 alone for the unit
    text = _PER_MILLE.sub(r"千分之\1", text)
    text = _HOUSE_PARTS.sub(lambda match: "杠".join(part.translate(AS_QUANTITY) for part in match.groups()), text)
    text = _ROOM.sub(lambda match: match.group().translate(AS_QUANTITY), text)
    text = _LETTER_DASH_NUMBER.sub(_letters_and_number, text)
    text = _WEEKDAYS.sub(r"\1到", text)
    text = _RANGE.sub(_range, text)
    text = _LESS_OR_GREATER.sub(lambda match: "小于" if match[1] in "<＜" else "大于", text)
    text = _NUMBER_SIGN.sub("编号", text)
    text = _MINUS.sub("负", text)
    text = _FRACTION.sub(lambda match: f"{match[2]}分之{'二' if match[1] == '2' else match[1]}", text)
    text = _GRAMS.sub("克", text)
    return _twos(text)


def _masked(match: re.Match[str]) -> str:
    follows_digits = match.string[: match.start()].endswith(_DIGITS_BEFORE)
    head = (match["head"] or "").translate(AS_QUANTITY)
    return head + ("，" if head or follows_digits else "") + (match["digits"] or match["tail"]).translate(AS_QUANTITY)


def _letters_and_number(match: re.Match[str]) -> str:
    number = match[2]
    return f"{match[1]}杠{number if len(number) < _MIN_CODE_DIGITS else number.translate(AS_QUANTITY)}"


def _dates(text: str) -> str:
    text = _FULL_DATES_BETWEEN.sub("到", text)
    text = _YEAR_MONTH_DAY.sub(_full_date, text)
    text = _EXPIRY.sub(_expiry, text)
    text = _PADDED_DATE.sub(_padded_date, text)
    text = _MONTH_YEAR.sub(lambda match: f"{match[2].translate(AS_QUANTITY)}年{int(match[1])}月", text)
    text = _YEAR_MONTH.sub(lambda match: f"{match[1].translate(AS_QUANTITY)}年{int(match[2])}月", text)
    text = _MONTH_DAY_RANGE.sub(_month_day_range, text)
    text = _MONTH_DAY.sub(_month_day, text)
    text = _MONTH_DAY_BEFORE.sub(_month_day, text)
    text = _YEARS.sub(lambda match: f"{match[1].translate(AS_QUANTITY)}到", text)
    return _YEAR.sub(lambda match: match[1].translate(AS_QUANTITY), text)


def _padded_date(match: re.Match[str]) -> str:
    """``08-08`` and ``08/08/2026``, the month first; a number with a zero before it is no end of a range."""
    if not match["year"] and match["month"][0] != "0" and match["day"][0] != "0":
        return match.group()
    in_year = f"{match['year'].translate(AS_QUANTITY)}年" if match["year"] else ""
    return f"{in_year}{int(match['month'])}月{int(match['day'])}日"


def _full_date(match: re.Match[str]) -> str:
    month, day = int(match["month"]), int(match["day"])
    if not _is_day(month, day):
        return match.group()
    return f"{match['year'].translate(AS_QUANTITY)}年{month}月{day}日"


def _month_day_range(match: re.Match[str]) -> str:
    first, last = (int(match[1]), int(match[2])), (int(match[3]), int(match[4]))
    if not (_is_day(*first) and _is_day(*last)):
        return match.group()
    return f"{first[0]}月{first[1]}日到{last[0]}月{last[1]}日"


def _month_day(match: re.Match[str]) -> str:
    month, day = int(match["month"]), int(match["day"])
    return f"{match['before']}{match['joint']}{month}月{day}日" if _is_day(month, day) else match.group()


def _expiry(match: re.Match[str]) -> str:
    year = f"20{match['year'][-2:]}".translate(AS_QUANTITY)
    return f"{match['name']}{year}年{int(match['month'])}月"


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= 31  # noqa: PLR2004 - months of a year, days of a month


def _sum(match: re.Match[str]) -> str:
    minus = "负" if match["minus"] or match["minus_inside"] else ""
    amount = match["amount"].rstrip(",").replace(",", "")
    return f"{minus}{amount}{match['scale'] or ''}{_SUMS[match['sign']]}"


def _range(match: re.Match[str]) -> str:
    """A dash between two numbers joins them, unless they are parts of a date, of a code or of a telephone number."""
    before, after = (
        match.string[max(0, match.start() - 16) : match.start()],
        match.string[match.end() : match.end() + 16],
    )
    in_code = re.search(r"[A-Za-z\d]-\d+$|[A-Za-z]\d*$", before) or re.match(r"\d+-\d", after)
    long_run = re.search(r"\d{5,}$", before) or re.match(r"\d{5,}", after)
    leading_zero = re.search(r"(?<![\d:：])0\d+$", before)
    year_month = re.search(r"(?<!\d)(?:19|20)\d\d$", before) and re.match(r"(?:0[1-9]|1[0-2])(?!\d)", after)
    if in_code or long_run or leading_zero or year_month:
        return match.group()
    return "%到" if before[-1:].isdigit() and re.match(r"\d{1,6}(?:\.\d{1,6})?[%％]", after) else "到"


def _twos(text: str) -> str:
    text = _ORDINAL_TWO.sub("二", text)
    text = _NAMED_TWO.sub("二", _FLOOR_TWO.sub("二", text))
    text = _LETTER_TWO.sub("二", text)
    return _COUNTED_TWO.sub("兩" if _TRADITIONAL.search(text) else "两", text)
