"""The scripts that a language is written in, and the script of a character.

A script goes by the word that the names of its letters begin with in the Unicode Character Database: ``LATIN``, ``CJK`` for
Han, ``HANGUL``.
"""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Final

LATIN: Final = "LATIN"
RARE_HAN: Final = "HAN-EXTENSION"
"""Han characters beyond the Basic Multilingual Plane, which espeak-ng does not read but spells by their Unicode number
(tried: it reads all of U+3400 to U+9FFF, and none of U+20000 to U+20400).
"""
_LAST_OF_BASIC_PLANE: Final = 0xFFFF
KANA: Final = frozenset({"HIRAGANA", "KATAKANA"})
_LETTER: Final = re.compile(
    r"(?:FULLWIDTH |HALFWIDTH )?(?!MODIFIER)([A-Z]+)\b.* ?\b"
    r"(?:LETTER|LIGATURE|SYLLABLE|SYLLABICS|CHARACTER|IDEOGRAPH|VOWEL|CHOSEONG|JUNGSEONG|JONGSEONG)\b"
)
"""Signs that are letters by category (the ohm, the micro) belong to no script, since they occur in texts of any."""
_SCRIPTS_OF: Final = {
    "zh": "CJK BOPOMOFO", "ja": "HIRAGANA KATAKANA CJK", "ko": "HANGUL", "ru": "CYRILLIC", "ar": "ARABIC",
    "hi": "DEVANAGARI", "el": "GREEK", "he": "HEBREW", "th": "THAI", "bn": "BENGALI", "ta": "TAMIL", "te": "TELUGU",
    "ka": "GEORGIAN", "hy": "ARMENIAN", "gu": "GUJARATI", "pa": "GURMUKHI", "kn": "KANNADA", "ml": "MALAYALAM",
    "or": "ORIYA", "si": "SINHALA", "my": "MYANMAR", "km": "KHMER", "lo": "LAO", "bo": "TIBETAN", "am": "ETHIOPIC",
    "dv": "THAANA", "chr": "CHEROKEE", "sr": "CYRILLIC LATIN",
    "cmn": "CJK BOPOMOFO", "yue": "CJK BOPOMOFO", "hak": "CJK BOPOMOFO",
    **dict.fromkeys(("uk", "be", "bg", "mk", "kk", "ky", "tt", "ba", "cv", "mn", "nog", "tg", "ce"), "CYRILLIC"),
    **dict.fromkeys(("fa", "ur", "ps", "sd", "ug", "ckb"), "ARABIC"),
    **dict.fromkeys(("mr", "ne", "kok", "sa", "mai"), "DEVANAGARI"),
    **dict.fromkeys(("as", "bpy"), "BENGALI"),
    "grc": "GREEK", "hyw": "ARMENIAN", "ti": "ETHIOPIC", "shn": "MYANMAR", "yi": "HEBREW",
}  # fmt: skip
"""The scripts of the languages that are not written in Latin letters alone (Unicode CLDR, likely subtags). The letters
of a script are taken for its first language.
"""
_SUBTAGS: Final = {"latn": LATIN, "cyrl": "CYRILLIC", "arab": "ARABIC", "deva": "DEVANAGARI", "qaaa": LATIN}
"""BCP 47 script subtags that name another script than the language's usual one; ``qaaa``, for private use, is espeak-ng's
transcription of Cherokee.
"""
_LANGUAGE_OF: Final = {
    script: language for language, scripts in reversed(_SCRIPTS_OF.items()) for script in scripts.split() if script != LATIN
} | {"CJK": "zh"}  # fmt: skip
_NAMES: Final = {
    "zh": "Chinese", "cmn": "Chinese", "yue": "Cantonese", "ja": "Japanese", "ko": "Korean", "ru": "Russian",
    "ar": "Arabic", "hi": "Hindi", "el": "Greek", "he": "Hebrew", "th": "Thai", "bn": "Bengali", "ta": "Tamil",
    "te": "Telugu", "ka": "Georgian", "hy": "Armenian", "gu": "Gujarati", "pa": "Punjabi", "kn": "Kannada",
    "ml": "Malayalam", "or": "Odia", "si": "Sinhala", "my": "Burmese", "km": "Khmer", "lo": "Lao", "bo": "Tibetan",
    "am": "Amharic", "uk": "Ukrainian", "be": "Belarusian", "sr": "Serbian", "fa": "Persian", "ur": "Urdu",
    "en": "English", "de": "German", "es": "Spanish", "fr": "French", "it": "Italian", "pt": "Portuguese", "nl": "Dutch",
}  # fmt: skip


@lru_cache(maxsize=8192)
def script_of(character: str) -> str:
    """Return the script of a letter; empty for other characters, and for letters that occur in texts of any script."""
    if not character.isalpha():
        return ""
    match = _LETTER.match(unicodedata.name(character, ""))
    if match is None:
        return ""
    return RARE_HAN if match[1] == "CJK" and ord(character) > _LAST_OF_BASIC_PLANE else match[1]


@cache
def scripts_of(language: str) -> frozenset[str]:
    """Return the scripts of a language by its BCP 47 tag; Latin if nothing else is known."""
    primary, *others = language.lower().replace("_", "-").split("-")
    written = next((_SUBTAGS[each] for each in others if each in _SUBTAGS), None)
    return frozenset((written or _SCRIPTS_OF.get(primary, LATIN)).split())


def language_of_script(script: str) -> str:
    """Return the language that letters of a script stand for; ``und-…`` if none is known."""
    return _LANGUAGE_OF.get(script, "en" if script == LATIN else f"und-{script.lower()}")


def language_name(language: str) -> str:
    """Return the name of a language in messages: ``Chinese``, else its tag."""
    if language.startswith("und-"):
        return f"text in {language[4:].capitalize()} letters"
    return _NAMES.get(language.lower().split("-")[0], repr(language[:40]))
