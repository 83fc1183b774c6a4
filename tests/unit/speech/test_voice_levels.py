"""The gain of each voice: by the level that its engine states, or by its first seconds."""

import math

import numpy as np
import pytest

from cc_tts.speech.chunks import SpokenPrompt
from cc_tts.speech.voicing.levels import ASSUMED_DBFS, LEARNING_MS, VoiceLevels
from cc_tts.text.chunker import Chunking
from cc_tts.voices.voice import Voice

pytestmark = pytest.mark.unit


def prompt(voice: str) -> SpokenPrompt:
    return SpokenPrompt(
        text="", engine="e", voice=voice, chunking=Chunking(), speed=1.0, voice_rate_hz=8000,
        rate_hz=8000, gain_db=0.0,
    )  # fmt: skip


def noise(dbfs: float, seconds: float) -> bytes:
    rms = 32768 * 10 ** (dbfs / 20)
    return (np.random.default_rng(1).standard_normal(round(8000 * seconds)) * rms).astype(np.int16).tobytes()


def test_a_stated_level_decides() -> None:
    levels = VoiceLevels(-20.0)
    assert levels.gain_db(Voice("a", "e", "en", level_dbfs=-26.5)) == pytest.approx(6.5)
    assert levels.meter(prompt("a")) is None


def test_another_voice_is_assumed_and_then_learned_once() -> None:
    levels, voice = VoiceLevels(-20.0), Voice("a", "e", "en")
    assert levels.gain_db(voice) == pytest.approx(-20.0 - ASSUMED_DBFS)
    meter = levels.meter(prompt("a"))
    assert meter is not None
    meter(noise(-30, LEARNING_MS / 1000 - 1))
    assert levels.gain_db(voice) == pytest.approx(-20.0 - ASSUMED_DBFS)
    meter(noise(-30, 1.1))
    assert levels.gain_db(voice) == pytest.approx(10, abs=0.5)
    assert levels.meter(prompt("a")) is None
    gain_db = levels.gain_db(voice)
    meter(noise(-10, 10))
    assert levels.gain_db(voice) == gain_db


def test_silence_teaches_nothing() -> None:
    levels, voice = VoiceLevels(-20.0), Voice("a", "e", "en")
    levels.gain_db(voice)
    meter = levels.meter(prompt("a"))
    assert meter is not None
    meter(bytes(16 * round(LEARNING_MS)))
    assert math.isclose(levels.gain_db(voice), -20.0 - ASSUMED_DBFS)
    assert levels.meter(prompt("a")) is not None
