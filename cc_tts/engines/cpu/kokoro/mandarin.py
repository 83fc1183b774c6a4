"""Han characters as Mandarin sounds in context: characters of several readings, tone sandhi, neutral tones and erhua.

The readings are pypinyin's (MIT), which knows the words in which a character is read in another way.
"""

import re
from itertools import pairwise
from typing import Final

from pypinyin import Style, lazy_pinyin
from pypinyin.constants import PHRASES_DICT

from cc_tts.engines.cpu.kokoro.syllables import syllable_ipa

_NEUTRAL: Final = (
    "朋友 先生 衣服 东西 消息 意思 事情 清楚 明白 休息 认识 知道 时候 关系 地方 麻烦 便宜 客气 照顾 告诉 舒服 漂亮 "
    "部分 生意 大夫 护士 学生 太阳 月亮 早上 晚上 名字 钥匙 商量 打听 打算 比方 力量 窗户 玻璃 眼睛 头发 耳朵 行李 "
    "怎么 那么 这么 多么 我们 你们 他们 她们 它们 咱们 人们 爸爸 妈妈 哥哥 姐姐 弟弟 妹妹 爷爷 奶奶 谢谢 星星 "
    "看看 听听 试试 等等 说说 想想 问问 聊聊 走走 合同 师傅 太太 招呼 厉害 亲戚 邻居 热闹 凉快 故事 豆腐 规矩 "
    "答应 结实 扁担 老实 暖和 应酬 丈夫 打扮 胳膊 队伍 咳嗽 唠叨 力气 利索 马虎 佩服 葡萄 欺负 勤快 收拾 舒坦 "
    "算计 体面 痛快 委屈 稀罕 吓唬 笑话 心思 学问 冤枉 张罗 指甲 主意 妥当 嘱咐 尺寸 蘑菇 棉花 芝麻 讲究 戒指 "
    "记性 活泼 运气 在乎 聪明 凑合 耽误 灯笼 点心 对付 福气 姑娘 官司 机灵 见识 嘴巴 下巴"
)
_NEUTRAL_WORDS: Final = frozenset(_NEUTRAL.split())
"""Words whose second syllable has no tone (read in dictionaries, where pypinyin's phrases give it one)."""
_READ: Final = {
    "朝阳": "zhao1 yang2", "朝阳区": "chao2 yang2 qu1", "转接": "zhuan3 jie1", "转账": "zhuan3 zhang4",
    "转人工": "zhuan3 ren2 gong1",
    "还款": "huan2 kuan3", "还清": "huan2 qing1", "还贷": "huan2 dai4", "归还": "gui1 huan2", "退还": "tui4 huan2",
    "分机": "fen1 ji1", "下载": "xia4 zai4", "重置": "chong2 zhi4", "重拨": "chong2 bo1", "重试": "chong2 shi4",
    "重发": "chong2 fa1", "重启": "chong2 qi3", "行程": "xing2 cheng2", "行号": "hang2 hao4", "本行": "ben3 hang2",
    "我行": "wo3 hang2", "支行": "zhi1 hang2", "分行": "fen1 hang2", "总行": "zong3 hang2", "开户行": "kai1 hu4 hang2",
    "应付": "ying1 fu4", "空余": "kong4 yu2", "调取": "diao4 qu3", "调换": "diao4 huan4", "核查": "he2 cha2",
    "长按": "chang2 an4", "时长": "shi2 chang2", "得分": "de2 fen1", "只需": "zhi3 xu1", "只要": "zhi3 yao4",
    "只能": "zhi3 neng2", "只是": "zhi3 shi4", "还没": "hai2 mei2", "还是": "hai2 shi4", "还要": "hai2 yao4",
    "还会": "hai2 hui4", "还能": "hai2 neng2", "还可以": "hai2 ke3 yi3", "都是": "dou1 shi4", "都有": "dou1 you3",
    "几个": "ji3 ge4", "血压": "xue4 ya1", "调解": "tiao2 jie3", "处方": "chu3 fang1", "倒计时": "dao4 ji4 shi2",
    "了解": "liao3 jie3", "为您": "wei4 nin2", "为你": "wei4 ni3", "为我": "wei4 wo3", "请问": "qing3 wen4",
    "您好": "nin2 hao3", "按键": "an4 jian4", "拨打": "bo1 da3", "来电": "lai2 dian4", "致电": "zhi4 dian4",
    "客户": "ke4 hu4", "办理": "ban4 li3", "查询": "cha2 xun2", "请稍等": "qing3 shao1 deng3", "稍等": "shao1 deng3",
    "应还": "ying1 huan2", "待还": "dai4 huan2", "已还": "yi3 huan2", "未还": "wei4 huan2", "需还": "xu1 huan2",
    "还钱": "huan2 qian2", "还信用卡": "huan2 xin4 yong4 ka3", "还本": "huan2 ben3", "得到": "de2 dao4", "得票": "de2 piao4",
    "看得到": "kan4 de5 dao4", "听得到": "ting1 de5 dao4", "做得到": "zuo4 de5 dao4", "收得到": "shou1 de5 dao4",
    "找得到": "zhao3 de5 dao4", "重复": "chong2 fu4", "托运": "tuo1 yun4", "调休": "tiao2 xiu1",
    "上调": "shang4 tiao2", "调至": "tiao2 zhi4",
    "调到": "tiao2 dao4", "调低": "tiao2 di1", "调高": "tiao2 gao1", "调为": "tiao2 wei2", "这行": "zhe4 hang2",
    "没还": "mei2 huan2", "还我": "huan2 wo3", "还您": "huan2 nin2", "空调": "kong1 tiao2",
    "发卡银行": "fa1 ka3 yin2 hang2", "发卡机构": "fa1 ka3 ji1 gou4", "发卡行": "fa1 ka3 hang2",
    "跨行": "kua4 hang2", "行内": "hang2 nei4", "得奖": "de2 jiang3", "差旅": "chai1 lv3",
    "时差": "shi2 cha1", "落差": "luo4 cha1", "弹窗": "tan2 chuang1", "踏实": "ta1 shi5", "展览": "zhan3 lan3",
    "中签率": "zhong4 qian1 lv4", "中签号": "zhong4 qian1 hao4", "已中签": "yi3 zhong4 qian1", "未中签": "wei4 zhong4 qian1",
    "重装": "chong2 zhuang1", "重设": "chong2 she4", "重写": "chong2 xie3", "重连": "chong2 lian2", "重开": "chong2 kai1",
    "重填": "chong2 tian2", "重传": "chong2 chuan2", "重登": "chong2 deng1", "重签": "chong2 qian1", "重寄": "chong2 ji4",
    "重做": "chong2 zuo4", "重办": "chong2 ban4", "重选": "chong2 xuan3", "重考": "chong2 kao3",
    "落在车上": "la4 zai4 che1 shang4", "落在家里": "la4 zai4 jia1 li3", "落在酒店": "la4 zai4 jiu3 dian4",
    "落在房间": "la4 zai4 fang2 jian1", "落在出租车": "la4 zai4 chu1 zu1 che1", "落在飞机": "la4 zai4 fei1 ji1",
    "不得": "bu4 de2", "觉得": "jue2 de5", "记得": "ji4 de5", "值得": "zhi2 de5", "不得不": "bu4 de2 bu4",
}  # fmt: skip
"""Words of calls that pypinyin's phrases lack or read in another way."""
_SURNAMES: Final = {
    "单": "shan4", "曾": "zeng1", "解": "xie4", "仇": "qiu2", "华": "hua4", "任": "ren2", "区": "ou1", "查": "zha1",
    "盖": "ge3", "朴": "piao2", "乐": "yue4", "翟": "zhai2", "缪": "miao4", "宁": "ning4",
    "覃": "qin2", "员": "yun4", "黑": "he4", "种": "chong2", "繁": "po2", "召": "shao4", "卜": "bu3",
}  # fmt: skip
"""Readings of names of families that the words of the language have in another way (GB/T 28039 gives the spelling)."""
_TITLES: Final = ("先生", "女士", "小姐", "太太", "师傅", "经理", "老师", "医生", "主任")
_DIGITS: Final = frozenset("零〇一二两三四五六七八九幺")
_COUNTED_OFF: Final = frozenset("月号日级楼")
"""Behind these, 一 is the ordinal number."""
_BEFORE_ORDINAL: Final = frozenset(frozenset("第十初周期统唯之专逐拜")) | _DIGITS
_REAL_ER: Final = re.compile("女儿|婴儿|幼儿|孤儿|少儿|胎儿|患儿|健儿|宠儿|新生儿|混血儿|^儿")
_MEASURES: Final = _DIGITS | frozenset("天年个月次步条点批层")
"""Between two of these, 一 counts: 一天一天."""
_ALONE: Final = {"一": "yi1", "不": "bu4"}
_MUST: Final = frozenset("必须还总就都也我你他她您")
"""Behind these, 得 is the verb that means must."""
_STILL: Final = frozenset("我你他她它您都也却倒")
"""Behind these, 还 at the end of the characters is the adverb (我还OK)."""
_MONEY: Final = frozenset("百千万亿元块")
_MAX_WORD: Final = 6
"""The longest word that is looked for; pypinyin's longer phrases are proverbs; unmeasured."""


