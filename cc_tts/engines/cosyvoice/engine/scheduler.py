"""Decides by deadlines which sequences take part in the next round of the language model and in the next flow call.

::

    LmCandidate…   ─▸ plan_lm   ─▸ LmPlan      prefill these, then this many decode steps of those
    FlowCandidate… ─▸ plan_flow ─▸ keys of one batched call of flow and vocoder
    slack          ─▸ choose_hop ─▸ tokens of a sequence's next flow call

Earliest deadline first; a started stream that is late comes before a new one; flow calls with time to spare are made for the
oldest sequence, so that few are under way at a time. Work cannot be interrupted once it runs on the device, so both plans
stay short enough for what waits behind them. No clock, no device: the same in, the same out.
"""

import math
from collections.abc import Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import Final

from cc_tts.engines.cosyvoice.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.schedule import FRAMES_PER_TOKEN, HOPS, LOOKAHEAD_TOKENS, hop_to_grid

_HOP_MARGIN: Final = 1.65  # 1.5 refused 7 calls in three simulated runs of 128, this 3, with the same audio
_LATE_GROWTH: Final = 1.5  # late rows may be held up by so much for rows that are not late
_APART_MARGIN: Final = 1.1  # costs are predictions; what is about equal goes together; unmeasured
_CALL_MARGIN: Final = (
    1.5  # the same, for a call that waits; with 1.0 an L4 refuses 16 more of 150 (bench.engine.levers)
)
_MAX_FIRST_LATE_MS: Final = 1000.0  # unmeasured
_LONGEST_CALL_FRAMES: Final = FRAMES_PER_TOKEN * (max(HOPS) + min(HOPS))  # the longest hop, filled up to the grid


