"""The executor says what the scheduler may choose from, and does on the device what it chose.

::

    lm_candidates   ─▸ Scheduler.plan_lm   ─▸ sample: prefill, decode              ─▸ tokens of the sequences
    flow_candidates ─▸ Scheduler.plan_flow ─▸ speak: one call, flow · vocoder … collect ─▸ audio of the streams
"""

import math
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Final

from cc_tts.engines.cosyvoice.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.device import Device, Sampled, SlotPrefill, Speaking, SpeakJob
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice.engine.scheduler import FlowCandidate, LmCandidate, LmPlan
from cc_tts.engines.cosyvoice.engine.sequence import Sequence
from cc_tts.engines.cosyvoice.engine.stream_table import StreamTable
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import CcTtsError, EngineFailed

BYTES_PER_MS: Final = 48.0  # 16-bit mono at 24 kHz
_MAX_RESERVED_SHARE: Final = 4  # a quarter of few pages; unmeasured


@dataclass(slots=True)
class _Call:
    """A call of flow and vocoder under way."""

    speaking: Speaking
    rows: Row[tuple[Sequence, int, SpeakJob]]  # with the text chunk
    num_frames: int
    num_keys: int
    cost_ms: float  # as predicted
    begin_ms: float
    beside_ms: float = 0.0  # work of the language model meanwhile


