"""A number of three to six digits without a unit is a name, said digit by digit, unless a quantity is spoken of.

What has a number (a room, a clerk, a share, a model, a law) cannot be listed; measure words, and the words that a quantity
stands behind, can.
"""

import re

from cc_tts.text.substitution import rewriter
from cc_tts.text.zh.numbers import AS_NAME, AS_QUANTITY

_NO_MEASURE = {
    "人": "工民员員为", "分": "行机機店局别別公", "天": "气氣猫", "家": "长長属庭居", "点": "击擊", "次": "日月列",
    "本": "人期月行", "部": "门門", "位": "于於置", "条": "件", "场": "馆地", "道": "路", "门": "店诊禁", "单": "元位号",
    "节": "目假", "名": "称字为下单", "口": "令", "回": "复电拨", "代": "码表为办", "集": "团合", "组": "织", "套": "餐",
    "成": "功为", "页": "面", "步": "骤", "时": "间候", "站": "点长内", "项": "目", "包": "含", "元": "旦", "块": "链",
    "把": "握", "期": "间限", "台": "词湾北", "号": "码碼室房客坐话专接工技师病会床诊教办包", "號": "碼房室床客",
}  # fmt: skip
"""Measure words with the characters behind them that make another word of both."""
_MEASURES = (
    "个個户戶间間层層臺辆輛架艘列匹头頭條根支枝枚颗顆粒滴片塊袋盒箱瓶罐桶杯碗盘壶串束朵棵株卷幅扇份封對雙副批队排行"
    "頁篇章段句词首届屆轮輪遍趟顿頓款种種类類样樣级級档檔筆票宗起例桩圆圓角毛万萬千百亿億折倍點度年月日周週小秒岁歲晚"
    "夜米里寸尺平亩畝克斤吨噸磅升瓦伏安帧床席桌股手注局针劑剂餐版楼樓栋棟幢座弄巷村册件张張只隻课双对"
    "毫公厘微纳兆海英立方字像港欧日澳加韩美左右上下以内內余餘多来來几幾外人分天家点次本部位条场道门单节名口回代集组"
    "套成页步时站项包元块把期台"
)

_ALWAYS = "".join(one for one in _MEASURES if one not in _NO_MEASURE)
_MEASURE = rf"\s?(?:[{_ALWAYS}]|{'|'.join(f'{one}(?![{rest}])' for one, rest in _NO_MEASURE.items())})"
_QUANTITY = (
    "[满滿减減送返抵充值付花赔賠赚退罚扣省剩余餘共超逾达達破第仅僅只增升涨漲降跌限购購]|(?<![预預])[约約]|(?<![附最])近|(?<![签簽代])收"
    r"|\d\s{0,2}[到至]\s{0,2}"
    "|[乘除]以|[比卖賣]|到手|[折券]后?|[卖跌降涨升][了到]|[卖花]了|只要|等于|抄表"
    "|[大小高低多少]于|不[到足]|最[多少大小]|至[少多]|平均|人均|[总總合累小][计計]|默认"
    "|[价價额額费費款金租薪资資税稅数數量率分度压壓重高宽深速温龄齡]|(?<![信消])息|(?<![队隊院校班部处處科组組会會行店])[长長]|[库庫]存|成本"
    "|语文|数学|英语|物理|化学|生物|历史|地理|政治|听力|阅读|写作|翻译|口语|综合|[文理][科综]|指数|[A-Za-z÷×+=*-]\\s?"
)
"""A quantity stands behind what is done with sums, behind a comparison, and behind nouns of what is measured."""
_JOINT = "\\s?(?:[、和与與或及到至同]|还是|還是|以及|或者|(?:变更?|變更?|改)[为為成])\\s?"
_NUMBER = r"\d{3,6}+(?!\d)"
_BARE = (
    rf"(?<![\d.,:：/~～–—−+×*=·¥￥$€£@_#A-Za-z→>-])(?<!, )(?!1(?:1[0-249]|2[02])(?!\d)){_NUMBER}(?:{_JOINT}{_NUMBER})*+"
    rf"(?![\d:：/~～–—−+×*=%％℃°‰_#@μµ㎡㎥→-]|[.,]\d|\s?[A-Za-zμµ÷×*=+-]|{_MEASURE}|[减減乘除加比降涨漲升增跌]|等于)"
)
_QUANTITY_BEFORE = re.compile(
    rf"(?:{_QUANTITY})(?:分别|合计|大?约|已|达到?|到|只?剩|有|仅|由|从|從)?(?:是|为|為|係)?[：: ]{{0,2}}$"
)
_ANY = re.compile(r"\d+")
_NO_ROUND = re.compile(r"(?<!\d)(?![1-9]\d?0{2,4}(?!\d))\d+")
_MAX_ROOM_DIGITS = 4
"""Rooms and years are said with 一, longer numbers as on the telephone (unmeasured)."""
_LOOK_BACK = 12


def _said_by_digits(match: re.Match[str]) -> str:
    number = match.group()
    return number.translate(AS_QUANTITY if len(number) <= _MAX_ROOM_DIGITS else AS_NAME)


def _bare(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - _LOOK_BACK) : match.start()]
    if _QUANTITY_BEFORE.search(before):
        return match.group()
    is_room = match.string[match.end() : match.end() + 1] in ("室", "房")
    return (_ANY if is_room else _NO_ROUND).sub(_said_by_digits, match.group())


say_bare_names = rewriter((_BARE, _bare))
