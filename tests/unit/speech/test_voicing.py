"""Which voice speaks which part of a text."""

from dataclasses import replace
from typing import Any, cast

import pytest

from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import LanguageUnsupported, UnknownVoice
from cc_tts.speech.lexicons import Lexicons
from cc_tts.speech.prompt import RefusedContent, SilenceContent, TextContent
from cc_tts.speech.voicing.parts import Voicing
from cc_tts.text.pronunciation.lexicon import Entry, Lexicon
from cc_tts.text.pronunciation.replacements import Replacement
from cc_tts.voices.voice import Voice
from tests.fakes.fake_engine import FakeEngine

pytestmark = pytest.mark.unit

LATIN = ("LATIN",)


class Babel(FakeEngine):
    """A voice a language, called by its tag, and an English one of its own name."""

    languages: tuple[str, ...] = ("cmn", "ja", "ko", "th", "ru", "uk", "ar", "he", "el", "hi", "de", "es", "fr", "yue")

    def voices(self) -> tuple[Voice, ...]:
        own = Voice(id="heart", engine="onnx", language="en-US")
        others = (Voice(each, "espeak", each, also_reads=() if each == "ja" else LATIN) for each in self.languages)
        return (own, *others)

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        if voice is None and language is not None and language.startswith("zh"):
            language = "cmn"
        if voice is None and (language or "en")[:2] not in {each.language[:2] for each in self.voices()}:
            raise LanguageUnsupported(f"nobody speaks {language}")
        return super().resolve_voice(voice, language)


class EnglishAlone(Babel):
    languages = ()


class NamesHan(Babel):
    """Its Japanese voice says "Chinese letter" for every Han character."""

    def voices(self) -> tuple[Voice, ...]:
        return tuple(
            replace(each, names_letters_of=frozenset({"CJK"})) if each.id == "ja" else each for each in super().voices()
        )


class TwoLanguages(Babel):
    """Its Chinese voice speaks English as well."""

    def voices(self) -> tuple[Voice, ...]:
        return tuple(replace(each, also_speaks=("en",)) if each.id == "cmn" else each for each in super().voices())


def voicing(engine: Babel | None = None, voice: str = "") -> Voicing:
    config = TtsConfig(voice=voice)
    return Voicing(cast("Any", engine or Babel()), config, Lexicons(config))


def spoken(content: TextContent, *, voice: str = "") -> list[tuple[str | None, str]]:
    parts = voicing(voice=voice).parts(content)
    assert "".join(part.text for part in parts) == content.text
    return [(part.voice, part.text) for part in parts if isinstance(part, TextContent)]


