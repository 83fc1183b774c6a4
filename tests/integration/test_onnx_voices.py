"""Voices of the CPU: the packaged one, a Piper voice made for the test, and the worker process that speaks with them."""

import asyncio
import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import pytest_asyncio

from cc_tts import startup
from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.cpu.contract import FoundModel
from cc_tts.engines.cpu.piper.voices import piper_models
from cc_tts.engines.cpu.voices import find_models
from cc_tts.engines.factory import make_engine
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import ConfigError
from cc_tts.media.silence_trimmer import SILENCE_PEAK
from cc_tts.processes.supervisor import Supervisor
from lab.piper_voice import make_piper_voice
from lab.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

HIBARI = "hibari-heart"


async def pcm_of(
    engine: WorkerEngine, voice: str, *texts: str, speed: float = 1.0
) -> np.ndarray[Any, np.dtype[np.int16]]:
    stream = engine.open(voice=voice, speed=speed)
    for index, text in enumerate(texts):
        stream.push(text, text_chunk_index=index)
    stream.end()
    async with asyncio.timeout(60):
        return np.frombuffer(b"".join([chunk.data async for chunk in stream]), np.int16)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[WorkerEngine]:
    made = make_engine(Config(tts=TtsConfig(first_audio_target_ms=60_000.0)), clock=MonotonicClock())
    assert isinstance(made, WorkerEngine)
    await made.start()
    yield made
    await made.stop()


async def test_english_is_neural_and_other_languages_are_espeak(engine: WorkerEngine) -> None:
    assert engine.resolve_voice(None, "en").id == HIBARI
    assert engine.resolve_voice(None, "en-US").engine == "onnx"
    chinese = engine.resolve_voice(None, "zh")
    assert (chinese.engine, chinese.language) == ("espeak", "cmn")
    assert engine.resolve_voice("de", None).engine == "espeak"
    assert engine.resolve_voice(None, None).id == HIBARI


async def test_it_speaks_at_once_and_ends_without_a_long_silence(engine: WorkerEngine) -> None:
    pcm = await pcm_of(engine, HIBARI, "Thank you for calling.", "Your balance is twelve dollars.")
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > SILENCE_PEAK)
    assert 2.0 < len(pcm) / 24_000 < 6.0
    assert loud[0] < 0.020 * 24_000
    assert len(pcm) - loud[-1] < 0.150 * 24_000


async def test_a_higher_speed_is_shorter(engine: WorkerEngine) -> None:
    slow = await pcm_of(engine, HIBARI, "Thank you for calling.", speed=0.7)
    fast = await pcm_of(engine, HIBARI, "Thank you for calling.", speed=1.6)
    assert len(fast) < 0.6 * len(slow)


async def test_espeak_goes_on_for_a_killed_worker_which_comes_back(engine: WorkerEngine) -> None:
    process = engine.workers[0].process
    assert isinstance(process, Supervisor)
    pid = process.pid
    assert pid is not None
    speaking = asyncio.create_task(pcm_of(engine, HIBARI, *["Thank you for calling, please hold the line."] * 40))
    await asyncio.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    assert len(await speaking) > 60 * 22_050
    assert engine.not_ready_because("cmn") is None  # the other engine goes on
    assert len(await pcm_of(engine, "en-us", "one"))
    await until(lambda: engine.degraded_because is None)
    assert len(await pcm_of(engine, HIBARI, "Hello."))


async def test_espeak_beside_neural_workers_is_not_in_the_metrics_of_their_load(engine: WorkerEngine) -> None:
    assert len(await pcm_of(engine, "de", "eins"))
    samples = [sample for family in engine._metrics.registry.collect() for sample in family.samples]
    assert [sample.labels["worker"] for sample in samples if sample.name == "cctts_engine_room"] == ["worker"]


async def test_a_piper_voice_speaks_with_the_phonemes_of_its_language(tmp_path: Path) -> None:
    make_piper_voice(tmp_path, "de_DE-test")
    engine = make_engine(Config(tts=TtsConfig(voices_dir=str(tmp_path), first_audio_target_ms=60_000.0)))
    await engine.start()
    try:
        voice = engine.resolve_voice(None, "de")
        assert (voice.id, voice.language, voice.rate_hz, voice.engine) == ("de_DE-test", "de-DE", 16_000, "onnx")
        one = await pcm_of(engine, voice.id, "eins")
        long = await pcm_of(engine, voice.id, "eins zwei drei vier")
        assert np.abs(one).max() == 8191
        assert len(long) > 2 * len(one)
        assert abs(len(await pcm_of(engine, voice.id, "eins", speed=2.0)) - len(one) / 2) < 0.2 * len(one)
    finally:
        await engine.stop()


def models_in(folder: Path) -> list[FoundModel]:
    return [each for each in piper_models(folder) if isinstance(each, FoundModel)]


TELLS_NOBODY = """
from cc_tts.engines.cpu.hibari import hibari_models
hibari_models(None)[0].load()
"""


def files_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


async def test_a_network_that_is_loaded_tells_its_maker_nothing(tmp_path: Path) -> None:
    """onnxruntime would write an id of the machine first. Under CI it does neither by itself."""
    found = {key: value for key, value in os.environ.items() if not key.endswith("CI") and key != "XDG_CACHE_HOME"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TELLS_NOBODY, env={**found, "HOME": str(tmp_path)}
    )
    assert await process.wait() == 0
    assert files_in(tmp_path) == []


async def test_each_speaker_is_a_voice(tmp_path: Path) -> None:
    make_piper_voice(tmp_path, "many", num_speakers=3)
    found = {each.voices[0].id: each for each in models_in(tmp_path)}
    assert list(found) == ["many:speaker 0", "many:speaker 1", "many:speaker 2"]
    said = [next(each.load().speak("Guten Tag.", voice_id=voice_id, speed=1.0)) for voice_id, each in found.items()]
    peaks = [np.frombuffer(part.pcm, "<i2").max() / 32767 for part in said]
    assert peaks == pytest.approx([0.25, 0.5, 0.75], abs=1e-3)


