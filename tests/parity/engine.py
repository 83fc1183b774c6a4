"""The golden stream through the runners of the engine, among sequences that come and go (``parity --engine``).

::

    given ids ─▸ LmRunner  ─▸ log-probabilities         tokens ─▸ FlowRunner ─▸ mel ─▸ VocoderRunner ─▸ PCM
    requests  ─▸ LmRunner  ─▸ ids, as each alone            └──────── all of them with eight slots ───────┘

Who the others are, their slots, and who takes part in which round is drawn from a seed. With graphs everything is run twice:
the first time records them, and what is compared was replayed.

Runs on: the thread that owns the device.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

from cc_tts.engines.cosyvoice.engine.schedule import LOOKAHEAD_TOKENS
from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.runners.causal_vocoder import CausalVocoderRunner
from cc_tts.engines.cosyvoice.runners.flow import FlowRow, FlowRunner, FlowVoice
from cc_tts.engines.cosyvoice.runners.kv_cache import FlowArena
from cc_tts.engines.cosyvoice.runners.vocoder import SlotVocoder, VocoderRow, VocoderRunner
from lab.cosyvoice.schedule import FlowCall, calls_with_hops
from lab.cosyvoice.whole_vocoder import no_noise
from tests.parity.cases import WAV_TOLERANCE, Recorded, prompt_of
from tests.parity.engine_lm import NUM_SLOTS, BatchPlan, happens, ids_in_batch, lm_in_batch
from tests.parity.result import EXACT, Comparison, Comparisons

_FULL_SCALE: Final = 32767.0
_BATCH_BYTES: Final = 4 << 30
_MIN_CHUNKS: Final = 2
_MAX_CHUNKS: Final = 7
_MIN_HOP: Final = 4  # eight frames: the crossfade of the vocoder
_MAX_HOP: Final = 40
_MIN_OTHERS: Final = 3  # that are run in a call with the golden stream


def groups(model: SpeechModel, recorded: Recorded, batch: BatchPlan) -> Iterator[tuple[str, Comparisons]]:
    """Everything there is to compare, by name."""
    yield "engine llm", lm_in_batch(model.lm, recorded, batch)
    yield "engine ids", ids_in_batch(model.lm, recorded, batch)
    yield "engine stream", stream_in_batch(model, recorded, batch)


@dataclass(slots=True, eq=False)
class _Stream:
    """Tokens that become audio in a slot."""

    voice: FlowVoice
    tokens: Sequence[int]
    calls: Sequence[FlowCall]
    heard: Sequence[Tensor] = ()  # mel for the vocoder in place of the flow's
    num_pages: int = 0
    has_own_voice: bool = False
    num_done: int = 0

    @property
    def is_over(self) -> bool:
        return self.num_done == len(self.calls)

    def next_row(self, slot: int, chunk: int) -> FlowRow:
        """The tokens of the next call; one that ends within a chunk gives it out as far as it goes."""
        call = self.calls[self.num_done]
        num_known = self.calls[self.num_done - 1].num_tokens if self.num_done else 0
        end = len(self.voice.tokens) + call.num_given + call.num_new
        return FlowRow(slot, self.tokens[num_known : call.num_tokens], call.finalize, bool(end % chunk))


def stream_in_batch(
    model: SpeechModel, recorded: Recorded, batch: BatchPlan, *, uniform: Tensor | None = None
) -> Comparisons:
    """Mel and audio of each chunk; audio is compared as the 16-bit numbers that leave the engine, at full scale 1.

    ``uniform``: the noise of the vocoder of the third generation, which gets the recorded mel; it holds back less than the
    reference does, so its audio is compared where the reference cuts.
    """
    stage = _Stage(model, recorded, batch, uniform)
    mels: list[Tensor] = []
    pieces: list[bytes] = []
    for _ in range(batch.num_runs):
        mels, pieces = stage.run(batch.draw("streams"))
    for index, mel in enumerate(mels[:-1]):
        yield recorded.compare(f"mel_chunk{index}", mel, case=f"engine mel_chunk{index}")
    end = recorded.array("mel_stream_final")[:, -mels[-1].shape[1] :]
    yield Comparison("engine mel_stream_final end", mels[-1], end, recorded.tolerance)
    cuts = list(itertools.accumulate(len(recorded.array(f"wav_chunk{index}")) for index in range(len(pieces))))
    whole = np.frombuffer(b"".join(pieces), "<i2") / _FULL_SCALE
    for index, ours in enumerate(np.split(whole, cuts[:-1])):
        golden = recorded.array(f"wav_chunk{index}").clip(-1.0, 1.0)
        yield Comparison(f"engine wav_chunk{index}", ours, golden, WAV_TOLERANCE)
    yield Comparison("engine pages left over", [stage.num_pages_held], [0], EXACT)


class _Stage:
    """Flow and vocoder with the golden stream in one slot and others in the rest."""

    def __init__(self, model: SpeechModel, recorded: Recorded, batch: BatchPlan, uniform: Tensor | None = None) -> None:
        config = model.flow.config
        self._config = config
        self._chunk = config.chunk_tokens
        self._prompt = prompt_of(recorded)
        self._device = recorded.device
        self._tokens = recorded.numbers("flow_token")
        self._calls = list(calls_with_hops(recorded.numbers("chunk_hops"), len(self._tokens)))
        num_golden = self._prompt.token.shape[1] + len(self._tokens)
        self._golden_pages = -(-num_golden // self._chunk)
        bytes_per_page = FlowArena(model.flow, num_slots=1, num_pages=1).bytes_per_page
        least, most = ((NUM_SLOTS - 1) * count for count in (_MIN_CHUNKS, _MAX_CHUNKS))
        num_others = min(max(_BATCH_BYTES // bytes_per_page, least), most)
        self._flow = FlowRunner(
            model.flow,
            num_slots=NUM_SLOTS,
            num_pages=self._golden_pages + num_others,
            noise=fixed_noise(),
            max_tokens=max(num_golden, self._prompt.token.shape[1] + _MAX_CHUNKS * self._chunk),
            graphs=batch.graphs,
        )
        self._heard: list[Tensor] = []
        self._vocoder: SlotVocoder
        if isinstance(model.vocoder, Vocoder):
            self._vocoder = VocoderRunner(model.vocoder, num_slots=NUM_SLOTS, noise=no_noise, graphs=batch.graphs)
        else:
            assert uniform is not None
            runner = CausalVocoderRunner(model.vocoder, num_slots=NUM_SLOTS, noise=uniform, graphs=batch.graphs)
            self._vocoder = runner
            num_chunks = len(self._calls) - 1
            self._heard = [recorded.tensor(f"mel_chunk{index}") for index in range(num_chunks)]
            begin = sum(each.shape[1] for each in self._heard)
            self._heard.append(recorded.tensor("mel_stream_final")[:, begin:])
        self._num_others_pages = num_others
        self._streams: dict[int, _Stream] = {}

    @property
    def num_pages_held(self) -> int:
        return self._flow.arena.num_pages - 1 - self._flow.pool.num_free  # page 0 is nobody's

    def run(self, draw: random.Random) -> tuple[list[Tensor], list[bytes]]:
        """Mel [mels, n] and PCM of each call of the golden stream."""
        voice = self._flow.add_voice(self._prompt)
        golden = _Stream(voice, self._tokens, self._calls, heard=self._heard)
        ours = draw.randrange(NUM_SLOTS)
        mels: list[Tensor] = []
        pieces: list[bytes] = []
        num_rounds = 0
        while not golden.is_over:
            self._let_in(draw, voice, [slot for slot in range(NUM_SLOTS) if slot != ours])
            chosen = [slot for slot in self._streams if slot != ours and happens(draw, 0.7)]
            if num_rounds > 1 and len(chosen) >= _MIN_OTHERS and happens(draw, 0.7):
                if ours not in self._streams:
                    self._flow.open(ours, voice)
                    self._streams[ours] = golden
                chosen.append(ours)
            draw.shuffle(chosen)
            if chosen:
                made = self._step(chosen)
                if ours in made:
                    mel, pcm = made[ours]
                    mels.append(mel)
                    pieces.append(pcm)
            for slot in chosen:
                if self._streams[slot].is_over or (slot != ours and happens(draw, 0.1)):
                    self._let_go(slot)
            num_rounds += 1
        for slot in tuple(self._streams):
            self._let_go(slot)
        self._flow.drop_voice(voice)
        return mels, pieces

    def _step(self, slots: Sequence[int]) -> Mapping[int, tuple[Tensor, bytes]]:
        """The next call of these streams, all in one batch."""
        streams = [self._streams[slot] for slot in slots]
        rows = [stream.next_row(slot, self._chunk) for slot, stream in zip(slots, streams, strict=True)]
        mels = self._flow.step(rows)
        chunks = [
            VocoderRow(
                row.slot,
                stream.heard[stream.num_done] if stream.heard else mel,
                is_first=stream.num_done == 0,
                is_last=row.is_last,
            )
            for row, mel, stream in zip(rows, mels, streams, strict=True)
        ]
        audio = self._vocoder.synthesise(chunks)
        for stream in streams:
            stream.num_done += 1
        return {slot: (mel, each or b"") for slot, mel, each in zip(slots, mels, audio, strict=True)}

    def _let_in(self, draw: random.Random, voice: FlowVoice, slots: Sequence[int]) -> None:
        """Open others in some free slots, with room for the least that may come in those that stay free."""
        free = [slot for slot in slots if slot not in self._streams]
        for slot in free:
            if happens(draw, 0.7):
                num_held = sum(stream.num_pages for stream in self._streams.values())
                to_come = sum(other not in self._streams for other in slots) - 1
                most = min(_MAX_CHUNKS, self._num_others_pages - num_held - _MIN_CHUNKS * to_come)
                self._streams[slot] = stream = self._other(draw, voice, draw.randint(_MIN_CHUNKS, most))
                self._flow.open(slot, stream.voice)

    def _let_go(self, slot: int) -> None:
        stream = self._streams.pop(slot)
        self._flow.close(slot)
        if stream.has_own_voice:
            self._flow.drop_voice(stream.voice)

    def _other(self, draw: random.Random, golden: FlowVoice, num_pages: int) -> _Stream:
        """Random tokens, hops on the grid and off it, the golden voice or one of its own; in so many pages at most."""
        most = num_pages * self._chunk
        is_own = happens(draw, 0.7)
        if is_own:
            num_prompt = draw.randint(0, most // 2)
            voice = self._flow.add_voice(self._random_prompt(draw, num_prompt))
            most -= num_prompt
        else:
            voice = golden
            most += len(golden.pages) * self._chunk - len(golden.tokens)
        num_tokens = draw.randint(_MIN_HOP, most)
        tokens = [draw.randrange(self._config.vocab_size) for _ in range(num_tokens)]
        hops: list[int] = []
        while (left := num_tokens - sum(hops) - LOOKAHEAD_TOKENS) >= _MIN_HOP:
            hop = draw.randint(_MIN_HOP, min(_MAX_HOP, left))
            beyond = (len(voice.tokens) + sum(hops) + hop) % self._chunk
            hops.append(hop - beyond if happens(draw, 0.5) and hop - beyond >= _MIN_HOP else hop)
        return _Stream(voice, tokens, list(calls_with_hops(hops, num_tokens)), (), num_pages, has_own_voice=is_own)

    def _random_prompt(self, draw: random.Random, num_tokens: int) -> FlowReference:
        generator = torch.Generator().manual_seed(draw.getrandbits(40))
        config = self._config
        token = torch.randint(0, config.vocab_size, (1, num_tokens), generator=generator)
        feat = torch.randn((1, FRAMES_PER_TOKEN * num_tokens, config.estimator.num_mels), generator=generator)
        embedding = torch.randn((1, config.num_embedding), generator=generator)
        return FlowReference(*(part.to(self._device) for part in (token, feat, embedding)))
