"""The comparisons with ``tiny.npz`` or ``full.npz``: language model, flow, vocoder, and the whole stream.

Nothing here knows the inputs of a particular file: lengths, steps and hops are read from it.
"""

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmRequest
from lab.cosyvoice.schedule import calls_with_hops
from lab.cosyvoice.token2wav import stream_mel, stream_wav
from lab.cosyvoice.whole_flow import encode, whole_mel
from lab.cosyvoice.whole_vocoder import two_sided, vocode
from tests.parity.generation import ForcedTokens, speak, speak_streamed
from tests.parity.result import EXACT, Array, Comparison, Comparisons

WAV_TOLERANCE: Final = 1e-3
FEATURE_TOLERANCE: Final = {"tiny": 1e-4, "full": 2e-3}
"""Of log-probabilities, mel and what lies between them."""
_NOISE_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Recorded:
    """The arrays of a file; whoever asks for one that is not there gets a ``KeyError`` with its name."""

    arrays: Mapping[str, Array]
    device: torch.device
    tolerance: float

    def array(self, key: str) -> Array:
        return self.arrays[key]

    def tensor(self, key: str) -> Tensor:
        """An array on the device."""
        return torch.from_numpy(self.arrays[key]).to(self.device)

    def numbers(self, key: str) -> list[int]:
        """An array of integers as a list."""
        return [int(value) for value in self.arrays[key].ravel()]

    def compare(self, key: str, ours: Tensor, *, case: str = "") -> Comparison:
        """Hold ours against a stored array, with the tolerance of the file."""
        return Comparison(case or key, ours, self.arrays[key], self.tolerance)

    def compare_wav(self, key: str, ours: Tensor) -> Comparison:
        """Hold samples against a stored array."""
        return Comparison(key, ours, self.arrays[key], WAV_TOLERANCE)


def groups(model: SpeechModel, recorded: Recorded) -> Iterator[tuple[str, Comparisons]]:
    """Everything there is to compare, by name; a group that fails leaves the others as they are."""
    yield "llm", lm_zero_shot(model, recorded)
    yield "llm_noprompt", lm_without_prompt(model, recorded)
    yield "bistream", lm_streamed_text(model, recorded)
    yield "noise", noise(recorded)
    yield "estimator", estimator(model, recorded)
    yield "encoder", encoder(model, recorded)
    yield "mel", mel(model, recorded)
    yield "mel in chunks", mel_in_chunks(model, recorded)
    yield "hift_a", vocoder(model, recorded, "hift_a")
    yield "hift_b", vocoder(model, recorded, "hift_b")
    yield "source", source(model, recorded)
    yield "wav in chunks", wav_in_chunks(model, recorded)


