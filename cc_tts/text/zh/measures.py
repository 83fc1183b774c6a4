"""Chinese measure words and units, which tell a quantity from a name."""

_OTHER_WORDS = {
    "人": "工民员員为", "分": "行机機店局别別公", "天": "气氣猫", "家": "长長属庭居", "点": "击擊", "次": "日月列",
    "本": "人期月行", "部": "门門", "位": "于於置", "条": "件", "场": "馆地", "道": "路", "门": "店诊禁", "单": "元位号",
    "节": "目假", "名": "称字为下单", "口": "令", "回": "复电拨", "代": "码表为办", "集": "团合", "组": "织", "套": "餐",
    "成": "功为", "页": "面", "步": "骤", "时": "间候", "站": "点长内", "项": "目", "包": "含", "元": "旦", "块": "链",
    "把": "握", "板": "块", "笔": "者记", "期": "间限", "台": "词湾北", "号": "码碼室房客坐话专接工技师病会床诊教办包",
    "號": "碼房室床客", "转": "账帐接到人给", "轉": "賬帳接到人給",
}  # fmt: skip
"""Measure words with the characters behind them that make another word of both."""
_MEASURES = (
    "个個户戶间間层層臺辆輛架艘列匹头頭條根支枝枚颗顆粒滴片塊袋盒箱瓶罐桶杯碗盘壶串束朵棵株卷幅扇份封對雙副批队排行"
    "頁篇章段句词首届屆轮輪遍趟顿頓款种種类類样樣级級档檔筆票宗起例桩圆圓角毛万萬千百亿億折倍點度年月日周週小秒岁歲晚"
    "夜米里寸尺平亩畝克斤吨噸磅升瓦伏安帧床席桌股手注局针劑剂餐版楼樓栋棟幢座弄巷村册件张張只隻课双对"
    "毫公厘微纳兆赫海英立方字像港欧日澳加韩美左右上下以内內余餘多来來几幾外人分天家点次本部位条场道门单节名口回代集组"
    "套成页步时站项包元块把期台笔盏盎尊瓣缕辑锭摞沓捆扎盅篮筐窝帖处處转轉板"
)

_ALWAYS = "".join(one for one in _MEASURES if one not in _OTHER_WORDS)
_LONG_MEASURES = (
    "学分|學分|积分|積分|航段|疗程|療程|课时|课時|学时|工时|人次|车次|间夜"
    "|个月|個月|季度|学期|學期|学年|工作日|自然日|交易日|小时|小時|分钟|分鐘|公里|千米|公斤|千克|毫升|平方?米|立方米?"
)
STARTS_MEASURE = (
    rf"\s?(?:[{_ALWAYS}]|{_LONG_MEASURES}|{'|'.join(f'{one}(?![{rest}])' for one, rest in _OTHER_WORDS.items())})"
)
"""Where a measure word begins behind a number; not before 室, 房 and 路, whose numbers are names."""
ONE_MEASURE = rf"(?:{_LONG_MEASURES}|[{_MEASURES}])(?=$|\W|[起以乘加])"
"""A measure word with which what is said of it ends."""
_PERIODS = "年月日号號楼樓层層座栋棟期级級"
_COUNTED = "".join(one for one in _MEASURES if one not in _PERIODS)
_NUMBER = "[\\d两兩一二三四五六七八九十半每]"
BEHIND_MEASURE = rf"(?:(?<={_NUMBER}[{_COUNTED}])|(?<=/[{_COUNTED}])|(?<=方米|小时|分钟))"
"""Behind a number with a measure word that is not one of those of days and houses, which stand in lists: 年/月, 3楼/4楼."""