@pytest.mark.parametrize(
    ("text", "voices"),
    [
        (
            "Ask for Maj. Müller, the café. closes at nine.",
            [("heart", "Ask for Maj. Müller, the café. closes at nine.")],
        ),
        ("Thank you, Mrs. de la Cruz;", [("heart", "Thank you, Mrs. de la Cruz;")]),
        ("Einen Moment, bitte. OK.", [("de", "Einen Moment, bitte. OK.")]),
        ("Your name is 王小明, right?", [("heart", "Your name is "), ("cmn", "王小明, "), ("heart", "right?")]),
        ("您好！Your order has shipped today.", [("cmn", "您好！"), ("heart", "Your order has shipped today.")]),
        ("您好，请打开 Windows 设置，连接WiFi。", [("cmn", "您好，请打开 Windows 设置，连接WiFi。")]),
        ("Please say “谢谢” to her today.", [("heart", "Please say "), ("cmn", "“谢谢” "), ("heart", "to her today.")]),
        ("Your code is 4821。 您好", [("heart", "Your code is 4821。 "), ("cmn", "您好")]),
        ("Your order is ready! 3天内送达。", [("heart", "Your order is ready! "), ("cmn", "3天内送达。")]),
        ("Follow these steps:\n① 打开设置", [("heart", "Follow these steps:\n"), ("cmn", "① 打开设置")]),
        ("Please dial ext. 8021 谢谢您", [("heart", "Please dial ext. 8021 "), ("cmn", "谢谢您")]),
        ("😀 5, 您好 😀", [("cmn", "😀 5, 您好 😀")]),
        ("สวัสดีครับ, your order has shipped.", [("th", "สวัสดีครับ, "), ("heart", "your order has shipped.")]),
        ("안녕하세요. Здравствуйте. 123", [("ko", "안녕하세요. "), ("ru", "Здравствуйте. 123")]),
        ("شكرا. תודה. ευχαριστώ. नमस्ते.", [("ar", "شكرا. "), ("he", "תודה. "), ("el", "ευχαριστώ. "), ("hi", "नमस्ते.")]),
        ("東京駅でお待ちください。", [("ja", "東京駅でお待ちください。")]),
        ("WiFiの設定をお待ちください。", [("heart", "WiFi"), ("ja", "の設定をお待ちください。")]),
        ("Дякуємо за дзвінок, їдемо.", [("uk", "Дякуємо за дзвінок, їдемо.")]),
        (
            "Guten Tag, Ihre Bestellung ist auf dem Weg zu Ihnen.",
            [("de", "Guten Tag, Ihre Bestellung ist auf dem Weg zu Ihnen.")],
        ),
        (
            "Thank you for calling, we will be with you. Gracias por llamar a nuestra línea.",
            [("heart", "Thank you for calling, we will be with you. "), ("es", "Gracias por llamar a nuestra línea.")],
        ),
        ("It costs 5 μg and 3 Ω, Pаypal.", [("heart", "It costs 5 μg and 3 Ω, Pаypal.")]),
        ("Write to a@b.com or https://b.com/您 now, dear 王.", None),
        ("<b>您好</b> and {name} hello there", [("cmn", "<b>您好</b> "), ("heart", "and {name} hello there")]),
        ("12.5", [("heart", "12.5")]),
        ("血糖6.1mmol/L，步行2km，用时1h20min。", [("cmn", "血糖6.1mmol/L，步行2km，用时1h20min。")]),
        ("税号91310115MA1K3Y2X8P。", [("cmn", "税号91310115MA1K3Y2X8P。")]),
        ("套餐A(￥399)、B(￥699)、C(￥999)。", [("cmn", "套餐A(￥399)、B(￥699)、C(￥999)。")]),
    ],
)
@pytest.mark.parametrize("voice", [None, "heart"])
def test_each_part_has_a_voice_that_can_speak_it(
    text: str, voices: list[tuple[str, str]] | None, voice: str | None
) -> None:
    found = spoken(TextContent(text, voice))
    if voices is not None:
        assert found == voices


@pytest.mark.parametrize(
    ("content", "voices"),
    [
        (TextContent("Guten Tag", "heart", "de"), ["de"]),
        (TextContent("Danke", None, "de-AT"), ["de"]),
        (TextContent("Hello there", "heart", "en-GB"), ["heart"]),
        (TextContent("您的订单已经发货。", None, "en-US"), ["cmn"]),
        (TextContent("Your order has shipped today.", None, "zh"), ["cmn"]),
        (TextContent("您好", "yue", "zh"), ["yue"]),
        (TextContent("您好", "yue"), ["yue"]),
        (TextContent("Привет", "uk"), ["uk"]),
        (TextContent("Guten Tag", "de"), ["de"]),
        (TextContent("Thank you for calling, the agent will be with you.", "de"), ["heart"]),
    ],
)
def test_the_language_that_was_asked_for_counts_beside_the_voice(content: TextContent, voices: list[str]) -> None:
    assert [voice for voice, _ in spoken(content)] == voices


