"""Pitch, and the excitation that the vocoder shapes into speech (§5.1, §5.2). Everything here is float32, always."""

import math
from collections.abc import Callable, Sequence
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.sizes import VocoderConfig

_SINE_AMPLITUDE: Final = 0.1
_NOISE_AMPLITUDE: Final = 0.003
_VOICED_HZ: Final = 10.0


class F0Predictor(nn.Module):
    """The pitch of each mel frame (§5.1)."""

    def __init__(self, convs: Sequence[nn.Conv1d]) -> None:
        super().__init__()
        self.condnet = nn.ModuleDict({str(2 * index): conv for index, conv in enumerate(convs)})
        self.classifier = nn.Linear(convs[-1].out_channels, 1)

    def forward(self, mel: Tensor, convolve: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """Pitch in Hz, a number for each frame that ``convolve`` leaves of ``mel`` [B, mels, T]."""
        x = mel
        for conv in self.condnet.values():
            x = functional.elu(convolve(conv, x))
        return cast("Tensor", self.classifier(x.transpose(1, 2))).squeeze(-1).abs()


def exactly_convolved(outside: Tensor | None, conv: nn.Module, x: Tensor) -> Tensor:
    """A convolution of [B, C, T] as a linear map of inputs side by side: in whole float32. cuDNN takes TF32 by itself, whose
    10 bits are an audible part of a pitch (§5.1). ``outside`` as of :func:`blank`.
    """
    assert isinstance(conv, nn.Conv1d)
    (kernel,) = conv.kernel_size
    padded = functional.pad(x, (kernel // 2, kernel // 2))
    shifted = torch.stack(
        [padded[:, :, first : first + x.shape[2]] for first in range(kernel)], dim=2
    )  # [B, C, kernel, T]
    weight = conv.weight.flatten(1).expand(x.shape[0], -1, -1)  # [B, out, C * kernel]
    assert conv.bias is not None
    return blank(torch.baddbmm(conv.bias[:, None], weight, shifted.flatten(1, 2)), outside)


class Source(nn.Module):
    """Harmonics of the pitch, and noise where there is none (§5.2)."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.l_linear = nn.Linear(config.num_harmonics, 1)

    def forward(self, f0: Tensor, noise: Tensor | None) -> Tensor:
        """Excitation [B, 1, hop T] of a pitch ``f0`` in Hz, [B, T], zero behind the end of a row. ``noise``: standard normal
        numbers, [B, hop T, harmonics]; None for zeros.
        """
        hop = self.config.hop_samples
        phase = self._phase(f0).transpose(1, 2)  # [B, hop T, harmonics]
        return self.excited(f0.repeat_interleave(hop, dim=1)[..., None], phase, noise).transpose(1, 2)

    def excited(self, f0: Tensor, phase: Tensor, noise: Tensor | None) -> Tensor:
        """Excitation [..., 1] of harmonics at a ``phase`` [..., harmonics], where there is a pitch ``f0`` [..., 1]."""
        voiced = (f0 > _VOICED_HZ).to(torch.float32)
        excitation = _SINE_AMPLITUDE * phase.sin() * voiced
        if noise is not None:
            amplitude = voiced * _NOISE_AMPLITUDE + (1 - voiced) * _SINE_AMPLITUDE / 3
            excitation = excitation + amplitude * noise
        return cast("Tensor", self.l_linear(excitation)).tanh()

    def turns(self, f0: Tensor) -> Tensor:
        """Turns of each harmonic in one sample, less whole ones: [B, T, harmonics]."""
        harmonics = torch.arange(1, self.config.num_harmonics + 1, dtype=f0.dtype, device=f0.device)
        return f0[..., None] * harmonics / self.config.sample_rate_hz % 1

    def _phase(self, f0: Tensor) -> Tensor:
        """Phase within one turn, [B, harmonics, hop T]: whole turns are taken off in float64 before anything is rounded."""
        hop = self.config.hop_samples
        turns = self.turns(f0.to(torch.float64)).transpose(1, 2) * hop  # [B, harmonics, T]: turns of each frame
        ends = turns.cumsum(dim=2)
        # Half a frame lies on either side of the middle: towards the frame before, and towards the frame after.
        offsets = (torch.arange(hop, dtype=torch.float64, device=f0.device) + 0.5) / hop - 0.5  # [hop]
        before = functional.pad(turns[..., 1:], (1, 0))  # the first frame has none before it: the phase stands
        after = functional.pad(turns[..., 1:], (0, 1))
        slope = torch.where(offsets < 0, before[..., None], after[..., None])  # [B, harmonics, T, hop]
        phase = (ends[..., None] % 1 + offsets * slope) % 1
        return (phase.flatten(2) * (2 * math.pi)).to(torch.float32)


def blank(x: Tensor, outside: Tensor | None) -> Tensor:
    """``x`` [B, C, T] with zeros where ``outside`` [B, 1, T] is true: a row then ends as if nothing followed."""
    return x if outside is None else x.masked_fill(outside, 0.0)
