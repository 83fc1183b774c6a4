"""The comparisons with recorded outputs of the third generation: language model, flow, vocoder, stream, engine.

Nothing here knows the inputs of a particular file: lengths, steps and hops are read from it.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.sequence import Sequence as EngineSequence
from cc_tts.engines.cosyvoice.engine.sequence import Stream
from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.dit import Block, DitEstimator
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import Flow, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.layers import PositionSpan
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmRequest
from cc_tts.engines.cosyvoice.model.networks.vocoder.causal import CausalVocoder
from cc_tts.engines.cosyvoice.model.special_tokens import SPECIAL_TOKENS
from cc_tts.engines.cosyvoice.prefill import BistreamState
from cc_tts.engines.cosyvoice.runners.runner import SILENT_TOKENS
from lab.cosyvoice.schedule import calls_with_hops
from lab.cosyvoice.token2wav import stream_mel
from lab.cosyvoice.whole_flow import looked_ahead
from lab.cosyvoice.whole_vocoder import CausalStream, causal_whole
from tests.parity.bistream import SteppedBistream
from tests.parity.cases import Recorded, first_tokens, lm_zero_shot, mel, mel_in_chunks, noise, prompt_of
from tests.parity.engine import stream_in_batch
from tests.parity.engine_lm import BatchPlan, ids_in_batch, lm_in_batch
from tests.parity.generation import ForcedTokens, speak, speak_streamed
from tests.parity.result import EXACT, Array, Comparison, Comparisons, count_differences

TOLERANCE: Final = 1e-5
"""Of log-probabilities, mel and what lies between them."""
WAV_TOLERANCE: Final = 2e-5
"""Of samples from a recorded mel. A convolution of one frame rounds in another order than one of many."""
PITCH_TOLERANCE: Final = 1e-6  # Hz; it is float64
_STREAM_PITCH_TOLERANCE: Final = (
    1e-3  # Hz; the end of the recorded mel is of another run than that of the recorded pitch
)
_STREAM_TOLERANCE: Final = 1e-3
"""Of samples of the whole stream: the phase is 3016 rad for each turn of a sum in float32, whose last place turns with
1e-6 in mel, or with another order of work (v3 §5.6).
"""
FILES: Final = ("special_tokens.json", "schedule.json")
_OWN_MEL_TOLERANCE: Final = {"tiny": 2e-3, "full": 2e-2}
"""The same of mel that is ours, as the reference outputs have it."""
_STEPS: Final = (1, 7, 25)  # frames of a piece
_EVERY: Final = 7  # frame of the estimator's stages is recorded


@dataclass(frozen=True, slots=True)
class ThirdFiles:
    """The files of a directory that are of no size."""

    directory: Path

    def read(self, name: str) -> Any:
        """What the file holds; None where it is not there."""
        path = self.directory / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def groups(
    model: SpeechModel,
    arrays: Mapping[str, Array],
    device: torch.device,
    files: ThirdFiles,
    batch: BatchPlan | None,
    size: str,
) -> Iterator[tuple[str, Comparisons]]:
    """Everything there is to compare, by name; with ``batch`` in the engine's runners, too."""
    recorded = Recorded(arrays, device, TOLERANCE)
    vocoder = cast("CausalVocoder", model.vocoder)
    yield "llm", lm_zero_shot(model, recorded)
    yield "llm_instruct", lm_instructed(model, recorded)
    for name, prompt in (("bi", "llm_prompt_text"), ("bi_noprompt", "llm_instruct_text")):
        yield name, lm_streamed_text(model, recorded, name, prompt)
    yield "noise", noise(recorded)
    yield "hift_noise", vocoder_noise(recorded)
    yield "lookahead", lookahead(model.flow, recorded)
    yield "estimator", estimator(model.flow, recorded)
    yield "mel", mel(model, recorded)
    yield "mel in chunks", mel_in_chunks(model, recorded)
    for name in ("hift_a", "hift_b"):
        yield name, whole_vocoder(vocoder, recorded, name)
    yield "source", source(vocoder, recorded)
    yield "wav in chunks", wav_in_chunks(model, recorded, _OWN_MEL_TOLERANCE[size])
    yield "special tokens", special_tokens(files)
    yield "silent tokens", silent_tokens(files)
    if batch is not None:
        yield "engine llm", lm_in_batch(model.lm, recorded, batch)
        yield "engine ids", ids_in_batch(model.lm, recorded, batch)
        yield "engine stream", stream_in_batch(model, recorded, batch, uniform=noise_of(recorded))


