"""Words in Kokoro's alphabet."""

import pytest

from cc_tts.engines.cpu.kokoro.model import symbols, tokens_of
from cc_tts.engines.cpu.kokoro.phonemes import phonemes_of, spoken_phonemes
from cc_tts.engines.cpu.kokoro.syllables import syllable_ipa
from cc_tts.voices.inline_ipa import pronounced

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("pinyin", "ipa"),
    [
        ("zhong1", "ꭧʊ→ŋ"), ("shi4", "ʂɨ↘"), ("si3", "sɨ↓"), ("xi3", "ɕi↓"), ("lv4", "ly↘"), ("nüe4", "nɥe↘"),
        ("ju1", "ʨy→"), ("quan2", "ʨʰɥɛ↗n"), ("xun2", "ɕy↗n"), ("yuan2", "ɥɛ↗n"), ("you3", "jou↓"), ("yong4", "jʊ↘ŋ"),
        ("wen4", "wə↘n"), ("wo3", "wo↓"), ("weng1", "wə→ŋ"), ("hui4", "xwei↘"), ("liu4", "ljou↘"), ("dun4", "twə↘n"),
        ("er2", "ɚ↗"), ("de5", "tɤ"), ("o1", "ɔ→"), ("bo1", "pwo→"), ("nonsense1", ""), ("ma", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_syllable_of_pinyin_has_its_tone_behind_the_vowel(pinyin: str, ipa: str) -> None:
    assert syllable_ipa(pinyin) == ipa
    assert set(ipa) <= set(symbols())


@pytest.mark.parametrize(
    ("text", "pinyin"),
    [
        ("银行行长", "yin2 hang2 hang2 zhang3"),
        ("重新转接人工", "chong2 xin1 zhuan3 jie1 ren2 gong1"),
        ("还款还有", "huan2 kuan3 hai2 you3"),
        ("你好", "ni2 hao3"),
        ("您的应还金额", "nin2 de5 ying1 huan2 jin1 e2"),
        ("请并重复托运行李", "qing3 bing4 chong2 fu4 tuo1 yun4 xing2 li5"),
        ("您拨打的是", "nin2 bo1 da3 de5 shi4"),
        ("上调的得到", "shang4 tiao2 de5 de2 dao4"),
        ("单先生和曾女士", "shan4 xian1 sheng5 he2 zeng1 nv3 shi4"),
        ("免贵姓任", "mian3 gui4 xing4 ren2"),
        ("您的账单女士", "nin2 de5 zhang4 dan1 nv3 shi4"),
        ("是不是看一看", "shi4 bu5 shi4 kan4 yi5 kan4"),
        ("一天一天", "yi4 tian1 yi4 tian1"),
        ("百分之一点五", "bai3 fen1 zhi1 yi1 dian2 wu3"),
        ("统一办理", "tong3 yi1 ban4 li3"),
        ("我很好", "wo3 hen2 hao3"),
        ("我走", "wo2 zou3"),
        ("不是不行", "bu2 shi4 bu4 xing2"),
        ("一个一天一年一起", "yi2 ge4 yi4 tian1 yi4 nian2 yi4 qi3"),
        ("第一一月二十一", "di4 yi1 yi1 yue4 er4 shi2 yi1"),
        ("谢谢朋友", "xie4 xie5 peng2 you5"),
        ("慢慢地走跑得快", "man4 man4 de5 zou2 pao3 de5 kuai4"),
        ("女儿", "nv3 er2"),
        ("下个月还", "xia4 ge4 yue4 huan2"),
        ("我还差三百元没还", "wo3 hai2 cha4 san1 bai3 yuan2 mei2 huan2"),
        ("还五千元还是还了", "huan2 wu3 qian1 yuan2 hai2 shi4 huan2 le5"),
        ("我还", "wo3 hai2"),
        ("发卡银行跨行转账", "fa1 ka3 yin2 hang2 kua4 hang2 zhuan3 zhang4"),
        ("头发卡住", "tou2 fa5 ka3 zhu4"),
        ("房间里有空调", "fang2 jian1 li2 you3 kong1 tiao2"),
        ("手机落在出租车上", "shou3 ji1 la4 zai4 chu1 zu1 che1 shang4"),
        ("重填合同的邻居", "chong2 tian2 he2 tong5 de5 lin2 ju5"),
        ("展览馆", "zhan2 lan2 guan3"),
        ("绿色", "lv4 se4"),
    ],
)
def test_characters_are_read_in_context(text: str, pinyin: str) -> None:
    mandarin = pytest.importorskip("pypinyin") and phonemes_of("cmn")
    assert mandarin(text).replace(" ", "") == "".join(map(syllable_ipa, pinyin.split()))


@pytest.mark.parametrize(("text", "ipa"), [("一点儿", "i↘tjɛ↓ɚ"), ("花儿", "xwa→ɚ"), ("这儿", "ꭧɤ↘ɚ")])
def test_a_suffix_er_colours_the_syllable_before(text: str, ipa: str) -> None:
    mandarin = pytest.importorskip("pypinyin") and phonemes_of("cmn")
    assert mandarin(text).replace(" ", "") == ipa


def test_english_words_and_letters_in_chinese_are_said_in_english() -> None:
    chinese, english = pytest.importorskip("pypinyin") and phonemes_of("cmn"), phonemes_of("en-US")
    said = spoken_phonemes("请打开 Windows 设置，按 A 八 b。", chinese)
    assert english("Windows") in said
    assert "ˈA" in said
    assert "bˈi" in said
    assert said.count(",") == said.count(".") == 1


@pytest.mark.parametrize(
    ("language", "text", "ipa"),
    [
        ("es", "muchas gracias", "mˈuʧas ɣɾˈaθjas"),
        ("it", "grazie, buongiorno", "ɡrˈaʦje, bʊonʤˈɔrno"),
        ("fr-FR", "bonjour.", "bɔ̃ʒˈuʁ."),
        ("pt-BR", "obrigado!", "ˌobriɡˈadʊ!"),
        ("en-GB", "Press A.", "pɹˈɛs ˈA."),
    ],
)
def test_other_languages_have_the_sounds_of_espeak_in_kokoros_signs(language: str, text: str, ipa: str) -> None:
    assert spoken_phonemes(text, phonemes_of(language)) == ipa


def test_hindi_is_said() -> None:
    assert tokens_of(spoken_phonemes("नमस्ते।", phonemes_of("hi")))


def test_a_pronunciation_in_the_text_is_taken_as_it_is() -> None:
    assert spoken_phonemes(f"di {pronounced('Nguyen', 'wɪn')}", phonemes_of("it")) == "dˈi wɪn"


def test_signs_that_kokoro_lacks_are_taken_apart_or_left_out() -> None:
    assert tokens_of("ũ☃") == [symbols()["u"], symbols()["\u0303"]]