def mandarin_phonemes(text: str) -> str:
    """Han characters in Kokoro's alphabet, a space between words. What has no reading is left out."""
    words = [_Word(each) for each in _words_in(text)]
    _say_surnames(words)
    _say_particles(words)
    _say_returning(words)
    _say_one_and_not(words)
    _say_third_tones(words)
    return " ".join(ipa for word in words if (ipa := word.ipa()))


def _words_in(text: str) -> list[str]:
    """The text in the fewest words that have readings; among equals the most words of calls, then the longest ones first."""
    fewest: list[tuple[int, int, int]] = [(0, 0, 0)] * (len(text) + 1)
    for start in range(len(text) - 1, -1, -1):
        options = [(fewest[start + 1][0] + 1, fewest[start + 1][1], -1)]
        for length in range(2, min(_MAX_WORD, len(text) - start) + 1):
            word = text[start : start + length]
            if word in _READ or word in _NEUTRAL_WORDS or word in PHRASES_DICT:
                count, of_calls, _ = fewest[start + length]
                options.append((count + 1, of_calls - (word in _READ), -length))
        fewest[start] = min(options)
    words, start = [], 0
    while start < len(text):
        words.append(text[start : start - fewest[start][2]])
        start += len(words[-1])
    return _with_suffixes(words)


