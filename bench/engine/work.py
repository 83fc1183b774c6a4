"""The same work done in several ways: speech tokens of N sequences to audio, and N sequences of speech tokens drawn."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from bench.engine.lab import Lab
from bench.engine.model import NUM_CODES, PROMPT_TEXT, VOICE, voice
from cc_tts.engines.cosyvoice.engine.device import SlotPrefill
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice.model.loader import TOKENIZER_FOLDER, SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LengthLimits
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.prefill import Prefill, SamplingRules
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner, FlowVoice
from cc_tts.engines.cosyvoice.runners.lm import LmRunner, LmVoice
from cc_tts.engines.cosyvoice.runners.vocoder import VocoderRow, VocoderRunner
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from lab.cosyvoice.schedule import FlowCall, HopSchedule, calls_for, calls_with_hops
from lab.cosyvoice.token2wav import stream_wav
from lab.cosyvoice.whole_flow import whole_mel
from lab.cosyvoice.whole_vocoder import no_noise, two_sided, vocode

MAX_TOKENS: Final = 600
STEPS_PER_ROUND: Final = 8


def prompt_of(speaker: Speaker, model: SpeechModel) -> FlowReference:
    """The flow's prompt, on the model's device and in its type."""
    weight = model.flow.spk_embed_affine_layer.weight
    return FlowReference(
        torch.from_numpy(speaker.flow_tokens).long()[None].to(weight.device),
        torch.from_numpy(speaker.flow_mel)[None].to(weight.device, weight.dtype),
        torch.from_numpy(speaker.embedding)[None].to(weight.device, weight.dtype),
    )


def forced_tokens(num_sequences: int, num_tokens: int, num_codes: int) -> list[list[int]]:
    """Speech tokens that nobody drew."""
    draw = random.Random(4)
    return [[draw.randrange(num_codes) for _ in range(num_tokens)] for _ in range(num_sequences)]


@dataclass(slots=True)
class Runners:
    flow: FlowRunner
    vocoder: VocoderRunner
    voice: FlowVoice


class SpeechWork:
    """Tokens to audio, for ``num_sequences`` of ``num_tokens`` each, in hops of 25, 50, 100."""

    def __init__(self, lab: Lab, model: SpeechModel, *, num_sequences: int, num_tokens: int) -> None:
        self._lab = lab
        self.model = model
        self.speaker = voice(VOICE, lab.size)
        self.prompt = prompt_of(self.speaker, model)
        self.tokens = forced_tokens(num_sequences, num_tokens, NUM_CODES[lab.size])
        self.noise = fixed_noise()[:, :, : 2 * MAX_TOKENS].to(lab.device)
        self._num_prompt = len(self.speaker.flow_tokens)
        self._eager = self.runners(graphs=False)
        self._graphed = self.runners(graphs=True) if lab.is_cuda and lab.graphs else None

    @property
    def has_graphs(self) -> bool:
        return self._graphed is not None

    def runners(self, *, graphs: bool) -> Runners:
        """Flow and vocoder with room for all sequences."""
        flow = FlowRunner(
            self.model.flow,
            num_slots=len(self.tokens),
            num_pages=(len(self.tokens) + 1) * (-(-(len(self.tokens[0]) + self._num_prompt) // CHUNK_TOKENS) + 1),
            noise=self.noise,
            max_tokens=MAX_TOKENS,
            graphs=graphs,
        )
        vocoder = VocoderRunner(
            two_sided(self.model.vocoder), num_slots=len(self.tokens), noise=no_noise, graphs=graphs
        )
        return Runners(flow, vocoder, flow.add_voice(self.prompt))

    def _calls(self) -> list[FlowCall]:
        return list(calls_for(HopSchedule(self._num_prompt), len(self.tokens[0])))

    @torch.inference_mode()
    def recompute(self) -> None:
        """One request after the other; each hop runs prompt and tokens from the start."""
        for tokens in self.tokens:
            row = torch.tensor([tokens], device=self._lab.device)
            pieces = stream_wav(
                self.model.flow,
                partial(vocode, self.model.vocoder),
                self.prompt,
                row,
                self._calls(),
                noise=self.noise,
                incremental=False,
            )
            for piece in pieces:
                piece.cpu()

    def incremental(self) -> None:
        """One request after the other; each hop runs its own frames."""
        for number in range(len(self.tokens)):
            self._together([number], self._eager)

    def batched(self) -> None:
        """All requests at a time, hop by hop."""
        self._together(range(len(self.tokens)), self._eager)

    def graphed(self) -> None:
        assert self._graphed is not None
        self._together(range(len(self.tokens)), self._graphed)

    def _together(self, numbers: Sequence[int], runners: Runners) -> None:
        for number in numbers:
            runners.flow.open(number, runners.voice)
        num_known = 0
        for call in self._calls():
            rows = [FlowRow(n, self.tokens[n][num_known : call.num_tokens], call.finalize) for n in numbers]
            mels = runners.flow.step(rows)
            pairs = zip(numbers, mels, strict=True)
            runners.vocoder.synthesise([VocoderRow(n, mel, num_known == 0, call.finalize) for n, mel in pairs])
            num_known = call.num_tokens
        for number in numbers:
            runners.flow.close(number)


class DrawWork:
    """Speech tokens of ``num_sequences``, ``num_tokens`` each, with prompt and text before them."""

    def __init__(self, lab: Lab, model: SpeechModel, *, num_sequences: int, num_tokens: int) -> None:
        tokenizer = TextTokenizer.from_directory(lab.model_dir / TOKENIZER_FOLDER)
        speaker = voice(VOICE, lab.size)
        request = speaker.lm_request(tokenizer, tokenizer.encode(PROMPT_TEXT))
        self._inputs = request.inputs_for(model.lm.config.speech_ids)
        self._prompt_text = request.prompt_text
        self._rules = SamplingRules.of_request(LengthLimits(num_tokens, num_tokens))
        self._num_sequences, self._num_tokens = num_sequences, num_tokens
        self._model = model
        self._eager = self._runner(graphs=False)
        self._graphed = self._runner(graphs=True) if lab.is_cuda and lab.graphs else None

    def _runner(self, *, graphs: bool) -> tuple[LmRunner, LmVoice]:
        num_positions = len(self._inputs) + self._num_tokens
        runner = LmRunner(self._model.lm, num_slots=self._num_sequences, num_positions=num_positions, graphs=graphs)
        return runner, runner.add_voice(self._prompt_text)

    def one_at_a_time(self) -> None:
        """One sequence after the other."""
        for _ in range(self._num_sequences):
            self._together(1, *self._eager)

    def batched(self) -> None:
        self._together(self._num_sequences, *self._eager)

    def graphed(self) -> None:
        assert self._graphed is not None
        self._together(self._num_sequences, *self._graphed)

    def _together(self, count: int, runner: LmRunner, kept: LmVoice) -> None:
        prefill = Prefill(self._inputs, self._rules)
        runner.start([SlotPrefill(slot, "", prefill, slot) for slot in range(count)], dict.fromkeys(range(count), kept))
        is_over = False
        while not is_over:
            drawn = runner.decode(dict.fromkeys(range(count), self._num_tokens), STEPS_PER_ROUND)
            is_over = all(answer.stopped for answer in drawn.values())
        for slot in range(count):
            runner.release(slot)


class ChunkWork:
    """Single chunks of one sequence at a fixed hop of 25: what each costs, incrementally and from the start."""

    def __init__(self, speech: SpeechWork, *, num_chunks: int) -> None:
        self._speech = speech
        num_prompt = len(speech.speaker.flow_tokens)
        self._num_tokens = num_chunks * CHUNK_TOKENS + speech.model.flow.config.encoder.lookahead
        self._tokens = forced_tokens(1, self._num_tokens, speech.model.flow.config.vocab_size)[0]
        self.calls = list(calls_with_hops([CHUNK_TOKENS] * num_chunks, self._num_tokens))[:num_chunks]
        num_pages = 2 + -(-(num_prompt + self._num_tokens) // CHUNK_TOKENS)
        self._runner = FlowRunner(
            speech.model.flow, num_slots=1, num_pages=num_pages, noise=speech.noise, max_tokens=MAX_TOKENS
        )
        self._voice = self._runner.add_voice(speech.prompt)
        self._num_known = 0

    def begin(self) -> None:
        self._runner.close(0)
        self._runner.open(0, self._voice)
        self._num_known = 0

    def incremental(self, call: FlowCall) -> None:
        """The next chunk's own frames."""
        self._runner.step([FlowRow(0, self._tokens[self._num_known : call.num_tokens], is_last=False)])
        self._num_known = call.num_tokens

    @torch.inference_mode()
    def recompute(self, call: FlowCall) -> None:
        """Everything up to it from the start."""
        speech = self._speech
        known = torch.tensor([self._tokens[: call.num_tokens]], device=speech.noise.device)
        prompt = speech.prompt
        whole_mel(
            speech.model.flow,
            known,
            prompt,
            streaming=True,
            finalize=False,
            noise=speech.noise,
        )
