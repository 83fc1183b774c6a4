"""The contract every speech engine keeps: ``open`` a stream, ``push`` text chunks, ``end``, iterate over PCM, ``cancel``.

Runs on: the event loop. An engine may use threads or processes of its own behind it.
"""

from collections.abc import AsyncIterator
from typing import Final, Protocol

from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.voices.voice import Voice

MIN_SPEED: Final = 0.5  # unmeasured
MAX_SPEED: Final = 2.0
"""Factors on a voice's natural rate (unmeasured)."""


class SpeechStream(Protocol):
    """One utterance inside an engine.

    Text goes in by :meth:`push` and :meth:`end`; audio comes out by ``async for``, in order, ending after the last chunk
    was pushed, :meth:`end` was called and everything was synthesised. Failure raises ``EngineFailed`` from the iteration.
    The engine works ahead of the reader by a bounded amount of audio only.
    """

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk. Never blocks; the caller bounds how many it pushes ahead."""

    def end(self) -> None:
        """No more text will come."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """The listener's side holds so much of the audio that is not played yet, ms: the clock an engine works by."""

    def __aiter__(self) -> AsyncIterator[SpeechChunk]: ...

    async def cancel(self) -> None:
        """Stop now: frees everything the stream holds. The iteration ends. Safe to call twice and after the end."""


class Engine(Protocol):
    name: str

    @property
    def identity(self) -> str:
        """The workers on other machines speak with what this names; empty without such workers. Another sounds different."""

    async def start(self) -> None:
        """Load and warm up; returns when the first stream could be opened."""

    async def stop(self) -> None:
        """Cancel every stream and free the engine."""

    async def refresh_voices(self) -> None:
        """Look for voices that came or went since the start, on this machine. Streams go on."""

    def not_ready_because(self, voice: str | None = None) -> str | None:
        """Why a stream, of this voice if one is named, could not be opened now; ``None`` when it could."""

    def is_full(self, voice: str | None = None) -> bool:
        """Whether it takes no stream, of this voice if one is named, only because of those that it has: it soon will."""

    @property
    def degraded_because(self) -> str | None:
        """Why a plain voice speaks now in place of the ones that were asked for; ``None`` when it does not."""

    def utilisation(self, voice: str) -> float:
        """How much is promised of what can be promised to utterances of this voice, 0 to 1; 0 where nothing is measured."""

    def voices(self) -> tuple[Voice, ...]:
        """Every voice this engine can speak with."""

    @property
    def voice_faults(self) -> tuple[str, ...]:
        """Files that should be voices and cannot be used, and why."""

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        """The voice to use for a request. Raises ``UnknownVoice`` if no voice has this id, ``LanguageUnsupported`` if none
        was asked for and none speaks the language, ``EngineFailed`` if the engine was never started.
        """

    def open_stand_in(self, voice: str, speed: float = 1.0) -> SpeechStream | None:
        """Begin an utterance that ``voice`` gave no audio for with a voice of its language in another engine; ``None`` if
        there is none.
        """

    def open(
        self, voice: str, speed: float = 1.0, *, instructions: str = "", call_id: str = "", must_speak: bool = False
    ) -> SpeechStream:
        """Begin one utterance; ``speed`` is a factor on the natural rate, 0.5 to 2.0. ``instructions`` tell in words how to
        speak; voices that take none ignore them. ``call_id``: of the call that hears it, whose utterances prefer workers of
        the same generation. ``must_speak``: it has waited as long as it may, and a plain voice is better than none. Raises
        ``UnknownVoice``, ``EngineOverloaded`` when admission refuses the stream, ``EngineFailed`` if the engine is not
        running.
        """
