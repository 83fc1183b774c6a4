"""The server's side of the engine workers: an :class:`Engine` whose speech is made in other processes.

::

    open ─▸ the worker with the most room ─▸ WorkerStream ── PushText · EndText · Taken · CancelStream ──▸ worker
    async for ◂── queue of the stream ◂── StreamAudio · StreamEnded · StreamFailed ◂─────────────────────── worker

A worker that dies fails its streams with a typed error and is started again; calls stay up, and other workers go on.
Runs on: the event loop. Never imports torch.
"""

import asyncio
from collections.abc import Callable, Sequence

from cc_tts.audio import AudioFormat
from cc_tts.clock import Clock
from cc_tts.engines.engine import EngineListener, SynthesisRequest
from cc_tts.engines.worker.link import RETRY_AFTER_S, WorkerLink, WorkerStream
from cc_tts.engines.worker.messages import EngineDescription, WorkerSettings
from cc_tts.errors import EngineFailed, EngineOverloaded, LanguageUnsupported
from cc_tts.voices.catalog import best_for_language, normalised_language, unknown_voice
from cc_tts.voices.voice import Voice


class WorkerEngine:
    """See ``tts.engine.Engine``. One worker a device."""

    def __init__(
        self,
        name: str,
        settings: Sequence[WorkerSettings],
        *,
        clock: Clock,
        default_voice: str = "",
        start_timeout_s: float = 300.0,
        stall_timeout_ms: float = 3000.0,
        on_starting: Callable[[str], None] = lambda _detail: None,
    ) -> None:
        self.name = name
        self._default_voice = default_voice
        self._listener: EngineListener | None = None
        self._next_stream_id = 1
        self._state = "not started"
        names = ["worker"] if len(settings) == 1 else [f"worker-{number}" for number in range(len(settings))]
        self._workers = [
            WorkerLink(
                worker_name,
                each,
                clock=clock,
                start_timeout_s=start_timeout_s,
                stall_timeout_ms=stall_timeout_ms,
                listener=lambda: self._listener,
                on_starting=on_starting,
            )
            for worker_name, each in zip(names, settings, strict=True)
        ]

    @property
    def _description(self) -> EngineDescription | None:
        return next((worker.description for worker in self._workers if worker.description is not None), None)

    def listen(self, listener: EngineListener) -> None:
        """Set the listener; before :meth:`start`."""
        self._listener = listener

    @property
    def pids(self) -> tuple[int | None, ...]:
        """Process ids of the workers, ``None`` for one that is down."""
        return tuple(worker.supervisor.pid for worker in self._workers)

    @property
    def not_ready_because(self) -> str | None:
        """Why a stream could not be opened now; ``None`` when it could."""
        if self._state != "started":
            return f"the engine is {self._state}"
        ready = self._ready
        if not ready:
            reasons = "; ".join(worker.down_reason or worker.supervisor.state for worker in self._workers)
            return f"no engine worker is ready: {reasons}"
        if any(worker.room for worker in ready):
            return None
        refusals = (worker.load.refusal for worker in ready if worker.load is not None)
        return next(filter(None, refusals), "the engine is at its limit")

    def not_ready_for(self, voice_id: str) -> str | None:  # noqa: ARG002 - every worker has every voice
        """The same for any voice."""
        return self.not_ready_because

    @property
    def _ready(self) -> list[WorkerLink]:
        return [worker for worker in self._workers if worker.is_ready]

    async def start(self) -> None:
        """Start the workers; returns when all of them are ready.

        Raises:
            ProcessFailed: a worker does not start; the message says why.

        """
        self._state = "starting"
        try:
            await asyncio.gather(*(worker.start() for worker in self._workers))
        except BaseException:
            await self.stop()
            raise
        self._state = "started"

    async def stop(self) -> None:
        """Cancel every stream and end the workers."""
        self._state = "stopped"
        for worker in self._workers:
            worker.fail_all(EngineFailed("the engine was stopped"))
        await asyncio.gather(*(worker.supervisor.stop() for worker in self._workers))

    def voices(self) -> tuple[Voice, ...]:
        """Every voice; none before the start."""
        return self._description.voices if self._description is not None else ()

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        """Find the voice for a request: an id, else the best one for a BCP 47 tag, else the default.

        Raises:
            UnknownVoice: no voice has this id.
            LanguageUnsupported: no voice was asked for and none speaks the language.
            EngineFailed: the engine was never started.
        """
        voices = self.voices()
        if not voices:
            raise EngineFailed(f"the neural engine is not ready: {self.not_ready_because}", retry_after_s=RETRY_AFTER_S)
        by_id = {each.id: each for each in voices}
        wanted = voice if voice is not None else self._default_voice if language is None else None
        if wanted:
            if wanted not in by_id:
                raise unknown_voice(wanted, voices)
            return by_id[wanted]
        default = by_id.get(self._default_voice, voices[0])
        return default if language is None else self._for_language(language, voices, default)

    def _for_language(self, language: str, voices: Sequence[Voice], default: Voice) -> Voice:
        """The best voice for a language, or the default where every voice speaks it."""
        found = best_for_language(language, voices, default=default)
        if found is not None:
            return found
        common = self._description.languages if self._description is not None else ()
        if normalised_language(language).partition("-")[0] in map(normalised_language, common):
            return default
        raise LanguageUnsupported(f"no voice speaks {language!r}")

    def open(self, request: SynthesisRequest) -> WorkerStream:
        """Begin one utterance, in the worker with the most room.

        Raises:
            UnknownVoice: no voice has this id.
            EngineOverloaded: admission refuses it.
            EngineFailed: no worker is ready.
        """
        voice = self.resolve_voice(request.voice, None)
        ready = self._ready
        if not ready:
            raise EngineFailed(str(self.not_ready_because), retry_after_s=RETRY_AFTER_S)
        worker = max(ready, key=lambda each: (each.room, -each.num_streams))
        if not worker.room:
            if self._listener is not None:
                self._listener.on_refusal("server")
            retry_after_s = worker.load.retry_after_s if worker.load is not None else RETRY_AFTER_S
            raise EngineOverloaded(str(self.not_ready_because), retry_after_s=retry_after_s)
        stream_id = self._next_stream_id
        self._next_stream_id += 1
        return worker.open(stream_id, request, AudioFormat(voice.rate_hz))
