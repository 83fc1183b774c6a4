"""The audio of a text that is still arriving: a stream of the engine for each segment, and nothing held between them.

::

    IncrementalText ─▸ segment ─▸ SequenceStream of one part ─▸ chunks ─▸ line
         │                        └─ the pause by its punctuation comes with the next segment
         └─ no segment yet ─▸ a chunk that says so: if the line runs dry now, that is no underrun

While it waits for text it has no stream in the engine: it takes nobody's place there, and there is nothing to be late.
Runs on: the event loop.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from cc_tts.audio import AudioFormat
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import NothingToSay
from cc_tts.media.listener_clock import ListenerClock
from cc_tts.media.silence_trimmer import MAX_TAIL_MS, pause_after_ms
from cc_tts.speech.chunks import ChunkStream, cut, marks_alone, now_ms
from cc_tts.speech.incremental.text import Segment
from cc_tts.speech.prompt import IncrementalContent, RefusedContent, TextContent
from cc_tts.speech.sequence import SequenceStream
from cc_tts.speech.voicing.parts import Voicing
from cc_tts.text.characters import has_speech
from cc_tts.text.chunker import LOOK_BACK_CHARS
from cc_tts.text.language import has_letters


class IncrementalStream:
    """A :class:`cc_tts.speech.chunks.ChunkStream`. ``voicing`` finds the voices of each segment; ``open_part`` and
    ``overload_wait_ms`` are as in :class:`cc_tts.speech.sequence.SequenceStream`.
    """

    def __init__(
        self,
        content: IncrementalContent,
        open_part: Callable[..., ChunkStream],
        voicing: Voicing,
        audio_format: AudioFormat,
        overload_wait_ms: float,
    ) -> None:
        self._words = content.words
        self._incremental = content.incremental
        self._open_part = open_part
        self._voicing = voicing
        self._format = audio_format
        self._overload_wait_ms = overload_wait_ms
        self._part: SequenceStream | None = None
        self._is_cancelled = False
        self._listener = ListenerClock()
        self._pause_ms = 0.0
        """The pause by the punctuation of the segment before, as far as it was not given out."""
        self._unspoken = ""
        """Text that was taken and belongs to no chunk yet."""
        self._base: str | None = None
        """The language of the first words."""
        self._language: str | None = None
        self._before = ""
        """The end of the segments before."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self._listener.holds(now_ms(), buffered_ms)
        if self._part is not None:
            self._part.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        self._is_cancelled = True
        part, self._part = self._part, None
        if part is not None:
            await part.cancel()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        while not self._is_cancelled:
            segment = self._incremental.take()
            if segment is None and not self._incremental.has_ended:
                yield SpeechChunk(awaits_text=True)
            segment = segment or await self._incremental.next()
            if segment is None:
                return
            async for chunk in self._chunks(segment):
                self._listener.sent(now_ms(), self._format.ms_for_bytes(len(chunk.data)))
                yield chunk

    async def _chunks(self, segment: Segment) -> AsyncIterator[SpeechChunk]:
        if segment.is_spoken and has_speech(segment.text):
            for data in cut(self._pause(), self._format):
                yield SpeechChunk(data, "")
            async for chunk in self._spoken(segment):
                yield chunk
            return
        self._unspoken += segment.text
        if segment.marks:
            yield marks_alone(name for _, name in segment.marks)

    def _pause(self) -> bytes:
        """The rest of the pause between two segments, less what the line was silent already."""
        silent_ms = max(0.0, -self._listener.left_ms(now_ms()))
        pause_ms, self._pause_ms = max(0.0, self._pause_ms - silent_ms), 0.0
        return bytes(self._format.bytes_for_ms(pause_ms))

    async def _spoken(self, segment: Segment) -> AsyncIterator[SpeechChunk]:
        parts = self._as_parts(segment)
        self._part = stream = SequenceStream(parts, self._open_part, self._format, self._overload_wait_ms)
        stream.set_buffered_ms(max(0.0, self._listener.left_ms(now_ms())))
        given, num_marks = 0, 0
        try:
            async for chunk in stream:
                num_marks += len(chunk.marks)
                given += len(chunk.begins_source or "")
                if chunk.begins_source:
                    if has_speech(self._unspoken):  # of no share in the words, whose places are shares of their text
                        yield SpeechChunk(begins_source=self._unspoken)
                        self._unspoken = ""
                    chunk.begin_with(self._unspoken)
                    self._unspoken = ""
                yield chunk
        except NothingToSay:  # markup alone: not even a mark was given out
            yield marks_alone(name for _, name in segment.marks[num_marks:])
        finally:
            await stream.cancel()
        self._unspoken += segment.text[given:]
        self._pause_ms = max(0.0, pause_after_ms(segment.text) - MAX_TAIL_MS)

    def _as_parts(self, segment: Segment) -> Sequence[TextContent | RefusedContent]:
        """How the segment is spoken: where its words tell no language, in that of the first segment; digits in the language
        of the words before them.
        """
        has_words = has_letters(segment.text)
        content = replace(
            self._words,
            text=segment.text,
            marks=segment.marks,
            markup=segment.markup,
            may_cache=False,
            before=self._before,
            language=self._words.language or (None if has_words else self._language),
            context_language=self._base,
        )
        self._before = (self._before + segment.text)[-LOOK_BACK_CHARS:]
        parts = self._voicing.parts(content)
        voices = [self._voicing.voice(part) for part in parts if isinstance(part, TextContent)]
        if voices:
            self._incremental.voice = self._incremental.voice or voices[0]
            if has_words:
                self._base = self._base or voices[0].language
                self._language = voices[-1].language
        return parts
