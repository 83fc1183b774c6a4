import pytest

from cc_tts.voices.catalog import best_for_language, normalised_language, unknown_language, unknown_voice
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.unit


def voices(*ids: str, engine: str = "espeak") -> tuple[Voice, ...]:
    return tuple(Voice(voice_id, engine, language=voice_id) for voice_id in ids)


VOICES = voices(
    "cmn", "de", "en-029", "en-gb", "en-gb-scotland", "en-us", "es", "es-419", "fr-be", "fr-fr", "nb", "vi", "yue"
)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("zh", "cmn"),
        ("zh-CN", "cmn"),
        ("zh_TW", "cmn"),
        ("zh-Hant-TW", "cmn"),
        ("zh-HK", "yue"),
        ("zh-Hant-HK", "yue"),
        ("zh-yue", "yue"),
        ("yue-HK", "yue"),
        ("cmn-Hans-CN", "cmn"),
        ("no", "nb"),
        ("no-NO", "nb"),
        ("iw", "he"),
        ("in-ID", "id-id"),
        (" EN_us ", "en-us"),
    ],
)
def test_tags_are_normalised_and_find_their_voice(language: str, expected: str) -> None:
    tag = normalised_language(language)
    found = best_for_language(language, VOICES)
    assert expected in {tag, found.id if found else None}


@pytest.mark.parametrize(
    ("language", "default", "expected"),
    [
        ("en-GB", "en-us", "en-gb"),
        ("EN-gb-Scotland", None, "en-gb-scotland"),
        ("en-GB-oxendict", "en-us", "en-gb"),
        ("en", None, "en-us"),
        ("en", "en-gb", "en-gb"),
        ("en-AU", None, "en-us"),
        ("en-AU", "en-gb", "en-gb"),
        ("fr", None, "fr-fr"),
        ("fr-CA", None, "fr-fr"),
        ("es-MX", None, "es"),
        ("de-AT", "en-us", "de"),
        ("tlh", "en-us", None),
        ("e", "en-us", None),
    ],
)
def test_the_nearest_voice_of_the_language(language: str, default: str | None, expected: str | None) -> None:
    found = best_for_language(language, VOICES, default=voices(default)[0] if default else None)
    assert (found.id if found else None) == expected


def test_any_voice_of_the_language_is_better_than_none() -> None:
    found = best_for_language("vi", voices("vi-vn-x-south"))
    assert found is not None


def test_an_unknown_voice_names_the_nearest() -> None:
    refusal = unknown_voice("alicee", voices("alice", "de"))
    assert refusal.detail.startswith("no voice is called 'alicee'; did you mean alice")


def test_a_long_id_does_not_fill_the_message() -> None:
    assert len(unknown_voice("x" * 10_000, VOICES).detail) < 200


NAMED = (
    Voice("cmn", "espeak", language="cmn", description="Chinese (Mandarin, latin as English)"),
    Voice("yue", "espeak", language="yue", description="Chinese (Cantonese)"),
    Voice("de", "espeak", language="de", description="German"),
    Voice("en-us", "espeak", language="en-US", description="English (America)"),
)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("chinese", "zh"),
        ("Chinese", "zh"),
        ("mandarin", "zh"),
        ("cantonese", "yue"),
        ("german", "de"),
        ("englisch", "en"),
        ("klingon", None),
        ("xx", None),
        ("ger", None),
    ],
)
def test_a_language_that_is_called_by_its_name(asked: str, meant: str | None) -> None:
    hint = "" if meant is None else f", did you mean {meant}?"
    assert unknown_language(asked, NAMED).detail == f"no voice speaks {asked!r}{hint}"
