"""Voices that clients enrol and remove while the server runs.

::

    recording ─▸ process of its own ─▸ EnrolledVoice ─▸ tts.voices_dir ─▸ the workers look for voices again
"""

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.config.sections.models import TtsConfig, each_model
from cc_tts.engines.enrolment.messages import NotMade, Recorded, decoded_answer
from cc_tts.engines.factory import COSYVOICE2, engine_names
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import (
    UNREADABLE,
    CcTtsError,
    ConfigError,
    DuplicateId,
    EnrolmentBusy,
    EnrolmentFailed,
    EnrolmentUnavailable,
    FieldError,
    Unprocessable,
    VoiceNeeded,
    VoiceNotFound,
    VoiceNotStored,
    did_you_mean,
)
from cc_tts.processes.supervisor import run_once
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.enrolment import MAX_TRANSCRIPT_CHARS, spoken_words
from cc_tts.voices.library import (
    MAX_DESCRIPTION_CHARS,
    VoiceLibrary,
    VoiceMode,
    VoiceRecord,
    check_plain,
)
from cc_tts.voices.voice import Voice

ENROLMENT_TIMEOUT_S: Final = 120.0
"""The longest time that the process may take (unmeasured): it reads 500 MB of networks and listens to 30 s at most."""
BUSY_RETRY_AFTER_S: Final = 10
"""``Retry-After`` while another voice is being enrolled, s (unmeasured)."""
PROCESS: Final = "cc_tts.engines.enrolment"
_PACKAGES: Final = {"torch": "PyTorch", "onnxruntime": "onnxruntime", "safetensors": "safetensors"}
_REMEDY: Final = "pip install -r requirements/gpu.lock or 'WHEEL[gpu]', or `make neural` for a CPU"

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVoice:
    """A recording to enrol as a voice of a ``model``, the first model if it is empty. ``transcript`` is for ``zero_shot``
    only.
    """

    voice_id: str
    language: str
    description: str
    transcript: str = field(repr=False)
    audio: bytes = field(repr=False)
    mode: VoiceMode = "zero_shot"
    model: str = ""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """A voice that was enrolled, and warnings about its recording."""

    voice: Voice
    warnings: tuple[str, ...]


class OwnVoices:
    """The enrolled voices of this server. ``refresh`` makes the engine look for voices again; ``normalize`` converts a
    transcript to spoken words.
    """

    def __init__(
        self,
        tts: TtsConfig,
        engine: WorkerEngine,
        *,
        refresh: Callable[[], Awaitable[None]],
        normalize: Callable[[str, str], str],
    ) -> None:
        self._tts = tts
        self._by_model = {next(iter(each.models), ""): each for each in each_model(tts)}
        self._engine = engine
        self._refresh = refresh
        self._normalize = normalize
        self._is_enrolling = False
        self._changing = asyncio.Lock()

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self._engine.voices()]

    async def enrol(self, new: NewVoice) -> Enrolled:
        """Make a voice from a recording; it can speak afterwards.

        Raises:
            EnrolmentUnavailable: no voice can be enrolled here.
            EnrolmentBusy: another one is being enrolled.
            EnrolmentFailed: the process broke off or took too long, or the engine did not take the voice.
            DuplicateId: there is a voice of this id.
            Unprocessable: no voice can come of the recording or its transcript, or there is no such model.
            VoiceNotStored: the folder cannot be written.
        """
        if new.model and self._tts.models and new.model not in self._tts.models:
            detail = f"no model is called {new.model[:80]!r}{did_you_mean(new.model, self._by_model)}"
            raise Unprocessable.about(FieldError("/model", detail))
        tts = self._by_model.get(new.model, next(iter(self._by_model.values())))
        if missing := missing_for_enrolment(tts):
            raise EnrolmentUnavailable(missing)
        transcript = _plain(new.transcript, "transcript", max_chars=MAX_TRANSCRIPT_CHARS)
        description = _plain(new.description, "description", max_chars=MAX_DESCRIPTION_CHARS)
        await self._must_be_free(new.voice_id)
        if self._is_enrolling:
            raise EnrolmentBusy("another voice is being enrolled", retry_after_s=BUSY_RETRY_AFTER_S)
        self._is_enrolling = True
        try:
            words = None
            if new.mode == "zero_shot":
                words = await asyncio.to_thread(
                    spoken_words, transcript, lambda text: self._normalize(text, new.language)
                )
            voice = await encoded(Recorded(new.audio, words, _model_dir_of(tts)))
            record = VoiceRecord(
                id=new.voice_id,
                language=new.language,
                mode=new.mode,
                key=voice.key,
                description=description,
            )
            # a request that ends now leaves a voice that is whole
            return await asyncio.shield(asyncio.ensure_future(self._keep(_library_of(tts), record, voice)))
        finally:
            self._is_enrolling = False

    async def remove(self, voice_id: str) -> Voice:
        """Delete an enrolled voice; utterances that it is speaking are completed.

        Raises:
            VoiceNotFound: there is no such voice.
            VoiceNeeded: it was not enrolled, the configuration names it, or it is the only one.
            VoiceNotStored: the folder cannot be written.
        """
        async with self._changing:
            voice = self._listed(voice_id)
            library = await asyncio.to_thread(self._library_with, voice_id)
            if library is None:
                if voice is None:
                    raise VoiceNotFound(f"no voice {voice_id[:80]!r}")
                raise VoiceNeeded("the voice was not enrolled: it belongs to the engine or is a file of a model")
            self._must_be_spare(voice_id)
            record = await asyncio.to_thread(lambda: {each.id: each for each in library.records()}.get(voice_id))
            await self._on_disk(library.remove, voice_id)
            await self._refresh()
        log.info("voice_removed", voice=voice_id)
        return voice or Voice(voice_id, COSYVOICE2, record.language if record else "", "zero_shot")

    async def look_again(self) -> None:
        """Make the engine load voices that others have put into the folder."""
        async with self._changing:
            await self._refresh()

    async def _keep(self, library: VoiceLibrary, record: VoiceRecord, voice: EnrolledVoice) -> Enrolled:
        async with self._changing:
            await self._must_be_free(record.id)
            await self._on_disk(library.add, record, voice)
            await self._refresh()
            listed = self._listed(record.id)
            if listed is None:
                await self._on_disk(library.remove, record.id)
                raise EnrolmentFailed("the engine did not take the voice; the log of its workers says why")
        log.info("voice_enrolled", voice=record.id, language=record.language, duration_s=round(voice.duration_s, 1))
        return Enrolled(listed, voice.warnings)

    async def _must_be_free(self, voice_id: str) -> None:
        is_taken = voice_id in self._tts.voice_aliases or self._listed(voice_id) is not None
        if is_taken or await asyncio.to_thread(self._library_with, voice_id) is not None:
            raise DuplicateId(f"there is a voice {voice_id!r}; delete it first, or choose another id")

    def _must_be_spare(self, voice_id: str) -> None:
        """Refuse to delete a voice without which the engine would not start again."""
        if voice_id == self._tts.voice or voice_id in self._tts.voice_aliases.values():
            raise VoiceNeeded("tts.voice or tts.voice_aliases names this voice")
        own = {each.id: each.model for each in self._engine.voices() if each.engine == COSYVOICE2}
        others = (model for each, model in own.items() if each != voice_id)
        if not any(model == own.get(voice_id, model) for model in others):
            raise VoiceNeeded("there is no other voice")  # without any voice its model does not start

    def _listed(self, voice_id: str) -> Voice | None:
        return next((each for each in self._engine.voices() if each.id == voice_id), None)

    def _library_with(self, voice_id: str) -> VoiceLibrary | None:
        libraries = (_library_of(tts) for tts in self._by_model.values() if tts.voices_dir)
        return next((library for library in libraries if library.has(voice_id)), None)

    async def _on_disk(self, change: Callable[..., None], *arguments: object) -> None:
        try:
            await asyncio.to_thread(change, *arguments)
        except (ConfigError, OSError) as error:
            log.error("voice_not_stored", detail=str(error))
            why = error.strerror if isinstance(error, OSError) else error.detail
            raise VoiceNotStored(f"tts.voices_dir cannot be written: {why}") from None


