"""The contract of a stream of speech: ``push`` text chunks, ``end``, iterate over PCM, ``cancel``.

Runs on: the event loop.
"""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from cc_tts.engines.speech_chunk import SpeechChunk

MIN_SPEED: Final = 0.5  # unmeasured
MAX_SPEED: Final = 2.0
"""The bounds of the factor on a voice's natural rate (unmeasured)."""


class ChunkStream(Protocol):
    """Audio that is read while it is made."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Report how much audio the listener has not played yet, ms. An engine sets its deadlines by this."""

    def __aiter__(self) -> AsyncIterator[SpeechChunk]: ...

    async def cancel(self) -> None:
        """Stop now and free everything that the stream holds. The iteration ends. Safe to call twice and after the end."""


class SpeechStream(ChunkStream, Protocol):
    """One utterance inside an engine.

    Text goes in by :meth:`push` and :meth:`end`; audio comes out by ``async for``, in order, ending after the last chunk
    was pushed, :meth:`end` was called and everything was synthesised. Failure raises ``EngineFailed`` from the iteration.
    The engine works ahead of the reader by a bounded amount of audio only.
    """

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk. Never blocks; the caller limits how many it pushes ahead."""

    def end(self) -> None:
        """Tell the stream that no more text will come."""
