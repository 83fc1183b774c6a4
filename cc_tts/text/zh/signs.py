"""Chinese words for keys (``1#``), quotients of units (``mg/m³``), Roman numerals and signs, before numbers are read."""

import re

from cc_tts.text.markup.latex import MINUS
from cc_tts.text.substitution import rewriter
from cc_tts.text.zh.measures import STARTS_MEASURE
from cc_tts.text.zh.numbers import AS_NAME, AS_QUANTITY, cardinal

ADDRESS_SIGNS = {
    "@": "艾特", ".": "点", "-": "杠", "_": "下划线", "+": "加", "/": "斜杠", "?": "问号", "=": "等于", "&": "和",
    "#": "井号", "%": "百分号", ":": "冒号", "*": "星号", "$": "美元符号", "!": "感叹号",
}  # fmt: skip
_MAX_KEYS = 2
"""Digits that are pressed as keys; more are a code (unmeasured)."""
_KEYS = str.maketrans({"*": "星号", "#": "井号"})
_OBJECTS = "楼樓栋棟院门門柜窗机座线線库庫台口梯厅站桩位变變泵炉"
_DIALLED = (
    "(?P<before>(?:按|拨|撥|拨打|撥打|直拨|直撥|输入|輸入|发送|發送|编辑|回复|键入|请打|密码[是为]?)[：: ]?[“\"‘'「『]?)"
    rf"(?![*#]{{3}})(?P<code>(?:\d{{0,15}}[*#]{{1,2}}){{1,5}}\d{{0,15}})(?![\d*#]|[{_OBJECTS}])"
)
_KEY = (
    "(?:(?<=[按键鍵或和及、以加用+“\"‘'「『（(])|(?<=[按或和及以加用] ))[*#]"
    "(?=[”\"’'」』）)]?(?:[^\\w*#]|$|[键鍵號号字结結确確转轉返取退重或和及代]))"
    r"|(?<=\d)#(?=[^\w*#“‘「『（(【]|$)|[*#](?=\s?[键鍵号號字])"
)
_PER_UNIT = {
    "mg": "毫克", "g": "克", "kg": "千克", "ng": "纳克", "L": "升", "l": "升", "mL": "毫升", "ml": "毫升", "dL": "分升",
    "dl": "分升", "m³": "立方米", "m3": "立方米", "cm³": "立方厘米", "m²": "平方米", "mol": "摩尔", "mmol": "毫摩尔",
    "nmol": "纳摩尔", "IU": "国际单位", "U": "单位", "m2": "平方米", "kWh": "千瓦时", "h": "小时", "min": "分钟", "s": "秒",
    "d": "天", "km": "千米", "t": "吨", "kcal": "千卡", "kJ": "千焦", "GB": "GB", "MB": "MB",
    "mIU": "毫国际单位", "pmol": "皮摩尔", "pg": "皮克", "mAh": "毫安时",
}  # fmt: skip
_PER_UNIT |= {sign + unit: f"微{name}" for sign in "μµ" for unit, name in (("g", "克"), ("mol", "摩尔"), ("L", "升"))}
_TO_EXPONENT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_EXPONENT = r"\^\(?(?P<plain>[-+]?\d{1,3})\)?|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3})"
_UNIT = "|".join(sorted(_PER_UNIT, key=len, reverse=True))
_DOSE = "|".join(sorted(set(_PER_UNIT) - {"km", "h", "min", "s", "d", "MB", "GB"}, key=len, reverse=True))
_ROMAN = {"I": 1, "II": 2, "III": 3, "IV": 4, "VI": 6, "VII": 7, "VIII": 8, "IX": 9}
_FIRST_ROMAN, _NUM_ROMAN = ord("Ⅰ"), 16


def _dialled(match: re.Match[str]) -> str:
    code = match["code"]
    is_pressed = sum(map(str.isdigit, code)) <= _MAX_KEYS
    return match["before"] + code.translate(AS_QUANTITY if is_pressed else AS_NAME).translate(_KEYS)


