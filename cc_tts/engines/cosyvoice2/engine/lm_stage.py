"""A round of the language model: prefill, decode, and what was sampled goes to its sequences."""

from collections.abc import Mapping
from collections.abc import Sequence as Row

from cc_tts.clock import Clock, ms_between
from cc_tts.engines.cosyvoice2.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice2.engine.device import Device, Sampled, SlotFeed
from cc_tts.engines.cosyvoice2.engine.scheduler import LmCandidate, LmPlan
from cc_tts.engines.cosyvoice2.engine.sequence import Sequence
from cc_tts.engines.cosyvoice2.engine.stream_table import StreamTable
from cc_tts.errors import CcTtsError, EngineFailed


class LmStage:
    """Samples speech tokens."""

    def __init__(
        self, table: StreamTable, device: Device, costs: StageCosts, *, run_ahead_tokens: int, clock: Clock
    ) -> None:
        self._table = table
        self._device = device
        self._costs = costs
        self._run_ahead_tokens = run_ahead_tokens
        self._clock = clock

    def may_sample(self, sequence: Sequence) -> bool:
        """Whether it has tokens to sample and is not too far ahead of its listener."""
        is_short = len(sequence.tokens) < sequence.num_needed + self._run_ahead_tokens
        return sequence.is_sampling and is_short and not sequence.is_well_ahead

    def candidates(self) -> list[LmCandidate]:
        """Sequences that a round could be for."""
        return [
            LmCandidate(
                key=sequence.key,
                deadline_ms=sequence.deadline_ms,
                num_sampled=len(sequence.tokens),
                num_needed=sequence.num_needed,
                is_first=sequence.stream.clock.is_first and sequence is sequence.stream.head,
                num_prefill=0 if sequence.feed is None else len(sequence.feed.inputs),
            )
            for sequence in self._table.sequences.values()
            if self.may_sample(sequence)
        ]

    def sample(self, plan: LmPlan) -> None:
        """One round."""
        if not plan.decode:
            return
        sequences = self._table.sequences
        begin_ns = self._clock.now_ns()
        num_positions = self._prefill([sequences[key] for key in plan.prefill])
        running = [(sequences[key], until) for key, until in plan.decode.items() if key in sequences]
        sampled: Mapping[int, Sampled] = {}
        with self._table.failing("language model", [sequence.stream for sequence, _ in running]):
            until_by_slot = {sequence.slot: until + sequence.num_unspoken for sequence, until in running}
            sampled = self._device.decode(until_by_slot, plan.num_steps)
            cost_ms = ms_between(begin_ns, self._clock.now_ns())
            self._observe(cost_ms, num_positions, self._device.num_rows, plan.num_steps)
        for sequence in list(sequences.values()):
            answer = sampled.get(sequence.slot)
            if answer is not None and sequence.key in sequences:  # the stream may have failed with another sequence
                self._take(sequence, answer)

    def _prefill(self, sequences: Row[Sequence]) -> int:
        """Feed; returns how many positions that were. Where one cannot be fed, each is fed by itself."""
        table = self._table
        pairs = [(each, each.feed) for each in sequences if each.feed is not None and each.key in table.sequences]
        feeds = [SlotFeed(each.slot, each.stream.voice_id, feed, each.seed) for each, feed in pairs]
        num_positions = 0
        if not feeds:
            return 0
        with table.failing("prefill", [sequence.stream for sequence, _ in pairs]):
            try:
                self._device.start(feeds)
            except CcTtsError:  # nothing has changed
                if len(feeds) == 1:
                    raise
                return sum(self._prefill([sequence]) for sequence, _ in pairs)
            for sequence, feed in pairs:
                sequence.was_fed()
                num_positions += len(feed.inputs)
        return num_positions

    def _observe(self, cost_ms: float, num_positions: int, num_rows: int, num_steps: int) -> None:
        """The prefill is not waited for apart, so what the steps should have cost is taken off it."""
        if num_positions:
            steps_ms = min(cost_ms / 2, (num_steps - 1) * self._costs.lm_step.ms(num_rows))
            self._costs.prefill.observe(num_positions, cost_ms - steps_ms)
        else:
            self._costs.lm_step.observe(num_rows, cost_ms / num_steps)

    def _take(self, sequence: Sequence, answer: Sampled) -> None:
        stream = sequence.stream
        if answer.failed:
            reason = "its numbers were not finite, or the speech would not end"
            self._table.fail(stream, EngineFailed(f"the language model broke off: {reason}"), wipe=True)
            return
        if not answer.ids and not answer.stopped:
            return
        try:
            sequence.take_sampled(answer.ids, stopped=answer.stopped)
        except CcTtsError as error:
            self._table.fail(stream, error)
            return
        if sequence.num_prompt + len(sequence.tokens) > self._device.max_tokens:
            self._table.fail(stream, EngineFailed("the speech would not end"))
