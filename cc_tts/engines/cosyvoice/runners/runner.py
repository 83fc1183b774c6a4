"""The three networks with their slots and pages: what alone touches tensors (``device.Device``).

::

    start · decode ─▸ LmRunner                       lane 1: slots of keys and values
    start · speak  ─▸ FlowRunner ─▸ VocoderRunner    lane 2: pages of keys and values, crossfades

A sequence has the same slot in all three. Everything is allocated when the runner is made; nothing grows afterwards. The two
lanes share weights and constants only; what one makes for the other, speech tokens, goes by the host.

Runs on: the thread that owns the device.
"""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Row
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from cc_tts.clock import Clock
from cc_tts.engines.cosyvoice.edges import soften
from cc_tts.engines.cosyvoice.engine.device import PagesExhausted, Sampled, SlotPrefill, SpeakJob, SpokenBatch
from cc_tts.engines.cosyvoice.model.loader import SpeechModel
from cc_tts.engines.cosyvoice.model.networks.flow.encoder import FRAMES_PER_TOKEN
from cc_tts.engines.cosyvoice.model.networks.flow.flow import FlowReference, fixed_noise
from cc_tts.engines.cosyvoice.model.networks.vocoder.vocoder import Vocoder
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runners.causal_vocoder import CausalVocoderRunner, fixed_uniform
from cc_tts.engines.cosyvoice.runners.flow import ROW_BUCKETS, FlowRow, FlowRunner, FlowShape, FlowVoice, max_pages
from cc_tts.engines.cosyvoice.runners.graphs import buckets_up_to, can_record, thinned
from cc_tts.engines.cosyvoice.runners.lanes import Lane, LaneMark
from cc_tts.engines.cosyvoice.runners.lm import LmRunner, LmVoice
from cc_tts.engines.cosyvoice.runners.vocoder import SlotVocoder, VocoderBatches, VocoderRow, VocoderRunner
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.cosyvoice.voice.text_front import MAX_SPEECH_TOKENS, MAX_TEXT_TOKENS
from cc_tts.engines.engine_core import DeviceLost
from cc_tts.errors import CcTtsError

WARM_CHUNKS: Final = (1, 2, 4, 5)
"""Chunks that a flow call runs: hops of 25 to 100 tokens, and up to two tokens more in the last call."""
WARM_PAGES: Final = (8, 16, 24, 32)  # pages that it looks at: 8 s of reference and 24 s of speech are 32
NUM_INPUT_MARKS: Final = 2  # in a prefill of the language model, besides text and speech
COARSENESS: Final = ((1, 1), (1, 2), (2, 2), (2, 4), (4, 4))
"""How sparse the graphs may become where memory is short: every n-th size of rows, and of pages. A size in between is
padded to the larger one, which costs time and no exactness.
"""
PUBLISHED_CODES: Final = 6561
SILENT_TOKENS: Final = frozenset((1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323))
"""The silent tokens of the published codebook. The reference knows the list since its version 3, and leaves it empty
for version 2.
"""


class OutOfDeviceMemory(Exception):
    """The memory that a stage needed while it ran did not fit; what it had taken has been given back."""


_FULL: Final = ("out of memory", "ALLOC_FAILED")
"""Words for a full device of those who do not ask PyTorch for memory: of driver and Triton, and of cuBLAS and cuDNN."""
_Result = TypeVar("_Result")


@dataclass(slots=True)
class _VoiceState:
    flow: FlowVoice
    lm: LmVoice | None
    num_users: int = 0


class _Speaking:
    """A call under way; see :class:`cc_tts.engines.cosyvoice.engine.device.Speaking`."""

    def __init__(
        self, runner: "ModelRunner", jobs: Row[SpeakJob], synthesis: VocoderBatches, marks: Row[LaneMark]
    ) -> None:
        self._runner = runner
        self._jobs = jobs
        self._synthesis = synthesis
        self._marks = marks

    def wait(self, limit_ms: float) -> bool:
        """Wait until it is done, for ``limit_ms`` at most; return whether it is."""
        with self._runner.guarded():
            return self._synthesis.fetched.wait(limit_ms, self._runner.clock)

    def batch(self) -> SpokenBatch:
        """Return what came of it."""
        with self._runner.guarded():
            audio = self._synthesis.spoken()
            begin, between, end = self._marks
            flow_ms, vocoder_ms = between.ms_since(begin), end.ms_since(between)
        pieces = [
            None if pcm is None else soften(pcm, is_first=job.is_first, is_last=job.is_last)
            for job, pcm in zip(self._jobs, audio, strict=True)
        ]
        return SpokenBatch(pieces, flow_ms, vocoder_ms)


