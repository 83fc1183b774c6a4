"""The text of one utterance that is spoken while it arrives: a client appends, and the call's player takes segments.

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
"""The most text chunks of a segment."""


def segmenting_of(config: TtsConfig) -> Segmenting:
    """Return the lengths by which a growing text is cut into segments."""
    return Segmenting(
        word_cut_chars=config.first_chunk_max_chars,
        max_chars=SEGMENT_CHUNKS * config.chunk_max_chars,
        strips_markup=config.markdown == "strip",
    )


@dataclass(frozen=True, slots=True)
class Segment:
    """The next part of a text, with the offsets and names of its marks. Without text it holds marks between two parts. Its
    text begins inside ``markup``; if not ``is_spoken`` it is a model's reasoning or the like.
    """

    text: str
    marks: tuple[tuple[int, str], ...] = ()
    markup: MarkupState = AT_BEGINNING
    is_spoken: bool = True


class IncrementalText(IncrementalSource):
    """One text. Nothing is lost: the taken and the pending text together are the appended text. A text whose reader has
    waited ``idle_timeout_s`` for more ends, since it blocks the prompts behind it.
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
        """The pending characters that are spoken without waiting for more."""
        self._marks: deque[tuple[int, str]] = deque()
        self._markup = AT_BEGINNING
        """The markup that is open at the start of the pending text."""
        self._appended_s = self._loop.time()
        self.voice: Voice | None = None
        """The voice, once the first segment has shown the language."""
        self.begun_ns = 0
        """When the first text arrived."""
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
        """Have the text so far spoken, whatever follows."""
        self._num_flushed = len(self._pending)
        self._changed.set()

    def end(self) -> None:
        super().end()
        self.flush()

    def take(self) -> Segment | None:
        """Return the next segment, if one is complete."""
        self._num_flushed = min(self._num_flushed, len(self._pending))
        if not has_speech(self._pending[: self._num_flushed]):
            self._num_flushed = 0  # nothing to say in it: it goes with the next segment
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
        """Return the number of pending characters in the next segment, 0 if more text is needed, and whether they are
        spoken.
        """
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
        """Wait for a change, or until the text so far must be spoken because nothing more comes."""
        if has_speech(self._pending):
            dues_s = ((each - self._idle_ms) / 1000 for each in (WORD_IDLE_MS, ALL_IDLE_MS, GROWING_IDLE_MS))
            timeout_s = min(timeout_s, next((due_s for due_s in dues_s if due_s > 0), timeout_s))
        await self.changed(timeout_s)

    @property
    def _idle_ms(self) -> float:
        """Return the time since the last text arrived."""
        return round(1000 * (self._loop.time() - self._appended_s), 3)

    def _marks_up_to(self, position: int) -> tuple[tuple[int, str], ...]:
        """Take the marks up to a position, and those right behind it that precede any spoken text."""
        found = []
        while self._marks and not has_speech(self._pending[: max(0, self._marks[0][0] - position)]):
            at, name = self._marks.popleft()
            found.append((min(at, position), name))
        return tuple(found)
