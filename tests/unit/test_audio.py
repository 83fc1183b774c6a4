"""Milliseconds, samples and bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.audio import AudioFormat

pytestmark = pytest.mark.unit

RATES = st.sampled_from([8000, 11025, 16000, 22050, 24000, 44100, 48000])


@pytest.mark.parametrize(("rate_hz", "frame_bytes"), [(8000, 320), (16000, 640), (24000, 960), (22050, 882)])
def test_a_frame_is_20_ms(rate_hz: int, frame_bytes: int) -> None:
    audio_format = AudioFormat(rate_hz)
    assert audio_format.frame_bytes == frame_bytes


@given(RATES, st.floats(0, 1e6))
def test_there_and_back_is_within_half_a_sample(rate_hz: int, ms: float) -> None:
    audio_format = AudioFormat(rate_hz)
    num_bytes = audio_format.bytes_for_ms(ms)
    assert num_bytes % 2 == 0
    assert audio_format.ms_for_bytes(num_bytes) == pytest.approx(ms, abs=500 / rate_hz + 1e-6)
    assert audio_format.ms_for_samples(audio_format.samples_for_ms(ms)) == audio_format.ms_for_bytes(num_bytes)


@pytest.mark.parametrize("rate_hz", [0, -8000])
def test_a_rate_is_positive(rate_hz: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        AudioFormat(rate_hz)
