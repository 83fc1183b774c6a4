"""Which tensors the three weight files must hold, from a few dimensions read off the files themselves.

``llm.pt`` (spec §3.6), ``flow.pt`` (§4.8), ``hift.pt`` (§5.4); the defaults are those of CosyVoice2-0.5B (§2).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal

Shape = tuple[int, ...]
Part = Literal["llm", "flow", "hift"]

PARTS: Final[tuple[Part, ...]] = ("llm", "flow", "hift")
TIED_HEAD: Final = "llm.model.lm_head.weight"
TEXT_EMBEDDING: Final = "llm.model.model.embed_tokens.weight"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmDims:
    """What fixes the shapes in ``llm.pt``; the defaults are CosyVoice2-0.5B (spec §2)."""

    hidden: int = 896
    intermediate: int = 4864
    layers: int = 24
    query_width: int = 896
    key_width: int = 128
    text_rows: int = 151_936
    speech_rows: int = 6564

    @classmethod
    def of(cls, found: Mapping[str, Shape]) -> "LlmDims":
        """Read the dimensions off a file."""
        block = "llm.model.model.layers.0."
        return cls(
            hidden=_dim(found, TEXT_EMBEDDING, 1, cls().hidden),
            intermediate=_dim(found, block + "mlp.gate_proj.weight", 0, cls().intermediate),
            layers=_count(found, "llm.model.model.layers.") or cls().layers,
            query_width=_dim(found, block + "self_attn.q_proj.weight", 0, cls().query_width),
            key_width=_dim(found, block + "self_attn.k_proj.weight", 0, cls().key_width),
            text_rows=_dim(found, TEXT_EMBEDDING, 0, cls().text_rows),
            speech_rows=_dim(found, "speech_embedding.weight", 0, cls().speech_rows),
        )

    def shapes(self) -> dict[str, Shape]:
        """Every tensor of ``llm.pt`` (spec §3.6)."""
        h, i = self.hidden, self.intermediate
        result: dict[str, Shape] = {
            "llm_embedding.weight": (2, h),
            "speech_embedding.weight": (self.speech_rows, h),
            "llm_decoder.weight": (self.speech_rows, h),
            "llm_decoder.bias": (self.speech_rows,),
            TEXT_EMBEDDING: (self.text_rows, h),
            TIED_HEAD: (self.text_rows, h),
            "llm.model.model.norm.weight": (h,),
        }
        for layer in range(self.layers):
            at = f"llm.model.model.layers.{layer}."
            for name, width in (("q", self.query_width), ("k", self.key_width), ("v", self.key_width)):
                result |= _affine(f"{at}self_attn.{name}_proj", width, h)
            result |= {
                at + "self_attn.o_proj.weight": (h, self.query_width),
                at + "mlp.gate_proj.weight": (i, h),
                at + "mlp.up_proj.weight": (i, h),
                at + "mlp.down_proj.weight": (h, i),
                at + "input_layernorm.weight": (h,),
                at + "post_attention_layernorm.weight": (h,),
            }
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowDims:
    """What fixes the shapes in ``flow.pt``; the defaults are CosyVoice2-0.5B (spec §2)."""

    codes: int = 6561
    width: int = 512
    heads: int = 8
    feed_forward: int = 2048
    layers: int = 6
    up_layers: int = 4
    mel: int = 80
    speaker: int = 192
    channels: int = 256
    attention_width: int = 512
    time_width: int = 1024
    inner: int = 1024
    blocks: int = 4
    mid_blocks: int = 12

    @classmethod
    def of(cls, found: Mapping[str, Shape]) -> "FlowDims":
        """Read the dimensions off a file."""
        layer, unet = "encoder.encoders.0.", "decoder.estimator."
        block = unet + "down_blocks.0.1.0."
        return cls(
            codes=_dim(found, "input_embedding.weight", 0, cls().codes),
            width=_dim(found, "input_embedding.weight", 1, cls().width),
            heads=_dim(found, layer + "self_attn.pos_bias_u", 0, cls().heads),
            feed_forward=_dim(found, layer + "feed_forward.w_1.weight", 0, cls().feed_forward),
            layers=_count(found, "encoder.encoders.") or cls().layers,
            up_layers=_count(found, "encoder.up_encoders.") or cls().up_layers,
            channels=_dim(found, unet + "final_proj.weight", 1, cls().channels),
            attention_width=_dim(found, block + "attn1.to_q.weight", 0, cls().attention_width),
            time_width=_dim(found, unet + "time_mlp.linear_1.weight", 0, cls().time_width),
            inner=_dim(found, block + "ff.net.0.proj.weight", 0, cls().inner),
            blocks=_count(found, unet + "down_blocks.0.1.") or cls().blocks,
            mid_blocks=_count(found, unet + "mid_blocks.") or cls().mid_blocks,
        )

    def shapes(self) -> dict[str, Shape]:
        """Every tensor of ``flow.pt`` (spec §4.8)."""
        w = self.width
        result: dict[str, Shape] = {"input_embedding.weight": (self.codes, w)}
        result |= _affine("spk_embed_affine_layer", self.mel, self.speaker) | _affine("encoder_proj", self.mel, w)
        for embed in ("encoder.embed.out", "encoder.up_embed.out"):
            result |= _affine(f"{embed}.0", w, w) | _affine(f"{embed}.1", w)
        result |= _affine("encoder.after_norm", w) | _affine("encoder.up_layer.conv", w, w, 5)
        result |= _affine("encoder.pre_lookahead_layer.conv1", w, w, 4)
        result |= _affine("encoder.pre_lookahead_layer.conv2", w, w, 3)
        for stack, layers in (("encoders", self.layers), ("up_encoders", self.up_layers)):
            for layer in range(layers):
                result |= self._conformer(f"encoder.{stack}.{layer}.")
        return result | self._estimator("decoder.estimator.")

    def _conformer(self, at: str) -> dict[str, Shape]:
        w, bias = self.width, (self.heads, self.width // self.heads)
        result: dict[str, Shape] = {at + "self_attn.linear_pos.weight": (w, w)}
        result |= {at + "self_attn.pos_bias_u": bias, at + "self_attn.pos_bias_v": bias}
        for name in ("q", "k", "v", "out"):
            result |= _affine(f"{at}self_attn.linear_{name}", w, w)
        result |= _affine(at + "feed_forward.w_1", self.feed_forward, w)
        result |= _affine(at + "feed_forward.w_2", w, self.feed_forward)
        return result | _affine(at + "norm_mha", w) | _affine(at + "norm_ff", w)

    def _estimator(self, at: str) -> dict[str, Shape]:
        c = self.channels
        result = _affine(at + "time_mlp.linear_1", self.time_width, 4 * self.mel)
        result |= _affine(at + "time_mlp.linear_2", self.time_width, self.time_width)
        stages = [("down_blocks.0.", 4 * self.mel), *((f"mid_blocks.{j}.", c) for j in range(self.mid_blocks))]
        for stage, channels_in in [*stages, ("up_blocks.0.", 2 * c)]:
            result |= self._stage(at + stage, channels_in)
        for stage in ("down_blocks.0.2", "up_blocks.0.2"):
            result |= _affine(at + stage, c, c, 3)
        result |= _affine(at + "final_block.block.0", c, c, 3) | _affine(at + "final_block.block.2", c)
        return result | _affine(at + "final_proj", self.mel, c, 1)

    def _stage(self, at: str, channels_in: int) -> dict[str, Shape]:
        """One residual block and its transformer blocks (spec §4.7)."""
        c = self.channels
        result = _affine(at + "0.mlp.1", c, self.time_width) | _affine(at + "0.res_conv", c, channels_in, 1)
        for half, width in (("block1", channels_in), ("block2", c)):
            result |= _affine(f"{at}0.{half}.block.0", c, width, 3) | _affine(f"{at}0.{half}.block.2", c)
        for block in range(self.blocks):
            inside = f"{at}1.{block}."
            result |= {f"{inside}attn1.to_{name}.weight": (self.attention_width, c) for name in "qkv"}
            result |= _affine(inside + "attn1.to_out.0", c, self.attention_width)
            result |= _affine(inside + "norm1", c) | _affine(inside + "norm3", c)
            result |= _affine(inside + "ff.net.0.proj", self.inner, c) | _affine(inside + "ff.net.2", c, self.inner)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class HiftDims:
    """What fixes the shapes in ``hift.pt``; the defaults are CosyVoice2-0.5B (spec §2)."""

    base: int = 512
    f0_width: int = 512
    mel: int = 80

    @classmethod
    def of(cls, found: Mapping[str, Shape]) -> "HiftDims":
        """Read the dimensions off a file."""
        return cls(
            base=_dim(found, "conv_pre.bias", 0, cls().base),
            f0_width=_dim(found, "f0_predictor.classifier.weight", 1, cls().f0_width),
        )

    def shapes(self) -> dict[str, Shape]:
        """Every tensor of ``hift.pt`` under its canonical name (spec §5.4)."""
        result = _affine("m_source.l_linear", 1, 9)
        result |= _normed("conv_pre", self.base, self.mel, 7)
        widths = [self.base >> stage for stage in range(4)]
        for stage, kernel in enumerate((16, 11, 7)):
            result |= _normed(f"ups.{stage}", widths[stage], widths[stage + 1], kernel, transposed=True)
        for stage, kernel in enumerate((30, 6, 1)):
            result |= _affine(f"source_downs.{stage}", widths[stage + 1], 18, kernel)
        for stage, kernel in enumerate((7, 7, 11)):
            result |= _resblock(f"source_resblocks.{stage}.", widths[stage + 1], kernel)
        for block in range(9):
            result |= _resblock(f"resblocks.{block}.", widths[block // 3 + 1], (3, 7, 11)[block % 3])
        result |= _normed("conv_post", 18, widths[3], 7)
        for layer in range(0, 10, 2):
            result |= _normed(f"f0_predictor.condnet.{layer}", self.f0_width, self.f0_width if layer else self.mel, 3)
        return result | _affine("f0_predictor.classifier", 1, self.f0_width)


def _resblock(at: str, channels: int, kernel: int) -> dict[str, Shape]:
    result: dict[str, Shape] = {}
    for i in range(3):
        result |= _normed(f"{at}convs1.{i}", channels, channels, kernel)
        result |= _normed(f"{at}convs2.{i}", channels, channels, kernel)
        result |= {f"{at}activations{j}.{i}.alpha": (channels,) for j in (1, 2)}
    return result


def _affine(name: str, *shape: int) -> dict[str, Shape]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _normed(name: str, first: int, second: int, kernel: int, *, transposed: bool = False) -> dict[str, Shape]:
    """Name a convolution with weight norm over all but dimension 0, which of a transposed one is the input (spec §5.3)."""
    at = f"{name}.parametrizations.weight."
    num_out = second if transposed else first
    return {at + "original0": (first, 1, 1), at + "original1": (first, second, kernel), f"{name}.bias": (num_out,)}


def _dim(found: Mapping[str, Shape], key: str, axis: int, otherwise: int) -> int:
    shape = found.get(key, ())
    return shape[axis] if axis < len(shape) else otherwise


def _count(found: Mapping[str, Shape], prefix: str) -> int:
    """One more than the highest number that follows ``prefix``."""
    return 1 + max(_numbers(found, prefix), default=-1)


def _numbers(found: Mapping[str, Shape], prefix: str) -> Iterator[int]:
    for key in found:
        number = key[len(prefix) :].partition(".")[0] if key.startswith(prefix) else ""
        if number.isdecimal() and len(number) < 4:  # noqa: PLR2004 - no stack has a thousand layers
            yield int(number)


Dims = LlmDims | FlowDims | HiftDims
DIMS: Final[Mapping[Part, type[LlmDims | FlowDims | HiftDims]]] = {"llm": LlmDims, "flow": FlowDims, "hift": HiftDims}


def differences(dims: Dims) -> list[str]:
    """How ``dims`` differ from those published, in words; empty for CosyVoice2-0.5B."""
    published = type(dims)()
    return [
        f"{field.name} {getattr(dims, field.name)}, published {getattr(published, field.name)}"
        for field in fields(dims)
        if getattr(dims, field.name) != getattr(published, field.name)
    ]