def _power(match: re.Match[str]) -> str:
    """``×10⁹`` is said as 乘十的九次方."""
    exponent = match["plain"] or match["raised"].translate(_TO_EXPONENT)
    return f"{'乘' if match['times'] else ''}{match['base']}的{exponent.lstrip('+').replace('-', '负')}次方"


def _names(match: re.Match[str]) -> str:
    return "、".join(ADDRESS_SIGNS[sign] for sign in match.group())


def _minutes(match: re.Match[str]) -> str:
    """``30'`` is a length of time where no quotation may end."""
    is_quoted = re.search("[‘`]|(?<!\\d)'", match.string[: match.start()])
    if is_quoted:
        return match.group()
    return f"{match[1]}{'分' if re.search('题|總分|总分|填空', match.string) else '分钟'}"


def _roman(match: re.Match[str]) -> str:
    return cardinal(str((ord(match.group()) - _FIRST_ROMAN) % _NUM_ROMAN + 1))


def _next_entry(match: re.Match[str]) -> str:
    """``(1)身份证(2)户口本`` are entries of a list, behind the first of which others need no pause."""
    is_list = re.search(rf"[（(]{int(match[1]) - 1}[）)]|(?:^|\D){int(match[1]) - 1}，", match.string[: match.start()])
    return f"，{match[1]}，" if is_list else match.group()


_LEVELS = {"↑": "，偏高", "↓": "，偏低"}
_GREEK_NAMES = (
    "阿尔法", "贝塔", "伽马", "德尔塔", "艾普西隆", "泽塔", "伊塔", "西塔", "约塔", "卡帕", "兰姆达", "缪", "纽",
    "克西", "奥密克戎", "派",
    "柔", "西格玛", "西格玛", "陶", "宇普西隆", "斐", "希", "普西", "欧米伽",
)  # fmt: skip
_GREEK = dict(zip("αβγδεζηθικλμνξοπρςστυφχψω", _GREEK_NAMES, strict=True)) | {"Ω": "欧米伽", "Δ": "德尔塔"}
_TERM = re.compile("[\u4e00-\u9fff]{1,6}[¥￥]?\\d")


def _or_more(match: re.Match[str]) -> str:
    """``500+城市`` and ``15+个`` are more, ``¥50+运费`` and ``工号12+密码`` are sums."""
    sign, number, measure = match.groups()
    is_round = number[-1:] in "0万千百亿" and number != "00" and not _TERM.match(match.string, match.end())
    return f"{sign}{number}{'加' if sign or not (measure or is_round) else '多'}"


