"""When the words of a text are heard in its audio: a span for each text chunk, in the order of the speech."""

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cc_tts.audio import Pace
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.text.characters import has_speech
from cc_tts.text.language import is_unspaced, spoken_s

_ROUNDING_S: Final = 1e-9  # unmeasured
ROUNDING_MS: Final = 1.0  # unmeasured
_WORD: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\s\u3000-\u30ff\u3400-\u9fff]+"
)
"""A word of a script that separates words by spaces, or one character of another script."""


@dataclass(slots=True)
class SpokenSpan:
    """The caller's own words of one text chunk and where their audio lies in the utterance, ms from its start.

    ``words``: for each word the engine reported, when it begins (ms from the span's start) and which share of the text
    lies before it, 0 to 1. ``paces``: how long its parts take, used where there are no such words. ``marks``: for each
    mark of SSML that was not reached yet, the same share and its name.
    """

    source: str
    start_ms: float
    end_ms: float | None = None
    words: list[tuple[float, float]] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    paces: tuple[Pace, ...] = ()
    is_refused: bool = False
    """Whether no voice speaks it, so that the caller does not hear it."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word that was played: where it stands in the text that was sent (for SSML its text content), and when it is heard,
    from the start of the utterance's audio. ``engine``: the engine reported it; ``estimated`` is off by some 150 ms.
    """

    text: str
    char_start: int
    char_end: int
    start_ms: int
    end_ms: int
    source: Literal["engine", "estimated"]


def extend_spans(spans: list[SpokenSpan], chunk: SpeechChunk, at_ms: float) -> None:
    """Take the metadata of a chunk, which begins ``at_ms`` in the audio of the text, into the spans."""
    if chunk.begins_source is not None:
        close_span(spans, at_ms)
        spans.append(
            SpokenSpan(
                chunk.begins_source,
                at_ms,
                marks=list(chunk.marks),
                is_refused=bool(chunk.refused_because),
                paces=chunk.paces,
            )
        )
    if chunk.words and spans:
        spans[-1].words.extend(chunk.words)


def close_span(spans: list[SpokenSpan], at_ms: float) -> None:
    """End the audio of the last span here, unless it has ended before."""
    if spans and spans[-1].end_ms is None:
        spans[-1].end_ms = at_ms


def heard_part(span: SpokenSpan, played_ms: float) -> str:
    """Return the part of a span that was heard, in whole words; an interrupted word does not count."""
    source, heard_ms = span.source, played_ms - span.start_ms
    cut = _heard_by_words(span, heard_ms) if span.words else _heard_by_pace(span, heard_ms)
    while 0 < cut < len(source) and _are_one_word(source[cut - 1], source[cut]):
        cut -= 1
    return source[:cut]


def heard_and_pending(spans: Sequence[SpokenSpan], text: str, played_ms: float) -> tuple[str, str]:
    """The part of a text that was heard, and the part that was not: what was not played, and what no voice speaks. Whole
    spans are heard, and of the last one the share of its words that was played; the text's last blanks once all of it was.
    """
    heard, refused, position = "", "", 0
    for span in spans:
        if span.is_refused:
            refused, position = refused + span.source, position + len(span.source)
            continue
        if played_ms <= span.start_ms:
            break
        is_whole = span.end_ms is not None and played_ms >= span.end_ms - ROUNDING_MS
        source = span.source if is_whole else heard_part(span, played_ms)
        heard, position = heard + source, position + len(source)
        if not is_whole:
            break
    else:
        if heard and text.startswith(heard) and not has_speech(text[len(heard) :]):
            return text, ""
    spoken = heard.rstrip()
    return spoken, refused + text[position:] if refused else text.removeprefix(spoken)


def words_of(span: SpokenSpan, num_chars: int) -> list[Word]:
    """Return the words of a span, which begins ``num_chars`` characters into the text. Words without anything to say are
    left out.
    """
    if span.is_refused:
        return []
    source = span.source
    found = [match.span() for match in _WORD.finditer(source) if has_speech(match.group())]
    *starts_ms, end_ms = offsets_ms(span, [*(start / len(source) for start, _ in found), 1.0])
    return [
        Word(
            source[start:end],
            num_chars + start,
            num_chars + end,
            round(span.start_ms + start_ms),
            round(span.start_ms + (next_ms if start_ms < next_ms < math.inf else start_ms)),
            "engine" if span.words else "estimated",
        )
        for (start, end), start_ms, next_ms in zip(found, starts_ms, [*starts_ms, end_ms][1:], strict=True)
        if start_ms < math.inf
    ]


def offsets_ms(span: SpokenSpan, shares: Sequence[float]) -> list[float]:
    """Return when the places at ``shares`` of a span's text are spoken, ms from its start; infinite while unknown."""
    if not shares:
        return []
    length_ms = math.inf if span.end_ms is None else span.end_ms - span.start_ms
    if span.words:
        return [_reported_ms(span, share, length_ms) for share in shares]
    ends_s = [0.0, *_paces(span)]
    stretch = 1000.0 if math.isinf(length_ms) else length_ms / max(ends_s[-1], _ROUNDING_S)
    return [ends_s[round(share * len(span.source))] * stretch for share in shares]


def _reported_ms(span: SpokenSpan, share: float, length_ms: float) -> float:
    """Return the start of the word nearest to a place."""
    if share >= 1.0 or (math.isinf(length_ms) and share > span.words[-1][1]):
        return length_ms
    return min(span.words, key=lambda word: abs(word[1] - share))[0]


def _paces(span: SpokenSpan) -> list[float]:
    """Return the seconds up to the end of each character, at the usual pace of the spoken words."""
    paces = span.paces
    if sum(num_chars for num_chars, _, _ in paces) != len(span.source):
        paces = tuple((1, spoken_s(each), False) for each in span.source)
    seconds, ends = 0.0, list[float]()
    for num_chars, length_s, _ in paces:
        ends += (seconds + length_s * each / num_chars for each in range(1, num_chars + 1))
        seconds += length_s
    return ends


def _heard_by_words(span: SpokenSpan, heard_ms: float) -> int:
    """Return the heard characters of a span whose words the engine has timed."""
    begun = [share for offset_ms, share in span.words if offset_ms <= heard_ms]
    return round(len(span.source) * min(1.0, begun[-1])) if begun else 0


def _heard_by_pace(span: SpokenSpan, heard_ms: float) -> int:
    """Return the heard characters by the usual pace of their script, scaled to the length of the audio if that is known."""
    ends_s = _paces(span)
    heard_s = heard_ms / 1000
    if span.end_ms is not None and ends_s:
        heard_s = ends_s[-1] * heard_ms / max(span.end_ms - span.start_ms, 1.0)
    cut = bisect_right(ends_s, heard_s + _ROUNDING_S)
    start = 0
    for num_chars, _, is_whole in span.paces:
        if is_whole and start < cut < start + num_chars:
            return start
        start += num_chars
    return cut


def _are_one_word(character: str, following: str) -> bool:
    return not any(each.isspace() or is_unspaced(each) for each in (character, following))
