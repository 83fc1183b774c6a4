"""``tts.engine = "auto"``: several engines as one. The voice of an utterance decides which of them speaks it.

A language is spoken by the first engine that has a voice for it: English by a neural voice and Chinese by espeak-ng, on one
call. Runs on: the event loop.
"""

import asyncio
import contextlib
from collections.abc import Sequence

from cc_tts.engines.engine import Engine, SpeechStream
from cc_tts.errors import LanguageUnsupported, UnknownVoice
from cc_tts.voices.catalog import unknown_language, unknown_voice
from cc_tts.voices.voice import Voice


class AutoEngine:
    """See :class:`cc_tts.engines.engine.Engine`. ``engines``: the preferred one first."""

    name = "auto"

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = tuple(engines)

    @property
    def identity(self) -> str:
        """See the contract."""
        return " ".join(filter(None, (engine.identity for engine in self._engines)))

    async def start(self) -> None:
        """Start all of them; if one does not start, none is left running."""
        try:
            await asyncio.gather(*(engine.start() for engine in self._engines))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all of them."""
        await asyncio.gather(*(engine.stop() for engine in self._engines))

    def not_ready_because(self, voice: str | None = None) -> str | None:
        """Why the voice's engine, or the preferred one, takes no stream."""
        return self._engine_of(voice).not_ready_because(voice)

    def is_full(self, voice: str | None = None) -> bool:
        """Of the voice's engine, or the preferred one; see the contract."""
        return self._engine_of(voice).is_full(voice)

    def _engine_of(self, voice: str | None) -> Engine:
        return self._engines[0] if voice is None else self._resolved(voice, None)[0]

    @property
    def degraded_because(self) -> str | None:
        """Of the first engine that is; see the contract."""
        return next(filter(None, (engine.degraded_because for engine in self._engines)), None)

    def utilisation(self, voice: str) -> float:
        """Of the voice's engine; see the contract."""
        return self._resolved(voice, None)[0].utilisation(voice)

    def voices(self) -> tuple[Voice, ...]:
        """Every voice of every engine, in their order."""
        return tuple(voice for engine in self._engines for voice in engine.voices())

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        """Find the voice: of the first engine that has it, or that speaks the language."""
        return self._resolved(voice, language)[1]

    def open(self, voice: str, speed: float = 1.0, *, call_id: str = "", must_speak: bool = False) -> SpeechStream:
        """Begin an utterance in the engine that has its voice; see the contract."""
        return self._resolved(voice, None)[0].open(voice, speed, call_id=call_id, must_speak=must_speak)

    def open_stand_in(self, voice: str, speed: float = 1.0) -> SpeechStream | None:
        """Begin it in the first other engine that has a voice of the language; see the contract."""
        own, found = self._resolved(voice, None)
        for engine in self._engines:
            if engine is not own:
                with contextlib.suppress(LanguageUnsupported):
                    return engine.open(engine.resolve_voice(None, found.language).id, speed)
        return None

    def _resolved(self, voice: str | None, language: str | None) -> tuple[Engine, Voice]:
        for engine in self._engines:
            try:
                return engine, engine.resolve_voice(voice, language)
            except (UnknownVoice, LanguageUnsupported):
                continue
        if voice is not None:
            raise unknown_voice(voice, self.voices())
        raise unknown_language(language or "", self.voices())
