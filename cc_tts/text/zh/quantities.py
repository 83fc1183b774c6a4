"""Chinese ranges, sums and counts that wetext reads wrongly, rewritten so that it reads them right."""

import re

from cc_tts.text.substitution import rewriter
from cc_tts.text.zh.measures import STARTS_MEASURE
from cc_tts.text.zh.numbers import AS_QUANTITY, TRADITIONAL, by_digits, cardinal

_DASH = "[-~～〜–—]"

_MAX_HOUR, _MAX_MINUTE = 24, 59
_SHARE = (
    rf"(?<![\d/.A-Z])(\d{{1,4}})/(\d{{2,4}}|(?<=共\d/)\d)(?=(?:{STARTS_MEASURE}|[GM]B)(?![的次]))"
    r"(?!\s?(?:分(?![钟鐘])|[秒号號线線期日个折]))"
)
_WEEKDAYS = rf"((?:周|週|星期|礼拜|禮拜)[一二三四五六日天])\s?{_DASH}\s?(?=(?:周|週|星期|礼拜|禮拜)?[一二三四五六日天])"
_PART_OF_DAY = "(?:早|晚|凌晨|早上|上午|中午|下午|傍晚|晚上|次日|次年|次月|翌日|翌年|明年|当天|當天)"
_MEASURED = (
    "(?:(?<=[\\d%％元块塊万萬亿億千百折℃点點])|(?<=\\d[时時分日号號月年岁歲度天周期级級米克斤吨升次人页頁集章课課克寸厘])"
    "|(?<=小[时時]|分[钟鐘]|个月|個月|公[里斤]|千[克米]|[厘毫]米|毫[升克]|周岁))"
)
_RANGE = rf"{_MEASURED}\s?{_DASH}\s?(?={_PART_OF_DAY}?[¥￥$€£]?\d)"

_NO_RANGE_BEFORE = re.compile(r"[A-Za-z\d零幺一二三四五六七八九]-\d+$|[A-Za-z]\d*$|\d{5,}$|(?<![\d:：])0\d+$")
_NO_RANGE_AFTER = re.compile(r"\d+-\d|\d{5,}")
_YEAR_BEFORE = re.compile(r"(?<!\d)(?:19|20)\d\d$")
_MONTH_AFTER = re.compile(r"(?:0[1-9]|1[0-2])(?!\d)")
_PERCENTAGE_AFTER = re.compile(r"\d{1,6}(?:\.\d{1,6})?[%％]")