def _with_suffixes(words: list[str]) -> list[str]:
    """A 儿 that is no word belongs to the word before."""
    joined: list[str] = []
    for word in words:
        if word == "儿" and joined:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


class _Word:
    """A word and its syllables, each in pinyin with the digit of its tone."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._has_suffix = len(text) > 1 and text.endswith("儿") and not _REAL_ER.search(text)
        self.syllables = _read(text[:-1]) if self._has_suffix else _read(text)

    def say(self, index: int, tone: str) -> None:
        """Give a syllable another tone."""
        self.syllables[index] = self.syllables[index][:-1] + tone

    @property
    def tones(self) -> str:
        return "".join(each[-1] for each in self.syllables)

    def ipa(self) -> str:
        spoken = "".join(map(syllable_ipa, self.syllables))
        return spoken.removesuffix("n") + "ɚ" if self._has_suffix else spoken


def _read(word: str) -> list[str]:
    """The syllables of a word; 一 and 不 have the tones that they have alone."""
    if word in _READ:
        return _READ[word].split()
    found: list[str] = lazy_pinyin(word, style=Style.TONE3, neutral_tone_with_five=True, v_to_u=False, errors="ignore")
    if len(found) == len(word):
        found = [_ALONE.get(character, each) for character, each in zip(word, found, strict=True)]
    if word in _NEUTRAL_WORDS and found:
        found[-1] = found[-1][:-1] + "5"
    return found


def _say_surnames(words: list[_Word]) -> None:
    """A character before a title, or behind 姓, is the name of a family."""
    for index, (before, word) in enumerate(pairwise(words)):
        behind = word.text + (words[index + 2].text if index + 2 < len(words) else "")
        if before.text in _SURNAMES and behind.startswith(_TITLES):
            before.syllables = [_SURNAMES[before.text]]
        elif before.text.endswith("姓") and word.text in _SURNAMES:
            word.syllables = [_SURNAMES[word.text]]


def _say_particles(words: list[_Word]) -> None:
    """A 地 behind an adverb and a 得 behind a verb have no tone."""
    for index, (before, word) in enumerate(pairwise(words)):
        is_doubled = index > 0 and words[index - 1].text == before.text
        if word.text == "地" and (is_doubled or len(before.text) > 1):
            word.syllables = ["de5"]
        elif word.text == "得":
            word.syllables = ["dei3"] if before.text in _MUST else ["de5"]


def _say_returning(words: list[_Word]) -> None:
    """A 还 behind which nothing comes that is done, or a sum, is the verb: 下个月还, 还三百元."""
    for index, word in enumerate(words):
        if word.text != "还":
            continue
        following = [each.text for each in words[index + 1 : index + 3]]
        is_last = not following and index > 0 and words[index - 1].text[-1] not in _STILL
        is_sum = len(following) > 1 and following[0] in _DIGITS | {"十"} and following[1][0] in _MONEY
        if is_last or is_sum or following[:1] in (["了"], ["的"], ["吗"], ["完"], ["一百"], ["一千"], ["一万"]):
            word.syllables = ["huan2"]


def _say_one_and_not(words: list[_Word]) -> None:
    """The tones of 一 and 不 by the tone that follows: 一 is 4 before 1, 2 and 3, and 2 before 4, unless it counts; 不 is 2
    before 4. Between two of the same verb neither has a tone.
    """
    text = "".join(word.text[: len(word.syllables)] for word in words)
    places = [(word, index) for word in words for index in range(len(word.syllables))]
    if len(places) != len(text):  # a character without a reading
        return
    for at, (word, index) in enumerate(places[:-1]):
        following, number = places[at + 1]
        tone = following.syllables[number][-1]
        if text[at] in _ALONE and text[at - 1 : at] == text[at + 1] and text[at + 1] not in _MEASURES:
            word.say(index, "5")
        elif text[at] == "不" and tone == "4":
            word.say(index, "2")
        elif text[at] == "一" and not _counts(text, at):
            word.say(index, "2" if tone in "45" else "4")


def _counts(text: str, at: int) -> bool:
    """Whether a 一 with something behind it is a digit or an ordinal number."""
    before, after = text[at - 1 : at], text[at + 1]
    is_decimal = after == "点" and text[at + 2 : at + 3] in _DIGITS
    return is_decimal or before in _BEFORE_ORDINAL or after in _DIGITS or after in _COUNTED_OFF


def _say_third_tones(words: list[_Word]) -> None:
    """A third tone before another is a second one: within words, and next to words of one syllable."""
    for word in words:
        tones = word.tones
        for index in range(len(tones) - 1):
            if tones[index : index + 2] == "33":
                word.say(index, "2")
    for before, word in reversed(list(pairwise(words))):
        is_joined = len(before.text) == 1 or len(word.text) == 1
        if is_joined and before.tones[-1:] == "3" and word.tones[:1] == "3":
            before.say(-1, "2")