def noise_of(recorded: Recorded) -> Tensor:
    """The uniform numbers of the file, [samples, harmonics]."""
    (length,) = recorded.numbers("hift_noise_len")
    seed = zlib.crc32(f"{recorded.array('salt')}hift.noise".encode())
    drawn = np.random.Generator(np.random.PCG64(seed)).random((length, 9), dtype=np.float32)
    return torch.from_numpy(drawn).to(recorded.device)


def vocoder_noise(recorded: Recorded) -> Comparisons:
    """The numbers that the vocoder gets in all that follows."""
    drawn = noise_of(recorded).cpu().numpy()
    head = recorded.array("hift_noise_head")
    yield Comparison("hift_noise_head", drawn[: len(head)], head, EXACT)
    yield Comparison("hift_noise_crc", [zlib.crc32(drawn.tobytes())], recorded.array("hift_noise_crc"), EXACT)


def lm_instructed(model: SpeechModel, recorded: Recorded) -> Comparisons:
    """The first steps with an instruction and no prompt speech, and where the end of speech leaves off."""
    ids, text = model.lm.config.speech_ids, recorded.numbers("llm_text")
    request = LmRequest(text, prompt_text=recorded.numbers("llm_instruct_text"))
    sampler = ForcedTokens(recorded.numbers("llm_forced"))
    num_steps = len(recorded.array("llm_instruct_logp"))
    first_tokens(speak(model.lm, request, sampler, compat=True), num_steps)
    yield recorded.compare("llm_instruct_logp", torch.stack(sampler.log_probs[:num_steps]))
    spoken = recorded.numbers("llm_stop_out")
    stopped = list(speak(model.lm, request, ForcedTokens([*spoken, ids.end]), compat=True))
    yield Comparison("llm_stop_out", stopped, spoken, EXACT)


def lm_streamed_text(model: SpeechModel, recorded: Recorded, name: str, prompt: str) -> Comparisons:
    """Text that arrives in pieces: tokens given out, inputs fed, log-probabilities."""
    text, forced = recorded.numbers("bi_text"), recorded.numbers(f"{name}_forced")
    prompt_text = recorded.numbers(prompt)
    prompt_speech = recorded.numbers("bi_prompt_speech") if name == "bi" else []
    (end_of_prompt,) = recorded.numbers("llm_end_of_prompt")
    num_instruction = prompt_text.index(end_of_prompt) + 1
    pieces = [[text_id] for text_id in text]  # as the reference hands them over, whatever their pieces were
    sampler = ForcedTokens(forced)
    spoken = speak_streamed(
        model.lm,
        pieces,
        sampler,
        prompt_text=prompt_text,
        prompt_speech=prompt_speech,
        num_instruction=num_instruction,
        num_positions=2 + 2 * len(forced) + len(text) + len(prompt_text) + len(prompt_speech),
        compat=True,
    )
    yield Comparison(f"{name}_out", list(spoken), recorded.array(f"{name}_out"), EXACT)
    yield Comparison(f"{name}_n_logp", [len(sampler.log_probs)], recorded.array(f"{name}_n_logp"), EXACT)
    steps = recorded.numbers(f"{name}_logp_steps")
    yield recorded.compare(f"{name}_logp", torch.stack([sampler.log_probs[step] for step in steps]))
    interleaving = SteppedBistream(
        prompt_text,
        prompt_speech,
        speech_ids=model.lm.config.speech_ids,
        num_instruction=num_instruction,
        compat=True,
    )
    yield Comparison(f"{name}_fed", _fed(interleaving, pieces, forced), recorded.array(f"{name}_fed"), EXACT)


