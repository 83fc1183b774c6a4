"""Chinese numbers that name something are said digit by digit, 1 as 幺: telephones, cards, codes, order numbers.

wetext does this for mobile numbers without separators and for short service numbers only, and reads others as
quantities.
"""

import re

from cc_tts.text.characters import digit_groups
from cc_tts.text.substitution import rewriter
from cc_tts.text.zh.measures import STARTS_MEASURE
from cc_tts.text.zh.numbers import AS_NAME, AS_QUANTITY
from cc_tts.text.zh.signs import ADDRESS_SIGNS

_LONG = 7
"""The fewest digits with which a number without a unit is a name; the shortest telephone numbers of subscribers have as
many.
"""
_PHONE_GROUPS = {7: (3, 4), 8: (4, 4), 10: (3, 3, 4), 11: (3, 4, 4)}

_EXTENSION = r"(?:\s?(?:转|轉|分机|分機|-)\s?(?P<extension>\d{1,6}))?(?!\d)"
_COUNTRY = r"(?P<country>(?:\+|00)\d{2,3}[ -]?)"
_PHONE_NUMBERS = (
    rf"{_COUNTRY}?(?P<number>1[3-9]\d[ -]?\d{{4}}[ -]?\d{{4}})",
    rf"{_COUNTRY}?(?P<number>[（(]0\d{{1,3}}[)）][ -]?\d{{3,4}}[ -]?\d{{4}}|0\d{{1,3}}[ -]\d{{3,4}}[ -]?\d{{4}})",
    r"(?P<number>0\d{2,3}-(?:95|96|10|12)\d{3})",
    r"(?P<country>(?:\+|00-?)\d{1,3}[ -])(?P<number>\(?\d{1,4}\)?(?:[ -]\d{2,8}){1,4}|\d{7,11})",
    r"(?P<country>\+\d{2})(?P<number>\d{9,11}|\d{2,4}(?:[ -]\d{3,4}){1,2})",
    r"(?P<number>[48]00[ -]?\d{3}[ -]?\d{4}|[48]00-\d{4}-\d{3}|[48]00\d-\d{3}-\d{3})",
    r"(?<!\d )(?P<number>\d{4} \d{4})(?! \d)",  # of Hong Kong
    r"(?P<number>\d{3,6})(?=\s?(?:转|轉|分机|分機)\s?\d{1,4}(?!\d))",
)
_NAMES = (
    "(?<![一二三四五六七八九十0-9几幾两兩这這那哪])[号號]|(?<![尺起筹籌加砝])[码碼]|[订訂保工运運][单單]"
    "|尾[数數]|[邮郵][编編]|[电電][话話]|手[机機]|[热熱專专总總][线線机機]|[Tt]el\\.?"
    "|[拨撥]打|QQ群?|[传傳]真|登[机機]口[从從由]?|(?<![\u4e00-\u9fff])[凭憑]|端口|回[执執]"
    "|(?<![A-Za-z])(?:[Rr]oom|PIN|[Pp]in|OTP|CVV2?|CVC2?|PUK|IMEI|SN|ID|Id|[Cc]ode|CODE|[Pp]asscode|Ref|REF|UID|PNR|ZIP)"
    "|(?:末|尾|[后後]|前|首|尾[数數])(?:[二三四五六七八九两兩]|[2-9])(?:位(?:[数數]字|[数數]|[号號][码碼]?)?|[码碼]|[個个](?:[数數]?字))"
)
"""Words before a number that is a name even where it is round, short or has hyphens."""
_OPENING = "[“”\"‘’'「『（(【\\[《〈#-]{0,3}"
_NAMED = (
    rf"((?:{_NAMES})(?:(?:号码|号|码)?(?:\*\*(?=[：:])|[）)](?=[：:]))?[：: ]{{0,2}}"
    rf"(?:分别|已?(?:重置|重設|修改|更改|变更|設置|设置|更新))?"
    rf"(?:是|为|為|成|係|is|等于)?[：: ]{{0,2}}{_OPENING}|尾号为?{_OPENING}))"
    r"(\d{1,4}(?:-\d{1,6}){2,5}|(?<=[号號码碼：:为是係 ])(?:\d{2,8}-\d{2,8}|0\d{1,7}-\d|\d-\d{3,8})(?![天日周月年分小])"
    r"|\d\d(?: \d{2,12}){1,9}(?: \d)?|\d{3,40}(?:[ -]\d{2,20}){0,5}(?:[、和与或及/]\d{3,20}){0,4})"
    "(?![\\d%％:/元块个件份笔单张条人名次]|[.,]\\d)"
)
_LETTERS_AND_DIGITS = (
    r"(?<![A-Za-z0-9.])(?=[A-Z0-9-]*[A-Z])(?=[A-Z0-9-]*\d)(?:[A-Z0-9]{3,30}|[A-Z0-9]{1,2}(?=-[A-Z0-9]{3}|-[A-Z0-9]{1,2}-[A-Z0-9]{3}))"
    r"(?:-[A-Z0-9]{1,20}){0,5}(?![A-Za-z0-9])"
)
_SERVICE = (
    r"(?<![\d.])(?:[48]00(?=电话|電話|热线|熱線|号码|號碼|客服|开头)|(?:3[.]?15|6[.]?18|818|520|1024|1111|1212)(?=活动|活動|大促|晚会"
    "|晚會|购物|狂欢|年中|期间|当天|促销|特惠|优惠|节|投诉|维权)"
    "|(?:95\\d{3}|96\\d{3,4}|100\\d\\d|12[13]\\d\\d)(?=客服|热线|熱線|电话|電話|短信|平台|投诉|人工|号码|查询|咨询|官方))"
)
_KNOWN_SERVICE = (
    rf"(?<![\d.,:A-Za-z¥￥$€£额額分约達达共到过為为是值数-])"
    rf"(?:12[13]\d\d|95\d{{3}}|96110|100(?:01|10|15|50|60|86|99))"
    rf"(?![\d%％℃°公]|[.,:/~～-]\d|{STARTS_MEASURE})"
)
"""Short numbers of Chinese offices, banks and carriers (MIIT's numbering plan: 123xx, 95xxx, 100xx)."""
_MODEL = r"(?:(?<=波音|空客|机型|型号|车型)|(?<=型[：:是为])|(?<=型号[：:是为]))\d{2,4}(?:-\d{1,4})?(?![\d元])"
_NUMBERED = (
    r"(?:(?<=[楼樓层層座栋棟幢元])|^|(?<=[，。；、！？：]))(?<!\d[、：])\d{3,4}(?=[号號](?:[，。；、！？）]|$))"
    r"|(?<=[楼樓层層座栋棟幢元])\d{3,4}(?=[号號])"
)
"""A number before 号 that is of no street: 3楼3025号, 我叫小李，8023号."""
_RUN = re.compile(r"\d+|[A-Z]+")
_MIN_ID_DIGITS = 3  # unmeasured
_MIN_ID_RUNS = 3  # unmeasured
_AMOUNT_WITH_UNIT = re.compile(r"\d+[A-Z]+")


