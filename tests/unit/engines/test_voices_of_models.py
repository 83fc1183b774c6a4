"""A voice that a client enrols belongs to one of several models."""

import importlib.util
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("safetensors")

from cc_tts.config.sections.models import ModelConfig, TtsConfig
from cc_tts.engines.enrolment import own_voices
from cc_tts.engines.enrolment.messages import Recorded
from cc_tts.engines.enrolment.own_voices import NewVoice, OwnVoices
from cc_tts.errors import DuplicateId, EnrolmentUnavailable, Unprocessable, VoiceNeeded, VoiceNotFound
from cc_tts.voices.embedding_cache import EnrolledVoice
from cc_tts.voices.library import VoiceLibrary
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.unit


class EngineOfFolders:
    """It lists what is in the folders of two models."""

    def __init__(self, tts: TtsConfig) -> None:
        self._folders = {name: Path(model.voices_dir) for name, model in tts.models.items()}

    def voices(self) -> tuple[Voice, ...]:
        return tuple(
            Voice(record.id, "cosyvoice2", "en", model=name)
            for name, folder in self._folders.items()
            for record in VoiceLibrary(folder).records()
        )


@pytest.fixture(name="of_two")
def _of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[OwnVoices, list[str]]:
    """The voices of the models v2 and v3, and the directories that encoded a recording."""
    encoders: list[str] = []

    async def encoded(recorded: Recorded) -> EnrolledVoice:
        encoders.append(Path(recorded.model_dir).name)
        tokens = np.arange(30, dtype=np.int32)
        mel, embedding = np.zeros((60, 80), np.float32), np.ones(192, np.float32)
        return EnrolledVoice(
            key=f"{len(encoders):064x}", transcript="hello", fingerprint="f", duration_s=4.0, warnings=(),
            llm_tokens=tokens, flow_tokens=tokens, flow_mel=mel, embedding=embedding,
        )  # fmt: skip

    monkeypatch.setattr(own_voices, "encoded", encoded)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    models = {
        name: ModelConfig(model_dir=str(tmp_path / name), voices_dir=str(tmp_path / f"voices-{name}"))
        for name in ("v2", "v3")
    }
    tts = TtsConfig(engine="cosyvoice2", models=models)

    async def refresh() -> None:
        """The engine reads the folders whenever it is asked."""

    engine = cast("Any", EngineOfFolders(tts))
    return OwnVoices(tts, engine, refresh=refresh, normalize=lambda text, _language: text), encoders


def new(voice_id: str, model: str = "") -> NewVoice:
    return NewVoice(voice_id=voice_id, language="en", description="", transcript="hello", audio=b"x", model=model)


async def test_a_voice_is_enrolled_by_its_model_into_its_folder(of_two: tuple[OwnVoices, list[str]]) -> None:
    own, encoders = of_two
    assert (await own.enrol(new("anna"))).voice.model == "v2", "the first, where none is named"
    assert (await own.enrol(new("bert", "v3"))).voice.model == "v3"
    assert encoders == ["v2", "v3"]
    with pytest.raises(DuplicateId):
        await own.enrol(new("bert", "v2"))
    with pytest.raises(Unprocessable, match="no model is called 'v4', did you mean v") as caught:
        await own.enrol(new("cleo", "v4"))
    assert [each.pointer for each in caught.value.field_errors] == ["/model"]


async def test_each_model_keeps_a_voice(of_two: tuple[OwnVoices, list[str]]) -> None:
    own, _ = of_two
    for voice_id, model in (("anna", "v2"), ("bert", "v3"), ("cleo", "v3")):
        await own.enrol(new(voice_id, model))
    assert (await own.remove("bert")).id == "bert"
    for last in ("anna", "cleo"):
        with pytest.raises(VoiceNeeded, match="no other voice"):
            await own.remove(last)
    with pytest.raises(VoiceNotFound):
        await own.remove("bert")


async def test_without_any_model_that_is_told_whichever_is_named() -> None:
    engine = cast("Any", EngineOfFolders(TtsConfig()))
    own = OwnVoices(TtsConfig(), engine, refresh=_nothing, normalize=lambda text, _language: text)
    with pytest.raises(EnrolmentUnavailable, match="the engine is auto"):
        await own.enrol(new("anna", "v2"))


async def test_without_a_folder_of_voices_the_one_of_the_process_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "anna.voice.json"
    file.write_text("{}")
    engine = cast("Any", EngineOfFolders(TtsConfig()))
    own = OwnVoices(TtsConfig(), engine, refresh=_nothing, normalize=lambda text, _language: text)
    with pytest.raises(VoiceNotFound):
        await own.remove("anna")
    assert file.exists()


async def _nothing() -> None:
    """Nothing has changed."""
