"""Which part of a text is in which language, so that each is spoken by a voice that can.

::

    "Your name is 王小明, right? Gracias por llamar."  ─▸  en "Your name is " · zh "王小明, " · en "right? " · es "Gracias …"

Digits, punctuation and pictures go with the words before them, and those at the beginning of a sentence with the words
behind. So do addresses of mail and web, and markup: its letters are not the text's.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple

from cc_tts.text.language import language_of_letters, latin_language, latin_language_of
from cc_tts.text.pronunciation.replacements import Replacement
from cc_tts.voices.scripts import KANA, LATIN, script_of, scripts_of

LEAST_LATIN_WORDS: Final = 3
"""The number of words of Latin letters in a row that are spoken by a voice of their own inside a text of other letters.
Fewer (a brand, ``WiFi``, ``iPhone``) stay with the voice around them if it reads Latin letters at all: a change of the
speaker for a single word is heard as a fault, while a voice of Chinese says the word with an accent. A guess, not
measured with listeners.
"""
_LEAST_WORDS_IN_TEXT: Final = 2
"""The words of a sentence that may be in another language than the text around it: "Maj." and "café." change no
voice (measured with 2,228 lines of call centers).
"""
_SENTENCE: Final = re.compile(r"(?:[^.!?…。！？\n]|\.(?=[^\W_]|\s[a-zß-ÿ]))*(?:[.!?…。！？\n]+[\"'”’»)\]）」』]*\s*|$)")
_OF_ABBREVIATION: Final = re.compile(r"(?<=\.\s)[\d-]+\s")
"""A number behind what may be no end of a sentence: ``ext. 8021 谢谢``."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_NO_WORDS: Final = re.compile(
    r"(?:https?://|www\.)[!-~]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|</?[a-z][^<>\n]{0,200}>|\]\([^)\s]*\)?"
    r"|\$?\{\{?\s*\w[\w .-]{0,40}?\s*\}?\}|&(?:#x?[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});",
    re.ASCII | re.IGNORECASE,
)
_OPENING: Final = re.compile(r"(?:(?<=\s)[^\w\s]+|[\"'“‘«(\[（「『【《<*_`~]+)$")
"""Quotation marks, brackets and markup that go with the word behind them."""
_MAX_OPENING_CHARS: Final = 16  # unmeasured
_WORDS_PER_LETTER: Final = {"CJK": 0.6} | dict.fromkeys((*KANA, "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"), 0.3)
"""The words for each letter of scripts that put no spaces between words; about as many as running text has."""
_ALPHABETS: Final = frozenset({LATIN, "GREEK", "CYRILLIC"})
"""Scripts whose letters look alike and get into one word by mistake: the word is in the script of most of its letters."""


class LanguageStretch(NamedTuple):
    """``text[start:end]`` is in ``language``."""

    start: int
    end: int
    language: str


class _Word(NamedTuple):
    start: int
    text: str
    script: str


