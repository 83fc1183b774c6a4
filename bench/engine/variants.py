"""Engines that decide otherwise: with hops of a fixed schedule, and first come, first served."""

from collections.abc import Sequence as Row
from typing import ClassVar

from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.cosyvoice.engine.schedule import CHUNK_TOKENS
from cc_tts.engines.cosyvoice.engine.scheduler import FlowCandidate, LmCandidate, LmPlan, Scheduler
from cc_tts.engines.cosyvoice.engine.sequence import Sequence
from lab.cosyvoice.schedule import MAX_HOP_TOKENS


class DoublingHops(Engine):
    """Hops as the reference has them: the first one, then 25, 50, 100 whatever the listener holds."""

    def _choose_hop(self, sequence: Sequence, now_ms: float) -> None:  # noqa: ARG002 - the shape of the parent's
        given, hop = 0, CHUNK_TOKENS
        while given + hop <= sequence.num_given - sequence.num_given % CHUNK_TOKENS:
            given, hop = given + hop, min(MAX_HOP_TOKENS, 2 * hop)
        behind = sequence.num_prompt + sequence.num_given
        sequence.hop = -(-(behind + hop) // CHUNK_TOKENS) * CHUNK_TOKENS - behind


class FixedHops(Engine):
    """Hops of :attr:`hop` tokens, the first one aside."""

    hop: ClassVar[int] = CHUNK_TOKENS

    def _choose_hop(self, sequence: Sequence, now_ms: float) -> None:  # noqa: ARG002 - the shape of the parent's
        behind = sequence.num_prompt + sequence.num_given
        sequence.hop = -(-(behind + self.hop) // CHUNK_TOKENS) * CHUNK_TOKENS - behind


class ArrivalOrder(Scheduler):
    """First come, first served, in batches as large as they may be: no deadlines, no costs."""

    def __init__(self, config: EngineConfig, parent: Scheduler) -> None:
        super().__init__(config, parent._costs)  # noqa: SLF001 - the same costs, for what admission asks

    def plan_lm(
        self,
        now_ms: float,  # noqa: ARG002 - the shape of the parent's
        candidates: Row[LmCandidate],
        flow_waiting: Row[FlowCandidate] = (),  # noqa: ARG002 - the shape of the parent's
        *,
        call_end_ms: float = 0.0,  # noqa: ARG002 - the shape of the parent's
    ) -> LmPlan:
        """All that want tokens, as many steps as a round may have."""
        config = self._config
        order = sorted(candidates, key=lambda each: each.key)
        if not order:
            return LmPlan()
        num_steps = config.max_steps_per_round
        return LmPlan(
            prefill=tuple(each.key for each in order if each.num_prefill),
            decode={each.key: each.num_sampled + num_steps for each in order},
            num_steps=num_steps,
        )

    def plan_flow(
        self,
        now_ms: float,  # noqa: ARG002 - the shape of the parent's
        candidates: Row[FlowCandidate],
        lm_pending: Row[LmCandidate] = (),  # noqa: ARG002 - the shape of the parent's
        *,
        may_wait: bool = True,  # noqa: ARG002 - the shape of the parent's
    ) -> tuple[int, ...]:
        order = sorted(candidates, key=lambda each: each.key)
        return tuple(each.key for each in order[: self._config.max_flow_rows])


class FirstComeFirstServed(DoublingHops):
    """Arrival order and hops as the reference has them."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self._scheduler = ArrivalOrder(self._config, self._scheduler)