@dataclass(frozen=True, slots=True, kw_only=True)
class LmCandidate:
    """A sequence with speech tokens left to sample. Counts are of its sampled tokens, except ``num_prefill``."""

    key: int
    deadline_ms: float
    num_sampled: int
    num_needed: int  # for its next flow call
    is_first: bool  # the listener waits for a first piece
    num_prefill: int = 0  # positions to be prefilled first; 0 once that is done

    @property
    def num_missing(self) -> int:
        """The tokens that the next flow call still waits for."""
        return max(0, self.num_needed - self.num_sampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class LmPlan:
    """A round of the language model: the prefills, then ``num_steps`` decode steps."""

    prefill: tuple[int, ...] = ()
    decode: Mapping[int, int] = field(default_factory=dict)
    """The decode steps by key: sample up to this many tokens in all, at most ``num_steps`` more than now."""
    num_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCandidate:
    """A sequence whose next flow call can run."""

    key: int
    deadline_ms: float
    num_frames: int  # that the call solves
    num_keys: int  # frames that it attends to
    is_first: bool


@dataclass(frozen=True, slots=True)
class _Batch:
    """A flow call that is being put together."""

    keys: tuple[int, ...]
    num_frames: int  # of the longest row
    num_keys: int
    cost_ms: float


class Scheduler:
    """Plans within the limits of ``config``, with the costs known at that moment."""

    def __init__(self, config: EngineConfig, costs: StageCosts) -> None:
        self._config = config
        self._costs = costs
        self.num_rows = 1  # that a decode step computes now, whichever sequences are sampled (Device.num_rows)

    def plan_lm(
        self,
        now_ms: float,
        candidates: Row[LmCandidate],
        flow_waiting: Row[FlowCandidate] = (),
        *,
        call_end_ms: float = 0.0,
    ) -> LmPlan:
        """Return the next round; ``flow_waiting`` can run when it is over, or at once if it includes a first piece. While a
        call is running, until ``call_end_ms``, tokens are sampled only for streams that cannot wait for its end.

        Sequences short of tokens for their next flow call come first. However urgent the flow calls are that wait, one new
        sequence is prefilled if its turn comes, and one step is done. Only the need of a first piece ends a round: short
        rounds make small flow calls (docs/engine-notes.md).
        """
        config = self._config
        if call_end_ms:
            is_idle = not any(self._cannot_wait(c, call_end_ms, len(candidates)) for c in candidates)
            left_ms = call_end_ms - now_ms
        else:
            is_idle = any(c.is_first for c in flow_waiting)
            left_ms = min((self._left_ms(now_ms, c) for c in flow_waiting), default=math.inf)
        if is_idle:
            return LmPlan()
        order = sorted(
            (c for c in candidates if c.num_sampled < c.num_needed + config.run_ahead_tokens),
            key=lambda c: (c.num_missing == 0, _urgency(c, now_ms)),
        )
        prefill: list[int] = []
        chosen: list[LmCandidate] = []
        num_positions = 0
        for candidate in order:
            if candidate.num_prefill > 0:
                positions = num_positions + candidate.num_prefill
                is_long = positions > config.max_prefill_positions
                if prefill and (is_long or self._costs.prefill.ms(positions) > left_ms):
                    continue
                prefill.append(candidate.key)
                num_positions = positions
            chosen.append(candidate)
        if not chosen:
            return LmPlan()
        num_steps = self._num_steps(chosen, left_ms - self._costs.prefill.ms(num_positions))
        until = {c.key: min(c.num_sampled + num_steps, c.num_needed + config.run_ahead_tokens) for c in chosen}
        return LmPlan(prefill=tuple(prefill), decode=until, num_steps=num_steps)

    def _cannot_wait(self, candidate: LmCandidate, end_ms: float, num_rows: int) -> bool:
        is_short = candidate.deadline_ms - self._piece_ms(candidate, num_rows) < end_ms
        return candidate.num_missing > 0 and (candidate.is_first or is_short)

    def _left_ms(self, now_ms: float, waiting: FlowCandidate) -> float:
        """Return how long a round may take: as long as the waiting call if that is late, or if other streams would lack
        tokens.
        """
        call_ms = self._call_ms(waiting)
        left_ms = waiting.deadline_ms - now_ms - call_ms
        return left_ms if left_ms >= 0.0 else call_ms

    def _num_steps(self, chosen: Row[LmCandidate], left_ms: float) -> int:
        ahead = max(c.num_needed + self._config.run_ahead_tokens - c.num_sampled for c in chosen)
        useful = min((c.num_missing for c in chosen if c.is_first and c.num_missing), default=ahead)
        num_steps = min(self._config.max_steps_per_round, useful)
        step_ms = self._step_ms(len(chosen))
        return num_steps if left_ms >= num_steps * step_ms else max(1, int(left_ms / step_ms))

    def plan_flow(
        self, now_ms: float, candidates: Row[FlowCandidate], sampling: Row[LmCandidate] = (), *, may_wait: bool = True
    ) -> tuple[int, ...]:
        """Return the keys of the next batched call, the most urgent first.

        The most urgent candidate is taken; if all have time, the oldest. Others join in the order of their urgency, while no
        deadline that could be met is missed for it, of its rows or of a piece whose tokens are still being sampled; while
        together costs hardly more than one after the other (padding can cost more than a call of its own); and while who is
        late already, in it or behind it, is not held up by rows that are not.

        Empty if there is none; or if none is a first piece, and all can wait: for more rows to share the call, which it
        ``may_wait`` for while tokens are sampled, or for a piece of one of the sequences ``sampling`` that goes before.
        """
        if not candidates:
            return ()
        config = self._config
        order = sorted(candidates, key=lambda c: _urgency(c, now_ms, easy_slack_ms=config.easy_slack_ms))
        seed = order[0]
        batch = _Batch((seed.key,), seed.num_frames, seed.num_keys, self._call_ms(seed))
        pending = [c for c in sampling if c.num_missing > 0]
        has_first = any(c.is_first for c in order)
        if may_wait and pending and not has_first:
            frames, keys = max(c.num_frames for c in order), max(c.num_keys for c in order)
            together_ms = self._costs.calls_ms(len(order), frames, keys, max_rows=config.max_flow_rows)
            if seed.deadline_ms - now_ms - _CALL_MARGIN * together_ms > config.wait_slack_ms:
                return ()
        if not has_first and any(self._goes_before(c, seed, now_ms, batch.cost_ms, len(sampling)) for c in pending):
            return ()
        deadlines_ms = [seed.deadline_ms, *(c.deadline_ms - self._piece_ms(c, len(sampling)) for c in pending)]
        end_ms = now_ms + batch.cost_ms
        latest_ms = min((each_ms for each_ms in deadlines_ms if each_ms >= end_ms), default=math.inf)
        return self._grown(now_ms, batch, order, latest_ms, is_late=min(deadlines_ms) < end_ms).keys

    def _goes_before(
        self, lacking: LmCandidate, ready: FlowCandidate, now_ms: float, call_ms: float, num_rows: int
    ) -> bool:
        """Return whether a piece whose tokens are still being sampled would be late after this call, which
        has time to wait.
        """
        piece_ms = self._piece_ms(lacking, num_rows)
        is_late_behind = lacking.deadline_ms < now_ms + _CALL_MARGIN * call_ms + piece_ms
        return is_late_behind and ready.deadline_ms > now_ms + piece_ms + call_ms

    def _grown(
        self, now_ms: float, batch: _Batch, order: Row[FlowCandidate], latest_ms: float, *, is_late: bool
    ) -> _Batch:
        """Return ``batch``, which holds the first of ``order``, extended by those that may join it. It must end by
        ``latest_ms``.
        """
        late_cost_ms = batch.cost_ms if is_late else math.inf
        for candidate in order[1 : 4 * self._config.max_flow_rows]:
            joined = self._join(batch, candidate)
            if joined is None or now_ms + _CALL_MARGIN * joined.cost_ms > latest_ms:
                continue
            if candidate.deadline_ms < now_ms + batch.cost_ms:
                late_cost_ms = joined.cost_ms
            elif joined.cost_ms > _LATE_GROWTH * late_cost_ms:
                continue
            batch = joined
            if candidate.deadline_ms >= now_ms + batch.cost_ms:
                latest_ms = min(latest_ms, candidate.deadline_ms)
        return batch

    def _join(self, batch: _Batch, candidate: FlowCandidate) -> _Batch | None:
        """Return the batch with one more row; None if it would be too large or not worth its padding."""
        keys = (*batch.keys, candidate.key)
        frames = max(batch.num_frames, candidate.num_frames)
        if len(keys) > self._config.max_flow_rows or len(keys) * frames > self._config.max_flow_frames:
            return None
        num_keys = max(batch.num_keys, candidate.num_keys)
        cost_ms = self._costs.call_ms(len(keys), frames, num_keys)
        if cost_ms > _APART_MARGIN * (batch.cost_ms + self._call_ms(candidate)):
            return None
        return _Batch(keys, frames, num_keys, cost_ms)

    def spare_ms(self, now_ms: float, sampling: Row[LmCandidate], ready: Row[FlowCandidate]) -> float:
        """Return the least slack of the started streams' next pieces, with all work done first that is due before them.

        Tokens are sampled together, calls come in batches of a quarter of the rows, and both go on beside each other where
        they can. Negative when a listener will run dry; infinite when nobody listens. For admission.
        """
        pieces = [(c.deadline_ms, c.is_first, c.num_missing, c.num_prefill, 2 * c.num_needed, 0) for c in sampling]
        pieces += [(c.deadline_ms, c.is_first, 0, 0, c.num_frames, c.num_keys) for c in ready]
        step_ms = self._step_ms(len(pieces))
        spare_ms = math.inf
        missing = positions = frames = keys = 0
        shape, call_ms = (0, 0, 0), 0.0
        for number, piece in enumerate(sorted(pieces), 1):
            missing, positions = max(missing, piece[2]), positions + piece[3]
            frames, keys = max(frames, min(piece[4], FRAMES_PER_TOKEN * max(HOPS))), max(keys, piece[5])
            rows = min(self._config.max_flow_rows, -(-number // 4))
            if shape != (rows, frames, keys):  # the same for many, and a prediction is what takes time here
                shape, call_ms = (rows, frames, keys), self._costs.call_ms(rows, frames, keys)
            parts_ms = self._costs.prefill.ms(positions) + missing * step_ms, (-(-number // rows) - 1) * call_ms
            done_ms = call_ms + (max(parts_ms) if self._config.overlaps else sum(parts_ms))
            if not piece[1]:
                spare_ms = min(spare_ms, piece[0] - now_ms - done_ms)
        return spare_ms

    def choose_hop(
        self, slack_ms: float, *, behind: int, num_ready: int, num_streams: int, hops: Row[int] = HOPS
    ) -> int:
        """Return how many tokens the next flow call of a sequence should cover.

        The longest of the rising ``hops`` whose time the slack until its next piece exceeds 1.65 times, else the shortest;
        filled up to the grid. ``behind`` counts tokens that were given out, the prompt included, ``num_ready`` tokens that
        were sampled and not given out. With more than one stream, the missing tokens get half of the device's time, and the
        call has half of the streams as rows.
        """
        num_rows = min(self._config.max_flow_rows, (num_streams + 1) // 2)
        step_ms = min(2, num_streams) * self._step_ms(num_streams)
        chosen = hop_to_grid(behind, hops[0])
        for hop in hops[1:]:
            longer = hop_to_grid(behind, hop)
            known, keys = longer + LOOKAHEAD_TOKENS, FRAMES_PER_TOKEN * (behind + longer)
            call_ms = self._costs.call_ms(num_rows, FRAMES_PER_TOKEN * known, keys)
            if slack_ms <= _HOP_MARGIN * (max(0, known - num_ready) * step_ms + call_ms):
                break
            chosen = longer
        return chosen

    def _step_ms(self, num_sampling: int) -> float:
        return self._costs.lm_step.ms(max(1, self.num_rows, num_sampling))

    def _call_ms(self, candidate: FlowCandidate) -> float:
        return self._costs.call_ms(1, candidate.num_frames, candidate.num_keys)

    def _piece_ms(self, candidate: LmCandidate, num_rows: int) -> float:
        """Return the device time from now to the next piece of a sequence that lacks tokens for it."""
        frames = min(FRAMES_PER_TOKEN * candidate.num_needed, _LONGEST_CALL_FRAMES)
        steps_ms = candidate.num_missing * self._step_ms(num_rows)
        return self._costs.prefill.ms(candidate.num_prefill) + steps_ms + self._costs.call_ms(1, frames, frames)


def _urgency(
    candidate: LmCandidate | FlowCandidate, now_ms: float, *, easy_slack_ms: float = math.inf
) -> tuple[int, float, int]:
    """Return the sort key: first started streams that are late, then all by deadline, then those with more slack than
    ``easy_slack_ms``, the oldest first; keys break ties.

    A first piece that is very late counts as one of a started stream, so that it gets its turn even when all are late.
    """
    slack_ms = candidate.deadline_ms - now_ms
    if not candidate.is_first and slack_ms > easy_slack_ms:
        return 2, 0.0, candidate.key
    is_starving = -slack_ms > (_MAX_FIRST_LATE_MS if candidate.is_first else 0.0)
    return 0 if is_starving else 1, candidate.deadline_ms, candidate.key
