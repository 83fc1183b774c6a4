"""Chinese numbers that name something are said digit by digit, 1 as 幺: telephones, cards, codes, order numbers.

wetext does this for mobile numbers without separators and for short service numbers only, and reads others as
quantities.

Runs on: any thread; nothing here has state.
"""

import re

from cc_tts.text.characters import digit_groups
from cc_tts.text.zh.numbers import AS_NAME

_LONG = 7
_PHONE_GROUPS = {7: (3, 4), 8: (4, 4), 10: (3, 3, 4), 11: (3, 4, 4)}

_EXTENSION = r"(?:\s?(?:转|轉|分机|分機|-)\s?(?P<extension>\d{1,6}))?(?!\d)"
_COUNTRY = r"(?P<country>(?:\+|00)\d{2,3}[ -]?)"
_PHONES = tuple(
    re.compile(rf"(?<![\dA-Za-z.+-])(?:{number}){_EXTENSION}")
    for number in (
        rf"{_COUNTRY}?(?P<number>1[3-9]\d[ -]?\d{{4}}[ -]?\d{{4}})",
        rf"{_COUNTRY}?(?P<number>\(0\d{{2,3}}\)[ -]?\d{{3,4}}[ -]?\d{{4}}|0\d{{2,3}}[ -]\d{{3,4}}[ -]?\d{{4}})",
        rf"{_COUNTRY}(?P<number>\d{{2,4}}[ -]?\d{{3,4}}[ -]?\d{{4}})",
        r"(?P<number>[48]00[ -]?\d{3}[ -]?\d{4}|[48]00-\d{4}-\d{3})",
    )
)
_CARD = re.compile(r"(?<![\w-])\d{4}(?:[ -]\d{4}){2,4}(?:[ -]\d{1,3})?(?![\dA-Za-z-])", re.ASCII)
_NAMED = re.compile(
    "(?P<name>卡号|卡號|账号|帐号|賬號|帳號|账户|帳戶|户号|单号|單號|订单|訂單|编号|編號|验证码|驗證碼|密码|密碼|尾号|尾號|工号|工號|"
    "动态码|動態碼|短信码|口令|会员号|會員號|流水号|取件码|邮编|郵編|身份证|身份證|证件号|号码|號碼|电话|電話|手机|手機|热线|熱線|拨打|撥打|致电|致電|分机|分機|房间号|航班|车牌)"
    "(?P<joint>(?:号码|号|码)?[：: ]{0,2}(?:是|为|為)?[：: ]{0,2}|尾号为?)"
    r"(?P<value>\d{3,40}(?:[ -]\d{2,20}){0,5})(?![\d.,%％:/])"
)
_COUNTED = "元块圆万亿千百个人次天年月日号楼分秒点度吨米克件只台辆套名位条张页字公%％℃°倍斤两升岁种家份"
_LONG_RUN = re.compile(rf"(?<![\d.,A-Za-z¥$€£-])\d{{{_LONG},}}+(?![\d{_COUNTED}A-Za-z]|[.,/:-]\d)")
_LETTERS_AND_DIGITS = re.compile(
    r"(?<![A-Za-z0-9.])(?=[A-Z0-9-]*[A-Z])(?=[A-Z0-9-]*\d)(?:[A-Z0-9]{3,30}|[A-Z0-9]{1,2}(?=-[A-Z0-9]{3}))(?:-[A-Z0-9]{1,20}){0,5}(?![A-Za-z0-9])"
)
_SHORT_NUMBER = re.compile(
    r"(?:(?<=[打转])|(?P<sent>发送[^，。]{1,8}到))(?P<number>\d{4,6})(?![\d.,%％:/年月日号元块点个位楼层室人])"
    r"|(?:(?<=[^A-Za-z][A-Z]{2} )|(?<=^[A-Z]{2} ))(?P<flight>\d{3,4})(?![\d.,%％元块A-Za-z])"
)
"""A service number that is dialled or sent to, and the number of a flight."""
_PLATE_POINT = re.compile("(?<=[\u4e00-\u9fff][A-Z])[·•](?=[A-Z0-9]{5})")
_BUSINESS = re.compile(r"(?<![A-Za-z0-9])([BCOPGFH])2([BCOPGFH])(?![A-Za-z0-9])")
"""``B2B`` and its kind, in which the digit is the English "to"."""
_RUN = re.compile(r"\d+|[A-Z]+")
_MIN_ID_DIGITS = 3
_MIN_ID_RUNS = 3
_AMOUNT_WITH_UNIT = re.compile(r"\d+[A-Z]+")


def say_identifiers(text: str) -> str:
    """Telephone, card, account and order numbers in Chinese digits, a comma between groups."""
    text = _PLATE_POINT.sub("", text)
    text = _BUSINESS.sub(r"\1 to \2", text)
    text = _CARD.sub(lambda match: say_digits(match.group()), text)
    for pattern in _PHONES:
        text = pattern.sub(_telephone, text)
    text = _NAMED.sub(lambda match: f"{match['name']}{match['joint']}{say_digits(match['value'])}", text)
    text = _SHORT_NUMBER.sub(lambda match: (match["sent"] or "") + say_digits(match["number"] or match["flight"]), text)
    text = _LONG_RUN.sub(lambda match: say_digits(match.group()), text)
    return _LETTERS_AND_DIGITS.sub(_mixed_id, text)


def say_digits(written: str) -> str:
    """Each run of digits one by one, 1 as 幺; a comma between runs and within long ones."""
    return "，".join(_grouped(run) for run in re.findall(r"\d+", written))


def _grouped(run: str) -> str:
    groups = [run] if len(run) < _LONG else digit_groups(run, _PHONE_GROUPS)
    return "，".join(groups).translate(AS_NAME)


def _telephone(match: re.Match[str]) -> str:
    groups = match.groupdict()
    country = groups.get("country") or ""
    said = say_digits(groups["number"])
    if country:
        said = f"{'加' if country.startswith('+') else ''}{say_digits(country)}，{said}"
    return f"{said}，转{say_digits(groups['extension'])}" if groups["extension"] else said


def _mixed_id(match: re.Match[str]) -> str:
    token = match.group()
    runs = _RUN.findall(token)
    num_digits = sum(character.isdigit() for character in token)
    if (num_digits < _MIN_ID_DIGITS and len(runs) < _MIN_ID_RUNS) or _AMOUNT_WITH_UNIT.fullmatch(token):
        return token
    return token.replace("-", "，").translate(AS_NAME)
