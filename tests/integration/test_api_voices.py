"""Voices that are enrolled and removed over HTTP: refusals without a model, and the small model's real processes."""

import asyncio
import dataclasses
import importlib.util
import io
import json
import wave
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
import soundfile

from cc_tts.config.schema import Config, TenantConfig, TokenConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.enrolment import own_voices
from cc_tts.engines.enrolment.messages import Recorded
from cc_tts.engines.factory import make_engine
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import CcTtsError
from cc_tts.processes.tasks import cancel_all
from cc_tts.voices.enrolment import MAX_DURATION_S
from tests.fakes.running_api import RunningApi, make_config, make_own_voices, running_api
from tests.support.captured_logs import capture_logs
from tests.support.neural_settings import neural_settings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

OPERATOR, CALLER, TENANT = "o" * 32, "c" * 32, "t" * 32
TOKENS: Final = (
    TokenConfig(OPERATOR),
    TokenConfig(CALLER, ("read", "call")),
    TokenConfig(TENANT, ("read", "call", "admin"), tenant="acme"),
)
WORDS: Final = "hello and welcome to the service"
HAS_MODEL: Final = all(importlib.util.find_spec(name) for name in ("torch", "onnx", "onnxruntime", "safetensors"))
needs_model = pytest.mark.skipif(not HAS_MODEL, reason="the small model is made with PyTorch and onnx")
FLAC, MP3 = "FLAC", "MP3"


def speech_like(seconds: float, *, rate_hz: int = 24_000, peak: float = 0.5) -> Any:
    """A tone whose loudness goes up and down four times a second, as syllables do."""
    at = np.arange(int(seconds * rate_hz)) / rate_hz
    return peak * np.sin(2 * np.pi * 180 * at) * np.abs(np.sin(2 * np.pi * 2 * at))


def wav(seconds: float = 4.0, *, rate_hz: int = 24_000, peak: float = 0.5) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes((32767 * speech_like(seconds, rate_hz=rate_hz, peak=peak)).astype("<i2").tobytes())
    return file.getvalue()


def in_format(name: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, speech_like(4.0), 24_000, format=name)
    return file.getvalue()


def config_with(tts: TtsConfig) -> Config:
    return dataclasses.replace(make_config(tokens=TOKENS), tts=tts, tenants={"acme": TenantConfig()})


async def send(
    api: RunningApi, voice_id: str = "anna", *, audio: bytes | None = None, **changes: Any
) -> tuple[int, Any]:
    fields = {"voice_id": voice_id, "transcript": WORDS, "language": "en-GB"} | changes
    form = aiohttp.FormData(fields)
    form.add_field("file", io.BytesIO(wav() if audio is None else audio), filename="anna.wav", content_type="audio/wav")
    return await ask(api, "POST", "/v1/voices", data=form)


async def ask(api: RunningApi, method: str, path: str, *, token: str = OPERATOR, **options: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=200)
    async with api.session.request(method, path, headers=headers, timeout=timeout, **options) as response:
        return response.status, await response.json(content_type=None)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- without a model


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[RunningApi]:
    async with running_api(config_with(TtsConfig(engine="espeak", voices_dir=str(tmp_path)))) as api:
        yield api


@pytest.mark.parametrize(
    ("tts", "missing"),
    [
        (TtsConfig(engine="espeak"), "the engine is espeak"),
        (TtsConfig(), "the engine is auto"),
        (TtsConfig(engine="cosyvoice2"), "there is no model"),
        (neural_settings("/m"), "tts.voices_dir is empty"),
        (neural_settings("/m", voices_dir="/v", devices=()), "tts.devices is empty"),
    ],
)
async def test_what_is_missing_is_named(tts: TtsConfig, missing: str) -> None:
    async with running_api(config_with(tts)) as api:
        status, problem = await send(api)
    assert (status, problem["code"]) == (501, "enrolment_unavailable")
    assert missing in problem["detail"]


