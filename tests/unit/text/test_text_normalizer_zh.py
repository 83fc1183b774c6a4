"""What Chinese text sounds like on the telephone, class by class."""

import pytest
from wetext import Normalizer as Wetext

from cc_tts.text.normalizer import Normalizer
from cc_tts.text.zh.numbers import say_plain_numbers

pytestmark = pytest.mark.unit

CASES = {
    "number": [
        ("1234个", "一千二百三十四个"),
        ("1,234,567", "一百二十三万四千五百六十七"),
        ("3.14", "三点一四"),
        ("-5", "负五"),
        ("第3个", "第三个"),
        ("2个", "两个"),
        ("1/2", "二分之一"),
        ("1.5亿", "一点五亿"),
        ("3～5天", "三到五天"),
        ("10-20个", "十到二十个"),
        ("版本1.2.3", "版本一点二点三"),
        ("①您好５", "一，您好五"),
    ],
    "money": [
        ("您的余额为1234.56元。", "您的余额为一千二百三十四点五六元。"),
        ("¥1,234.56", "一千二百三十四点五六元"),
        ("￥100", "一百元"),
        ("$12.50", "十二点五零美元"),
        ("USD 20", "二十美元"),
        ("20 EUR", "二十欧元"),
        ("月薪3万-5万", "月薪三万到五万"),
        ("12345678元", "一千二百三十四万五千六百七十八元"),
    ],
    "date": [
        ("2026年11月20日", "二零二六年十一月二十日"),
        ("2026-11-20", "二零二六年十一月二十日"),
        ("2026/11/20", "二零二六年十一月二十日"),
        ("2026-11", "二零二六年十一月"),
        ("11月20日", "十一月二十日"),
        ("80后", "八零后"),
    ],
    "time": [
        ("14:30", "十四点三十分"),
        ("下午2:05", "下午两点零五分"),
        ("10：30", "十点三十分"),
        ("北京时间08:00", "北京时间八点"),
        ("9:00-17:30", "九点到十七点三十分"),
        ("2小时30分", "两小时三十分"),
    ],
    "telephone": [
        ("电话13812345678", "电话幺三八，幺二三四，五六七八"),
        ("138-1234-5678", "幺三八，幺二三四，五六七八"),
        ("+86 138 1234 5678", "加八六，幺三八，幺二三四，五六七八"),
        ("请拨打010-12345678", "请拨打零幺零，幺二三四，五六七八"),
        ("请拨打400-800-1234", "请拨打四零零，八零零，幺二三四"),
        ("(010) 8888-9999转8001", "零幺零，八八八八，九九九九，转八零零幺"),
        ("拨打95588", "拨打九五五八八"),
        ("110", "幺幺零"),
    ],
    "identifier": [
        ("卡号6222021234567890123", "卡号六二二二，零二幺二，三四五六，七八九零，幺二三"),
        ("6222 0212 3456 7890 123", "六二二二，零二幺二，三四五六，七八九零，幺二三"),
        ("验证码是：123456", "验证码是：幺二三四五六"),
        ("订单号20261120001", "订单号二零二六，幺幺二零，零零幺"),
        ("尾号4321", "尾号四三二幺"),
        ("CA1234航班", "CA幺二三四航班"),
        ("AB12CD34", "AB幺二CD三四"),
        ("驗證碼1234", "驗證碼幺二三四"),
    ],
    "percent": [
        ("90%", "百分之九十"),
        ("5.5%", "百分之五点五"),
        ("100％", "百分之一百"),
        ("-5%", "负百分之五"),
        ("10-20%", "百分之十到百分之二十"),
        ("增长30%。", "增长百分之三十。"),
    ],
    "unit": [
        ("5km", "五公里"),
        ("10kg", "十千克"),
        ("37°C", "三十七摄氏度"),
        ("面积是3m²，体积是4m³。", "面积是三平方米，体积是四立方米。"),
        ("60km/h", "每小时六十公里"),
        ("1000mAh", "一千毫安时"),
        ("5GB流量", "五G流量"),
    ],
    "mixed": [
        ("您好 John，您的 order 4 已发货", "您好John，您的order四已发货"),
        ("请问 您 是 ABC 公司的 张先生 吗？", "请问您是ABC公司的张先生吗？"),
        ("联系 support@example.com 谢谢", "联系support艾特example点com谢谢"),
        ("请按#号键或*键", "请按井号键或星号键"),
        ("（测试）今天是个好日子！", "测试今天是个好日子！"),
        ("😀你好\x00", "你好"),
        ("张三\n李四", "张三，李四"),
        ("A&B公司——你好", "A和B公司，你好"),
    ],
}


@pytest.mark.parametrize(("written", "spoken"), [case for cases in CASES.values() for case in cases])
def test_chinese(normalizer: Normalizer, written: str, spoken: str) -> None:
    assert normalizer.normalize(written, "zh-CN") == spoken


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES.keys())
def test_every_class_has_at_least_six_cases(cases: list[tuple[str, str]]) -> None:
    assert len(cases) >= 6


@pytest.mark.parametrize("tag", ["zh", "cmn", "yue", "zh-CN", "cmn-Hans-CN", "zh_TW", "ZH", None])
def test_tags_of_chinese(normalizer: Normalizer, tag: str | None) -> None:
    assert normalizer.normalize("请按1", tag) == "请按一"


@pytest.mark.parametrize(
    ("tag", "spoken"),
    [
        ("zh", "电话九幺幺二"),
        ("zh-CN", "电话九幺幺二"),
        ("yue", "电话九一一二"),
        ("zh-HK", "电话九一一二"),
        ("zh-TW", "电话九一一二"),
    ],
)
def test_one_among_digits_by_region(normalizer: Normalizer, tag: str, spoken: str) -> None:
    assert normalizer.normalize("电话9112", tag) == spoken


def test_plain_numbers_are_said_as_wetext_says_them() -> None:
    wetext = Wetext(lang="zh", operator="tn", remove_erhua=False)
    numbers = [*range(130), 200, 202, 1000, 1001, 1010, 2000, 2200, 20202, 100000, 202000, 1234567, 9000009]
    clauses = [f"余额{number}元" for number in numbers] + [f"共{number}次" for number in numbers]
    clauses += [f"{hour}:{minute:02}开始" for hour in range(1, 25) for minute in (0, 5, 10, 22, 59)]
    clauses += [f"增长{amount}%" for amount in ("0", "2", "10", "0.5", "12345")]
    clauses += ["80后", "11.11活动", "2008.08", "2026年", "10.50元", "12.125", "尾号 A 3个", "1 kg", "CNY 1.25"]
    clauses += [
        f"{number}{unit}" for number in ("2", "23", "1.5") for unit in ("kg", "cm", "m", "L", "mg", "℃", "h", "m2")
    ]
    clauses += [
        "T3航站楼C12登机口",
        "座位23A",
        "（3）班",
        "比例3:2",
        "1:7.1235",
        "07:30",
        "（周四）上午9:00到9:30",
        "12345热线",
    ]
    said = {clause: say_plain_numbers(clause) for clause in clauses}
    assert sum(words is not None for words in said.values()) > 300
    assert {clause: words for clause, words in said.items() if words not in (None, wetext.normalize(clause))} == {}
