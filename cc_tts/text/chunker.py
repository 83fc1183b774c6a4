"""Text in, text chunks out: what the engine is given to say, the first one short so that speech starts soon.

::

    text ─▸ SentenceSplitter ─▸ Chunker: cut the first, merge the short, cut the long ─▸ Normalizer ─▸ TextChunk

Runs on: any thread; one :class:`Chunker` belongs to one utterance.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from cc_tts.audio import Pace
from cc_tts.text.alignment import Place, moved, traced
from cc_tts.text.characters import has_speech
from cc_tts.text.cuts import CLAUSE_LOOKAHEAD_CHARS, clause_cuts, long_cut
from cc_tts.text.language import LETTERS_PER_HAN_CHARACTER, detect_language, has_letters, limit_for, rule_set, spoken_s
from cc_tts.text.markup.markdown import MarkupStripper
from cc_tts.text.markup.unspoken import AT_BEGINNING, MarkupState, state_of_whole
from cc_tts.text.others.numbers import say_numbers
from cc_tts.text.pronunciation.replacements import Replacement, source_chars, speak_replaced, with_stand_ins
from cc_tts.text.sentences import SentenceSplitter

if TYPE_CHECKING:
    from cc_tts.text.normalizer import Normalizer

SLICE_CHARS: Final = 100
"""The characters of a text that are prepared before it is the next one's turn."""
_MIN_FIRST_CHUNK_CHARS = 12  # unmeasured

LOOK_BACK_CHARS: Final = 60
"""The distance before a number at which words can say what it is; the rules look back by at most 40."""
_LOOKS_BACK = re.compile(r"[\d#*$%]|[A-Z]{2}|\b[A-Za-z]{1,5}\.")
"""Numbers, signs and abbreviations are read by what stands before them."""
_SENTENCE_ENDS = ("", *".!?。！？")
_BEGINS_SENTENCE = re.compile(r"\s*(?:[A-Z][a-z]|[\u4e00-\u9fff])")
_NOT_FIRST = " ,;:.!?，。、；：！？…"
"""Nothing that is said begins with these."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A part of a prompt that goes to the engine as a whole.

    ``index`` counts from 0 within the utterance. ``source`` is the caller's own words: the sources of all chunks join
    to the text, white space at the edges included. ``spoken`` is what the engine says and is never empty.
    ``language`` is the tag that was asked for, or the one that was detected.
    """

    index: int
    source: str
    spoken: str
    language: str
    replaced: tuple[Place, ...] = ()
    """Where what is said otherwise than it is written is in ``spoken`` and in ``source``."""

    def source_share(self, position: int) -> float:
        """Which share of the source lies before a position in the spoken words, 0 to 1: by its length, and not beyond the
        beginning of a replaced part that is being spoken.
        """
        spoken_from, source_from = 0, 0
        spoken_to, source_to = len(self.spoken), len(self.source)
        for spoken_start, spoken_end, source_start, source_end in self.replaced:
            if position < spoken_start:
                spoken_to, source_to = spoken_start, source_start
                break
            if position < spoken_end:
                return source_start / len(self.source)
            spoken_from, source_from = spoken_end, source_end
        share = (position - spoken_from) / max(spoken_to - spoken_from, 1)
        return min(source_from + share * (source_to - source_from), source_to) / max(len(self.source), 1)

    @property
    def paces(self) -> tuple[Pace, ...]:
        """How long the parts of the source take to say; those that are said otherwise than they are written are heard as
        a whole.
        """
        paces: list[Pace] = []
        said = source = 0
        for spoken_start, spoken_end, source_start, source_end in self.replaced:
            paces.append((source_start - source, spoken_s(self.spoken[said:spoken_start]), False))
            paces.append((source_end - source_start, spoken_s(self.spoken[spoken_start:spoken_end]), True))
            said, source = spoken_end, source_end
        return (*paces, (len(self.source) - source, spoken_s(self.spoken[said:]), False))


class Chunking(msgspec.Struct, frozen=True, kw_only=True):
    """How a text is cut and read."""

    language: str | None = None
    """A BCP 47 tag; without one each chunk's script decides."""
    detected_language: str | None = None
    """The language of the whole text, for a first chunk of digits alone."""
    latin_language: str | None = None
    """The language of Latin letters where the voice tells it; without it their most frequent words do."""
    first_chunk_max_chars: int = 60
    chunk_max_chars: int = 200
    says_numbers: bool = False
    """The engine reads no digits: numbers of languages that have no rules of their own become words."""
    before: str = ""
    """The words before the text. They are not spoken, but how a number is read depends on them."""
    markup: MarkupState = AT_BEGINNING
    """The state of the markup at the beginning of the text."""
    strips_markup: bool = True
    """Take Markdown, HTML and the like out (:mod:`cc_tts.text.markup.markdown`)."""