_SUMS = {
    "¥": "元", "￥": "元", "$": "美元", "US$": "美元", "€": "欧元", "£": "英镑", "HK$": "港元", "NT$": "新台币",
    "A$": "澳元", "AU$": "澳元", "C$": "加元", "CA$": "加元", "S$": "新加坡元", "JP¥": "日元", "₩": "韩元", "₹": "卢比",
    "₽": "卢布", "฿": "泰铢", "NZ$": "新西兰元", "₫": "越南盾", "MOP$": "澳门元",
}  # fmt: skip
_OF_MATCH = re.compile(
    "比分|险胜|大胜|完胜|战胜|击败|惜败|不敌|逆转|战平|落败|获胜|取胜|横扫|力克|半场|[首末]局|决赛|联赛|国队|\\d[赢输胜负]|反超|领先|落后|扳平|晋级|淘汰|拿下"
)
_CLAUSE_END = re.compile("[，。；、！？\n]")
_SIGN = "|".join(re.escape(sign) for sign in sorted(_SUMS, key=len, reverse=True))
_SUM = (
    rf"(?P<minus>(?<![\w)\d])[-−])?(?<![A-Za-z])(?P<sign>{_SIGN})\s?(?P<minus_inside>[-−])?(?P<amount>\d(?:,?\d)*"
    rf"(?:\.\d+)?)\s?(?P<scale>万亿|萬億|千万|千萬|百万|百萬|[万萬亿億千百])?"
    r"(?:人民币|元|美元|港元|港币|欧元|英镑|日元|\s?(?:USD|HKD|CNY|RMB|EUR|GBP|JPY)(?![A-Za-z]))?"
)
_NAMED_BEFORE = rf"(?:港[币幣]|人民[币幣]|美[元金]|欧元|英镑|日元|新?[台臺][币幣])\s?(?=(?:{_SIGN})\s?\d)"
"""The name of a currency before its sign, with which the sum is said."""
_SUM_RANGE = (
    rf"(?<![A-Za-z])(?P<sign>{_SIGN})\s?(?P<low>\d[\d,]*(?:\.\d+)?)\s?(?:{_DASH}|到|至)\s?(?P<high>\d[\d,]*(?:\.\d+)?)"
    r"(?![\d.,])(?P<scale>[万萬亿億千百])?(?:元|美元)?"
)
_MASK = (
    r"(?:(?P<head>(?<![\d.])\d{2,6})[ -]?)?(?:[*•·]{2,80}+|(?<![A-Za-z])[xX]{3,19}+)(?:[ -]?[*•·xX]{2,19}+){0,4}+"
    r"[ -]?(?P<digits>\d{2,6})(?!\d)|(?<!\d)\*(?P<tail>\d{4})(?!\d)"
)
_DIGITS_BEFORE = tuple("0123456789零幺二三四五六七八九")
_MIN_CODE_DIGITS = 3  # unmeasured
_HOUSE_PARTS = r"(?<![\d.-])\d{1,3}-\d{1,3}-\d{3,4}(?=$|[，。、,\s\u4e00-\u9fff])"
_NAMED_TWO = (
    r"(?<![\d.,:/A-Za-z-])2(?=\s?(?:日|号|號|月(?!票)|楼|樓|单元|單元|栋|棟|室|班|路|线|線|级|級|年级|年級|期"
    r"|季度|档|檔|车间|車間|折|等|手|维|維|进制|维碼|维码|分之|代|环|環|字(?!节)))"
)
_CLOCK = r"[0-5]?\d[:：][0-5]\d(?![\d:：的班场開开起到出])"
_LENGTH = (
    r"(?:(?P<before>(?:时长|時長|通话|通話|用时|用時|耗时|耗時|历时|持续|剩余|剩餘|等待|还剩|還剩|还有|還有|倒计时|倒計時|仅剩|只剩|录音|已等|成绩|最好|限时|限時|时限|运行|運行"
    rf"|共)(?:时间|時間)?[：:为為了有]?\s?)(?=\d{{1,3}}[:：][0-5]\d[:：]|(?<!通话时间)(?<!通话时间[：:为])(?<!共)(?:{_CLOCK}))"
    r"|(?<![\d:：])(?=\d{1,3}[:：]\d\d[:：]\d\d(?:之?[后後]|[内內]|以[内內])))"
    r"(?P<length>(?:\d{1,3}[:：])?\d{1,2}[:：][0-5]\d)(?![\d:：])"
)
"""How long something lasts, not at what time it is."""
_RATIO = (
    r"(?:(?<=比例|配比|比为|比是|赔率|比分)|(?<=比例[：:为是])|(?<=[比兑率]))"
    r"(?<![\d:：])(?P<first>\d{1,4})[:：](?P<last>\d{1,4})(?![\d:：])"
)
_MAX_USUAL_DENOMINATOR = 20  # unmeasured
_FRACTION = re.compile("[占佔约約近比达達的以率]")
_FULL_MARKS = ("120", "150")
_NUM_CLOCK_PARTS = 3
_TWO = 2
_THOUSANDS = (
    r"(?<![\dA-Za-z.])(?:(?P<low>\d{1,3}(?:\.\d)?)[kK]?\s?[-~～–]\s?)?(?P<high>\d{1,3}(?:\.\d)?)"
    r"(?:[kK](?=元|\+|[月年底]?薪|工资|以[上下]|左右|粉)|k(?=[，。、；！？]|$))"
)
_TENS_OF_THOUSANDS = (
    r"((?:额度|金额|贷款|保额|年薪|收入|销售额|存款|资金|预算|奖金|补贴|投资|可借|可贷|授信)[^\d，。]{0,6})"
    r"(\d{1,5}(?:\.\d{1,2})?)W(?![A-Za-z\d])"
)
_COUNTED = rf"(?![床级級楼樓安]|站台)(?:{STARTS_MEASURE})"
_SEATS = re.compile("座位|选座|登机|靠窗|靠过道")
_LISTED = r"(?:\s?(?:天|日|期|个月|折|元|档|路|号线|分(?![之钟鐘])))"
_COUNTED_TWO = rf"(?<![\d.,:/A-Za-z第-])(?<!分之)(?<!第[\d一][、到至和与及])2(?={_COUNTED})"


