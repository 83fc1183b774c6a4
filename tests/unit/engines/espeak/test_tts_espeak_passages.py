"""How text is cut for espeak, how long the pauses are, and which voice an id means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.espeak.engine import split_passages
from cc_tts.engines.espeak.library import EspeakVoice, EspeakVoices
from cc_tts.errors import ConfigError, LanguageUnsupported, UnknownVoice
from cc_tts.media.silence_trimmer import pause_after_ms

pytestmark = pytest.mark.unit

_ORDER = "你好，世界。您的余额是十二元，请按一。"
_BYE = "再见，谢谢您的来电。"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [""]),
        ("short enough", ["short enough"]),
        ("One sentence. And a second, too.", ["One sentence.", " And a second, too."]),
        ("one clause, then the other one", ["one clause,", " then the other one"]),
        ("no stops in all of these words", ["no stops in all of ", "these words"]),
        ("A. but then a long tail of words", ["A. but then a long ", "tail of words"]),
        ("x" * 45, ["x" * 20, "x" * 20, "x" * 5]),
        (
            _ORDER + _BYE,
            [_ORDER, _BYE],
        ),
    ],
)
def test_passages(text: str, expected: list[str]) -> None:
    assert [part for _position, part in split_passages(text, 20)] == expected


@given(st.text(alphabet="ab .,。，", max_size=300), st.integers(1, 50))
def test_passages_are_the_whole_text_in_order(text: str, max_chars: int) -> None:
    passages = split_passages(text, max_chars)
    assert "".join(part for _position, part in passages) == text
    assert all(text[position : position + len(part)] == part for position, part in passages)
    assert all(len(part) <= max_chars for _position, part in passages)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("Good bye.", 300),
        ("Really?! ", 300),
        ('He said "yes."', 300),
        ("再见。”", 300),
        ("first,", 150),
        ("首先，", 150),
        ("and then", 30),
        ("", 30),
        (" ", 30),
    ],
)
def test_pauses(text: str, expected_ms: float) -> None:
    assert pause_after_ms(text) == expected_ms


LISTED = (
    EspeakVoice("cmn", "sit/cmn", "Chinese"),
    EspeakVoice("en-gb", "gmw/en", "English (Great Britain)"),
    EspeakVoice("en-us", "gmw/en-US", "English (America)"),
    EspeakVoice("vi-vn-x-south", "aav/vi-VN-x-south", "Vietnamese (Southern)"),
    EspeakVoice("yue", "sit/yue", "Cantonese"),
    EspeakVoice("yue", "sit/yue-Latn-jyutping", "Cantonese, Jyutping"),
)
VOICES = EspeakVoices(LISTED, ("f3", "Mr serious"), "en-us")


def test_ids_are_unique_and_languages_are_tags() -> None:
    assert [(voice.id, voice.language) for voice in VOICES.voices] == [
        ("cmn", "cmn"),
        ("en-gb", "en-GB"),
        ("en-us", "en-US"),
        ("vi-vn-x-south", "vi-VN-x-south"),
        ("yue", "yue"),
        ("yue-latn-jyutping", "yue-latn-jyutping"),
    ]


@pytest.mark.parametrize(
    ("voice_id", "language", "expected_id", "identifier"),
    [
        ("en-us", None, "en-us", "gmw/en-US"),
        ("EN-US", "de", "en-us", "gmw/en-US"),
        ("en", None, "en-gb", "gmw/en"),
        ("en-us+f3", None, "en-us+f3", "gmw/en-US+f3"),
        ("en-us+F3", None, "en-us+f3", "gmw/en-US+f3"),
        ("en+mr serious", None, "en-gb+Mr serious", "gmw/en+Mr serious"),
        ("yue-latn-jyutping", None, "yue-latn-jyutping", "sit/yue-Latn-jyutping"),
        (None, None, "en-us", "gmw/en-US"),
        (None, "zh", "cmn", "sit/cmn"),
        (None, "en-AU", "en-us", "gmw/en-US"),
        (None, "zh-HK", "yue", "sit/yue"),
    ],
)
def test_resolve(voice_id: str | None, language: str | None, expected_id: str, identifier: str) -> None:
    voice = VOICES.resolve(voice_id, language)
    assert voice.id == expected_id
    assert VOICES.identifier(voice) == identifier
    assert VOICES.resolve(voice.id, None) == voice


@pytest.mark.parametrize(
    "voice_id", ["", "nobody", "en-us+", "en-us+nobody", "+f3", "gmw/en-US", "../../etc/passwd", "en\0us"]
)
def test_unknown_voices(voice_id: str) -> None:
    with pytest.raises(UnknownVoice):
        VOICES.resolve(voice_id, None)


def test_unknown_language_and_default() -> None:
    with pytest.raises(LanguageUnsupported, match="'tlh'"):
        VOICES.resolve(None, "tlh")
    with pytest.raises(ConfigError, match=r"tts\.voice: no voice is called 'nobody'"):
        EspeakVoices(LISTED, (), "nobody")
