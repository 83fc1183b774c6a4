"""Words that are cut, and words that end."""

import numpy as np
import pytest

from cc_tts.softphone.probe.cuts import abrupt_end, holes, levels_of
from cc_tts.softphone.probe.ear import TimelineGap
from lab.caller_audio import PROMPT, SENTENCE, Samples, line_pcm, said, silence

pytestmark = pytest.mark.unit

TEXTS = (
    SENTENCE,
    PROMPT,
    "Yes.",
    "I am all ears.",
    "Please hold on.",
    "What is your name?",
    "Your balance is twelve dollars and fifty cents.",
    "Do not stop.",
    "Good night.",
    "Call me back.",
    "That was the tenth month.",
    "I have a question about my bill.",
)
BEFORE_MS = 500


def end_of(speech: Samples) -> int | None:
    """Where speech ends abruptly; the detector has its end a little off."""
    pcm = line_pcm(silence(BEFORE_MS), speech, silence(800))
    return abrupt_end(pcm, levels_of(pcm), BEFORE_MS * 8, BEFORE_MS * 8 + len(speech) + 300)


@pytest.mark.parametrize("level_dbfs", [-16.0, -26.0])
@pytest.mark.parametrize("text", TEXTS)
def test_words_that_are_said_to_their_end_are_not_cut(text: str, level_dbfs: float) -> None:
    assert end_of(said(text, level_dbfs)) is None


def loud_places(speech: Samples) -> list[int]:
    """Samples in the middle of vowels: the level has been at that of speech for 50 ms, and stays there for as long."""
    frames = speech[: len(speech) // 80 * 80].reshape(-1, 80)
    levels = 10 * np.log10((frames * frames).mean(axis=1) + 1e-10)
    loud = levels > np.percentile(levels, 60)
    return [80 * at for at in range(40, len(loud) - 5, 7) if loud[at - 5 : at + 5].all()]


@pytest.mark.parametrize("text", [SENTENCE, PROMPT])
def test_a_cut_in_a_vowel_is_found(text: str) -> None:
    speech = said(text, -20.0)
    places = loud_places(speech)
    assert len(places) > 3
    found = [end_of(speech[:at]) for at in places]
    for place, at in zip(places, found, strict=True):
        assert at == pytest.approx(BEFORE_MS * 8 + place, abs=80)


def test_a_gap_in_speech_is_a_hole_and_one_in_silence_is_not() -> None:
    speech = said(SENTENCE, -20.0)
    at = loud_places(speech)[2]
    pcm = line_pcm(silence(BEFORE_MS), speech[:at], silence(40), speech[at + 320 :], silence(500))
    begin = BEFORE_MS * 8 + at
    after = len(pcm) // 2 - 2000
    (cut,) = holes(
        levels_of(pcm),
        [TimelineGap(begin, 320, "lost"), TimelineGap(after, 320, "lost"), TimelineGap(100, 320, "late")],
    )
    assert cut == TimelineGap(begin, 320, "lost")
