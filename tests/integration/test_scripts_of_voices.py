"""What the real voices have sounds for is what they are said to read."""

import pytest
from hibari import Hibari

from cc_tts.engines.cpu.espeak import espeak_voices
from cc_tts.engines.cpu.hibari import hibari_models
from cc_tts.engines.cpu.libespeak import EspeakLibrary
from cc_tts.voices.catalog import reads
from cc_tts.voices.scripts import scripts_of
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.integration

WORDS = {
    "CYRILLIC": "добро", "GREEK": "καλημέρα", "HEBREW": "בוקרטוב", "ARABIC": "سلام", "DEVANAGARI": "नमस्कार",
    "THAI": "สวัสดีครับ", "CJK": "您好欢迎", "HANGUL": "안녕하세요", "HIRAGANA": "おはようございます", "KATAKANA": "カタカナ",
    "TAMIL": "வணக்கம்", "GEORGIAN": "გამარჯობა", "ARMENIAN": "բարեւ", "BENGALI": "নম", "TELUGU": "నమస్కారం",
    "GUJARATI": "નમસ્તે", "GURMUKHI": "ਨਮਸਕਾਰ", "KANNADA": "ನಮಸ್ಕಾರ", "MALAYALAM": "നമസ്കാരം", "ETHIOPIC": "ሰላምታ",
}  # fmt: skip
UNUSUAL = frozenset({"en-shaw", "chr-us-qaaa-x-west", "piqd", "sjn", "qya", "ru-cl", "cmn-latn-pinyin"})
"""Constructed alphabets and transcriptions."""


def voices() -> list[tuple[Voice, str]]:
    library = EspeakLibrary()
    listed = library.voices()
    known = zip(espeak_voices(listed, rate_hz=library.sample_rate_hz), listed, strict=True)
    return [(voice, entry.identifier) for voice, entry in known if voice.id not in UNUSUAL]


def test_espeak_says_words_in_the_scripts_of_a_voices_language_or_is_known_to_name_their_letters() -> None:
    library = EspeakLibrary()
    for voice, identifier in voices():
        for script in scripts_of(voice.language) & WORDS.keys():
            said = library.phonemes(WORDS[script], voice=identifier)
            assert said, voice.id
            assert ("(en" in said) == (script in voice.names_letters_of), f"{voice.id} says {script} as {said}"


def test_espeak_says_latin_words_with_every_voice_that_is_said_to_read_them() -> None:
    library = EspeakLibrary()
    for voice, identifier in voices():
        said = library.phonemes("hello", voice=identifier)
        is_own = "LATIN" in scripts_of(voice.language)
        assert is_own or reads(voice, "LATIN") == (" " not in said), f"{voice.id}: {said}"


def test_hibari_has_sounds_for_latin_letters_alone() -> None:
    voice = hibari_models(None)[0].voices[0]
    model = Hibari(threads=1)
    assert reads(voice, "LATIN")
    assert model.phonemize("Łódź, Señor García, Nguyễn, Ångström")
    assert not any(reads(voice, script) for script in WORDS)
    for script in ("CJK", "THAI", "ARABIC", "HANGUL", "HEBREW", "DEVANAGARI"):
        assert not "".join(model.phonemize(WORDS[script])).strip(), script
