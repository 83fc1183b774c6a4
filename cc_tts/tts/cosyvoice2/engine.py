"""The engine: many streams, one device, step by step.

::

    open · push ─▸ admit ─▸ LM ─▸ flow ─▸ vocoder ─▸ emit        Engine.step(), again and again
                     ▲       ▲      ▲
    listener clocks ─┴───────┴──────┴── who is next (scheduler), and who may come in (admission)

No torch here: a :class:`Device` touches tensors, and tests put one in its place that only counts. Every stream ends: spoken,
cancelled, or failed with an error of its own that no other stream notices.

Runs on: the thread that owns the device.
"""

import heapq
from collections.abc import Sequence as Row
from dataclasses import dataclass, field, replace
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock, ms_between
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded
from cc_tts.tts.cosyvoice2.admission import Admission, AdmissionConfig, RefusalCode
from cc_tts.tts.cosyvoice2.costs import StageCosts
from cc_tts.tts.cosyvoice2.device import Device, DrawnIds, SlotFeed, SpeakJob, Spoken, SpokenBatch, TextFront
from cc_tts.tts.cosyvoice2.kv_cache import PagesExhausted
from cc_tts.tts.cosyvoice2.listener_clock import ListenerClock
from cc_tts.tts.cosyvoice2.load_meter import Crowd, LoadMeter
from cc_tts.tts.cosyvoice2.schedule import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from cc_tts.tts.cosyvoice2.scheduler import FlowCandidate, LmCandidate, Scheduler, SchedulerLimits, choose_hop
from cc_tts.tts.cosyvoice2.sequence import FRAMES_PER_TOKEN, Sequence, Stream, hops_of
from cc_tts.tts.stepped import EngineLoad, SpeechOut, StepOut, StreamDone, StreamRequest

MAX_AHEAD_MS: Final = 4000.0
"""A stream whose audio is so far ahead of what its reader has taken gets no turn."""
TYPICAL_TOKENS: Final = 250
"""Speech tokens of a sequence, for the memory that a newcomer is taken to need: 10 s."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How the engine decides."""

    first_audio_target_ms: float = 300.0
    guard_ms: float = 60.0
    """How long before a listener runs dry the next piece must be handed out."""
    max_streams: int = 256
    max_utilisation: float = 0.9
    first_hop_tokens: int = CHUNK_TOKENS
    interleaved: bool = False
    max_recomputed: int = 4
    """Sequences that may run without pages at a time; beyond them newcomers are refused."""
    limits: SchedulerLimits = field(default_factory=SchedulerLimits)
    admits_all: bool = False
    """Refuse only for want of a slot: for rehearsals and comparisons."""

    def with_streams(self, max_streams: int) -> "EngineConfig":
        """The same for so many streams."""
        return replace(self, max_streams=max_streams)

    def without_admission(self) -> "EngineConfig":
        """The same for a rehearsal."""
        return replace(self, admits_all=True)


