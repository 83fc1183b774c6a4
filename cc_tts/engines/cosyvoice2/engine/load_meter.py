"""How busy the engine is: the question to admission, and the report to the server. No torch here.

Runs on: the thread that owns the device.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from cc_tts.engines.cosyvoice2.engine.admission import Admission, Decision, Situation
from cc_tts.engines.cosyvoice2.engine.device import Device
from cc_tts.engines.stepped import EngineLoad

PREVIEW_INTERVAL_MS: Final = 50.0
"""Reports in between repeat what was predicted last, unless streams came or went."""
MAX_ROOM: Final = 64
"""The most newcomers that are promised to be taken at once."""
TYPICAL_POSITIONS: Final = 200
"""Of a newcomer in the language model: prompt and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Who is there, as a newcomer finds it."""

    now_ms: float
    num_streams: int
    num_first_pending: int
    spare_ms: float
    """The least time by which a started stream's next piece will be in time; infinite if there is none."""
    measured_slack_ms: float = math.inf
    """What listeners had left when their last pieces came (``SlackWindow``)."""
    num_sequences: int
    num_rows: int = 1
    """Rows that a decode step computes."""
    num_recomputed: int
    """Sequences that run without pages."""
    pending_positions: int
    pages_each: int
    """Pages that a newcomer will take."""
    slots_used: int
    next_end_ms: float = math.inf
    """The instant at which the next stream is done with, as far as can be told."""

    def with_more(self, num_more: int) -> "Crowd":
        """The same with so many newcomers before the one that asks."""
        return replace(
            self,
            num_streams=self.num_streams + num_more,
            num_first_pending=self.num_first_pending + num_more,
            num_sequences=self.num_sequences + num_more,
            pending_positions=self.pending_positions + TYPICAL_POSITIONS * num_more,
        )


class LoadMeter:
    """Asks admission on behalf of newcomers, real ones and possible ones."""

    def __init__(self, device: Device, admission: Admission, *, max_streams: int, max_recomputed: int) -> None:
        self._device = device
        self._admission = admission
        self._max_streams = max_streams
        self._max_recomputed = max_recomputed
        self._last: tuple[float, int, EngineLoad] | None = None

    def decide(self, crowd: Crowd) -> Decision:
        """Whether a newcomer is taken."""
        return self._admission.decide(crowd.now_ms, self._situation(crowd))

    def recent(self, now_ms: float, num_streams: int) -> EngineLoad | None:
        """The last report, if it still holds."""
        if self._last is None:
            return None
        at_ms, num_then, load = self._last
        return load if num_then == num_streams and now_ms - at_ms < PREVIEW_INTERVAL_MS else None

    def report(self, crowd: Crowd, *, num_underruns: int) -> EngineLoad:
        """For the server and its metrics."""
        situation = self._situation(crowd)
        decision = self._admission.preview(crowd.now_ms, situation)
        device = self._device
        load = EngineLoad(
            num_streams=crowd.num_streams,
            first_audio_ms=round(decision.first_audio_ms, 1),
            utilisation=round(self._admission.utilisation(situation, crowd.num_streams), 4),
            room=self._room(crowd, decision),
            refusal=decision.reason,
            retry_after_s=decision.retry_after_s,
            slots_used=crowd.slots_used,
            slots_total=device.num_slots,
            pages_used=device.num_pages - device.num_free_pages,
            pages_total=device.num_pages,
            num_not_finite=device.num_not_finite,
            num_underruns=num_underruns,
        )
        self._last = (crowd.now_ms, crowd.num_streams, load)
        return load

    def _room(self, crowd: Crowd, first: Decision) -> int:
        """How many newcomers at this instant would be taken; each makes it harder for the next."""
        if not first.admit:
            return 0
        low, high = 1, MAX_ROOM
        while low < high:
            middle = (low + high + 1) // 2
            situation = self._situation(crowd.with_more(middle - 1))
            if self._admission.preview(crowd.now_ms, situation).admit:
                low = middle
            else:
                high = middle - 1
        return low

    def _situation(self, crowd: Crowd) -> Situation:
        """What is free is owed first to those who have not begun; some of them, or the newcomer, may run without."""
        each = max(1, crowd.pages_each)
        num_fitting = self._device.num_free_pages // each
        num_without = crowd.num_recomputed + max(0, crowd.num_first_pending - num_fitting)
        free_pages = self._device.num_free_pages - each * crowd.num_first_pending
        if num_without < self._max_recomputed:
            free_pages = max(free_pages, each)
        return Situation(
            num_streams=crowd.num_streams,
            num_first_pending=crowd.num_first_pending,
            min_slack_ms=crowd.spare_ms,
            measured_slack_ms=crowd.measured_slack_ms,
            free_slots=self._max_streams - crowd.num_streams,
            free_pages=free_pages,
            pages_needed=each,
            lm_rows=max(crowd.num_sequences, crowd.num_rows - 1),
            pending_positions=crowd.pending_positions,
            next_end_ms=crowd.next_end_ms,
        )
