"""Converts IPA to the alphabets of the engines: misaki's for hibari, espeak-ng's mnemonics, and the CMU dictionary's phones.

Runs on: any thread; nothing here has state.
"""

import re
import unicodedata
from typing import Final

_STRESS: Final = "ˈˌ"
_VOWELS: Final = "AIOQWYiɪeɛæaɐɑɒɔoʊuʌɜəɚɝᵊyøœɯɨᵻɵɤ"
_STRESSED_ONSET: Final = re.compile(f"([{_STRESS}])([^{_VOWELS}{_STRESS} ]+)(?=[{_VOWELS}])")
_MISAKI: Final = (
    ("t͡ʃ", "ʧ"), ("tʃ", "ʧ"), ("d͡ʒ", "ʤ"), ("dʒ", "ʤ"), ("eɪ", "A"), ("aɪ", "I"), ("aʊ", "W"), ("ɔɪ", "Y"), ("oʊ", "O"),
    ("əʊ", "O"), ("ɝ", "ɜɹ"), ("ɚ", "əɹ"), ("ɫ", "l"), ("r", "ɹ"), ("ʁ", "ɹ"), ("ɾ", "T"), ("g", "ɡ"), ("e", "ɛ"),
    ("o", "ɔ"), ("a", "ɑ"), ("ː", ""), ("ˑ", ""), ("‿", ""), ("ʰ", ""),
)  # fmt: skip
"""The longest first. misaki 0.9 has one sign for a diphthong or an affricate, and writes American vowels without length."""
_SYLLABIC: Final = re.compile("([lmnɹ])\u0329")

_ESPEAK: Final = {
    "ɑ̃": "A~", "ɛ̃": "E~", "ɔ̃": "O~", "œ̃": "W~",
    "t͡ʃ": "tS", "tʃ": "tS", "d͡ʒ": "dZ", "dʒ": "dZ", "iː": "i:", "ɑː": "A:", "ɔː": "O:", "uː": "u:", "ɜː": "3:", "ɝː": "3:",
    "eɪ": "eI", "aɪ": "aI", "ɔɪ": "OI", "aʊ": "aU", "oʊ": "oU", "əʊ": "oU", "ɪə": "i@", "eə": "e@", "ɛə": "e@", "ʊə": "U@",
    "ˈ": "'", "ˌ": ",", "θ": "T", "ð": "D", "ʃ": "S", "ʒ": "Z", "ŋ": "N", "ɹ": "r", "r": "r", "ɾ": "*", "ʔ": "?",
    "ɡ": "g", "ɫ": "l", "ɪ": "I", "ɛ": "E", "æ": "a", "ɑ": "A:", "ɒ": "0", "ɔ": "O", "ʊ": "U", "ʌ": "V", "ɜ": "3:",
    "ɝ": "3:", "ɚ": "3", "ə": "@", "ᵊ": "@", "ɐ": "a#", "ɨ": 'i"',
    "ᵻ": "I2", "ø": "Y", "œ": "W", "ç": "C", "ɲ": "n^", "ʎ": "l^",
    "ʁ": "R", "β": "B", "ɣ": "Q", "χ": "X", "ɸ": "F", "ɕ": "S;", "ʑ": "Z;", "ɯ": 'u"', "ɥ": "y", "ː": ":", "ʲ": ";",
}  # fmt: skip
_ESPEAK_ENGLISH: Final = _ESPEAK | {"i": "i:", "u": "u:", "e": "E", "o": "oU", "ɔ": "O:"}
_SIGN_OF_ESPEAK: Final = re.compile("|".join(map(re.escape, sorted(_ESPEAK, key=len, reverse=True))) + "|.")


def to_misaki(ipa: str) -> str:
    """Return English IPA as misaki writes it, with stress right before the vowel."""
    text = _SYLLABIC.sub("ᵊ\\1", ipa)
    for sign, written in _MISAKI:
        text = text.replace(sign, written)
    return _STRESSED_ONSET.sub("\\2\\1", text)


