"""Between the prompts of calls and the engine: what is kept is played, what is being made is shared, the rest is made.

::

    open ─▸ kept in memory ────────────────────────────────▸ _KeptStream
         └▸ being made ─────────▸ Recording ──┐
         └▸ kept on disk ▸ load ▸ Recording ──┼──────────▸ _Listener
         └▸ missed ▸ engine ────▸ Recording ──┘ whole: PromptCache.keep
         └▸ too much is being made ▸ engine ──────────────▸ its own stream

Runs on: the event loop.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.errors import ClientError
from cc_tts.metrics import Metrics
from cc_tts.speech.cached_prompt import KeptPrompt, PromptMark
from cc_tts.speech.prompt_cache import PromptCache
from cc_tts.speech.prompt_key import EngineIdentity, prompt_key
from cc_tts.speech.shared_synthesis import PieceMaker, Recording
from cc_tts.speech.source import PIECE_MS, PieceStream, SpeechPiece, SpokenPrompt

MAX_UNATTENDED: Final = 2
"""Prompts whose listeners have all gone and that are finished for the cache, at once."""

log = logs.get(__name__)


class CachedSource:
    """See :class:`cc_tts.speech.source.PieceCache`. ``max_making_bytes`` bounds what is held of prompts being made."""

    def __init__(self, cache: PromptCache, metrics: Metrics, *, max_making_bytes: int) -> None:
        self._cache = cache
        self._metrics = metrics
        self._max_making_bytes = max_making_bytes
        self._making: dict[str, Recording] = {}
        self._recordings: set[Recording] = set()
        self._texts: dict[Recording, str] = {}
        self.making_bytes = 0
        """Held of prompts that are being made, or are whole and still being read."""
        self.identity: EngineIdentity | None = None
        """Until it is set, the engine makes everything and nothing is kept."""

    async def stop(self) -> None:
        """Cancel what nobody listens to."""
        unattended = [recording for recording in self._recordings if recording.is_unattended]
        await asyncio.gather(*(recording.cancel() for recording in unattended))

    def has(self, prompt: SpokenPrompt) -> bool:
        """Whether the engine is not needed for it."""
        if self.identity is None:
            return False
        key = prompt_key(prompt, self.identity)
        return key in self._making or self._cache.has(key)

    def open(self, prompt: SpokenPrompt, make: PieceMaker, *, is_again: bool = False) -> PieceStream:
        """Begin to read a prompt, for the first time or once more because the engine refused it: that is one use of it.

        Raises:
            Exception: what ``make`` raises, if the engine is needed.
        """
        if self.identity is None:
            return make()
        key = prompt_key(prompt, self.identity)
        kept = self._cache.in_memory(key)
        if kept is not None and fits(kept, prompt):
            self._count(key, "memory", is_again=is_again)
            return _KeptStream(kept, prompt.text)
        if self.making_bytes >= self._max_making_bytes and key not in self._making:
            stream = make()
            self._count(key, "bypassed", is_again=is_again)
            return stream
        recording, joined = self.record(key, prompt, make)
        result = "joined" if joined else "disk" if self._cache.is_on_disk(key) else "missed"
        self._count(key, result, is_again=is_again)
        return _Listener(self, recording, prompt, make, joined=joined)

    def record(self, key: str, prompt: SpokenPrompt, make: PieceMaker) -> tuple[Recording, bool]:
        """The recording that is being made, or a new one; and whether it was there."""
        recording = self._making.get(key)
        if recording is not None:
            return recording, True
        stream = _FromDisk(self._cache, key, prompt, make) if self._cache.is_on_disk(key) else make()
        recording = Recording(stream, self, key=key, rate_hz=prompt.rate_hz)
        self._making[key] = recording
        self._recordings.add(recording)
        self._texts[recording] = prompt.text
        self._measure()
        return recording, False

    # --- what recordings tell --------------------------------------------------------------------------------------------

    def holds(self, num_bytes: int) -> None:
        """Count it."""
        self.making_bytes += num_bytes
        self._measure()

    def grown(self, recording: Recording) -> None:
        """Stop sharing what has become too long to keep, and what there is no room to hold."""
        duration_ms = AudioFormat(recording.rate_hz).ms_for_bytes(recording.made_bytes)
        if recording.is_shared and (
            duration_ms > self._cache.max_prompt_ms or self.making_bytes > self._max_making_bytes
        ):
            self._unshare(recording)

    def may_finish_unattended(self, recording: Recording) -> bool:
        """A prompt that is interrupted each time would otherwise never be kept."""
        num_unattended = sum(each.is_unattended for each in self._recordings if each is not recording)
        return (
            recording.is_shared
            and recording.made_bytes > 0
            and num_unattended < MAX_UNATTENDED
            and self._cache.is_wanted(recording.key)
        )

    def ended(self, recording: Recording) -> None:
        """Keep it if it is whole."""
        text = self._texts.pop(recording)
        if recording.is_whole and recording.is_shared and not any(piece.cached for piece in recording.pieces):
            kept = as_kept(recording.pieces, text, recording.rate_hz) if self._cache.is_wanted(recording.key) else None
            if kept is not None:
                self._cache.keep(recording.key, kept)
        self._recordings.discard(recording)
        self._unshare(recording)
        self._measure()

    def _unshare(self, recording: Recording) -> None:
        if self._making.get(recording.key) is recording:
            del self._making[recording.key]
        recording.stop_sharing()

    def _count(self, key: str, result: str, *, is_again: bool) -> None:
        if is_again:
            return
        self._cache.count_use(key)
        self._metrics.prompt_cache_requests.labels(result=result).inc()

    def _measure(self) -> None:
        self._metrics.prompt_cache_bytes.labels(where="making").set(self.making_bytes)
        self._metrics.prompt_cache_prompts.labels(where="making").set(len(self._recordings))


class _Listener:
    """Reads a recording from its beginning."""

    def __init__(
        self, source: CachedSource, recording: Recording, prompt: SpokenPrompt, make: PieceMaker, *, joined: bool
    ) -> None:
        self._source = source
        self._recording = recording
        self._prompt = prompt
        self._make = make
        self._is_cancelled = False
        self.joined = joined
        self.position = 0
        self.read_bytes = 0
        recording.join(self)

    def playing(self, ahead_ms: float) -> None:
        if not self._recording.is_over:
            self._recording.playing(self, ahead_ms)

    async def cancel(self) -> None:
        self._is_cancelled = True
        await self._recording.leave(self)

    async def __aiter__(self) -> AsyncIterator[SpeechPiece]:
        while not self._is_cancelled:
            try:
                piece = await self._recording.read(self)
            except Exception as error:
                if not self.joined or self.position or isinstance(error, ClientError):
                    raise
                await self._begin_again(error)
                continue
            if piece is None:
                break
            yield piece
        await self._recording.leave(self)

    async def _begin_again(self, error: Exception) -> None:
        """Another's synthesis failed before this one heard of it: once, make it anew, with the others in the same place."""
        log.info("prompt_taken_over", reason=type(error).__name__)
        await self._recording.leave(self)
        if self._is_cancelled:
            return
        self.joined = False
        self._recording, _ = self._source.record(self._recording.key, self._prompt, self._make)
        self._recording.join(self)


