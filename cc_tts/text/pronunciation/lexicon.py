"""Lexicons: how names, streets and products are said, as JSON or as W3C PLS 1.0, and where their words stand in a text."""

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cc_tts.errors import FieldError, LexiconMalformed
from cc_tts.text.characters import clean, has_speech
from cc_tts.text.language import UNSPACED, is_unspaced, rule_set, subtags
from cc_tts.text.pronunciation.phonemes import ipa_of
from cc_tts.text.pronunciation.replacements import MAX_REPLACEMENTS, READ, Replacement
from cc_tts.text.pronunciation.xml_reader import XmlReader

MAX_ENTRIES: Final = 20_000  # unmeasured
MAX_GRAPHEME_CHARS: Final = 100  # unmeasured
MAX_ALIAS_CHARS: Final = 200  # unmeasured
_MAX_DEPTH: Final = 8  # unmeasured
_NOWHERE: Final = (sys.maxsize, sys.maxsize)
_START_CHARS: Final = 3
"""The number of characters by which entries are looked up that may begin anywhere: of 10,000 names few begin alike."""
_WORD: Final = re.compile(rf"(?:(?!{UNSPACED})\w)+")
MAX_SPOKEN_CHARS: Final = 2000  # unmeasured
_MARKUP_SIGNS: Final = frozenset('<{@/"')
_MARKUP: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"<[^<>]{0,500}>",
        r"\{[^{}]{0,100}\}",
        r"(?<!\w)\w++://\S++",
        r"(?<![^\s@])[^\s@]++@\S++",
        r"(?:(?<![\w.])|(?<=\.)(?<!\w\.))\w++(?:\.\w++)++/\S*+",
        r"\"[\w -]{1,40}\"\s{0,20}:",
    )
)
"""Each begins at few places and does not go back, so that the time grows with the length of the text only."""

Tag = Annotated[str, Meta(max_length=35, pattern=r"^([A-Za-z]{1,8}([-_][A-Za-z0-9]{1,8})*)?$(?!\n)")]


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry: what is written, and the words (``alias``) or the IPA that is said instead; one of the two, or both."""

    grapheme: Annotated[str, Meta(min_length=1, max_length=MAX_GRAPHEME_CHARS)]
    alias: Annotated[str, Meta(max_length=MAX_ALIAS_CHARS)] = ""
    ipa: str = ""
    case_sensitive: bool = False
    whole_word: bool = True


class Lexicon(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Entries for prompts in ``language``, or in any if it is empty. ``voices``: used for every prompt of these voices."""

    language: Tag = ""
    voices: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    entries: Annotated[tuple[Entry, ...], Meta(max_length=MAX_ENTRIES)]


class CompiledLexicon:
    """A lexicon that finds its words, in a time that does not grow with the number of entries.

    Raises:
        LexiconMalformed: an entry cannot be used; the error points at it.
    """

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self._entries: dict[str, list[Entry]] = {}
        self._ipa: dict[Entry, str] = {}
        lengths: dict[str, set[int]] = {}
        anywhere: set[str] = set()
        for number, entry in enumerate(lexicon.entries):
            if fault := _fault(entry):
                raise LexiconMalformed.about(FieldError(f"/entries/{number}", fault))
            folded = _folded(entry.grapheme)
            first_word = _first_word(folded) if entry.whole_word else ""
            start = first_word or folded[:_START_CHARS]
            if not first_word:
                anywhere.add(start)
            if entry.ipa:
                self._ipa[entry] = ipa_of(entry.ipa, "ipa")
            self._entries.setdefault(folded, []).append(entry)
            lengths.setdefault(start, set()).add(len(folded))
        self._lengths = {start: tuple(sorted(each, reverse=True)) for start, each in lengths.items()}
        self._anywhere = frozenset(anywhere)
        self.start_sizes = frozenset(map(len, anywhere))
        """How many characters the starts have by which entries are looked up that may begin inside a word."""

    def speaks(self, language: str) -> bool:
        """Whether it is for prompts of this language; Mandarin and Cantonese are Chinese."""
        own = self.lexicon.language
        return not own or subtags(own)[0] == subtags(language)[0] or rule_set(own) == rule_set(language) != "none"

    def starts_among(self, words: AbstractSet[str], starts: AbstractSet[str]) -> AbstractSet[str]:
        """Return the words with which an entry begins."""
        return (self._lengths.keys() & words) | (self._anywhere & starts)

    def longest(self, text: str, folded: str, position: int, starts: Sequence[str]) -> Entry | None:
        """The longest entry that stands at ``position``, of those that begin with one of ``starts``."""
        found = [self._lengths.get(start, ()) for start in starts]
        lengths = found[0] if len(found) == 1 else sorted({length for each in found for length in each}, reverse=True)
        for length in lengths:
            for entry in self._entries.get(folded[position : position + length], ()):
                if _stands_at(entry, text, folded, position):
                    return entry
        return None

    def ipa(self, entry: Entry) -> str:
        """How it is pronounced, in IPA; empty if the entry does not say."""
        return self._ipa.get(entry, "")


