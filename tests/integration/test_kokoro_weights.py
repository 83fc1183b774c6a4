"""Kokoro's own weights, where they are: ``CC_TTS_KOKORO_VOICES`` names a folder of voices with ``kokoro/model.onnx``."""

import os
from pathlib import Path

import numpy as np
import pytest

from cc_tts.engines.cpu.kokoro.model import RATE_HZ
from cc_tts.engines.cpu.kokoro.voices import kokoro_models

pytestmark = pytest.mark.integration


def test_first_audio_is_a_window_and_silence_is_not_synthesised() -> None:
    folder = os.environ.get("CC_TTS_KOKORO_VOICES")
    if not folder:
        pytest.skip("Kokoro's weights are not here: cc-tts voices add kokoro-ef_dora, and CC_TTS_KOKORO_VOICES")
    pytest.importorskip("onnx.helper")
    found = next(each for each in kokoro_models(Path(folder)) if not hasattr(each, "detail"))
    voice = found.voices[0]
    parts = list(found.load().speak("Thank you for calling.", voice_id=voice.id, speed=1.0))
    pcm = np.frombuffer(b"".join(part.pcm for part in parts), np.int16)
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 327)
    assert len(parts[0].pcm) == 0.4 * RATE_HZ * 2
    assert loud[0] < 0.25 * RATE_HZ
    assert len(pcm) - loud[-1] < 0.45 * RATE_HZ