class Executor:
    """Runs the device and learns its costs; ``choose_hop`` sets the next hop of a sequence whose audio continues."""

    def __init__(
        self,
        table: StreamTable,
        device: Device,
        costs: StageCosts,
        config: EngineConfig,
        *,
        choose_hop: Callable[[Sequence, float], None],
        now_ms: Callable[[], float],
    ) -> None:
        self._table = table
        self._device = device
        self._costs = costs
        self._overlaps = config.overlaps
        self._run_ahead_tokens = config.run_ahead_tokens
        self._max_keys = config.max_flow_keys
        self._choose_hop = choose_hop
        self._now_ms = now_ms
        self._call: _Call | None = None
        longest = -(-device.max_tokens // CHUNK_TOKENS)
        self.num_reserved_pages = min(longest, device.num_pages // _MAX_RESERVED_SHARE)
        """The number of pages that are kept free for one running sequence: speech that fits in them never lacks pages."""

    def may_sample(self, sequence: Sequence) -> bool:
        """Return whether it has tokens to sample and is not too far ahead of its listener."""
        is_short = len(sequence.tokens) < sequence.num_needed + self._run_ahead_tokens
        return sequence.is_sampling and is_short and not sequence.is_well_ahead

    def lm_candidates(self) -> list[LmCandidate]:
        """Return the sequences that may take part in a round."""
        return [
            LmCandidate(
                key=sequence.key,
                deadline_ms=sequence.deadline_ms,
                num_sampled=len(sequence.tokens),
                num_needed=sequence.num_needed,
                is_first=sequence.waits_for_first,
                num_prefill=0 if sequence.prefill is None else len(sequence.prefill.inputs),
            )
            for sequence in self._table.sequences.values()
            if self.may_sample(sequence)
        ]

    def sample(self, plan: LmPlan) -> None:
        if not plan.decode:
            return
        sequences, begin_ms = self._table.sequences, self._now_ms()
        num_positions = self._prefill([sequences[key] for key in plan.prefill])
        running = [(sequences[key], until) for key, until in plan.decode.items() if key in sequences]
        sampled: Mapping[int, Sampled] = {}
        with self._table.failing("language model", [sequence.stream for sequence, _ in running]):
            until_by_slot = {sequence.slot: until + sequence.num_unspoken for sequence, until in running}
            sampled = self._device.decode(until_by_slot, plan.num_steps)
            cost_ms, num_rows = self._now_ms() - begin_ms, self._device.num_rows
            if self._call is not None:  # what it would have cost alone is not known
                prefill_ms, step_ms = self._costs.prefill.ms(num_positions), self._costs.lm_step.ms(num_rows)
                self._call.beside_ms += prefill_ms + plan.num_steps * step_ms
            elif num_positions:  # the prefill is not waited for apart: what the steps should have cost is taken off
                steps_ms = min(cost_ms / 2, (plan.num_steps - 1) * self._costs.lm_step.ms(num_rows))
                self._costs.prefill.observe(num_positions, cost_ms - steps_ms)
            else:
                self._costs.lm_step.observe(num_rows, cost_ms / plan.num_steps)
        for sequence in list(sequences.values()):
            if sequence.slot in sampled and sequence.key in sequences:  # it may have failed with another of its stream
                self._take(sequence, sampled[sequence.slot])

    def _prefill(self, sequences: Row[Sequence]) -> int:
        """Prefill; return the number of positions. If one does not fit, each one is prefilled alone."""
        table = self._table
        pairs = [(each, each.prefill) for each in sequences if each.prefill is not None and each.key in table.sequences]
        num_positions = 0
        if not pairs:
            return 0
        prefills = [SlotPrefill(each.slot, each.stream.voice_id, prefill, each.seed) for each, prefill in pairs]
        with table.failing("prefill", [sequence.stream for sequence, _ in pairs]):
            try:
                self._device.start(prefills)
            except CcTtsError:  # nothing has changed
                if len(pairs) == 1:
                    raise
                return sum(self._prefill([sequence]) for sequence, _ in pairs)
            for sequence, prefill in pairs:
                sequence.prefill = None
                num_positions += len(prefill.inputs)
        return num_positions

    def _take(self, sequence: Sequence, sampled: Sampled) -> None:
        try:
            if sampled.failed:
                reason = "its numbers were not finite, or the speech would not end"
                raise EngineFailed(f"the language model broke off: {reason}")
            alarm = sequence.take_sampled(sampled.ids, stopped=sampled.stopped)
            if alarm is not None:
                self._table.stop_runaway(sequence, alarm)
            if sequence.num_prompt + len(sequence.tokens) > self._device.max_tokens:
                raise EngineFailed("the speech would not end")
        except CcTtsError as error:
            self._table.fail(sequence.stream, error, wipe=sampled.failed)

    def flow_candidates(self) -> list[FlowCandidate]:
        """Return the sequences that may take part in a call.

        A call that would take reserved pages waits. As long as one does, no other sequence begins, and the oldest under way
        may take them and is spoken to its end, which frees its pages: so every sequence gets its turn.
        """
        heads = [stream.sequences[0] for stream in self._table.streams.values() if stream.sequences]
        ready = [head for head in heads if head.is_ready and not head.is_well_ahead]
        num_free = self._device.num_free_pages
        fitting = [head for head in ready if self._fits(head, num_free)]
        if len(fitting) < len(ready):
            turn = _turn(heads, num_free)
            turn.may_use_reserve = True
            fitting = [head for head in fitting if head.num_given and head is not turn] + [turn] * turn.is_ready
        return [
            FlowCandidate(
                key=head.key,
                deadline_ms=head.deadline_ms,
                num_frames=head.num_frames,
                num_keys=min(head.num_keys, self._max_keys),
                is_first=head.stream.clock.is_first,
            )
            for head in fitting
        ]

    def _fits(self, sequence: Sequence, num_free: int) -> bool:
        num_reserved = 0 if sequence.may_use_reserve else self.num_reserved_pages
        return sequence.num_new_pages + num_reserved <= num_free

    def speak(self, keys: Iterable[int]) -> None:
        """Begin one call for these candidates, the most urgent first."""
        sequences = self._within_memory([self._table.sequences[key] for key in keys])
        if not sequences:
            return
        num_frames = len(sequences) * max(each.num_frames for each in sequences)
        num_keys = min(self._max_keys, max(each.num_keys for each in sequences))
        indices = [sequence.text_chunk_index for sequence in sequences]
        jobs = [sequence.next_job() for sequence in sequences]
        with self._table.failing("flow or vocoder", [sequence.stream for sequence in sequences]):
            cost_ms = self._costs.call_ms(len(sequences), num_frames // len(sequences), num_keys)
            begin_ms, rows = self._now_ms(), tuple(zip(sequences, indices, jobs, strict=True))
            self._call = _Call(self._device.speak(jobs), rows, num_frames, num_keys, cost_ms, begin_ms)
        self.collect(limit_ms=0.0 if self._overlaps else math.inf)

    @property
    def call_end_ms(self) -> float:
        """Return when the call under way should end; 0 without one."""
        return 0.0 if self._call is None else self._call.begin_ms + self._call.cost_ms

    def collect(self, *, limit_ms: float) -> None:
        """Hand out the result of the call, if it is done or will be within this time; streams that were closed meanwhile get
        nothing.
        """
        call, self._call = self._call, None
        if call is None:
            return
        left = [sequence.stream for sequence, _, _ in call.rows if sequence.key in self._table.sequences]
        with self._table.failing("flow or vocoder", left):
            if not call.speaking.wait(limit_ms):
                self._call = call
                return
            batch = call.speaking.batch()
            took_ms = batch.flow_ms + batch.vocoder_ms  # alone it would have been this, or less by the work beside it
            alone = min(1.0, max(call.cost_ms, took_ms - call.beside_ms) / took_ms) if took_ms else 1.0
            self._costs.observe_call(call.num_frames, call.num_keys, alone * batch.flow_ms, alone * batch.vocoder_ms)
            for (sequence, index, job), pcm in zip(call.rows, batch.pieces, strict=True):
                if sequence.key in self._table.sequences:
                    sequence.speaking_ms = 0.0
                    self._emit(sequence, index, pcm, is_last=job.is_last)

    def _within_memory(self, sequences: Row[Sequence]) -> Row[Sequence]:
        """Return as many of them, in their order, as there are pages for; the first alone if there are pages for none."""
        num_free = self._device.num_free_pages
        fitting = []
        for sequence in sequences:
            if self._fits(sequence, num_free):
                fitting.append(sequence)
                num_free -= sequence.num_new_pages
        return fitting or sequences[:1]

    def _emit(self, sequence: Sequence, index: int, pcm: bytes | None, *, is_last: bool) -> None:
        table, stream, clock = self._table, sequence.stream, sequence.stream.clock
        if pcm is None:
            table.fail(stream, EngineFailed("flow or vocoder broke off: numbers that are not finite"), wipe=True)
            return
        now_ms = self._now_ms()
        if pcm:
            table.outs.append(SpeechChunk(pcm, stream_id=stream.stream_id, text_chunk_index=index))
            if not clock.is_first:
                table.slacks.add(now_ms, clock.left_ms(now_ms))
        if clock.sent(now_ms, len(pcm) / BYTES_PER_MS) > 0.0:
            table.num_underruns += 1
        if is_last:
            table.finish(sequence)
        else:
            self._choose_hop(sequence, now_ms)


def _turn(heads: Row[Sequence], num_free: int) -> Sequence:
    """Return the oldest running sequence for which there are pages, or else the oldest of all, which then fails."""
    moving = [head for head in heads if head.is_moving]
    under_way = [head for head in moving if head.num_given]
    fitting = [head for head in under_way if head.num_new_pages <= num_free]
    return min(fitting or under_way or moving, key=lambda head: head.key)
