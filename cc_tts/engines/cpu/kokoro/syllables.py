"""Mandarin syllables in Kokoro's alphabet: pinyin with a digit for the tone becomes IPA with an arrow behind the vowel."""

import re
from functools import lru_cache
from typing import Final

_INITIALS: Final = {
    "b": "p", "p": "pʰ", "m": "m", "f": "f", "d": "t", "t": "tʰ", "n": "n", "l": "l", "g": "k", "k": "kʰ", "h": "x",
    "j": "ʨ", "q": "ʨʰ", "x": "ɕ", "zh": "ꭧ", "ch": "ꭧʰ", "sh": "ʂ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ", "s": "s",
}  # fmt: skip
_FINALS: Final = {
    "a": "a*", "o": "wo*", "e": "ɤ*", "ai": "ai*", "ei": "ei*", "ao": "au*", "ou": "ou*", "an": "a*n", "en": "ə*n",
    "ang": "a*ŋ", "eng": "ə*ŋ", "ong": "ʊ*ŋ", "i": "i*", "ia": "ja*", "ie": "je*", "iao": "jau*", "iu": "jou*",
    "ian": "jɛ*n", "in": "i*n", "iang": "ja*ŋ", "ing": "i*ŋ", "iong": "jʊ*ŋ", "u": "u*", "ua": "wa*", "uo": "wo*",
    "uai": "wai*", "ui": "wei*", "uan": "wa*n", "un": "wə*n", "uang": "wa*ŋ", "ueng": "wə*ŋ", "v": "y*", "ve": "ɥe*",
    "van": "ɥɛ*n", "vn": "y*n",
}  # fmt: skip
"""The asterisk is where the tone stands."""
_ALONE: Final = {
    "o": "ɔ*", "io": "wo*", "er": "ɚ*", "r": "ɚ*", "ê": "ɛ*", "m": "m*", "n": "n*", "ng": "ŋ*", "hm": "hm*", "hng": "hŋ*",
}  # fmt: skip
_BUZZED: Final = frozenset({"zh", "ch", "sh", "r", "z", "c", "s"})
"""After these, the letter i is the vowel that only prolongs the consonant."""
_TONES: Final = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}
_SYLLABLE: Final = re.compile(r"(zh|ch|sh|[bpmfdtnlgkhjqxrzcsyw]?)([aeiouvê]+n?g?)")
_UMLAUT_AFTER: Final = frozenset("jqxy")
_FULL: Final = {"yi": "i", "y": "i", "wu": "u", "w": "u", "yu": "v"}
_SHORTENED: Final = {"iou": "iu", "uei": "ui", "uen": "un", "ien": "in", "ieng": "ing", "uong": "ong"}


@lru_cache(maxsize=2048)
def syllable_ipa(pinyin: str) -> str:
    """A syllable such as ``zhong1`` or ``lv4``, whose tone is 1 to 5, in Kokoro's alphabet; empty if it is none."""
    letters, tone = pinyin[:-1].replace("ü", "v"), _TONES.get(pinyin[-1:])
    if tone is None:
        return ""
    if letters in _ALONE:
        return _ALONE[letters].replace("*", tone)
    match = _SYLLABLE.fullmatch(letters)
    if match is None:
        return ""
    initial, final = _parts(match[1], match[2])
    vowel = "ɨ*" if initial in _BUZZED and final == "i" else _FINALS.get(final, "")
    return (_INITIALS.get(initial, "") + vowel).replace("*", tone) if vowel else ""


def _parts(initial: str, final: str) -> tuple[str, str]:
    """The initial and the final as they are said: ``y`` and ``w`` are no initials, ``u`` behind ``j`` is an ``ü``."""
    if initial in _UMLAUT_AFTER and final.startswith("u"):
        final = "v" + final[1:]
    if initial == "y":
        final = (
            final if final.startswith(("i", "v")) else {"ong": "iong", "ou": "iu", "o": "uo"}.get(final, "i" + final)
        )
        return "", final
    if initial == "w":
        final = final if final.startswith("u") else {"ei": "ui", "en": "un", "o": "uo"}.get(final, "u" + final)
        return "", final
    return initial, _SHORTENED.get(final, final)
