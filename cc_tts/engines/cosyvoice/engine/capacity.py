"""The free capacity of the device: what the stages cost, and whether a new request fits.

::

    StageCosts       observed cost ─▸ mean for each size (powers of two) ─▸ line over the size ─▸ predicted cost
    EngineSnapshot ─▸ Capacity.refusal(n): slots · pages ─▸ nobody runs dry ─▸ first audio ≤ target ─▸ utilisation ≤ limit

A size counts what is computed, padding included. Nobody runs dry while audio comes with half of the guard left, as it came
lately and as it would come behind what a new request asks for first. After a refusal by one of the last two limits both are
somewhat stricter, so that admission does not flap. An idle device takes every stream.
"""

import bisect
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.schedule import (
    CHUNK_TOKENS,
    FIRST_HOP_TOKENS,
    FRAMES_PER_TOKEN,
    LOOKAHEAD_TOKENS,
    hop_to_grid,
)

MAX_FREE_CAPACITY: Final = 64  # the most new requests that are promised to be taken at once; unmeasured
TYPICAL_POSITIONS: Final = 200  # of a new request in the language model: prefix and text; unmeasured
_ALPHA: Final = 0.2  # unmeasured
_MAX_RISE: Final = 4.0  # unmeasured
_LEAST_MS: Final = 1e-3  # a cost of nothing could never rise again under the bound above; unmeasured
_KEYS_LIKE_ONE_FRAME: Final = 1160  # this many keys cost a frame as much attention as all else it costs (132 MFLOP)
_TOKENS_PER_S: Final = 25
_FIRST_TOKENS: Final = CHUNK_TOKENS + LOOKAHEAD_TOKENS
_SHORT_PROMPT: Final = CHUNK_TOKENS - FIRST_HOP_TOKENS  # beyond whole chunks, as enrolment leaves it
_HOP_TOKENS: Final = 2 * CHUNK_TOKENS  # a usual later hop: they grow with the slack
_TYPICAL_KEYS: Final = 500  # unmeasured
_FIRST_AUDIO_MARGIN: Final = (
    1.15  # prefills come in turns, so the tokens of a burst are not all sampled together; unmeasured
)
MAX_GUARD_MS: Final = 250.0  # unmeasured
_LONGEST_CALL: Final = 2.5
"""The longest that a call may take, as a factor: other work of the processor makes single calls take up to this many times
as long as their neighbours (engine-notes).
"""
HELD_BACK_MS: Final = 160.0  # 8 mel frames of 20 ms, by the vocoder (spec §5.5)
_SECOND_ROWS: Final = 4  # that a second piece shares its call with; calls with time wait for it
_SECOND_SHARE: Final = 0.75  # of the first piece that the second may take; unmeasured
_STREAMS_PER_ROW: Final = 4  # of a flow call: listeners do not fall due together
_REOPEN: Final = 0.9
_MAX_SHARE: Final = 0.9  # unmeasured
_MAX_RETRY_AFTER_S: Final = 60  # unmeasured


