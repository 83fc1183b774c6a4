"""The stages of the speech path hand these to each other: a prompt as it is spoken, and its audio in chunks."""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from cc_tts.audio import AudioFormat
from cc_tts.text.chunker import Chunking, Pace
from cc_tts.text.pronunciation.replacements import Replacement

OVERLOAD_POLL_S: Final = 0.05  # unmeasured
"""How often an engine that takes nothing is asked again."""
CHUNK_MS: Final = 200  # unmeasured
"""Longest chunk handed on at once: what one message to the UA process carries."""


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """Line-rate PCM; the caller's words if a new text chunk begins with it; the words that begin in it (as in
    :class:`cc_tts.calls.prompts.utterance.SpokenSpan`); whether it comes from the cache.
    """

    data: bytes
    begins_source: str | None = None
    words: tuple[tuple[float, float], ...] = ()
    cached: bool = False
    marks: tuple[tuple[float, str], ...] = ()
    """SSML's, in the words that begin here: which share of them lies before, 0 to 1, and the name."""
    awaits_text: bool = False
    """Nothing follows until more of the text comes, which is nobody's delay."""
    is_resumed: bool = False
    """See :class:`cc_tts.audio.PcmChunk`, also for the next one."""
    after_loss: bool = False
    refused_because: str = ""
    """Why the words that would begin here are not spoken: no voice speaks their language."""
    paces: tuple[Pace, ...] = ()
    """The pace of ``begins_source``, for engines that do not time words."""


def behind(unspoken: str, chunk: SpeechChunk) -> SpeechChunk:
    """The chunk with text before its words that is not spoken."""
    paces = ((len(unspoken), 0.0, True), *chunk.paces) if chunk.paces else ()
    return replace(chunk, begins_source=unspoken + (chunk.begins_source or ""), paces=paces)


def marks_alone(names: Iterable[str]) -> SpeechChunk:
    """Marks where nothing is said."""
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
    return ReadyChunks(SpeechChunk(data) for data in cut(pcm, AudioFormat(rate_hz)))


def cut(data: bytes, audio_format: AudioFormat) -> list[bytes]:
    """PCM in chunks of at most :data:`CHUNK_MS`."""
    size = audio_format.bytes_for_ms(CHUNK_MS)
    return [data[start : start + size] for start in range(0, len(data), size)]
