"""The server's side of the engine workers: an :class:`Engine` whose speech is made in other processes.

::

    open ─▸ the worker with the most room ─▸ WorkerStream ── PushText · EndText · Taken · CancelStream ──▸ worker
    async for ◂── queue of the stream ◂── StreamAudio · StreamEnded · StreamFailed ◂─────────────────────── worker

A worker that dies fails its streams with a typed error and is started again; calls stay up, and other workers go on.
Runs on: the event loop. Never imports torch.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence

from cc_tts.clock import Clock
from cc_tts.engines.worker.link import RETRY_AFTER_S, WorkerLink, WorkerStream
from cc_tts.engines.worker.messages import EngineDescription, WorkerSettings
from cc_tts.errors import EngineFailed, EngineOverloaded, LanguageUnsupported
from cc_tts.metrics import Metrics
from cc_tts.voices.catalog import best_for_language, normalised_language, unknown_voice
from cc_tts.voices.voice import Voice


class WorkerEngine:
    """See :class:`cc_tts.engines.engine.Engine`. One worker a device; their settings differ in the device only."""

    def __init__(
        self,
        settings: Sequence[WorkerSettings],
        *,
        clock: Clock,
        metrics: Metrics,
        stall_timeout_ms: float,
        on_starting: Callable[[str], None] = lambda _detail: None,
    ) -> None:
        self.name = settings[0].tts.engine
        self._default_voice = settings[0].tts.voice
        self._metrics = metrics
        self._stream_ids = itertools.count(1)
        self._state = "not started"
        names = ["worker"] if len(settings) == 1 else [f"worker-{number}" for number in range(len(settings))]
        self._workers = [
            WorkerLink(
                worker_name,
                each,
                clock=clock,
                metrics=metrics,
                stall_timeout_ms=stall_timeout_ms,
                on_starting=on_starting,
            )
            for worker_name, each in zip(names, settings, strict=True)
        ]

    @property
    def _description(self) -> EngineDescription | None:
        return next((worker.description for worker in self._workers if worker.description is not None), None)

    def not_ready_because(self, voice: str | None = None) -> str | None:  # noqa: ARG002 - every worker has every voice
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

    @property
    def _ready(self) -> list[WorkerLink]:
        return [worker for worker in self._workers if worker.is_ready]

    async def start(self) -> None:
        """Start the workers; returns when all of them are ready, or ends them if one does not start."""
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
        """Find the voice for a request: an id, else the best one for a BCP 47 tag, else the default; see the contract."""
        voices = self.voices()
        if not voices:
            raise EngineFailed(
                f"the neural engine is not ready: {self.not_ready_because()}", retry_after_s=RETRY_AFTER_S
            )
        by_id = {each.id: each for each in voices}
        default = by_id.get(self._default_voice, voices[0])
        if not voice and language is not None:
            return self._speaker_of(language, default)
        wanted = voice or self._default_voice or default.id
        if wanted not in by_id:
            raise unknown_voice(wanted, voices)
        return by_id[wanted]

    def _speaker_of(self, language: str, default: Voice) -> Voice:
        if (found := best_for_language(language, self.voices(), default=default)) is not None:
            return found
        common = self._description.languages if self._description is not None else ()
        if normalised_language(language).partition("-")[0] in map(normalised_language, common):
            return default
        raise LanguageUnsupported(f"no voice speaks {language!r}")

    def open(self, voice: str, speed: float = 1.0) -> WorkerStream:
        """Begin one utterance, in the worker with the most room; see the contract."""
        found = self.resolve_voice(voice, None)
        ready = self._ready
        if not ready:
            raise EngineFailed(str(self.not_ready_because()), retry_after_s=RETRY_AFTER_S)
        worker = max(ready, key=lambda each: (each.room, -len(each.streams)))
        if not worker.room:
            self._metrics.engine_refusals.labels(where="server").inc()
            retry_after_s = worker.load.retry_after_s if worker.load is not None else RETRY_AFTER_S
            raise EngineOverloaded(str(self.not_ready_because()), retry_after_s=retry_after_s)
        return worker.open(next(self._stream_ids), found, speed)
