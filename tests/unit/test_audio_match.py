import math

import numpy as np
import pytest

from cc_tts.media import g711
from tests.support import audio_match
from tests.support.audio_match import Samples

pytestmark = pytest.mark.unit


def speech_like(seconds: float = 1.0, seed: int = 7) -> Samples:
    """A signal whose autocorrelation has one sharp peak, with the level of speech."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal(round(seconds * 8000))
    smooth = np.convolve(noise, np.ones(4) / 4, mode="same")
    envelope = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * np.arange(len(noise)) / 8000)
    return np.asarray(smooth * envelope * 6000).astype(np.int16)


def through_g711(signal: Samples) -> Samples:
    return audio_match.samples(g711.ulaw_decode(g711.ulaw_encode(signal.tobytes())))


def silence(ms: float) -> Samples:
    return np.zeros(round(ms * 8), np.int16)


@pytest.mark.parametrize("lead_ms", [0.0, 20.0, 133.5, 9000.0])
def test_finds_the_reference_through_g711(lead_ms: float) -> None:
    reference = speech_like()
    recording = np.concatenate((silence(lead_ms), through_g711(reference), silence(50)))
    match = audio_match.find(reference, recording)
    assert match.offset_ms == lead_ms
    assert match.corr > 0.9995
    assert match.snr_db > 30
    assert match.overlap_ms == 1000
    assert match.duration_ms == len(recording) / 8


def test_a_missing_head_gives_a_negative_offset() -> None:
    reference = speech_like()
    match = audio_match.find(reference, reference[800:])
    assert match.offset_ms == -100
    assert match.overlap_ms == 900
    assert match.snr_db == math.inf


def test_other_speech_does_not_match() -> None:
    assert audio_match.find(speech_like(seed=1), speech_like(seed=2)).corr < 0.2


@pytest.mark.parametrize(("reference", "recording"), [(silence(100), speech_like()), (speech_like(), silence(100))])
def test_silence_matches_nothing(reference: Samples, recording: Samples) -> None:
    assert audio_match.find(reference, recording).corr == 0


def test_a_slip_of_one_sample_spoils_the_snr() -> None:
    reference = speech_like()
    slipped = np.concatenate((reference[:4000], reference[4001:]))
    assert audio_match.find(reference, slipped).snr_db < 20


def test_gap_is_found_where_the_reference_speaks() -> None:
    reference = speech_like()
    recording = reference.copy()
    recording[1600:1760] = 0
    (gap,) = audio_match.find_gaps(reference, recording)
    assert gap.start_ms == pytest.approx(200, abs=1)
    assert gap.length_ms == pytest.approx(20, abs=2)


def test_a_pause_of_the_reference_is_no_gap() -> None:
    reference = np.concatenate((speech_like(0.3, 1), silence(60), speech_like(0.3, 2)))
    assert audio_match.find_gaps(reference, through_g711(reference)) == []


def test_click_is_found_and_g711_noise_is_not() -> None:
    reference = speech_like() // 8
    recording = through_g711(reference)
    assert audio_match.find_clicks(reference, recording) == []
    recording = recording.copy()
    recording[2403] = 25000
    assert audio_match.find_clicks(reference, recording) == [300.0]


def test_silences_are_listed_with_their_edges() -> None:
    signal = np.concatenate((speech_like(0.1) | 64, silence(30), speech_like(0.1, 3) | 64))
    (run,) = audio_match.silences(signal.astype(np.int16), min_ms=20)
    assert (run.start_ms, run.end_ms) == pytest.approx((100, 130), abs=0.5)


def test_a_frame_that_a_mixer_put_in_costs_one_piece() -> None:
    reference = speech_like()
    moved = np.concatenate((silence(60), reference[:3000], silence(20), reference[3000:]))
    assert audio_match.find(reference, moved).corr < 0.9
    assert audio_match.share_heard(reference, moved, slip_ms=20) == 0.9
    assert audio_match.share_heard(reference, moved) < 0.7
    assert audio_match.share_heard(reference, moved, slip_ms=400) == 0.9


def test_a_quiet_piece_beside_a_loud_one_is_heard() -> None:
    reference = np.concatenate((speech_like(0.3, 1) // 3, speech_like(0.3, 2), speech_like(0.3, 3) // 3))
    assert audio_match.share_heard(reference, through_g711(reference), slip_ms=400) == 1


def test_words_that_are_missing_are_not_heard() -> None:
    reference = speech_like()
    cut = np.concatenate((reference[:4000], silence(500)))
    assert audio_match.share_heard(reference, cut, slip_ms=20) == 0.5
    assert audio_match.share_heard(reference, speech_like(seed=8), slip_ms=20) == 0
    assert audio_match.share_heard(silence(500), cut) == 0
