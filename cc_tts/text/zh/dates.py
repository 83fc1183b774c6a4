"""Chinese days, months and years, and spans of them, as wetext reads them right."""

import re

from cc_tts.text.substitution import rewriter
from cc_tts.text.zh.numbers import AS_QUANTITY, TRADITIONAL, by_digits

_DASH = "[-~～〜–—]"
_LONGEST_MONTH = 31
_DATE = (
    r"(?<![\d./-])(?P<year>(?:19|20)\d\d)(?P<mark>[./-])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?![\d./]"
    r"|-\d)(?:日(?!\w))?"
)
_DAYS_OF = "(?:活动|活動|假期|放假|展期|活动时间|时间|日期|期间|档期|自|从|(?<![等大小低高多少])[於于])"
_NO_MEASURE = r"(?=$|[^\w.%％~～〜–—\s-]|起|期间|放假|全场|每|举|开|之?[前后])"
_DOTTED_DAY = r"(1[0-2]|0?[1-9])\.([12]\d|3[01]|0?[1-9])(?:日|号)?"
_EXPIRY = (
    r"(?P<name>(?:有效期|到期|过期)[限至到日为為是係：: ]{0,3})(?P<month>0[1-9]|1[0-2])/(?P<year>\d\d|20\d\d)(?![\d/])"
)
_CARD = re.compile("[卡咭]")
_TWO_DIGITS = r"(?P<month>0[1-9]|1[0-2])(?P<mark>[-/])(?P<day>0[1-9]|[12]\d|3[01])"
_PADDED_DATE = rf"(?<![\d.:：/-]){_TWO_DIGITS}(?:(?P=mark)(?P<year>(?:19|20)\d\d))?(?![\d.:：/-])"
_COUNTED = "(?:[天层層件页頁条條张張份集户戶组組名个個桌间間台臺](?!人)|次(?!日)|人(?!工))"
_ON = (
    "截止|截至|日期|生日|时间|時間|(?<![等大小低高多少])[于於]|[在到至自从從喺]|(?<!每)日|[今明昨后後前尋聽][天日晚早]"
)
_MONTH_DAY = rf"(?P<before>(?:{_ON})[是为為係：: ]{{0,2}})(?P<month>\d{{1,2}})/(?P<day>\d{{1,2}})(?![\d/]|{_COUNTED})"
_DAYS_OF_MONTH = rf"(?<![\d/.])(1[0-2]|[1-9])/([12]?\d)\s?{_DASH}\s?([12]?\d|3[01])(?![\d/:：.%]|{_COUNTED})"
_MONTH_DAY_RANGE = rf"(?<![\d/])(\d{{1,2}})/(\d{{1,2}})\s?(?:{_DASH}|到|至)\s?(\d{{1,2}})/(\d{{1,2}})(?![\d/])"
_EITHER_DAY = (
    r"(?<![\d./¥￥$€£])(?P<month>1[0-2]|[1-9])\.(?P<day>\d{1,2})(?P<or>\s?(?:还是|還是|或者?|、|和|及)\s?)"
    r"(?P<last_month>1[0-2]|[1-9])\.(?P<last_day>\d{1,2})(?![\d.%％元块折倍分米公厘英克斤版])"
)
_DEED = "[办提下申预签投支消开激挂报购][理交单请约收保付费通活失修买]"
_DAY_OF_DEED = rf"(?P<before>[在于於您])(?P<month>1[0-2]|[1-9])\.(?P<day>\d{{1,2}})(?={_DEED})"
_EVENT = (
    "送达|入住|离店|離店|退房|到期|截止|截至|出发|出發|起飞|起飛|开庭|开学|开课|开考|扣款|还款|复诊|就诊|发车|过期|停诊|停水|停电|返程"
    "|退票|活动|大促|购物节|购物狂欢|狂欢节|促销|举行|举办|回来|返回|开售|上线|开业|发布|开始|结束"
)
_BOOKED = re.compile(
    rf"{_EVENT}|[订訂走来來]|到店|发货|發貨|航班|哪[天日]|[几幾][号號]|回来|开会|上门|改[期到]|办理|面试"
)
_DAY_OF_EVENT = (
    r"(?P<before>(?<![\d./-])(?<!\d[:：])|(?<=:\d\d-))(?P<month>1[0-2]|0?[1-9])(?P<mark>[./]|-(?=[12]\d|3[01]))(?P<day>3[01]|[12]\d|0?[1-9])"
    rf"(?=之?前(?!分之)|(?:(?<=/\d)|(?<=/\d\d))(?:之?[后後]|起(?!步))(?!\w*分之)|{_EVENT}"
    r"|(?:凌晨|早上|上午|中午|下午|傍晚|晚上|当天|当日)(?!分之)|(?<=/\d)\s?\d{1,2}:\d\d|(?<=/\d\d)\s?\d{1,2}:\d\d|(?<=[.-]\d\d)\s\d{1,2}:\d\d|(?<=\.\d)\s\d{1,2}:\d\d)"
)
_OF_YEAR = "(?:财年|財年|财政年度|学年|學年|年度|赛季|賽季|年(?![薪利费費龄齡]))"
_OF_EVENT = (
    "[级級](?!别|別)|春[夏晚节運运季]|[夏秋冬]季|新款|款|版(?!本)|届|中国|全国|全球|世界|国际|亚运|奥运"
    "|欧洲杯|校招|考研|高考|国考|新年|双(?:1|十)|国庆|元旦|跨年|[“《「]"
)
_HOLIDAY = (
    r"(?P<before>(?:除夕|春节|元旦|元宵|清明|端午|中秋|国庆|重阳|七夕|冬至|腊八|小年|初[一二三四五六七八九十]|[\u4e00-\u9fff]节|[周週][一二三四五六日天]"
    rf"|星期[一二三四五六日天]|[今明昨后][天日])[（(])(?P<month>\d{{1,2}})[./](?P<day>\d{{1,2}})"
    rf"(?:{_DASH}(?P<last_month>\d{{1,2}})[./](?P<last_day>\d{{1,2}}))?(?=[)）])"
)
_DAY_BEFORE_WEEKDAY = (
    r"(?P<before>(?<![\d./]))(?P<month>\d{1,2})[./](?P<day>\d{1,2})"
    r"(?=\s?[（(]?(?:[周週]|星期|礼拜|禮拜)[一二三四五六日天])"
)
_MONTH_OF_YEAR = r"(?:1[0-2]|0?[1-9])(?![\d./-])"
_YEARS_AND_MONTHS = (
    rf"(?<![\d./-])(?P<year>(?:19|20)\d\d)(?P<mark>[./])(?P<month>1[0-2]|0?[1-9])(?:\s?(?:{_DASH}|到|至)\s?"
    rf"(?P<last_year>(?:19|20)\d\d)(?P=mark)(?P<last_month>{_MONTH_OF_YEAR})"
    rf"|(?![\d./])(?=起|前|后|止|底|初|入职|生效|更新|发布|上线|至今|期间|毕业|开始|出生|[)）]|{_DASH}[至今现]))"
)
_SHORT_YEAR = (
    r"(?<![\d./A-Za-z-])(?P<year>2\d)(?P<mark>[./-])(?P<month>1[0-2]|0?[1-9])(?P=mark)(?P<day>3[01]|[12]\d|0?[1-9])"
    r"(?![\d./版-])"
)
_SURELY_DAY = 10
"""The third number of a version is seldom larger."""
_DATE_WORD = re.compile("(?:日期?|[于於至到从自在]|截止|生日|时间|開始|开始)[：:为是]?$")
_SINCE = re.compile("起(?!步)|前|止|生效|到期|至今|入职|开始")
_PROGRAM = re.compile(r"(?:版|系统|更新|升级|固件|软件|程序|安卓|APP|App|OS)")


