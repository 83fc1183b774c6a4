"""Short-time spectra and back, for the few samples a window has in the vocoder (§5.3), rows of different lengths allowed.

Real parts come first, then imaginary ones. A window is so short that the transform is one small matrix product, in float32.
Hop is a quarter of the window, which is a periodic Hann window.
"""

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

_HOPS: Final = 4  # in a window


def stft(samples: Tensor, lengths: Tensor, n_fft: int) -> Tensor:
    """Spectra around every hop, [B, n_fft + 2, S / hop + 1], of float32 ``samples`` [B, S], each row mirrored at its
    own end, which ``lengths`` [B] says. ``n_fft``: samples in a window.
    """
    half = n_fft // 2
    places = torch.arange(-half, samples.shape[1] + half, device=samples.device).abs()  # [S + n_fft]
    last = lengths[:, None] - 1
    places = torch.where(places > last, 2 * last - places, places).clamp(min=0)  # [B, S + n_fft]
    return spectra(samples.gather(1, places), n_fft)


def spectra(samples: Tensor, n_fft: int) -> Tensor:
    """Spectra of every hop of float32 ``samples`` [B, S], as far as there are whole windows: [B, n_fft + 2, F]."""
    windows = samples.unfold(1, n_fft, n_fft // _HOPS)  # [B, F, n_fft]
    return (windows @ _analysis(n_fft, samples.device)).transpose(1, 2)


def istft(spectrum: Tensor, lengths: Tensor, num_samples: int, n_fft: int) -> Tensor:
    """Samples [B, num_samples] of ``spectrum`` [B, n_fft + 2, F], zeros behind each row's ``lengths`` [B].

    Windows overlap and are divided by the sum of their squares, as far as the row has windows. The imaginary parts of the
    lowest and the highest frequency do not count.
    """
    hop, half = n_fft // _HOPS, n_fft // 2
    places = torch.arange(spectrum.shape[2], device=spectrum.device)
    real = places <= (lengths // hop)[:, None]  # [B, F]: a row of n hops has n + 1 windows
    sums, weights = (part[:, half : half + num_samples] for part in overlapped(spectrum, real, n_fft))
    inside = torch.arange(num_samples, device=spectrum.device) < lengths[:, None]
    return torch.where(inside, sums / torch.where(inside, weights, 1.0), 0.0)


def overlapped(spectrum: Tensor, real: Tensor, n_fft: int) -> tuple[Tensor, Tensor]:
    """Add up the windows of ``spectrum`` [B, n_fft + 2, F] that are ``real`` [B, F], and the squares of their weights.

    Both are [B, (F + 3) hop], from the first sample of the first window on.
    """
    windows = spectrum.transpose(1, 2) @ _synthesis(n_fft, spectrum.device)  # [B, F, n_fft]
    windows = windows.masked_fill(~real[..., None], 0.0)
    squares = real[..., None] * _hann(n_fft, spectrum.device).square()
    return _overlap(windows), _overlap(squares)


def _overlap(windows: Tensor) -> Tensor:
    """Add windows [B, F, n_fft] up, each a hop behind the one before: [B, (F + 3) hop]."""
    quarters = windows.reshape(*windows.shape[:2], _HOPS, -1)  # [B, F, 4, hop]
    shifted = [functional.pad(quarters[:, :, q], (0, 0, q, _HOPS - 1 - q)) for q in range(_HOPS)]
    return (shifted[0] + shifted[1] + shifted[2] + shifted[3]).flatten(1)


def _hann(n_fft: int, device: torch.device) -> Tensor:
    return torch.hann_window(n_fft, periodic=True, dtype=torch.float32, device=device)


def _angles(n_fft: int, device: torch.device) -> Tensor:
    """Angle of each sample at each frequency, [n_fft, n_fft / 2 + 1]; whole turns are taken off while they are exact."""
    samples = torch.arange(n_fft, device=device)
    frequencies = torch.arange(n_fft // 2 + 1, device=device)
    return (samples[:, None] * frequencies % n_fft).to(torch.float64) * (2 * math.pi / n_fft)


def _analysis(n_fft: int, device: torch.device) -> Tensor:
    angles = _angles(n_fft, device)
    parts = torch.cat((angles.cos(), -angles.sin()), dim=1)  # [n_fft, n_fft + 2]
    return (parts * _hann(n_fft, device)[:, None]).to(torch.float32)


def _synthesis(n_fft: int, device: torch.device) -> Tensor:
    angles = _angles(n_fft, device)
    counts = torch.full((n_fft // 2 + 1,), 2.0, dtype=torch.float64, device=device)
    counts = counts - functional.pad(
        counts.new_zeros(n_fft // 2 - 1), (1, 1), value=1.0
    )  # both ends stand once, not twice
    parts = torch.cat((counts * angles.cos(), -counts * angles.sin()), dim=1) / n_fft  # [n_fft, n_fft + 2]
    return (parts * _hann(n_fft, device)[:, None]).to(torch.float32).transpose(0, 1)
