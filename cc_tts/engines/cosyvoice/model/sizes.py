"""Sizes of the three networks (§2), read off the tensors of ``llm.pt``, ``flow.pt`` and ``hift.pt``.

The defaults are those of CosyVoice2-0.5B, and in the classes that only the third generation has those of
Fun-CosyVoice3-0.5B. A size that the tensors of a file do not show keeps its default, so that a file that lacks tensors is
reported with the names of those. No torch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, Self

from cc_tts.engines.cosyvoice.model.networks.lm.inputs import SpeechIds

Shape = tuple[int, ...]
Shapes = Mapping[str, Sequence[int]]
Part = Literal["llm", "flow", "hift"]
Generation = Literal[2, 3]

PARTS: Final[tuple[Part, ...]] = ("llm", "flow", "hift")
TIED_HEAD: Final = "llm.model.lm_head.weight"
TEXT_EMBEDDING: Final = "llm.model.model.embed_tokens.weight"

_LAYER: Final = "llm.model.model.layers.0."
_CONFORMER: Final = "encoder.encoders.0."
_UNET: Final = "decoder.estimator."
_BLOCK: Final = _UNET + "down_blocks.0.1.0."
_DIT: Final = "decoder.estimator."
_DIT_BLOCK: Final = _DIT + "transformer_blocks.0."
_FIRST_UP: Final = "ups.0.parametrizations.weight.original1"
_MAX_SIZE: Final = 1 << 20  # unmeasured
_MIN_CHANNELS: Final = 8  # of the vocoder, halved three times; unmeasured
_MAX_DIGITS: Final = 2  # no stack has a hundred layers; unmeasured

_Place = str | tuple[str, int]
"""Where a size is found: the axis of a tensor, or the prefix of a stack of layers, which are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LmConfig:
    generation: Generation = 2
    hidden_size: int = 896
    intermediate_size: int = 4864
    num_layers: int = 24
    query_size: int = 896
    key_size: int = 128
    head_dim: int = 64  # leaves no trace in the tensors
    text_vocab_size: int = 151_936
    num_speech_codes: int = 6561
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-6

    @property
    def num_kv_heads(self) -> int:
        return self.key_size // self.head_dim

    @property
    def speech_ids(self) -> SpeechIds:
        return SpeechIds(self.num_speech_codes, self.generation)

    @classmethod
    def of(cls, found: Shapes, head_dim: int = 64) -> Self:
        """Read the sizes off the shapes of ``llm.pt``."""
        sizes = _read(
            found,
            hidden_size=(TEXT_EMBEDDING, 1),
            intermediate_size=(_LAYER + "mlp.gate_proj.weight", 0),
            num_layers="llm.model.model.layers.",
            query_size=(_LAYER + "self_attn.q_proj.weight", 0),
            key_size=(_LAYER + "self_attn.k_proj.weight", 0),
            text_vocab_size=(TEXT_EMBEDDING, 0),
            num_speech_codes=("speech_embedding.weight", 0),
        )
        generation = generation_of("llm", found)
        if "num_speech_codes" in sizes:
            sizes["num_speech_codes"] = max(0, sizes["num_speech_codes"] - SpeechIds(0, generation).num_special)
        return cls(generation=generation, head_dim=head_dim, **sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Sizes of the flow's encoder in the second generation."""

    width: int = 512
    num_heads: int = 8
    num_hidden: int = 2048
    num_layers: int = 6
    num_up_layers: int = 4
    lookahead: int = 3
    lookahead_kernel: int = 3
    up_kernel: int = 5

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads

    @property
    def lookahead_hidden(self) -> int:
        """Width between the two convolutions of the lookahead layer."""
        return self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class LookaheadConfig:
    """Sizes of the lookahead layer, which is all that the third generation has before its estimator."""

    width: int = 80
    lookahead_hidden: int = 1024
    lookahead: int = 3
    lookahead_kernel: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorConfig:
    """Sizes of the flow's estimator in the second generation, a U-Net."""

    num_mels: int = 80
    channels: int = 256
    num_time: int = 1024
    num_hidden: int = 1024
    num_attention: int = 512
    head_dim: int = 64  # leaves no trace in the tensors
    num_blocks: int = 4
    num_mid_blocks: int = 12

    @property
    def in_channels(self) -> int:
        """State, hidden frames, speaker and prompt, side by side."""
        return 4 * self.num_mels


@dataclass(frozen=True, slots=True, kw_only=True)
class DitConfig:
    """Sizes of the flow's estimator in the third generation, a diffusion transformer."""

    num_mels: int = 80
    width: int = 1024
    num_blocks: int = 22
    head_dim: int = 64
    num_hidden: int = 2048
    num_sinusoids: int = 256  # that a moment becomes
    kernel: int = 31  # of the two convolutions that tell positions
    num_groups: int = 16  # of theirs

    @property
    def in_channels(self) -> int:
        """State, prompt, hidden frames and speaker, side by side."""
        return 4 * self.num_mels


FLOW_STEPS: Final = 10
"""Euler steps of the reference (§4.6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    vocab_size: int = 6561
    num_embedding: int = 192  # of the speaker embedding
    encoder: EncoderConfig | LookaheadConfig = field(default_factory=EncoderConfig)
    estimator: EstimatorConfig | DitConfig = field(default_factory=EstimatorConfig)
    chunk_tokens: int = 25
    num_steps: int = FLOW_STEPS
    context_chunks: int = 0  # before its own that each chunk sees, besides the first; 0: all
    guidance: float = 0.7

    @property
    def chunk_frames(self) -> int:
        """Mel frames of a chunk of the mask, two a token."""
        return 2 * self.chunk_tokens

    @classmethod
    def of(cls, found: Shapes, head_dim: int = 64) -> Self:
        """Read the sizes off the shapes of ``flow.pt``; ``head_dim`` is that of the U-Net, which they do not show."""
        if generation_of("flow", found) == 3:  # noqa: PLR2004 - the third generation
            return cls._of_dit(found)
        encoder = _read(
            found,
            width=("input_embedding.weight", 1),
            num_heads=(_CONFORMER + "self_attn.pos_bias_u", 0),
            num_hidden=(_CONFORMER + "feed_forward.w_1.weight", 0),
            num_layers="encoder.encoders.",
            num_up_layers="encoder.up_encoders.",
        )
        estimator = _read(
            found,
            channels=(_UNET + "final_proj.weight", 1),
            num_time=(_UNET + "time_mlp.linear_1.weight", 0),
            num_hidden=(_BLOCK + "ff.net.0.proj.weight", 0),
            num_attention=(_BLOCK + "attn1.to_q.weight", 0),
            num_blocks=_UNET + "down_blocks.0.1.",
            num_mid_blocks=_UNET + "mid_blocks.",
        )
        return cls(
            encoder=EncoderConfig(**encoder),
            estimator=EstimatorConfig(head_dim=head_dim, **estimator),
            **_read(found, vocab_size=("input_embedding.weight", 0)),
        )

    @classmethod
    def _of_dit(cls, found: Shapes) -> Self:
        encoder = _read(
            found, width=("input_embedding.weight", 1), lookahead_hidden=("pre_lookahead_layer.conv1.weight", 0)
        )
        estimator = _read(
            found,
            width=(_DIT + "input_embed.proj.weight", 0),
            num_blocks=_DIT + "transformer_blocks.",
            head_dim=(_DIT + "rotary_embed.inv_freq", 0),
            num_hidden=(_DIT_BLOCK + "ff.ff.0.0.weight", 0),
            num_sinusoids=(_DIT + "time_embed.time_mlp.0.weight", 1),
        )
        if "head_dim" in estimator:
            estimator["head_dim"] *= 2  # a pair of channels turns by the same angle
        return cls(
            encoder=LookaheadConfig(**encoder),
            estimator=DitConfig(**estimator),
            **_read(found, vocab_size=("input_embedding.weight", 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VocoderConfig:
    """Sizes and constants of the vocoder; tuples have one entry a stage of upsampling, or one a residual block."""

    generation: Generation = 2
    num_mels: int = 80
    channels: int = 512  # before the first stage; each stage halves them
    up_kernels: tuple[int, ...] = (16, 11, 7)
    up_rates: tuple[int, ...] = (8, 5, 3)
    res_kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[int, ...] = (1, 3, 5)
    source_kernels: tuple[int, ...] = (30, 6, 1)
    source_strides: tuple[int, ...] = (15, 3, 1)
    source_res_kernels: tuple[int, ...] = (7, 7, 11)
    first_kernel: int = 7  # of the first convolution
    edge_kernel: int = 7  # of the last convolution
    n_fft: int = 16  # of the spectra that the network makes; their hop is a quarter
    num_hidden_f0: int = 512
    num_convs_f0: int = 5
    kernel_f0: int = 3
    first_kernel_f0: int = 3
    num_harmonics: int = 9  # the fundamental included
    sample_rate_hz: int = 24_000
    hop_samples: int = 480

    @classmethod
    def of(cls, found: Shapes) -> Self:
        """Read the sizes off the shapes of ``hift.pt``."""
        sizes = _read(found, channels=("conv_pre.bias", 0), num_hidden_f0=("f0_predictor.classifier.weight", 1))
        if sizes.get("channels", _MIN_CHANNELS) < _MIN_CHANNELS:
            del sizes["channels"]
        return cls(**sizes, **(CAUSAL if generation_of("hift", found) == 3 else {}))  # noqa: PLR2004 - the third generation


CAUSAL: Final[Mapping[str, Any]] = {"generation": 3, "first_kernel": 5, "first_kernel_f0": 4}
"""The sizes in which the vocoder of the third generation differs: its convolutions look to one side (§5 of version 3)."""


def generation_of(part: Part, found: Shapes) -> Generation:
    """Return which generation the tensors of a file are of: the third if they show it, else the second."""
    if part == "llm":
        is_third = "speech_embedding.weight" in found and not {"llm_embedding.weight", "llm_decoder.bias"} & set(found)
    elif part == "flow":
        is_third = any(key.startswith(_DIT + "transformer_blocks.") for key in found)
    else:  # a plain convolution is [out, in, kernel], a transposed one [in, out, kernel]
        first_up = found.get(_FIRST_UP, (0, 0))
        is_third = first_up[0] < first_up[1]
    return 3 if is_third else 2


def _read(found: Shapes, **places: _Place) -> dict[str, Any]:
    sizes = {
        name: _count(found, place) if isinstance(place, str) else _dim(found, *place) for name, place in places.items()
    }
    return {name: size for name, size in sizes.items() if 0 < size <= _MAX_SIZE}


def _dim(found: Shapes, key: str, axis: int) -> int:
    shape = found.get(key, ())
    return shape[axis] if axis < len(shape) else 0


def _count(found: Shapes, prefix: str) -> int:
    """One more than the highest number that follows ``prefix``."""
    numbers = (key.removeprefix(prefix).partition(".")[0] for key in found if key.startswith(prefix))
    return 1 + max((int(number) for number in numbers if number.isdecimal() and len(number) <= _MAX_DIGITS), default=-1)


def differences(config: LmConfig | FlowConfig | VocoderConfig) -> list[str]:
    """Return the differences between the sizes and the published ones of their generation, in words; empty if there are
    none.
    """
    if isinstance(config, LmConfig):
        as_published: LmConfig | FlowConfig | VocoderConfig = LmConfig(generation=config.generation)
    elif isinstance(config, FlowConfig):
        as_published = FlowConfig(encoder=type(config.encoder)(), estimator=type(config.estimator)())
    else:
        as_published = VocoderConfig(**(CAUSAL if config.generation == 3 else {}))  # noqa: PLR2004 - the third generation
    ours, published = _flat(asdict(config)), _flat(asdict(as_published))
    return [f"{name} {ours[name]}, published {published[name]}" for name in ours if ours[name] != published[name]]


def _flat(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of the parts of a network as ``part.size``."""
    flat: dict[str, Any] = {}
    for name, value in sizes.items():
        flat |= {f"{name}.{inner}": size for inner, size in value.items()} if isinstance(value, dict) else {name: value}
    return flat
