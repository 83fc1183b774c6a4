"""What each saving costs in exactness: fewer Euler steps, a bounded context, half types, 8-bit pages, weights of few bits.

Two numbers for each, in dB below what float32 with 10 steps gives: of the log-probabilities of the language model after
forced tokens, and of the mel of a stream of several calls. With trained weights and a voice it also says lines: how many
words a recogniser gets wrong, how alike the speaker is to the reference (the cosine of CAM++), and when the first audio
comes.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import soxr
import torch
from torch import Tensor, nn

from bench.engine.model import VOICE, voice
from bench.engine.work import prompt_of
from bench.intelligibility.__main__ import RECOGNISER_HZ, Recogniser
from bench.intelligibility.errors import Errors, count_errors
from bench.intelligibility.lines import lines_of
from bench.report import percentiles
from cc_tts.clock import MonotonicClock, ms_between
from cc_tts.engines.cosyvoice.batched import BatchedConfig, BatchedLoader
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.model.loader import SpeechModel, load_model
from cc_tts.engines.cosyvoice.model.networks.flow.flow import fixed_noise
from cc_tts.engines.cosyvoice.model.networks.int8 import can_quantise
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import speech_inputs, text_inputs
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, PageType
from cc_tts.engines.cosyvoice.model.sizes import FLOW_STEPS
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner
from cc_tts.engines.cosyvoice.voice.encoder import SPEAKER_FILE, SpeakerEncoder
from cc_tts.engines.cosyvoice.worker_engine import load_speakers
from cc_tts.engines.engine_core import StreamDone, StreamRequest
from lab.cosyvoice.schedule import HopSchedule, calls_for
from lab.server_under_test import Json

NUM_TOKENS: Final = 160  # of speech; flow calls of 12, 25, 50 and the rest
NUM_FORCED: Final = 60  # of the language model
NUM_LINES: Final = 12
GROUP: Final = 64  # inputs that share a scale in weights of 4 bits
RATE_HZ: Final = 24_000


@dataclass(frozen=True, kw_only=True)
class Saving:
    """One way to save time or memory."""

    name: str
    dtype: torch.dtype = torch.float32
    steps: int = FLOW_STEPS
    context: int = 0
    page_type: PageType = "auto"
    int8: bool = False  # the language model as a CPU has it
    weight_bits: int = 0  # of all linear maps, whose products stay as they are; 0: as they are

    def config(self, device: torch.device) -> BatchedConfig:
        return BatchedConfig(
            engine=EngineConfig(max_streams=1, admits_all=True),
            device=device,
            dtype=self.dtype,
            int8=self.int8,
            flow_steps=self.steps,
            flow_context=self.context,
            page_type=self.page_type,
            calibration_rows=(),
        )


EXACT: Final = Saving(name="float32, 10 steps, all of the past")


def savings(device: torch.device) -> Iterator[Saving]:
    """Those that this device can do."""
    yield from (Saving(name=f"{steps} steps", steps=steps) for steps in range(9, 4, -1))
    yield from (Saving(name=f"{seconds} s of the past", context=seconds) for seconds in (8, 4, 2))
    yield Saving(name="bfloat16", dtype=torch.bfloat16)
    yield Saving(name="float16", dtype=torch.float16)
    yield Saving(name="pages of int8", page_type="int8")
    yield Saving(name="pages of e4m3", page_type="float8")
    yield Saving(name="weights of 8 bits", weight_bits=8)
    yield Saving(name="weights of 4 bits", weight_bits=4)
    if device.type == "cpu" and can_quantise():
        yield Saving(name="language model in 8 bits (a CPU)", int8=True)


def snr_db(exact: Tensor, other: Tensor) -> float:
    """How far ``other`` is below what is right; infinite for the same."""
    wrong = float((exact - other).norm())
    return round(20.0 * math.log10(float(exact.norm()) / wrong), 1) if wrong else math.inf


@torch.no_grad()
def round_weights(network: nn.Module, bits: int) -> None:
    """Round the weights of all linear maps: a scale for each output with 8 bits, for each group of inputs with fewer."""
    most = 2 ** (bits - 1) - 1
    for module in network.modules():
        if isinstance(module, nn.Linear):
            weight = module.weight.to(torch.float32)
            size = GROUP if bits < 8 and weight.shape[1] % GROUP == 0 else weight.shape[1]
            groups = weight.view(weight.shape[0], -1, size)
            scales = (groups.abs().amax(dim=2, keepdim=True) / most).clamp(min=1e-12)
            module.weight.copy_((torch.round(groups / scales) * scales).view_as(weight))  # joined maps see it too


def model_with(saving: Saving, directory: Path, device: torch.device) -> SpeechModel:
    model = load_model(
        directory,
        device=device,
        dtype=saving.dtype,
        flow_steps=saving.steps,
        flow_context=saving.context,
        int8=saving.int8,
    )
    model.flow.page_form = PageForm(saving.page_type)
    if saving.weight_bits:
        for network in (model.lm, model.flow):
            round_weights(network, saving.weight_bits)
    return model


@torch.inference_mode()
def forced_log_probs(model: SpeechModel) -> Tensor:
    """Log-probabilities [tokens, ids] after a text and forced tokens of speech."""
    lm, draw = model.lm, np.random.default_rng(1)
    text = draw.integers(0, min(500, lm.config.text_vocab_size), 40).tolist()
    tokens = draw.integers(0, lm.config.num_speech_codes, NUM_FORCED).tolist()
    ids = lm.config.speech_ids
    tables, rows, count = lm.pack([[ids.sos, *text_inputs(text), ids.task, *speech_inputs(tokens[:1])]])
    length = int(count[0])
    cache = lm.new_cache(1, length + NUM_FORCED)
    log_probs, _ = lm.prefill(lm.embed(tables, rows), count, cache)
    result = [log_probs[0]]
    for place, token in enumerate(tokens[1:]):
        log_probs, _ = lm.decode(count.new_tensor([token]), count.new_tensor([length + place]), cache)
        result.append(log_probs[0])
    return torch.stack(result).float().cpu()


def streamed_mel(model: SpeechModel) -> Tensor:
    """Mel [mels, frames] of one sequence, hop by hop as the engine does."""
    codes = model.lm.config.num_speech_codes
    speaker = voice(VOICE, "full" if codes > 1000 else "tiny")
    num_prompt = len(speaker.flow_tokens)
    tokens = np.random.default_rng(2).integers(0, codes, NUM_TOKENS).tolist()
    num_pages = -(-(num_prompt + NUM_TOKENS) // model.flow.config.chunk_tokens) + 1
    runner = FlowRunner(
        model.flow, num_slots=1, num_pages=num_pages, noise=fixed_noise(), max_tokens=num_prompt + NUM_TOKENS
    )
    runner.open(0, runner.add_voice(prompt_of(speaker, model)))
    mels, num_known = [], 0
    for call in calls_for(HopSchedule(num_prompt, hop=12), NUM_TOKENS):
        mels += runner.step([FlowRow(0, tokens[num_known : call.num_tokens], call.finalize)])
        num_known = call.num_tokens
    return torch.cat(mels, dim=1).float().cpu()


def exactness(directory: Path, device: torch.device) -> dict[str, Json]:
    model = model_with(EXACT, directory, device)
    exact = {"log_probs_db": forced_log_probs(model), "mel_db": streamed_mel(model)}
    result: dict[str, Json] = {}
    for saving in savings(device):
        changed = model_with(saving, directory, device)
        of_lm, of_flow = _networks(saving)
        cell: Json = {}
        if of_lm:
            cell["log_probs_db"] = snr_db(exact["log_probs_db"], forced_log_probs(changed))
        if of_flow:
            cell["mel_db"] = snr_db(exact["mel_db"], streamed_mel(changed))
        result[saving.name] = cell
        print(f"  {saving.name:36} {cell}", flush=True)
    return result


def _networks(saving: Saving) -> tuple[bool, bool]:
    """Which networks it changes: the language model, the flow."""
    is_both = saving.dtype is not torch.float32 or saving.weight_bits > 0
    return is_both or saving.int8, is_both or not saving.int8


@dataclass(frozen=True)
class Ears:
    """The voice that is spoken with, and who says how well that went."""

    voice_id: str
    voices_dir: Path | None
    language: str
    recogniser: Recogniser | None = None


def spoken(directory: Path, device: torch.device, ears: Ears) -> dict[str, Json]:
    """Lines of a call with each saving, by the real engine."""
    result: dict[str, Json] = {}
    for saving in (EXACT, *savings(device)):
        loader = BatchedLoader(
            directory, lambda: dict(load_speakers(directory, ears.voices_dir, [])), saving.config(device)
        )
        engine = loader.load(lambda _: None)
        assert engine is not None
        if saving.weight_bits:
            model = engine.device._model  # type: ignore[attr-defined]  # noqa: SLF001 - nobody serves with such weights
            for network in (model.lm, model.flow):
                round_weights(network, saving.weight_bits)
        result[saving.name] = _heard(engine, directory, ears)
        engine.close()
        print(f"  {saving.name:36} {result[saving.name]}", flush=True)
    return result


def _heard(engine: Engine, directory: Path, ears: Ears) -> Json:
    encoder, errors = SpeakerEncoder(directory / SPEAKER_FILE), Errors()
    reference = load_speakers(directory, ears.voices_dir, [])[ears.voice_id].embedding
    alike, first_ms = [], []
    lines = lines_of(ears.language)[:NUM_LINES]
    _said(engine, ears.voice_id, lines[0])  # what is made at the first use is made
    for line in lines:
        samples, after_ms = _said(engine, ears.voice_id, line)
        first_ms.append(after_ms)
        audio = soxr.resample(samples, RATE_HZ, RECOGNISER_HZ).astype(np.float32)
        alike.append(cosine(encoder.embed(audio), reference))
        if ears.recogniser is not None:
            errors += count_errors(line, ears.recogniser.heard(audio, ears.language), ears.language)
    result: Json = {"speaker_cosine": round(float(np.mean(alike)), 3), "first_audio_ms": percentiles(first_ms)["p50"]}
    return result | ({"wrong_words": errors.figures()["word_rate"]} if ears.recogniser is not None else {})


def cosine(one: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


def _said(engine: Engine, voice_id: str, text: str) -> tuple[npt.NDArray[np.float32], float]:
    """The samples of a text, from -1 to 1, and when the first of them came, ms."""
    clock = MonotonicClock()
    begin_ns, first_ms, pcm = clock.now_ns(), 0.0, bytearray()
    engine.open(StreamRequest(stream_id=0, voice=voice_id))
    engine.push(0, text, 0)
    engine.end(0)
    while True:
        for out in engine.step():
            if isinstance(out, StreamDone):
                if out.error is not None:
                    raise out.error
                return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768), first_ms
            first_ms = first_ms or ms_between(begin_ns, clock.now_ns())
            pcm += out.data
            engine.taken(0, math.inf, None)