def _first_word(folded: str) -> str:
    """The word with which an entry begins, if spaces show where words begin."""
    word = _WORD.match(folded)
    return word.group() if word is not None and not is_unspaced(folded[0]) else ""


def _stands_at(entry: Entry, text: str, folded: str, position: int) -> bool:
    if entry.case_sensitive and not text.startswith(entry.grapheme, position):
        return False
    return not (entry.whole_word and (_joins(folded, position) or _joins(folded, position + len(entry.grapheme))))


def replacements_by(
    lexicons: Sequence[CompiledLexicon], text: str, taken: Sequence[Replacement] = ()
) -> tuple[Replacement, ...]:
    """The parts of a text that lexicons replace, beside those that are ``taken``: from the left, the longest entry of
    the first lexicon that has one. Not inside of tags, addresses, braces and JSON keys, and no more words than the text has,
    or :data:`MAX_SPOKEN_CHARS`.
    """
    if not lexicons:
        return tuple(taken)
    found: list[Replacement] = []
    num_spoken = 0
    closed = iter(_closed(text, taken))
    closed_from, closed_to = next(closed, _NOWHERE)
    for position, entry, ipa in _entries_in(text, lexicons):
        end = position + len(entry.grapheme)
        num_spoken += len(entry.alias)
        if num_spoken > max(len(text), MAX_SPOKEN_CHARS):
            break
        while closed_to <= position:
            closed_from, closed_to = next(closed, _NOWHERE)
        if end <= closed_from:
            found.append(Replacement(position, end, entry.alias, ipa, READ if entry.alias else ""))
    return tuple(sorted([*taken, *found], key=lambda each: each.start)[:MAX_REPLACEMENTS])


def _entries_in(text: str, lexicons: Sequence[CompiledLexicon]) -> Iterator[tuple[int, Entry, str]]:
    """Where entries stand and how they are pronounced, from the left and without overlap."""
    folded = _folded(text)
    free_from = 0
    for position, starts in sorted(_starts_in(folded, lexicons).items()):
        if position < free_from:
            continue
        for number in sorted({number for of_start in starts.values() for number in of_start}):
            lexicon = lexicons[number]
            entry = lexicon.longest(text, folded, position, [start for start, each in starts.items() if number in each])
            if entry is not None:
                free_from = position + len(entry.grapheme)
                yield position, entry, lexicon.ipa(entry)
                break


def _starts_in(folded: str, lexicons: Sequence[CompiledLexicon]) -> dict[int, dict[str, list[int]]]:
    """The positions where entries may begin, with what they begin with and the numbers of the lexicons that have them."""
    words = [(match.start(), match.group()) for match in _WORD.finditer(folded)]
    cuts = {
        size: [folded[begin : begin + size] for begin in range(len(folded) - size + 1)]
        for size in sorted(frozenset().union(*(each.start_sizes for each in lexicons)))
    }
    distinct_words, distinct_cuts = {word for _, word in words}, set().union(*cuts.values())
    known: dict[str, list[int]] = {}
    for number, lexicon in enumerate(lexicons):
        for start in lexicon.starts_among(distinct_words, distinct_cuts):
            known.setdefault(start, []).append(number)
    found: dict[int, dict[str, list[int]]] = {}
    if known:
        for begins in (words, *map(enumerate, cuts.values())):
            for position, start in begins:
                if start in known:
                    found.setdefault(position, {})[start] = known[start]
    return found


def _closed(text: str, taken: Sequence[Replacement]) -> list[tuple[int, int]]:
    """Where no entry may stand, in order and without overlap."""
    closed = [(each.start, each.end) for each in taken]
    if not _MARKUP_SIGNS.isdisjoint(text):
        closed += [match.span() for pattern in _MARKUP for match in pattern.finditer(text)]
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(closed):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def read_pls(document: bytes) -> Lexicon:
    """A W3C Pronunciation Lexicon (PLS 1.0) in UTF-8: of each ``lexeme`` the preferred alias or phoneme, or the first.

    Raises:
        LexiconMalformed: not well-formed, not PLS, a document type, or beyond the bounds; with line and column.
    """
    return _PlsReader().read(document)


