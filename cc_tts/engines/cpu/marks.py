"""Where a text pauses, in every script: punctuation by what Unicode calls it, as a mark that Piper's models know."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

_KINDS: Final = (
    (("QUESTION MARK", "INTERROBANG"), "?"),
    (("EXCLAMATION MARK",), "!"),
    (("FULL STOP", "DANDA", "ELLIPSIS", "KHMER SIGN KHAN", "MYANMAR SIGN SECTION", "TIBETAN MARK SHAD"), "."),
    (("SEMICOLON", "ANO TELEIA"), ";"),
    (("COLON",), ":"),
    (("COMMA", "MYANMAR SIGN LITTLE SECTION"), ","),
)
_NO_PAUSE: Final = ("INVERTED ", "ARMENIAN QUESTION", "ARMENIAN EXCLAMATION")
"""The first stand before a sentence, the others over a vowel within a word."""


def _kind(character: str) -> str:
    name = unicodedata.name(character, "") if unicodedata.category(character) == "Po" else ""
    if not name or name.startswith(_NO_PAUSE):
        return ""
    return next((mark for words, mark in _KINDS if any(word in name for word in words)), "")


_FIRST_WITHOUT_PUNCTUATION: Final = 0x20000
"""Planes 2 and up have ideographs, tags and private characters alone (Unicode Standard, section 2.8)."""
MARKS: Final[Mapping[str, str]] = {
    character: mark for character in map(chr, range(_FIRST_WITHOUT_PUNCTUATION)) if (mark := _kind(character))
}
"""Each punctuation mark at which speech pauses, and the ASCII mark of its kind."""
_CLASS: Final = re.escape("".join(MARKS))
_CLOSERS: Final = r"\"'”’)\]}»」』）】》〉〕"
_NEEDS_SPACE: Final = r".!?．…"
"""Ends of a sentence that also stand within a word or a number."""
_ENDS_ALONE: Final = re.escape(
    "".join(each for each, mark in MARKS.items() if mark in ".!?" and each not in _NEEDS_SPACE)
)
_SENTENCE: Final = re.compile(
    rf".*?(?:[{_NEEDS_SPACE}]+[{_CLOSERS}]*(?=\s|$)|[{_ENDS_ALONE}][{_ENDS_ALONE}{_NEEDS_SPACE}]*[{_CLOSERS}]*|$)",
    re.DOTALL,
)
_CLAUSE: Final = re.compile(rf"[^{_CLASS}]+[{_CLASS}]*")
_MARK: Final = re.compile(rf"[{_CLASS}]")


def sentences(text: str) -> list[str]:
    """The text in sentences, without the white space between them."""
    return [sentence for each in _SENTENCE.findall(text) if (sentence := each.strip())]


def clauses(sentence: str) -> list[tuple[str, str]]:
    """The words of each clause of a sentence and the mark that ends it, as ASCII; empty if none does."""
    found = []
    for clause in _CLAUSE.findall(sentence):
        mark = _MARK.search(clause)
        found.append((_MARK.sub(" ", clause), MARKS[mark.group()] if mark else ""))
    return found


def last_mark(sentence: str) -> str:
    """The mark that a sentence ends with, as ASCII; empty if it ends without one."""
    return MARKS.get(sentence.rstrip().rstrip("\"'”’)]}»」』）】》〉〕")[-1:], "")
