"""Sizes and constants of the flow (§2), read off the shapes of a state dict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from torch import Tensor

from cc_tts.engines.cosyvoice2.model.networks.flow.encoder import FRAMES_PER_TOKEN, EncoderConfig
from cc_tts.engines.cosyvoice2.model.networks.flow.estimator import EstimatorConfig
from cc_tts.engines.cosyvoice2.model.networks.layers import count_entries, folded_shapes

_ENCODER: Final = "encoder."
_ESTIMATOR: Final = "decoder.estimator."


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Sizes and constants of the flow (§2)."""

    vocab_size: int
    num_embedding: int  # of the speaker embedding
    encoder: EncoderConfig
    estimator: EstimatorConfig
    chunk_tokens: int = 25
    num_steps: int = 10
    guidance: float = 0.7

    @property
    def chunk_frames(self) -> int:
        """Frames of a chunk of the mask."""
        return self.chunk_tokens * FRAMES_PER_TOKEN

    @classmethod
    def from_state_dict(cls, shapes: Mapping[str, Sequence[int] | Tensor], *, estimator_head_dim: int = 64) -> Self:
        """Read the sizes off the shapes (or the tensors) of ``flow.pt``.

        The size of a head of the estimator leaves no trace in the shapes and is an argument.

        Raises:
            ValueError: a key is missing, or the projections are not whole heads.

        """
        sizes = folded_shapes(shapes)
        try:
            num_attention, channels = sizes[_ESTIMATOR + "mid_blocks.0.1.0.attn1.to_q.weight"]
            num_heads, head_dim = sizes[_ENCODER + "encoders.0.self_attn.pos_bias_u"]
            num_hidden, width = sizes[_ENCODER + "encoders.0.feed_forward.w_1.weight"]
            num_mels = sizes["encoder_proj.weight"][0]
            num_speaker, num_embedding = sizes["spk_embed_affine_layer.weight"]
            encoder = EncoderConfig(
                width=width,
                num_heads=num_heads,
                head_dim=head_dim,
                num_hidden=num_hidden,
                num_layers=count_entries(sizes, _ENCODER + "encoders."),
                num_up_layers=count_entries(sizes, _ENCODER + "up_encoders."),
                lookahead=sizes[_ENCODER + "pre_lookahead_layer.conv1.weight"][2] - 1,
                lookahead_kernel=sizes[_ENCODER + "pre_lookahead_layer.conv2.weight"][2],
                up_kernel=sizes[_ENCODER + "up_layer.conv.weight"][2],
            )
            estimator = EstimatorConfig(
                num_mels=num_mels,
                num_speaker=num_speaker,
                channels=channels,
                num_time=sizes[_ESTIMATOR + "time_mlp.linear_1.weight"][0],
                num_hidden=sizes[_ESTIMATOR + "mid_blocks.0.1.0.ff.net.0.proj.weight"][0],
                num_attention=num_attention,
                head_dim=estimator_head_dim,
                num_blocks=count_entries(sizes, _ESTIMATOR + "mid_blocks.0.1."),
                num_mid_blocks=count_entries(sizes, _ESTIMATOR + "mid_blocks."),
            )
            vocab_size = sizes["input_embedding.weight"][0]
        except KeyError as error:
            raise ValueError(f"not a state dict of the flow: {error} is missing") from error
        if num_attention % estimator_head_dim:
            raise ValueError(f"queries of {num_attention} are not whole heads of {estimator_head_dim}")
        return cls(vocab_size=vocab_size, num_embedding=num_embedding, encoder=encoder, estimator=estimator)