class Engine:
    """Moves all streams on; see :class:`cc_tts.tts.stepped.SteppedEngine` for most methods."""

    def __init__(
        self, device: Device, front: TextFront, costs: StageCosts, config: EngineConfig, *, clock: Clock
    ) -> None:
        if device.num_slots < config.max_streams:
            raise ValueError(f"{device.num_slots} slots are not enough for {config.max_streams} streams")
        self._device = device
        self._front = front
        self._costs = costs
        self._config = config
        self._clock = clock
        self._scheduler = Scheduler(config.limits, costs)
        limits = AdmissionConfig(
            first_audio_target_ms=config.first_audio_target_ms,
            max_streams=config.max_streams,
            max_utilisation=config.max_utilisation,
            max_flow_rows=config.limits.max_flow_rows,
        )
        self._meter = LoadMeter(
            device,
            Admission(limits, costs),
            max_streams=config.max_streams,
            max_recomputed=config.max_recomputed,
        )
        self._begin_ns = clock.now_ns()
        self._streams: dict[int, Stream] = {}
        self._by_key: dict[int, Sequence] = {}
        self._free_slots = list(range(device.num_slots))
        self._next_key = 0
        self._outs: list[StepOut] = []
        self._recomputed: set[int] = set()
        self.num_not_finite = 0
        self.num_underruns = 0

    # --- streams

    def open(self, request: StreamRequest) -> None:
        """Begin a stream.

        Raises:
            UnknownVoice: no voice has this id.
            EngineOverloaded: admission refuses it.

        """
        self._front.num_flow_prompt(request.voice)
        if request.stream_id in self._streams:
            raise ValueError(f"stream {request.stream_id} is open already")
        now_ms = self._now_ms()
        decision = self._meter.decide(self._crowd(request.voice))
        if not decision.admit and not (self._config.admits_all and decision.code is not RefusalCode.SLOTS):
            log.info("stream_refused", code=decision.code, reason=decision.reason)
            raise EngineOverloaded(decision.reason, retry_after_s=decision.retry_after_s)
        config = self._config
        listener = ListenerClock(
            opened_ms=now_ms, first_audio_target_ms=config.first_audio_target_ms, guard_ms=config.guard_ms
        )
        self._streams[request.stream_id] = Stream(
            stream_id=request.stream_id, voice_id=request.voice, speed=request.speed, clock=listener
        )

    def push(self, stream_id: int, text: str, text_chunk_index: int) -> None:
        """Append a text chunk."""
        stream = self._streams.get(stream_id)
        if stream is not None and not stream.has_ended:
            stream.texts.append((text_chunk_index, text))
            stream.clock.text_came(self._now_ms())

    def end(self, stream_id: int) -> None:
        """No more text will come."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.has_ended = True

    def cancel(self, stream_id: int) -> None:
        """Free all that the stream holds."""
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            for sequence in stream.sequences:
                self._free(sequence)

    def taken(self, stream_id: int, taken_ms: float, ahead_ms: float | None) -> None:
        """The listener's side reports."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream.taken_ms = taken_ms
            if ahead_ms is not None:
                stream.clock.taken(self._now_ms(), taken_ms, ahead_ms)

    # --- steps

    def step(self) -> Row[StepOut]:
        """Admit, draw, speak, emit: one round of each, for whoever is most urgent."""
        for stream in sorted(self._streams.values(), key=lambda each: each.clock.deadline_ms):
            self._begin_texts(stream)
        self._draw(self._lm_candidates(), self._flow_candidates())
        self._speak(self._flow_candidates(), self._lm_candidates())
        for stream in list(self._streams.values()):
            self._settle(stream)
        outs, self._outs = self._outs, []
        return outs

    @property
    def has_work(self) -> bool:
        """Whether :meth:`step` would do something."""
        return bool(self._outs) or any(self._has_work(stream) for stream in self._streams.values())

    def _has_work(self, stream: Stream) -> bool:
        if stream.is_over or self._can_begin(stream):
            return True
        if any(self._may_draw(sequence) for sequence in stream.sequences):
            return True
        head = stream.head
        return head is not None and (self._may_speak(stream, head) or _is_mute(head))

    def _begin_texts(self, stream: Stream) -> None:
        """Turn the next text chunk into a sequence, when there is nothing to be drawn before it and a slot for it."""
        while self._can_begin(stream):
            index, text = stream.texts.popleft()
            try:
                if self._config.interleaved and stream.speed == 1.0:
                    self._interleave(stream, index, text)
                else:
                    self._begin(stream, index, text)
            except CcTtsError as error:
                self._fail(stream, error)
                return
        interleaved = stream.drawing
        if interleaved is not None and interleaved.bistream is not None and stream.has_ended and not stream.texts:
            interleaved.bistream.end_text()
            interleaved.go_on()

    def _can_begin(self, stream: Stream) -> bool:
        if not stream.texts:
            return False
        drawing = stream.drawing
        if drawing is not None:
            return drawing.bistream is not None
        # whoever has no slot at all is owed one, and goes before those who want a second
        num_owed = sum(1 for each in self._streams.values() if not each.sequences)
        is_free = len(self._free_slots) > (num_owed if stream.sequences else 0)
        return is_free and stream.untaken_ms < MAX_AHEAD_MS

    def _begin(self, stream: Stream, index: int, text: str) -> None:
        prepared = self._front.prepare(stream.voice_id, text)
        if prepared is not None:
            sequence = self._new_sequence(stream, index, prepared.seed)
            sequence.feed = prepared.feed

    def _interleave(self, stream: Stream, index: int, text: str) -> None:
        sequence = stream.drawing
        if sequence is None:
            sequence = self._new_sequence(stream, index, self._front.seed(stream.voice_id, ""))
            sequence.bistream = self._front.begin_interleaved(stream.voice_id)
        assert sequence.bistream is not None
        ids = self._front.text_ids(text)
        num_before = sequence.num_text
        sequence.marks.append((num_before, index))
        sequence.num_text += len(ids)
        sequence.bistream.add_text(ids)
        sequence.go_on()

    def _new_sequence(self, stream: Stream, index: int, seed: int) -> Sequence:
        num_prompt = self._front.num_flow_prompt(stream.voice_id)
        hops = hops_of(num_prompt, first_hop=self._config.first_hop_tokens, speed=stream.speed)
        sequence = Sequence(
            key=self._next_key,
            stream=stream,
            text_chunk_index=index,
            seed=seed,
            hops=hops,
            num_prompt=num_prompt,
            slot=heapq.heappop(self._free_slots),
        )
        self._next_key += 1
        self._by_key[sequence.key] = sequence
        stream.sequences.append(sequence)
        return sequence

    # --- the language model

    def _may_draw(self, sequence: Sequence) -> bool:
        if sequence.is_drawn or (sequence.feed is None and sequence.waits_for_text):
            return False
        is_short = len(sequence.tokens) < sequence.num_needed + self._config.limits.run_ahead_tokens
        return is_short and sequence.stream.untaken_ms < MAX_AHEAD_MS + sequence.hops.hop * 40.0

    def _lm_candidates(self) -> list[LmCandidate]:
        return [
            LmCandidate(
                key=sequence.key,
                deadline_ms=sequence.stream.deadline_ms(sequence),
                num_drawn=len(sequence.tokens),
                num_needed=sequence.num_needed,
                is_first=sequence.stream.clock.is_first and sequence is sequence.stream.head,
                num_prefill=0 if sequence.feed is None else len(sequence.feed.inputs),
            )
            for sequence in self._by_key.values()
            if self._may_draw(sequence)
        ]

    def _draw(self, candidates: Row[LmCandidate], flow_waiting: Row[FlowCandidate]) -> None:
        plan = self._scheduler.plan_lm(self._now_ms(), candidates, flow_waiting)
        if not plan.decode:
            return
        begin_ns = self._clock.now_ns()
        num_positions = self._feed([self._by_key[key] for key in plan.prefill])
        running = {key: until for key, until in plan.decode.items() if key in self._by_key}
        try:
            until = {self._slot(key): count + self._by_key[key].num_fills for key, count in running.items()}
            drawn = self._device.decode(until, plan.num_steps)
        except Exception as error:  # noqa: BLE001 - whatever the device throws, it ends these streams and no other
            self._fail_all([self._by_key[key].stream for key in running], "language model", error)
            return
        cost_ms = ms_between(begin_ns, self._clock.now_ns())
        self._observe_draw(cost_ms, num_positions, len(running), plan.num_steps)
        for sequence in list(self._by_key.values()):
            answer = drawn.get(sequence.slot) if sequence.slot is not None else None
            if answer is not None:
                self._take_drawn(sequence, answer)

    def _feed(self, sequences: Row[Sequence]) -> int:
        """Prefill what is to be fed; returns how many positions that were."""
        feeds = []
        for sequence in sequences:
            assert sequence.feed is not None
            assert sequence.slot is not None
            feeds.append(SlotFeed(sequence.slot, sequence.stream.voice_id, sequence.feed, sequence.seed))
            sequence.feed = None
        try:
            if feeds:
                self._device.start(feeds)
        except Exception as error:  # noqa: BLE001 - whatever the device throws, it ends these streams and no other
            self._fail_all([sequence.stream for sequence in sequences], "prefill", error)
            return 0
        return sum(len(feed.feed.inputs) for feed in feeds)

    def _observe_draw(self, cost_ms: float, num_positions: int, num_rows: int, num_steps: int) -> None:
        """The prefill is not waited for apart, so what the steps should have cost is taken off it."""
        if not num_rows:
            return
        if not num_positions:
            self._costs.observe_lm_step(num_rows, cost_ms / num_steps)
            return
        steps_ms = min(cost_ms / 2, (num_steps - 1) * self._costs.lm_step_ms(num_rows))
        self._costs.observe_prefill(num_positions, cost_ms - steps_ms)

    def _take_drawn(self, sequence: Sequence, answer: DrawnIds) -> None:
        if answer.failed:
            self.num_not_finite += 1
            self._fail(
                sequence.stream, EngineFailed("the language model broke off: numbers that are not finite"), wipe=True
            )
            return
        if answer.ids or answer.stopped:
            try:
                sequence.drew(answer.ids, stopped=answer.stopped)
            except CcTtsError as error:
                self._fail(sequence.stream, error)

    # --- flow and vocoder

    def _may_speak(self, stream: Stream, head: Sequence) -> bool:
        return head.is_ready and stream.clock.sent_ms - stream.taken_ms < MAX_AHEAD_MS

    def _flow_candidates(self) -> list[FlowCandidate]:
        return [
            FlowCandidate(
                key=head.key,
                deadline_ms=stream.clock.deadline_ms,
                num_frames=head.num_frames,
                num_keys=head.num_keys,
                is_first=stream.clock.is_first,
            )
            for stream in self._streams.values()
            if (head := stream.head) is not None and self._may_speak(stream, head)
        ]

    def _speak(self, candidates: Row[FlowCandidate], lm_pending: Row[LmCandidate]) -> None:
        keys = self._scheduler.plan_flow(self._now_ms(), candidates, lm_pending)
        sequences = [self._by_key[key] for key in keys]
        if not sequences:
            return
        shapes = (max(each.num_frames for each in sequences), max(each.num_keys for each in sequences))
        jobs = [self._job(sequence) for sequence in sequences]
        try:
            batch = self._speak_within_memory(jobs)
        except Exception as error:  # noqa: BLE001 - whatever the device throws, it ends these streams and no other
            self._fail_all([sequence.stream for sequence in sequences], "flow or vocoder", error)
            return
        num_frames = len(jobs) * shapes[0]
        self._costs.observe_flow(len(jobs), num_frames, shapes[1], batch.flow_ms)
        self._costs.observe_vocoder(len(jobs), num_frames, batch.vocoder_ms)
        for sequence, job, piece in zip(sequences, jobs, batch.pieces, strict=True):
            self._emit(sequence, job, piece)

    def _job(self, sequence: Sequence) -> SpeakJob:
        call = sequence.hops.poll(len(sequence.tokens), finished=sequence.is_drawn)
        assert call is not None
        assert sequence.slot is not None
        tokens = sequence.tokens[sequence.num_flowed : call.num_tokens]
        is_first = sequence.num_given == 0
        sequence.num_flowed = call.num_tokens
        sequence.num_given += call.num_new
        return SpeakJob(
            slot=sequence.slot,
            tokens=tokens,
            is_first=is_first,
            is_last=call.finalize,
            partial=not call.finalize and (sequence.num_prompt + sequence.num_given) % CHUNK_TOKENS != 0,
            seed=sequence.seed,
            speed=sequence.stream.speed,
        )

    def _speak_within_memory(self, jobs: Row[SpeakJob]) -> SpokenBatch:
        """Sequences without room for their state go on without it, the costliest to keep last."""
        for job in (*jobs, None):
            try:
                return self._device.speak(jobs)
            except PagesExhausted:
                if job is None:
                    raise
                log.warning("flow_recomputed", slot=job.slot, free_pages=self._device.num_free_pages)
                self._device.recompute(job.slot)
                self._recomputed.add(job.slot)
        raise EngineFailed("unreachable")

    def _emit(self, sequence: Sequence, job: SpeakJob, piece: Spoken) -> None:
        stream = sequence.stream
        if piece.failed:
            self.num_not_finite += 1
            self._fail(stream, EngineFailed("flow or vocoder broke off: numbers that are not finite"), wipe=True)
            return
        now_ms = self._now_ms()
        index = sequence.index_now if not job.is_last else sequence.last_index
        audio_ms = len(piece.pcm) / 48.0
        late_ms = stream.clock.sent(now_ms, audio_ms)
        if late_ms > 0.0:
            stream.num_underruns += 1
            self.num_underruns += 1
        if piece.pcm:
            self._outs.append(SpeechOut(stream.stream_id, piece.pcm, index))
        if job.is_last:
            self._free(sequence)
            stream.sequences.remove(sequence)
        else:
            self._choose_hop(sequence, now_ms)

    def _choose_hop(self, sequence: Sequence, now_ms: float) -> None:
        behind = sequence.num_prompt + sequence.num_given

        def predicted_ms(hop: int) -> float:
            missing = max(0, sequence.num_given + hop + LOOKAHEAD_TOKENS - len(sequence.tokens))
            frames, keys = FRAMES_PER_TOKEN * (hop + LOOKAHEAD_TOKENS), FRAMES_PER_TOKEN * (behind + hop)
            return self._scheduler.hop_ms(missing, frames, keys, num_streams=max(1, len(self._streams)))

        slack_ms = sequence.stream.clock.slack_ms(now_ms)
        sequence.hops.hop = choose_hop(slack_ms, predicted_ms, behind=behind)

    # --- ends

    def _settle(self, stream: Stream) -> None:
        """Drop sequences without a sound, and end streams that have said everything."""
        while (head := stream.head) is not None and _is_mute(head):
            self._free(head)
            stream.sequences.popleft()
        if not stream.texts and not stream.sequences:
            stream.clock.text_spoken()
        if stream.is_over:
            del self._streams[stream.stream_id]
            self._outs.append(StreamDone(stream.stream_id))

    def _fail(self, stream: Stream, error: CcTtsError, *, wipe: bool = False) -> None:
        if self._streams.pop(stream.stream_id, None) is None:
            return
        for sequence in stream.sequences:
            self._free(sequence, wipe=wipe)
        stream.sequences.clear()
        self._outs.append(StreamDone(stream.stream_id, error))

    def _fail_all(self, streams: Row[Stream], stage: str, error: Exception) -> None:
        known = error if isinstance(error, CcTtsError) else EngineFailed(f"{stage}: {type(error).__name__}")
        log.error("step_failed", stage=stage, num_streams=len(streams), exc_info=error)
        for stream in streams:
            self._fail(stream, known, wipe=True)

    def _free(self, sequence: Sequence, *, wipe: bool = False) -> None:
        self._by_key.pop(sequence.key, None)
        if sequence.slot is not None:
            self._device.release(sequence.slot, wipe=wipe)
            self._recomputed.discard(sequence.slot)
            heapq.heappush(self._free_slots, sequence.slot)
            sequence.slot = None

    def close(self) -> None:
        """Free every stream."""
        for stream_id in list(self._streams):
            self.cancel(stream_id)

    # --- how busy it is

    @property
    def num_free_slots(self) -> int:
        """Slots that no sequence has."""
        return len(self._free_slots)

    def load_report(self, voice_id: str) -> EngineLoad:
        """How busy it is; ``voice_id`` is that of a usual newcomer."""
        recent = self._meter.recent(self._now_ms(), len(self._streams))
        return recent or self._meter.report(self._crowd(voice_id), num_not_finite=self.num_not_finite)

    def _crowd(self, voice_id: str) -> Crowd:
        now_ms = self._now_ms()
        streams = self._streams.values()
        return Crowd(
            now_ms=now_ms,
            num_streams=len(streams),
            num_first_pending=sum(1 for stream in streams if stream.clock.is_first),
            spare_ms=self._scheduler.spare_ms(now_ms, self._lm_candidates(), self._flow_candidates()),
            num_sequences=len(self._by_key),
            num_recomputed=len(self._recomputed),
            pending_positions=sum(len(s.feed.inputs) for s in self._by_key.values() if s.feed is not None),
            pages_each=self._device.pages_needed(voice_id, TYPICAL_TOKENS),
            slots_used=self._device.num_slots - len(self._free_slots),
        )

    def _slot(self, key: int) -> int:
        slot = self._by_key[key].slot
        assert slot is not None
        return slot

    def _now_ms(self) -> float:
        return ms_between(self._begin_ns, self._clock.now_ns())


def _is_mute(sequence: Sequence) -> bool:
    """Whether the model had nothing to say."""
    return sequence.is_drawn and not sequence.tokens