class StageCost:
    """The cost of one stage, ms: a line over the size of its work, learnt from past calls.

    The line is fitted to the mean cost of each power of two of the size, by least squares of the relative error; it never
    falls, and is never below zero. The first observation counts as it is, as nothing was known. Later ones count as at most
    four times what was expected and move their mean by a fifth of the difference, so one spike leaves at most 1.6 times the
    cost behind.
    """

    def __init__(self, fixed_ms: float, each_ms: float = 0.0) -> None:
        self._fixed_ms = fixed_ms
        self._each_ms = each_ms
        self._means: dict[int, tuple[float, float]] = {}

    def ms(self, size: float) -> float:
        """The predicted cost; 0 for a size of 0."""
        return max(_LEAST_MS, self._fixed_ms + self._each_ms * size) if size else 0.0

    def observe(self, size: float, cost_ms: float) -> None:
        """Note that a call of this size, 1 or more, took ``cost_ms``."""
        octave, expected_ms = math.frexp(size)[1], self.ms(size) if self._means else cost_ms
        if octave in self._means:
            mean_size, expected_ms = self._means[octave]
            size = mean_size + _ALPHA * (size - mean_size)
        mean_ms = expected_ms + _ALPHA * (min(cost_ms, _MAX_RISE * expected_ms) - expected_ms)
        self._means[octave] = size, max(_LEAST_MS, mean_ms)
        self._fixed_ms, self._each_ms = _line(list(self._means.values()))


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the cost at size 0 and the slope, from points of size and cost."""
    weighted = [(1.0 / cost_ms**2, size, cost_ms) for size, cost_ms in points]
    total = sum(weight for weight, _, _ in weighted)
    mean_size = sum(weight * size for weight, size, _ in weighted) / total
    mean_ms = sum(weight * cost_ms for weight, _, cost_ms in weighted) / total
    spread = sum(weight * (size - mean_size) ** 2 for weight, size, _ in weighted)
    if len(points) == 1 or not spread:  # one size alone: the cost is taken to lie between a constant and a proportion
        return mean_ms / 2, mean_ms / 2 / mean_size
    rise = sum(weight * (size - mean_size) * (cost_ms - mean_ms) for weight, size, cost_ms in weighted) / spread
    rise = min(max(0.0, rise), mean_ms / mean_size)
    return mean_ms - rise * mean_size, rise


@dataclass(slots=True)
class StageCosts:
    """The costs of all stages; the defaults are used while nothing was measured."""

    prefill: StageCost = field(default_factory=lambda: StageCost(10.0))  # by positions, all sequences together
    lm_step: StageCost = field(default_factory=lambda: StageCost(5.0))  # by rows
    flow: StageCost = field(default_factory=lambda: StageCost(30.0))  # by weighted frames, all Euler steps
    vocoder: StageCost = field(default_factory=lambda: StageCost(10.0))  # by frames

    def call_ms(self, num_rows: int, max_frames: int, num_keys: int) -> float:
        """Return the cost of a call of flow and vocoder whose longest row solves ``max_frames`` and attends
        to ``num_keys``.
        """
        num_frames = num_rows * max_frames
        return self.flow.ms(weighted_frames(num_frames, num_keys)) + self.vocoder.ms(num_frames)

    def calls_ms(self, num_rows: int, max_frames: int, num_keys: int, *, max_rows: int) -> float:
        """Return the same for as few calls of at most ``max_rows`` as are needed."""
        full, rest = divmod(num_rows, max_rows)
        return full * self.call_ms(max_rows, max_frames, num_keys) + self.call_ms(rest, max_frames, num_keys)

    def guard_ms(self, least_ms: float) -> float:
        """Return how long before a listener runs dry its next piece is due: as long as a call under way may take, and at
        least ``least_ms``.
        """
        call_ms = self.call_ms(1, FRAMES_PER_TOKEN * _FIRST_TOKENS, _TYPICAL_KEYS)
        return max(least_ms, min(MAX_GUARD_MS, _LONGEST_CALL * call_ms))

    def first_hop(self, least: int) -> int:
        """Return the tokens of a first piece, ``least`` or a chunk, so that the second piece arrives before the first has
        been played.
        """
        call_ms = self.call_ms(_SECOND_ROWS, FRAMES_PER_TOKEN * _FIRST_TOKENS, _TYPICAL_KEYS)
        second_ms = CHUNK_TOKENS * self.lm_step.ms(_SECOND_ROWS) + call_ms
        is_short = second_ms > _SECOND_SHARE * (1000.0 / _TOKENS_PER_S * least - HELD_BACK_MS)
        return max(least, CHUNK_TOKENS) if is_short else least

    def observe_call(self, num_frames: int, num_keys: int, flow_ms: float, vocoder_ms: float) -> None:
        """Note how long a call of this many frames (rows times the longest) took in its two stages."""
        self.flow.observe(weighted_frames(num_frames, num_keys), flow_ms)
        self.vocoder.observe(num_frames, vocoder_ms)


def weighted_frames(num_frames: int, num_keys: int) -> float:
    """Return the frames, weighted by what the flow spends on the keys that they attend to."""
    return num_frames * (1.0 + num_keys / _KEYS_LIKE_ONE_FRAME)


class RefusalCode(StrEnum):
    """The reason why a stream is refused; a label of a metric."""

    SLOTS = "slots"
    MEMORY = "memory"
    FIRST_AUDIO = "first_audio"
    UTILISATION = "utilisation"
    STARVING = "starving"


class Refusal(NamedTuple):
    """The reason why a new request does not fit."""

    code: RefusalCode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """The state of the engine when a new request arrives."""

    num_streams: int
    num_first_pending: int  # those of them whose listeners have heard nothing yet
    spare_ms: float = math.inf  # the least time by which a started stream's next audio will be in time
    measured_slack_ms: float = math.inf  # what listeners had left when their last audio came (SlackWindow)
    num_lm_rows: int  # that the language model computes in a step, those of the pending among them
    pending_positions: int = 0  # yet to be prefilled
    num_free_pages: int  # without those that are reserved for a sequence under way
    pages_each: int  # of a new request
    next_end_in_ms: float = math.inf  # how long until the next stream ends, as far as is known

    @property
    def retry_after_s(self) -> int:
        """Return when to ask again, seconds, rounded up; 1 if nothing is known."""
        seconds = 1.0 if math.isinf(self.next_end_in_ms) else self.next_end_in_ms / 1000.0
        return math.ceil(min(max(1.0, seconds), _MAX_RETRY_AFTER_S))


class Capacity:
    """Decides whether new requests fit; remembers only whether first audio or utilisation caused the last refusal."""

    def __init__(self, config: EngineConfig, costs: StageCosts) -> None:
        self._config = config
        self._costs = costs
        self._first_tokens = max(_FIRST_TOKENS, hop_to_grid(_SHORT_PROMPT, config.first_hop_tokens) + LOOKAHEAD_TOKENS)
        self._is_closed = False

    def admit(self, snapshot: EngineSnapshot) -> Refusal | None:
        """Return why one new request is refused, before its stream is opened; None if it is accepted."""
        refusal = self.refusal(snapshot)
        if refusal is None or refusal.code in (RefusalCode.FIRST_AUDIO, RefusalCode.UTILISATION):
            self._is_closed = refusal is not None
        return refusal

    def free_capacity(self, snapshot: EngineSnapshot) -> int:
        """Return how many new requests would be accepted at this instant; each one leaves less room for the next."""
        counts = range(1, MAX_FREE_CAPACITY + 1)
        return bisect.bisect(counts, 0, key=lambda num_new: self.refusal(snapshot, num_new) is not None)

    def refusal(self, snapshot: EngineSnapshot, num_new: int = 1) -> Refusal | None:
        """Return why the last of this many new requests would be refused; None if it would be accepted."""
        config = self._config
        num_others = snapshot.num_streams + num_new - 1
        if num_others >= config.max_streams:
            return Refusal(RefusalCode.SLOTS, f"{num_others} streams are open and no slot is free")
        if num_others == 0:
            return None
        if (snapshot.num_first_pending + num_new) * snapshot.pages_each > snapshot.num_free_pages:
            pages = f"{snapshot.pages_each} pages are needed and {snapshot.num_free_pages} free"
            return Refusal(RefusalCode.MEMORY, f"no memory for the flow's state: {pages}")
        within = _REOPEN if self._is_closed else 1.0
        ahead_ms = self._work_ahead_ms(snapshot, num_new)
        least_ms, behind_ms = config.guard_ms / 2.0, snapshot.spare_ms + config.guard_ms - ahead_ms
        if (left_ms := min(behind_ms, snapshot.measured_slack_ms)) < least_ms:
            slack = f"would come with {left_ms:.0f} ms left where {least_ms:.0f} ms should be"
            return Refusal(RefusalCode.STARVING, f"listeners run dry: audio {slack}")
        limit_ms, first_audio_ms = within * config.first_audio_target_ms, self.first_audio_ms(snapshot, num_new)
        if first_audio_ms > limit_ms:
            late = f"after {first_audio_ms:.0f} ms instead of at most {limit_ms:.0f} ms"
            return Refusal(RefusalCode.FIRST_AUDIO, f"first audio would come {late}")
        limit, share = within * config.max_utilisation, self.utilisation(snapshot.num_streams + num_new)
        share += ahead_ms / config.first_audio_target_ms
        if share > limit:
            needed = f"{100 * share:.0f} % of the device would be needed where at most {100 * limit:.0f} % may be"
            return Refusal(RefusalCode.UTILISATION, needed)
        return None

    def first_audio_ms(self, snapshot: EngineSnapshot, num_new: int = 1) -> float:
        """Return the predicted time to first audio of the last of this many new requests, including the calls of started
        streams.
        """
        steps_ms = self._first_tokens * self._costs.lm_step.ms(snapshot.num_lm_rows + num_new)
        own_ms = _FIRST_AUDIO_MARGIN * (self._work_ahead_ms(snapshot, num_new) + steps_ms)
        num_started = max(0, snapshot.num_streams - snapshot.num_first_pending)
        return own_ms / (1.0 - min(_MAX_SHARE, self._flow_share(num_started)))

    def utilisation(self, num_streams: int) -> float:
        """Return the share of the device's time that this many streams need; above 1 they cannot keep pace with their
        listeners.
        """
        return _TOKENS_PER_S * self._costs.lm_step.ms(num_streams) / 1000.0 + self._flow_share(num_streams)

    def _flow_share(self, num_streams: int) -> float:
        """Return the share of flow and vocoder, in batches of a quarter of the streams."""
        if num_streams == 0:
            return 0.0
        rows = min(self._config.max_flow_rows, -(-num_streams // _STREAMS_PER_ROW))
        calls_per_s = num_streams / rows * _TOKENS_PER_S / _HOP_TOKENS
        frames = FRAMES_PER_TOKEN * (_HOP_TOKENS + LOOKAHEAD_TOKENS)
        return calls_per_s * self._costs.call_ms(rows, frames, _TYPICAL_KEYS) / 1000.0

    def _work_ahead_ms(self, snapshot: EngineSnapshot, num_new: int) -> float:
        """Return the time of the prefills and first calls of all streams without audio so far: in the worst case they run
        before a started stream.
        """
        prefill_ms = self._costs.prefill.ms(snapshot.pending_positions + num_new * TYPICAL_POSITIONS)
        num_firsts, frames = snapshot.num_first_pending + num_new, FRAMES_PER_TOKEN * self._first_tokens
        max_rows = self._config.max_flow_rows
        return prefill_ms + self._costs.calls_ms(num_firsts, frames, _TYPICAL_KEYS, max_rows=max_rows)
