"""``cc-tts text`` shows how a text would be spoken, chunk by chunk, without speaking it.

A text takes the way of any prompt up to the engine, and a growing one is cut into segments as ``…/stream`` cuts it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from cc_tts.clock import MonotonicClock
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import NothingToSay
from cc_tts.speech.chunks import ReadyChunks, SpokenPrompt
from cc_tts.speech.incremental.text import IncrementalText, Segment, segmenting_of
from cc_tts.speech.prompt import Content, IncrementalContent, TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer

_RATE_HZ: Final = 8000


class ReadChunk(msgspec.Struct, frozen=True):
    """One text chunk: the caller's own words, what is said, in which language and by which voice."""

    source: str
    spoken: str
    language: str
    voice: str


class ReadingSource(SpeechSource):
    """Records what its engine would be given; the engine need not be able to speak."""

    def __init__(self, engine: WorkerEngine, config: TtsConfig) -> None:
        super().__init__(engine, Normalizer(), config)
        self._read: list[ReadChunk] = []

    async def chunks(self, content: Content) -> list[ReadChunk]:
        """Return all chunks of a content, in order; raises as :meth:`check`, and ``NothingToSay``."""
        self.check(content)
        async for _ in self.open(content, rate_hz=_RATE_HZ):
            pass
        if not self._read:
            raise NothingToSay("nothing of the text can be spoken")
        read, self._read = self._read, []
        return read

    async def chunks_of_tokens(self, words: TextContent, tokens: Iterator[str]) -> list[ReadChunk]:
        """Yield the chunks of a text that arrives in tokens."""
        return await self.chunks(IncrementalContent(words, _Tokens(tokens, self._config)))

    def _speak(
        self,
        prompt: SpokenPrompt,
        _call_id: str,
        _utterance_id: str,
        *,
        must_speak: bool = False,  # noqa: ARG002 - nothing is spoken
    ) -> ChunkStream:
        return ReadyChunks(self._taken_down(prompt))

    def _taken_down(self, prompt: SpokenPrompt) -> Iterator[SpeechChunk]:
        has_spoken = False
        for chunks, _ in self._chunker(prompt).slices():
            for chunk in chunks:
                has_spoken = True
                self._read.append(ReadChunk(chunk.source, chunk.spoken, chunk.language, prompt.voice))
                yield SpeechChunk(b"", chunk.source)
        if not has_spoken:
            raise NothingToSay("nothing of the text can be spoken")


class _Tokens(IncrementalText):
    """A text whose next token arrives when its reader waits for it."""

    def __init__(self, tokens: Iterator[str], config: TtsConfig) -> None:
        super().__init__(MonotonicClock(), segmenting=segmenting_of(config), idle_timeout_s=0.0)
        self._tokens = tokens

    async def next(self) -> Segment | None:
        while not self.has_ended and (segment := self.take()) is None:
            if (token := next(self._tokens, None)) is None:
                self.end()
            else:
                self.append(token)
        return segment if not self.has_ended else await super().next()
