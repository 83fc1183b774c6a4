"""The stages of the speech path hand these to each other: a prompt as it is spoken, and its audio in chunks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from cc_tts.audio import AudioFormat
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.text.chunker import Chunking
from cc_tts.text.pronunciation.replacements import Replacement

OVERLOAD_POLL_S: Final = 0.05  # unmeasured
"""How often an engine that takes nothing is asked again."""
CHUNK_MS: Final = 200  # unmeasured
"""Longest chunk handed on at once: what one message to the UA process carries."""


def marks_alone(names: Iterable[str]) -> SpeechChunk:
    return SpeechChunk(b"", "", marks=tuple((0.0, name) for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenPrompt:
    """All that decides what a prompt of text sounds like on the line, the engine's identity aside. ``voice_rate_hz`` is the
    engine's, ``rate_hz`` the line's.
    """

    text: str
    engine: str
    voice: str
    chunking: Chunking
    speed: float
    voice_rate_hz: int
    rate_hz: int
    gain_db: float = 0.0
    """The gain from the voice's level to that of the line, and what the prompt asks for."""
    replacements: tuple[Replacement, ...] = ()
    instructions: str = ""


class ChunkStream(Protocol):
    """Line-rate audio of one prompt, as it is synthesised."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """The line holds so much of the audio that is not played yet, ms."""
        ...

    def __aiter__(self) -> AsyncIterator[SpeechChunk]: ...

    async def cancel(self) -> None:
        """Stop and free everything. Safe to call twice and after the end."""
        ...


Synthesise = Callable[[], ChunkStream]
"""Opens a stream of the engine; raises what :meth:`cc_tts.speech.source.SpeechSource.open` does."""


class ReadyChunks:
    """Audio that is there as a whole: a tone, silence, a cached prompt. Each chunk is given out once."""

    def __init__(self, chunks: Iterable[SpeechChunk]) -> None:
        self._chunks = iter(chunks)

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Nothing to do: nothing is synthesised."""

    async def cancel(self) -> None:
        """Give out no more."""
        self._chunks = iter(())

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        while (chunk := next(self._chunks, None)) is not None:
            yield chunk


def fixed(pcm: bytes, rate_hz: int) -> ReadyChunks:
    """PCM without words as a stream."""
    return ReadyChunks(in_pieces(SpeechChunk(), pcm, AudioFormat(rate_hz)))


def now_ms() -> float:
    """Return the instant as the clocks of listeners have it."""
    return asyncio.get_running_loop().time() * 1000


def in_pieces(chunk: SpeechChunk, pcm: bytes, audio_format: AudioFormat) -> list[SpeechChunk]:
    """The chunk with this audio, in pieces of at most :data:`CHUNK_MS`; what it says besides comes with the first. None if
    there is no audio.
    """
    size = audio_format.bytes_for_ms(CHUNK_MS)
    rest = [SpeechChunk(pcm[at : at + size], is_resumed=chunk.is_resumed) for at in range(size, len(pcm), size)]
    chunk.data = pcm[:size]
    return [chunk, *rest] if pcm else []
