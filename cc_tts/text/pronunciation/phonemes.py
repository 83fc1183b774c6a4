"""Phonemes as SSML and lexicons write them: the International Phonetic Alphabet, and X-SAMPA as its ASCII form."""

import unicodedata
from typing import Final

MAX_IPA_CHARS: Final = 200  # unmeasured
_SPACES_AND_MARKS: Final = frozenset(" .ˈˌːˑ|‖‿ʰʲʷˠˤ̩̯̥̬̪̰̤̃͡‿'ʼ-")

_XSAMPA: Final = {
    "_h": "ʰ", "_j": "ʲ", "_w": "ʷ", "_~": "̃", "~": "̃", "=": "̩", "_=": "̩", "_0": "̥", "_v": "̬", "_d": "̪", "_^": "̯",
    '"': "ˈ", "%": "ˌ", ":\\": "ˑ", ":": "ː", ".": ".", "-": "", "|": "|",
    "a": "a", "b": "b", "b_<": "ɓ", "c": "c", "d": "d", "d`": "ɖ", "e": "e", "f": "f", "g": "ɡ", "h": "h", "h\\": "ɦ",
    "i": "i", "j": "j", "j\\": "ʝ", "k": "k", "l": "l", "l`": "ɭ", "l\\": "ɺ", "m": "m", "n": "n", "n`": "ɳ", "o": "o",
    "p": "p", "p\\": "ɸ", "q": "q", "r": "r", "r`": "ɽ", "r\\": "ɹ", "r\\`": "ɻ", "s": "s", "s`": "ʂ", "s\\": "ɕ",
    "t": "t", "t`": "ʈ", "u": "u", "v": "v", "v\\": "ʋ", "w": "w", "x": "x", "x\\": "ɧ", "y": "y", "z": "z", "z`": "ʐ",
    "z\\": "ʑ",
    "A": "ɑ", "B": "β", "B\\": "ʙ", "C": "ç", "D": "ð", "E": "ɛ", "F": "ɱ", "G": "ɣ", "G\\": "ɢ", "H": "ɥ", "H\\": "ʜ",
    "I": "ɪ", "I\\": "ᵻ", "J": "ɲ", "J\\": "ɟ", "K": "ɬ", "K\\": "ɮ", "L": "ʎ", "L\\": "ʟ", "M": "ɯ", "M\\": "ɰ", "N": "ŋ",
    "N\\": "ɴ", "O": "ɔ", "O\\": "ʘ", "P": "ʋ", "Q": "ɒ", "R": "ʁ", "R\\": "ʀ", "S": "ʃ", "T": "θ", "U": "ʊ", "V": "ʌ",
    "W": "ʍ", "X": "χ", "X\\": "ħ", "Y": "ʏ", "Z": "ʒ",
    "@": "ə", "@\\": "ɘ", "@`": "ɚ", "{": "æ", "}": "ʉ", "1": "ɨ", "2": "ø", "3": "ɜ", "3`": "ɝ", "3\\": "ɞ", "4": "ɾ",
    "5": "ɫ", "6": "ɐ", "7": "ɤ", "8": "ɵ", "9": "œ", "&": "ɶ", "?": "ʔ", "?\\": "ʕ", " ": " ",
}  # fmt: skip
_TIDIED: Final = str.maketrans({"g": "ɡ", "'": "ˈ", ".": "", "-": "", "|": " ", "‖": " "})
_LONGEST: Final = max(map(len, _XSAMPA))


def ipa_of(written: str, alphabet: str) -> str:
    """A pronunciation in ``ipa`` or ``x-sampa``, as IPA in one way of writing it: without syllable breaks, which change no
    sound, and with the stress marks of IPA. Empty if it could not be spoken, or is longer than :data:`MAX_IPA_CHARS`.
    """
    if alphabet not in ("ipa", "x-sampa", "xsampa"):
        return ""
    ipa = written if alphabet == "ipa" else _xsampa_to_ipa(written)
    is_ipa = len(ipa) <= MAX_IPA_CHARS and any(map(str.isalpha, ipa)) and all(map(_is_of_ipa, ipa))
    return " ".join(ipa.translate(_TIDIED).split()) if is_ipa else ""


def _is_of_ipa(character: str) -> bool:
    """A letter or modifier of Latin, Greek, the IPA extensions or the phonetic extensions, or a mark."""
    if character in _SPACES_AND_MARKS:
        return True
    is_of_block = character < "\u0400" or "\u1d00" <= character <= "\u1dff"
    return is_of_block and unicodedata.category(character) in ("Ll", "Lm", "Lo", "Mn", "Sk")


def _xsampa_to_ipa(written: str) -> str:
    """X-SAMPA (Wells, 1995) as IPA; empty if a sign of it is not known or it is too long."""
    ipa, position = "", 0
    if len(written) > MAX_IPA_CHARS:
        return ""
    while position < len(written):
        for length in range(min(_LONGEST, len(written) - position), 0, -1):
            found = _XSAMPA.get(written[position : position + length])
            if found is not None:
                ipa += found
                position += length
                break
        else:
            return ""
    return ipa
