"""How much of a text that is still arriving is spoken next: what an LLM writes comes in tokens of a few characters.

::

    tokens ─▸ pending text ─▸ whole sentences, else clauses of 12 characters, else words when no more comes ─▸ a segment

Runs on: any thread; every call looks at the pending text afresh, and at no more of it than a segment can hold.
"""

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import msgspec

from cc_tts.text.characters import has_speech
from cc_tts.text.cuts import clause_cuts, early_cut, settled_end, word_cut
from cc_tts.text.language import limit_for
from cc_tts.text.markup.latex import opens_formula
from cc_tts.text.sentences import SentenceSplitter

MIN_CLAUSE_CHARS: Final = 12
"""The fewest characters of a clause that is spoken before its sentence is complete; a third of that in Chinese
(unmeasured).
"""
LOOKAHEAD_CHARS: Final = 4
"""The number of characters behind a clause mark that show whether the clause ends there: digits, a month, `` Jr``, ``
Inc``.
"""
WORD_IDLE_MS: Final = 400.0
"""When no text has come for this long, the text up to its last word is spoken (unmeasured)."""
ALL_IDLE_MS: Final = 1000.0
"""The same up to its last character, without a number or an address that may continue (unmeasured)."""
GROWING_IDLE_MS: Final = 2000.0
"""The same with that (unmeasured)."""
MIN_IDLE_WORDS: Final = 3  # unmeasured


class Segmenting(msgspec.Struct, frozen=True, kw_only=True):
    """How long a segment is, characters. Where no clause ends within ``word_cut_chars``, it is cut at a word."""

    word_cut_chars: int = 60
    max_chars: int = 400
    strips_markup: bool = True
    """True if what language models write and nobody is to hear is no part of a segment
    (:mod:`cc_tts.text.markup.unspoken`).
    """


def segment_end(text: str, segmenting: Segmenting, *, idle_ms: float = 0.0, is_whole: bool = False) -> int:
    """How many characters of a pending text are to be spoken now; 0 if more must come first.

    ``idle_ms`` is for how long nothing has come; ``is_whole``: nothing need be waited for. The part up to the end that is
    returned holds something to say, unless it is as long as a segment may be.
    """
    if len(text) <= segmenting.max_chars and (is_whole or idle_ms >= GROWING_IDLE_MS):
        return _with_speech(text, [len(text)])
    groups = _candidates(text, segmenting, idle_ms)
    longest = segmenting.max_chars if len(text) > segmenting.max_chars else 0
    return next((end for each in groups if (end := _with_speech(text, each))), longest)


def _candidates(text: str, segmenting: Segmenting, idle_ms: float) -> Iterator[list[int]]:
    """Where a segment may end, in groups: the best group first, in each the last is the best."""
    splitter = SentenceSplitter(max_chars=segmenting.max_chars)
    ends = list(accumulate(map(len, splitter.push(text[: segmenting.max_chars + 1]))))
    yield _outside_markup(text, ends)
    beginning = splitter.settled if not ends else text[: segmenting.max_chars]
    yield _outside_markup(text, _clause_ends(beginning))
    limit = limit_for(segmenting.word_cut_chars, beginning)
    if len(beginning) >= limit + LOOKAHEAD_CHARS:
        is_long = len(beginning) >= 2 * limit + LOOKAHEAD_CHARS
        cut = early_cut(beginning, limit) or (early_cut(beginning, 2 * limit) if is_long else 0)
        yield [end for end in (cut, *ends) if not opens_formula(text[:end])]
    if idle_ms >= ALL_IDLE_MS:
        yield [settled_end(text[: segmenting.max_chars])]
    if idle_ms >= WORD_IDLE_MS and len(text.split()) >= MIN_IDLE_WORDS:
        yield [word_cut(text[: segmenting.max_chars])]


def _clause_ends(beginning: str) -> list[int]:
    """Where clauses end that are long enough and whose end is certain."""
    shortest = limit_for(MIN_CLAUSE_CHARS, beginning)
    return [end for end in clause_cuts(beginning) if shortest <= end <= len(beginning) - LOOKAHEAD_CHARS]


def _outside_markup(text: str, ends: list[int]) -> list[int]:
    """Return the ends that are not inside bold text, code, a formula or the words of a link that goes on behind them."""
    return [end for end in ends if not _is_open(text[:end])]


def _is_open(text: str) -> bool:
    is_marked = text.count("**") % 2 == 1 or text.count("`") % 2 == 1 or text.rfind("[") > text.rfind("]")
    return is_marked or opens_formula(text)


def _with_speech(text: str, ends: list[int]) -> int:
    """The last of the ends, if something is said up to there; else 0."""
    return next((end for end in reversed(ends) if has_speech(text[:end])), 0)
