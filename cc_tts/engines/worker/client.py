"""The server's side of the engine workers: an :class:`Engine` whose speech is made in other processes.

::

    open ─▸ the worker that would speak first ─▸ WorkerStream ── PushText · EndText · PlaybackProgress ──▸ worker
    async for ◂── queue of the stream ◂── SpeechChunk · StreamEnded · StreamFailed ◂──────────────────────── worker

A worker that dies is started again; calls stay up, and other workers go on. Its streams are said again by another worker
(:mod:`cc_tts.engines.worker.failover`), or fail with a typed error. Runs on: the event loop. Never imports torch.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Collection, Sequence
from functools import partial

from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine import Engine, SpeechStream
from cc_tts.engines.remote.pick import pick
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.worker.failover import FailoverStream
from cc_tts.engines.worker.link import RETRY_AFTER_S, WorkerLink, WorkerLost
from cc_tts.engines.worker.messages import EngineDescription
from cc_tts.errors import EngineFailed, EngineOverloaded, LanguageUnsupported, UnknownVoice
from cc_tts.metrics import Metrics
from cc_tts.voices.catalog import best_for_language, normalised_language, unknown_language, unknown_voice
from cc_tts.voices.voice import Voice


class WorkerEngine:
    """See :class:`cc_tts.engines.engine.Engine`. ``children`` are workers of this machine, one a device and model.
    ``fallback`` speaks while none of the workers with a voice does. ``beside`` speaks with the voices and the languages that
    the workers do not have; it may be the same engine. Both are started and stopped here.
    """

    def __init__(
        self,
        tts: TtsConfig,
        children: Sequence[WorkerLink],
        *,
        metrics: Metrics,
        elsewhere: RemoteWorkers | None = None,
        fallback: Engine | None = None,
        beside: Engine | None = None,
    ) -> None:
        self.name = tts.engine
        self._default_voice = tts.voice
        self._may_resume = tts.resume_on_worker_loss
        self._metrics = metrics
        self._stream_ids = itertools.count(1)
        self._random = random.Random()  # noqa: S311 - no secret
        self._state = "not started"
        self._children = tuple(children)
        self._elsewhere = elsewhere
        self._fallback = fallback
        self._beside = beside
        self._refreshing = asyncio.Lock()
        self._others = tuple(dict.fromkeys(filter(None, (fallback, beside))))

    @property
    def _workers(self) -> list[WorkerLink]:
        return [*self._children, *(self._elsewhere.links if self._elsewhere is not None else ())]

    @property
    def identity(self) -> str:
        """The identity of what all workers speak with; see the contract."""
        found = {worker.identity for worker in self._workers if worker.identity}
        return " ".join(sorted(found))

    def not_ready_because(self, voice: str | None = None) -> str | None:
        """Why a stream, of this voice if one is named, could not be opened now; ``None`` when it could."""
        if self._state != "started":
            return f"the engine is {self._state}"
        if (beside := self._beside_for(voice)) is not None:
            return beside.not_ready_because(voice)
        ready = self._ready_for(voice)
        if not ready and self._fallback is not None:
            return self._fallback.not_ready_because()
        if not ready:
            return self._lost_because(voice)
        if any(worker.room for worker in ready):
            return None
        refusals = (worker.load.refusal for worker in ready if worker.load is not None)
        return next(filter(None, refusals), "the engine is at its limit")

    def is_full(self, voice: str | None = None) -> bool:
        """Whether there are workers and none of them accepts a stream; see the contract."""
        if (beside := self._beside_for(voice)) is not None:
            return beside.is_full(voice)
        ready = self._ready_for(voice)
        return self._state == "started" and bool(ready) and not any(worker.room for worker in ready)

    def _beside_for(self, voice: str | None) -> Engine | None:
        """Return the other engine, if it has the voice."""
        if self._beside is None or voice is None or self._find(voice) is not None:
            return None
        with contextlib.suppress(UnknownVoice, EngineFailed):
            self._beside.resolve_voice(voice, None)
            return self._beside
        return None

    def _find(self, voice_id: str) -> Voice | None:
        found = (worker.find_voice(voice_id) for worker in self._workers)
        return next(filter(None, found), None)

    @property
    def degraded_because(self) -> str | None:
        """Why the fallback speaks; see the contract."""
        if self._state != "started" or self._fallback is None:
            return None
        ready = self._ready
        lost = (each.description for each in self._workers if each not in ready and each.description is not None)
        voices = (voice for each in lost for voice in each.voices)
        silent = next((voice.id for voice in voices if not any(worker.has_voice(voice) for worker in ready)), None)
        return self._lost_because(silent) if silent is not None or not ready else None

    def _lost_because(self, voice: str | None) -> str:
        """Return why no worker is ready, or none with this voice."""
        what = f"no worker that is ready has the voice {voice}" if self._ready else "no engine worker is ready"
        lost = [worker for worker in self._workers if not worker.is_ready]
        return f"{what}: " + "; ".join(f"{worker.down_reason or worker.process.state}" for worker in lost)

    def utilisation(self, voice: str) -> float:
        """Return the share of open streams among those that the workers with the voice have or would accept. This is not
        ``EngineLoad.utilisation``: a fast device works ahead, and refuses streams long before it is always busy.
        """
        if (beside := self._beside_for(voice)) is not None:
            return beside.utilisation(voice)
        places = [
            (worker.load.num_streams + worker.load.room - worker.room, worker.room)
            for worker in self._ready_for(voice)
            if worker.load is not None
        ]
        used, free = sum(used for used, _ in places), sum(room for _, room in places)
        if not free:
            return 1.0 if places else 0.0
        return used / (used + free)

    @property
    def _ready(self) -> list[WorkerLink]:
        return [worker for worker in self._workers if worker.is_ready]

    def _ready_for(self, voice_id: str | None) -> list[WorkerLink]:
        """Return the ready workers, or those with this voice if one is named."""
        voice = self._find(voice_id) if voice_id is not None else None
        return [worker for worker in self._ready if voice is None or worker.has_voice(voice)]

    async def start(self) -> None:
        """Start the workers and the other engines; returns when all those of this machine are ready, and one at least, or
        ends them if one of these does not start.
        """
        self._state = "starting"
        starting = [worker.start() for worker in self._children]
        if self._elsewhere is not None:
            starting.append(self._elsewhere.start(is_needed=not self._children))
        starting += [other.start() for other in self._others]
        try:
            await asyncio.gather(*starting)
        except BaseException:
            await self.stop()
            raise
        self._state = "started"

    async def refresh_voices(self) -> None:
        """Have the workers of this machine look for voices again; see the contract."""
        async with self._refreshing:
            own = (worker.refresh_voices() for worker in self._children)
            await asyncio.gather(*own, *(other.refresh_voices() for other in self._others))

    async def stop(self) -> None:
        """Cancel every stream and end the workers."""
        self._state = "stopped"
        for worker in self._workers:
            worker.fail_all(EngineFailed("the engine was stopped"))
        stopping = [worker.process.stop() for worker in self._children]
        if self._elsewhere is not None:
            stopping.append(self._elsewhere.stop())
        stopping += [other.stop() for other in self._others]
        await asyncio.gather(*stopping)

    def voices(self) -> tuple[Voice, ...]:
        """Every voice; none before the start."""
        return (*self._own_voices, *(self._beside.voices() if self._beside is not None else ()))

    @property
    def voice_faults(self) -> tuple[str, ...]:
        """Files that should be voices and cannot be used, and why; each once."""
        own = {voice.id: voice for voice in self._own_voices}
        hidden = [
            f"the voice {voice.id} of the model {voice.model} has the name of one of the model {own[voice.id].model}, which "
            "speaks"
            for each in self._descriptions
            for voice in each.voices
            if not voice.is_of_same_model(own[voice.id])
        ]
        return tuple(dict.fromkeys([*(fault for each in self._descriptions for fault in each.faults), *hidden]))

    @property
    def _own_voices(self) -> tuple[Voice, ...]:
        described = self._descriptions
        if len(described) == 1:
            return described[0].voices
        found: dict[str, Voice] = {}
        for voice in (voice for each in described for voice in each.voices):
            found.setdefault(voice.id, voice)
        return tuple(found.values())

    @property
    def _descriptions(self) -> list[EngineDescription]:
        return [worker.description for worker in self._workers if worker.description is not None]

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        """Find the voice for a request: an id, else the best one for a BCP 47 tag, else the default; see the contract."""
        voices = self._own_voices
        if not voices:
            raise EngineFailed(f"the engine is not ready: {self.not_ready_because()}", retry_after_s=RETRY_AFTER_S)
        default = self._find(self._default_voice) or voices[0]
        if not voice and language is not None:
            return self._speaker_of(language, voices, default)
        wanted = voice or self._default_voice or default.id
        if (found := self._find(wanted)) is not None:
            return found
        if self._beside is not None:
            with contextlib.suppress(UnknownVoice):
                return self._beside.resolve_voice(wanted, None)
        raise unknown_voice(wanted, self.voices())

    def _speaker_of(self, language: str, voices: Sequence[Voice], default: Voice) -> Voice:
        """Return the best voice that this machine can keep up with. It is the same for every prompt, whatever the load."""
        live = [voice for voice in voices if voice.is_live]
        if (found := best_for_language(language, live, default=default if default.is_live else None)) is not None:
            return found
        common = [each for description in self._descriptions for each in description.languages]
        if normalised_language(language).partition("-")[0] in map(normalised_language, common):
            return default
        if self._beside is not None:
            with contextlib.suppress(LanguageUnsupported):
                return self._beside.resolve_voice(None, language)
        if (found := best_for_language(language, voices, default=default)) is not None:
            return found
        raise unknown_language(language, self.voices())

    def open_stand_in(self, voice: str, speed: float = 1.0) -> SpeechStream | None:
        """Open it in another engine, if that has a voice of the language; see the contract."""
        found = self.resolve_voice(voice, None)
        if self._beside_for(voice) is not None:
            own = best_for_language(found.language, self._own_voices)
            return self.open(own.id, speed) if own is not None else None
        for other in self._others:
            with contextlib.suppress(LanguageUnsupported):
                return other.open(other.resolve_voice(None, found.language).id, speed)
        return None

    def open(
        self, voice: str, speed: float = 1.0, *, instructions: str = "", call_id: str = "", must_speak: bool = False
    ) -> SpeechStream:
        """Open one utterance in the worker that would speak first; see the contract."""
        if (beside := self._beside_for(voice)) is not None:
            return beside.open(voice, speed, instructions=instructions, call_id=call_id, must_speak=must_speak)
        found, manner = self.resolve_voice(voice, None), (speed, instructions)
        if self._elsewhere is None and len(self._children) == 1 and self._fallback is None:
            return self._open(found, manner, call_id, set(), must_speak=must_speak)[0]
        tried: set[WorkerLink] = set()
        key = call_id or f"{self._random.random()}"
        return FailoverStream(
            lambda reason: self._open(
                found, manner, key, tried, must_speak=must_speak or isinstance(reason, WorkerLost)
            ),
            may_resume=self._may_resume,
            on_resumed=self._metrics.engine_resumed.inc,
        )

    def _open(
        self, voice: Voice, manner: tuple[float, str], key: str, tried: set[WorkerLink], *, must_speak: bool
    ) -> tuple[SpeechStream, bool]:
        """Open it in a worker that was not tried yet, or in the fallback; the second value says which. ``manner``: speed and
        instructions. ``must_speak``: it cannot wait for free capacity, because its worker was lost or is late, or because it
        has waited already.
        """
        ready = [worker for worker in self._ready if worker.has_voice(voice)]
        is_left = any(worker not in tried and worker.room for worker in ready)
        if self._fallback is not None and (not ready or (must_speak and not is_left)):
            return self._fallback.open(self._fallback.resolve_voice(None, voice.language).id, manner[0]), True
        if not ready:
            reason = self.not_ready_because(voice.id) or f"no worker that is ready has the voice {voice.id}"
            raise EngineFailed(reason, retry_after_s=RETRY_AFTER_S)
        capacities = {each: found for each in ready if each not in tried and (found := each.capacity) is not None}
        weights = self._elsewhere.generations if self._elsewhere is not None else {}
        worker = pick(capacities, key=key, weights=weights, rng=self._random)
        if worker is None:
            self._metrics.engine_refusals.labels(where="server").inc()
            retry_after_s = next(
                (worker.load.retry_after_s for worker in ready if worker.load is not None), RETRY_AFTER_S
            )
            reason = self.not_ready_because(voice.id) or f"the workers with the voice {voice.id} are at their limit"
            raise EngineOverloaded(reason, retry_after_s=retry_after_s)
        tried.add(worker)
        is_elsewhere = partial(self._is_elsewhere, voice, tried)
        return worker.open(next(self._stream_ids), voice, manner, is_elsewhere=is_elsewhere), False

    def _is_elsewhere(self, voice: Voice, tried: Collection[WorkerLink]) -> bool:
        """Whether another worker or the fallback would speak what this worker gives up."""
        others = (worker for worker in self._ready if worker not in tried and worker.has_voice(voice))
        return self._may_resume and (self._fallback is not None or any(worker.room for worker in others))