class _KeptStream:
    """Audio that is there as a whole."""

    def __init__(self, kept: KeptPrompt, text: str) -> None:
        self._pieces: Iterator[SpeechPiece] = pieces_of(kept, text)

    def playing(self, ahead_ms: float) -> None:
        """Nothing to do: all of it is there."""

    async def cancel(self) -> None:
        self._pieces = iter(())

    async def __aiter__(self) -> AsyncIterator[SpeechPiece]:
        while (piece := next(self._pieces, None)) is not None:
            yield piece


class _FromDisk:
    """Audio that is read from disk first; made after all if the file is gone or damaged."""

    def __init__(self, cache: PromptCache, key: str, prompt: SpokenPrompt, make: PieceMaker) -> None:
        self._cache = cache
        self._key = key
        self._prompt = prompt
        self._make = make
        self._made: PieceStream | None = None
        self._is_cancelled = False

    def playing(self, ahead_ms: float) -> None:
        if self._made is not None:
            self._made.playing(ahead_ms)

    async def cancel(self) -> None:
        self._is_cancelled = True
        if self._made is not None:
            await self._made.cancel()

    async def __aiter__(self) -> AsyncIterator[SpeechPiece]:
        kept = await self._cache.load(self._key)
        if self._is_cancelled:
            return
        if kept is not None and fits(kept, self._prompt):
            for piece in pieces_of(kept, self._prompt.text):
                yield piece
            return
        self._made = self._make()
        async for piece in self._made:
            yield piece


def fits(kept: KeptPrompt, prompt: SpokenPrompt) -> bool:
    """Whether what was kept can be of this prompt; after a change of the format that forgot its number it may not."""
    return kept.rate_hz == prompt.rate_hz and kept.num_chars <= len(prompt.text)


def as_kept(pieces: Sequence[SpeechPiece], text: str, rate_hz: int) -> KeptPrompt | None:
    """Join pieces to what is kept; ``None`` if their words are not the beginning of ``text``, one after the other."""
    marks = []
    num_bytes = num_chars = 0
    for piece in pieces:
        source = piece.begins_source
        if source is not None:
            if text[num_chars : num_chars + len(source)] != source:
                return None
            num_chars += len(source)
        if source is not None or piece.words:
            marks.append(PromptMark(num_bytes, None if source is None else len(source), piece.words))
        num_bytes += len(piece.data)
    return KeptPrompt(rate_hz, b"".join(piece.data for piece in pieces), tuple(marks))


def pieces_of(kept: KeptPrompt, text: str) -> Iterator[SpeechPiece]:
    """Cut what was kept into pieces again; the words come out of ``text``."""
    size = AudioFormat(kept.rate_hz).bytes_for_ms(PIECE_MS)
    marks = kept.marks if kept.marks and kept.marks[0].at_bytes == 0 else (PromptMark(0, None), *kept.marks)
    num_chars = 0
    for mark, end in pairwise([*marks, PromptMark(len(kept.pcm), None)]):
        source = None
        if mark.source_chars is not None:
            source = text[num_chars : num_chars + mark.source_chars]
            num_chars += mark.source_chars
        words = mark.words
        for start in range(mark.at_bytes, end.at_bytes, size):
            yield SpeechPiece(kept.pcm[start : min(start + size, end.at_bytes)], source, words, cached=True)
            source, words = None, ()