@pytest.mark.parametrize(
    ("text", "voice", "configured", "voices"),
    [
        ("您的订单已经发货。Your order has shipped.", None, "", ["cmn", "cmn"]),
        ("Your order has shipped. 您的订单已经从我们的仓库发货了。", None, "", ["cmn", "cmn"]),
        ("Your name is 王小明, right?", None, "", ["heart", "cmn", "heart"]),
        ("您的订单已经发货。Gracias por llamar a nuestra línea.", None, "", ["cmn", "es"]),
        ("您的订单已经发货。Your order has shipped.", "heart", "", ["cmn", "heart"]),
        ("您的订单已经发货。Your order has shipped.", None, "heart", ["cmn", "heart"]),
    ],
)
def test_the_voice_of_most_words_says_all_of_them_if_it_can_and_no_voice_was_asked_for(
    text: str, voice: str | None, configured: str, voices: list[str]
) -> None:
    parts = voicing(TwoLanguages(), configured).parts(TextContent(text, voice))
    assert [part.voice for part in parts if isinstance(part, TextContent)] == voices


def test_a_foreign_part_is_read_by_the_rules_of_its_language() -> None:
    english, chinese = voicing().parts(TextContent("You have 12 letters: 您有12封信", None, "en-GB"))
    assert isinstance(english, TextContent)
    assert isinstance(chinese, TextContent)
    assert (english.language, chinese.language) == ("en-GB", "zh")


def test_words_of_a_voice_that_is_not_of_latin_letters_are_read_by_the_rules_of_its_language() -> None:
    (part,) = voicing().parts(TextContent("BMI 23.6，", context_language="zh"))
    assert isinstance(part, TextContent)
    assert (part.voice, part.language) == ("cmn", "zh")


def test_words_that_tell_no_language_are_in_that_of_the_words_before() -> None:
    assert [voice for voice, _ in spoken(TextContent("Señor García", context_language="es"))] == ["es"]


def test_the_configured_voice_goes_before_the_engines_choice() -> None:
    assert [voice for voice, _ in spoken(TextContent("您好", "heart"), voice="yue")] == ["yue"]


def test_where_nobody_speaks_a_part_it_is_refused_and_says_which_voice_and_language() -> None:
    parts = voicing(EnglishAlone()).parts(TextContent("Your name is 王小明, right?"))
    assert [part.text for part in parts if isinstance(part, RefusedContent)] == ["王小明, "]
    with pytest.raises(LanguageUnsupported, match="heart does not speak Thai"):
        voicing(EnglishAlone()).voice(TextContent("สวัสดีครับ"))
    with pytest.raises(LanguageUnsupported, match="heart does not speak German"):
        voicing(EnglishAlone()).voice(TextContent("Danke", "heart", "de"))
    parts = voicing().parts(TextContent("您好，𠮷野先生。"))
    assert [part.text for part in parts if isinstance(part, RefusedContent)] == ["𠮷"]
    with pytest.raises(LanguageUnsupported, match="text in Yi letters"):
        voicing().voice(TextContent("ꆈꌠꁱꂷ"))


@pytest.mark.parametrize(
    "content", [TextContent("東京駅でお待ちください。"), TextContent("東京", "ja"), TextContent("東京", None, "ja")]
)
def test_a_voice_that_only_names_letters_does_not_speak_the_words_written_with_them(content: TextContent) -> None:
    with pytest.raises(LanguageUnsupported, match="does not read CJK characters"):
        voicing(NamesHan()).voice(content)


def test_a_voice_that_names_some_letters_speaks_the_words_written_with_others() -> None:
    assert voicing(NamesHan()).voice(TextContent("とうきょうで おまちください。")).id == "ja"
    replaced = TextContent("東京 です", "ja", replacements=(Replacement(0, 2, "とうきょう"),))
    assert voicing(NamesHan()).voice(replaced).id == "ja"


