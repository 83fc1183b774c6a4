"""The flow's encoder on whole sequences."""

from torch import Tensor
from torch.nn import functional

from cc_tts.engines.cosyvoice2.model.networks.flow.flow import Flow
from cc_tts.engines.cosyvoice2.model.networks.layers import within


def encode(flow: Flow, token: Tensor, token_len: Tensor, *, streaming: bool, finalize: bool) -> Tensor:
    """``token`` [B, N] to [B, 2 S, width] (§4.2 to §4.5).

    S is N when ``finalize``, else N less the tokens of lookahead, which are only looked at.
    """
    lookahead = flow.config.encoder.lookahead
    window = functional.pad(token, (0, lookahead)) if finalize else token
    num_new = token_len if finalize else token_len - lookahead
    tokens, frames = flow._spans(num_new, window.shape[1] - lookahead, streaming=streaming)
    return flow._encode(window, within(token_len, window.shape[1]), tokens, frames, None)