def _fed(interleaving: SteppedBistream, pieces: Sequence[Sequence[int]], forced: Sequence[int]) -> list[int]:
    """How many inputs each run of the network gets."""
    drawn, fed = iter(forced), []
    for arrival in (*pieces, None):
        if arrival is None:
            interleaving.end_text()
        else:
            interleaving.add_text(arrival)
        while (step := interleaving.next_step()) is not None:
            fed.append(len(step.inputs))
            interleaving.take(next(drawn) if step.forced is None else step.forced)
    assert interleaving.state is BistreamState.DONE
    return fed


def lookahead(flow: Flow, recorded: Recorded) -> Comparisons:
    """The lookahead layer, to the end and with three tokens behind it."""
    token = recorded.tensor("flow_token")
    yield recorded.compare("pre_out_final", looked_ahead(flow, token, finalize=True)[0])
    yield recorded.compare("pre_out_context", looked_ahead(flow, token, finalize=False)[0])


def estimator(flow: Flow, recorded: Recorded) -> Comparisons:
    """One call of the estimator in its stages, with and without the chunk mask."""
    dit, dtype = cast("DitEstimator", flow.estimator), flow.dtype
    x, mu, cond = (recorded.tensor(key).mT.to(dtype) for key in ("est_x", "est_mu", "est_cond"))
    speaker, moments = recorded.tensor("est_spk").to(dtype), recorded.tensor("est_t")
    num_rows, num_frames, _ = x.shape
    yield recorded.compare("est_time", dit.moment(moments))
    shifts = dit.shifts(moments)
    for streaming in (True, False):
        chunk = flow.config.chunk_frames if streaming else None
        span = dit.turned(
            PositionSpan.of(torch.full((num_rows,), num_frames, device=recorded.device), num_frames, chunk=chunk)
        )
        if streaming:
            beside = torch.cat((x, cond, mu, speaker[:, None].expand(-1, num_frames, -1)), dim=-1)
            hidden = dit.input_embed(beside, None)
            yield recorded.compare("est_input", hidden[:, ::_EVERY])
            block = cast("Block", dit.transformer_blocks[0])
            yield recorded.compare("est_block0", block(hidden, shifts[0], span, None)[:, ::_EVERY])
        yield recorded.compare(f"est_out_streaming_{streaming}", dit(x, mu, shifts, speaker, cond, span).mT)


def whole_vocoder(vocoder: CausalVocoder, recorded: Recorded, name: str) -> Comparisons:
    """A mel by itself: to its end, with more to come, and in pieces."""
    uniform, frames = noise_of(recorded), recorded.tensor(f"{name}_mel")
    for key, finalize in (("", True), ("_open", False)):
        made = causal_whole(vocoder, frames, uniform, finalize=finalize)
        yield Comparison(f"{name}_f0{key}", made.f0, recorded.array(f"{name}_f0{key}"), PITCH_TOLERANCE)
        yield _wav(recorded, f"{name}_source{key}", made.source)
        golden = recorded.array(f"{name}_wav{key}")  # officially four more frames wait
        yield Comparison(f"{name}_wav{key}", made.audio[: len(golden)], golden, WAV_TOLERANCE)
    for step in _STEPS:
        stream = CausalStream(vocoder, uniform)
        audio = [stream.push(part, is_last=False) for part in torch.split(frames, step, dim=1)]
        audio.append(stream.push(frames[:, :0], is_last=True))
        yield _wav(recorded, f"{name}_wav", torch.cat(audio), case=f"{name}_wav by {step}")
    if f"{name}_wav_quiet" in recorded.arrays:
        made = causal_whole(vocoder, frames, torch.zeros_like(uniform), finalize=True)
        yield _wav(recorded, f"{name}_source_quiet", made.source)
        yield _wav(recorded, f"{name}_wav_quiet", made.audio)


def source(vocoder: CausalVocoder, recorded: Recorded) -> Comparisons:
    """A given pitch that comes and goes, and the samples of the first mel with it."""
    f0 = recorded.tensor("source_f0")
    made = causal_whole(vocoder, recorded.tensor("hift_a_mel"), noise_of(recorded), finalize=True, f0=f0)
    yield _wav(recorded, "source_out", made.source)
    yield _wav(recorded, "source_wav", made.audio)


