"""The vocoder: a mel spectrogram becomes 24 kHz audio (§5).

A pitch is read off the mel, harmonics of it make the source, and a stack of upsampling convolutions turns mel and source
into a spectrum, which is turned into samples. The convolutions see both ways; rows of different lengths are therefore
blanked behind their end after each of them.

Weights are plain: weight norm is multiplied out when they are loaded. Pitch and source are float32 always, the rest has
the type of the parameters.

Runs on: the thread that owns the device.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.layers import within
from cc_tts.engines.cosyvoice.model.networks.vocoder.source import F0Predictor, Source, blank, exactly_convolved
from cc_tts.engines.cosyvoice.model.networks.vocoder.spectrum import istft, stft
from cc_tts.engines.cosyvoice.model.sizes import VocoderConfig

UP_SLOPE: Final = 0.1
POST_SLOPE: Final = 0.01
_SNAKE_EPS: Final = 1e-9
MAX_MAGNITUDE: Final = 100.0  # spec §5.3
AUDIO_LIMIT: Final = 0.99


class Snake(nn.Module):
    """``x + sin²(αx) / α``, one α a channel (§5.3)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output, [B, C, T]."""
        alpha = self.alpha[:, None]
        return torch.addcdiv(x, (x * alpha).sin_().square_(), alpha + _SNAKE_EPS)


class VocoderResBlock(nn.Module):
    """Pairs of convolutions, the first of each pair dilated, added to their input (§5.3); ``new_conv`` makes one of a
    dilation.
    """

    def __init__(self, channels: int, dilations: Sequence[int], new_conv: Callable[[int], nn.Conv1d]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(new_conv(dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(new_conv(1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, x: Tensor, convolve: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """Return the output, [B, C, T]."""
        pairs = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for first_snake, first, second_snake, second in pairs:
            x = x + convolve(second, second_snake(convolve(first, first_snake(x))))
        return x


def spectrum_of(made: Tensor) -> Tensor:
    """Real and imaginary parts of what the last convolution gives, [B, n_fft + 2, F]."""
    logs, phases = made.chunk(2, dim=1)
    magnitudes, phases = logs.exp().clamp(max=MAX_MAGNITUDE), phases.sin()
    return torch.cat((magnitudes * phases.cos(), magnitudes * phases.sin()), dim=1)


class Vocoder(nn.Module):
    """Mel frames in, audio out (§5)."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        width, kernel = config.num_hidden_f0, config.kernel_f0
        inputs = (config.num_mels, *(width for _ in range(config.num_convs_f0 - 1)))
        self.f0_predictor = F0Predictor([nn.Conv1d(each, width, kernel, padding=kernel // 2) for each in inputs])
        self.m_source = Source(config)
        first, edge = config.first_kernel, config.edge_kernel
        self.conv_pre = nn.Conv1d(config.num_mels, config.channels, first, padding=first // 2)
        self.ups = nn.ModuleList()
        self.source_downs = nn.ModuleList()
        self.source_resblocks = nn.ModuleList()
        self.resblocks = nn.ModuleList()
        for stage, (kernel, rate) in enumerate(zip(config.up_kernels, config.up_rates, strict=True)):
            width = config.channels >> stage + 1
            self.ups.append(nn.ConvTranspose1d(2 * width, width, kernel, rate, padding=(kernel - rate) // 2))
            long, stride = config.source_kernels[stage], config.source_strides[stage]
            self.source_downs.append(nn.Conv1d(config.n_fft + 2, width, long, stride, padding=stride // 2))
            self.source_resblocks.append(_res_block(width, config.source_res_kernels[stage], config.dilations))
            for size in config.res_kernels:
                self.resblocks.append(_res_block(width, size, config.dilations))
        self.conv_post = nn.Conv1d(width, config.n_fft + 2, edge, padding=edge // 2)

    def f0(self, mel: Tensor, mel_len: Tensor | None = None) -> Tensor:
        """Pitch in Hz, [B, T], of ``mel`` [B, mels, T]; zero behind the end of a row."""
        outside = None if mel_len is None else ~within(mel_len, mel.shape[2])[:, None]
        convolve = functools.partial(exactly_convolved, outside)
        f0 = self.f0_predictor(blank(mel.to(torch.float32), outside), convolve)
        return cast("Tensor", f0 if outside is None else f0.masked_fill(outside[:, 0], 0.0))

    def source(self, f0: Tensor, *, noise: Tensor | None = None) -> Tensor:
        """Excitation [B, 1, hop T] of the pitch ``f0`` [B, T]; ``noise`` [B, hop T, harmonics] is standard normal."""
        return cast("Tensor", self.m_source(f0.to(torch.float32), noise))

    def synthesize(self, mel: Tensor, source: Tensor, mel_len: Tensor | None = None) -> Tensor:
        """Audio [B, hop T] of ``mel`` [B, mels, T] and ``source`` [B, 1, hop T], within ±0.99 (§5.3)."""
        config = self.config
        lengths = mel_len
        num_frames = mel.shape[2]
        num_samples = num_frames * config.hop_samples
        ends = mel.new_full((mel.shape[0],), num_frames, dtype=torch.int64) if lengths is None else lengths
        spectrum = stft(source[:, 0], ends * config.hop_samples, config.n_fft)  # [B, n_fft + 2, F]
        spectrum = spectrum.to(self.conv_pre.weight.dtype)

        def beyond(scale: int, extra: int, width: int) -> Tensor | None:
            return None if lengths is None else ~within(lengths * scale + extra, width)[:, None]

        spectrum = blank(spectrum, beyond(math.prod(config.up_rates), 1, spectrum.shape[2]))
        outside = beyond(1, 0, num_frames)
        x = blank(self.conv_pre(blank(mel.to(self.conv_pre.weight.dtype), outside)), outside)
        scale = 1
        num_kernels = len(config.res_kernels)
        stages = zip(self.ups, self.source_downs, self.source_resblocks, config.up_rates, strict=True)
        for stage, (up, down, source_resblock, rate) in enumerate(stages):
            scale *= rate
            x = blank(up(functional.leaky_relu(x, UP_SLOPE)), beyond(scale, 0, num_frames * scale))
            extra = int(stage == len(self.ups) - 1)
            if extra:
                x = torch.cat((x[:, :, 1:2], x), dim=2)  # one sample mirrored, to match the spectra of the source
            outside = beyond(scale, extra, x.shape[2])
            convolve = functools.partial(_convolved, outside)
            x = x + source_resblock(convolve(down, spectrum), convolve)
            blocks = [block(x, convolve) for block in self.resblocks[stage * num_kernels : (stage + 1) * num_kernels]]
            x = functools.reduce(torch.add, blocks) / num_kernels
        x = self.conv_post(functional.leaky_relu(x, POST_SLOPE)).to(torch.float32)  # [B, n_fft + 2, F]
        audio = istft(spectrum_of(x), ends * config.hop_samples, num_samples, config.n_fft)
        return audio.clamp(-AUDIO_LIMIT, AUDIO_LIMIT)


def _convolved(outside: Tensor | None, conv: nn.Module, x: Tensor) -> Tensor:
    return blank(conv(x), outside)


def _res_block(channels: int, kernel_size: int, dilations: Sequence[int]) -> VocoderResBlock:
    """Pairs of convolutions that see both ways."""

    def new_conv(dilation: int) -> nn.Conv1d:
        padding = dilation * (kernel_size - 1) // 2
        return nn.Conv1d(channels, channels, kernel_size, padding=padding, dilation=dilation)

    return VocoderResBlock(channels, dilations, new_conv)
