"""Sizes and constants of the vocoder (§2), read off the shapes of a state dict."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from cc_tts.engines.cosyvoice2.model.networks.layers import count_entries, folded_shapes
from cc_tts.engines.cosyvoice2.model.networks.vocoder.source import SourceConfig


@dataclass(frozen=True, slots=True)
class VocoderConfig:
    """Sizes and constants of the vocoder (§2); tuples have one entry a stage of upsampling, or one a residual block."""

    num_mels: int
    channels: tuple[int, ...]  # before the first stage and after each
    up_kernels: tuple[int, ...]
    up_rates: tuple[int, ...]
    res_kernels: tuple[int, ...]
    source_kernels: tuple[int, ...]
    source_strides: tuple[int, ...]
    source_res_kernels: tuple[int, ...]
    num_dilations: int
    edge_kernels: tuple[int, int]  # of the first and the last convolution
    n_fft: int
    num_hidden_f0: int
    num_convs_f0: int
    kernel_f0: int
    num_harmonics: int
    sample_rate_hz: int = 24_000
    hop_samples: int = 480

    @property
    def stft_hop(self) -> int:
        """Samples between the spectra that the network makes."""
        return self.n_fft // 4

    @property
    def dilations(self) -> tuple[int, ...]:
        """Dilations in a residual block: 1, 3, 5."""
        return tuple(2 * index + 1 for index in range(self.num_dilations))

    @property
    def source(self) -> SourceConfig:
        """The sizes that pitch and source need."""
        return SourceConfig(
            num_mels=self.num_mels,
            num_hidden=self.num_hidden_f0,
            kernel_size=self.kernel_f0,
            num_convs=self.num_convs_f0,
            num_harmonics=self.num_harmonics,
            sample_rate_hz=self.sample_rate_hz,
            hop_samples=self.hop_samples,
        )

    @classmethod
    def from_state_dict(
        cls,
        shapes: Mapping[str, Sequence[int] | Tensor],
        *,
        hop_samples: int = 480,
        sample_rate_hz: int = 24_000,
    ) -> Self:
        """Read the sizes off the shapes (or the tensors) of ``hift.pt``, weight norm folded or not.

        Raises:
            ValueError: a key is missing, or the rates of upsampling do not make up the hop.

        """
        sizes = folded_shapes(shapes)
        num_stages = count_entries(sizes, "ups.")
        try:
            ups = [sizes[f"ups.{i}.weight"] for i in range(num_stages)]
            downs = [sizes[f"source_downs.{i}.weight"][2] for i in range(num_stages)]
            num_res = count_entries(sizes, "resblocks.") // num_stages
            first, last = sizes["conv_pre.weight"], sizes["conv_post.weight"]
            pitch = sizes["f0_predictor.condnet.0.weight"]
            # A convolution that thins the source out is twice as long as its stride, unless it thins nothing out (§5.3).
            strides = tuple(max(1, kernel // 2) for kernel in downs)
            n_fft = last[0] - 2
            thinning = (hop_samples // (n_fft // 4), *strides)
            config = cls(
                num_mels=first[1],
                channels=(first[0], *(shape[1] for shape in ups)),
                up_kernels=tuple(shape[2] for shape in ups),
                up_rates=tuple(whole // part for whole, part in zip(thinning, strides, strict=False)),
                res_kernels=tuple(sizes[f"resblocks.{i}.convs1.0.weight"][2] for i in range(num_res)),
                source_kernels=tuple(downs),
                source_strides=strides,
                source_res_kernels=tuple(sizes[f"source_resblocks.{i}.convs1.0.weight"][2] for i in range(num_stages)),
                num_dilations=count_entries(sizes, "resblocks.0.convs1."),
                edge_kernels=(first[2], last[2]),
                n_fft=n_fft,
                num_hidden_f0=pitch[0],
                num_convs_f0=count_entries(sizes, "f0_predictor.condnet."),
                kernel_f0=pitch[2],
                num_harmonics=sizes["m_source.l_linear.weight"][1],
                sample_rate_hz=sample_rate_hz,
                hop_samples=hop_samples,
            )
        except (KeyError, ZeroDivisionError) as error:
            raise ValueError(f"not a state dict of the vocoder: {error} is missing") from error
        if math.prod(config.up_rates) * config.stft_hop != hop_samples:
            raise ValueError(
                f"rates {config.up_rates} and a hop of {config.stft_hop} do not make {hop_samples} samples"
            )
        return config
