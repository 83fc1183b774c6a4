"""Who takes part in the next round of the language model and in the next flow call, by the listeners' deadlines.

::

    LmCandidate…   ─▸ plan_lm   ─▸ LmPlan      prefill these, then so many decode steps of those
    FlowCandidate… ─▸ plan_flow ─▸ keys of one batched call of flow and vocoder
    slack          ─▸ choose_hop ─▸ tokens of a sequence's next flow call

Earliest deadline first; a started stream that is late comes before a new one; flow calls with time to spare are made for the
oldest sequence, so that few are under way at a time. Work cannot be interrupted once it runs on the
device, so both plans stay short enough for what waits behind them. No clock, no device, no state: the same in, the same out.
Runs on: the thread that owns the device.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from cc_tts.engines.cosyvoice2.engine.capacity import StageCosts
from cc_tts.engines.cosyvoice2.engine.config import EngineConfig
from cc_tts.engines.cosyvoice2.engine.schedule import CHUNK_TOKENS, FRAMES_PER_TOKEN, hop_to_grid

HOPS: Final = (CHUNK_TOKENS, 2 * CHUNK_TOKENS, 4 * CHUNK_TOKENS)
_HOP_MARGIN: Final = 1.65  # 1.5 refused 7 calls in three simulated runs of 128, this 3, with the same audio
_LATE_GROWTH: Final = 1.5
_APART_MARGIN: Final = 1.1  # costs are predictions; what is about equal goes together
_WAIT_MARGIN: Final = 1.5
_MAX_FIRST_LATE_MS: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LmCandidate:
    """A sequence that has speech tokens left to draw. Counts are of its drawn tokens, but for ``num_prefill``."""

    key: int
    deadline_ms: float
    num_drawn: int
    num_needed: int
    """How many must be drawn before its next flow call can run."""
    is_first: bool
    """Whether the listener waits for a first piece."""
    num_prefill: int = 0
    """Positions to be prefilled first; 0 once that is done."""

    @property
    def num_missing(self) -> int:
        """Tokens that the next flow call still waits for."""
        return max(0, self.num_needed - self.num_drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class LmPlan:
    """A round of the language model: the prefills, then ``num_steps`` decode steps."""

    prefill: tuple[int, ...] = ()
    decode: Mapping[int, int] = field(default_factory=dict)
    """By key: draw until there are so many tokens, which is at most ``num_steps`` more than now."""
    num_steps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCandidate:
    """A sequence whose next flow call can run."""

    key: int
    deadline_ms: float
    num_frames: int
    """Frames that the call solves."""
    num_keys: int
    """Frames that it attends to."""
    is_first: bool


class Scheduler:
    """Plans within the limits of ``config`` with the costs as they are known at that moment."""

    def __init__(self, config: EngineConfig, costs: StageCosts) -> None:
        self._config = config
        self._costs = costs
        self.num_rows = 1
        """Rows that a decode step computes now, whoever draws (:attr:`Device.num_rows`)."""

    def plan_lm(
        self, now_ms: float, candidates: Sequence[LmCandidate], flow_waiting: Sequence[FlowCandidate] = ()
    ) -> LmPlan:
        """The next round.

        Sequences short of tokens for their next flow call come first, those that only draw ahead fill what rows are left.
        A newcomer draws in the round that prefills it. At least one newcomer is prefilled if its turn comes, and at
        least one step done, however urgent the flow calls are that wait. One that is late anyway leaves the round as much
        time as the call itself takes: others would be late for want of tokens else. While first pieces can run there is no
        round for those who have time.

        Args:
            now_ms: the instant.
            candidates: in any order; those at their run-ahead limit may be among them.
            flow_waiting: what can run as soon as this round is over.

        """
        config = self._config
        left_ms = min((self._left_ms(now_ms, c) for c in flow_waiting), default=math.inf)
        order = sorted(
            (c for c in candidates if c.num_drawn < c.num_needed + config.run_ahead_tokens),
            key=lambda c: (c.num_missing == 0, *_urgency(c, now_ms)),
        )
        prefill_left_ms = min(left_ms, self._left_by_listeners_ms(now_ms, order))
        prefill: list[int] = []
        chosen: list[LmCandidate] = []
        num_positions = 0
        for candidate in order:
            if len(chosen) == config.max_lm_rows:
                break
            if candidate.num_prefill > 0:
                positions = num_positions + candidate.num_prefill
                fits = (
                    positions <= config.max_prefill_positions and self._costs.prefill.ms(positions) <= prefill_left_ms
                )
                if prefill and not fits:
                    continue
                prefill.append(candidate.key)
                num_positions = positions
            chosen.append(candidate)
        if not chosen or self._can_be_put_off(now_ms, order, flow_waiting):
            return LmPlan()
        left_ms -= self._costs.prefill.ms(num_positions)
        num_steps = self._num_steps(now_ms, chosen, left_ms)
        until = {c.key: min(c.num_drawn + num_steps, c.num_needed + config.run_ahead_tokens) for c in chosen}
        return LmPlan(prefill=tuple(prefill), decode=until, num_steps=num_steps)

    def _can_be_put_off(
        self, now_ms: float, candidates: Sequence[LmCandidate], flow_waiting: Sequence[FlowCandidate]
    ) -> bool:
        """Whether a first piece can run and nobody is in a hurry for tokens."""
        return any(c.is_first for c in flow_waiting) and not any(self._is_urgent(now_ms, c) for c in candidates)

    def _is_urgent(self, now_ms: float, candidate: LmCandidate) -> bool:
        """Whether it waits for tokens and has a first piece to give, or not much slack."""
        is_near = candidate.deadline_ms - now_ms <= self._config.urgent_slack_ms
        return candidate.num_missing > 0 and (candidate.is_first or is_near)

    def _left_ms(self, now_ms: float, waiting: FlowCandidate) -> float:
        """How long a round may be for what waits."""
        call_ms = self._flow_of(waiting)
        left_ms = waiting.deadline_ms - now_ms - call_ms
        return left_ms if left_ms >= 0.0 else call_ms

    def _left_by_listeners_ms(self, now_ms: float, candidates: Sequence[LmCandidate]) -> float:
        """How long several newcomers may be prefilled before a started stream would be late that draws its tokens."""
        if sum(c.num_prefill > 0 for c in candidates) < 2:  # noqa: PLR2004 - one is prefilled in any case
            return math.inf
        started = [c for c in candidates if not c.is_first and c.num_missing > 0]
        return min((c.deadline_ms - now_ms - self._piece_of(c, len(candidates)) for c in started), default=math.inf)

    def _num_steps(self, now_ms: float, chosen: Sequence[LmCandidate], left_ms: float) -> int:
        config = self._config
        useful = max(c.num_needed + config.run_ahead_tokens - c.num_drawn for c in chosen)
        num_steps = min(config.max_steps_per_round, useful)
        for candidate in chosen:
            if self._is_urgent(now_ms, candidate):
                num_steps = min(num_steps, candidate.num_missing)
        step_ms = self._costs.lm_step.ms(self._rows_of(len(chosen)))
        if left_ms < num_steps * step_ms:
            num_steps = max(1, int(left_ms / step_ms))
        return num_steps

    def plan_flow(
        self,
        now_ms: float,
        candidates: Sequence[FlowCandidate],
        lm_pending: Sequence[LmCandidate] = (),
        *,
        may_wait: bool = True,
    ) -> tuple[int, ...]:
        """The keys of the next batched call, the most urgent first.

        The most urgent candidate is taken; if all have time, the oldest. Others join in the order of their urgency, while

        * no deadline that could be met is missed for it, of its rows or of a piece whose tokens are still being drawn;
        * together costs hardly more than one after the other (padding can cost more than a call of its own);
        * rows that are late already are not held up by rows that are not.

        Args:
            now_ms: the instant.
            candidates: in any order.
            lm_pending: sequences that have tokens to draw.
            may_wait: whether they draw now, so that waiting brings anything.

        Returns:
            Empty if there is none, or if all can wait: for a more urgent piece that is still being drawn and would be late
            for the call, or, unless there is a first piece among them, for more rows to share it.

        """
        if not candidates:
            return ()
        order = sorted(candidates, key=lambda c: self._flow_urgency(now_ms, c))
        seed = order[0]
        batch = _Batch((seed.key,), seed.num_frames, seed.num_keys, self._flow_of(seed))
        latest_ms = seed.deadline_ms if seed.deadline_ms >= now_ms + batch.cost_ms else math.inf
        drawing = [(c, self._piece_of(c, len(lm_pending))) for c in lm_pending if c.num_missing > 0]
        if may_wait and self._can_wait(now_ms, order, batch.cost_ms, drawing):
            return ()
        starts_ms = [pending.deadline_ms - piece_ms for pending, piece_ms in drawing]
        latest_ms = min([latest_ms, *(start_ms for start_ms in starts_ms if start_ms >= now_ms + batch.cost_ms)])
        return self._grown(now_ms, batch, order, latest_ms).keys

    def _grown(self, now_ms: float, batch: "_Batch", order: Sequence[FlowCandidate], latest_ms: float) -> "_Batch":
        """``batch``, which holds the first of ``order``, with those that may join it. It must end by ``latest_ms``."""
        late_cost_ms = batch.cost_ms if order[0].deadline_ms < now_ms + batch.cost_ms else math.inf
        for candidate in order[1 : 4 * self._config.max_flow_rows]:
            if len(batch.keys) == self._config.max_flow_rows:
                break
            joined = self._join(batch, candidate)
            if joined is None or now_ms + joined.cost_ms > latest_ms:
                continue
            if candidate.deadline_ms < now_ms + batch.cost_ms:
                late_cost_ms = joined.cost_ms
            elif joined.cost_ms > _LATE_GROWTH * late_cost_ms:
                continue
            batch = joined
            if candidate.deadline_ms >= now_ms + batch.cost_ms:
                latest_ms = min(latest_ms, candidate.deadline_ms)
        return batch

    def _can_wait(
        self,
        now_ms: float,
        order: Sequence[FlowCandidate],
        seed_ms: float,
        drawing: Sequence[tuple[LmCandidate, float]],
    ) -> bool:
        """Whether the device had better draw tokens now, to have more rows in the call or for a more urgent piece."""
        pressed = [(c, piece_ms) for c, piece_ms in drawing if c.deadline_ms - piece_ms < now_ms + seed_ms]
        seed = order[0]
        if seed.deadline_ms < now_ms + seed_ms:
            return bool(pressed) and self._is_worth_waiting(order, [c for c, _ in pressed], len(drawing))
        spare_ms = seed.deadline_ms - now_ms - _WAIT_MARGIN * self._together_ms(order)
        seed_urgency = self._flow_urgency(now_ms, seed)
        if any(piece_ms < spare_ms and _urgency(c, now_ms) < seed_urgency for c, piece_ms in pressed):
            return True
        return bool(drawing) and spare_ms > self._config.urgent_slack_ms and not any(c.is_first for c in order)

    def _is_worth_waiting(self, late: Sequence[FlowCandidate], pressed: Sequence[LmCandidate], num_rows: int) -> bool:
        """Whether one row more in the call saves those that will be late more time than it costs those that are.

        Without this an overloaded device would make a call for each row by itself and never get out of it.
        """
        if len(late) >= self._config.max_flow_rows:
            return False
        frames, keys = max(c.num_frames for c in late), max(c.num_keys for c in late)
        grown_ms = self._costs.call_ms(len(late) + 1, frames, keys) - self._costs.call_ms(len(late), frames, keys)
        saved_ms = self._costs.call_ms(1, frames, keys) - grown_ms
        return len(late) * min(self._draw_ms(c, num_rows) for c in pressed) <= len(pressed) * saved_ms

    def _together_ms(self, candidates: Sequence[FlowCandidate]) -> float:
        """What it would take to call for all of them, in as large calls as rows allow."""
        frames = max(c.num_frames for c in candidates)
        keys = max(c.num_keys for c in candidates)
        return self._costs.calls_ms(len(candidates), frames, keys, max_rows=self._config.max_flow_rows)

    def _join(self, batch: "_Batch", candidate: FlowCandidate) -> "_Batch | None":
        """The batch with one row more, or None when it is too large or not worth its padding."""
        keys = (*batch.keys, candidate.key)
        frames = max(batch.num_frames, candidate.num_frames)
        if len(keys) * frames > self._config.max_flow_frames:
            return None
        num_keys = max(batch.num_keys, candidate.num_keys)
        cost_ms = self._costs.call_ms(len(keys), frames, num_keys)
        if cost_ms > _APART_MARGIN * (batch.cost_ms + self._flow_of(candidate)):
            return None
        return _Batch(keys, frames, num_keys, cost_ms)

    def spare_ms(
        self, now_ms: float, drawing: Sequence[LmCandidate], ready: Sequence[FlowCandidate], *, work_ms: float = 0.0
    ) -> float:
        """The least time by which a started stream's next piece will be in time, all that is due before it done first.

        Tokens are drawn together, calls come in batches of a quarter of the rows. ``work_ms`` goes before everything.
        Negative when a listener will run dry; infinite when nobody listens. For admission.
        """
        pieces = [(c.deadline_ms, c.is_first, c.num_missing, c.num_prefill, 2 * c.num_needed, 0) for c in drawing]
        pieces += [(c.deadline_ms, c.is_first, 0, 0, c.num_frames, c.num_keys) for c in ready]
        step_ms = self._costs.lm_step.ms(self._rows_of(len(pieces)))
        spare_ms = math.inf
        missing = positions = frames = keys = 0
        shape, call_ms = (0, 0, 0), 0.0
        for number, piece in enumerate(sorted(pieces), 1):
            missing, positions = max(missing, piece[2]), positions + piece[3]
            frames, keys = max(frames, min(piece[4], FRAMES_PER_TOKEN * max(HOPS))), max(keys, piece[5])
            rows = min(self._config.max_flow_rows, -(-number // 4))
            if shape != (rows, frames, keys):  # the same for many, and a prediction is what takes time here
                shape, call_ms = (rows, frames, keys), self._costs.call_ms(rows, frames, keys)
            done_ms = self._costs.prefill.ms(positions) + missing * step_ms + -(-number // rows) * call_ms
            if not piece[1]:
                spare_ms = min(spare_ms, piece[0] - now_ms - work_ms - done_ms)
        return spare_ms

    def hop_ms(self, num_missing: int, num_frames: int, num_keys: int, *, num_streams: int) -> float:
        """What a hop would take among ``num_streams`` streams: its missing tokens, then its call; for :func:`choose_hop`.

        Drawing is given half of the device's time, and the call half of the streams for company.
        """
        draw_ms = num_missing * self._costs.lm_step.ms(self._rows_of(num_streams))
        num_rows = min(self._config.max_flow_rows, (num_streams + 1) // 2)
        return (draw_ms if num_streams == 1 else 2.0 * draw_ms) + self._costs.call_ms(num_rows, num_frames, num_keys)

    def _rows_of(self, num_drawing: int) -> int:
        return max(1, self.num_rows, min(num_drawing, self._config.max_lm_rows))

    def _flow_urgency(self, now_ms: float, candidate: FlowCandidate) -> "_Urgency":
        """As :func:`_urgency`, but that those with time come last, the oldest first."""
        if candidate.is_first or candidate.deadline_ms - now_ms <= self._config.easy_slack_ms:
            return _urgency(candidate, now_ms)
        return True, True, candidate.key, candidate.key

    def _flow_of(self, candidate: FlowCandidate) -> float:
        return self._costs.call_ms(1, candidate.num_frames, candidate.num_keys)

    def _piece_of(self, candidate: LmCandidate, num_rows: int) -> float:
        """Device time from now to the next piece of a sequence that still draws for it."""
        frames = FRAMES_PER_TOKEN * min(candidate.num_needed, max(HOPS) + CHUNK_TOKENS)
        return self._draw_ms(candidate, num_rows) + self._costs.call_ms(1, frames, frames)

    def _draw_ms(self, candidate: LmCandidate, num_rows: int) -> float:
        steps_ms = candidate.num_missing * self._costs.lm_step.ms(self._rows_of(num_rows))
        return self._costs.prefill.ms(candidate.num_prefill) + steps_ms


@dataclass(frozen=True, slots=True)
class _Batch:
    """A flow call in the making."""

    keys: tuple[int, ...]
    num_frames: int  # of the longest row
    num_keys: int
    cost_ms: float


_Urgency = tuple[bool, bool, float, int]


def _urgency(candidate: LmCandidate | FlowCandidate, now_ms: float) -> _Urgency:
    """What to sort by: started streams that are late, then all by deadline; keys make the order complete.

    A first piece that is very late counts as one of a started stream, so that it gets its turn even when all are late.
    """
    late_ms = now_ms - candidate.deadline_ms
    is_starving = late_ms > (_MAX_FIRST_LATE_MS if candidate.is_first else 0.0)
    return not is_starving, False, candidate.deadline_ms, candidate.key


def choose_hop(slack_ms: float, predicted: Callable[[int], float], *, behind: int, hops: Sequence[int] = HOPS) -> int:
    """How many tokens the next flow call of a sequence should give out.

    Args:
        slack_ms: until its next piece is due.
        predicted: what a call that gives out so many tokens would take, ms, the drawing of those that lack included.
        behind: tokens of the sequence so far, its prompt included; the call ends on the grid of 25 (§6).
        hops: the choice, rising.

    Returns:
        The longest hop whose time the slack exceeds 1.65 times, else the shortest; filled up to the grid.

    """
    if not hops or hops[0] < 1 or any(a >= b for a, b in pairwise(hops)):
        raise ValueError(f"hops must rise: {hops}")
    chosen = hop_to_grid(behind, hops[0])
    for hop in hops[1:]:
        longer = hop_to_grid(behind, hop)
        if slack_ms <= _HOP_MARGIN * predicted(longer):
            break
        chosen = longer
    return chosen
