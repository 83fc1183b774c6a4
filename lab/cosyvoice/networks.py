"""Networks whose weights are those of a state dict; the tests' are of the sizes of ``tiny``."""

from collections.abc import Mapping

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.checkpoint import shapes_of
from cc_tts.engines.cosyvoice.model.loader import fill, fold_weight_norm, new_network, new_vocoder, stored_shapes
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice.model.networks.lm.lm import SpeechLm
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.sizes import TIED_HEAD, FlowConfig, LmConfig, Shape, VocoderConfig


def shapes_for(config: LmConfig | FlowConfig | VocoderConfig) -> dict[str, Shape]:
    """The tensors of a weight file of these sizes."""
    with torch.device("meta"):
        if isinstance(config, LmConfig):
            return stored_shapes(SpeechLm(config))
        return stored_shapes(Flow(config) if isinstance(config, FlowConfig) else new_vocoder(config))


def lm_of(state: Mapping[str, Tensor], head_dim: int = 16) -> SpeechLm:
    state = {key: value for key, value in state.items() if key != TIED_HEAD}
    lm = new_network("llm", shapes_of(state), head_dim)
    assert isinstance(lm, SpeechLm)
    return fill(lm, state).to(lm.device)


def flow_of(state: Mapping[str, Tensor], head_dim: int = 16) -> Flow:
    flow = new_network("flow", shapes_of(state), head_dim)
    assert isinstance(flow, Flow)
    return fill(flow, state)


def vocoder_of(state: Mapping[str, Tensor]) -> Vocoder:
    """``state`` with weight norm in it or without."""
    vocoder = new_network("hift", shapes_of(state))
    assert isinstance(vocoder, Vocoder)
    return fill(vocoder, fold_weight_norm(state))
