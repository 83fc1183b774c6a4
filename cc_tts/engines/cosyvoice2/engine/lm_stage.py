"""A round of the language model: prefill, decode, and what was drawn goes to its sequences. No torch here.

Runs on: the thread that owns the device.
"""

from collections.abc import Sequence as Row

from cc_tts.clock import Clock, ms_between
from cc_tts.engines.cosyvoice2.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice2.engine.device import Device, DrawnIds, SlotFeed
from cc_tts.engines.cosyvoice2.engine.scheduler import LmCandidate, LmPlan
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence
from cc_tts.engines.cosyvoice2.engine.stream_table import StreamTable
from cc_tts.engines.stepped import DeviceLost
from cc_tts.errors import CcTtsError, EngineFailed


class LmStage:
    """Draws speech tokens."""

    def __init__(
        self,
        table: StreamTable,
        device: Device,
        costs: StageCosts,
        *,
        run_ahead_tokens: int,
        clock: Clock,
    ) -> None:
        self._table = table
        self._device = device
        self._costs = costs
        self._run_ahead_tokens = run_ahead_tokens
        self._clock = clock

    def may_draw(self, sequence: Sequence) -> bool:
        """Whether it has tokens to draw and is not too far ahead of its listener."""
        is_short = len(sequence.tokens) < sequence.num_needed + self._run_ahead_tokens
        return sequence.is_drawing and is_short and not sequence.is_well_ahead

    def candidates(self) -> list[LmCandidate]:
        """Whom a round could be for."""
        return [
            LmCandidate(
                key=sequence.key,
                deadline_ms=sequence.deadline_ms,
                num_drawn=len(sequence.tokens),
                num_needed=sequence.num_needed,
                is_first=sequence.stream.clock.is_first and sequence is sequence.stream.head,
                num_prefill=0 if sequence.feed is None else len(sequence.feed.inputs),
            )
            for sequence in self._table.sequences.values()
            if self.may_draw(sequence)
        ]

    def draw(self, plan: LmPlan) -> None:
        """One round."""
        if not plan.decode:
            return
        sequences = self._table.sequences
        begin_ns = self._clock.now_ns()
        num_positions = self._prefill([sequences[key] for key in plan.prefill])
        running = [(sequences[key], until) for key, until in plan.decode.items() if key in sequences]
        try:
            until_by_slot = {sequence.slot: until + sequence.num_unspoken for sequence, until in running}
            drawn = self._device.decode(until_by_slot, plan.num_steps)
        except DeviceLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the device throws, it ends these streams and no other
            self._table.fail_all([sequence.stream for sequence, _ in running], "language model", error)
            return
        self._observe(ms_between(begin_ns, self._clock.now_ns()), num_positions, self._device.num_rows, plan.num_steps)
        for sequence in list(sequences.values()):
            answer = drawn.get(sequence.slot)
            if answer is not None and sequence.key in sequences:  # the stream may have failed with another sequence
                self._take(sequence, answer)

    def _prefill(self, sequences: Row[Sequence]) -> int:
        """Feed; returns how many positions that were."""
        feeds = [
            SlotFeed(sequence.slot, sequence.stream.voice_id, sequence.feed, sequence.seed)
            for sequence in sequences
            if sequence.feed is not None
        ]
        if not feeds:
            return 0
        try:
            self._device.start(feeds)
        except DeviceLost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the device throws, it ends these streams and no other
            if (
                isinstance(error, CcTtsError) and len(sequences) > 1
            ):  # nothing has changed; alone it shows whose fault it is
                return sum(self._prefill([sequence]) for sequence in sequences if sequence.key in self._table.sequences)
            self._table.fail_all([sequence.stream for sequence in sequences], "prefill", error)
            return 0
        for sequence in sequences:
            sequence.was_fed()
        return sum(len(feed.feed.inputs) for feed in feeds)

    def _observe(self, cost_ms: float, num_positions: int, num_rows: int, num_steps: int) -> None:
        """The prefill is not waited for apart, so what the steps should have cost is taken off it."""
        if not num_rows:
            return
        if not num_positions:
            self._costs.lm_step.observe(num_rows, cost_ms / num_steps)
            return
        steps_ms = min(cost_ms / 2, (num_steps - 1) * self._costs.lm_step.ms(num_rows))
        self._costs.prefill.observe(num_positions, cost_ms - steps_ms)

    def _take(self, sequence: Sequence, answer: DrawnIds) -> None:
        stream = sequence.stream
        if answer.failed:
            reason = "its numbers were not finite, or the speech would not end"
            self._table.fail(stream, EngineFailed(f"the language model broke off: {reason}"), wipe=True)
            return
        if not answer.ids and not answer.stopped:
            return
        try:
            sequence.drew(answer.ids, stopped=answer.stopped)
        except CcTtsError as error:
            self._table.fail(stream, error)
            return
        if sequence.num_prompt + len(sequence.tokens) > self._device.max_tokens:
            self._table.fail(stream, EngineFailed("the speech would not end"))
