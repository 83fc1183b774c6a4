"""The flow on whole sequences."""

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan, within


def looked_ahead(flow: Flow, token: Tensor, *, finalize: bool) -> Tensor:
    """The lookahead layer of the third generation on whole sequences: ``token`` [B, N] to [B, S, width]."""
    window = functional.pad(token, (0, flow.config.encoder.lookahead)) if finalize else token
    known = torch.arange(window.shape[1], device=token.device) < token.shape[1]
    embedded = flow.input_embedding(window.clamp(min=0)).masked_fill(~known[:, None], 0.0)
    span = PositionSpan.of(token.new_zeros(token.shape[0]), window.shape[1], chunk=None)
    mixed: Tensor = flow.pre_lookahead_layer(embedded, span, None)
    return mixed


def encode(flow: Flow, token: Tensor, token_len: Tensor, *, streaming: bool, finalize: bool) -> Tensor:
    """The encoder of the second generation: ``token`` [B, N] to [B, 2 S, width] (§4.2 to §4.5).

    S is N when ``finalize``, else N less the tokens of lookahead, which are only looked at.
    """
    lookahead = flow.config.encoder.lookahead
    window = functional.pad(token, (0, lookahead)) if finalize else token
    num_new = token_len if finalize else token_len - lookahead
    tokens, frames = _spans(flow, num_new, window.shape[1] - lookahead, streaming=streaming)
    embedded = flow.input_embedding(window.clamp(min=0))
    hidden: Tensor = flow.encoder(embedded, within(token_len, window.shape[1]), tokens, frames, None)
    return hidden


def whole_mel(
    flow: Flow,
    token: Tensor,
    prompt: FlowReference,
    *,
    streaming: bool,
    finalize: bool,
    noise: Tensor,
    token_len: Tensor | None = None,
    prompt_token_len: Tensor | None = None,
) -> Tensor:
    """Mel frames of whole sequences, as the reference computes them for every chunk.

    Args:
        token: speech tokens, [B, N].
        prompt: of each row: ``token`` [B, P], where P may be 0, ``feat`` [B, 2 P, mels], ``embedding`` [B, embedding].
        streaming: attention ends with the chunk (§4.4); otherwise every frame sees every frame.
        finalize: no tokens will follow; otherwise the last three are only looked at (§4.2).
        noise: what the frames start from, [1 or B, mels, at least 2 (P + N)], see :func:`fixed_noise`.
        token_len: how many tokens of each row are real, [B]; all, when left out.
        prompt_token_len: the same of the prompt.

    Returns:
        [B, mels, 2 N], or six frames less when not ``finalize``; float32, zeros behind the end of a row

    """
    num_rows, num_tokens = token.shape
    num_prompt = prompt.token.shape[1]
    if prompt.feat.shape[1] != num_prompt * FRAMES_PER_TOKEN:  # everything after it would be shifted (§4)
        raise ValueError(f"a prompt of {num_prompt} tokens cannot have {prompt.feat.shape[1]} mel frames")
    lookahead = flow.config.encoder.lookahead
    lengths = token.new_full((num_rows,), num_tokens) if token_len is None else token_len
    prompts = token.new_full((num_rows,), num_prompt) if prompt_token_len is None else prompt_token_len

    places = torch.arange(num_prompt + num_tokens, device=token.device).expand(num_rows, -1)  # [B, P + N]
    source = torch.where(places < prompts[:, None], places, places + (num_prompt - prompts)[:, None])
    joined = torch.cat((prompt.token, token), dim=1).gather(1, source.clamp(max=num_prompt + num_tokens - 1))
    window = functional.pad(joined, (0, lookahead)) if finalize else joined
    known = within(prompts + lengths, window.shape[1])
    num_new = prompts + lengths if finalize else prompts + lengths - lookahead
    tokens, frames = _spans(flow, num_new, window.shape[1] - lookahead, streaming=streaming)

    num_frames = frames.visible.shape[2]
    cond = functional.pad(prompt.feat, (0, 0, 0, num_frames - prompt.feat.shape[1]))
    cond = cond.masked_fill(~within(prompts * FRAMES_PER_TOKEN, num_frames)[..., None], 0.0)
    start = noise[:, :, :num_frames].transpose(1, 2).expand(num_rows, -1, -1)
    mu = flow.mu(window, known, tokens, frames, None)
    mel = flow.solve(mu, flow.speaker(prompt.embedding), cond, start, frames, None)  # [B, 2 (P + N), mels]

    num_given = max(0, num_frames - num_prompt * FRAMES_PER_TOKEN)
    return _cut(mel, prompts * FRAMES_PER_TOKEN, (num_new - prompts) * FRAMES_PER_TOKEN, num_given)


def _spans(flow: Flow, num_new: Tensor, width: int, *, streaming: bool) -> tuple[PositionSpan, PositionSpan]:
    """The span of the tokens and that of their frames."""
    chunk = flow.config.chunk_tokens if streaming else None
    window = None if chunk is None else flow.window(torch.zeros_like(num_new))
    tokens = PositionSpan.of(num_new, width, chunk=chunk, window=window)
    scale = FRAMES_PER_TOKEN
    chunk = None if chunk is None else chunk * scale
    return tokens, PositionSpan.of(num_new * scale, width * scale, chunk=chunk, window=window)


def _cut(mel: Tensor, starts: Tensor, counts: Tensor, width: int) -> Tensor:
    """Of each row of ``mel`` [B, T, mels] ``counts`` frames from ``starts`` on: [B, mels, width], zeros behind them."""
    places = (starts[:, None] + torch.arange(width, device=mel.device)).clamp(max=mel.shape[1] - 1)
    cut = mel.gather(1, places[..., None].expand(-1, -1, mel.shape[2]))
    return cut.masked_fill(~within(counts, width)[..., None], 0.0).transpose(1, 2)
