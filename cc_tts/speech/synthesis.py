"""One text on its way through the engine to audio for the line.

::

    text ─▸ text chunks ─▸ engine ─▸ is it heard? ─▸ resampler ─▸ level ─▸ silence at the edges ─▸ chunks
                                         └─ the engine gives no audio for a text chunk: a stand-in says it, else NoAudio

Every text chunk has a letter or a digit in it, so silence in its place would be a fault that nobody sees. Runs on: the event
loop.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.engines.engine import SpeechStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import CcTtsError, EngineFailed, NoAudio, NothingToSay
from cc_tts.media.levels import LoudnessNormalizer
from cc_tts.media.silence_trimmer import MAX_TAIL_MS, SilenceTrimmer
from cc_tts.speech.chunks import SpokenPrompt, in_pieces
from cc_tts.speech.resampler import StreamResampler
from cc_tts.text.characters import has_speech
from cc_tts.text.chunker import Chunker, TextChunk
from cc_tts.text.process.client import TextPreparation
from cc_tts.tracing import span as tracing
from cc_tts.tracing.span import CURRENT, SumSpan
from cc_tts.voices.inline_ipa import without_pronunciations

_BOUNDARIES: Final = (re.compile(r"[.?!,;:](?=\s)|[。？！，、；：]"), re.compile(r"\s"))
"""The ends of clauses, and of words."""
_WITHOUT_BLANKS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
"""In Chinese and Japanese any character may begin a word."""
_FIRST_WORD_ENDS: Final = re.compile(rf"\s|{_WITHOUT_BLANKS.pattern}")

log = logs.get(__name__)


class TextHere:
    """A text that is prepared in this process; see :class:`cc_tts.text.process.client.TextPreparation`."""

    def __init__(self, chunker: Chunker) -> None:
        self._chunker = chunker

    async def feed(self, take: Callable[[TextChunk], None]) -> None:
        for chunks, _ in self._chunker.slices():
            for chunk in chunks:
                take(chunk)
            await asyncio.sleep(0)

    def cancel(self) -> None:
        """Do nothing: the task that feeds is cancelled."""

    @property
    def has_placeholder(self) -> bool:
        return self._chunker.has_placeholder


class Synthesis:
    """A :class:`cc_tts.engines.engine.ChunkStream` of one text.

    ``open_stand_in`` opens a stream of another engine, if there is one. ``tells_chunks``: the engine says of all audio to
    which text chunk it belongs; else only a text without any audio is noticed. ``on_no_audio`` is called for each chunk
    without audio, and ``meter`` with audio of the voice before its gain.
    """

    def __init__(
        self,
        stream: SpeechStream,
        text: TextHere | TextPreparation,
        prompt: SpokenPrompt,
        *,
        open_stand_in: Callable[[], SpeechStream | None],
        tells_chunks: bool,
        on_no_audio: Callable[[], None],
        utterance_id: str,
        meter: Callable[[bytes], None] | None,
    ) -> None:
        self._stream = stream
        self._text = text
        self._voice = prompt.voice
        self._open_stand_in = open_stand_in
        self._stand_in: SpeechStream | None = None
        self._tells_chunks = tells_chunks
        self._on_no_audio = on_no_audio
        self._utterance_id = utterance_id
        self._meter = meter
        self._format = AudioFormat(prompt.rate_hz)
        self._voice_rate_hz = prompt.voice_rate_hz
        self._resampler = StreamResampler(prompt.voice_rate_hz, prompt.rate_hz)
        self._is_silent = prompt.gain_db == -math.inf
        self._loudness = LoudnessNormalizer(self._format, prompt.gain_db)
        self._trimmer = SilenceTrimmer(self._format, tail_ms=MAX_TAIL_MS)
        self._held = SpeechChunk()
        """The previous chunk, if it has no audio at the line's rate yet."""
        self._text_chunks: list[TextChunk] = []
        self._num_begun = 0
        self._feeder: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._is_cancelled = False
        self._resampling = SumSpan(CURRENT.get(), "resample")

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self._stream.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
        self._text.cancel()
        await self._cancel_streams()

    async def _cancel_streams(self) -> None:
        self._is_cancelled = True
        self._resampling.close()
        if self._stand_in is not None:
            await self._stand_in.cancel()
        await self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        self._feeder = asyncio.create_task(self._feed())
        async for chunk in self._heard():
            if chunk.is_resumed and not self._held.is_resumed:
                log.warning("utterance_resumed", utterance_id=self._utterance_id, reason=_reason(chunk))
            if chunk.rate_hz != self._voice_rate_hz:  # the fallback engine goes on
                self._voice_rate_hz = chunk.rate_hz
                self._resampler = StreamResampler(self._voice_rate_hz, self._format.rate_hz)
            self._add_words(chunk)
            for piece in self._at_line_rate(chunk):
                yield piece
        if self._failure is not None:
            raise self._failure
        for piece in self._at_line_rate(SpeechChunk(is_resumed=self._held.is_resumed), last=True):
            yield piece
        held = self._held
        if held.is_resumed or held.after_loss or held.gave_up_after is not None:  # no audio has carried these flags
            yield SpeechChunk(is_resumed=held.is_resumed, after_loss=held.after_loss, gave_up_after=held.gave_up_after)
        self._resampling.close()
        if not self._text_chunks:
            raise NothingToSay("nothing of the text can be spoken")

    async def _heard(self) -> AsyncIterator[SpeechChunk]:
        """Yield the engine's audio, and the stand-in's for text chunks that would not be heard."""
        num_heard = 0
        silence: list[SpeechChunk] = []
        async for chunk in self._stream:
            index, said = chunk.text_chunk_index, chunk.gave_up_after
            if index >= num_heard and said is None and not _has_sound(chunk):
                silence.append(chunk)
                continue
            async for other in self._missed(num_heard, index if self._tells_chunks else 0):
                yield other
            for silent in silence:
                if silent.text_chunk_index == index:
                    yield silent
            silence = []
            num_heard = max(num_heard, index + 1)
            if said is None:
                yield chunk
                continue
            async for other in self._said_instead(index, said):
                yield other
        num_chunks = len(self._text_chunks) if self._tells_chunks or not num_heard else 0
        async for other in self._missed(num_heard, num_chunks):
            yield other

    async def _missed(self, begin: int, end: int) -> AsyncIterator[SpeechChunk]:
        for index in range(begin, end):
            async for other in self._said_instead(index):
                yield other

    async def _said_instead(self, index: int, said: float | None = None) -> AsyncIterator[SpeechChunk]:
        """Have the stand-in say a text chunk, or the rest after the share that was ``said`` when the voice ran away."""
        text, is_heard = unsaid_part(self._text_chunks[index].spoken, said or 0.0), False
        if self._is_cancelled:
            return
        if not has_speech(text):
            if said is not None:
                yield SpeechChunk(gave_up_after=said, text_chunk_index=index, rate_hz=self._voice_rate_hz)
            return
        self._on_no_audio()
        self._stand_in = self._open_stand_in()
        log.error(
            "no_audio", voice=self._voice, text_chunk=index, text_chars=len(text), ran_away=said is not None,
            has_stand_in=self._stand_in is not None,
        )  # fmt: skip
        if self._stand_in is not None:
            self._stand_in.push(text, text_chunk_index=index)
            self._stand_in.end()
            is_told = False
            try:
                async for chunk in self._stand_in:
                    is_heard |= _has_sound(chunk)
                    chunk.is_resumed = True
                    if said is not None:
                        chunk.gave_up_after, chunk.spoken_words = (None if is_told else said), ()
                    is_told = True
                    yield chunk
            finally:
                await self._stand_in.cancel()
        if not is_heard and not self._is_cancelled:
            raise NoAudio(f"the voice {self._voice} gave no audio for a text of {len(text)} characters")

    def _add_words(self, chunk: SpeechChunk) -> None:
        """Add the caller's words that begin with a chunk."""
        spoken = self._text_chunks[chunk.text_chunk_index]
        chunk.words = tuple((word.offset_ms, spoken.source_share(word.position)) for word in chunk.spoken_words)
        if begun := self._text_chunks[self._num_begun : chunk.text_chunk_index + 1]:
            self._num_begun = chunk.text_chunk_index + 1
            chunk.begins_source = "".join(each.source for each in begun)
            chunk.paces = tuple(pace for each in begun for pace in each.paces)

    def _at_line_rate(self, chunk: SpeechChunk, *, last: bool = False) -> list[SpeechChunk]:
        """Return the finished audio of a chunk, in pieces."""
        self._resampling.begin()
        at_line_rate = self._resampler.process(chunk.data, last)
        self._resampling.end()
        if self._meter is not None and not chunk.is_resumed:  # another voice may have another level
            self._meter(at_line_rate)
        levelled = self._loudness.process(at_line_rate, last=last)
        if not self._is_silent:
            levelled = self._trimmer.process(levelled)
        chunk.follow(self._held)
        pieces = in_pieces(chunk, levelled, self._format)
        self._held = SpeechChunk(is_resumed=chunk.is_resumed) if pieces else chunk
        return pieces

    async def _feed(self) -> None:
        span = tracing.begin("text.normalize+chunk")
        try:
            await self._text.feed(self._push)
            self._stream.end()
            if span is not None:
                span.attributes["cctts.text_chunks"] = len(self._text_chunks)
            if self._text.has_placeholder:
                log.warning("unfilled_placeholder", utterance_id=self._utterance_id)
        except Exception as error:  # noqa: BLE001 - raised where the audio is read, so that the reader is not left waiting
            self._failure = error if isinstance(error, CcTtsError) else EngineFailed("the text could not be prepared")
            if self._failure is not error:
                self._failure.__cause__ = error
            await self._cancel_streams()
        finally:
            if span is not None:
                span.end()

    def _push(self, chunk: TextChunk) -> None:
        self._text_chunks.append(chunk)
        self._stream.push(chunk.spoken, text_chunk_index=chunk.index)


def unsaid_part(text: str, said: float) -> str:
    """Return ``text`` without the share of it that was ``said``, an estimate: from the next clause on, or else from the next
    word, so that hardly a word is heard twice. All of it where the first word was not said, or not half of the only one.
    """
    words = without_pronunciations(text)  # a pronunciation that was cut through would be said sign by sign
    about = round(said * len(words))
    first = _FIRST_WORD_ENDS.search(words)
    if about < max(1, len(words) / 2 if first is None else first.start()):
        return text
    for boundary in _BOUNDARIES:
        for found in boundary.finditer(words, about):
            if has_speech(rest := words[found.end() :]):
                return rest
    return words[about:] if _WITHOUT_BLANKS.match(words, about) else ""


def _reason(chunk: SpeechChunk) -> str:
    if chunk.after_loss:
        return "worker_lost"
    return "no_worker" if chunk.gave_up_after is None else "runaway"


def _has_sound(chunk: SpeechChunk) -> bool:
    """Whether any sample is not zero."""
    return bool(chunk.data.strip(b"\0"))