def _padded_date(match: re.Match[str]) -> str:
    """``08-08`` and ``08/08/2026`` are days, the month first; a number with a zero before it is no end of a range."""
    if not match["year"] and match["month"][0] != "0" and match["day"][0] != "0":
        return match.group()
    in_year = f"{match['year'].translate(AS_QUANTITY)}年" if match["year"] else ""
    return f"{in_year}{int(match['month'])}月{int(match['day'])}日"


def _full_date(match: re.Match[str]) -> str:
    month_and_day = _day(match["month"], match["day"])
    return f"{match['year'].translate(AS_QUANTITY)}年{month_and_day}" if month_and_day else match.group()


def _month_day_range(match: re.Match[str]) -> str:
    first, last = _day(match[1], match[2]), _day(match[3], match[4])
    return f"{first}到{last}" if first and last else match.group()


def _days_of_month(match: re.Match[str]) -> str:
    """``11/27~30`` are days of a month."""
    month, first, last = match.groups()
    return f"{month}月{first}日到{last}日" if 0 < int(first) < int(last) else match.group()


def _either_day(match: re.Match[str]) -> str:
    """``3.28还是3.29`` are days where something is booked."""
    first, last = _day(match["month"], match["day"]), _day(match["last_month"], match["last_day"])
    return f"{first}{match['or']}{last}" if first and last and _BOOKED.search(match.string) else match.group()


