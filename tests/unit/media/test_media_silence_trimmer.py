import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.audio import AudioFormat
from cc_tts.media.silence_trimmer import MAX_TAIL_MS, SILENCE_PEAK, SilenceTrimmer

pytestmark = pytest.mark.unit

FORMAT = AudioFormat(10_000)  # 10 samples a ms


def passage(*stretches: tuple[int, float]) -> bytes:
    return np.concatenate([np.full(round(ms * 10), level, np.int16) for level, ms in stretches]).tobytes()


def ms_of(pcm: bytes) -> float:
    return FORMAT.ms_for_bytes(len(pcm))


def test_the_lead_is_cut_and_ramped_and_counted() -> None:
    trimmer = SilenceTrimmer(FORMAT)
    speech = trimmer.process(passage((20, 50), (5000, 30)))
    assert ms_of(speech) == 35
    assert trimmer.trimmed_lead_samples == 450
    assert np.frombuffer(speech, np.int16)[:22].tolist() == [*range(20), 20, 20]
    assert np.frombuffer(speech, np.int16)[50:].tolist() == [5000] * 300


def test_a_lead_that_may_stay_is_left_alone() -> None:
    trimmer = SilenceTrimmer(FORMAT)
    pcm = passage((20, 4), (5000, 30))
    assert trimmer.process(pcm) == pcm
    assert trimmer.trimmed_lead_samples == 0


@pytest.mark.parametrize(
    ("level", "is_sound"), [(SILENCE_PEAK, False), (SILENCE_PEAK + 1, True), (-SILENCE_PEAK - 1, True)]
)
def test_threshold(level: int, is_sound: bool) -> None:
    trimmer = SilenceTrimmer(FORMAT)
    trimmer.process(passage((level, 10)))
    assert trimmer.heard is is_sound


@pytest.mark.parametrize("trail_ms", [0, 10, 40, 100])
def test_the_trail_has_the_length_asked_for(trail_ms: float) -> None:
    trimmer = SilenceTrimmer(FORMAT)
    trimmer.process(passage((900, 10), (30, 40)))
    trail = trimmer.finish(trail_ms)
    assert ms_of(trail) == trail_ms
    values = np.frombuffer(trail, np.int16)
    if 0 < trail_ms < 40:
        assert values[-1] <= 2  # cut off in the middle of its own: ramped
    assert np.abs(np.diff(values)).max(initial=0) <= 30
    assert trimmer.finish(0) == b""


@pytest.mark.parametrize("tail_ms", [0, MAX_TAIL_MS])
def test_nothing_comes_of_silence(tail_ms: int) -> None:
    trimmer = SilenceTrimmer(FORMAT, tail_ms=tail_ms)
    assert trimmer.process(bytes(1600)) == b""
    assert trimmer.process(passage((10, 100))) == b""
    assert trimmer.finish(100) == b""
    assert not trimmer.heard


@given(
    st.lists(st.tuples(st.sampled_from([0, 20, 3000]), st.integers(1, 12)), min_size=1, max_size=12),
    st.lists(st.integers(1, 100), max_size=12),
)
def test_cutting_the_input_changes_nothing(stretches: list[tuple[int, int]], cuts: list[int]) -> None:
    pcm = passage(*stretches)
    whole = SilenceTrimmer(FORMAT)
    expected = whole.process(pcm) + whole.finish(5)
    trimmer = SilenceTrimmer(FORMAT)
    got = b""
    start = 0
    for cut in cuts:
        got += trimmer.process(pcm[start : start + 2 * cut])
        start += 2 * cut
    got += trimmer.process(pcm[start:]) + trimmer.finish(5)
    assert got == expected
    assert trimmer.trimmed_lead_samples == whole.trimmed_lead_samples or not whole.heard


@pytest.mark.parametrize("size", [7, 80, 1000, 100_000])
def test_a_prompt_keeps_little_silence_at_its_edges_and_all_inside(size: int) -> None:
    sound, quiet = np.full(800, 5000, np.int16), np.full(8000, 20, np.int16)
    whole = np.concatenate((quiet, sound, quiet, sound, quiet)).tobytes()
    trimmer = SilenceTrimmer(AudioFormat(8000), tail_ms=MAX_TAIL_MS)
    kept = b"".join(trimmer.process(whole[start : start + 2 * size]) for start in range(0, len(whole), 2 * size))
    ramped = (quiet[:16] * np.arange(16) / 16).astype(np.int16)
    expected = np.concatenate((ramped, quiet[16:40], sound, quiet, sound, quiet[:800])).tobytes()
    assert kept == expected