def wav_in_chunks(model: SpeechModel, recorded: Recorded, own_tolerance: float) -> Comparisons:
    """The stream: recorded mel to samples and our own, piece by piece; the official last chunk; the pitch."""
    vocoder, uniform = cast("CausalVocoder", model.vocoder), noise_of(recorded)
    hops, token = recorded.numbers("chunk_hops"), recorded.tensor("flow_token")
    begin = FRAMES_PER_TOKEN * sum(hops)
    stitched = recorded.tensor("mel_stream_final")
    chunks = [recorded.tensor(f"mel_chunk{index}") for index in range(len(hops))]
    golden = [recorded.array(f"wav_chunk{index}") for index in range(len(hops) + 1)]
    whole = causal_whole(vocoder, torch.cat((*chunks, stitched[:, begin:]), dim=1), uniform, finalize=True)
    yield Comparison("stream_f0", whole.f0, recorded.array("stream_f0"), _STREAM_PITCH_TOLERANCE)
    heard = _streamed(vocoder, uniform, [*chunks, stitched[:, begin:]])
    yield from _chunks("", heard, golden, _STREAM_TOLERANCE)
    full = [*chunks, recorded.tensor("mel_offline")[:, begin:]]
    *_, last = _cut_as(_streamed(vocoder, uniform, full), golden)
    official = recorded.array("wav_last_official")
    yield Comparison("wav_last_official", last, official, _STREAM_TOLERANCE)
    calls = calls_with_hops(hops, token.shape[1])
    start = fixed_noise().to(recorded.device)
    own = [frames[0] for frames, _ in stream_mel(model.flow, prompt_of(recorded), token, calls, noise=start)]
    yield from _chunks(" of own mel", _streamed(vocoder, uniform, own), golden, own_tolerance)


def _streamed(vocoder: CausalVocoder, uniform: Tensor, mels: Sequence[Tensor]) -> Tensor:
    stream = CausalStream(vocoder, uniform)
    return torch.cat([stream.push(part, is_last=part is mels[-1]) for part in mels])


def _chunks(case: str, audio: Tensor, golden: Sequence[Array], tolerance: float) -> Comparisons:
    for index, (ours, theirs) in enumerate(zip(_cut_as(audio, golden), golden, strict=True)):
        yield Comparison(f"wav_chunk{index}{case}", ours, theirs, tolerance)


def _cut_as(audio: Tensor, golden: Sequence[Array]) -> Sequence[Tensor]:
    """Cut where the reference cuts, which lets four more frames wait."""
    return torch.split(audio, [len(each) for each in golden])


def _wav(recorded: Recorded, key: str, ours: Tensor, *, case: str = "") -> Comparison:
    return Comparison(case or key, ours, recorded.array(key), WAV_TOLERANCE)


def special_tokens(files: ThirdFiles) -> Comparisons:
    """The added text tokens and their order."""
    stored: dict[str, int] | None = files.read(FILES[0])
    if stored is not None:
        first = min(stored.values())
        ours = {token: first + place for place, token in enumerate(SPECIAL_TOKENS[3])}
        yield Comparison("special tokens", *count_differences(sorted(ours.items()), sorted(stored.items())), EXACT)


def silent_tokens(files: ThirdFiles) -> Comparisons:
    """The tokens that the reference leaves out before it makes audio of the others."""
    cases: list[dict[str, Any]] | None = files.read(FILES[1])
    if cases is not None:
        silent = [case for case in cases if "llm_token_ids" in case]
        heard = [_heard(case["llm_token_ids"]) for case in silent]
        yield Comparison("silent tokens", *count_differences(heard, [case["flow_token_ids"] for case in silent]), EXACT)


def _heard(ids: Sequence[int]) -> list[int]:
    """The tokens that the engine gives to the flow."""
    sequence = EngineSequence(
        key=0,
        stream=cast("Stream", None),
        slot=0,
        seed=0,
        num_prompt=0,
        hop=1,
        silent_tokens=SILENT_TOKENS,
        marks=[(0, 0)],
    )
    sequence.take_sampled(ids, stopped=False)
    return sequence.tokens
