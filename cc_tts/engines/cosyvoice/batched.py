"""Loads the engine of a worker, warms it up and measures it.

Runs on: the thread that owns the device.
"""

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from cc_tts import logs
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.engines.cosyvoice.engine.capacity import Capacity, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice.model.loader import (
    LANGUAGES,
    TOKENIZER_FOLDER,
    SpeechModel,
    check_weights,
    generation_of_directory,
    load_model,
    load_tokenizer,
    refuse_other_directory,
)
from cc_tts.engines.cosyvoice.model.networks.pages import PageForm, PageType
from cc_tts.engines.cosyvoice.model.networks.trial import form_on
from cc_tts.engines.cosyvoice.model.sizes import FLOW_STEPS, FlowConfig, LmConfig
from cc_tts.engines.cosyvoice.model.tokenizer import TextTokenizer
from cc_tts.engines.cosyvoice.runners.flow import max_pages
from cc_tts.engines.cosyvoice.runners.graphs import can_record
from cc_tts.engines.cosyvoice.runners.lanes import has_streams
from cc_tts.engines.cosyvoice.runners.memory_plan import (
    MemoryPlan,
    TooLittleMemory,
    can_measure,
    choose_coarseness,
    device_free_bytes,
    pages_for,
    plan_memory,
    spare_slots,
    usable_bytes,
)
from cc_tts.engines.cosyvoice.runners.runner import COARSENESS, PUBLISHED_CODES, ModelRunner, OutOfDeviceMemory
from cc_tts.engines.cosyvoice.voice.speakers import Speaker
from cc_tts.engines.cosyvoice.voice.text_front import TextFront
from cc_tts.engines.engine_core import EngineDescription, StreamDone, StreamRequest
from cc_tts.errors import CcTtsError, ConfigError, EngineFailed
from cc_tts.voices.voice import Voice

NUM_POSITIONS: Final = 1024  # of a slot of the language model: 8 s of reference with its words, a text, 24 s of speech
CALIBRATION_TEXT: Final = "This sentence is only said to find out how long it takes."
CALIBRATION_PIECES: Final = 3
CPU_CALIBRATION_PIECES: Final = 1  # which takes it some ten seconds at the published size
CALIBRATION_TOKENS: Final = 125  # of speech, at most, in the text above
CPU_WARNING: Final = "good for hearing a voice, not for live calls"
MAX_CALIBRATION_STEPS: Final = 2000  # unmeasured

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedConfig:
    """The settings of a worker's engine."""

    engine: EngineConfig
    device: torch.device
    model: str = ""  # its name in the settings, which its voices have
    dtype: torch.dtype | None = None  # of language model and flow; None: what suits the device
    int8: bool = False  # the linear maps of the language model's layers, on a CPU
    flow_steps: int = FLOW_STEPS
    page_type: PageType = "auto"
    kernels: bool = True  # of Triton, where the card runs them
    fuses: bool = False  # those too that join products to what is around them
    flow_context: int = 0  # chunks before its own that each chunk of the flow sees; 0: all
    num_threads: int = 0  # of torch; 0: as it is
    memory_bytes: int = 0  # for the flow's pages; 0: what the device has left
    graphs: bool = True
    compiles: bool = False  # the graphs are of compiled code
    overlaps: bool = True  # on a card, flow and vocoder run beside the language model
    checks_only: bool = False  # load no networks: it can then list its voices and nothing else
    num_positions: int = NUM_POSITIONS
    calibration_rows: tuple[int, ...] = (1,)  # how many streams are spoken at a time to measure the stages