def letters_of(text: str, replacements: Sequence[Replacement] = (), unspoken: Sequence[tuple[int, int]] = ()) -> str:
    """``text`` as far as its letters tell its language, and as long as it is. A replaced part counts by what is said."""
    for start, end in unspoken:
        text = text[:start] + " " * (end - start) + text[end:]
    if not text.isascii() or replacements:
        text = _NO_WORDS.sub(lambda match: " " * len(match.group()), text)
    for each in replacements:
        said = each.spoken or ("" if each.ipa else text[each.start : each.end])
        letter = next(filter(str.isalpha, said), " ")
        text = text[: each.start] + letter * (each.end - each.start) + text[each.end :]
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """The languages that the words of a text are taken for: ``base`` where they tell nothing, ``latin`` where they are
    in Latin letters and ``base`` is not. ``is_asked``: ``base`` was asked for, so all words in its letters are in it.
    ``reads_latin`` says whether a few words of Latin letters may stay among those of a language. ``is_whole``: ``base`` is
    the language neither of words around the text nor of a voice that was asked for.
    """

    base: str
    latin: str
    is_asked: bool
    reads_latin: Callable[[str], bool]
    is_whole: bool = True

    def stretches(self, letters: str) -> list[LanguageStretch]:
        """The stretches of a text, given by :func:`letters_of`, in order; together they are all of it."""
        return replace(self, base=self.main(letters), is_whole=False)._in_sentences(letters)  # noqa: SLF001 - its own

    def main(self, letters: str) -> str:
        """The language of most of the words of a text."""
        return self._of_sentence(list(_words(letters, 0)))

    def _in_sentences(self, letters: str) -> list[LanguageStretch]:
        changes: list[tuple[int, str]] = []
        for sentence in _SENTENCE.finditer(letters):
            begin = None if _OF_ABBREVIATION.match(letters, sentence.start()) else sentence.start()
            for start, language in self._of_runs(list(_words(sentence.group(), sentence.start()))):
                if not changes:
                    changes.append((0, language))
                elif changes[-1][1] != language:
                    changes.append((start - _num_opening(letters, start) if begin is None else begin, language))
                begin = None
        changes = changes or [(0, self.base)]
        ends = [start for start, _ in changes[1:]] + [len(letters)]
        return [LanguageStretch(start, end, language) for (start, language), end in zip(changes, ends, strict=True)]

    def _of_sentence(self, words: Sequence[_Word]) -> str:
        """The language of most of the words."""
        latin = [word.text for word in words if word.script == LATIN]
        weights: dict[str, float] = {}
        for word in words:
            if word.script != LATIN:
                weight = len(word.text) * _WORDS_PER_LETTER.get(word.script, 0.0) or 1.0
                weights[word.script] = weights.get(word.script, 0.0) + weight
        most = max(weights.values(), default=0.0)
        num_latin = _num_long(latin)
        if weights and (most > num_latin or (most == num_latin and not latin_language(self.base))):
            return self._of_letters(weights, " ".join(word.text for word in words))
        return self._of_latin(latin, self.base)

    def _of_letters(self, scripts: Mapping[str, float], text: str) -> str:
        """The language of words that are not in Latin letters."""
        if scripts_of(self.base).issuperset(scripts):
            return self.base
        most = max(scripts, key=lambda script: scripts[script])
        return language_of_letters("HIRAGANA" if most == "CJK" and not KANA.isdisjoint(scripts) else most, text)

    def _of_latin(self, words: Sequence[str], around: str) -> str:
        """The language of words in Latin letters among words of the language ``around``."""
        if not _num_long(words) or (scripts_of(around) >= {LATIN} and self.is_asked):
            return around
        if latin_language(around):
            if not self.is_whole and _num_long(words) < _LEAST_WORDS_IN_TEXT:
                return around
            return latin_language_of(" ".join(words), around, is_whole=self.is_whole)
        if (self.is_asked or _num_long(words) < LEAST_LATIN_WORDS) and self.reads_latin(around):
            return around
        return latin_language_of(" ".join(words), self.latin, is_whole=self.is_whole)

    def _of_runs(self, words: Sequence[_Word]) -> Iterator[tuple[int, str]]:
        """Where the words of a sentence change to another language, and to which."""
        whole = self._of_sentence(words)
        for is_latin, group in groupby(words, lambda word: word.script == LATIN):
            run = list(group)
            if is_latin:
                texts = [word.text for word in run]
                yield run[0].start, whole if latin_language(whole) else self._of_latin(texts, whole)
            else:
                yield from self._of_others(run, whole)

    def _of_others(self, run: Sequence[_Word], whole: str) -> Iterator[tuple[int, str]]:
        scripts = Counter(word.script for word in run)
        for word in run:
            known = next((each for each in (whole, self.base) if word.script in scripts_of(each)), None)
            is_japanese = word.script == "CJK" and not KANA.isdisjoint(scripts)
            yield word.start, known or language_of_letters("HIRAGANA" if is_japanese else word.script, word.text)


def _num_long(words: Sequence[str]) -> int:
    """How many of the words are no single letters, such as those that number things."""
    return sum(len(word) > 1 for word in words)


def _num_opening(letters: str, start: int) -> int:
    """How many characters before a word belong to it."""
    found = _OPENING.search(letters[max(0, start - _MAX_OPENING_CHARS) : start])
    return 0 if found is None else len(found.group())


def _words(text: str, offset: int) -> Iterator[_Word]:
    """The words of a text, each of one script. A Greek letter that stands alone, or before a Latin one, is a symbol, and no
    word, and so are Latin letters beside a digit: those of a unit or of a code.
    """
    for match in _WORD.finditer(text):
        scripts = [script_of(character) for character in match.group()]
        if _ALPHABETS.issuperset(scripts) and scripts != ["GREEK"]:
            most, _ = max(Counter(scripts).items(), key=lambda each: (each[1], each[0] == LATIN))
            scripts = [most] * len(scripts)
        start = match.start()
        for script, group in groupby(enumerate(scripts, start), lambda each: each[1]):
            (first, _), *others = group
            if script == "GREEK" and not others:
                continue
            end = others[-1][0] + 1 if others else first + 1
            is_beside_digit = text[first - 1 : first].isdigit() or text[end : end + 1].isdigit()
            if script and not (script == LATIN and is_beside_digit):
                yield _Word(offset + first, text[first:end], script)