class ModelRunner:
    """The runner of the networks; see :class:`cc_tts.engines.cosyvoice.engine.device.Device`.

    ``num_positions`` are those of a sequence: inputs and speech tokens of the language model, reference and speech of the
    flow.
    """

    def __init__(
        self,
        model: SpeechModel,
        tokenizer: TextTokenizer,
        speakers: Mapping[str, Speaker],
        *,
        num_slots: int,
        num_positions: int,
        num_pages: int,
        graphs: bool = False,
        compiles: bool = False,  # the graphs are of compiled code
        clock: Clock,
    ) -> None:
        self.num_slots = num_slots
        self.num_pages = num_pages
        self.max_tokens = num_positions
        is_published = model.lm.config.num_speech_codes == PUBLISHED_CODES
        self.silent_tokens = SILENT_TOKENS if is_published else frozenset()
        self._model = model
        self._tokenizer = tokenizer
        self._speakers = speakers
        self.clock = clock
        self._device = model.lm.device
        graphs = graphs and can_record(self._device)
        compiles = compiles and graphs
        self._lm = LmRunner(
            model.lm, num_slots=num_slots, num_positions=num_positions, graphs=graphs, compiles=compiles
        )
        self._flow = FlowRunner(
            model.flow,
            num_slots=num_slots,
            num_pages=num_pages,
            noise=fixed_noise(),
            max_tokens=num_positions,
            graphs=graphs,
            compiles=compiles,
        )
        self._vocoder = _vocoder_runner(model, num_slots, num_positions, graphs=graphs, compiles=compiles)
        self._voices: OrderedDict[str, _VoiceState] = OrderedDict()
        self._voice_of: dict[int, str] = {}
        # Last, so that both begin behind all that was made here.
        self._sampling, self._speaking = Lane(self._device), Lane(self._device)

    @property
    def num_free_pages(self) -> int:
        """Pages that can be taken, those of voices that nobody speaks with among them."""
        idle = sum(len(voice.flow.pages) for voice in self._voices.values() if not voice.num_users)
        return self._flow.pool.num_free + idle

    @property
    def num_rows(self) -> int:
        """Rows that a decode step of the language model computes now."""
        return self._lm.num_rows

    @property
    def num_not_finite(self) -> int:
        """Sequences and pieces of audio whose numbers were not finite."""
        return self._lm.num_not_finite + self._vocoder.num_not_finite

    def pages_needed(self, voice_id: str, num_tokens: int) -> int:
        """Pages that a sequence takes besides those of its voice; with them, while the voice is not there."""
        num_prompt = len(self._speakers[voice_id].flow_tokens)
        own = self._flow.pages_needed(num_prompt, num_tokens)
        if voice_id in self._voices:
            return own
        return own + self._flow.pages_of_voice(num_prompt)

    def start(self, prefills: Row[SlotPrefill]) -> None:
        """Prefill slots of the language model; a slot that is not extended is opened, for the flow as well. ``CcTtsError``
        if one of them does not fit, or its voice has no place (``PagesExhausted``); nothing has changed then.
        """
        opened: dict[int, LmVoice | None] = {}
        with self.guarded():
            try:
                for each in prefills:
                    if not each.prefill.extends:
                        opened[each.slot] = self._open(each.slot, each.voice_id)
                with self._sampling.entered():
                    self._lm.start(prefills, opened)
            except CcTtsError:
                for slot in opened:
                    self._close(slot, wipe=False)
                raise

    def decode(self, until: Mapping[int, int], num_steps: int) -> Mapping[int, Sampled]:
        """Decode steps; see :meth:`LmRunner.decode`."""
        with self.guarded(), self._sampling.entered():
            return self._lm.decode(until, num_steps)

    @torch.inference_mode()
    def speak(self, jobs: Row[SpeakJob]) -> _Speaking:
        """Begin flow and vocoder of all jobs together. Raises ``PagesExhausted`` before anything has changed."""
        with self.guarded(), self._speaking.entered():
            begin = self._mark()
            rows = [FlowRow(job.slot, job.tokens, job.is_last) for job in jobs]
            mels = self._with_pages(lambda: self._flow.step(rows))
            between = self._mark()
            chunks = [
                VocoderRow(job.slot, _at_speed(mel, job.speed), job.is_first, job.is_last, job.seed)
                for job, mel in zip(jobs, mels, strict=True)
            ]
            synthesis = self._vocoder.begin(chunks)
            return _Speaking(self, jobs, synthesis, (begin, between, self._mark()))

    def _mark(self) -> LaneMark:
        return LaneMark(self._device, self.clock)

    def release(self, slot: int, *, wipe: bool = False) -> None:
        """Free all that a slot holds; a slot that holds nothing stays so. Where a call is under way for it, what this writes
        comes behind that call.
        """
        with self.guarded():
            with self._sampling.entered():
                self._lm.release(slot)
            self._close(slot, wipe=wipe)

    def forget(self, voice_id: str) -> None:
        """Free what is kept of a voice that no slot speaks with; one that is not kept stays so."""
        state = self._voices.get(voice_id)
        if state is not None and not state.num_users:
            self._flow.drop_voice(self._voices.pop(voice_id).flow)

    def keep_voices(self, voice_ids: Iterable[str]) -> tuple[str, ...]:
        """Compute the prompts of as many of these voices as half of the pages hold; those that are left wait for their first
        use, as do those that the device has no memory for.
        """
        left = []
        for voice_id in voice_ids:
            num_pages = self.pages_needed(voice_id, 0)
            if num_pages <= self._flow.pool.num_free - self.num_pages // 2:
                try:
                    with self.guarded():
                        self._voice(voice_id)
                except OutOfDeviceMemory:
                    left.append(voice_id)
            else:
                left.append(voice_id)
        return tuple(left)

    def warm_up(self, on_progress: Callable[[str], None], *, max_rows: int, coarseness: int = 0) -> None:
        """Run every shape once that there can be at speed 1 with ``max_rows`` in a call of flow and vocoder, and record its
        graph; ``coarseness`` is an index of :data:`COARSENESS`. Raises ``OutOfDeviceMemory`` if the graphs do not fit.
        """
        row_step, _ = COARSENESS[coarseness]
        with self.guarded():
            on_progress("graphs of the language model")
            with self._sampling.entered():
                self._lm.warm_up(max_width=self.max_width, step=row_step)
            shapes = self.flow_shapes(max_rows, coarseness)
            with self._speaking.entered():
                on_progress(f"graphs of the flow: {len(shapes)}")
                self._flow.warm_up(shapes)
                on_progress("graphs of the vocoder")
                self._vocoder.warm_up(max_rows=max_rows, step=row_step)

    @property
    def max_width(self) -> int:
        """Inputs of the longest prefill of the language model: a text, and the speech of the longest reference."""
        longest = max((len(speaker.llm_tokens) for speaker in self._speakers.values()), default=0)
        return longest + MAX_TEXT_TOKENS + NUM_INPUT_MARKS

    def flow_shapes(self, max_rows: int, coarseness: int = 0) -> list[FlowShape]:
        """The shapes of the flow whose graphs are recorded: up to the pages of the longest reference and sequence."""
        row_step, page_step = COARSENESS[coarseness]
        chunk = self._model.flow.config.chunk_tokens
        longest = max((len(speaker.flow_tokens) for speaker in self._speakers.values()), default=0)
        most = min(-(-min(longest + MAX_SPEECH_TOKENS, self.max_tokens) // chunk), max_pages(self._model.flow.config))
        rows = thinned(buckets_up_to(max_rows, ROW_BUCKETS), row_step)
        pages = thinned(buckets_up_to(most, WARM_PAGES), page_step)
        return [
            FlowShape(num_rows, chunks * chunk, num_pages)
            for num_rows, chunks, num_pages in itertools.product(rows, WARM_CHUNKS, pages)
        ]

    def num_graphs(self, max_rows: int, num_slots: int, coarseness: int) -> dict[str, int]:
        """Return how many graphs of each stage :meth:`warm_up` records in a runner with ``num_slots`` slots."""
        row_step, _ = COARSENESS[coarseness]
        prefill = self._lm.prefill_keys(self.max_width, step=row_step)
        return {
            "lm": len(self._lm.step_keys(num_slots, step=row_step)) + len(prefill),
            "flow": len(self.flow_shapes(max_rows, coarseness)),
            "vocoder": len(self._vocoder.keys(max_rows, step=row_step)),
        }

    def graph_bytes(self, free_bytes: Callable[[], int], max_rows: int) -> tuple[dict[str, int], int]:
        """Return what a graph of each stage takes, and what all of them share: the two largest of each are recorded and
        looked at. Raises ``OutOfDeviceMemory`` if not even these fit.

        The graphs of a kind share the memory that the largest of them needs while it runs. The first run of a size, before
        it is recorded, has memory of its own, which is given back: so the largest share is needed once more.
        """
        each: dict[str, int] = {}
        shares = []
        flow = sorted(self.flow_shapes(max_rows), reverse=True)
        works: list[tuple[str, list[Callable[[], object]]]] = [
            ("lm", [partial(self._lm.record_prefill, key) for key in self._lm.prefill_keys(self.max_width)[:2]]),
            ("lm", [partial(self._lm.record_step, key) for key in self._lm.step_keys()[:2]]),
            ("flow", [partial(self._flow.record, shape) for shape in flow[:2]]),
            ("vocoder", [partial(self._vocoder.record, key) for key in self._vocoder.keys(max_rows)[:2]]),
        ]
        with self.guarded():
            for stage, records in works:
                taken = []
                for record in records:
                    before = free_bytes()
                    with (self._sampling if stage == "lm" else self._speaking).entered():
                        record()
                    taken.append(before - free_bytes())
                each[stage] = max(each.get(stage, 0), taken[-1])
                shares.append(max(0, taken[0] - taken[-1]))
        return each, sum(shares) + max(shares)

    def _open(self, slot: int, voice_id: str) -> LmVoice | None:
        """Open a slot of the flow; returns what the language model keeps of the voice."""
        state = self._voice(voice_id)
        with self._speaking.entered():
            self._flow.open(slot, state.flow)
        state.num_users += 1
        self._voice_of[slot] = voice_id
        return state.lm

    def _close(self, slot: int, *, wipe: bool) -> None:
        with self._speaking.entered():
            self._flow.close(slot, wipe=wipe)
        voice_id = self._voice_of.pop(slot, None)
        if voice_id is not None:
            self._voices[voice_id].num_users -= 1

    def _voice(self, voice_id: str) -> _VoiceState:
        """The state of a voice, made when it is first spoken with; the one used last is the last to go."""
        state = self._voices.get(voice_id)
        if state is None:
            speaker = self._speakers[voice_id]
            dtype = self._model.flow.dtype
            text = speaker.lm_request(self._tokenizer, ()).prompt_text
            with self._sampling.entered():  # first, as it holds no pages if what follows fails
                lm = self._lm.add_voice(text) if text else None
            with self._speaking.entered():
                reference = FlowReference(
                    torch.from_numpy(speaker.flow_tokens).long()[None],
                    torch.from_numpy(speaker.flow_mel)[None].to(dtype),
                    torch.from_numpy(speaker.embedding)[None].to(dtype),
                )
                flow = self._with_pages(lambda: self._flow.add_voice(reference))
            state = self._voices[voice_id] = _VoiceState(flow, lm)
        self._voices.move_to_end(voice_id)
        return state

    def _with_pages(self, work: Callable[[], _Result]) -> _Result:
        """Do ``work``; if pages lack, once more with those of the voices that nobody speaks with."""
        try:
            return work()
        except PagesExhausted:
            if not self._drop_idle_voices():
                raise
            return work()

    def _drop_idle_voices(self) -> bool:
        idle = [voice_id for voice_id, voice in self._voices.items() if not voice.num_users]
        for voice_id in idle:
            self._flow.drop_voice(self._voices.pop(voice_id).flow)
        return bool(idle)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Distinguish a device that is full, ``OutOfDeviceMemory``, from one that is gone, ``DeviceLost``."""
        try:
            yield
        except torch.OutOfMemoryError:
            pass  # the frames of the error hold on to tensors until here
        except RuntimeError as error:
            if not any(words in str(error) for words in _FULL):
                if "CUDA error" not in str(error):
                    raise
                raise DeviceLost(str(error).partition("\n")[0][:200]) from None
        else:
            return
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfDeviceMemory


def _vocoder_runner(
    model: SpeechModel, num_slots: int, num_tokens: int, *, graphs: bool, compiles: bool
) -> SlotVocoder:
    vocoder = model.vocoder
    if isinstance(vocoder, Vocoder):
        return VocoderRunner(vocoder, num_slots=num_slots, graphs=graphs, compiles=compiles)
    noise = fixed_uniform(num_tokens * FRAMES_PER_TOKEN * vocoder.config.hop_samples)
    return CausalVocoderRunner(vocoder, num_slots=num_slots, noise=noise, graphs=graphs, compiles=compiles)


def _at_speed(mel: Tensor, speed: float) -> Tensor:
    """Stretch ``mel`` [mels, n] in time, as the reference does with speech that is there as a whole (§6)."""
    if speed == 1.0 or not mel.shape[1]:
        return mel
    return functional.interpolate(mel[None], size=max(1, int(mel.shape[1] / speed)), mode="linear")[0]
