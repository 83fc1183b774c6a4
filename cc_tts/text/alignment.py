"""Where the words that are said stand in the text that they were written as, kept up while rules rewrite it.

::

    "You owe $5.50 now."  ─▸ rules ─▸  "You owe five dollars and fifty cents now."
             └───┴── 8..13 ─────────────▸ 8..36

What no rule has replaced is where it was. Runs on: any thread; one :class:`RewrittenText` belongs to one text.
"""

import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final

Place = tuple[int, int, int, int]
"""Where a replaced part begins and ends in the spoken words, and in the text."""
Edit = tuple[int, int, str]
"""A replacement: the words that are said in place of a part."""

_WORDS: Final = re.compile(r"[^\W\d_]+")
_MAX_SHIFT: Final = 32
"""A word that moved by more characters in one step is another one. Unmeasured."""


class RewrittenText:
    """How a text was rewritten so far."""

    def __init__(self, text: str, places: Iterable[Place] = ()) -> None:
        self.text = text
        self.places = list(places)

    def edit(self, rewritten: str, edits: Iterable[Edit]) -> None:
        """Parts of the text, in order, were replaced, which made it ``rewritten``."""
        changes = [(start, end, len(said)) for start, end, said in self._trimmed(edits)]
        if changes:
            self.places = _composed(self.places, changes)
        self.text = rewritten

    def follow(self, rewritten: str) -> None:
        """The text was rewritten by something that does not tell what it replaced: what stands between the words that are
        still there.
        """
        if len(rewritten) == len(self.text):
            self.text = rewritten
        if rewritten != self.text:
            self.edit(rewritten, between_words(self.text, rewritten))

    def _trimmed(self, edits: Iterable[Edit]) -> Iterable[Edit]:
        """The edits without the words that are the same before and after."""
        for start, end, said in edits:
            written = self.text[start:end]
            if written == said:
                continue
            left = _same_words(written, said)
            right = _same_words(written[left:][::-1], said[left:][::-1])
            yield start + left, end - right, said[left : len(said) - right]


_CURRENT: ContextVar[RewrittenText | None] = ContextVar("trace", default=None)


def traced(text: str, rewrite: Callable[[str], str], places: Iterable[Place] = ()) -> tuple[str, list[Place]]:
    """``text`` rewritten, and where what stands in it came from; ``places`` are what ``text`` itself came from."""
    trace = RewrittenText(text, places)
    token = _CURRENT.set(trace)
    try:
        rewritten = rewrite(text)
    finally:
        _CURRENT.reset(token)
    trace.follow(rewritten)
    return rewritten, trace.places


def substituted(rules: Iterable[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]], text: str) -> str:
    """``text`` after one rule and then the next, as :meth:`re.Pattern.sub` applies them; the trace is kept up."""
    trace = _CURRENT.get()
    if trace is None:
        for pattern, change in rules:
            text = pattern.sub(change, text)
        return text
    token = _CURRENT.set(None)  # what a rule rewrites to find its words is not the text
    try:
        trace.follow(text)
        for pattern, change in rules:
            if pattern.search(text) is not None:
                text = _substituted(trace, pattern, change, text)
    finally:
        _CURRENT.reset(token)
    return text


def _substituted(
    trace: RewrittenText, pattern: re.Pattern[str], change: str | Callable[[re.Match[str]], str], text: str
) -> str:
    edits: list[Edit] = []

    def say(match: re.Match[str]) -> str:
        said = match.expand(change) if isinstance(change, str) else change(match)
        edits.append((match.start(), match.end(), said))
        return said

    rewritten = pattern.sub(say, text)
    if edits:
        trace.edit(rewritten, edits)
    return rewritten


def replaced(edits: list[Edit], text: str) -> str:
    """``text`` after edits, which are in order; the trace is kept up."""
    if not edits:
        return text
    parts, at = list[str](), 0
    for start, end, said in edits:
        parts += (text[at:start], said)
        at = end
    rewritten = "".join([*parts, text[at:]])
    if (trace := _CURRENT.get()) is not None:
        trace.follow(text)
        trace.edit(rewritten, edits)
    return rewritten


def replaced_one_by_one(parts: Iterable[str], say: Callable[[str], str]) -> str:
    """Return what ``say`` makes of the parts of a text, one after the other; the trace is kept up."""
    trace = _CURRENT.get()
    if trace is None:
        return "".join(map(say, parts))
    token = _CURRENT.set(None)
    try:
        pairs = [(part, say(part)) for part in parts]
    finally:
        _CURRENT.reset(token)
    trace.follow("".join(part for part, _ in pairs))
    at, edits = 0, list[Edit]()
    for part, said in pairs:
        edits += ((at + start, at + end, words) for start, end, words in between_words(part, said))
        at += len(part)
    rewritten = "".join(said for _, said in pairs)
    trace.edit(rewritten, edits)
    return rewritten


def between_words(written: str, said: str) -> list[Edit]:
    """Return what was replaced, if the words (runs of letters) that are found again, in order, were not."""
    edits: list[Edit] = []
    at = said_at = 0
    for match in _WORDS.finditer(written):
        found = said.find(match.group(), said_at, said_at + match.end() - at + _MAX_SHIFT)
        if found < 0:
            continue
        edits.append((at, match.start(), said[said_at:found]))
        at, said_at = match.end(), found + len(match.group())
    edits.append((at, len(written), said[said_at:]))
    return [edit for edit in edits if written[edit[0] : edit[1]] != edit[2]]


def moved(places: Iterable[Place], spoken: int, source: int) -> list[Place]:
    """Places in a part of the words and of the text as places in the whole."""
    return [(begin + spoken, end + spoken, start + source, stop + source) for begin, end, start, stop in places]


def _composed(places: list[Place], changes: list[tuple[int, int, int]]) -> list[Place]:
    """The places after parts of the rewritten text were replaced again: ``changes`` are the parts and their new lengths."""
    items = [(begin, end, end - begin, source_end - end) for begin, end, _, source_end in places]
    items += [(*change, None) for change in changes]  # type: ignore[misc]
    items.sort(key=lambda item: item[:2])
    composed: list[Place] = []
    shift = to_source = 0
    number = 0
    while number < len(items):
        low, high = items[number][:2]
        out_low, source_low = low + shift, low + to_source
        first = number
        while number < len(items) and (number == first or items[number][0] < high):
            begin, end, length, source_shift = items[number]
            high = max(high, end)
            shift += length - (end - begin)
            to_source = to_source if source_shift is None else source_shift
            number += 1
        composed.append((out_low, high + shift, source_low, high + to_source))
    return composed


def _same_words(written: str, said: str) -> int:
    """Characters at the beginning that are the same in both, up to the end of a word."""
    num_same = next(
        (at for at, (one, other) in enumerate(zip(written, said, strict=False)) if one != other),
        min(len(written), len(said)),
    )
    while num_same and (_inside_word(written, num_same) or _inside_word(said, num_same)):
        num_same -= 1
    return num_same


def _inside_word(text: str, at: int) -> bool:
    return at < len(text) and text[at - 1].isalnum() and text[at].isalnum() and text[at - 1].isascii()
