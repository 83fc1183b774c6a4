"""Speech tokens to audio, chunk after chunk, of one sequence: flow, vocoder and the crossfades between chunks (§6)."""

from collections.abc import Iterable, Iterator

from torch import Tensor

from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, FlowReference
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner
from lab.cosyvoice.chunked_vocoder import ChunkedVocoder, Crossfade, MelToWav
from lab.cosyvoice.schedule import FlowCall
from lab.cosyvoice.whole_flow import whole_mel


def stream_mel(
    flow: Flow,
    prompt: FlowReference,
    tokens: Tensor,
    calls: Iterable[FlowCall],
    *,
    noise: Tensor,
    incremental: bool = True,
) -> Iterator[tuple[Tensor, bool]]:
    """Mel frames [1, mels, frames] of each call, and whether it is the last one.

    Args:
        flow: the flow.
        prompt: the voice.
        tokens: all generated tokens, [1, N].
        calls: which of them are known to the flow when, see :mod:`cc_tts.engines.cosyvoice.engine.schedule`.
        noise: see :meth:`Flow.forward`.
        incremental: keep what has been run, as the engine does; otherwise run everything again in each call, as the
            reference does.

    """
    runner = _runner(flow, prompt, tokens, noise) if incremental else None
    num_known = 0
    for call in calls:
        if runner is not None:
            fresh = tokens[0, num_known : call.num_tokens].tolist()
            mel = runner.step([FlowRow(0, fresh, call.finalize, partial=True)])[0][None]
            num_known = call.num_tokens
        else:
            known = tokens[:, : call.num_tokens]
            mel = whole_mel(flow, known, prompt, streaming=True, finalize=call.finalize, noise=noise)
            mel = mel[:, :, FRAMES_PER_TOKEN * call.num_given :]
        yield mel, call.finalize


def _runner(flow: Flow, prompt: FlowReference, tokens: Tensor, noise: Tensor) -> FlowRunner:
    max_tokens = prompt.token.shape[1] + tokens.shape[1]
    num_pages = -(-max_tokens // flow.config.chunk_tokens)
    runner = FlowRunner(flow, num_slots=1, num_pages=num_pages, noise=noise, max_tokens=max_tokens)
    runner.open(0, runner.add_voice(prompt))
    return runner


def stream_wav(
    flow: Flow,
    vocoder: MelToWav,
    prompt: FlowReference,
    tokens: Tensor,
    calls: Iterable[FlowCall],
    *,
    noise: Tensor,
    incremental: bool = True,
) -> Iterator[Tensor]:
    """Audio [1, samples] of each call, without noise in the source; arguments as of :func:`stream_mel`."""
    chunked = ChunkedVocoder(vocoder)
    crossfade: Crossfade | None = None
    for mel, is_last in stream_mel(flow, prompt, tokens, calls, noise=noise, incremental=incremental):
        audio, crossfade = chunked.push(mel, crossfade, is_last=is_last)
        yield audio