_SIGNS = str.maketrans({sign: said for sign, said in ADDRESS_SIGNS.items() if sign not in ":@"})


def say_digits(written: str) -> str:
    """Each run of digits is said one by one, 1 as 幺; a comma stands between runs and within long ones."""
    return "，".join(_grouped(run) for run in re.findall(r"\d+", written))


def _grouped(run: str) -> str:
    groups = [run] if len(run) < _LONG else digit_groups(run, _PHONE_GROUPS)
    return "，".join(groups).translate(AS_NAME)


def _named(match: re.Match[str]) -> str:
    return match[1].rstrip("# -") + re.sub(r"[\d -]+", lambda value: say_digits(value.group()), match[2])


def _each_digit(match: re.Match[str]) -> str:
    return say_digits(match.group())


def _each_digit_of_quantity(match: re.Match[str]) -> str:
    return match.group().replace(".", "").translate(AS_QUANTITY)


def _with_signs(match: re.Match[str]) -> str:
    return match.group().translate(_SIGNS).translate(AS_NAME)


def _mixed_groups(match: re.Match[str]) -> str:
    return match.group().replace(" ", "，").translate(AS_NAME)


def _telephone(match: re.Match[str]) -> str:
    groups = match.groupdict()
    country = groups.get("country") or ""
    said = say_digits(groups["number"])
    if country:
        said = f"{'加' if country.startswith('+') else ''}{say_digits(country)}，{said}"
    extension = groups["extension"]
    if not extension:
        return said
    key = extension.translate(AS_QUANTITY) if len(extension) == 1 else say_digits(extension)
    return f"{said}，{'轉' if '轉' in match.group() else '转'}{key}"


