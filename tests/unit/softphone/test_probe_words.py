"""The words of a probe's caller, from files; those of texts are made in tests/e2e/test_probe.py."""

from pathlib import Path

import pytest

from cc_tts import wav_file
from cc_tts.errors import ConfigError
from cc_tts.softphone.probe.plan import ProbePlan, words_of

pytestmark = pytest.mark.unit

LOUD = b"\x00\x20" * 800


def plan_of(folder: Path, sentence: bytes) -> ProbePlan:
    for name, pcm in (("a.wav", sentence), ("b.WAV", LOUD)):
        wav_file.write(folder / name, pcm, rate_hz=8000)
    return ProbePlan(sentence=str(folder / "a.wav"), interruption=str(folder / "b.WAV"))


def test_silence_around_words_is_not_said(tmp_path: Path) -> None:
    words = words_of(plan_of(tmp_path, bytes(8000) + LOUD + bytes(3000)))
    assert (words.sentence, words.interruption) == (LOUD, LOUD)


def test_a_file_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.wav: there is nothing to hear in it"):
        words_of(plan_of(tmp_path, bytes(8000)))