def lm_zero_shot(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """Log-probabilities with a prompt, the drawn tokens given."""
    request = LmRequest(
        recorded.numbers("llm_text"),
        prompt_text=recorded.numbers("llm_prompt_text"),
        prompt_speech=recorded.numbers("llm_prompt_speech"),
    )
    steps, sampler = recorded.numbers("llm_logp_steps"), ForcedTokens(recorded.numbers("llm_forced"))
    first_tokens(speak(model.lm, request, sampler, compat=True), max(steps) + 1)
    yield recorded.compare("llm_logp", torch.stack([sampler.log_probs[step] for step in steps]))


def lm_without_prompt(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """The same of the first steps without a prompt."""
    sampler = ForcedTokens(recorded.numbers("llm_forced"))
    num_steps = len(recorded.array("llm_noprompt_logp"))
    first_tokens(speak(model.lm, LmRequest(recorded.numbers("llm_text")), sampler, compat=True), num_steps)
    yield recorded.compare("llm_noprompt_logp", torch.stack(sampler.log_probs[:num_steps]))


def first_tokens(tokens: Iterator[int], num_steps: int) -> None:
    for _ in itertools.islice(tokens, num_steps):
        pass


def lm_streamed_text(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """Text that arrives in pieces: tokens given out, calls of the sampler, log-probabilities."""
    text, forced = recorded.numbers("bi_text"), recorded.numbers("bi_forced")
    prompt_text, prompt_speech = recorded.numbers("llm_prompt_text"), recorded.numbers("bi_prompt_speech")
    sampler = ForcedTokens(forced)
    num_positions = 2 + 2 * len(forced) + len(text) + len(prompt_text) + len(prompt_speech)
    spoken = speak_streamed(
        model.lm,
        pieces_of(text, recorded.numbers("bi_sizes")),
        sampler,
        prompt_text=prompt_text,
        prompt_speech=prompt_speech,
        num_positions=num_positions,
        compat=True,
    )
    yield Comparison("bi_out", list(spoken), recorded.array("bi_out"), EXACT)
    yield Comparison("bi_n_logp", [len(sampler.log_probs)], recorded.array("bi_n_logp"), EXACT)
    log_probs = torch.stack([sampler.log_probs[step] for step in recorded.numbers("bi_logp_steps")])
    yield recorded.compare("bi_logp", log_probs)


def pieces_of(text: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    rest = iter(text)
    return [list(itertools.islice(rest, size)) for size in sizes]


def noise(recorded: Recorded) -> Comparisons:
    """The fixed noise, which torch must draw to the bit; on the CPU whatever the device."""
    drawn = fixed_noise()
    head = recorded.array("noise_head")
    num_mels, num_frames = head.shape
    yield Comparison("noise_head", drawn[0, :num_mels, :num_frames], head, _NOISE_TOLERANCE)
    yield Comparison("noise_crc", [zlib.crc32(drawn.numpy().tobytes())], recorded.array("noise_crc"), EXACT)


def estimator(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """One call of the estimator, with and without the chunk mask."""
    dtype = model.flow.dtype
    x, mu, cond = (recorded.tensor(key).mT.to(dtype) for key in ("est_x", "est_mu", "est_cond"))
    num_rows, num_frames, _ = x.shape
    for streaming in (True, False):
        span = PositionSpan.of(
            torch.full((num_rows,), num_frames, device=recorded.device),
            num_frames,
            chunk=model.flow.config.chunk_frames if streaming else None,
        )
        estimator = model.flow.estimator
        shifts = estimator.shifts(recorded.tensor("est_t"))
        out = estimator(x, mu, shifts, recorded.tensor("est_spk").to(dtype), cond, span, None)
        yield recorded.compare(f"est_out_streaming_{streaming}", out.mT)


def encoder(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """The flow's encoder: with the chunk mask, without, and with tokens of lookahead."""
    token = recorded.tensor("enc_tokens")
    lengths = torch.full((token.shape[0],), token.shape[1], device=token.device)
    for key, streaming, finalize in (
        ("enc_out_streaming_True", True, True),
        ("enc_out_streaming_False", False, True),
        ("enc_out_context", True, False),
    ):
        hidden = encode(model.flow, token, lengths, streaming=streaming, finalize=finalize)
        yield recorded.compare(key, hidden[0])


def prompt_of(recorded: Recorded) -> FlowReference:
    """The voice of the file."""
    keys = ("flow_prompt_token", "flow_prompt_feat", "flow_embedding")
    token, feat, embedding = (recorded.tensor(key) for key in keys)
    return FlowReference(token, feat, embedding)


def mel(model: SpeechModel, recorded: Recorded) -> Comparisons:
    voice, token = prompt_of(recorded), recorded.tensor("flow_token")
    start = fixed_noise().to(recorded.device)
    for key, streaming in (("mel_offline", False), ("mel_stream_final", True)):
        out = whole_mel(model.flow, token, voice, streaming=streaming, finalize=True, noise=start)
        yield recorded.compare(key, out[0])


def mel_in_chunks(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """Chunk after chunk: everything run again, and what is new run only. The last chunk is the end of the whole."""
    voice, token = prompt_of(recorded), recorded.tensor("flow_token")
    hops = recorded.numbers("chunk_hops")
    start = fixed_noise().to(recorded.device)
    for way, incremental in (("forward", False), ("step", True)):
        calls = calls_with_hops(hops, token.shape[1])
        mels = stream_mel(model.flow, voice, token, calls, noise=start, incremental=incremental)
        for index, (frames, is_last) in enumerate(mels):
            if not is_last:
                yield recorded.compare(f"mel_chunk{index}", frames[0], case=f"mel_chunk{index} {way}()")
            elif incremental:
                end = recorded.array("mel_stream_final")[:, FRAMES_PER_TOKEN * sum(hops) :]
                yield Comparison(f"mel_stream_final end {way}()", frames[0], end, recorded.tolerance)


def vocoder(model: SpeechModel, recorded: Recorded, name: str) -> Comparisons:
    """A mel by itself: pitch, source and samples, each made from ours."""
    frames = recorded.tensor(f"{name}_mel")[None]
    yield recorded.compare(f"{name}_f0", two_sided(model.vocoder).f0(frames)[0])
    audio, excitation = vocode(model.vocoder, frames)
    yield recorded.compare_wav(f"{name}_source", excitation[0])
    yield recorded.compare_wav(f"{name}_wav", audio[0])


def source(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """A given pitch that comes and goes, and the samples of the first mel with it."""
    network = two_sided(model.vocoder)
    excitation = network.source(recorded.tensor("source_f0"))
    yield recorded.compare_wav("source_out", excitation[0])
    yield recorded.compare_wav("source_wav", network.synthesize(recorded.tensor("hift_a_mel")[None], excitation))


def wav_in_chunks(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """Tokens to samples, chunk after chunk with their crossfades."""
    voice, token = prompt_of(recorded), recorded.tensor("flow_token")
    calls = calls_with_hops(recorded.numbers("chunk_hops"), token.shape[1])
    start = fixed_noise().to(recorded.device)
    for index, audio in enumerate(
        stream_wav(model.flow, partial(vocode, model.vocoder), voice, token, calls, noise=start)
    ):
        yield recorded.compare_wav(f"wav_chunk{index}", audio[0])
