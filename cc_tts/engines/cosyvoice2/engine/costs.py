"""What the stages of a step cost on this device, ms, learnt from what they cost before.

::

    observe_flow(rows, frames, keys, cost_ms) ─▸ mean of the tier (powers of two) ─▸ flow_ms(rows, frames, keys)

Between tiers costs are interpolated, beyond them scaled in proportion; more work is never predicted to cost less. Tiers
far above what was ever seen are thus overrated: measure them at start-up and begin with :meth:`StageCosts.from_table`.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypedDict

_ALPHA: Final = 0.2
_MAX_RISE: Final = 4.0
_LEAST_MS: Final = 1e-3  # a cost of nothing could never rise again under the bound above
_STEPS_PER_OCTAVE: Final = 4  # sizes are rounded up to this grid, so that a plan asks for few different ones
_MAX_SIZE: Final = 2**40
_ROWS_OF_SAME_SIZE: Final = 0.25  # the size counts the frames of all rows; that they are many costs little besides
_MANY_SIZES: Final = 2**16
_LN2: Final = math.log(2.0)
_KEYS_LIKE_ONE_FRAME: Final = 1160  # this many keys cost a frame as much attention as all else it costs (132 MFLOP)


class Stage(StrEnum):
    """The parts of a step that take device time."""

    PREFILL = "prefill"
    LM_STEP = "lm_step"
    FLOW = "flow"
    VOCODER = "vocoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultCosts:
    """What a stage is taken to cost while nothing is known of it, whatever its size, ms."""

    prefill_ms: float = 10.0
    lm_step_ms: float = 5.0
    flow_ms: float = 30.0
    vocoder_ms: float = 10.0


class CostRow(TypedDict):
    """One tier of a table, ready for JSON: ``size`` is positions, or frames weighted by their keys; 1 for ``lm_step``."""

    stage: str
    rows: float
    size: float
    cost_ms: float


class StageCosts:
    """The measured costs of all stages.

    One observation counts as at most four times what was expected and moves the mean by a fifth of the difference, so a
    single spike leaves no more than 1.6 times the cost behind. Sizes are counts; zero of anything costs nothing.

    Raises:
        ValueError: here and in every method, for a size or a cost that is negative or not finite.

    """

    def __init__(self, defaults: DefaultCosts | None = None) -> None:
        defaults = DefaultCosts() if defaults is None else defaults
        self._stages: Mapping[Stage, _Tiers] = {
            Stage.PREFILL: _Tiers(_checked_cost(defaults.prefill_ms), 0.0),
            Stage.LM_STEP: _Tiers(_checked_cost(defaults.lm_step_ms), 1.0),
            Stage.FLOW: _Tiers(_checked_cost(defaults.flow_ms), _ROWS_OF_SAME_SIZE),
            Stage.VOCODER: _Tiers(_checked_cost(defaults.vocoder_ms), _ROWS_OF_SAME_SIZE),
        }

    @classmethod
    def from_table(cls, table: Iterable[CostRow], defaults: DefaultCosts | None = None) -> "StageCosts":
        """Begin with a table as :meth:`as_table` gives it; later rows of a tier replace earlier ones.

        Raises:
            ValueError: an unknown stage, or a value that is not a size or a cost.

        """
        costs = cls(defaults)
        for row in table:
            tiers = costs._stages[Stage(row["stage"])]
            tiers.put(_log2(row["rows"]), _log2(row["size"]), max(_LEAST_MS, _checked_cost(row["cost_ms"])))
        return costs

    def as_table(self) -> list[CostRow]:
        """All tiers that are known, by stage, rows and size; for logs and for :meth:`from_table`."""
        return [
            CostRow(
                stage=stage.value,
                rows=round(2**tier.rows, 3),
                size=round(2**tier.size, 3),
                cost_ms=round(math.exp(tier.log_ms), 4),
            )
            for stage, tiers in self._stages.items()
            for _, tier in sorted(tiers.known.items())
        ]

    def observe_prefill(self, num_positions: int, cost_ms: float) -> None:
        """A prefill of ``num_positions`` of all its sequences together took ``cost_ms``."""
        self._observe(Stage.PREFILL, 1, num_positions, cost_ms)

    def observe_lm_step(self, num_rows: int, cost_ms: float) -> None:
        """One decode step of ``num_rows`` sequences took ``cost_ms``."""
        self._observe(Stage.LM_STEP, num_rows, 1, cost_ms)

    def observe_flow(self, num_rows: int, num_frames: int, num_keys: int, cost_ms: float) -> None:
        """A flow call took ``cost_ms``: see :meth:`flow_ms`."""
        self._observe(Stage.FLOW, num_rows, _weighted(num_frames, num_keys), cost_ms)

    def observe_vocoder(self, num_rows: int, num_frames: int, cost_ms: float) -> None:
        """A vocoder call took ``cost_ms``: see :meth:`vocoder_ms`."""
        self._observe(Stage.VOCODER, num_rows, num_frames, cost_ms)

    def prefill_ms(self, num_positions: int) -> float:
        """What a prefill of so many positions would cost, all its sequences together."""
        return self._predict(Stage.PREFILL, 1, num_positions)

    def lm_step_ms(self, num_rows: int) -> float:
        """What one decode step of so many sequences would cost."""
        return self._predict(Stage.LM_STEP, num_rows, 1)

    def flow_ms(self, num_rows: int, num_frames: int, num_keys: int) -> float:
        """What a flow call, all its Euler steps, would cost.

        Args:
            num_rows: sequences in the call.
            num_frames: frames it solves with the padding, rows times the longest.
            num_keys: frames that the longest row attends to.

        """
        return self._predict(Stage.FLOW, num_rows, _weighted(num_frames, num_keys))

    def vocoder_ms(self, num_rows: int, num_frames: int) -> float:
        """What a vocoder call of so many rows and frames, with the padding, would cost."""
        return self._predict(Stage.VOCODER, num_rows, num_frames)

    def _observe(self, stage: Stage, num_rows: float, size: float, cost_ms: float) -> None:
        cost_ms = _checked_cost(cost_ms)
        rows, octaves = _octaves(num_rows), _octaves(size)
        if rows != -math.inf and octaves != -math.inf:
            self._stages[stage].observe(rows, octaves, cost_ms)

    def _predict(self, stage: Stage, num_rows: float, size: float) -> float:
        rows, octaves = _octaves(num_rows), _octaves(size)
        if rows == -math.inf or octaves == -math.inf:
            return 0.0
        return self._stages[stage].predict(rows, octaves)


@dataclass(slots=True)
class _Tier:
    """What was seen of a tier: means of the sizes, in octaves, and of the cost."""

    rows: float
    size: float
    log_ms: float


@dataclass(slots=True)
class _Tiers:
    """The tiers of one stage. Costs grow with the size, in proportion at most, and with ``rows_power`` of the rows."""

    default_ms: float
    rows_power: float
    known: dict[tuple[int, int], _Tier] = field(default_factory=dict)
    _asked: dict[tuple[float, float], float] = field(default_factory=dict)

    def put(self, rows: float, size: float, cost_ms: float) -> None:
        if rows == -math.inf or size == -math.inf:
            raise ValueError("a tier of no size")
        self._asked.clear()
        self.known[math.ceil(rows), math.ceil(size)] = _Tier(rows, size, math.log(cost_ms))

    def observe(self, rows: float, size: float, cost_ms: float) -> None:
        tier = self.known.get((math.ceil(rows), math.ceil(size)))
        if tier is None:
            expected_ms = self.predict(rows, size)
        else:
            expected_ms = math.exp(tier.log_ms)
            rows = tier.rows + _ALPHA * (rows - tier.rows)
            size = tier.size + _ALPHA * (size - tier.size)
        mean_ms = expected_ms + _ALPHA * (min(cost_ms, _MAX_RISE * expected_ms) - expected_ms)
        self.put(rows, size, max(_LEAST_MS, mean_ms))

    def predict(self, rows: float, size: float) -> float:
        """Between what the known tiers allow at least and at most.

        Each known tier says: twice the work costs at most twice as much, half of it at least half as much, and most likely
        the root of half. The largest lower bound and the smallest upper bound both grow with the work; so does the larger of
        the two, which in a known tier is what was measured there, unless less work was measured to cost more.
        """
        if not self.known:
            return max(_LEAST_MS, self.default_ms)
        if (asked := self._asked.get((rows, size))) is not None:
            return asked
        least, most = -math.inf, math.inf
        for tier in self.known.values():
            more_rows = self.rows_power * (rows - tier.rows)
            more_size = size - tier.size
            least = max(least, tier.log_ms + _LN2 * (min(0.0, more_rows) + min(0.0, more_size)))
            up = max(more_rows, more_rows / 2) + max(more_size, more_size / 2)
            most = min(most, tier.log_ms + _LN2 * up)
        predicted = self._asked[rows, size] = math.exp(max(least, most))
        return predicted


def _log2(size: float) -> float:
    """The logarithm to base 2; -inf for zero."""
    if not 0 <= size <= _MAX_SIZE:
        raise ValueError(f"{size} is not a size")
    return math.log2(size) if size > 0 else -math.inf


@functools.lru_cache(maxsize=_MANY_SIZES)
def _octaves(size: float) -> float:
    """The same, rounded up to the grid."""
    octaves = _log2(size)
    return octaves if octaves == -math.inf else math.ceil(_STEPS_PER_OCTAVE * octaves - 1e-9) / _STEPS_PER_OCTAVE


def _weighted(num_frames: int, num_keys: int) -> float:
    """Frames, counted by what they cost with the keys they attend to."""
    if num_keys < 0:
        raise ValueError(f"{num_keys} keys")
    return num_frames * (1.0 + num_keys / _KEYS_LIKE_ONE_FRAME)


def _checked_cost(cost_ms: float) -> float:
    if not 0.0 <= cost_ms < math.inf:
        raise ValueError(f"{cost_ms} ms is not a cost")
    return cost_ms