def _dotted_days(match: re.Match[str]) -> str:
    last = f"到{_day(match[4], match[5])}" if match[4] else ""
    return f"{match[1]}{_day(match[2], match[3])}{last}"


def _month_day(match: re.Match[str]) -> str:
    month, day = match["month"], match["day"]
    said = _day(month, day) or _day(day, month)
    return f"{match['before']}{said}" if said else match.group()


def _day(month: str, day: str) -> str:
    """Return the day in words; empty if there is no such day."""
    is_day = 1 <= int(month) <= 12 and 1 <= int(day) <= 31  # noqa: PLR2004 - months of a year, days of a month
    return f"{int(month)}月{int(day)}日" if is_day else ""


def _holiday(match: re.Match[str]) -> str:
    last = f"到{_day(match['last_month'], match['last_day'])}" if match["last_day"] else ""
    said = _day(match["month"], match["day"])
    return f"{match['before']}{said}{last}" if said and last != "到" else match.group()


def _years_and_months(match: re.Match[str]) -> str:
    first = f"{match['year'].translate(AS_QUANTITY)}年{int(match['month'])}月"
    if not match["last_year"]:
        return first
    return f"{first}到{match['last_year'].translate(AS_QUANTITY)}年{int(match['last_month'])}月"


def _short_year(match: re.Match[str]) -> str:
    """``24.2.29`` is a day, unless it is the version of a program."""
    before = match.string[max(0, match.start() - 8) : match.start()]
    is_day = (
        _DATE_WORD.search(before)
        or _SINCE.match(match.string, match.end())
        or match["mark"] == "/"
        or (match["mark"] == "." and int(match["day"]) >= _SURELY_DAY and not _PROGRAM.search(before))
    )
    said = _day(match["month"], match["day"]) if is_day else ""
    return f"{match['year'].translate(AS_QUANTITY)}年{said}" if said else match.group()


def _old_year(match: re.Match[str]) -> str:
    """``79/05/12`` is in the year 79 of Taiwan, where the text is traditional, else in 1979."""
    of_taiwan = len(match["year"]) > len("79") or TRADITIONAL.search(match.string)
    year = match["year"] if of_taiwan else match["year"].translate(AS_QUANTITY)
    return f"{year}年{_day(match['month'], match['day'])}"


def _expiry(match: re.Match[str]) -> str:
    """``12/31`` is the month and the year of a card, as is ``09/27`` with its zero, and a day of anything else."""
    year = match["year"]
    is_day = int(year) <= _LONGEST_MONTH and match["month"][0] != "0" and not _CARD.search(match.string)
    return match.group() if is_day else f"{match['name']}20{year[-2:]}年{int(match['month'])}月"


