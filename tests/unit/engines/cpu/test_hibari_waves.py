"""hibari's samples in windows, beside those that hibari makes of all frames at once."""

import numpy as np
import pytest
from hibari import dsp

from cc_tts.engines.cpu.hibari.waves import WINDOW_FRAMES, Frames, windows

pytestmark = pytest.mark.unit

BINS = dsp.N_FFT // 2 + 1


def frames_of(num_frames: int, *, noise: float) -> Frames:
    """Spectra that change from frame to frame, with a pitch that comes and goes."""
    made = np.random.default_rng(num_frames)
    harmonics, harmonic_phase, rest, rest_phase = made.normal(-3.0, 1.0, (4, BINS, num_frames)).astype(np.float32)
    noises = np.full((BINS, num_frames), noise, np.float32)
    pitch = 120.0 + 60.0 * np.sin(np.arange(num_frames) / 9.0)
    pitch[num_frames // 3 : num_frames // 2] = 0.0
    return Frames(harmonics, harmonic_phase, noises, rest, rest_phase, pitch.astype(np.float32))


@pytest.mark.parametrize("num_frames", [1, 3, WINDOW_FRAMES, WINDOW_FRAMES + 1, 3 * WINDOW_FRAMES - 1])
def test_windows_are_the_whole(num_frames: int) -> None:
    frames = frames_of(num_frames, noise=-60.0)
    parts = list(windows(frames, np.random.default_rng(0)))
    whole = dsp.synth(*(each.copy() for each in frames), np.random.default_rng(0))
    joined = np.concatenate(parts)
    assert joined.shape == whole.shape
    assert np.abs(joined - whole).max() <= 1e-6 * max(1.0, np.abs(whole).max())
    assert len(parts[0]) <= WINDOW_FRAMES * dsp.HOP


def test_the_noise_of_windows_is_as_loud_as_that_of_the_whole() -> None:
    frames = frames_of(3 * WINDOW_FRAMES, noise=1.0)
    joined = np.concatenate(list(windows(frames, np.random.default_rng(0))))
    whole = dsp.synth(*(each.copy() for each in frames), np.random.default_rng(0))
    assert np.std(joined) == pytest.approx(np.std(whole), rel=0.02)
