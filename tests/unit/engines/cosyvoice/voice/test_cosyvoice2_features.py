"""Features against those of the reference, and against what they must be by definition."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.engines.cosyvoice.voice import features
from tests.support.golden import GOLDEN, Arrays, read_arrays

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def golden() -> Arrays:
    if not (GOLDEN / "features.npz").exists():
        pytest.skip("the reference outputs are not in tests/data/golden")
    return read_arrays("features.npz")


def tone(hz: float, rate_hz: int, seconds: float) -> npt.NDArray[np.float32]:
    wave: npt.NDArray[np.float32] = (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate_hz * seconds)) / rate_hz)).astype(
        np.float32
    )
    return wave


def test_the_tokenizers_log_mel_is_the_references(golden: Arrays) -> None:
    computed = features.whisper_log_mel(golden["audio_16k"])
    np.testing.assert_allclose(computed, golden["whisper_log_mel_128"][0], rtol=0, atol=2e-5)


def test_the_flows_reference_mel_is_the_references(golden: Arrays) -> None:
    computed = features.reference_mel(golden["audio_24k"])
    np.testing.assert_allclose(computed, golden["mel_24k"][0].T, rtol=0, atol=2e-5)


def test_the_speaker_encoders_filter_bank_is_the_references(golden: Arrays) -> None:
    computed = features.kaldi_fbank(golden["audio_16k"])
    expected = golden["kaldi_fbank_80"]
    # where one bin is far below the others of its frame, the reference's own float32 rounding shows
    difference = np.abs(computed - expected)
    assert difference.max() < 5e-4
    assert np.quantile(difference, 0.99) < 5e-5


@pytest.mark.parametrize(
    ("function", "rate_hz", "shape"),
    [
        (features.whisper_log_mel, 16_000, (128, 125)),
        (features.kaldi_fbank, 16_000, (123, 80)),
        (features.reference_mel, 24_000, (62, 80)),
    ],
)
def test_shapes_follow_from_the_length(function: Any, rate_hz: int, shape: tuple[int, int]) -> None:
    computed = function(tone(440.0, rate_hz, 1.25))
    assert computed.shape == shape
    assert computed.dtype == np.float32


@pytest.mark.parametrize("function", [features.whisper_log_mel, features.kaldi_fbank, features.reference_mel])
def test_silence_gives_finite_numbers(function: Any) -> None:
    assert np.isfinite(function(np.zeros(24_000, dtype=np.float32))).all()


def test_a_tone_lands_in_its_bin() -> None:
    low, high = (features.reference_mel(tone(hz, 24_000, 0.5)).mean(axis=0).argmax() for hz in (300.0, 6000.0))
    assert low < 15
    assert high > 65


@pytest.mark.parametrize(
    "rates", [(48_000, 16_000), (44_100, 24_000), (22_050, 16_000), (16_000, 24_000), (44_101, 16_000)]
)
def test_resampling_keeps_a_tone(rates: tuple[int, int]) -> None:
    source, target = rates
    resampled = features.resample(tone(1000.0, source, 0.5), source, target)
    assert len(resampled) == -(-(source // 2) * target // source)
    middle = slice(target // 20, -target // 20)
    expected = tone(1000.0, target, 0.5)[: len(resampled)][middle]
    np.testing.assert_allclose(resampled[: target // 2][middle], expected, rtol=0, atol=1e-3)


def test_resampling_removes_what_the_lower_rate_cannot_carry() -> None:
    resampled = features.resample(tone(12_000.0, 48_000, 0.5), 48_000, 16_000)
    assert np.abs(resampled[400:-400]).max() < 2e-3


def test_resampling_is_the_windowed_sinc_of_its_definition() -> None:
    rng = np.random.default_rng(5)
    audio = rng.standard_normal(400).astype(np.float32)
    source, target = 44_100, 16_000
    cutoff = target * 0.99 / source  # in samples of the input
    expected = []
    for n in range(-(-len(audio) * target // source)):
        at = np.clip((np.arange(len(audio)) - n * source / target) * cutoff, -6.0, 6.0)
        expected.append(np.sum(audio * np.sinc(at) * np.cos(at * np.pi / 12) ** 2 * cutoff))
    np.testing.assert_allclose(features.resample(audio, source, target), expected, rtol=0, atol=5e-5)


def test_resampling_is_the_same_across_its_blocks() -> None:
    rng = np.random.default_rng(6)
    audio = rng.standard_normal(60_000).astype(np.float32)
    whole = features.resample(audio, 16_000, 24_000)
    late = features.resample(audio[20_000:], 16_000, 24_000)
    np.testing.assert_allclose(whole[30_100:], late[100:], rtol=0, atol=1e-6)


def test_the_same_rate_changes_nothing() -> None:
    audio = tone(440.0, 16_000, 0.1)
    np.testing.assert_array_equal(features.resample(audio, 16_000, 16_000), audio)