def test_a_voice_of_a_transcription_leaves_the_languages_own_letters_to_another_voice() -> None:
    class Transcribed(Babel):
        languages = ("cmn", "cmn-latn-pinyin", "chr-us-qaaa-x-west")

    assert voicing(Transcribed()).voice(TextContent("您好", "cmn-latn-pinyin")).id == "cmn"
    with pytest.raises(LanguageUnsupported, match="does not read CHEROKEE characters"):
        voicing(Transcribed()).voice(TextContent("ᏣᎳᎩ"))


def test_a_voice_that_does_not_exist_is_told_whatever_the_text() -> None:
    with pytest.raises(UnknownVoice):
        voicing().parts(TextContent("您好", "nobody"))


def test_a_voice_is_found_by_its_other_name() -> None:
    config = TtsConfig(voice="anna", voice_aliases={"anna": "de", "alloy": "heart"})
    named = Voicing(cast("Any", Babel()), config, Lexicons(config))
    assert named.voice(TextContent("Hallo")).id == "de"
    assert named.voice(TextContent("Hello", "alloy")).id == "heart"
    named.check("alloy", "de")
    with pytest.raises(UnknownVoice):
        named.check("nova", None)


def test_what_is_replaced_counts_by_what_is_said_and_stays_in_one_part() -> None:
    text = "Your name is 王小明, and you are 李, right?"
    replaced = (Replacement(13, 16, "Wang Xiaoming"), Replacement(30, 31, ipa="li"))
    assert spoken(TextContent(text, replacements=replaced)) == [("heart", text)]
    config = TtsConfig()
    lexicons = Lexicons(config)
    lexicons.put("names", Lexicon(entries=(Entry("王小明", alias="Wang Xiaoming"),)))
    parts = Voicing(cast("Any", Babel()), config, lexicons).parts(
        TextContent("Your name is 王小明.", lexicons=("names",))
    )
    assert [part.text for part in parts] == ["Your name is 王小明."]


def test_marks_and_replacements_keep_their_places() -> None:
    content = TextContent(
        "Hello 王小明 and goodbye to you",
        marks=((0, "a"), (6, "b"), (10, "c"), (28, "d")),
        replacements=(Replacement(14, 21, "farewell"),),
    )
    first, name, last = voicing().parts(content)
    assert isinstance(first, TextContent)
    assert isinstance(name, TextContent)
    assert isinstance(last, TextContent)
    assert (first.marks, name.marks, last.marks) == (((0, "a"),), ((0, "b"),), ((0, "c"), (18, "d")))
    assert [last.text[each.start : each.end] for each in last.replacements] == ["goodbye"]


class SlowVoice(Babel):
    """It has a natural German voice that is slower than speech, before the plain one."""

    def voices(self) -> tuple[Voice, ...]:
        heart, *others = super().voices()
        return (heart, Voice("slow", "onnx", "de-DE", streams=0), *others)

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        return super().resolve_voice("de" if voice is None and language == "de" else voice, language)


@pytest.mark.parametrize(("is_made_ahead", "expected"), [(False, "de"), (True, "slow")])
def test_a_voice_that_is_slower_than_speech_speaks_what_is_made_ahead(*, is_made_ahead: bool, expected: str) -> None:
    content = TextContent("Guten Tag, Ihre Bestellung ist auf dem Weg zu Ihnen.", is_made_ahead=is_made_ahead)
    (part,) = voicing(SlowVoice()).parts(content)
    assert isinstance(part, TextContent)
    assert part.voice == expected


def test_digits_of_a_sequence_are_in_the_language_of_the_words_before_unless_they_tell_their_own() -> None:
    words = TextContent("Einen Moment, bitte.")
    digits = TextContent("3"), TextContent("4", language="es"), TextContent("5"), TextContent("6", voice="fr")
    voiced = voicing().sequence([TextContent("2"), words, SilenceContent(20), *digits])
    found = [part.voice for part in voiced if isinstance(part, TextContent)]
    assert found == ["heart", "de", "de", "es", "de", "fr"]
