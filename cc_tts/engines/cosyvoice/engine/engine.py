"""The engine: many streams, one device, step by step.

::

    open · push ─▸ admit ─▸ LM ─▸ flow ─▸ vocoder ─▸ emit        Engine.step(), again and again (executor)
                     ▲       ▲      ▲
    listener clocks ─┴───────┴──────┴── which are next (scheduler), and which are admitted (capacity)

A call of flow and vocoder may go on for several steps, in which the language model samples.

No torch here: a :class:`Device` touches tensors, and tests put one in its place that only counts. Every stream ends: spoken,
cancelled, or failed with an error of its own that no other stream notices.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Row
from types import MappingProxyType
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock, ms_between
from cc_tts.engines.cosyvoice.engine.capacity import Capacity, EngineSnapshot, RefusalCode, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.device import Device, PrefillFront
from cc_tts.engines.cosyvoice.engine.executor import Executor
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS, HOPS
from cc_tts.engines.cosyvoice.engine.scheduler import Scheduler
from cc_tts.engines.cosyvoice.engine.sequence import Sequence, Stream
from cc_tts.engines.cosyvoice.engine.stream_table import StreamTable
from cc_tts.engines.engine_core import EngineLoad, StepOut, StreamRequest
from cc_tts.errors import EngineOverloaded, TextTooLong
from cc_tts.media.listener_clock import ListenerClock

TYPICAL_TOKENS: Final = 200  # of speech, for the memory that a new request is taken to need: 8 s; unmeasured
MAX_WAITING_TEXTS: Final = (
    4096  # text chunks of a stream that have not begun; a book of 200 pages in sentences; unmeasured
)
LOAD_REPORT_INTERVAL_MS: Final = 50.0  # unmeasured
MAX_WAIT_MS: Final = 2.0  # for a call, with nothing to sample: a new stream may come; unmeasured
_AIM: Final = 2 / 3  # of the target for first audio, as others come in between and costs are predictions

log = logs.get(__name__)


class Engine:
    """Moves all streams on; see :class:`cc_tts.engines.engine_core.EngineCore` for most methods. Reports of the load are
    for ``typical_voice``. ``names``: the other name under which device and front know a voice that was enrolled again.
    """

    def __init__(
        self, device: Device, front: PrefillFront, costs: StageCosts, config: EngineConfig, *, typical_voice: str,
        clock: Clock, names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._names = names
        self.device = device
        """The device that its streams are spoken on."""
        self._front = front
        self._config = config
        self._typical_voice = typical_voice
        self._clock = clock
        self._begin_ns = clock.now_ns()
        self._scheduler = Scheduler(config, costs)
        self._capacity = Capacity(config, costs)
        self._load: tuple[float, EngineLoad] | None = None
        self._table = StreamTable(device, front, config)
        self._executor = Executor(self._table, device, costs, config, choose_hop=self._choose_hop, now_ms=self._now_ms)

    def step(self) -> Row[StepOut]:
        """One round of each stage, the most urgent first. Raises ``DeviceLost`` when no stream can continue."""
        executor, scheduler = self._executor, self._scheduler
        self._table.begin_texts()
        scheduler.num_rows = self.device.num_rows
        ready, sampling, call_end_ms = executor.flow_candidates(), executor.lm_candidates(), executor.call_end_ms
        plan = scheduler.plan_lm(self._now_ms(), sampling, ready, call_end_ms=call_end_ms)
        executor.sample(plan)
        executor.collect(limit_ms=0.0 if plan.num_steps else MAX_WAIT_MS)
        if not executor.call_end_ms:
            ready, sampling = executor.flow_candidates(), executor.lm_candidates()
            executor.speak(scheduler.plan_flow(self._now_ms(), ready, sampling, may_wait=plan.num_steps > 0))
        self._table.settle()
        outs, self._table.outs = self._table.outs, []
        return outs

    @property
    def has_work(self) -> bool:
        """Return whether :meth:`step` would do something; if not, only news from outside brings anything on."""
        return self._executor.call_end_ms > 0.0 or any(
            self._has_work(stream) for stream in self._table.streams.values()
        )

    def _has_work(self, stream: Stream) -> bool:
        head = stream.head
        if head is not None and (head.is_empty or (head.is_ready and not head.is_well_ahead)):
            return True
        may_sample = any(self._executor.may_sample(sequence) for sequence in stream.sequences)
        return may_sample or stream.is_over or self._table.has_text_work(stream)

    def _choose_hop(self, sequence: Sequence, now_ms: float) -> None:
        slack_ms = sequence.stream.clock.deadline_ms - now_ms
        # The second piece is the tightest, and what hops cost that are far from those seen last is a guess.
        if sequence.num_given < 2 * CHUNK_TOKENS:
            slack_ms /= 2
        hops = HOPS if sequence.hop >= CHUNK_TOKENS else HOPS[:2]  # the second hop after a short one is not the longest
        sequence.hop = self._scheduler.choose_hop(
            slack_ms,
            behind=sequence.num_prompt + sequence.num_given,
            num_ready=len(sequence.tokens) - sequence.num_given,
            num_streams=len(self._table.streams),
            hops=hops,
        )

    def open(self, request: StreamRequest) -> None:
        """Begin a stream. Raises ``UnknownVoice``, ``Unprocessable`` for instructions that are too long, and
        ``EngineOverloaded`` when admission refuses it.
        """
        voice_id = self._names.get(request.voice, request.voice)
        self._front.num_flow_prompt(voice_id)
        instruction = self._front.instruction(request.instructions)
        snapshot = self._snapshot(voice_id)
        refusal = self._capacity.admit(snapshot)
        if refusal is not None and (refusal.code is RefusalCode.SLOTS or not self._config.admits_all):
            log.info("stream_refused", code=refusal.code, reason=refusal.reason)
            raise EngineOverloaded(refusal.reason, retry_after_s=snapshot.retry_after_s)
        config, target_ms = self._config, _AIM * self._config.first_audio_target_ms
        self._table.streams[request.stream_id] = Stream(
            stream_id=request.stream_id,
            voice_id=voice_id,
            speed=request.speed,
            instruction=instruction,
            is_interleaved=config.interleaved and request.speed == 1.0,
            clock=ListenerClock(first_audio_target_ms=target_ms, guard_ms=config.guard_ms),
        )

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk; ignored when the stream is not there or has ended. Raises ``TextTooLong`` when too many wait
        to be spoken; the stream continues without this one.
        """
        stream = self._table.streams.get(stream_id)
        if stream is None or stream.has_ended:
            return
        if len(stream.texts) >= MAX_WAITING_TEXTS:
            raise TextTooLong(f"{MAX_WAITING_TEXTS} text chunks wait to be spoken already")
        stream.texts.append((text_chunk_index, self._front.spelled(text)))
        stream.clock.text_came(self._now_ms())

    def end(self, stream_id: int) -> None:
        """No more text will come."""
        stream = self._table.streams.get(stream_id)
        if stream is not None and not stream.has_ended:
            stream.has_ended = True
            if stream.sequences:  # the rest of an interleaved text is due now
                stream.clock.text_came(self._now_ms())

    def cancel(self, stream_id: int) -> None:
        self._table.remove(stream_id)

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """The listener's side reports."""
        stream = self._table.streams.get(stream_id)
        if stream is None:
            return
        stream.taken_ms = max(stream.taken_ms, taken_ms)
        if ahead_ms is not None:
            stream.clock.taken(self._now_ms(), taken_ms, ahead_ms)

    def forget(self, voice_ids: Iterable[str]) -> Row[str]:
        """Free what the device keeps of those of these voices that no stream speaks with; returns them."""
        used = {stream.voice_id for stream in self._table.streams.values()} | {self._typical_voice}
        idle = [voice_id for voice_id in voice_ids if voice_id not in used]
        for voice_id in idle:
            self.device.forget(voice_id)
        return idle

    def close(self) -> None:
        """Free the state of every stream."""
        for stream_id in list(self._table.streams):
            self._table.remove(stream_id)

    def load_report(self) -> EngineLoad:
        """Return how busy it is for a new request; the same for 50 ms, unless streams came or went."""
        now_ms, table, device = self._now_ms(), self._table, self.device
        if self._load is not None:
            then_ms, load = self._load
            if load.num_streams == len(table.streams) and now_ms - then_ms < LOAD_REPORT_INTERVAL_MS:
                return load
        snapshot = self._snapshot(self._typical_voice)
        refusal = self._capacity.refusal(snapshot)
        load = EngineLoad(
            num_streams=snapshot.num_streams,
            first_audio_ms=round(self._capacity.first_audio_ms(snapshot), 1),
            utilisation=round(self._capacity.utilisation(snapshot.num_streams), 4),
            room=self._capacity.free_capacity(snapshot),
            refusal=refusal.reason if refusal else "",
            retry_after_s=snapshot.retry_after_s,
            slots_used=device.num_slots - len(table.free_slots),
            slots_total=device.num_slots,
            pages_used=device.num_pages - device.num_free_pages,
            pages_total=device.num_pages,
            num_not_finite=device.num_not_finite,
            num_underruns=table.num_underruns,
            num_runaways=dict(table.num_runaways),
        )
        self._load = now_ms, load
        return load

    def _snapshot(self, voice_id: str) -> EngineSnapshot:
        now_ms, table, device = self._now_ms(), self._table, self.device
        streams, sequences = table.streams.values(), table.sequences.values()
        return EngineSnapshot(
            num_streams=len(streams),
            num_first_pending=sum(1 for stream in streams if stream.clock.is_first),
            spare_ms=self._scheduler.spare_ms(now_ms, self._executor.lm_candidates(), self._executor.flow_candidates()),
            measured_slack_ms=table.slacks.low_ms(now_ms),
            num_lm_rows=max(len(sequences), device.num_rows - 1),
            pending_positions=sum(len(each.prefill.inputs) for each in sequences if each.prefill is not None),
            num_free_pages=device.num_free_pages - self._executor.num_reserved_pages,
            pages_each=device.pages_needed(voice_id, TYPICAL_TOKENS),
            next_end_in_ms=min((stream.left_ms for stream in streams), default=math.inf),
        )

    def _now_ms(self) -> float:
        return ms_between(self._begin_ns, self._clock.now_ns())