def _masked(match: re.Match[str]) -> str:
    head, tail = match["head"] or "", match["digits"] or match["tail"]
    is_after_digits = head or match.string[: match.start()].endswith(_DIGITS_BEFORE)
    return (f"{head}，{tail}" if is_after_digits else tail).translate(AS_QUANTITY)


def _letters_and_number(match: re.Match[str]) -> str:
    number = match[2]
    return f"{match[1]}杠{number if len(number) < _MIN_CODE_DIGITS else number.translate(AS_QUANTITY)}"


def _house_numbers(match: re.Match[str]) -> str:
    """``1-99号`` is said as 一到九十九号, ``88-1号`` as 八十八杠一号."""
    return f"{match[1]}{'到' if int(match[1]) < int(match[2]) else '杠'}{match[2]}"


def _floor(match: re.Match[str]) -> str:
    """``3F`` is said as 三楼, where no seats are spoken of."""
    return match.group() if _SEATS.search(match.string) else f"{match[1]}楼"


def _rooms(match: re.Match[str]) -> str:
    """``2301-05室`` is said as 二三零一到零五室."""
    is_range = len(match[2]) <= len(match[1])
    return f"{match[1]}{'到' if is_range else '杠'}{match[2]}".translate(AS_QUANTITY)


def _house_parts(match: re.Match[str]) -> str:
    """``12-3-502`` is said as 十二杠三杠五零二."""
    building, part, room = match.group().split("-")
    return f"{building}杠{part}杠{room.translate(AS_QUANTITY)}"


def _sum(match: re.Match[str]) -> str:
    minus = "负" if match["minus"] or match["minus_inside"] else ""
    amount = match["amount"].replace(",", "")
    return f"{minus}{amount}{match['scale'] or ''}{_currency(match)}"


def _currency(match: re.Match[str]) -> str:
    """In a text of traditional characters ``$`` is the local dollar, 元, unless America is named."""
    is_local = match["sign"] == "$" and TRADITIONAL.search(match.string) and "美" not in match.string
    return "元" if is_local else _SUMS[match["sign"]]


def _difference(match: re.Match[str]) -> str:
    return match.group().replace("-", "减").replace("−", "减")


def _sum_range(match: re.Match[str]) -> str:
    """``¥100-200`` is said as 一百到两百元, ``¥3,999-500`` as 三千九百九十九减五百元."""
    low, high = (match[name].replace(",", "") for name in ("low", "high"))
    is_range = match["scale"] or float(low) < float(high)
    return f"{low}{'到' if is_range else '减'}{high}{match['scale'] or ''}{_currency(match)}"


def _range(match: re.Match[str]) -> str:
    """A dash between two numbers joins them, unless they are parts of a date, of a code or of a telephone number."""
    before = match.string[max(0, match.start() - 16) : match.start()]
    after = match.string[match.end() : match.end() + 16]
    if _NO_RANGE_BEFORE.search(before) or _NO_RANGE_AFTER.match(after):
        return match.group()
    if _YEAR_BEFORE.search(before) and _MONTH_AFTER.match(after):
        return match.group()
    return "%到" if before[-1:].isdigit() and _PERCENTAGE_AFTER.match(after) else "到"


