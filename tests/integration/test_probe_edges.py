"""How far off the edges of speech are that a probe finds with the real model."""

from functools import cache

import pytest

from cc_tts.softphone.probe.probe import error_of
from cc_tts.vad.silero import SileroModel, find_model
from lab import needs
from lab.caller_audio import PROMPT, SENTENCE, pcm_of, said

pytestmark = pytest.mark.integration

TEXTS = (SENTENCE, PROMPT, "Yes.", "Excuse me, please wait.", "Please hold on.", "What is your name?", "Good night.")


@cache
def model() -> SileroModel:
    needs.voice_model()
    return SileroModel(find_model(), 8000)


@pytest.mark.parametrize("level_dbfs", [-16.0, -26.0])
@pytest.mark.parametrize("voice", ["en-us", "de", "fr-fr"])
@pytest.mark.parametrize("text", TEXTS)
def test_edges_of_speech_are_found_where_they_are(text: str, voice: str, level_dbfs: float) -> None:
    begin_ms, end_ms = error_of(model(), pcm_of(said(text, level_dbfs, voice)))
    assert abs(begin_ms) <= 10
    assert abs(end_ms) <= 80