class BatchedLoader:
    """The loader of the batched engine; see :class:`cc_tts.engines.engine_core.EngineLoader`."""

    def __init__(
        self,
        model_dir: Path,
        speakers: Callable[[], Mapping[str, Speaker]],
        config: BatchedConfig,
        *,
        clock: Clock | None = None,
        faults: Sequence[str] = (),
    ) -> None:
        self.faults = faults
        """The voices that ``speakers`` left out, and why."""
        self._model_dir = model_dir
        self._source = speakers
        self._config = config
        self._clock = clock or MonotonicClock()
        self._speakers: dict[str, Speaker] = {}
        """The voices that the device and the text front know. A voice that was enrolled again gets another name here, so
        that running streams keep the former one.
        """
        self._names: dict[str, str] = {}
        self._num_made_anew = 0
        self._made: Engine | None = None
        self._listed: Sequence[Speaker] = ()
        self._sizes: tuple[LmConfig, FlowConfig] | None = None
        self._is_slow = False  # its voices are for prompts that are made before they are heard
        self.costs = StageCosts()

    @property
    def voices(self) -> tuple[Voice, ...]:
        """Every voice, once loaded."""
        streams = 0 if self._is_slow else None
        return tuple(replace(each.voice, model=self._config.model, streams=streams) for each in self._listed)

    @property
    def description(self) -> EngineDescription:
        return EngineDescription(self.voices, tuple(LANGUAGES), faults=tuple(self.faults))

    def refresh(self, on_done: Callable[[], None]) -> None:
        """Read the voices again, which takes some milliseconds each; see the contract. Their references are computed at
        their first use. Removed voices are forgotten once no stream uses them.
        """
        try:
            self._listed = [each for each in self._source().values() if self._takes(each)] or self._listed
        except CcTtsError as error:
            log.warning("voices_not_read", detail=error.detail)
        self._forget_those_gone()
        on_done()

    def _forget_those_gone(self) -> None:
        listed = {self._names.get(speaker.id, speaker.id) for speaker in self._listed}
        gone = self._speakers.keys() - listed
        if self._made is not None:
            for name in self._made.forget(gone):
                del self._speakers[name]

    def _takes(self, speaker: Speaker) -> bool:
        """Make a new or changed voice known; return whether it can be used."""
        name = self._names.get(speaker.id, speaker.id)
        known = self._speakers.get(name)
        if known is not None and known.sounds_like(speaker):
            return True
        try:
            if self._sizes is not None:
                speaker.check_fits(*self._sizes)
        except CcTtsError as error:
            log.warning("voice_unusable", detail=error.detail)
            return False
        if known is not None:
            self._num_made_anew += 1
            name = self._names[speaker.id] = f"{speaker.id} {self._num_made_anew}"
        self._speakers[name] = speaker
        return True

    def load(self, on_progress: Callable[[str], None]) -> Engine | None:
        """Load the voices and the networks, allocate, warm up, measure. Raises ``CcTtsError`` for anything that cannot be
        used.
        """
        config = self._config
        if config.device.type == "cpu" and not config.checks_only:
            on_progress = _with_warning(on_progress)
        if config.num_threads:
            torch.set_num_threads(config.num_threads)
        refuse_other_directory(self._model_dir)
        self._speakers.update(self._source())  # before the weights: a fault of theirs shows in a second
        self._listed = tuple(self._speakers.values())
        if config.checks_only:
            check_weights(self._model_dir)
            generation = generation_of_directory(self._model_dir)
            TextTokenizer.from_directory(self._model_dir / TOKENIZER_FOLDER, generation)
            return None
        model = load_model(
            self._model_dir,
            device=config.device,
            dtype=config.dtype,
            flow_steps=config.flow_steps,
            flow_context=config.flow_context,
            int8=config.int8,
            on_share=_in_tenths(on_progress),
        )
        tokenizer = load_tokenizer(self._model_dir, model)
        self._sizes = model.lm.config, model.flow.config
        form = PageForm(config.page_type)
        if config.kernels:
            form = form_on(config.device, model.flow.dtype, config.page_type, *self._sizes, fuses=config.fuses)
        model.flow.page_form = form
        model.lm.backbone.in_place, model.lm.backbone.fused = form.in_place, form.fused
        for speaker in self._listed:
            speaker.check_fits(*self._sizes)
        runner, plan = self._warm_runner(model, tokenizer, on_progress)
        is_published = model.lm.config.num_speech_codes == PUBLISHED_CODES  # the guard knows no other speech tokens
        engine_config = replace(
            config.engine,
            max_streams=plan.num_streams,
            max_flow_keys=max_pages(model.flow.config) * model.flow.config.chunk_frames,
            ends_speech=is_published,
            overlaps=config.overlaps and has_streams(config.device),
        )
        front = TextFront(
            tokenizer, self._speakers, speech_ids=model.lm.config.speech_ids, num_positions=config.num_positions
        )
        self._calibrate(runner, front, engine_config, on_progress)
        if config.device.type == "cuda" and config.calibration_rows:
            engine_config = paced(engine_config, self.costs)
        self._made = self._engine(runner, front, self.costs, engine_config)
        return self._made

    def _engine(self, runner: ModelRunner, front: TextFront, costs: StageCosts, config: EngineConfig) -> Engine:
        voice_id = next(iter(self._speakers))
        return Engine(runner, front, costs, config, typical_voice=voice_id, clock=self._clock, names=self._names)

    def _warm_runner(
        self, model: SpeechModel, tokenizer: TextTokenizer, on_progress: Callable[[str], None]
    ) -> tuple[ModelRunner, MemoryPlan]:
        """Return a runner with its voices and graphs, with as many sizes of graphs as fit in the memory. Raises
        ``ConfigError`` if not even the smallest number fits.
        """
        config = self._config
        has_graphs = config.graphs and can_record(config.device)
        measured = self._measured(model, tokenizer, on_progress) if has_graphs and can_measure(config.device) else None
        coarseness = 0
        while True:
            graph_bytes = 0
            if measured is not None:
                free_bytes = device_free_bytes(config.device)
                coarseness, graph_bytes = choose_coarseness(*measured, free_bytes, coarseness)
            try:
                plan = self._plan(model, graph_bytes)
            except TooLittleMemory:
                if measured is None or coarseness == len(COARSENESS) - 1:
                    raise
                coarseness += 1
                continue
            on_progress(f"state: {plan}")
            runner = self._runner(model, tokenizer, plan.num_slots, plan.num_pages)
            first = self._first_voices()
            on_progress(f"prompts of {len(first)} voices")
            if left := runner.keep_voices(first):
                detail = "their prompts are computed at their first use"
                log.warning("voices_not_kept", num_voices=len(left), detail=detail)
            if not has_graphs:
                return runner, plan
            try:
                runner.warm_up(on_progress, max_rows=self._max_rows(plan.num_streams), coarseness=coarseness)
            except OutOfDeviceMemory:
                log.warning("graphs_do_not_fit", coarseness=coarseness, detail="fewer sizes are tried")
            else:
                return runner, plan
            coarseness += 1
            del runner
            _give_memory_back(config.device)

    def _first_voices(self) -> list[str]:
        """Return the voices whose prompts are computed before the first stream: all of them on a GPU; the first on a CPU,
        which takes seconds for each; none for a single text.
        """
        if not self._config.calibration_rows:
            return []
        return list(self._speakers)[: 1 if self._config.device.type == "cpu" else None]

    def _plan(self, model: SpeechModel, graph_bytes: int = 0) -> MemoryPlan:
        config = self._config
        return plan_memory(
            model,
            free_bytes=usable_bytes(config.device) - graph_bytes,
            max_streams=config.engine.max_streams,
            num_positions=config.num_positions,
            memory_bytes=config.memory_bytes,
            prompt_tokens=max((len(speaker.flow_tokens) for speaker in self._speakers.values()), default=0),
        )

    def _measured(
        self, model: SpeechModel, tokenizer: TextTokenizer, on_progress: Callable[[str], None]
    ) -> tuple[Sequence[Mapping[str, int]], Mapping[str, int], int]:
        """Return the number of graphs by coarseness, the memory of one graph of each stage, and the memory that all share;
        measured with a small runner.
        """
        config = self._config
        on_progress("memory of a graph")
        num_streams = self._plan(model).num_streams  # there are fewer where the graphs leave less
        runner = self._runner(model, tokenizer, 2, pages_for(0, CHUNK_TOKENS))
        num_slots = num_streams + spare_slots(num_streams)
        max_rows = self._max_rows(num_streams)
        counts = [runner.num_graphs(max_rows, num_slots, coarseness) for coarseness in range(len(COARSENESS))]
        try:
            each_bytes, shared_bytes = runner.graph_bytes(lambda: device_free_bytes(config.device), max_rows)
        except OutOfDeviceMemory:
            remedy = "set graphs = false, or lower tts.max_streams"
            raise ConfigError(f"not even one CUDA graph fits into the device; {remedy}") from None
        del runner
        _give_memory_back(config.device)
        return counts, each_bytes, shared_bytes

    def _max_rows(self, num_streams: int) -> int:
        return min(num_streams, self._config.engine.max_flow_rows)

    def _runner(self, model: SpeechModel, tokenizer: TextTokenizer, num_slots: int, num_pages: int) -> ModelRunner:
        try:
            return ModelRunner(
                model,
                tokenizer,
                self._speakers,
                num_slots=num_slots,
                num_positions=self._config.num_positions,
                num_pages=num_pages,
                graphs=self._config.graphs,
                compiles=self._config.compiles,
                clock=self._clock,
            )
        except torch.OutOfMemoryError:
            raise ConfigError(
                "the device's memory does not hold the state of the streams; lower tts.max_streams or state_memory_bytes"
            ) from None

    def _calibrate(
        self, runner: ModelRunner, front: TextFront, config: EngineConfig, on_progress: Callable[[str], None]
    ) -> None:
        """Run each batch size twice, first to warm up, then to measure. On a CPU, measure one piece and report how slow it
        is.
        """
        is_cpu = self._config.device.type == "cpu"
        voice_id = next(iter(self._speakers))
        own_pages = runner.pages_needed(voice_id, CALIBRATION_TOKENS)
        rows = [num_rows for num_rows in self._config.calibration_rows if num_rows <= config.max_streams]
        for number, num_rows in enumerate(rows, start=1):
            if num_rows > 1 and num_rows * own_pages > runner.num_free_pages:  # they would wait for each other's pages
                continue
            on_progress(f"measuring {number}/{len(rows)}")
            warm_up = ((StageCosts(), 1), (self.costs, CALIBRATION_PIECES))
            for costs, num_pieces in ((self.costs, CPU_CALIBRATION_PIECES),) if is_cpu else warm_up:
                engine = self._engine(runner, front, costs, replace(config, admits_all=True, overlaps=False))
                try:
                    _rehearse(engine, voice_id, num_rows, num_pieces)
                finally:
                    engine.close()
        if is_cpu and rows:
            share = Capacity(config, self.costs).utilisation(1)
            self._is_slow = share > 1.0
            detail = f"the device is a CPU: about {share:.1f} s for a second of speech; {CPU_WARNING}"
            log.warning("cpu_speed", seconds=round(share, 2), detail=detail)


