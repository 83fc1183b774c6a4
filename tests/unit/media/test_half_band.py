"""Between 8 and 16 kHz."""

import numpy as np
import numpy.typing as npt
import pytest

from cc_tts.media.half_band import HalfBand

pytestmark = pytest.mark.unit

Samples = npt.NDArray[np.int16]


def tone(hz: float, rate_hz: int, num_samples: int) -> Samples:
    return np.round(10_000 * np.sin(2 * np.pi * hz * np.arange(num_samples) / rate_hz)).astype("<i2")


def rms(samples: Samples) -> float:
    return float(np.sqrt(np.mean(samples.astype(float) ** 2)))


def through(pcm: bytes, source_rate_hz: int, target_rate_hz: int, *, size: int = 1 << 20) -> Samples:
    step = HalfBand(source_rate_hz, target_rate_hz)
    parts = [step.process(pcm[at : at + size]) for at in range(0, len(pcm), size)]
    return np.frombuffer(b"".join(parts) + step.process(step.tail), "<i2")


@pytest.mark.parametrize(("source", "target"), [(8000, 16000), (16000, 8000), (8000, 8000), (16000, 16000)])
def test_any_cutting_gives_the_same(source: int, target: int) -> None:
    pcm = np.random.default_rng(1).integers(-20_000, 20_000, 1601).astype("<i2").tobytes()
    whole = through(pcm, source, target)
    for size in (2, 34, 320, 642):
        assert np.array_equal(through(pcm, source, target, size=size), whole)


def test_a_frame_gives_a_frame() -> None:
    up, down = HalfBand(8000, 16000), HalfBand(16000, 8000)
    for _ in range(3):
        assert len(up.process(bytes(320))) == 640
        assert len(down.process(bytes(640))) == 320
    assert up.process(b"") == b""


@pytest.mark.parametrize("hz", [300, 1000, 3400])
def test_speech_passes_there_and_back(hz: int) -> None:
    original = tone(hz, 8000, 8000)
    up = through(original.tobytes(), 8000, 16000)
    assert rms(up[200:-200]) == pytest.approx(rms(original), rel=0.01)
    back = through(up.tobytes(), 16000, 8000)
    assert np.abs(back[31 : 31 + 7900].astype(int) - original[:7900])[100:].max() < 30


@pytest.mark.parametrize("hz", [4700, 6000, 7900])
def test_what_8_khz_cannot_hold_is_taken_out(hz: int) -> None:
    loud = tone(hz, 16000, 16000)
    assert rms(through(loud.tobytes(), 16000, 8000)[200:-200]) < rms(loud) / 1000


def test_other_rates_are_not_for_it() -> None:
    with pytest.raises(ValueError, match="24000"):
        HalfBand(24000, 8000)
