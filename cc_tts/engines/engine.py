"""The contract every speech engine keeps: ``open`` a stream, ``push`` text chunks, ``end``, iterate over PCM, ``cancel``.

Runs on: the event loop. An engine may use threads or processes of its own behind it.
"""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.voices.voice import Voice

MIN_SPEED: Final = 0.5  # unmeasured
MAX_SPEED: Final = 2.0
"""The bounds of the factor on a voice's natural rate (unmeasured)."""


class SpeechStream(Protocol):
    """One utterance inside an engine.

    Text goes in by :meth:`push` and :meth:`end`; audio comes out by ``async for``, in order, ending after the last chunk
    was pushed, :meth:`end` was called and everything was synthesised. Failure raises ``EngineFailed`` from the iteration.
    The engine works ahead of the reader by a bounded amount of audio only.
    """

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk. Never blocks; the caller limits how many it pushes ahead."""

    def end(self) -> None:
        """Tell the stream that no more text will come."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Report how much audio the listener has not played yet, ms. The engine sets its deadlines by this."""

    def __aiter__(self) -> AsyncIterator[SpeechChunk]: ...

    async def cancel(self) -> None:
        """Stop now and free everything that the stream holds. The iteration ends. Safe to call twice and after the end."""


class Engine(Protocol):
    name: str

    @property
    def identity(self) -> str:
        """Identifies what the workers on other machines speak with; empty without such workers. Another identity sounds
        different.
        """

    async def start(self) -> None:
        """Load and warm up; returns when the first stream could be opened."""

    async def stop(self) -> None:
        """Cancel every stream and free the engine."""

    async def refresh_voices(self) -> None:
        """Look for voices on this machine that were added or removed since the start. Running streams continue."""

    def not_ready_because(self, voice: str | None = None) -> str | None:
        """Return why a stream could not be opened now, for this voice if one is named; ``None`` if it could."""

    def is_full(self, voice: str | None = None) -> bool:
        """Whether streams are refused, for this voice if one is named, only because too many are open. This soon passes."""

    @property
    def degraded_because(self) -> str | None:
        """Why the fallback engine speaks in place of the requested voices; ``None`` if it does not."""

    def utilisation(self, voice: str) -> float:
        """Return the share of the capacity for this voice that is in use, 0 to 1; 0 where nothing is measured."""

    def voices(self) -> tuple[Voice, ...]:
        """Every voice this engine can speak with."""

    @property
    def voice_faults(self) -> tuple[str, ...]:
        """The voice files that cannot be used, and why."""

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        """Return the voice for a request. Raises ``UnknownVoice`` if no voice has this id, ``LanguageUnsupported`` if no id
        is given and no voice speaks the language, ``EngineFailed`` if the engine was never started.
        """

    def open_stand_in(self, voice: str, speed: float = 1.0) -> SpeechStream | None:
        """Open an utterance for which ``voice`` has given no audio with a voice of the same language in another engine;
        ``None`` if there is none.
        """

    def open(
        self, voice: str, speed: float = 1.0, *, instructions: str = "", call_id: str = "", must_speak: bool = False
    ) -> SpeechStream:
        """Open one utterance. ``speed`` is a factor on the natural rate, 0.5 to 2.0. ``instructions`` tell in words how to
        speak; voices that take none ignore them. ``call_id``: the utterances of one call prefer workers of the same
        generation. ``must_speak``: it has waited as long as allowed, so a plain voice is better than none. Raises
        ``UnknownVoice``, ``EngineOverloaded`` when the stream is refused, ``EngineFailed`` if the engine is not running.
        """
