"""The server's side of the engine workers: the engine, whose speech is made in other processes.

::

    open ─▸ the worker that would speak first ─▸ WorkerStream ── PushText · EndText · PlaybackProgress ──▸ worker
    async for ◂── queue of the stream ◂── SpeechChunk · StreamEnded · StreamFailed ◂──────────────────────── worker

A worker that dies is started again; calls stay up, and other workers go on. Its streams are said again by another worker
(:mod:`cc_tts.engines.worker.failover`), or fail with a typed error. Runs on: the event loop. Never imports torch.
"""

import asyncio
import itertools
import random
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine import SpeechStream
from cc_tts.engines.engine_core import EngineDescription
from cc_tts.engines.remote.pick import pick
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.worker.failover import FailoverStream
from cc_tts.engines.worker.link import RETRY_AFTER_S, WorkerLink, WorkerLost
from cc_tts.errors import EngineFailed, EngineOverloaded
from cc_tts.metrics import Metrics
from cc_tts.voices.catalog import best_for_language, normalised_language, unknown_language, unknown_voice
from cc_tts.voices.voice import Voice

PLAIN_VOICE: Final = "en-us"
"""espeak-ng's voice if neither a voice nor a language is requested."""


class WorkerEngine:
    """Speaks with ``children``, the workers of this machine, one a device and model, and with those ``elsewhere``:
    those of a pool have to be named to them.

    The worker of espeak-ng on this machine may help out: as ``fallback`` it speaks while none of the workers with a voice
    does, and as ``beside`` its own voices can be asked for, too. It may be both.
    """

    def __init__(
        self,
        tts: TtsConfig,
        children: Sequence[WorkerLink],
        elsewhere: RemoteWorkers,
        *,
        metrics: Metrics,
        fallback: WorkerLink | None = None,
        beside: WorkerLink | None = None,
    ) -> None:
        self.name = tts.engine
        self._default_voice = tts.voice
        self._may_resume = tts.resume_on_worker_loss
        self._metrics = metrics
        self._stream_ids = itertools.count(1)
        self._random = random.Random()  # noqa: S311 - no secret
        self._state = "not started"
        self._children = tuple(children)
        self.elsewhere = elsewhere
        self._fallback = fallback
        self._beside = beside
        self._plain = fallback or beside
        self._refreshing = asyncio.Lock()

    @property
    def _workers(self) -> list[WorkerLink]:
        """The workers, without the one that helps out."""
        return [*self._children, *self.elsewhere.links]

    @property
    def local(self) -> list[WorkerLink]:
        """The workers of this machine, the one that helps out last."""
        return [*self._children, *([self._plain] if self._plain is not None else ())]

    @property
    def workers(self) -> list[WorkerLink]:
        """Every worker, the one that helps out last."""
        return [*self._workers, *([self._plain] if self._plain is not None else ())]

    @property
    def identity(self) -> str:
        """Identifies what the workers on other machines speak with; empty without such workers. Another identity sounds
        different.
        """
        found = {worker.identity for worker in self._workers if worker.identity}
        return " ".join(sorted(found))

    def not_ready_because(self, voice: str | None = None) -> str | None:
        """Return why a stream could not be opened now, for this voice if one is named; ``None`` if it could."""
        if self._state != "started":
            return f"the engine is {self._state}"
        ready = self._ready_for(voice)
        if not ready and self._fallback is not None and self._fallback.is_ready:
            ready = [self._fallback]
        if not ready:
            return self._lost_because(voice)
        if any(worker.room for worker in ready):
            return None
        refusals = (worker.load.refusal for worker in ready if worker.load is not None)
        return next(filter(None, refusals), "the engine is at its limit")

    def is_full(self, voice: str | None = None) -> bool:
        """Whether streams are refused, for this voice if one is named, only because too many are open. This soon passes."""
        ready = self._ready_for(voice)
        return self._state == "started" and bool(ready) and not any(worker.room for worker in ready)

    def _find(self, voice_id: str) -> Voice | None:
        """Return the voice with this id, which the worker beside may have, too."""
        listed = [*self._workers, *([self._beside] if self._beside is not None else ())]
        found = (worker.find_voice(voice_id) for worker in listed)
        return next(filter(None, found), None)

    @property
    def degraded_because(self) -> str | None:
        """Why the fallback speaks in place of the requested voices; ``None`` if it does not."""
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
        lost = [worker for worker in self.workers if not worker.is_ready]
        return f"{what}: " + "; ".join(f"{worker.down_reason or worker.process.state}" for worker in lost)

    def utilisation(self, voice: str) -> float:
        """Return the share of open streams among those that the workers with the voice have or would accept, 0 to 1. This is
        not ``EngineLoad.utilisation``: a fast device works ahead, and refuses streams long before it is always busy.
        """
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
        return self._ready if voice is None else self._ready_with(voice)

    def _ready_with(self, voice: Voice) -> list[WorkerLink]:
        return [worker for worker in self.workers if worker.is_ready and worker.has_voice(voice)]

    def _fallback_of(self, voice: Voice) -> WorkerLink | None:
        """Return the worker that speaks if none of those with the voice does; its own voices have no other."""
        return None if self._fallback is None or self._fallback.has_voice(voice) else self._fallback

    async def start(self) -> None:
        """Start the workers; returns when all those of this machine are ready, and one at least. If one of these does not
        start all are ended.
        """
        self._state = "starting"
        starting = [worker.start() for worker in self.local]
        try:
            await asyncio.gather(*starting, self.elsewhere.start(is_needed=not self._children))
        except BaseException:
            await self.stop()
            raise
        self._state = "started"

    async def refresh_voices(self) -> None:
        """Look for voices on this machine that were added or removed since the start. Running streams continue."""
        async with self._refreshing:
            await asyncio.gather(*(worker.refresh_voices() for worker in self.local))

    async def stop(self) -> None:
        """Cancel every stream and end the workers."""
        self._state = "stopped"
        for worker in self.workers:
            worker.fail_all(EngineFailed("the engine was stopped"))
        await asyncio.gather(*(worker.process.stop() for worker in self.local), self.elsewhere.stop())

    def voices(self) -> tuple[Voice, ...]:
        """Return every voice that can be asked for; none before the start."""
        return (*self._own_voices, *(_voices_of(self._beside) if self._beside is not None else ()))

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
        """Return the voice for a request: an id, else the best one for a BCP 47 tag, else the default. Raises
        ``UnknownVoice`` if no voice has this id, ``LanguageUnsupported`` if no id is given and no voice speaks the language,
        ``EngineFailed`` if the engine was never started.
        """
        voices = self._own_voices
        if not voices:
            raise EngineFailed(f"the engine is not ready: {self.not_ready_because()}", retry_after_s=RETRY_AFTER_S)
        default = self._find(self._default_voice) or voices[0]
        if not voice and language is not None:
            return self._speaker_of(language, voices, default)
        wanted = voice or self._default_voice or default.id
        if (found := self._find(wanted)) is not None:
            return found
        raise unknown_voice(wanted, self.voices())

    def _speaker_of(self, language: str, voices: Sequence[Voice], default: Voice) -> Voice:
        """Return the best voice that this machine can keep up with. It is the same for every prompt, whatever the load."""
        live = [voice for voice in voices if voice.is_live]
        if (found := best_for_language(language, live, default=default if default.is_live else None)) is not None:
            return found
        common = [each for description in self._descriptions for each in description.languages]
        if normalised_language(language).partition("-")[0] in map(normalised_language, common):
            return default
        if self._beside is not None and (found := _plain_voice(self._beside, language)) is not None:
            return found
        if (found := best_for_language(language, voices, default=default)) is not None:
            return found
        raise unknown_language(language, self.voices())

    def open_stand_in(self, voice: str, speed: float = 1.0) -> SpeechStream | None:
        """Open an utterance for which ``voice`` has given no audio with a voice of the same language of another kind: one of
        the worker that helps out, or one of the others for that worker; ``None`` if there is none.
        """
        found = self.resolve_voice(voice, None)
        if self._plain is None:
            return None
        is_plain = self._plain.has_voice(found)
        voices = self._own_voices
        other = best_for_language(found.language, voices) if is_plain else _plain_voice(self._plain, found.language)
        return self._open(other, (speed, "")) if other is not None else None

    def open(
        self, voice: str, speed: float = 1.0, *, instructions: str = "", call_id: str = "", must_speak: bool = False
    ) -> SpeechStream:
        """Open one utterance in the worker that would speak first. ``speed`` is a factor on the natural rate, 0.5 to 2.0.
        ``instructions`` tell in words how to speak; voices that take none ignore them. ``call_id``: the utterances of one
        call prefer workers of the same generation. ``must_speak``: it has waited as long as allowed, so a plain voice is
        better than none. Raises ``UnknownVoice``, ``EngineOverloaded`` when the stream is refused, ``EngineFailed`` if the
        engine is not running.
        """
        return self._open(self.resolve_voice(voice, None), (speed, instructions), call_id, must_speak=must_speak)

    def _open(
        self, voice: Voice, manner: tuple[float, str], call_id: str = "", *, must_speak: bool = False
    ) -> SpeechStream:
        is_alone = self.elsewhere.is_empty and sum(worker.has_voice(voice) for worker in self.workers) == 1
        if is_alone and self._fallback_of(voice) is None:
            return self._open_in_one(voice, manner, call_id, set(), must_speak=must_speak)[0]
        tried: set[WorkerLink] = set()
        key = call_id or f"{self._random.random()}"
        return FailoverStream(
            lambda reason: self._open_in_one(
                voice, manner, key, tried, must_speak=must_speak or isinstance(reason, WorkerLost)
            ),
            may_resume=self._may_resume,
            on_resumed=self._metrics.engine_resumed.inc,
        )

    def _open_in_one(
        self, voice: Voice, manner: tuple[float, str], key: str, tried: set[WorkerLink], *, must_speak: bool
    ) -> tuple[SpeechStream, bool]:
        """Open it in a worker that was not tried yet, or in the fallback; the second value says which. ``manner``: speed and
        instructions. ``must_speak``: it cannot wait for free capacity, because its worker was lost or is late, or because it
        has waited already.
        """
        ready = self._ready_with(voice)
        is_left = any(worker not in tried and worker.room for worker in ready)
        fallback = self._fallback_of(voice)
        if fallback is not None and (not ready or (must_speak and not is_left)):
            if (plain := _plain_voice(fallback, voice.language)) is None:
                raise unknown_language(voice.language, _voices_of(fallback))
            return self._open_in_one(plain, (manner[0], ""), key, set(), must_speak=False)[0], True
        if not ready:
            reason = self.not_ready_because(voice.id) or f"no worker that is ready has the voice {voice.id}"
            raise EngineFailed(reason, retry_after_s=RETRY_AFTER_S)
        capacities = {each: found for each in ready if each not in tried and (found := each.capacity) is not None}
        worker = pick(capacities, key=key, weights=self.elsewhere.generations, rng=self._random)
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
        if not self._may_resume:
            return False
        others = (worker for worker in self._ready_with(voice) if worker not in tried)
        return self._fallback_of(voice) is not None or any(worker.room for worker in others)


def _voices_of(worker: WorkerLink) -> tuple[Voice, ...]:
    return worker.description.voices if worker.description is not None else ()


def _plain_voice(worker: WorkerLink, language: str) -> Voice | None:
    """Return the voice of the worker that helps out for a BCP 47 tag."""
    return best_for_language(language, _voices_of(worker), default=worker.find_voice(PLAIN_VOICE))
