"""Callers who listen in real time: the loop of the phone bench, on one thread with the engine and on one clock."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.engine.clock import BenchClock
from bench.engine.front import sized_text
from bench.engine.model import VOICE
from bench.report import percentiles
from cc_tts.clock import ms_between
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.engine_core import StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineOverloaded
from lab.server_under_test import Json

REPORT_MS: Final = 100.0
IDLE_MS: Final = 0.5
RETRY_MS: Final = 1000.0
PCM_BYTES_PER_MS: Final = 48.0
JITTER_BUFFER_MS: Final = 60.0


@dataclass(slots=True)
class Listener:
    """Plays from the first piece on; when it has nothing, it waits and goes on where it stopped."""

    opened_ms: float
    hold_ms: float = 1000.0
    """What its playout takes ahead of what it plays."""
    first_ms: float | None = None
    received_ms: float = 0.0
    dry_ms: float = -math.inf
    """The instant at which all that was received is played."""
    worst_deficit_ms: float = 0.0
    """The most by which the audio received was less than the time since the first piece (engine-performance §5.4)."""
    slacks_ms: list[float] = field(default_factory=list)
    """Of every piece but the first: what was left to be played when it came; negative when there was silence before."""
    is_done: bool = False

    def got(self, now_ms: float, audio_ms: float) -> None:
        if self.first_ms is None:
            self.first_ms = now_ms
        else:
            self.slacks_ms.append(self.dry_ms - now_ms)
            self.worst_deficit_ms = max(self.worst_deficit_ms, now_ms - self.first_ms - self.received_ms)
        self.received_ms += audio_ms
        self.dry_ms = max(self.dry_ms, now_ms) + audio_ms

    def ended(self) -> None:
        self.is_done = True

    def first_audio_ms(self) -> float | None:
        return None if self.first_ms is None else self.first_ms - self.opened_ms

    def waited_ms(self, now_ms: float) -> float:
        """How much the audio received is less than the time since the first piece, for one that still waits; 0 else."""
        if self.first_ms is None or self.is_done:
            return 0.0
        return max(0.0, now_ms - self.first_ms - self.received_ms)

    def played_ms(self, now_ms: float) -> float:
        """Audio that has been heard."""
        return self.received_ms - max(0.0, self.dry_ms - now_ms)

    def report(self, now_ms: float) -> tuple[float, float]:
        """What the playout has taken, and how much of that is not played yet, ms."""
        played_ms = self.played_ms(now_ms)
        taken_ms = min(self.received_ms, played_ms + self.hold_ms)
        return taken_ms, taken_ms - played_ms

    def has_heard_all(self, now_ms: float) -> bool:
        return self.is_done and self.dry_ms <= now_ms


@dataclass(slots=True)
class Caller:
    """Somebody who wants to hear sentences."""

    next_ms: float
    """When the next sentence is asked for."""
    speaks_on: bool = True
    """Whether another one follows when one has been heard."""


@dataclass(slots=True)
class Tally:
    """What was seen after the warm-up."""

    heard: list[Listener] = field(default_factory=list)
    num_refused: int = 0
    num_failed: int = 0
    busy_ms: float = 0.0
    wall_ms: float = 0.0
    steps_ms: list[float] = field(default_factory=list)
    audio_ms: float = 0.0
    max_pages: int = 0
    unheard: list[float] = field(default_factory=list)
    """How long those who were waiting for a first piece at the end had waited, ms."""


class PhoneLoad:
    """Drives ``engine`` for callers and looks at it from their side."""

    def __init__(
        self, engine: Engine, clock: BenchClock, *, seed: int, seconds: tuple[float, float] = (2.0, 10.0)
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._begin_ns = clock.now_ns()
        self._draw = random.Random(seed)
        self._seconds = seconds
        self._next_id = 0
        self._open: dict[int, tuple[Listener, Caller]] = {}

    def run(
        self,
        callers: Sequence[Caller],
        *,
        for_ms: float,
        warm_up_ms: float,
        num_pages_used: Callable[[], int],
    ) -> Tally:
        """Serve ``callers`` for so long; nothing counts before ``warm_up_ms`` is over."""
        tally = Tally()
        waiting = sorted(callers, key=lambda each: each.next_ms, reverse=True)
        next_report_ms = 0.0
        while (now_ms := self._now_ms()) < for_ms:
            is_counted = now_ms >= warm_up_ms
            while waiting and waiting[-1].next_ms <= now_ms:
                caller = waiting.pop()
                if not self._ask(caller, now_ms):
                    tally.num_refused += is_counted
                    if caller.speaks_on:
                        _put(waiting, caller)
            if now_ms >= next_report_ms:
                next_report_ms = now_ms + REPORT_MS / 4
                for caller in self._look_round(now_ms, tally, warm_up_ms):
                    _put(waiting, caller)
            if not self._engine.has_work:
                self._clock.rest(IDLE_MS)
                continue
            step_ms = self._step(tally, is_counted=is_counted)
            if is_counted:
                tally.busy_ms += step_ms
                tally.steps_ms.append(step_ms)
                tally.max_pages = max(tally.max_pages, num_pages_used())
        self._finish(tally, warm_up_ms)
        return tally

    def _finish(self, tally: Tally, warm_up_ms: float) -> None:
        now_ms = self._now_ms()
        tally.wall_ms = now_ms - warm_up_ms
        for stream_id, (listener, _) in self._open.items():
            self._engine.cancel(stream_id)
            if listener.opened_ms < warm_up_ms:
                continue
            if listener.first_ms is None:
                tally.unheard.append(now_ms - listener.opened_ms)
            else:
                listener.worst_deficit_ms = max(listener.worst_deficit_ms, listener.waited_ms(now_ms))
                tally.heard.append(listener)
        self._open.clear()

    def _ask(self, caller: Caller, now_ms: float) -> bool:
        stream_id = self._next_id
        self._next_id += 1
        try:
            self._engine.open(StreamRequest(stream_id=stream_id, voice=VOICE))
        except EngineOverloaded as refusal:
            caller.next_ms = now_ms + (1000.0 * refusal.retry_after_s if refusal.retry_after_s else RETRY_MS)
            return False
        self._engine.push(stream_id, sized_text(self._draw.uniform(*self._seconds), self._draw.randrange(1000)), 0)
        self._engine.end(stream_id)
        self._open[stream_id] = (Listener(opened_ms=caller.next_ms), caller)
        return True

    def _step(self, tally: Tally, *, is_counted: bool) -> float:
        begin_ns = self._clock.now_ns()
        outs = self._engine.step()
        now_ms = self._now_ms()
        for out in outs:
            listener, _ = self._open[out.stream_id]
            if isinstance(out, SpeechChunk):
                audio_ms = len(out.data) / PCM_BYTES_PER_MS
                listener.got(now_ms, audio_ms)
                tally.audio_ms += audio_ms * is_counted
            else:
                listener.ended()
                tally.num_failed += out.error is not None
        return ms_between(begin_ns, self._clock.now_ns())

    def _look_round(self, now_ms: float, tally: Tally, warm_up_ms: float) -> Iterator[Caller]:
        """Report for every listener; those who have heard all are done, and perhaps ask again."""
        for stream_id, (listener, caller) in list(self._open.items()):
            if listener.has_heard_all(now_ms):
                del self._open[stream_id]
                if listener.opened_ms >= warm_up_ms and listener.first_ms is not None:
                    tally.heard.append(listener)
                if caller.speaks_on:
                    caller.next_ms = max(now_ms, listener.dry_ms)
                    yield caller
            elif not listener.is_done and listener.first_ms is not None:
                self._engine.taken(stream_id, *listener.report(now_ms))

    def _now_ms(self) -> float:
        return ms_between(self._begin_ns, self._clock.now_ns())


def _put(waiting: list[Caller], caller: Caller) -> None:
    waiting.append(caller)
    waiting.sort(key=lambda each: each.next_ms, reverse=True)


def figures(tally: Tally) -> Json:
    """What a load was like for the callers and for the device."""
    heard = tally.heard
    deficits = [listener.worst_deficit_ms for listener in heard]
    slacks = [slack for listener in heard for slack in listener.slacks_ms]
    first = [first_ms for listener in heard if (first_ms := listener.first_audio_ms()) is not None]
    return {
        "sentences": len(heard),
        "first_audio_ms": percentiles(first),
        "not_heard_at_the_end": percentiles(tally.unheard),
        "underrun_rate": {
            "any": _share(deficits, 0.0),
            "over_20_ms": _share(deficits, 20.0),
            "over_60_ms_jitter_buffer": _share(deficits, JITTER_BUFFER_MS),
            "over_100_ms": _share(deficits, 100.0),
            "over_200_ms": _share(deficits, 200.0),
        },
        "worst_deficit_ms": round(max(deficits, default=0.0), 1),
        "slack_ms": _slack(slacks),
        "refused": tally.num_refused,
        "failed": tally.num_failed,
        "busy_share": round(tally.busy_ms / tally.wall_ms, 3) if tally.wall_ms else 0.0,
        "audio_s_per_s": round(tally.audio_ms / tally.wall_ms, 2) if tally.wall_ms else 0.0,
        "step_ms": percentiles(tally.steps_ms),
        "max_pages": tally.max_pages,
    }


def _share(values: Sequence[float], limit: float) -> float | None:
    return round(sum(value > limit for value in values) / len(values), 4) if values else None


def _slack(slacks: Sequence[float]) -> Json:
    if not slacks:
        return {"n": 0}
    order = sorted(slacks)
    places = {"min": 0, "p1": len(order) // 100, "p50": len(order) // 2}
    return {"n": len(order), **{name: round(order[place], 1) for name, place in places.items()}}