say_signs = rewriter(
    (
        r"(?<![\d.°])(\d{1,3})(?:['′’](\d{1,2})(?:[\"″”]|''))(\d{0,2})(?!\d)",
        lambda match: f"{match[1]}分{match[2]}秒{match[3].translate(AS_QUANTITY)}",
    ),
    (r"((?:^|(?<=[\u4e00-\u9fff×(（、，+])) ?\d{1,3})['′’](?![A-Za-z\d'])", _minutes),
    (
        r"(?<=\d°)(\d{1,2})['′’](?:(\d{1,2})(?:[\"″”]|''))?",
        lambda match: f"{match[1]}分" + (f"{match[2]}秒" if match[2] else ""),
    ),
    (r"(?<=\d)#(?=-\d{1,2}-\d{3,4}(?!\d))", ""),  # of a house
    (
        r"((?:^|(?<=[：:；;。\n]))(?<!\d[:：])\s?)[（(]?(\d{1,2})[）)]\s?(?=[\u4e00-\u9fff])",
        r"\1\2，",
    ),  # an entry of a list
    (r"(?<=[\u4e00-\u9fff])[（(]([2-9])[）)](?=[\u4e00-\u9fff])", _next_entry),
    ("[Ⅰ-Ⅻⅰ-ⅻ]", _roman),
    (r"(?<![A-Za-z\d])H(\d)N(\d)(?![A-Za-z\d])", lambda match: f"H{cardinal(match[1])}N{cardinal(match[2])}"),
    (
        r"(?<![Ͱ-Ͽἀ-῿\d])(?<!\d\s)(?!μ[A-Za-z])[α-ωΩΔ](?![Ͱ-Ͽἀ-῿])",
        lambda match: _GREEK.get(match.group(), match.group()),
    ),
    (r"(?<=[A-Za-z])\^(\d{1,2})(?!\d)", lambda match: {"2": "平方", "3": "立方"}.get(match[1], f"的{match[1]}次方")),
    (rf"^{MINUS}|(?<=[(（=] ){MINUS}|(?<=[(（=]){MINUS}", "负"),
    (rf"\s?{MINUS}\s?", "减"),
    (r"√\s?(?=[(（A-Za-z])", "根号"),
    (r"(?<![A-Za-z/])([a-z])/([a-z])(?=\s?[=≥≤<>≈])", r"\1除以\2"),
    (r"(?<![A-Za-z])e\.g\.\s?(?=[\u4e00-\u9fff])", "例如"),
    (r"(?<![A-Za-z])i\.e\.\s?(?=[\u4e00-\u9fff])", "即"),
    (r"(?<![A-Za-z])[Ee]xt\.\s?(?=\d)", "分机"),
    (r"([A-Z][A-Z-]{0,5}\s\d{1,4}(?:\.\d{1,3})?)\s?([↑↓])", lambda match: match[1] + _LEVELS[match[2]]),
    (r"(?<![A-Za-z])(I{1,3}|IV|VI{1,3}|IX)(?=[期级級类類型度])", lambda match: cardinal(str(_ROMAN[match[1]]))),
    (rf"(?:\d{{1,3}}#[、，和及与]){{1,9}}(?=\d{{1,3}}#[{_OBJECTS}])", lambda match: match.group().replace("#", "号")),
    (r"((?:拨打?|撥打?|输入|按)[*#\d]{2,8}[\u4e00-\u9fff]{2,8})#(?![\d#])", r"\1井号"),
    (_DIALLED, _dialled),
    (r"(?a)(?<![\w*#])(?P<before>)(?P<code>\*#?\d{2,12}(?:\*\d{1,15}){0,3}#)", _dialled),
    (
        r"(?:发送?|發送?|编辑|回复)[：: ]?[“\"‘'「]?(?:[^\s，。；#“”\"‘’'」]{1,20}#){1,4}(?=[^\W_])",
        lambda match: match.group().replace("#", "井号"),
    ),
    (_KEY, lambda match: match.group().translate(_KEYS)),
    ("([井星])号(?=字)|([井星]号)[号號]", lambda match: match[1] or match[2]),
    (rf"(?<![A-Za-z])(?P<times>(?<=\d)\s?[×xX*·]\s?)?(?P<base>(?<!\d)\d{{1,4}})(?:{_EXPONENT})", _power),
    (r"(?a)\bq(\d{1,2})h\b", r"每\1小时一次"),
    (r"(?<![A-Za-z\d-])([A-Z])\s?[-~～〜–—]\s?(?=[A-Z][座区區栋棟口级級组組班排栏欄档檔])", r"\1到"),
    (r"(?<![A-Za-z\d-])(([A-Z])\d{1,4})\s?[-~～〜–—]\s?(?=\2\d{1,4}(?![A-Za-z\d-]))", r"\1到"),
    (r"(?<![A-Za-z\d])[Pp]{1,2}\.?\s?(\d{1,3})[-~～–](\d{1,3})[页頁]?(?![\d.-])", r"第\1到\2页"),
    (r"(?<=kW)\s?[·⋅•]\s?h(?![A-Za-z])", "h"),
    (
        rf"(?<=\d)\s?({_DOSE})\s?/\s?\(?({_UNIT})\s?[·⋅/]\s?({_UNIT})(?![A-Za-z\d²³])\)?",
        lambda match: f"{_PER_UNIT[match[1]]}每{_PER_UNIT[match[2]]}每{_PER_UNIT[match[3]]}",
    ),
    (
        rf"(?<=\d)\s?({_DOSE})\s?/\s?({_UNIT})(?![A-Za-z\d²³])",
        lambda match: f"{_PER_UNIT[match[1]]}每{_PER_UNIT[match[2]]}",
    ),
    (rf"(?<=\d)\s?({_DOSE})/(?={STARTS_MEASURE})", lambda match: f"{_PER_UNIT[match[1]]}每"),
    (rf"(?<=每)({_UNIT})(?![A-Za-z\d²³])", lambda match: _PER_UNIT[match[1]]),
    (rf"(?<=[元角分块万千百方次秒钟天米升])\s?/\s?({_UNIT})(?![A-Za-z\d²³])", lambda match: f"每{_PER_UNIT[match[1]]}"),
    (r"约?≈\s?|(?<![\w\s%％℃°)）])[~～]\s?(?=[¥￥$€£]?\d)", "约"),
    (r"(?<![\d第-])7-(?:ELEVEN|Eleven|eleven|11(?![\d.%％天日月号號点點时時岁歲人个個年次元-]))", "七，十一"),
    (r"(?<=[\u4e00-\u9fff：（(“])[@#$%&*!+=_-]{2,12}(?=等|[）)”])", _names),
    (r"(?:(?<=\d0)|(?<=\d[万千百亿wW]))\+(?=[，。；、！？）)\n]|$)", "多"),
    (r"(?<=\dV)\s?[/，,、]?\s?(\d{1,3}(?:\.\d{1,2})?)A(?![A-Za-z\d])", r"，\1安"),
    (r"(?<![A-Za-z\d.])(\d{1,2})[vV](?=\d{1,2}(?![A-Za-z\d.]))", r"\1对"),
    (r"(?<=\d)″|(?<=\d\.\d)\"(?![\w，。])", "英寸"),
    (r"(?<=孕)\s?(\d{1,2})\+(\d)(?:周|週|W|w)?(?!\d)", r"\1周加\2天"),
    (r"\+/-(?=\d)", "正负"),
    (r"\+/-", "加减"),
    (
        (
            r"(?<=[\d元\u4e00-\u9fff]) [-−–] (?=[^=。，；\n]{1,16}=)"
            r"|(?<=[晚天元次件)）\d])[-−–](?=[\u4e00-\u9fff]{1,6}[¥￥$]?\d[^，。；\n]{0,12}[=＝])"
            r"|(?<=[\d元%％)）])[-−–](?=[¥￥$]?\d[\d.,%％元)）×÷*/+-]{0,24}[=＝])"
        ),
        "减",
    ),
    (r"([A-Za-z\u4e00-\u9fff]\s?\d{0,4})(?<![元块塊万千百亿]) [-–—] (?=[¥￥$€£])", r"\1，"),
    ("≠", "不等于"),
    (r"(?:根号)?√\s?(?=\d)", "根号"),
    (r"(?<=\d)/(?=\d{1,5}(?:\.\d{1,2})?[GMT]B(?![A-Za-z]))", "，"),
    (
        r"(?<=美元|欧元|英镑|日元|港元|港币|澳元|卢布)/(?=人民币|美元|日元|港元|港币)|(?<=人民币)/(?=美元|日元|港元|港币|欧元)",
        "兑",
    ),
    (r"(?<=[\u4e00-\u9fff])_([\u4e00-\u9fff]{1,12})_(?![\w])", r"\1"),
    (r"(?<=[\u4e00-\u9fff]{2})_(?=[\u4e00-\u9fff]{2})", "下划线"),
    (r"(?<=[\u4e00-\u9fff])\.(?=(?:pdf|docx?|xlsx?|pptx?|csv|zip|jpe?g|png|txt|exe|apk|mp[34])(?![A-Za-z\d]))", "点"),
    (r"(?<=[涨升增高])↑\s?(?=\d)|(?<=[跌降减低])↓\s?(?=\d)", ""),
    (r"(?<=每升|/L)\s?([↑↓])", lambda match: "，偏高" if match[1] == "↑" else "，偏低"),
    (r"(?<=\d[m米岁歲])([↑↓])(?!\d)", lambda match: "以上" if match[1] == "↑" else "以下"),
    (
        r"(?<=R[Hh])([+-])(?=[，。；、）)]|$)|(?<![阴陰阳陽]性)[（(]([+-])[)）]",
        lambda match: "阳性" if "+" in match.group() else "阴性",
    ),
    (r"↑(?=\s?\d|[，。；）)(（]|$)", "上升"),
    (r"↓(?=\s?\d|[，。；）)(（]|$)", "下降"),
    (r"\s?÷\s?", "除以"),
    (
        rf"(?<![A-Za-z])([¥￥$€£]\s?\d[\d,]{{0,12}}(?:\.\d{{1,4}})?)\s?/\s?({_UNIT})(?![A-Za-z\d²³])",
        lambda match: f"{match[1]}每{_PER_UNIT[match[2]]}",
    ),
    (
        r"(?<=[A-Za-z\d%％])\s?\+\s?(?=[¥￥$€£]?\d)|(?<=^00)\+|(?<=\D00)\+|(?<=[\u4e00-\u9fff：:（(，、；])\s?\+(?=[¥￥$]?\d{1,9}(?:\.\d{1,6})?(?:[^\d.\s℃°-]|$))",
        "加",
    ),
    (r"(?<=(?<![A-Za-z])[A-D])-(?=[，。；、）)”]|$)", "减"),  # a mark at school
    (
        r"(?<=[\u4e00-\u9fff”」）])\s{1,3}(?=(?:\d{1,2}[）)、]|[A-H][.、．）)])\s?[\u4e00-\u9fff])",
        "，",
    ),  # an entry of a list
    (r"(?<=[A-Za-z])-(?=\d{1,4}(?:\.\d{1,4})?(?:BP|bp|[%％]|个?基点|min|h(?![A-Za-z])|分钟|小时|天|日))", "减"),
    (r"≥\s?(?=[¥￥$€£-]?\d)", "大于等于"),
    (r"≤\s?(?=[¥￥$€£-]?\d)", "小于等于"),
    (r"(?<=[\d%％元块万℃级度BGM])\s?(?:→|[-=]>)\s?(?=[¥￥$-]?\d)", "到"),
    (r"((?<![A-Za-z])[A-Z]|[由从從自][\u4e00-\u9fffA-Za-z]{1,6})\s?→\s?(?=[A-Z](?![A-Za-z])|[\u4e00-\u9fff])", r"\1到"),
    (r"\s?→\s?", "，"),
    (r"(?<=[1-9])(?<=\d\d)\+(?=[)）])", "以上"),
    (r"(?:(?<=\d[岁歲天年月人件次h%％㎡米])|(?<=方米))\+(?![\w送赠$¥￥€£])", "以上"),
    (r"(?<=\d岁)\+|(?<=[vV]\d\.\d)\+|(?<=[A-Za-z] \d)\+|(?<=[A-Za-z] \d\d)\+|(?<=[A-Za-z] \d\d\d)\+", "以上"),
    (
        rf"(?<![\d.,])([¥￥$€£]?)\s?(\d[\d,.]*[万千百亿]?)\+(?:(?=({STARTS_MEASURE}))|(?=[\u4e00-\u9fff]))(?![送赠])",
        _or_more,
    ),
)
"""Keys, units, Roman numerals and signs in words or in a form that the rules behind this read right."""
