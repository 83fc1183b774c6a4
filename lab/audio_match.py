"""Whether a recording holds a reference, and what is wrong with it: content comparison of 16-bit mono PCM.

One G.711 pass gives a correlation of 0.9999 and an SNR near 37 dB; anything less is a fault or a slip.
"""

import math
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]
LOUD = 1000
"""Largest sample, from which on a piece is taken for speech."""
ALIKE = 0.98
"""Correlation of a piece with itself after G.711 twice and a mixer."""
_RATE_HZ = 8000
_SILENT = 8
_LOUD = 32
_MIN_GAP_MS = 10.0
_MIN_EXCESS_DB = 20.0


@dataclass(frozen=True, slots=True)
class Match:
    """Best position of the reference in the recording. ``offset_ms`` below 0: the head of the reference is missing."""

    offset_ms: float
    corr: float
    snr_db: float
    gain: float
    overlap_ms: float
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the recording, ms from its start."""

    start_ms: float
    end_ms: float

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.start_ms


def samples(pcm: bytes) -> Samples:
    """16-bit little-endian PCM as an array."""
    return np.frombuffer(pcm, "<i2")


def read_wav(path: Path) -> tuple[Samples, int]:
    """Samples and rate of a mono 16-bit WAV file."""
    with wave.open(str(path), "rb") as file:
        if file.getnchannels() != 1 or file.getsampwidth() != 2:
            raise ValueError(f"{path}: mono 16-bit expected")
        return samples(file.readframes(file.getnframes())), file.getframerate()


def find(reference: Samples, recording: Samples, *, rate_hz: int = 8000) -> Match:
    """Find the reference by normalised cross-correlation. Nothing found is a correlation near 0, not an error."""
    duration_ms = len(recording) * 1000 / rate_hz
    nothing = Match(0.0, 0.0, -math.inf, 0.0, 0.0, duration_ms)
    if not reference.any() or not recording.any():
        return nothing
    ref, rec = reference.astype(np.float64), recording.astype(np.float64)
    size = 1 << (len(ref) + len(rec)).bit_length()
    cross = np.fft.irfft(np.fft.rfft(rec, size) * np.conj(np.fft.rfft(ref, size)), size)
    lag = int(np.argmax(cross))
    if lag >= len(rec):  # the circle's other end
        lag -= size
    skip = max(0, -lag)
    start = max(0, lag)
    overlap = min(len(ref) - skip, len(rec) - start)
    if overlap <= 0:
        return nothing
    a, b = ref[skip : skip + overlap], rec[start : start + overlap]
    energy_a, energy_b, both = float(a @ a), float(b @ b), float(a @ b)
    if energy_a == 0 or energy_b == 0:
        return nothing
    gain = both / energy_a
    noise = b - gain * a
    energy_noise = float(noise @ noise)
    snr_db = math.inf if energy_noise == 0 else 10 * math.log10(gain * gain * energy_a / energy_noise)
    to_ms = 1000 / rate_hz
    return Match(lag * to_ms, both / math.sqrt(energy_a * energy_b), snr_db, gain, overlap * to_ms, duration_ms)


def aligned(reference: Samples, recording: Samples) -> Samples:
    """The part of the recording that lies under the reference, as long as the reference; silence where it has none."""
    lag = round(find(reference, recording).offset_ms * _RATE_HZ / 1000)
    out = np.zeros(len(reference), np.int16)
    first, last = max(0, -lag), min(len(reference), len(recording) - lag)
    if last > first:
        out[first:last] = recording[first + lag : last + lag]
    return out


def pieces_heard(
    reference: Samples, recording: Samples, *, slip_ms: float = 0.0, piece_ms: float = 100.0
) -> list[bool]:
    """Of each piece of the reference that speaks whether it is in the recording, at its own place give or take ``slip_ms``.

    For what passed a mixer with a clock of its own: it may put in or leave out a frame, which moves all that follows.
    """
    slip, piece = (round(ms * _RATE_HZ / 1000) for ms in (slip_ms, piece_ms))
    lag = round(find(reference, recording).offset_ms * _RATE_HZ / 1000)
    heard = []
    for start in range(0, len(reference) - piece + 1, piece):
        part = reference[start : start + piece].astype(np.float64)
        if np.abs(part).max() <= LOUD:
            continue
        first = max(0, start + lag - slip)
        window = recording[first : max(0, start + lag + piece + slip)].astype(np.float64)
        if len(window) < piece:
            heard.append(False)
            continue
        both = np.correlate(window, part, "valid")  # for each place in the window
        energies = np.convolve(window * window, np.ones(piece), "valid")
        heard.append(bool((both > ALIKE * np.sqrt(np.maximum(energies, 1.0) * (part @ part))).any()))
    return heard


def share_heard(reference: Samples, recording: Samples, *, slip_ms: float = 0.0, piece_ms: float = 100.0) -> float:
    """Share of :func:`pieces_heard`; 0 of a reference that does not speak."""
    heard = pieces_heard(reference, recording, slip_ms=slip_ms, piece_ms=piece_ms)
    return sum(heard) / len(heard) if heard else 0.0


def silences(signal: Samples, *, min_ms: float) -> list[Span]:
    """Runs of digital silence at 8 kHz. G.711's smallest steps around zero are 8; anything at or under that is silence."""
    quiet = np.abs(signal.astype(np.int32)) <= _SILENT
    edges = np.flatnonzero(np.diff(np.concatenate(([0], quiet.astype(np.int8), [0]))))
    runs = edges.reshape(-1, 2)
    to_ms = 1000 / _RATE_HZ
    return [Span(float(s) * to_ms, float(e) * to_ms) for s, e in runs if (e - s) * to_ms >= min_ms]


def find_gaps(reference: Samples, recording: Samples) -> list[Span]:
    """Runs of 10 ms of silence or more in the recording under the reference where the reference is not silent.

    Positions are ms from the start of the reference. A run that the reference has too, give or take its
    edges, is no gap: what counts is how long the reference speaks meanwhile.
    """
    heard = aligned(reference, recording)
    loud = np.abs(reference.astype(np.int32)) > _LOUD
    gaps = []
    for run in silences(heard, min_ms=_MIN_GAP_MS):
        part = loud[round(run.start_ms * _RATE_HZ / 1000) : round(run.end_ms * _RATE_HZ / 1000)]
        if float(np.count_nonzero(part)) * 1000 / _RATE_HZ >= _MIN_GAP_MS / 2:
            gaps.append(run)
    return gaps


def find_clicks(reference: Samples, recording: Samples) -> list[float]:
    """Positions (ms from the start of the reference) where the recording departs from it for a few samples.

    The difference of the two is cut into 1 ms pieces; a piece far louder than G.711's own noise there is a click.
    Pieces that touch are one click.
    """
    heard = aligned(reference, recording).astype(np.float64)
    ref = reference.astype(np.float64)
    piece = _RATE_HZ // 1000
    count = len(ref) // piece
    if count == 0:
        return []
    error = np.abs(heard - ref)[: count * piece].reshape(count, piece).max(axis=1)
    # G.711 rounds a sample x by at most |x|/32 (half a step of 1/16) and by 8 near zero
    level = np.abs(ref)[: count * piece].reshape(count, piece).max(axis=1)
    allowed = (level / 32 + 8) * 10 ** (_MIN_EXCESS_DB / 20)
    hits = np.flatnonzero(error > allowed)
    starts = [int(hit) for index, hit in enumerate(hits) if index == 0 or hit - hits[index - 1] > 1]
    return [start * piece * 1000 / _RATE_HZ for start in starts]
