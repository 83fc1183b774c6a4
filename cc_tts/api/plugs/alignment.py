"""The characters of a text with the times at which they are heard, for the pieces in which the audio is sent.

The words of an engine come with the chunk in which they begin. The characters of a word, with what is between it and the
next one, are told with that chunk, evenly over the time of the word; the times of the pieces add up to the length of the
audio.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cc_tts.audio import AudioFormat
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.speech.timing.spans import SpokenSpan, close_span, extend_spans, words_of
from cc_tts.text.language import is_unspaced

MAX_HELD_MS: Final = 1000.0  # unmeasured
"""Audio in which no word begins is held back and sent with what follows, up to this length."""


@dataclass(frozen=True, slots=True)
class Characters:
    """Characters, the start of each in the audio that they come with, and their durations, ms."""

    characters: tuple[str, ...]
    starts_ms: tuple[float, ...]
    durations_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AlignedAudio:
    """PCM and, if requested, the characters that begin in it. ``begin_ms``: where it begins in all audio of the text."""

    pcm: bytes
    characters: Characters | None = None
    begin_ms: float = 0.0


async def unaligned(chunks: AsyncIterator[SpeechChunk]) -> AsyncIterator[AlignedAudio]:
    """Yield the pieces of a text without characters."""
    async for chunk in chunks:
        yield AlignedAudio(chunk.data)


class Aligner:
    """Joins the chunks of one text to pieces of audio with their characters. Characters after the last word, whose audio has
    been sent, come without audio.
    """

    def __init__(self, rate_hz: int) -> None:
        self._format = AudioFormat(rate_hz)
        self.spans: list[SpokenSpan] = []
        self._num_told = 0
        """The characters of the last span that were reported."""
        self._held = b""
        self._end_ms = 0.0
        """The length of all audio so far."""

    async def pieces(self, chunks: AsyncIterator[SpeechChunk]) -> AsyncIterator[AlignedAudio]:
        async for chunk in chunks:
            for piece in self.add(chunk):
                yield piece
        for piece in self.finish():
            yield piece

    def add(self, chunk: SpeechChunk) -> list[AlignedAudio]:
        pieces: list[AlignedAudio] = []
        if chunk.begins_source is not None or chunk.awaits_text:
            close_span(self.spans, self._end_ms)
            pieces = self._piece(is_whole_text=True)
        if chunk.awaits_text and self._held:
            pieces += self._take([(0.0, self._blank())])
        if chunk.begins_source is not None:
            self._num_told = 0
        extend_spans(self.spans, chunk, self._end_ms)
        self._held += chunk.data
        self._end_ms += self._format.ms_for_bytes(len(chunk.data))
        return pieces + self._piece(is_whole_text=False)

    def finish(self) -> list[AlignedAudio]:
        """Return the rest at the end. Silence after the last word has no characters."""
        close_span(self.spans, self._end_ms)
        return self._piece(is_whole_text=True) or ([AlignedAudio(self._held)] if self._held else [])

    @property
    def _begin_ms(self) -> float:
        return self._end_ms - self._format.ms_for_bytes(len(self._held))

    def _piece(self, *, is_whole_text: bool) -> list[AlignedAudio]:
        """Return the audio that is held back, if a word begins in it or it is long enough. ``is_whole_text``: the last span
        is complete.
        """
        places = self._places(is_whole_text=is_whole_text) if self._held or is_whole_text else []
        if not places and self._end_ms - self._begin_ms < MAX_HELD_MS:
            return []
        return self._take(places or [(0.0, self._blank())])

    def _take(self, places: list[tuple[float, str]]) -> list[AlignedAudio]:
        begin_ms = self._begin_ms
        pcm, self._held = self._held, b""
        return [AlignedAudio(pcm, _spread(places, self._end_ms - begin_ms), begin_ms)]

    def _places(self, *, is_whole_text: bool) -> list[tuple[float, str]]:
        """Return the words that have begun and were not reported: their times in the audio that is held back, and their
        characters.
        """
        if not self.spans or self.spans[-1].is_refused:
            return []
        span = self.spans[-1]
        words = [word for word in words_of(span, 0) if word.char_start >= self._num_told]
        if not is_whole_text:
            words = [word for word in words if word.start_ms < self._end_ms]
        rest = span.source[self._num_told :]
        if not words:
            self._num_told += len(rest) if is_whole_text else 0
            return [(0.0, rest)] if is_whole_text and rest.strip() else []
        edges = [self._num_told, *(word.char_start for word in words[1:])]
        self._num_told = len(span.source) if is_whole_text else words[-1].char_end
        return [
            (max(0.0, word.start_ms - self._begin_ms), span.source[start:end])
            for word, (start, end) in zip(words, pairwise([*edges, self._num_told]), strict=True)
        ]

    def _blank(self) -> str:
        """Return the character for audio in which no word begins: the blank after the last word, or another blank; empty if
        the text has none.
        """
        source = self.spans[-1].source if self.spans else ""
        following = source[self._num_told : self._num_told + 1]
        if following == " ":
            self._num_told += 1
        beside = following or source[-1:]
        return "" if beside and is_unspaced(beside) else " "


def _spread(places: list[tuple[float, str]], length_ms: float) -> Characters:
    characters: list[str] = []
    starts_ms: list[float] = []
    durations_ms: list[float] = []
    begins_ms = [0.0, *(min(at_ms, length_ms) for at_ms, _ in places[1:]), length_ms]
    for (start_ms, end_ms), (_, text) in zip(pairwise(begins_ms), places, strict=True):
        those = list(text) or [""]
        each_ms = max(0.0, end_ms - start_ms) / len(those)
        characters += those
        starts_ms += (round(start_ms + each_ms * number, 1) for number in range(len(those)))
        durations_ms += [round(each_ms, 1)] * len(those)
    return Characters(tuple(characters), tuple(starts_ms), tuple(durations_ms))
