"""The audio of a text that is still arriving. Each segment is a stream of the engine, and between segments the engine holds
nothing.

::

    IncrementalText ─▸ segment ─▸ its parts in sequence ─▸ chunks ─▸ line
         │                     └─ the pause by its punctuation comes with the next segment
         └─ no segment yet ─▸ a chunk that says so: if the line runs dry now, that is no underrun

While it waits for text it has no stream in the engine: it takes nobody's place there, and there is nothing to be late.
Runs on: the event loop.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from cc_tts.audio import AudioFormat
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import NothingToSay
from cc_tts.media.silence_trimmer import MAX_TAIL_MS, pause_after_ms
from cc_tts.speech.chunks import marks_alone, now_ms
from cc_tts.speech.incremental.text import Segment
from cc_tts.speech.prompt import IncrementalContent, RefusedContent, TextContent
from cc_tts.speech.sequence import SequenceStream
from cc_tts.speech.voicing.parts import Voicing
from cc_tts.text.characters import has_speech
from cc_tts.text.chunker import LOOK_BACK_CHARS
from cc_tts.text.language import LOOKED_AT_CHARS, has_letters


class IncrementalStream(SequenceStream):
    """``voicing`` chooses the voices of each segment, whose parts are spoken one after the other."""

    def __init__(
        self,
        content: IncrementalContent,
        open_part: Callable[..., ChunkStream],
        voicing: Voicing,
        audio_format: AudioFormat,
        overload_wait_ms: float,
    ) -> None:
        super().__init__((), open_part, audio_format, overload_wait_ms)
        self._words = content.words
        self._incremental = content.incremental
        self._voicing = voicing
        self._pause_ms = 0.0
        """The pause after the previous segment, as far as it has not been played."""
        self._told = ""
        """The segments so far, as far as they matter for detecting the language."""
        self._language: str | None = None
        self._before = ""
        """The end of the previous segments."""

    async def _whole(self) -> AsyncIterator[SpeechChunk]:
        while not self._is_cancelled:
            segment = self._incremental.take()
            if segment is None and not self._incremental.has_ended:
                yield SpeechChunk(awaits_text=True)
            segment = segment or await self._incremental.next()
            if segment is None:
                break
            async for chunk in self._segment(segment):
                yield chunk
        if not (self._is_cancelled or self._has_told) and self._incremental.text.strip():
            raise NothingToSay("the text has no letter and no digit that is spoken")

    async def _segment(self, segment: Segment) -> AsyncIterator[SpeechChunk]:
        if segment.is_spoken and has_speech(segment.text):
            for silent in self._silence(self._pause_left_ms()):
                yield silent
            async for chunk in self._sequence(self._as_parts(segment)):
                yield chunk
            self._pause_ms = max(0.0, pause_after_ms(segment.text) - MAX_TAIL_MS)
            return
        self._unspoken += segment.text
        if segment.marks:
            yield marks_alone(name for _, name in segment.marks)

    def _pause_left_ms(self) -> float:
        """Return the rest of the pause between two segments, less the time for which the line was silent already."""
        silent_ms = max(0.0, -self._listener.left_ms(now_ms()))
        pause_ms, self._pause_ms = max(0.0, self._pause_ms - silent_ms), 0.0
        return pause_ms

    def _as_parts(self, segment: Segment) -> Sequence[TextContent | RefusedContent]:
        """Return the parts of a segment. If its own words do not tell the language, that of the text so far is used; digits
        take the language of the words before them.
        """
        has_words = has_letters(segment.text)
        is_first = not self._told
        if has_words:
            self._told = (self._told + segment.text)[-LOOKED_AT_CHARS:]
        content = replace(
            self._words,
            text=segment.text,
            marks=segment.marks,
            markup=segment.markup,
            may_cache=False,
            before=self._before,
            language=self._words.language or (None if has_words else self._language),
        )
        if has_words and not is_first:
            content = replace(content, context_language=self._voicing.main_language(replace(content, text=self._told)))
        self._before = (self._before + segment.text)[-LOOK_BACK_CHARS:]
        parts = self._voicing.parts(content)
        voices = [self._voicing.voice(part) for part in parts if isinstance(part, TextContent)]
        if voices:
            self._incremental.voice = self._incremental.voice or voices[0]
            if has_words:
                self._language = voices[-1].language
        return parts
