"""Words in Kokoro's alphabet: misaki's signs of English, IPA of other languages, and pinyin in IPA with arrows for tones.

Runs on: the synthesis threads.
"""

import re
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from cc_tts.engines.cpu.libespeak import LANGUAGE_SWITCH, EspeakLibrary
from cc_tts.engines.cpu.marks import clauses
from cc_tts.engines.letters import LETTER_A_OF_HIBARI, with_letters
from cc_tts.engines.phonemes import to_misaki
from cc_tts.voices.inline_ipa import pronounced_parts

Phonemes = Callable[[str], str]
"""Gives the sounds of words without punctuation."""

_TIE: Final = "^"
_TIED: Final = {
    "a^ɪ": "I", "a^ʊ": "W", "e^ɪ": "A", "o^ʊ": "O", "ə^ʊ": "Q", "ɔ^ɪ": "Y",
    "t^ʃ": "ʧ", "d^ʒ": "ʤ", "t^s": "ʦ", "d^z": "ʣ", "s^s": "S", "_": "", "-": "", _TIE: "",
}  # fmt: skip
"""A sound that espeak-ng writes with several signs is one sign to Kokoro."""
_STRETCH: Final = re.compile(r"([\u3400-\u4dbf\u4e00-\u9fff\u3007]+)|([A-Za-zÀ-ɏ]+(?:['’ -]+[A-Za-zÀ-ɏ]+)*)")


def spoken_phonemes(sentence: str, phonemes: Phonemes) -> str:
    """The sounds of a sentence with its punctuation marks; empty if nothing of it is spoken."""
    said = ((_clause(words, phonemes), mark) for words, mark in clauses(sentence))
    return " ".join(f"{spoken}{mark}" for spoken, mark in said if spoken)


def _clause(words: str, phonemes: Phonemes) -> str:
    parts = (to_misaki(ipa) if ipa else phonemes(part.strip()) for part, ipa in pronounced_parts(words))
    return " ".join(filter(None, (part.strip() for part in parts)))


@cache
def english(*, is_british: bool = False) -> Phonemes:
    """Hibari's spelling-to-sound rules, whose alphabet is Kokoro's."""
    from hibari.g2p import G2P

    g2p: Any = G2P(british=is_british)
    lock = threading.Lock()

    def phonemes(words: str) -> str:
        with lock:  # plain Python, a third of a millisecond; its caches are not made for threads
            return str(g2p(with_letters(words, LETTER_A_OF_HIBARI)) or "")

    return phonemes


def _espeak(language: str) -> Phonemes:
    """espeak-ng's phonemes of a language; raises ``UnknownVoice`` if it has no such voice."""
    library = EspeakLibrary()
    voice = library.identifier_of(language)

    def phonemes(words: str) -> str:
        spoken = LANGUAGE_SWITCH.sub("", library.phonemes(words, voice=voice, tie=_TIE))
        for tied, sign in _TIED.items():
            spoken = spoken.replace(tied, sign)
        return spoken

    return phonemes


def _chinese() -> Phonemes:
    """Mandarin, and the English words in it; other letters are left out. Raises ``ImportError`` without pypinyin."""
    from cc_tts.engines.cpu.kokoro.mandarin import mandarin_phonemes

    def phonemes(words: str) -> str:
        found = _STRETCH.finditer(words)
        return " ".join(mandarin_phonemes(each[1]) if each[1] else english()(_spelt(each[2])) for each in found)

    return phonemes


def _spelt(words: str) -> str:
    """A single letter is said by its name."""
    return words.upper() if len(words) == 1 else words


@cache
def phonemes_of(language: str) -> Phonemes:
    """The sounds of a language of Kokoro's, by its tag; raises what the functions above do."""
    if language.startswith("en"):
        return english(is_british=language == "en-GB")
    return _chinese() if language == "cmn" else _espeak(language.lower())
