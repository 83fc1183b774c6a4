"""The types that the stages of the speech path pass to each other: a prompt to be spoken, and its audio in chunks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from cc_tts.audio import AudioFormat
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.text.chunker import Chunking
from cc_tts.text.pronunciation.replacements import Replacement

CHUNK_MS: Final = 200  # unmeasured
"""The longest chunk that is passed on at once: what one message to the UA process carries."""


def marks_alone(names: Iterable[str]) -> SpeechChunk:
    return SpeechChunk(b"", "", marks=tuple((0.0, name) for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenPrompt:
    """Everything that determines the sound of a text prompt on the line, except the engine's identity. ``voice_rate_hz`` is
    the engine's rate, ``rate_hz`` the line's.
    """

    text: str
    engine: str
    voice: str
    chunking: Chunking
    speed: float
    voice_rate_hz: int
    rate_hz: int
    gain_db: float = 0.0
    """The gain from the voice's level to the line's, plus the gain of the prompt."""
    replacements: tuple[Replacement, ...] = ()
    instructions: str = ""


Synthesise = Callable[[], ChunkStream]
"""Opens a stream of the engine; raises as :meth:`cc_tts.speech.source.SpeechSource.open`."""


class ReadyChunks:
    """Audio that nothing synthesises: a tone, silence, a cached prompt, or a file, which may still have to be fetched. Each
    chunk is returned once.
    """

    def __init__(self, chunks: Iterable[SpeechChunk] | AsyncIterator[SpeechChunk]) -> None:
        self._chunks = chunks if isinstance(chunks, AsyncIterator) else _one_by_one(chunks)
        self._is_cancelled = False

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Nothing to do: nothing is synthesised."""

    async def cancel(self) -> None:
        """Return no more chunks."""
        self._is_cancelled = True

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        async for chunk in self._chunks:
            if self._is_cancelled:
                return
            yield chunk


async def _one_by_one(chunks: Iterable[SpeechChunk]) -> AsyncIterator[SpeechChunk]:
    for chunk in chunks:
        yield chunk


def fixed(pcm: bytes, rate_hz: int) -> ReadyChunks:
    """Return PCM without words as a stream."""
    return ReadyChunks(in_pieces(SpeechChunk(), pcm, AudioFormat(rate_hz)))


def now_ms() -> float:
    """Return the present instant by the clock of listeners."""
    return asyncio.get_running_loop().time() * 1000


def in_pieces(chunk: SpeechChunk, pcm: bytes, audio_format: AudioFormat) -> list[SpeechChunk]:
    """Return the chunk in pieces of at most :data:`CHUNK_MS`; its metadata comes with the first. Nothing if there is no
    audio.
    """
    size = audio_format.bytes_for_ms(CHUNK_MS)
    rest = [SpeechChunk(pcm[at : at + size], is_resumed=chunk.is_resumed) for at in range(size, len(pcm), size)]
    chunk.data = pcm[:size]
    return [chunk, *rest] if pcm else []