class Chunker:
    """Turns a text, with ``replacements`` of parts of it, into chunks.

    The first chunk is given out as soon as its end is known: the first sentence, or its first clauses when it is longer
    than ``first_chunk_max_chars`` (characters of source). Later chunks merge short sentences until they have half of
    ``chunk_max_chars``, and cut longer sentences. Text without speech joins the chunk that follows. In Chinese a third of
    these limits holds.

    Without a language a chunk of digits alone is in the language of the chunk before.
    """

    def __init__(
        self, normalizer: "Normalizer", chunking: Chunking, text: str, replacements: Sequence[Replacement] = ()
    ) -> None:
        self._normalizer = normalizer
        self._text = text
        self._replacements = replacements
        self._position = 0
        self._chunking = chunking
        markup = state_of_whole(text) if chunking.markup == AT_BEGINNING else chunking.markup
        self._markup = MarkupStripper(markup) if chunking.strips_markup else None
        self._splitter = SentenceSplitter()
        self._index = 0
        self._latest_language = chunking.detected_language
        self._before = MarkupStripper().strip(chunking.before) if chunking.strips_markup else chunking.before
        self._silent = ""
        self._held = ""
        self._num_taken = 0

    def __str__(self) -> str:
        return f"chunker {self._chunking.first_chunk_max_chars}/{self._chunking.chunk_max_chars} characters"

    @property
    def has_placeholder(self) -> bool:
        """Whether the text holds ``{name}``, ``[NAME]`` or the like, which nobody filled in. It is not spoken."""
        return self._markup is not None and self._markup.has_placeholder

    def slices(self) -> Iterator[tuple[list[TextChunk], bool]]:
        """The chunks that each slice of the text completes, and whether it is the last slice."""
        text = with_stand_ins(self._text, self._replacements)
        for end in range(SLICE_CHARS, max(len(text), 1) + SLICE_CHARS, SLICE_CHARS):
            chunks = self._from_sentences(self._splitter.push(text[end - SLICE_CHARS : end]))
            self._emit_first_early(chunks)
            is_last = end >= len(text)
            if is_last:
                chunks += self._from_sentences(self._splitter.flush())
                self._emit_held(chunks)
            yield chunks, is_last

    def _from_sentences(self, sources: list[str]) -> list[TextChunk]:
        chunks: list[TextChunk] = []
        for source in sources:
            rest = source[self._num_taken :]
            self._num_taken = 0
            while rest and self._index == 0:
                rest = rest[self._emit_first(rest, chunks) :]
            self._hold(rest, chunks)
        return chunks

    def _emit_first_early(self, chunks: list[TextChunk]) -> None:
        """Give out the beginning of a sentence that is still growing: clauses, where its end would make no difference."""
        while self._index == 0:
            beginning = self._splitter.settled[self._num_taken :]
            limit = self._first_limit(self._chunking.first_chunk_max_chars, beginning)
            cut = self._first_cut(beginning)
            if not cut or len(beginning) < max(cut, limit) + CLAUSE_LOOKAHEAD_CHARS:
                return
            self._emit(beginning[:cut], chunks)
            self._num_taken += cut

    def _emit_first(self, sentence: str, chunks: list[TextChunk]) -> int:
        """Give out the beginning of a sentence; returns how many of its characters that were."""
        cut = self._first_cut(sentence)
        limit = self._first_limit(self._chunking.chunk_max_chars, sentence)
        if not cut and len(sentence) > limit:
            cut = long_cut(sentence, limit)
        cut = cut or len(sentence)
        self._emit(sentence[:cut], chunks)
        return cut

    def _first_cut(self, sentence: str) -> int:
        """Where the first chunk ends inside the sentence, or 0.

        At the last clause mark that keeps it short, else at the first mark after that.
        """
        shortest, short, longest = (
            self._first_limit(limit, sentence)
            for limit in (_MIN_FIRST_CHUNK_CHARS, self._chunking.first_chunk_max_chars, self._chunking.chunk_max_chars)
        )
        if len(sentence) <= short:
            return 0
        cuts = [cut for cut in clause_cuts(sentence) if shortest <= cut <= longest]
        return max((cut for cut in cuts if cut <= short), default=next(iter(cuts), 0))

    def _first_limit(self, limit: int, sentence: str) -> int:
        """The limit for the script in which the sentence begins; what comes later makes no difference."""
        return limit_for(limit, sentence[: self._chunking.first_chunk_max_chars // LETTERS_PER_HAN_CHARACTER])

    def _hold(self, source: str, chunks: list[TextChunk]) -> None:
        limit = limit_for(self._chunking.chunk_max_chars, source)
        if self._held and (len(self._held) + len(source) > limit or self._switches_language(source)):
            self._emit_held(chunks)
        self._held += source
        while len(self._held) > limit:
            cut = long_cut(self._held, limit)
            self._emit(self._held[:cut], chunks)
            self._held = self._held[cut:]
        if len(self._held) >= limit // 2:
            self._emit_held(chunks)

    def _switches_language(self, source: str) -> bool:
        if self._chunking.language or not has_letters(source) or not has_letters(self._held):
            return False
        return self._detected(source) != self._detected(self._held)

    def _detected(self, source: str) -> str:
        return detect_language(source, latin=self._chunking.latin_language)

    def _emit_held(self, chunks: list[TextChunk]) -> None:
        held, self._held = self._held, ""
        self._emit(held, chunks)

    def _emit(self, source: str, chunks: list[TextChunk]) -> None:
        own_words = self._own_words(source)
        words, markup = traced(source, self._markup.strip) if self._markup else (source, [])
        language = self._language_of(own_words if self._replacements else words)
        read = partial(self._read, language=language)
        if self._replacements:
            spoken, places = speak_replaced(words, self._text, self._replacements, language, read)
        else:
            spoken, places = read(words, "", markup)
        self._before = (self._before + words)[-LOOK_BACK_CHARS:]
        if not has_speech(spoken):
            self._silent += own_words
            return
        replaced = tuple(moved(_with_words(places, spoken, own_words), 0, len(self._silent)))
        chunks.append(TextChunk(self._index, self._silent + own_words, spoken, language, replaced))
        self._silent = ""
        self._index += 1
        self._latest_language = language

    def _read(
        self, text: str, before: str, places: list[Place] | None = None, *, language: str
    ) -> tuple[str, list[Place]]:
        """The words of a part, read behind what was said before it, and where they come from."""
        speak = partial(self._normalized, language=language)
        context = _context(self._before + before, text, rule_set(language))
        if context:
            moved_places = moved(places or (), len(context), len(context))
            spoken, found = traced(context + text, speak, moved_places)
            behind = _behind(context, spoken, found, speak)
            if behind is not None:
                return behind
        return traced(text, speak, places or ())

    def _normalized(self, text: str, language: str) -> str:
        spoken = self._normalizer.normalize(text, language)
        return say_numbers(spoken, language) if self._chunking.says_numbers and rule_set(language) == "none" else spoken

    def _own_words(self, source: str) -> str:
        """The caller's words for the next part of the text with stand-ins."""
        if not self._replacements:
            return source
        start, self._position = self._position, self._position + source_chars(source, self._replacements)
        return self._text[start : self._position]

    def _language_of(self, source: str) -> str:
        if self._chunking.language:
            return self._chunking.language
        if has_letters(source) or self._latest_language is None:
            return self._detected(source)
        return self._latest_language


def looks_back(text: str) -> bool:
    """Whether words before a text may tell how it is read."""
    return _LOOKS_BACK.search(text[:LOOK_BACK_CHARS]) is not None


def _context(before: str, text: str, rules: str) -> str:
    """Return what the rules may look back at from a text: whole words of its own sentence, where that can be told."""
    num_chars = LOOK_BACK_CHARS if rules == "en" else LOOK_BACK_CHARS // LETTERS_PER_HAN_CHARACTER
    if rules == "none" or not _LOOKS_BACK.search(text[:num_chars]):
        return ""
    if before.rstrip()[-1:] in _SENTENCE_ENDS and _BEGINS_SENTENCE.match(text):
        return ""
    tail = before[-num_chars:]
    return tail if tail == before else tail[tail.find(" ", 0, num_chars // 2) + 1 :]


def _with_words(places: list[Place], spoken: str, source: str) -> list[Place]:
    """Return the places at which more than spaces and marks was replaced."""
    return [
        place for place in places if has_speech(spoken[place[0] : place[1]]) or has_speech(source[place[2] : place[3]])
    ]


def _behind(
    context: str, spoken: str, places: list[Place], speak: Callable[[str], str]
) -> tuple[str, list[Place]] | None:
    """Return those of the words behind the context with which they were read; ``None`` if they cannot be told from it."""
    at, to_spoken = len(context), 0
    for begin, end, source_begin, source_end in places:
        if source_end <= at and source_begin < at:
            to_spoken = end - source_end
        elif source_begin < at:
            said = speak(context).rstrip(_NOT_FIRST)
            if has_speech(spoken[begin:end]) and not _goes_on(said, spoken):
                return None
            to_spoken = (len(said) if has_speech(spoken[begin:end]) else end) - at
    behind = spoken[at + to_spoken :]
    words = behind.lstrip(_NOT_FIRST)
    if not has_speech(words):
        return "", []
    start = len(spoken) - len(words)
    found = moved(
        ((max(begin, start), end, max(stop_at, at), stop) for begin, end, stop_at, stop in places), -start, -at
    )
    return words, [place for place in found if place[1] > 0 and place[3] > 0]


def _goes_on(said: str, spoken: str) -> bool:
    """Whether the context was said in the same words as it is without what follows."""
    return spoken.startswith(said) and not (
        spoken[len(said) : len(said) + 1].isalnum() and spoken[len(said) - 1].isascii()
    )
