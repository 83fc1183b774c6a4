"""Whether one more stream can be taken without making anybody wait who is listening already.

::

    slots · pages ─▸ predicted first audio ≤ target ─▸ device time an audio second ≤ limit ─▸ nobody runs dry ─▸ admitted

What refuses for want of time opens again a little below where it closed, so that it does not flap. An idle device takes
every stream: it may be slow, but there is nobody to be harmed. Runs on: the thread that owns the device.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cc_tts.engines.cosyvoice2.engine.costs import StageCosts
from cc_tts.engines.cosyvoice2.engine.schedule import CHUNK_TOKENS, LOOKAHEAD_TOKENS

FRAMES_PER_TOKEN: Final = 2
TOKENS_PER_S: Final = 25
_FIRST_AUDIO_MARGIN: Final = 1.15  # prefills come in turns, so the tokens of a burst are not all drawn together
_SLACK_MARGIN: Final = 1.5
_STREAMS_PER_ROW: Final = 4
_REOPEN: Final = 0.9
_MAX_SHARE: Final = 0.9
_MAX_RETRY_AFTER_S: Final = 60


class RefusalCode(StrEnum):
    """Why a stream is refused; labels of a metric."""

    SLOTS = "slots"
    MEMORY = "memory"
    FIRST_AUDIO = "first_audio"
    UTILISATION = "utilisation"
    STARVING = "starving"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """Limits of admission."""

    guard_ms: float = 0.0
    """What a listener has left when its next piece is due. Pieces that come with less than half of it are a sign of too
    much work, whatever is predicted."""
    first_audio_target_ms: float
    """A stream whose first audio would come later than this is refused."""
    max_streams: int
    max_utilisation: float = 0.9
    """Share of the device's time that all streams together may need."""
    queue_ms: float = 0.0
    """How much longer than the target a stream may wait, for callers who would rather wait than be refused."""
    max_flow_rows: int = 32
    """As in the scheduler's limits."""
    allow_recompute: bool = False
    """Whether a stream without pages for its flow state may run by computing it anew for each call."""

    def __post_init__(self) -> None:
        times_are_sound = 0.0 < self.first_audio_target_ms < math.inf and 0.0 <= self.queue_ms < math.inf
        if not times_are_sound or min(self.max_streams, self.max_flow_rows) < 1 or not self.max_utilisation > 0.0:
            raise ValueError(f"limits that let nothing through: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The engine at the moment of the question, and what the newcomer would need."""

    num_streams: int
    """Streams that are open."""
    num_first_pending: int
    """Those of them that have not given out their first piece."""
    min_slack_ms: float
    """Least slack of a stream that has, best less the work that is due before (``Scheduler.spare_ms``); infinite if none."""
    measured_slack_ms: float = math.inf
    """What listeners had left when their last pieces came: the 5th percentile, or less than 0 after an underrun."""
    free_slots: int
    free_pages: int
    pages_needed: int
    lm_rows: int
    """Sequences that draw tokens now, the pending ones among them."""
    device_free_ms: float = -math.inf
    """The instant at which the work is done that runs on the device now."""
    prefill_positions: int = 200
    """Of the newcomer: prompt and text."""
    pending_positions: int = 0
    """Not yet prefilled positions of the streams that are admitted."""
    first_tokens: int = CHUNK_TOKENS + LOOKAHEAD_TOKENS
    """Tokens that the first flow call waits for."""
    first_frames: int = FRAMES_PER_TOKEN * (CHUNK_TOKENS + LOOKAHEAD_TOKENS)
    """Frames that it solves, those of the prompt among them where they are not kept."""
    hop_tokens: int = 2 * CHUNK_TOKENS
    """A usual later hop: the second piece is as long as the first, then hops grow with what the listener has ahead."""
    hop_frames: int = FRAMES_PER_TOKEN * (2 * CHUNK_TOKENS + LOOKAHEAD_TOKENS)
    """Frames that it solves."""
    num_keys: int = 500
    """Frames that a usual call attends to."""
    next_end_ms: float = math.inf
    """The instant at which the next stream will end, as far as can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer, with the figures it rests on."""

    admit: bool
    first_audio_ms: float
    """Predicted time to first audio of the newcomer."""
    utilisation: float
    """Share of the device's time that the streams need to keep pace with their listeners, the newcomer included, and that
    the first pieces need which are pending."""
    code: RefusalCode | None = None
    reason: str = ""
    """In words; empty when admitted."""
    retry_after_s: int = 1


class Admission:
    """Decides, and remembers only whether it refused for want of time last."""

    def __init__(self, config: AdmissionConfig, costs: StageCosts) -> None:
        self._config = config
        self._costs = costs
        self._is_closed = False

    def decide(self, now_ms: float, situation: Situation) -> Decision:
        """The answer to a stream that asks now; ``situation`` is as it is before the stream is opened."""
        decision = self.preview(now_ms, situation)
        if decision.admit:
            self._is_closed = False
        elif decision.code not in (RefusalCode.SLOTS, RefusalCode.MEMORY):
            self._is_closed = True
        return decision

    def preview(self, now_ms: float, situation: Situation) -> Decision:
        """What :meth:`decide` would answer; changes nothing, so reports may ask as often as they like."""
        first_audio_ms = self.first_audio_ms(now_ms, situation)
        begin_ms = self._work_ahead_ms(situation)
        begin_share = begin_ms / (self._config.first_audio_target_ms + self._config.queue_ms)
        utilisation = begin_share + self.utilisation(situation, situation.num_streams + 1)
        refusal = self._refusal(situation, first_audio_ms, utilisation)
        code, reason = (None, "") if refusal is None else refusal
        return Decision(
            admit=refusal is None,
            first_audio_ms=first_audio_ms,
            utilisation=utilisation,
            code=code,
            reason=reason,
            retry_after_s=_retry_after_s(situation.next_end_ms - now_ms),
        )

    def first_audio_ms(self, now_ms: float, situation: Situation) -> float:
        """Predicted time to first audio of one stream more.

        What is under way, the prefills, the tokens of the first hop at the batch that is then running, and flow and vocoder
        of all first pieces together; longer by the share of time that the flow calls of the started streams take meanwhile.
        """
        prefill_ms = self._costs.prefill_ms(situation.pending_positions + situation.prefill_positions)
        steps_ms = situation.first_tokens * self._costs.lm_step_ms(situation.lm_rows + 1)
        own_ms = _FIRST_AUDIO_MARGIN * (prefill_ms + steps_ms + self._first_calls_ms(situation))
        num_started = max(0, situation.num_streams - situation.num_first_pending)
        under_way_ms = max(0.0, situation.device_free_ms - now_ms)
        return under_way_ms + own_ms / (1.0 - min(_MAX_SHARE, self._flow_share(situation, num_started)))

    def utilisation(self, situation: Situation, num_streams: int) -> float:
        """Share of the device's time that ``num_streams`` streams need; above 1 they cannot keep pace."""
        if num_streams == 0:
            return 0.0
        lm_share = TOKENS_PER_S * self._costs.lm_step_ms(num_streams) / 1000.0
        return lm_share + self._flow_share(situation, num_streams)

    def _flow_share(self, situation: Situation, num_streams: int) -> float:
        """Share of flow and vocoder, in batches of a quarter of the streams: listeners do not fall due together."""
        if num_streams == 0:
            return 0.0
        rows = min(self._config.max_flow_rows, -(-num_streams // _STREAMS_PER_ROW))
        calls_per_s = num_streams / rows * TOKENS_PER_S / situation.hop_tokens
        return calls_per_s * self._call_ms(rows, situation.hop_frames, situation.num_keys) / 1000.0

    def _first_calls_ms(self, situation: Situation) -> float:
        """Flow and vocoder of all pending first pieces and the newcomer's, in as few calls as rows allow."""
        num_firsts = situation.num_first_pending + 1
        full, rest = divmod(num_firsts, self._config.max_flow_rows)
        frames, keys = situation.first_frames, situation.num_keys
        full_ms = full * self._call_ms(self._config.max_flow_rows, frames, keys) if full else 0.0
        return full_ms + (self._call_ms(rest, frames, keys) if rest else 0.0)

    def _call_ms(self, num_rows: int, frames: int, num_keys: int) -> float:
        num_frames = num_rows * frames
        return self._costs.flow_ms(num_rows, num_frames, num_keys) + self._costs.vocoder_ms(num_rows, num_frames)

    def _refusal(
        self, situation: Situation, first_audio_ms: float, utilisation: float
    ) -> tuple[RefusalCode, str] | None:
        config = self._config
        if situation.num_streams >= config.max_streams or situation.free_slots < 1:
            return RefusalCode.SLOTS, f"{situation.num_streams} streams are open and no slot is free"
        if situation.free_pages < situation.pages_needed and not config.allow_recompute:
            pages = f"{situation.pages_needed} pages are needed and {situation.free_pages} free"
            return RefusalCode.MEMORY, f"no memory for the flow's state: {pages}"
        if situation.num_streams == 0:
            return None
        within = _REOPEN if self._is_closed else 1.0
        needed_ms = _SLACK_MARGIN * self._work_ahead_ms(situation) / within
        if situation.min_slack_ms < needed_ms:
            slack = f"has {situation.min_slack_ms:.0f} ms left where {needed_ms:.0f} ms are needed"
            return RefusalCode.STARVING, f"a listener would run dry: the most urgent stream {slack}"
        low_ms = self._config.guard_ms / (1.0 if self._is_closed else 2.0)
        if situation.measured_slack_ms < low_ms:
            slack = f"come with {situation.measured_slack_ms:.0f} ms left where {low_ms:.0f} ms should be"
            return RefusalCode.STARVING, f"listeners run dry: pieces {slack}"
        max_first_audio_ms = within * (config.first_audio_target_ms + config.queue_ms)
        if first_audio_ms > max_first_audio_ms:
            limit = f"of at most {max_first_audio_ms:.0f} ms"
            return RefusalCode.FIRST_AUDIO, f"first audio would come after {first_audio_ms:.0f} ms instead {limit}"
        if utilisation > within * config.max_utilisation:
            limit = f"at most {100 * within * config.max_utilisation:.0f} % may be"
            return RefusalCode.UTILISATION, f"{100 * utilisation:.0f} % of the device would be needed where {limit}"
        return None

    def _work_ahead_ms(self, situation: Situation) -> float:
        """What those without a first piece, the newcomer among them, can put before a started stream at worst."""
        prefill_ms = self._costs.prefill_ms(situation.pending_positions + situation.prefill_positions)
        return prefill_ms + self._first_calls_ms(situation)


def _retry_after_s(until_end_ms: float) -> int:
    """Seconds, rounded up; 1 when nothing is known."""
    if not math.isfinite(until_end_ms):
        return 1
    return min(_MAX_RETRY_AFTER_S, max(1, math.ceil(until_end_ms / 1000.0)))
