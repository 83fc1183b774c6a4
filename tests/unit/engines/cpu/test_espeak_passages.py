"""How text is cut for espeak, how long the pauses are, and which voice an id means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cpu.espeak import espeak_voices, split_passages
from cc_tts.engines.cpu.libespeak import EspeakVoice
from cc_tts.media.silence_trimmer import pause_after_ms
from cc_tts.voices.catalog import VoiceIndex

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
VOICES = espeak_voices(LISTED, rate_hz=22_050)
INDEX = VoiceIndex(VOICES, ("f3", "Mr serious"))


def test_ids_are_unique_and_languages_are_tags() -> None:
    assert [(voice.id, voice.language) for voice in VOICES] == [
        ("cmn", "cmn"),
        ("en-gb", "en-GB"),
        ("en-us", "en-US"),
        ("vi-vn-x-south", "vi-VN-x-south"),
        ("yue", "yue"),
        ("yue-latn-jyutping", "yue-latn-jyutping"),
    ]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("en-us", "en-us"),
        ("EN-US", "en-us"),
        (" en ", "en-gb"),
        ("en-us+F3", "en-us+f3"),
        ("en+mr serious", "en-gb+Mr serious"),
        ("yue", "yue"),
        ("yue-latn-jyutping", "yue-latn-jyutping"),
    ],
)
def test_a_voice_is_found_by_its_id_or_file_in_any_case_with_a_variant_or_without(asked: str, found: str) -> None:
    voice = INDEX.find(asked)
    assert voice is not None
    assert voice.id == found
    assert INDEX.find(voice.id) == voice


@pytest.mark.parametrize(
    "asked", ["", "nobody", "en-us+", "en-us+nobody", "+f3", "gmw/en-US", "../../etc/passwd", "en\0us"]
)
def test_other_names_are_no_voices(asked: str) -> None:
    assert INDEX.find(asked) is None