say_days = rewriter(
    (_HOLIDAY, _holiday),
    (_DAY_BEFORE_WEEKDAY, _month_day),
    (r"(?P<before>(?:^|(?<=[。.\n]))\s?)(?P<month>1[0-2]|0[1-9])-(?P<day>3[01]|[12]\d)(?=,\s)", _month_day),
    (_YEARS_AND_MONTHS, _years_and_months),
    (_SHORT_YEAR, _short_year),
    (
        r"(?<![\d/.])(?P<year>[3-9]\d|1[01]\d)/(?P<month>0[1-9]|1[0-2])/(?P<day>0[1-9]|[12]\d|3[01])(?![\d/.])",
        _old_year,
    ),
    (
        rf"(?<![\d./])((?:19|20)?\d\d)/(\d\d)(?={_OF_YEAR})",
        lambda match: f"{match[1]}到{match[2]}".translate(AS_QUANTITY),
    ),
    (
        rf"({_DAYS_OF}[：:为]?\s?){_DOTTED_DAY}(?:\s?(?:{_DASH}|到|至)\s?{_DOTTED_DAY})?{_NO_MEASURE}",
        _dotted_days,
    ),
    (
        (
            rf"()(?<![\d.¥￥$])(?=\d{{1,2}}\.(?:\d\d{_DASH}\d{{1,2}}\.\d|\d{_DASH}\d{{1,2}}\.\d\d)(?!\d))"
            rf"{_DOTTED_DAY}{_DASH}{_DOTTED_DAY}{_NO_MEASURE}"
        ),
        _dotted_days,
    ),  # decimals in a range have as many places
    (rf"(?<=\d)\s?{_DASH}\s?(?=(?:19|20)\d\d[./-]\d{{1,2}}[./-]\d)", "到"),
    (_DATE, _full_date),
    (_EXPIRY, _expiry),
    (_PADDED_DATE, _padded_date),
    (
        r"(?<![\d.:：/-])(0[1-9]|1[0-2])[-/]((?:19|20)\d\d)(?![\d.:：/-])",
        lambda match: f"{match[2].translate(AS_QUANTITY)}年{int(match[1])}月",
    ),
    (
        r"(?<![\d./-])((?:19|20)\d\d)/(0[1-9]|1[0-2])(?![\d/])",
        lambda match: f"{match[1].translate(AS_QUANTITY)}年{int(match[2])}月",
    ),
    (_EITHER_DAY, _either_day),
    (_MONTH_DAY_RANGE, _month_day_range),
    (_DAYS_OF_MONTH, _days_of_month),
    (_MONTH_DAY, _month_day),
    (
        rf"(?P<before>(?<![\d./~～-])(?<![占约約近比过過达達率])(?<!不到))(?P<month>1[0-2]|0?[1-9])/(?P<day>1[3-9]|2\d|3[01])(?![\d./~～-]|[的以之左]|号线|號線|{_COUNTED})",
        _month_day,
    ),  # of fractions only those with small numbers are usual
    (
        rf"(?P<before>(?<![\d./比]))(?P<month>1[0-2])/(?P<day>0?[1-9])(?![\d./]|[的以]|{_COUNTED})",
        _month_day,
    ),  # no fraction is so large
    (
        r"(?P<before>(?<![\d./]))(?P<month>1[0-2]|[1-9])/(?P<day>\d{1,2})(?=\s\d{1,2}(?:[:：点點]|-\d{1,2}[点點]))",
        _month_day,
    ),
    (_DAY_OF_EVENT, _month_day),
    (_DAY_OF_DEED, _month_day),
    (
        rf"(?<!\d)((?:1[5-9]|20)?\d\d)\s?{_DASH}\s?(?=(?:1[5-9]|20)?\d\d{_OF_YEAR})",
        lambda match: f"{match[1].translate(AS_QUANTITY)}到",
    ),
    (
        rf"(?<![\d.,])(?:1[5-9]\d\d|2[01]\d\d)(?={_OF_EVENT}|年(?!薪|利|费|費)|{_OF_YEAR})|(?<!\d)\d\d(?=年度)",
        by_digits,
    ),
)
"""Days and months in a form that the rules behind this and wetext read right."""