def missing_for_enrolment(tts: TtsConfig) -> str:
    """Return what is missing for enrolment; empty if nothing is."""
    if engine_names(tts)[0] != COSYVOICE2:
        return f'the engine is {tts.engine}; tts.engine = "cosyvoice2" speaks with enrolled voices'
    if not tts.models:
        return "there is no model in [tts.models.NAME]"
    if not tts.voices_dir:
        return "tts.voices_dir is empty"
    if not tts.devices:
        return "tts.devices is empty: voices are enrolled where the workers are"
    packages = [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    return (
        f"{' and '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed: {_REMEDY}" if packages else ""
    )


def _model_dir_of(tts: TtsConfig) -> str:
    (model,) = tts.models.values()
    return str(Path(model.model_dir).expanduser())


def _library_of(tts: TtsConfig) -> VoiceLibrary:
    return VoiceLibrary(Path(tts.voices_dir).expanduser())


async def encoded(recorded: Recorded) -> EnrolledVoice:
    """Make the voice in a process of its own, which ends with this call.

    Raises:
        EnrolmentFailed: it broke off, or took longer than :data:`ENROLMENT_TIMEOUT_S`.
        CcTtsError: what the process says, such as ``Unprocessable`` for a recording that is too short.
    """
    data = msgspec.msgpack.encode(recorded)
    try:  # the errors of the process go nowhere: a library might write words there
        written, _, status = await run_once(PROCESS, data=data, timeout_s=ENROLMENT_TIMEOUT_S)
    except TimeoutError:
        raise EnrolmentFailed(f"the recording was not encoded within {ENROLMENT_TIMEOUT_S:g} s") from None
    try:
        answer = decoded_answer(written)
    except UNREADABLE:
        raise EnrolmentFailed(f"the process that encodes the recording ended with {status}") from None
    if isinstance(answer, NotMade):
        raise CcTtsError.by_code.get(answer.code, EnrolmentFailed)(answer.detail)
    return answer.voice


def _plain(text: str, name: str, *, max_chars: int) -> str:
    """Return a one-line text; raises ``Unprocessable`` with its field."""
    try:
        return check_plain(" ".join(text.split()), f"the {name}", max_chars=max_chars)
    except ConfigError as error:
        raise Unprocessable.about(FieldError(f"/{name}", error.detail)) from None
