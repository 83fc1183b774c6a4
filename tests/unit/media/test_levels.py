"""Active speech level, and the leveller that brings speech to one."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts.audio import AudioFormat
from cc_tts.media.levels import PEAK_DBFS, LoudnessNormalizer, active_level_dbfs

pytestmark = pytest.mark.unit

Samples = np.ndarray[Any, np.dtype[np.int16]]
LINE = AudioFormat(8000)


def pcm(values: Any) -> bytes:
    return bytes(np.clip(np.rint(values), -32768, 32767).astype(np.int16).tobytes())


def samples(data: bytes) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.frombuffer(data, np.int16).astype(np.float64)


def bursts(rms: float, *, rate_hz: int = 8000, pause_s: float = 0.0, num: int = 6) -> Any:
    noise = np.random.default_rng(1).standard_normal((num, rate_hz)) * rms
    return np.concatenate([np.concatenate((burst, np.zeros(round(pause_s * rate_hz)))) for burst in noise])


def dbfs(value: float) -> float:
    return 20 * math.log10(value / 32768)


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("level", [-10, -20, -30, -40])
def test_the_level_of_speech_without_pauses_is_its_power(rate_hz: int, level: float) -> None:
    rms = 32768 * 10 ** (level / 20)
    assert active_level_dbfs(pcm(bursts(rms, rate_hz=rate_hz)), rate_hz) == pytest.approx(level, abs=0.4)


@pytest.mark.parametrize("pause_s", [0.5, 1.0, 3.0])
def test_pauses_do_not_count_beyond_the_hangover(pause_s: float) -> None:
    measured = active_level_dbfs(pcm(bursts(3277, pause_s=pause_s)), 8000)
    assert measured is not None
    hangover_db = 10 * math.log10(
        1.0 / 1.3
    )  # each burst of a second is followed by 0.2 s and the decay of the envelope
    assert measured == pytest.approx(-20 + hangover_db, abs=0.5)


def test_silence_has_no_level() -> None:
    assert active_level_dbfs(bytes(16_000), 8000) is None
    assert active_level_dbfs(b"", 8000) is None


@given(
    st.sampled_from([8000, 22_050, 24_000]),
    st.floats(-20, 30),
    st.lists(st.integers(0, 2500), min_size=1, max_size=12),
    st.integers(0, 1_000_000),
)
@settings(max_examples=60)
def test_any_cutting_gives_the_same_output_and_as_many_samples(
    rate_hz: int, gain_db: float, sizes: list[int], seed: int
) -> None:
    values = np.random.default_rng(seed).standard_normal(sum(sizes)) * 8000
    data = pcm(values)
    whole = LoudnessNormalizer(AudioFormat(rate_hz), gain_db).process(data, last=True)
    assert len(whole) == len(data)
    leveller = LoudnessNormalizer(AudioFormat(rate_hz), gain_db)
    parts, start = [], 0
    for size in sizes:
        parts.append(leveller.process(data[2 * start : 2 * (start + size)]))
        start += size
    assert b"".join([*parts, leveller.process(b"", last=True)]) == whole


def test_the_gain_is_applied_in_place() -> None:
    values = 3000 * np.sin(2 * np.pi * 400 * np.arange(8000) / 8000)
    levelled = samples(LoudnessNormalizer(LINE, 6.0206).process(pcm(values), last=True))
    middle = slice(400, 7600)
    assert np.max(np.abs(levelled[middle] - 2 * values[middle])) < 30, (
        "not shifted: less than a hundredth of its height"
    )


@pytest.mark.parametrize(
    "values",
    [
        32767 * np.sign(np.sin(np.arange(8000) / 20)),
        np.where(np.arange(8000) % 997 == 0, 32767, 0),
        np.random.default_rng(2).standard_normal(8000) * 20_000,
        np.linspace(-32768, 32767, 8000),
        np.full(8000, -32768),
    ],
    ids=["square", "clicks", "noise", "ramp", "rail"],
)
@pytest.mark.parametrize("gain_db", [0.0, 20.0])
def test_no_sample_gets_above_the_ceiling(values: Any, gain_db: float) -> None:
    levelled = samples(LoudnessNormalizer(LINE, gain_db).process(pcm(values), last=True))
    assert dbfs(max(1.0, float(np.max(np.abs(levelled))))) <= PEAK_DBFS + 0.01


def test_the_limiter_turns_down_and_does_not_clip() -> None:
    loud = 30_000 * np.sin(2 * np.pi * 300 * np.arange(4000) / 8000)
    quiet = 3000 * np.sin(2 * np.pi * 300 * np.arange(12_000) / 8000)
    levelled = samples(LoudnessNormalizer(LINE, 0.0).process(pcm(np.concatenate((quiet, loud, quiet))), last=True))
    middle = levelled[13_000:15_000]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    fundamental = int(np.argmax(spectrum))
    harmonics = spectrum[3 * fundamental - 3 : 3 * fundamental + 4].max()
    assert 20 * math.log10(spectrum[fundamental] / harmonics) > 60
    before, after = levelled[2000:10_000], levelled[18_000:26_000]
    assert np.std(before) == pytest.approx(np.std(after), rel=0.01), "the gain is back where nothing is loud"


@pytest.mark.parametrize("offset", [-5000, 5000])
def test_dc_and_rumble_go_and_speech_stays(offset: int) -> None:
    times = np.arange(16_000) / 8000
    speech = 3000 * np.sin(2 * np.pi * 150 * times)
    rumble = 3000 * np.sin(2 * np.pi * 10 * times)
    levelled = samples(LoudnessNormalizer(LINE, 0.0).process(pcm(speech + rumble + offset), last=True))[2000:14_000]
    spectrum = np.abs(np.fft.rfft(levelled * np.hanning(len(levelled)))) / len(levelled)
    assert spectrum[0] < 5
    assert spectrum[15] < 0.25 * spectrum[225], "10 Hz is 13 dB down"
    assert np.std(levelled) == pytest.approx(3000 / math.sqrt(2), rel=0.05)


def test_silence_stays_silence_and_a_silent_part_becomes_it() -> None:
    assert not any(LoudnessNormalizer(LINE, 20.0).process(bytes(3200), last=True))
    assert not any(LoudnessNormalizer(LINE, -math.inf).process(pcm(bursts(3000)), last=True))


@pytest.mark.parametrize("level", [-35, -27, -20, -14])
def test_speech_comes_to_the_target(level: float) -> None:
    data = pcm(bursts(32768 * 10 ** (level / 20), pause_s=0.3))
    measured = active_level_dbfs(data, 8000)
    assert measured is not None
    levelled = LoudnessNormalizer(LINE, -20 - measured).process(data, last=True)
    assert active_level_dbfs(levelled, 8000) == pytest.approx(-20, abs=1.0)
