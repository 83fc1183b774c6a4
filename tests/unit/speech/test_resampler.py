import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.speech.resampler import StreamResampler

pytestmark = pytest.mark.unit

RATES = st.sampled_from([(22050, 8000), (24000, 8000), (22050, 16000), (24000, 16000), (8000, 16000), (16000, 16000)])


def noise(num_samples: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).normal(0, 8000, num_samples).clip(-32768, 32767).astype(np.int16).tobytes()


def sine(hz: float, rate_hz: int, num_samples: int, amplitude: float = 10_000) -> bytes:
    return np.rint(amplitude * np.sin(2 * np.pi * hz * np.arange(num_samples) / rate_hz)).astype(np.int16).tobytes()


def level_db(pcm: bytes, amplitude: float = 10_000) -> float:
    middle = np.frombuffer(pcm, np.int16)[2000:-2000].astype(float)
    return float(20 * np.log10(max(middle.std(), 0.01) / (amplitude / np.sqrt(2))))


@given(RATES, st.lists(st.integers(0, 3000), max_size=20), st.booleans(), st.integers(0, 1000))
def test_any_cutting_gives_the_same_as_the_whole(
    rates: tuple[int, int], piece_lengths: list[int], flush_apart: bool, seed: int
) -> None:
    source_hz, target_hz = rates
    pcm = noise(sum(piece_lengths), seed)
    whole = StreamResampler(source_hz, target_hz).process(pcm, last=True)

    resampler = StreamResampler(source_hz, target_hz)
    cut = b""
    start = 0
    for index, length in enumerate(piece_lengths):
        is_last = index == len(piece_lengths) - 1 and not flush_apart
        cut += resampler.process(pcm[2 * start : 2 * (start + length)], last=is_last)
        start += length
    if flush_apart or not piece_lengths:
        cut += resampler.process(b"", last=True)

    assert cut == whole
    assert abs(len(whole) // 2 - sum(piece_lengths) * target_hz / source_hz) <= 0.5


def test_equal_rates_pass_through() -> None:
    assert StreamResampler(8000, 8000).process(noise(100)) == noise(100)


@pytest.mark.parametrize(("hz", "at_least_db", "at_most_db"), [(300, -0.2, 0.2), (3400, -0.2, 0.2), (4600, -120, -75)])
def test_the_telephone_band_stays_and_what_would_fold_back_goes(
    hz: float, at_least_db: float, at_most_db: float
) -> None:
    resampled = StreamResampler(22050, 8000).process(sine(hz, 22050, 44100), last=True)
    assert at_least_db <= level_db(resampled) <= at_most_db


def test_the_output_is_not_shifted() -> None:
    resampled = np.frombuffer(StreamResampler(24000, 8000).process(sine(400, 24000, 24000), last=True), np.int16)
    wanted = np.frombuffer(sine(400, 8000, 8000), np.int16)
    assert np.abs(resampled[200:-200].astype(int) - wanted[200:-200]).max() <= 20


def test_loud_input_does_not_wrap_around() -> None:
    square = np.where(np.arange(24000) % 200 < 100, 32767, -32768).astype(np.int16).tobytes()
    resampled = np.frombuffer(StreamResampler(24000, 8000).process(square, last=True), np.int16)
    expected_sign = np.where(np.arange(8000) * 3 % 200 < 100, 1, -1)
    inside = (np.arange(8000) * 3 % 100 > 15) & (np.arange(8000) * 3 % 100 < 85)
    assert (np.sign(resampled)[inside] == expected_sign[inside]).all()


def test_200_ms_pieces_give_audio_from_the_first_on() -> None:
    assert len(StreamResampler(22050, 8000).process(noise(4410))) >= 2 * 8000 * 0.1


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of element size"):
        StreamResampler(22050, 8000).process(b"\0")