def _length(match: re.Match[str]) -> str:
    """``02:15:30`` becomes 2小时15分30秒, ``01:30`` 1分30秒, ``02:00:00`` 2小时."""
    numbers = [int(each) for each in re.split("[:：]", match["length"])]
    hours, minutes, seconds = [0] * (_NUM_CLOCK_PARTS - len(numbers)) + numbers
    units = ((hours, "小时"), (minutes, "分" if seconds else "分钟"), (seconds, "秒"))
    said = "".join(f"{'两' if number == _TWO else number}{unit}" for number, unit in units if number) or "0秒"
    return f"{match['before'] or ''}{said}"


def _score(match: re.Match[str]) -> str:
    """``25-21`` where a match is spoken of, and ``112-108``, which is no range."""
    first, mark, last = match.groups()
    clause = _CLAUSE_END.split(match.string[: match.start()])[-1] + _CLAUSE_END.split(match.string[match.end() :])[0]
    is_score = _OF_MATCH.search(clause) or (int(first) > int(last) and len(last) > 1)
    return match.group().replace(mark, "比") if is_score else match.group()


def _scores(match: re.Match[str]) -> str:
    """``25:22、23:25`` are scores, as one of them is no time of day, and ``25-22、23-25``, as one is no range."""
    mark = match["mark"]
    pairs = [each.strip().split(mark) for each in re.split("[、，,]", match.group())]
    if mark == ":":
        is_other = all(
            int(first) <= _MAX_HOUR and len(last) == len("00") and int(last) <= _MAX_MINUTE for first, last in pairs
        )
    else:
        is_other = all(int(first) <= int(last) for first, last in pairs)
    return match.group() if is_other else match.group().replace(mark, "比")


def _pair(match: re.Match[str]) -> str:
    """``135/88``, of blood pressure, is no fraction, because fractions are smaller than one, nor is ``170/171``."""
    first, last = int(match[1]), int(match[2])
    if len(match[2]) >= len("170") and (last == first + 1 or first > last):
        return f"{match[1]}、{match[2]}".translate(AS_QUANTITY)
    return f"{cardinal(match[1])}，{match[2]}" if first > last else match.group()


def _mark(match: re.Match[str]) -> str:
    """``4.5/5`` is a mark, ``5.0/4.8`` two values."""
    is_mark = float(match[1]) <= float(match[2])
    return f"{match[1]}分，满分{match[2]}分" if is_mark else f"{match[1]}，{match[2]}"


def _share(match: re.Match[str]) -> str:
    """``3/100条`` are three of 100, ``4419/4420次`` two trains."""
    first, last = match.groups()
    is_share = int(first) <= int(last) and not (int(last) == int(first) + 1 and len(first) > len("99"))
    return f"{first}，共{last}" if is_share else match.group()


def _fraction_or_share(match: re.Match[str]) -> str:
    """``3/4`` is a fraction; ``5/486``, with a number that few fractions have below, is five of 486."""
    above, below = match.groups()
    behind = match.string[match.end() : match.end() + 1]
    if (
        int(above) == 1
        or int(below) <= _MAX_USUAL_DENOMINATOR
        or below in ("100", "1000")
        or _FRACTION.search(match.string[max(0, match.start() - 2) : match.start()] + behind)
    ):
        return f"{below}分之{'二' if above == '2' else above}"
    whole = "满分" if below in _FULL_MARKS else "" if behind.isascii() and behind.isalpha() else "共"
    return f"{above}，{whole}{cardinal(below) if whole == '满分' else below}"


def _thousands(match: re.Match[str]) -> str:
    """``10k`` becomes 10000, ``1.5k`` 1500, ``10-15k`` both."""
    low, high = match["low"], match["high"]
    return "到".join(str(round(float(each) * 1000)) for each in (low, high) if each)


