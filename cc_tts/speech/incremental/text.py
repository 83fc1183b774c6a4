"""The text of one utterance that arrives while it is spoken: a client appends, the call's player takes segments.

::

    append · mark · flush · end ──▸ pending text ──▸ take ──▸ Segment ──▸ IncrementalStream
                                        └─ when nothing comes for a while, what is there is taken all the same

Runs on: the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cc_tts.clock import Clock
from cc_tts.config.sections.models import TtsConfig
from cc_tts.speech.incremental.source import IncrementalSource
from cc_tts.text.characters import has_speech
from cc_tts.text.markup.unspoken import AT_BEGINNING, HEADER, MarkupState, scan
from cc_tts.text.segments import ALL_IDLE_MS, GROWING_IDLE_MS, WORD_IDLE_MS, Segmenting, segment_end
from cc_tts.voices.voice import Voice

SEGMENT_CHUNKS: Final = 2
"""A segment is at most as long as so many text chunks."""


def segmenting_of(config: TtsConfig) -> Segmenting:
    """How long the segments of a growing text are."""
    return Segmenting(
        word_cut_chars=config.first_chunk_max_chars,
        max_chars=SEGMENT_CHUNKS * config.chunk_max_chars,
        strips_markup=config.markdown == "strip",
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """The next part of a text, and the marks in it: offsets and names. Without text: marks between two parts. It goes on in
    ``markup``; one that is not ``is_spoken`` is the reasoning of a model or the like.
    """

    text: str
    marks: tuple[tuple[int, str], ...] = ()
    markup: MarkupState = AT_BEGINNING
    is_spoken: bool = True


class IncrementalText(IncrementalSource):
    """One text. Nothing is lost: what was taken and what is pending join to what was appended.

    A text whose reader has waited ``idle_timeout_s`` for more ends
    by itself, since it keeps the prompts behind it waiting.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        segmenting: Segmenting,
        idle_timeout_s: float,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(on_taken)
        self._clock = clock
        self._segmenting = segmenting
        self._idle_timeout_s = idle_timeout_s
        self._loop = asyncio.get_running_loop()
        self._taken: list[str] = []
        self._num_taken = 0
        self._pending = ""
        self._num_flushed = 0
        """Pending characters that are spoken without waiting for more."""
        self._marks: deque[tuple[int, str]] = deque()
        self._markup = AT_BEGINNING
        """In what the pending text goes on."""
        self._appended_s = self._loop.time()
        self.voice: Voice | None = None
        """Who speaks it, once the first segment has shown in which language."""
        self.begun_ns = 0
        """When the first of it came."""
        self.ready_ns: int | None = None
        """When the first segment was complete."""

    @property
    def text(self) -> str:
        return "".join([*self._taken, self._pending])

    @property
    def num_pending(self) -> int:
        return len(self._pending)

    def append(self, text: str) -> None:
        self.begun_ns = self.begun_ns or self._clock.now_ns()
        self._pending += text
        self._appended_s = self._loop.time()
        self._changed.set()

    def mark(self, name: str) -> None:
        self._marks.append((self._num_taken + len(self._pending), name))
        self._changed.set()

    def flush(self) -> None:
        """Have what has come spoken, whatever follows."""
        self._num_flushed = len(self._pending)
        self._changed.set()

    def end(self) -> None:
        super().end()
        self.flush()

    def take(self) -> Segment | None:
        """The next segment, if one is complete."""
        self._num_flushed = min(self._num_flushed, len(self._pending))
        if not has_speech(self._pending[: self._num_flushed]):
            self._num_flushed = 0  # nothing to say in it: it goes with what follows
        text = self._pending[: self._num_flushed] or self._pending
        if self._marks and not has_speech(self._pending[: self._marks[0][0] - self._num_taken]):
            return Segment("", self._marks_up_to(self._num_taken))
        num_chars, is_spoken = self._num_next(text)
        if not num_chars:
            return None
        start, markup = self._num_taken, self._markup
        self._taken.append(self._pending[:num_chars])
        self._pending = self._pending[num_chars:]
        self._num_taken += num_chars
        self._num_flushed = max(0, self._num_flushed - num_chars)
        if self._segmenting.strips_markup:
            self._markup = scan(self._taken[-1], markup).state
        marks = tuple((at - start, name) for at, name in self._marks_up_to(self._num_taken))
        if self.ready_ns is None and is_spoken:
            self.ready_ns = self._clock.now_ns()
        self._on_taken()
        return Segment(self._taken[-1], marks, markup, is_spoken)

    def _num_next(self, text: str) -> tuple[int, bool]:
        """How many characters of the pending text come next, 0 if more must come first, and whether they are spoken."""
        is_whole, idle_ms = self._num_flushed > 0, self._idle_ms
        if self._segmenting.strips_markup:
            scanned = scan(text, self._markup)
            start, end = next(iter(scanned.unspoken), (len(text), len(text)))
            if start < end and not has_speech(text[:start]):
                if end == len(text) and scanned.state.inside and not self.has_ended:
                    end = 0 if scanned.state.inside == HEADER else min(end, scanned.tag_from)
                return end, False
            if start < end:
                text, is_whole = text[:start], True
            elif not is_whole and idle_ms < GROWING_IDLE_MS:
                text = text[: scanned.tag_from]
        return segment_end(text, self._segmenting, idle_ms=idle_ms, is_whole=is_whole), True

    async def next(self) -> Segment | None:
        """Wait for the next segment; ``None`` at the end."""
        waiting_since_s = self._loop.time()
        while True:
            if (segment := self.take()) is not None:
                return segment
            if self.has_ended:
                self.is_over = True
                return None
            idle_s = self._loop.time() - max(waiting_since_s, self._appended_s)
            if idle_s >= self._idle_timeout_s:
                self.end()
                continue
            await self._wait(self._idle_timeout_s - idle_s)

    async def _wait(self, timeout_s: float) -> None:
        """Wait for a change, or until what is there is to be spoken because nothing more comes."""
        if has_speech(self._pending):
            dues_s = ((each - self._idle_ms) / 1000 for each in (WORD_IDLE_MS, ALL_IDLE_MS, GROWING_IDLE_MS))
            timeout_s = min(timeout_s, next((due_s for due_s in dues_s if due_s > 0), timeout_s))
        await self.changed(timeout_s)

    @property
    def _idle_ms(self) -> float:
        """Seconds since the last text came."""
        return round(1000 * (self._loop.time() - self._appended_s), 3)

    def _marks_up_to(self, position: int) -> tuple[tuple[int, str], ...]:
        """Take the marks up to a position that was taken, and those behind it before anything that is said."""
        found = []
        while self._marks and not has_speech(self._pending[: max(0, self._marks[0][0] - position)]):
            at, name = self._marks.popleft()
            found.append((min(at, position), name))
        return tuple(found)
