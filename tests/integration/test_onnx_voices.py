"""Voices of the CPU: the packaged one, a Piper voice made for the test, and the worker process that speaks with them."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
import structlog

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config, TtsConfig
from cc_tts.engines.cpu.contract import SentenceAudio
from cc_tts.engines.cpu.piper import piper_models
from cc_tts.engines.cpu.voices import find_models
from cc_tts.engines.engine import Engine
from cc_tts.engines.factory import make_engine
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.media.silence_trimmer import SILENCE_PEAK
from cc_tts.processes.supervisor import Supervisor
from lab.piper_voice import make_piper_voice

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

HIBARI = "hibari-heart"


async def pcm_of(engine: Engine, voice: str, *texts: str, speed: float = 1.0) -> np.ndarray[Any, np.dtype[np.int16]]:
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
    process = engine._workers[0].process
    assert isinstance(process, Supervisor)
    pid = process.pid
    assert pid is not None
    speaking = asyncio.create_task(pcm_of(engine, HIBARI, *["Thank you for calling, please hold the line."] * 40))
    await asyncio.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    assert len(await speaking) > 60 * 22_050
    assert engine.not_ready_because("cmn") is None  # the other engine goes on
    assert len(await pcm_of(engine, "en-us", "one"))
    async with asyncio.timeout(60):
        while engine.degraded_because is not None:  # noqa: ASYNC110 - what another process tells has no event to wait for
            await asyncio.sleep(0.05)
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


async def test_each_speaker_is_a_voice(tmp_path: Path) -> None:
    make_piper_voice(tmp_path, "many", num_speakers=3)
    found = {each.voices[0].id: each for each in piper_models(tmp_path)}
    assert list(found) == ["many:speaker 0", "many:speaker 1", "many:speaker 2"]
    peaks: list[float] = []

    def on_audio(audio: SentenceAudio) -> bool:
        peaks.append(np.frombuffer(audio.pcm, "<i2").max() / 32767)
        return True

    for voice_id, each in found.items():
        each.load().speak("Guten Tag.", voice_id=voice_id, speed=1.0, on_audio=on_audio)
    assert peaks == pytest.approx([0.25, 0.5, 0.75], abs=1e-3)


async def test_files_that_are_no_voice_cost_nothing_but_themselves(tmp_path: Path) -> None:
    made = make_piper_voice(tmp_path, "good").with_suffix(".onnx.json").read_text()
    (tmp_path / "garbled.onnx.json").write_text("{}")
    (tmp_path / "lonely.onnx.json").write_text(made)
    (tmp_path / "pinyin.onnx.json").write_text(json.dumps({**json.loads(made), "phoneme_type": "pinyin"}))
    (tmp_path / "broken.onnx.json").write_text(made)
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with structlog.testing.capture_logs() as lines:
        assert [each.voices[0].id for each in find_models(tmp_path)] == [HIBARI, "broken", "good"]
    assert [re.search(r"(\w+)\.onnx", line["detail"])[1] for line in lines] == ["garbled", "lonely", "pinyin"]  # type: ignore[index]
    engine = make_engine(Config(tts=TtsConfig(engine="onnx", voices_dir=str(tmp_path))))
    await engine.start()
    try:
        assert [voice.id for voice in engine.voices()] == [HIBARI, "good"]
    finally:
        await engine.stop()


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
