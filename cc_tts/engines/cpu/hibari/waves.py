"""The samples of hibari in windows, so that the first ones are there before the rest of the sentence is made.

hibari's network gives five spectra for a frame of 12.5 ms, and ``hibari.dsp.synth`` makes samples of all frames at once::

    pulses of the pitch ─▸ STFT ─▸ · harmonics ─▸ + noise ─▸ + free phases ─▸ inverse STFT, overlap and add

Only neighbours overlap, so a window of frames gives the samples that all frames give. The noise of a frame is drawn in the
order of frames.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from hibari import dsp

from cc_tts.engines.cpu.samples import Samples

_OVERLAP: Final = dsp.N_FFT // dsp.HOP
"""The number of frames that have a part in a sample."""
WINDOW_FRAMES: Final = 80
"""A second of audio."""
Spectra = npt.NDArray[np.float32]


class Frames(NamedTuple):
    """The outputs of the network, of the shape (bins, frames), the pitch of the shape (frames,), Hz. The names are hibari's:
    logarithms of the magnitudes of harmonics, noise and the rest, and two phases.
    """

    harmonics: Spectra
    harmonic_phase: Spectra
    noise: Spectra
    rest: Spectra
    rest_phase: Spectra
    pitch: Samples


def windows(frames: Frames, noise: np.random.Generator) -> Iterator[Samples]:
    """Samples from -1 to 1, a window at a time; together they are as many as the frames have."""
    num_frames = len(frames.pitch)
    source = np.pad(dsp.pulses(frames.pitch), dsp.N_FFT // 2, mode="reflect")
    added = np.zeros((num_frames + _OVERLAP - 1, dsp.HOP), np.float32)
    weight = _weight(num_frames)
    given = _OVERLAP // 2  # the blocks before the first sample
    for start in range(0, num_frames, WINDOW_FRAMES):
        end = min(start + WINDOW_FRAMES, num_frames)
        blocks = _frames(frames, source, noise, start, end).reshape(end - start, _OVERLAP, dsp.HOP)
        for place in range(_OVERLAP):
            added[start + place : end + place] += blocks[:, place]
        whole = end if end < num_frames else num_frames + _OVERLAP // 2
        if whole > given:
            yield np.divide(added[given:whole], weight[given:whole], dtype=np.float32).reshape(-1)
            given = whole


def _frames(frames: Frames, source: Samples, noise: np.random.Generator, start: int, end: int) -> Any:
    """The windowed samples of some frames, of the shape (frames, N_FFT)."""
    window = source[start * dsp.HOP : (end - 1) * dsp.HOP + dsp.N_FFT]
    steps = np.lib.stride_tricks.sliding_window_view(window, dsp.N_FFT)[:: dsp.HOP]
    spectrum = dsp.rfft(steps * dsp.WIN_SRC, 1)
    part = slice(start, end)
    spectrum *= _polar(
        dsp.ex(frames.harmonics[:, part].T), np.tanh(frames.harmonic_phase[:, part].T) * np.float32(np.pi)
    )
    drawn = noise.standard_normal((*spectrum.shape, 2), dtype=np.float32).view(np.complex64)[..., 0]
    spectrum += drawn * dsp.ex(frames.noise[:, part].T)
    spectrum += _polar(dsp.ex(frames.rest[:, part].T), frames.rest_phase[:, part].T)
    return dsp.irfft(spectrum, dsp.N_FFT, 1) * dsp.WIN


def _polar(magnitude: Spectra, phase: Spectra) -> npt.NDArray[np.complex64]:
    value = np.empty(phase.shape, np.complex64)
    np.cos(phase, out=value.real)
    np.sin(phase, out=value.imag)
    value *= magnitude
    return value


def _weight(num_frames: int) -> Samples:
    """The sum of the squared windows at each sample, in blocks of a hop: constant but for the ends."""
    squares = (dsp.WIN * dsp.WIN).reshape(_OVERLAP, dsp.HOP)
    weight = np.zeros((num_frames + _OVERLAP - 1, dsp.HOP), np.float32)
    for place in range(_OVERLAP):
        weight[place : place + num_frames] += squares[place]
    return np.maximum(weight, np.float32(1e-11))