def to_espeak(ipa: str, *, is_english: bool) -> str:
    """Return IPA as espeak-ng mnemonics in double brackets, a pair for each word. Signs that espeak-ng lacks are dropped;
    the result may be empty.
    """
    mnemonics = _ESPEAK_ENGLISH if is_english else _ESPEAK

    def written(match: re.Match[str]) -> str:
        sign = match.group()
        return mnemonics.get(sign, sign if sign.isascii() and sign.islower() else "")

    words = [_SIGN_OF_ESPEAK.sub(written, unicodedata.normalize("NFC", word)) for word in ipa.split()]
    return " ".join(f"[[{each}]]" for each in words if any(map(str.isalpha, each)))


_CMU: Final = {
    "aʊ": "AW", "aɪ": "AY", "eɪ": "EY", "oʊ": "OW", "əʊ": "OW", "ɔɪ": "OY", "ɜɹ": "ER", "ɜr": "ER", "əɹ": "ER", "ər": "ER",
    "ɑ": "AA", "ɒ": "AA", "æ": "AE", "a": "AA", "ʌ": "AH", "ə": "AH", "ᵊ": "AH", "ɐ": "AH", "ɔ": "AO", "ɛ": "EH", "e": "EH",
    "ɝ": "ER", "ɚ": "ER", "ɜ": "ER", "ɪ": "IH", "ᵻ": "IH", "ɨ": "IH", "i": "IY", "o": "OW", "ʊ": "UH", "u": "UW",
    "t͡ʃ": "CH", "tʃ": "CH", "d͡ʒ": "JH", "dʒ": "JH", "b": "B", "d": "D", "ð": "DH", "f": "F", "ɡ": "G", "h": "HH", "k": "K",
    "l": "L", "ɫ": "L", "m": "M", "n": "N", "ŋ": "NG", "p": "P", "ɹ": "R", "r": "R", "s": "S", "ʃ": "SH", "t": "T", "ɾ": "T",
    "ʔ": "T", "θ": "TH", "v": "V", "w": "W", "j": "Y", "z": "Z", "ʒ": "ZH",
}  # fmt: skip
CMU_VOWELS: Final = frozenset(
    ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
)
"""The phones of the CMU dictionary that carry a stress."""
_CMU_STRESS: Final = {"ˈ": "1", "ˌ": "2"}
_CMU_WEAK: Final = frozenset(("ə", "ᵊ", "ᵻ", "ɚ", "əɹ", "ər"))
_CMU_SILENT: Final = frozenset("ːˑ‿ʰ͡")
_SIGN_OF_CMU: Final = re.compile("|".join(map(re.escape, sorted(_CMU, key=len, reverse=True))) + "|.")


def to_cmu(ipa: str) -> str:
    """Return English IPA as phones of the CMU dictionary, ``[HH][AH0][L][OW1]``; empty if English lacks a sound of it."""
    return " ".join(words) if all(words := [_cmu_word(word) for word in ipa.split()]) else ""


def _cmu_word(word: str) -> str:
    phones: list[str] = []
    is_marked = any(mark in word for mark in _CMU_STRESS)
    stress = "0" if is_marked else "1"  # in a word without stress marks the first full vowel is stressed
    for sign in _SIGN_OF_CMU.findall(_SYLLABIC.sub(r"ə\1", unicodedata.normalize("NFC", word))):
        if sign in _CMU_STRESS:
            stress = _CMU_STRESS[sign]
        elif phone := _CMU.get(sign):
            is_vowel = phone in CMU_VOWELS
            is_weak = sign in _CMU_WEAK and not is_marked
            phones.append(f"[{phone}{'0' if is_weak else stress}]" if is_vowel else f"[{phone}]")
            stress = "0" if is_vowel and not is_weak else stress
        elif sign not in _CMU_SILENT:
            return ""
    return "".join(phones)