prepare_quantities = rewriter(
    (r"(?<![\d/])(?:24\s?/\s?7|7\s?[×xX*]\s?24|24\s?[×xX*]\s?7)(?:小时|小時|h)?(?![\d/])", "七乘二十四小时"),
    (r"(?<![\dA-Za-z.-])(12|24|36|48|72)H(?![A-Za-z\d])", r"\1小时"),
    (_MASK, _masked),
    (
        "(?<=[：:（(人名方向给給由与和](?!按|[长底宽高]\\*[长宽高深厚])[\u4e00-\u9fff])\\*(?=[\u4e00-\u9fff])",
        "某",
    ),  # a name: 王*明
    (
        r"(?<=[\u4e00-\u9fff《“])(?:[×＊]{2,3}(?![\d×])|×(?=先生|女士|同学|老师))",
        lambda match: "某" * len(match.group()),
    ),
    (
        r"(?<![\d:：])(\d{1,2})[:：]([0-5]\d)\.(\d{1,2})(?![\d.])",
        lambda match: f"{match[1]}分{int(match[2])}秒{match[3].translate(AS_QUANTITY)}",
    ),  # of a race
    (
        r"(?:(?<=[周週][一二三四五六日天])|(?<=星期[一二三四五六日天])|(?<=[礼禮]拜[一二三四五六日天]))(?=\d\d|\d-)",
        "，",
    ),
    (r"(?<![\d共])\d{4,6}(?=期(?![间間限]))", by_digits),
    (r"(?:(?<=kWh)|(?<=\d[Lg升克]))\s?/\s?(?=100\s?(?:km|公里|g|克|m[Ll]|毫升))", "每"),
    (_RATIO, r"\g<first>比\g<last>"),
    (r"(?<=\d[%％])[:：](?=\d)", "比"),
    (r"(?<=\d[:：]\d\d)\s?[-–—]\s?(?=[\u4e00-\u9fff]{2})(?!次[日年])", "到"),
    (r"(?<=\d[:：]\d\d)/(?=\d{1,2}[:：]\d\d(?!\d))", "，"),
    (
        r"(?<=[×÷*乘][（(])(\d[\d.,]*)[-−](\d[\d.,]*)(?=[)）%％])|(?<=[（(])(\d[\d.,]*)[-−](\d[\d.,]*)(?=[)）][^，。；]?[×÷*=])",
        _difference,
    ),
    (
        r"(?<=[栋棟幢座楼樓])-(\d{1,2})-(\d{3,4})(?![\d-])",
        lambda match: f"，{match[1]}，{match[2].translate(AS_QUANTITY)}",
    ),
    (_LENGTH, _length),
    (r"(?<=[满滿券])(\d{1,6})-(?=\d{1,5}(?![\d.-]))", r"\1减"),
    (r"(?:(?<=\d[日號号])|(?<=/\d\d)|(?<=/\d))[（(](?=[一二三四五六日][）)])", "（周"),
    (r"\d{3,4}(?:[、和与及]\d{3,4}){1,5}(?=[两二三四五几这]间|[号號](?:房|[）)。，；]|$))", by_digits),
    (
        r"(?<![\d.-])(?<!\d[:：])(?=\d{1,3}(?P<mark>[:-]))\d{1,3}[:-]\d{1,3}(?:(?:、|[，,]\s?)\d{1,3}(?P=mark)\d{1,3}){1,9}(?![\d:：.-])",
        _scores,
    ),
    (r"(?:(?<=[女男国][排足篮籃])|(?<=[队隊]))(\d{1,3})-(?=\d{1,3}(?![\d.-]))", r"\1比"),
    (r"(?<!\d)20(?=[Xx]{2}年)", "二零"),
    (r"(?<![\d.])(?<!第)(?:[5-9]5|05)(?=[后後](?![\d天]))", by_digits),
    (r"(?<![\d.])[1-9]{2}(?=折|VIP|同城)|(?<=台北)101", by_digits),
    (_THOUSANDS, _thousands),
    (
        (
            r"(?<=[¥￥$€£])(?:(?P<low>\d{1,3}(?:\.\d{1,2})?)[kK]?\s?[-~～–]\s?)?"
            r"(?P<high>\d{1,3}(?:\.\d{1,2})?)[kK](?![A-Za-z\d])"
        ),
        lambda match: _thousands(match).replace("到", "-"),
    ),
    (_TENS_OF_THOUSANDS, r"\1\2万"),
    (_SHARE, _share),
    (
        r"(?<=\d)(h|min|s|[km]?g|[cmk]?m|m?[lL]|[GM]B)\s?(?:[~～〜–—]\s?(?=\d)|-(?=\d{1,6}(?:\.\d{1,3})?\s?\1(?![A-Za-z])))",
        r"\1到",
    ),
    (r"(?<=[A-Za-z\d_]\[)(-?\d{1,3}):(-?\d{1,3})(?=\])", r"\1到\2"),
    (r"(?<!\d)(?:[012]\d|9\d)(?=年(?:1[0-2]|0?[1-9])月)", by_digits),
    (r"(?<![\d:：])0?0[:：]00(?![\d:：])", "零点"),
    (r"(?<![\d:：])0?0[:：]([0-5]\d)(?![\d:：])", r"零点\1分"),
    (r"(?<![\dA-Za-z])(\d{1,3})\s?h\s?(\d{1,2})\s?m(?:in)?(?![A-Za-z])", r"\1小时\2分钟"),
    (r"(?<![\d.:：/-])0(?=\d[月日时時点點])|(?<=月)0(?=\d[号號])", ""),
    (r"\$\s?(?=\d[\d,]*(?:\.\d{1,2})?[蚊塊])", ""),
    (_NAMED_BEFORE, ""),
    (r"(?<=[\d万亿])\s?([€£฿₩₹₽₫]|[¥￥](?!\s?\d))", lambda match: _SUMS[match[1]]),
    (_SUM_RANGE, _sum_range),
    (_SUM, _sum),
    (r"(?<=\d)\.00(?=[%％元块]|美元|港元|欧元|英镑|人民币)", ""),
    (r"(?<=\d)[wW](?=\+|元|用户|粉丝)|(?<=\d)(?<!\d{4})w(?![A-Za-z\d])", "万"),
    (r"(?<=\d{4})w(?![A-Za-z\d])", "瓦"),
    (r"(?a)(?<=[A-Za-z])\d{1,2}(?=[shmg](?![A-Za-z\d]))", lambda match: cardinal(match.group())),  # K8s
    (
        r"(?<=[\d万]元|\w[费費金价])\s?/\s?(?=\d{1,4}(?:\.\d)?\s?(?:小时|分钟|天|日|个月|年|公里|千克|公斤|[kK]?[gmMGL]|斤|次|条|度))",
        "每",
    ),
    (r"(?<=[床座货][位号架])(\d{1,3})-(?=\d{1,4}(?![\d.-]))", r"\1杠"),
    (
        r"(?<![\d.])(\d+(?:\.\d+)?)‰(/(?=[年月周日天季期次笔]))?",
        lambda match: f"千分之{match[1]}{'每' if match[2] else ''}",
    ),
    ("(?<=[区排位栋层楼架列柜座室号])-(?=[12][层層楼樓](?!-))", "负"),
    (
        r"(?<=[区排位栋层楼架列柜座室号])-(?:(\d{1,2})|(\d{3,4}))(?=[区排位栋层楼架列柜座室号])",
        lambda match: match[1] or match[2].translate(AS_QUANTITY),
    ),
    (
        r"((?:语文|数学|英语|物理|化学|生物|历史|地理|政治|得分|成绩|分数|评分|考了)[：:为是]?\s?)(\d{1,3})/(\d{2,3})(?![\d/.名])",
        lambda match: f"{match[1]}{cardinal(match[2])}，满分{cardinal(match[3])}",
    ),
    (_HOUSE_PARTS, _house_parts),
    (r"(?<![\d-])(?:\d{1,2}-){2}\d{1,2}(?![\d-])", lambda match: match.group().replace("-", "，")),
    (r"(?<![\d.-])(\d{1,3})-(?=[A-Z][栋棟座幢楼樓室区區门門户戶])", r"\1杠"),
    (r"(?<=[图圖表式例])(\d{1,3})-(?=\d{1,3}(?![\d.页頁-]))", r"\1杠"),
    (r"(?<=[A-Za-z])(\d{1,3})-(?=\d{1,4}[号號柜室座栋口区]|\d{1,6}[A-Z])", r"\1杠"),
    (r"(?<=\d[A-Z])-(?=\d{1,4}(?![\dA-Za-z]))", "杠"),
    (r"(?<=\d)#(?=[\u4e00-\u9fff])", "号"),
    (r"(?<![\d/])(\d{1,2})/(\d{1,2})F(?![A-Za-z\d])", r"\1，共\2层"),
    (r"(?<![\dA-Za-z./车車改])([1-9]\d?)/?F(?![A-Za-z\d/座号席排])", _floor),
    (r"(?<![\d.])\d{3,4}(?=次(?:列[车車]|[火快动動]车|自強|莒光|區間|直达))", by_digits),
    (r"(?<=[路街巷弄道])(\d{1,4})-(\d{1,4})(?=号)", _house_numbers),
    (r"(?<![\d.-])([1-9]\d{2,3})[-~～](\d{2,4})(?=[号號]?[室房])", _rooms),
    (r"(?<![A-Za-z0-9-])([A-Za-z]{1,3})-(\d{1,12})(?![\dA-Za-z.-])", _letters_and_number),
    (r"(?a)(?<=[A-Za-z]-)(\d{1,2})-(\d{1,2})(?![\d.])", r"\1 \2"),  # claude-3-5
    (r"(?a)(?<![A-Za-z\d-])([A-Za-z]{2,20})-(?=\d{1,3}(?!\d))", r"\1 "),  # GPT-4o
    (rf"(?<![\d.:：-])(\d{{1,3}})\s?([-–—])\s?(\d{{1,3}})(?![\d.:：%％月日号折室-])(?!{_COUNTED})", _score),
    (_WEEKDAYS, r"\1到"),
    (_RANGE, _range),
    (r"(?<![\d.,:：/-])0\d+(?![\d.:：/])", by_digits),
    (r"(?<![\d.,:：/-])0\d+\.\d+(?![\d.:：/])", lambda match: by_digits(match).replace(".", "点")),
    (r"[<＜]\s?(?=[¥￥$]?\d)", "小于"),
    (r"[>＞]\s?(?=[¥￥$]?\d)", "大于"),
    (
        r"(?<=[区區座栋棟楼樓层層号號院园城厦场苑府元室库馆教阶一二三四五六七八九十])-(\d{3,4})(?=[，。；、）)室]|教室|$)",
        lambda match: f"杠{match[1].translate(AS_QUANTITY)}",
    ),
    (r"(?<=[零幺一二三四五六七八九])(?:-\d{1,3}){1,3}(?![\d.-])", lambda match: match.group().replace("-", "杠")),
    (r"(?a)(?<![\w)）])[-−](?=\d)", "负"),
    (r"(?<![\d./])(\d{2,4})/(\d{2,4})(?![\d./])", _pair),
    (r"(?<=\d)\s?m(\d\d)(?![\dA-Za-z])", lambda match: f"米{match[1].translate(AS_QUANTITY)}"),
    (r"(?<=\d[米秒])\d\d(?![\d.]|[厘公毫]|[\u4e00-\u9fff]米)", by_digits),
    (r"(?<![\d.A-Za-z])\d{3,4}(?=[Pp](?![A-Za-z]))", by_digits),
    (r"(?<=[\dmgkKlLG米寸元块塊克斤升吨人位晚天月年件箱瓶粒片盒包袋张個个次度条台支])\s?[*xX×]\s?(?=\d)", "乘"),
    (r"(?<=\d)\.(?=[xX](?![A-Za-z\d]))", "点"),
    (r"(?<=[A-Za-z])\.(?=\d)", ""),
    (r"(?<![\d/.])(\d{1,3}\.\d{1,2})/(\d{1,3}(?:\.\d)?)(?![\d/.A-Za-z]|[%％℃])", _mark),
    (r"(?<=[A-Z])(\d{1,4})/(?=\d{1,4}次)", r"\1、"),
    (r"(?<![\d/.])(\d{1,3}(?:\.\d)?)/(?=\d{1,3}(?:\.\d)?\s?(?:℃|摄氏度))", r"\1到"),
    (rf"(?<![\d/.])\d{{1,6}}(?:/\d{{1,6}}){{1,5}}(?={_LISTED})", lambda match: match.group().replace("/", "、")),
    (  # prices
        r"(?<![\d.、])1(?:1[0-249]|2[02])(?=(?:、\d{1,6}){1,5}元)|(?<=\d、)1(?:1[0-249]|2[02])(?=(?:、\d{1,6}){0,5}元)",
        lambda match: cardinal(match.group()),
    ),
    (
        r"(?<![\d/.])\d{1,6}(?:/\d{1,6}){2,5}(?![\d/.])|(?<=[A-Za-z]{2})\d{1,3}/\d{1,3}(?![\d/.%％])",
        lambda match: match.group().replace("/", "、"),
    ),
    (r"((?:(?:第|步骤|步驟|进度|阶段)|(?:排名|名次|位[次列])[：:为是]?)\s?\d{1,4})/(?=\d{1,6}(?![\d/.]))", r"\1，共"),
    (r"(?<!\d)(\d{1,3})/(\d{1,3})([页頁][，,\s]{0,2}共\2[页頁])", r"第\1\3"),
    (r"(?<=[A-Za-z]{3}\s)(\d{1,4})/(\d{1,4})(?![\d/.])", r"\1、\2"),  # Windows 95/98
    (r"(?<![\d/.])(\d{1,4})/(\d{1,4})(?![\d/.])", _fraction_or_share),
    (r"(?<=\d)\s?g(?![A-Za-z/])", "克"),
    (
        r"(?<!\d)2(?=室\d[厅廳]|梯\d[户戶]|[大双雙]床)|(?<![\d月.])2(?=日[后後内內](?!\d))|(?<=[每逾满滿超近约約])2(?=日)|(?<=室)2(?=[厅廳])|(?<=[厅廳])2(?=[卫衛])|(?<=[分共])2(?=期)|(?<!\d)2(?=大\d{1,2}小)|(?<=\d大)2(?=小)|(?<=大)2(?=小[，。；、]|小$)",
        "两",
    ),
    (r"(?<=[\u4e00-\u9fff]) ?[x×](?=\d{1,3}(?![\dA-Za-z.×x]))", "乘"),
    (rf"(?<![\d.,:/负下-])2(?=[到至]\d{{1,2}}{_COUNTED})", "两"),
    (
        r"(?<![\d.])2(?=[组組]的?(?:组长|組長|成员|成員|同事|同学|队长))|(?<=[是在到由归属])2(?=[组組])",
        "二",
    ),
    (
        r"(?<=零下)2(?![\d.])|(?<=[件录錄案项項骤題题则則款表图圖])2(?=[对對])|(?<=负)2(?![\d.])|(?<=第)2(?![\d.])|(?<=[楼樓下院元座于在到去])2(?=[层層门門])|(?<=[东南西北東])2(?=[门門口区區环環])|(?<!\d)2(?=[合选選比座期]\d)",
        "二",
    ),
    (r"(?<=\d)\s?min(?![A-Za-z])", "分钟"),
    (_NAMED_TWO, "二"),
    (_COUNTED_TWO, lambda match: "兩" if TRADITIONAL.search(match.string) else "两"),
)
"""Ranges, sums, masks and the numeral two written as wetext reads them right."""
