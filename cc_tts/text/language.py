"""Which language a text is in, and which rules speak a BCP 47 tag.

Runs on: any thread; nothing here has state.
"""

import re
from typing import Literal

RuleSet = Literal["en", "zh", "none"]

_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)
"""Thai, Lao, Burmese, Khmer, kana and Han, with their punctuation: scripts that put no spaces between words."""
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = frozenset({"zh", "cmn", "yue"})
_DAY_FIRST_REGIONS = frozenset({"gb", "au", "nz", "ie", "in", "za"})


def has_letters(text: str) -> bool:
    """Whether any letter is there to detect the language by."""
    return _WORD.search(text) is not None


def is_unspaced(character: str) -> bool:
    """Whether the character is of a script that puts no spaces between words."""
    return _UNSPACED.match(character) is not None


def detect_language(text: str) -> str:
    """``zh`` for text in which at least as many Han characters stand as words of other scripts, else ``en``."""
    num_han = len(_HAN.findall(text))
    if not num_han:
        return "en"
    return "zh" if num_han >= len(_WORD.findall(_HAN.sub(" ", text))) else "en"


def subtags(tag: str) -> list[str]:
    """The parts of a BCP 47 tag in lower case; ``en_US`` is read as ``en-US``."""
    return tag.strip().lower().replace("_", "-").split("-")


def rule_set(tag: str) -> RuleSet:
    """The rules that speak a tag: ``en``, ``zh`` (also ``cmn``, ``yue`` and their regions) or ``none``."""
    primary = subtags(tag)[0]
    if primary in _CHINESE:
        return "zh"
    return "en" if primary == "en" else "none"


def writes_day_first(tag: str) -> bool:
    """Whether 3/4/2026 is the third of April in this tag's region (en-GB) and not the fourth of March."""
    return not _DAY_FIRST_REGIONS.isdisjoint(subtags(tag)[1:])
