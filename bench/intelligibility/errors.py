"""What was understood wrongly of a line, in syllables of pinyin without tones for Chinese, in characters for others."""

import operator
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass

from lab.server_under_test import Json

DIGITS = "零一二三四五六七八九"


@dataclass(frozen=True, slots=True)
class Errors:
    """Counts over lines."""

    units: int = 0
    num_units: int = 0
    words: int = 0
    num_words: int = 0

    def __add__(self, other: "Errors") -> "Errors":
        return Errors(*map(operator.add, astuple(self), astuple(other)))

    def figures(self) -> Json:
        """The counts, and the shares that were wrong."""
        rates = {"rate": self.units / self.num_units, "word_rate": self.words / self.num_words}
        return asdict(self) | {name: round(rate, 4) for name, rate in rates.items()}


def count_errors(wanted: str, heard: str, language: str) -> Errors:
    """The errors of a line, at most all of it: a recogniser that understands nothing may go on for long."""
    split = _syllables if language == "zh" else _words
    (units, words), (got_units, got_words) = split(wanted), split(heard)
    wrong = min(num_errors(units, got_units), len(units)), min(num_errors(words, got_words), len(words))
    return Errors(wrong[0], len(units), wrong[1], len(words))


def num_errors(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Substitutions, insertions and deletions (Levenshtein distance)."""
    row = list(range(len(heard) + 1))
    for number, word in enumerate(wanted, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(heard, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1]


def _syllables(text: str) -> tuple[list[str], list[str]]:
    from pypinyin import lazy_pinyin

    text = text.replace("乾", "干")  # a traditional character that pypinyin reads in another way
    syllables = lazy_pinyin(re.sub(r"[^\w]", "", re.sub(r"\d{1,2}", _in_characters, text)))
    return syllables, syllables


def _in_characters(match: re.Match[str]) -> str:
    """A number below a hundred as it is said in Chinese."""
    tens, ones = divmod(int(match.group()), 10)
    return (("" if tens == 1 else DIGITS[tens]) + "十" if tens else "") + (DIGITS[ones] if ones or not tens else "")


def _words(text: str) -> tuple[list[str], list[str]]:
    """The words without punctuation; vowel signs of Devanagari are marks, and stay."""
    plain = "".join(each if _is_of_word(each) else " " for each in unicodedata.normalize("NFC", text.lower())).split()
    return list(" ".join(plain)), plain


def _is_of_word(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"