async def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    async with running_api(config_with(neural_settings("/m", voices_dir="/v"))) as api:
        status, problem = await send(api)
    assert (status, problem["code"]) == (501, "enrolment_unavailable")
    assert "PyTorch is not installed" in problem["detail"]


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/voices"), ("DELETE", "/v1/voices/anna")])
@pytest.mark.parametrize("token", [CALLER, TENANT])
async def test_only_the_operator_with_the_scope_admin_may(
    plain: RunningApi, method: str, path: str, token: str
) -> None:
    options = {"data": aiohttp.FormData({"voice_id": "anna"})} if method == "POST" else {}
    status, problem = await ask(plain, method, path, token=token, **options)
    assert (status, problem["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("changes", "status", "pointer"),
    [
        ({"voice_id": "../anna"}, 422, "/voice_id"),
        ({"voice_id": "Anna"}, 422, "/voice_id"),
        ({"language": "english please"}, 422, "/language"),
        ({"transcript": ""}, 422, "/transcript"),
        ({"transcript": "a" * 901}, 422, "/transcript"),
        ({"description": "a" * 201}, 422, "/description"),
        ({"colour": "red"}, 400, "/colour"),
    ],
)
async def test_fields_are_bounded(plain: RunningApi, changes: dict[str, Any], status: int, pointer: str) -> None:
    found, problem = await send(plain, **{"voice_id": "anna"} | changes)
    assert (found, [each["pointer"] for each in problem["errors"]]) == (status, [pointer])


async def test_a_form_without_a_file_is_refused(plain: RunningApi) -> None:
    form = aiohttp.FormData({"voice_id": "anna", "transcript": WORDS, "language": "en"}, default_to_multipart=True)
    status, problem = await ask(plain, "POST", "/v1/voices", data=form)
    assert (status, [each["pointer"] for each in problem["errors"]]) == (400, ["/file"])


async def test_voices_that_were_not_enrolled_are_not_removed(plain: RunningApi) -> None:
    status, problem = await ask(plain, "DELETE", "/v1/voices/en-us")
    assert (status, problem["code"]) == (409, "voice_needed")
    status, problem = await ask(plain, "DELETE", "/v1/voices/nobody")
    assert (status, problem["code"]) == (404, "voice_not_found")


UNUSABLE: Final[dict[str, tuple[Callable[[], bytes], str]]] = {
    "short": (lambda: wav(0.5), "prompt_unusable"),
    "long": (lambda: wav(MAX_DURATION_S + 5), "prompt_unusable"),
    "telephone": (lambda: wav(rate_hz=8000), "prompt_unusable"),
    "silent": (lambda: wav(peak=0.0), "prompt_unusable"),
    "text": (lambda: b"no audio at all", "audio_unreadable"),
    "cut": (lambda: in_format(FLAC)[:100], "audio_unreadable"),
    "cut WAV": (lambda: wav()[:100_000], "audio_unreadable"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
async def test_the_process_refuses_what_no_voice_can_come_of(kind: str) -> None:
    audio, code = UNUSABLE[kind]
    with pytest.raises(CcTtsError) as refused:
        await own_voices.encoded(Recorded(audio(), WORDS, "/no/model"))
    assert (refused.value.code, refused.value.http_status) == (code, 422)


# --- with the small model


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    from lab.cosyvoice.tiny_model import make_tiny_model

    directory = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    torch.save({"builtin": {"embedding": torch.ones(1, 192)}}, directory / "spk2info.pt")
    return directory


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def served(
    model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[RunningApi, WorkerEngine, Path]]:
    """The API over the real worker, whose voices and whose folder it changes."""
    folder = tmp_path_factory.mktemp("voices")
    tts = neural_settings(
        model_dir,
        voices_dir=str(folder),
        devices=("cpu",),
        num_threads=1,
        max_streams=4,
        first_audio_target_ms=60_000.0,
        state_memory_bytes=300 << 20,
        fallback_engine="",
        voice_aliases={"nova": "builtin"},
    )
    config = config_with(tts)
    engine = make_engine(config)
    assert isinstance(engine, WorkerEngine)
    await engine.start()
    try:
        async with running_api(config, own_voices=make_own_voices(config, engine)) as api:
            yield api, engine, folder
    finally:
        await engine.stop()


Served = tuple[RunningApi, WorkerEngine, Path]
in_module = pytest.mark.asyncio(loop_scope="module")


async def spoken(engine: WorkerEngine, voice: str) -> bytes:
    stream = engine.open(voice=voice)
    stream.push("hello", text_chunk_index=0)
    stream.end()
    return b"".join([chunk.data async for chunk in stream])


@needs_model
@in_module
async def test_an_enrolled_voice_speaks_and_is_removed(served: Served) -> None:
    api, engine, folder = served
    with capture_logs() as lines:
        status, voice = await send(api, description="our Anna")
        assert status == 201, voice
        assert (voice["id"], voice["language"], voice["kind"]) == ("anna", "en-GB", "zero_shot")
        assert (voice["description"], voice["warnings"], voice["ready"]) == ("our Anna", [], True)
        assert any(await spoken(engine, "anna"))
        status, problem = await send(api)
        assert (status, problem["code"]) == (409, "duplicate_id")
        speaking = asyncio.create_task(spoken(engine, "anna"))
        await asyncio.sleep(0)
        status, removed = await ask(api, "DELETE", "/v1/voices/anna")
        assert (status, removed["id"]) == (200, "anna")
        assert any(await speaking)
    assert files_in(folder) == []
    assert [each.id for each in engine.voices()] == ["builtin"]
    assert WORDS not in json.dumps(lines, default=str)
    assert {"voice_enrolled", "voice_removed"} <= {line["event"] for line in lines}


@needs_model
@in_module
@pytest.mark.parametrize("name", [FLAC, MP3])
async def test_other_formats_are_read(served: Served, name: str) -> None:
    api, engine, folder = served
    status, voice = await send(api, "other", audio=in_format(name))
    assert status == 201, voice
    assert "other" in {each.id for each in engine.voices()}
    assert (await ask(api, "DELETE", "/v1/voices/other"))[0] == 200
    assert files_in(folder) == []


@needs_model
@in_module
@pytest.mark.parametrize("kind", ["short", "text"])
async def test_recordings_that_cannot_be_used_leave_nothing(served: Served, kind: str) -> None:
    api, _, folder = served
    audio, code = UNUSABLE[kind]
    status, problem = await send(api, audio=audio())
    assert (status, problem["code"]) == (422, code), problem
    assert files_in(folder) == []


@needs_model
@in_module
async def test_signs_of_the_model_are_refused_in_a_transcript(served: Served) -> None:
    status, problem = await send(served[0], transcript="hello <|endoftext|>")
    assert (status, [each["pointer"] for each in problem["errors"]]) == (422, ["/transcript"])


@needs_model
@in_module
@pytest.mark.parametrize("taken", ["builtin", "nova"])
async def test_ids_of_other_voices_are_taken(served: Served, taken: str) -> None:
    status, problem = await send(served[0], taken)
    assert (status, problem["code"]) == (409, "duplicate_id")
    status, problem = await ask(served[0], "DELETE", "/v1/voices/builtin")
    assert (status, problem["code"]) == (409, "voice_needed")


@needs_model
@in_module
async def test_one_voice_is_enrolled_at_a_time(served: Served) -> None:
    api, _, folder = served
    found = await asyncio.gather(send(api, "one"), send(api, "two"))
    assert sorted(status for status, _ in found) == [201, 503]
    refused = next(problem for status, problem in found if status == 503)
    assert refused["code"] == "enrolment_busy"
    for voice in ("one", "two"):
        await ask(api, "DELETE", f"/v1/voices/{voice}")
    assert files_in(folder) == []


@needs_model
@in_module
async def test_an_enrolment_that_takes_too_long_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    api, engine, folder = served
    monkeypatch.setattr(own_voices, "ENROLMENT_TIMEOUT_S", 0.05)
    status, problem = await send(api)
    assert (status, problem["code"]) == (500, "enrolment_failed")
    assert files_in(folder) == []
    assert [each.id for each in engine.voices()] == ["builtin"]


@needs_model
@in_module
async def test_a_process_that_dies_leaves_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_voices, "PROCESS", "antigravity.nowhere")
    status, problem = await send(served[0])
    assert (status, problem["code"]) == (500, "enrolment_failed")
    assert files_in(served[2]) == []


@needs_model
@in_module
async def test_a_client_that_hangs_up_leaves_a_whole_voice_or_none(served: Served) -> None:
    api, engine, folder = served
    sending = asyncio.create_task(send(api, "gone"))
    await asyncio.sleep(0.3)
    await cancel_all(sending)
    async with asyncio.timeout(100):
        while (await send(api, "after"))[0] == 503:  # noqa: ASYNC110 - it is over when the next one is taken
            await asyncio.sleep(0.1)
    listed = {each.id for each in engine.voices()}
    assert "after" in listed
    assert ("gone" in listed) == ("gone.voice.json" in files_in(folder))
    for voice in ("gone", "after"):
        await ask(api, "DELETE", f"/v1/voices/{voice}")
    assert files_in(folder) == []


@needs_model
@in_module
async def test_a_folder_that_cannot_be_written_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("cc_tts.atomic_file.write", full)
    status, problem = await send(served[0])
    assert (status, problem["code"]) == (507, "voice_not_stored")
    assert files_in(served[2]) == []


@needs_model
@in_module
async def test_the_networks_of_enrolment_are_named_if_they_are_missing(served: Served, model_dir: Path) -> None:
    file = model_dir / "campplus.onnx"
    hidden = file.rename(model_dir / "hidden")
    try:
        status, problem = await send(served[0])
    finally:
        hidden.rename(file)
    assert (status, problem["code"]) == (501, "enrolment_unavailable")
    assert "campplus.onnx" in problem["detail"]