class _PlsReader:
    def __init__(self) -> None:
        self._xml = XmlReader(start=self._start, end=self._end, characters=self._characters, fault=LexiconMalformed)
        self._path: list[str] = []
        self._language = ""
        self._alphabet = self._phoneme_alphabet = "ipa"
        self._text = ""
        self._graphemes: list[str] = []
        self._said: dict[str, tuple[str, bool]] = {}
        """The readings by ``alias`` and ``ipa``, and whether that is preferred."""
        self._is_preferred = False
        self._entries: list[Entry] = []

    def read(self, document: bytes) -> Lexicon:
        self._xml.read(document)
        try:
            return msgspec.convert({"language": self._language, "entries": self._entries}, Lexicon)
        except msgspec.ValidationError as error:
            raise LexiconMalformed(str(error)) from None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._path:
            if name != "lexicon":
                raise self._xml.malformed(f"the root element is {name[:40]}, not lexicon")
            self._language = attributes.get("xml:lang", "")
            self._alphabet = attributes.get("alphabet", "ipa").lower()
        self._path.append(name)
        if len(self._path) > _MAX_DEPTH or len(self._entries) > MAX_ENTRIES:
            raise self._xml.malformed(f"more than {MAX_ENTRIES} entries, or nested more than {_MAX_DEPTH} deep")
        if name == "lexeme":
            self._graphemes, self._said = [], {}
        self._text = ""
        self._is_preferred = attributes.get("prefer") == "true"
        self._phoneme_alphabet = attributes.get("alphabet", self._alphabet).lower()

    def _characters(self, data: str) -> None:
        self._text += data

    def _end(self, name: str) -> None:
        self._path.pop()
        written, self._text = " ".join(self._text.split()), ""
        match name:
            case "grapheme":
                self._graphemes.append(written)
            case "phoneme":
                ipa = ipa_of(written, self._phoneme_alphabet)
                if not ipa:
                    raise self._xml.malformed("a phoneme that is neither IPA nor X-SAMPA")
                self._keep("ipa", ipa)
            case "alias":
                self._keep("alias", written)
            case "lexeme":
                self._add()

    def _keep(self, kind: str, written: str) -> None:
        if kind not in self._said or (self._is_preferred and not self._said[kind][1]):
            self._said[kind] = written, self._is_preferred

    def _add(self) -> None:
        if not self._graphemes or not self._said:
            raise self._xml.malformed("a lexeme needs a grapheme and an alias or a phoneme")
        alias, ipa = (self._said.get(kind, ("", False))[0] for kind in ("alias", "ipa"))
        for grapheme in self._graphemes:
            if not 0 < len(grapheme) <= MAX_GRAPHEME_CHARS:
                raise self._xml.malformed(f"a grapheme has 1 to {MAX_GRAPHEME_CHARS} characters")
            self._entries.append(Entry(grapheme, alias, ipa))


def _fault(entry: Entry) -> str:
    """Why an entry cannot be used; empty if it can."""
    checks = (
        (has_speech(entry.grapheme), "grapheme: no letter and no digit"),
        (entry.grapheme == entry.grapheme.strip(), "grapheme: white space at its edges"),
        (entry.alias or entry.ipa, "alias or ipa is needed"),
        (
            not entry.alias or _is_speakable(entry.alias),
            f"alias: at most {MAX_ALIAS_CHARS} characters of words without control characters",
        ),
        (not entry.ipa or ipa_of(entry.ipa, "ipa"), "ipa: not IPA"),
    )
    return next((fault for is_met, fault in checks if not is_met), "")


def _is_speakable(alias: str) -> bool:
    return len(alias) <= MAX_ALIAS_CHARS and has_speech(alias) and clean(alias) == alias


def _folded(text: str) -> str:
    """In small letters, as many characters as before."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(each.lower() if len(each.lower()) == 1 else each for each in text)


def _joins(text: str, position: int) -> bool:
    """Whether a word continues at ``position``; scripts without spaces do not show it."""
    if not 0 < position < len(text):
        return False
    before, after = text[position - 1], text[position]
    if unicodedata.category(after)[0] == "M":
        return True
    return (before.isalnum() and after.isalnum()) and not (is_unspaced(before) or is_unspaced(after))