async def test_the_speakers_of_a_model_share_its_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_piper_voice(tmp_path, "many", num_speakers=3)
    read: list[str] = []
    session = onnxruntime.InferenceSession

    def counted(path: str, *arguments: Any, **named: Any) -> Any:
        read.append(path)
        return session(path, *arguments, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", counted)
    found = models_in(tmp_path)
    for each in found:
        each.load()
    assert read == [str(tmp_path / "many.onnx")]
    assert {each.family for each in found} == set(read), "what one costs the others cost as well"


async def test_a_model_whose_speakers_have_no_names_is_a_voice(tmp_path: Path) -> None:
    description = make_piper_voice(tmp_path, "many", num_speakers=3).with_suffix(".onnx.json")
    description.write_text(json.dumps({**json.loads(description.read_text()), "speaker_id_map": {}}))
    (found,) = models_in(tmp_path)
    heard = next(found.load().speak("Guten Tag.", voice_id="many", speed=1.0))
    assert found.voices[0].id == "many"
    assert np.frombuffer(heard.pcm, "<i2").max() / 32767 == pytest.approx(0.25, abs=1e-3)


async def test_files_that_are_no_voice_cost_nothing_but_themselves(tmp_path: Path) -> None:
    made = make_piper_voice(tmp_path, "good").with_suffix(".onnx.json").read_text()
    (tmp_path / "garbled.onnx.json").write_text("{}")
    (tmp_path / "lonely.onnx.json").write_text(made)
    (tmp_path / "hebrew.onnx.json").write_text(json.dumps({**json.loads(made), "phoneme_type": "hebrew"}))
    (tmp_path / "broken.onnx.json").write_text(made)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    found = find_models(tmp_path)
    assert [each.voices[0].id for each in found if isinstance(each, FoundModel)] == [HIBARI, "broken", "good"]
    assert names_in([each.detail for each in found if isinstance(each, ConfigError)]) == ["garbled", "hebrew", "lonely"]
    engine = make_engine(Config(tts=TtsConfig(engine="onnx", voices_dir=str(tmp_path))))
    await engine.start()
    try:
        assert [voice.id for voice in engine.voices()] == [HIBARI, "good"]
        assert names_in(engine.voice_faults) == ["garbled", "hebrew", "lonely", "broken"]
    finally:
        await engine.stop()
    warnings, _ = await startup.check(Config(tts=TtsConfig(engine="onnx", voices_dir=str(tmp_path))))
    told = [each for each in warnings if each.startswith("a voice cannot be used: ")]
    assert names_in(told) == ["garbled", "hebrew", "lonely", "broken"]


def names_in(details: Sequence[str]) -> list[str]:
    return [match[1] for each in details if (match := re.search(r"(\w+)\.onnx", each)) is not None]


async def test_a_chinese_voice_reads_pinyin(tmp_path: Path) -> None:
    pytest.importorskip("pypinyin")
    model = make_piper_voice(tmp_path, "zh_CN-test")
    description = model.with_suffix(".onnx.json")
    groups = ["Ø", "n", "h", "l", "zh", "in", "ao", "v", "er", "ong", "e", "1", "2", "3", "4", "5", "。", "，", "？"]
    ids = {mark: [number] for number, mark in enumerate(["_", "^", "$", *groups])}
    made = json.loads(description.read_text())
    description.write_text(
        json.dumps({**made, "phoneme_type": "pinyin", "phoneme_id_map": ids, "espeak": {"voice": "zh"}})
    )
    (found,) = models_in(tmp_path)
    lengths: list[int] = []
    for text in ("您好，绿耳。", "您好？", "中的", "Hello."):
        parts = found.load().speak(text, voice_id="zh_CN-test", speed=1.0)
        lengths.append(sum(len(part.pcm) for part in parts) // (2 * 16_000 // 20))
    # each id is 50 ms: begin, end, a syllable of an initial, a final, a tone and a pause, a mark and a pause; there is no d
    assert lengths == [2 + 4 * 4 + 2 * 2, 2 + 2 * 4 + 2, 2 + 4 + 3, 0]


async def test_without_pypinyin_a_voice_of_pinyin_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = make_piper_voice(tmp_path, "zh_CN-test").with_suffix(".onnx.json")
    description.write_text(json.dumps({**json.loads(description.read_text()), "phoneme_type": "pinyin"}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    (fault,) = piper_models(tmp_path)
    assert isinstance(fault, ConfigError)
    assert "pypinyin is missing: pip install" in fault.detail


async def test_a_voice_that_is_put_into_the_folder_speaks_without_a_new_start(tmp_path: Path) -> None:
    tts = TtsConfig(engine="onnx", voices_dir=str(tmp_path), first_audio_target_ms=60_000.0)
    engine = make_engine(Config(tts=tts), clock=MonotonicClock())
    await engine.start()
    try:
        before = [voice.id for voice in engine.voices()]
        model = make_piper_voice(tmp_path, "zoe", tone_hz=440.0)
        speaking = asyncio.create_task(pcm_of(engine, HIBARI, "This goes on meanwhile."))
        await engine.refresh_voices()
        assert {voice.id for voice in engine.voices()} - set(before) == {"zoe"}
        assert np.abs(await pcm_of(engine, "zoe", "hello")).max() > SILENCE_PEAK
        assert len(await speaking)
        model.unlink()
        await engine.refresh_voices()
        assert [voice.id for voice in engine.voices()] == before
    finally:
        await engine.stop()