def _mixed_id(match: re.Match[str]) -> str:
    token = match.group()
    runs = _RUN.findall(token)
    num_digits = sum(character.isdigit() for character in token)
    if (num_digits < _MIN_ID_DIGITS and len(runs) < _MIN_ID_RUNS) or _AMOUNT_WITH_UNIT.fullmatch(token):
        return token
    return token.replace("-", "，").translate(AS_NAME)


say_identifiers = rewriter(
    ("(?<=[\u4e00-\u9fff][A-Z])[·•](?=[A-Z0-9]{4}[A-Z0-9挂掛学學警])", ""),  # on a number plate
    (r"(?<![A-Za-z0-9.])(\d{1,2})F-(\d{2,4})(?!\d)", lambda match: f"{match[1]}楼，{say_digits(match[2])}"),
    (r"(?<![A-Za-z0-9])([BCOPGFH])2([BCOPGFH])(?![A-Za-z0-9])", r"\1 to \2"),  # B2B
    (
        (
            r"(?a)(?<![\w-])(?!0\d{3}[ -]\d{4}[ -]\d{4}(?![ -]?\d))\d{4}"
            r"(?:(?:[ -]\d{4}){2,4}(?:[ -]\d{1,3})?|[ -]\d{4}[ -]\d{1,3})(?![\dA-Za-z-])"
        ),
        _each_digit,
    ),  # a card
    (
        r"(?<![A-Za-z\d-])(?!ID)[A-Z]{1,4}(?:\d{3,5}| \d{3} \d{3})(?: \d{3,5}){1,4}(?: [A-Z]{2})?(?![\dA-Za-z])",
        _mixed_groups,
    ),
    (r"(?<![\d.])(?<!\d )\d{3} \d{4} \d{4}(?![\d ])", _each_digit),
    *((rf"(?<![\dA-Za-z.+-])(?:{number}){_EXTENSION}", _telephone) for number in _PHONE_NUMBERS),
    (  # of an identity card
        r"(?<![\dA-Za-z.])(?:(\d{17})([\dXx])|(\d{3})(X))(?![\dA-Za-z])",
        lambda match: say_digits(match[1] or match[3]) + (match[2] or match[4]).translate(AS_NAME),
    ),
    (r"((?:编号|編號)[为為是]?[：:]?\s?)?(?<![A-Za-z])N[oO]\.\s?(?=\d)", lambda match: match[1] or "编号"),
    (_NAMED, _named),
    (_NUMBERED, _each_digit_of_quantity),
    (r"(?<![\w.-])\d{3,6}-\d{7,12}(?![\w-])", _each_digit),
    (r"(?<=[a-z] )(?:19\d|20[0-4])\d(?![\d.,:年元个])", _each_digit_of_quantity),
    (r"(?<=[A-Za-z])\s?#\s?(\d{3,20})(?![\d#])", lambda match: f"号{say_digits(match[1])}"),
    (r"(?<=[\u4e00-\u9fff])\s?#\s?(\d{3,20})(?![\d#])", lambda match: say_digits(match[1])),
    (r"(?<=[民刑行执商知财][初终申再字执恢保异调督])\d{2,6}(?=号)", _each_digit),  # a case of a court
    (r"\d{2,6}(?=[开字打][头頭])|(?<=[井星]号)\d{3,15}(?!\d)", _each_digit),
    (r"(?<=第)(?:\d{4,10}(?=号)|\d{5,10}(?=期))", _each_digit),
    (
        r"((?<![A-Za-z])(?:ISO|IEC|GB|EN|DIN|JIS|RFC)(?:/[A-Z]{1,3})?\s?)(\d{3,6}(?:[:：-](?:19|20)\d\d)?)(?![\d.])",
        lambda match: match[1] + say_digits(match[2]),
    ),  # a standard
    (r"(?<![A-Za-z])IP[0-6X][0-9X](?![\dA-Za-z.])", _with_signs),  # against dust and water
    (r"(?a)(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})/(\d{1,2})(?![\w/])", r"\1斜杠\2"),
    (
        r"(?a)(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3}):(\d{2,5})(?!\w)",
        lambda match: f"{match[1]}冒号{say_digits(match[2])}",
    ),
    (
        r"((?:HTTP|[Ee]rror|ERROR|返回|状态码|错误码?|报错)[：: ]?\s?)([1-5]\d\d)(?![\d.,%％A-Za-z元块个次条笔处])",
        lambda match: match[1] + say_digits(match[2]),
    ),
    (
        r"(?<![\w:-])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w:-])",
        lambda match: re.sub("[:-]", "，", match.group()).translate(AS_NAME),
    ),  # of a network card
    (r"(?<![\w-])(?=[a-f]*\d[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,40}(?![\w-])", _with_signs),  # of a commit
    (r"(?<![A-Za-z0-9])0[xX][0-9A-Fa-f]{2,16}(?![A-Za-z0-9])", _each_digit_of_quantity),
    (r"(?<![A-Za-z0-9-])([A-Z]\d{1,2})-(0\d{1,3})(?![\dA-Za-z-])", lambda match: f"{match[1]}，{say_digits(match[2])}"),
    (_SERVICE, _each_digit_of_quantity),
    (_KNOWN_SERVICE, _each_digit),
    (_MODEL, lambda match: match.group().translate(AS_QUANTITY).replace("-", "杠")),
    (r"(?a)\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+){1,9}(?![\w@])", _with_signs),
    (
        (
            r"(?a)(?:(?<=微信|账号|密码|口令)|(?<=微信号)|(?<=用户名)|(?<=ID)|(?<=[码号][是为]))[：: ]?"
            r"(?=[^\s\d]{0,20}\d)(?=[A-Z\d-]{0,20}[a-z_!@#$%^&*])(?=[\W\d_]{0,20}[A-Za-z])[A-Za-z0-9][\w!@#$%^&*-]{2,30}(?<!-)"
        ),
        _with_signs,
    ),
    (  # of a service that is dialled or sent to
        r"((?<=[打转拨撥])(?![1-9]0{3,5}(?:还是|或|到|给|吗))|(?:发送|短信|发)[^，。]{0,8}[到至])(\d{4,6})(?![\d.,%％:/年月日号元块点个位楼层室人])",
        lambda match: match[1] + say_digits(match[2]),
    ),
    (
        r"(?:(?<=[^A-Za-z][A-Z]{2} )|(?<=^[A-Z]{2} ))(\d{3,4})/(\d{4})(?![\d.,%％元块A-Za-z/])",
        lambda match: f"{say_digits(match[1])}、{say_digits(match[2])}",
    ),  # a flight under two numbers
    (
        r"(?:(?<=[^A-Za-z][A-Z]{2} )|(?<=^[A-Z]{2} ))\d{3,8}(?![\d.,%％元块A-Za-z]|/\d{2,3}\s?mmHg)",
        _each_digit,
    ),  # a flight
    (rf"(?<![\d.,A-Za-z¥$€£-])\d{{{_LONG},}}+(?![\dA-Za-z%％℃°公]|[.,/:-]\d|{STARTS_MEASURE})", _each_digit),
    (_LETTERS_AND_DIGITS, _mixed_id),
    (  # of a processor: i7-13700H
        r"(?a)(?<![\w.-])[a-z]\d{1,2}-\d{3,6}(?:[A-Z]{0,2}|v\d)(?![\w-])",
        lambda match: match.group().replace("-", "，").translate(AS_NAME),
    ),
    (r"(?<!\d)([1-9])[·•](\d\d)(?!\d)", lambda match: f"{match[1]}{match[2]}".translate(AS_QUANTITY)),  # 6·18
    (
        r"(?<![A-Za-z0-9])[A-Z]{1,3}\d{3,4}(?=(?!(?:min|m?mol|[kc]cal|[bpr]pm)(?![a-z]))(?:[a-z]{3,8}|ti)(?![A-Za-z]))",
        _each_digit_of_quantity,
    ),  # A320neo
    (r"(?<=[A-Za-z]@)\d{2,12}(?![\dA-Za-z])", _each_digit),  # of a password
    (
        r"(?<![A-Za-z0-9.])@[A-Za-z_\u4e00-\u9fff]{1,20}\d{2,12}(?![\d年月日元个天:：.])",
        _with_signs,
    ),  # of a user
    (
        r"((?:区号|區號|国家代码|国家码|尾号|密码)[是为：: ]{0,2})(\d\d)(?!\d)",
        lambda match: match[1] + say_digits(match[2]),
    ),
)
"""Telephone, card, account and order numbers in Chinese digits, a comma between groups."""
