"""The parts of an SSML prompt, one stream after another, with exact silences between them.

::

    text ─▸ stream of the part ─▸ without silence at its edges ─┐
    break · pause by punctuation ───────────────────────────────┼─▸ chunks of the prompt
    mark ─▸ a chunk without audio ──────────────────────────────┘

Runs on: the event loop.
"""

import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence

from cc_tts.audio import AudioFormat
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import NothingToSay
from cc_tts.media.listener_clock import ListenerClock
from cc_tts.media.silence_trimmer import KEEP_LEAD_MS, MAX_TAIL_MS, SilenceTrimmer, pause_after_ms
from cc_tts.speech.admission import AdmittedStream
from cc_tts.speech.chunks import ReadyChunks, in_pieces, marks_alone, now_ms
from cc_tts.speech.prompt import Content, MarkContent, Part, RefusedContent, SilenceContent, TextContent
from cc_tts.text.characters import has_speech


class SequenceStream:
    """A :class:`cc_tts.engines.engine.ChunkStream` of parts. Each part is opened by ``open_part``, which the engine may
    refuse for ``overload_wait_ms``. ``is_again``: an earlier attempt has produced nothing.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        open_part: Callable[..., ChunkStream],
        audio_format: AudioFormat,
        overload_wait_ms: float,
        *,
        is_again: bool = False,
    ) -> None:
        self._parts = parts
        self._open_part = open_part
        self._format = audio_format
        self._overload_wait_ms = overload_wait_ms
        self._listener = ListenerClock()
        self._is_again = is_again
        self._is_cancelled = False
        self._stream: ChunkStream | None = None
        self._unspoken = ""
        """Words that were taken and do not belong to a chunk yet, such as blanks."""
        self._has_told = False
        """Whether words were spoken, or refused."""
        self._nothing: NothingToSay | None = None

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self._listener.holds(now_ms(), buffered_ms)
        if self._stream is not None:
            self._stream.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        self._is_cancelled = True
        await self._close_part()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        async for chunk in self._whole():
            self._listener.sent(now_ms(), self._format.ms_for_bytes(len(chunk.data)))
            yield chunk

    async def _whole(self) -> AsyncIterator[SpeechChunk]:
        async for chunk in self._sequence(self._parts):
            yield chunk
        if self._nothing is not None and not self._has_told:
            raise self._nothing

    async def _sequence(self, parts: Sequence[Part]) -> AsyncIterator[SpeechChunk]:
        for number, part in enumerate(parts):
            if self._is_cancelled:
                return
            following = next((each for each in parts[number + 1 :] if not isinstance(each, MarkContent)), None)
            async for chunk in self._chunks(part, following):
                yield chunk

    def _chunks(self, part: Part, following: Part | None) -> AsyncIterable[SpeechChunk]:
        match part:
            case MarkContent():
                return ReadyChunks([marks_alone([part.name])])
            case SilenceContent():
                lead_ms = KEEP_LEAD_MS if isinstance(following, TextContent) else 0.0
                return ReadyChunks(self._silence(part.silence_ms - lead_ms))
            case TextContent():
                return self._text(part, following)
            case RefusedContent():
                return ReadyChunks(self._refused(part))
            case _:
                return self._opened(part)

    def _silence(self, silence_ms: float) -> list[SpeechChunk]:
        """Yield silence with a span of its own, so that the words before it end where they end."""
        pcm = bytes(self._format.bytes_for_ms(max(0.0, silence_ms)))
        return in_pieces(SpeechChunk(begins_source=""), pcm, self._format)

    def _refused(self, part: RefusedContent) -> list[SpeechChunk]:
        """Yield a refused part alone, after any words that do not belong to a chunk yet."""
        self._has_told = True
        marks = tuple((0.0, name) for _, name in part.marks)
        before = [SpeechChunk(begins_source=self._unspoken)] if self._unspoken else []
        self._unspoken = ""
        return [*before, SpeechChunk(begins_source=part.text, marks=marks, refused_because=part.detail)]

    async def _text(self, part: TextContent, following: Part | None) -> AsyncIterator[SpeechChunk]:
        """Yield a text part without silence at its edges, and the pause after it unless a break follows."""
        trimmer = SilenceTrimmer(self._format)
        marks = list(part.marks)
        num_chars = 0
        held = SpeechChunk()
        """The previous chunk, while its audio is still to come: silence inside a part keeps its length."""
        async for chunk in self._spoken(part):
            data = chunk.data if part.gain_db == -math.inf else trimmer.process(chunk.data)
            source = chunk.begins_source or ""
            chunk.marks = _marks_in(source, marks, num_chars)
            num_chars += len(source)
            if has_speech(self._unspoken) and source:  # no audio: places in the words are shares of their own text
                yield SpeechChunk(begins_source=self._unspoken)
                self._unspoken = ""
            if source:
                chunk.begin_with(self._unspoken)
                self._unspoken = ""
            chunk.follow(held)
            pieces = in_pieces(chunk, data, self._format)
            held = SpeechChunk() if pieces else chunk
            for piece in pieces:
                yield piece
        self._unspoken += part.text[num_chars:]
        pause_ms = pause_after_ms(part.text) / part.rate
        trail_ms = min(pause_ms, MAX_TAIL_MS) if following is None else 0.0
        held.data = trimmer.finish(trail_ms)
        yield held
        if isinstance(following, TextContent):
            for silent in self._silence(pause_ms - KEEP_LEAD_MS):
                yield silent
        if marks:
            yield marks_alone(name for _, name in marks)

    async def _spoken(self, part: TextContent) -> AsyncIterator[SpeechChunk]:
        """Yield the chunks of a part; none if it is only markup, which is no error beside spoken parts."""
        try:
            async for chunk in self._opened(part):
                self._has_told = True
                yield chunk
        except NothingToSay as error:
            self._nothing = error

    async def _opened(self, part: Content) -> AsyncIterator[SpeechChunk]:
        """Yield the chunks of a part. A full engine is asked again, and must speak in the end."""

        def open_part(*, is_again: bool, must_speak: bool) -> ChunkStream:
            stream = self._open_part(part, is_again=is_again, must_speak=must_speak)
            stream.set_buffered_ms(max(0.0, self._listener.left_ms(now_ms())))
            return stream

        stream = self._stream = AdmittedStream(open_part, self._overload_wait_ms, is_again=self._is_again)
        try:
            async for chunk in stream:
                self._is_again = False
                yield chunk
        finally:
            await self._close_part()

    async def _close_part(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.cancel()


def _marks_in(source: str, marks: list[tuple[int, str]], start: int) -> tuple[tuple[float, str], ...]:
    """Take from ``marks`` those in the words that begin at character ``start`` of the text."""
    found = []
    while source and marks and marks[0][0] <= start + len(source):
        offset, name = marks.pop(0)
        found.append(((offset - start) / len(source), name))
    return tuple(found)