def paced(config: EngineConfig, costs: StageCosts) -> EngineConfig:
    """Return the pace of a card from what its calls cost: how early pieces are due, and how long the first one is."""
    guard_ms, first_hop = costs.guard_ms(config.guard_ms), costs.first_hop(config.first_hop_tokens)
    log.info("paced", guard_ms=round(guard_ms), first_hop_tokens=first_hop)
    return replace(config, guard_ms=guard_ms, first_hop_tokens=first_hop)


def _in_tenths(on_progress: Callable[[str], None]) -> Callable[[float], None]:
    """Report each tenth of the weights that was loaded."""
    reported = -1

    def on_share(share: float) -> None:
        nonlocal reported
        if reported < int(10 * share):
            reported = int(10 * share)
            on_progress(f"loading {10 * reported} %")

    return on_share


def _with_warning(on_progress: Callable[[str], None]) -> Callable[[str], None]:
    """Report with each step how fast a CPU is, and log it once."""
    log.warning("cpu_trial", detail=f"the device is a CPU: {CPU_WARNING}")
    return lambda what: on_progress(f"{what} (on a CPU: {CPU_WARNING})")


def _give_memory_back(device: torch.device) -> None:
    """Return unused memory to the device, which PyTorch would keep."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _rehearse(engine: Engine, voice_id: str, num_rows: int, num_pieces: int) -> None:
    """Let this many streams produce this many pieces each, or all that they have."""
    left = dict.fromkeys(range(num_rows), num_pieces)
    for number in left:
        engine.open(StreamRequest(stream_id=number, voice=voice_id))
        engine.push(number, CALIBRATION_TEXT, 0)
        engine.end(number)
    for _ in range(MAX_CALIBRATION_STEPS):
        for out in engine.step():
            if isinstance(out, StreamDone):
                left[out.stream_id] = 0
                if out.error is not None:
                    raise out.error
            else:
                left[out.stream_id] -= 1
                engine.taken(out.stream_id, math.inf, None)
        if all(count <= 0 for count in left.values()):
            return
    raise EngineFailed("the rehearsal does not come to an end")
