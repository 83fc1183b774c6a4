"""Scheduler and admission together: a device in virtual time that keeps listeners supplied and refuses whom it could not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from cc_tts.engines.cosyvoice.engine.capacity import Capacity, EngineSnapshot, RefusalCode, StageCost, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.scheduler import (
    FlowCandidate,
    LmCandidate,
    Scheduler,
)
from cc_tts.media.listener_clock import ListenerClock

pytestmark = pytest.mark.unit

PROMPT_TOKENS: Final = 125
PROMPT_POSITIONS: Final = 150
MAX_AHEAD_MS: Final = 4000.0
GUARD_MS: Final = 60.0


@dataclass
class Spoken:
    """A stream of one sequence on the fake device."""

    opened_ms: float
    num_tokens: int
    clock: ListenerClock
    hop: int = 25
    num_sampled: int = 0
    num_given: int = 0
    num_prefill: int = PROMPT_POSITIONS
    first_audio_ms: float | None = None

    @property
    def num_needed(self) -> int:
        return min(self.num_tokens, self.num_given + self.hop + 3)


@dataclass
class FakeDevice:
    """Costs as a data centre GPU has them, times ``slowness``; the loop is that of the engine, the time its costs."""

    target_ms: float
    slowness: float = 1.0
    is_open_to_all: bool = False
    now_ms: float = 0.0
    streams: dict[int, Spoken] = field(default_factory=dict)
    over: list[Spoken] = field(default_factory=list)
    refusals: list[RefusalCode] = field(default_factory=list)
    underruns_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.costs = StageCosts(
            prefill=StageCost(self.prefill_ms(0), self.slowness * 0.02),
            lm_step=StageCost(self.lm_step_ms(0), self.slowness * 0.01),
            flow=StageCost(self.flow_ms(0), self.slowness * 0.01),
            vocoder=StageCost(self.vocoder_ms(0), self.slowness * 0.003),
        )
        config = EngineConfig(first_audio_target_ms=self.target_ms, max_streams=128, guard_ms=GUARD_MS)
        self.scheduler = Scheduler(config, self.costs)
        self.capacity = Capacity(config, self.costs)

    def lm_step_ms(self, rows: int) -> float:
        return self.slowness * (1.0 + 0.01 * rows)

    def prefill_ms(self, positions: int) -> float:
        return self.slowness * (2.0 + 0.02 * positions)

    def flow_ms(self, frames: int) -> float:
        return self.slowness * (8.0 + 0.01 * frames)

    def vocoder_ms(self, frames: int) -> float:
        return self.slowness * (3.0 + 0.003 * frames)

    def run(self, arrivals: Sequence[tuple[float, int]]) -> "FakeDevice":
        """``arrivals``: when each stream asks to be opened, and its speech tokens."""
        waiting = sorted(arrivals)
        key = 0
        while waiting or self.streams:
            while waiting and waiting[0][0] <= self.now_ms:
                self.ask(key, *waiting.pop(0))
                key += 1
            before_ms = self.now_ms
            self.step()
            if self.now_ms == before_ms:
                next_ms = [waiting[0][0]] if waiting else []
                self.now_ms = min([*next_ms, self.now_ms + 5.0]) if self.streams else next_ms[0]
        return self

    def ask(self, key: int, asked_ms: float, num_tokens: int) -> None:
        started = [s for s in self.streams.values() if not s.clock.is_first]
        snapshot = EngineSnapshot(
            num_streams=len(self.streams),
            num_first_pending=len(self.streams) - len(started),
            spare_ms=self.scheduler.spare_ms(self.now_ms, self.sampling(), self.ready()),
            num_lm_rows=len(self.sampling()),
            pending_positions=sum(s.num_prefill for s in self.streams.values()),
            num_free_pages=1000,
            pages_each=1,
        )
        refusal = self.capacity.admit(snapshot)
        if refusal is not None and not self.is_open_to_all:
            self.refusals.append(refusal.code)
            return
        clock = ListenerClock(first_audio_target_ms=self.target_ms, guard_ms=GUARD_MS)
        clock.text_came(asked_ms)
        self.streams[key] = Spoken(asked_ms, num_tokens, clock)

    def sampling(self) -> list[LmCandidate]:
        return [
            LmCandidate(
                key=key,
                deadline_ms=s.clock.deadline_ms,
                num_sampled=s.num_sampled,
                num_needed=s.num_needed,
                is_first=s.clock.is_first,
                num_prefill=s.num_prefill,
            )
            for key, s in self.streams.items()
            if s.num_sampled < s.num_tokens and s.clock.left_ms(self.now_ms) < MAX_AHEAD_MS
        ]

    def ready(self) -> list[FlowCandidate]:
        return [
            FlowCandidate(
                key=key,
                deadline_ms=s.clock.deadline_ms,
                num_frames=2 * (s.num_needed - s.num_given),
                num_keys=0,
                is_first=s.clock.is_first,
            )
            for key, s in self.streams.items()
            if s.num_sampled >= s.num_needed
        ]

    def step(self) -> None:
        plan = self.scheduler.plan_lm(self.now_ms, self.sampling(), self.ready())
        if plan.prefill:
            positions = sum(self.streams[key].num_prefill for key in plan.prefill)
            self.pass_time(self.prefill_ms(positions), self.costs.prefill.observe, positions)
        for key in plan.prefill:
            self.streams[key].num_prefill = 0
        for _ in range(plan.num_steps):
            rows = len(plan.decode)
            self.pass_time(self.lm_step_ms(rows), self.costs.lm_step.observe, rows)
        for key, until in plan.decode.items():
            self.streams[key].num_sampled = min(until, self.streams[key].num_tokens)
        ready = {c.key: c for c in self.ready()}
        chosen = self.scheduler.plan_flow(self.now_ms, list(ready.values()), self.sampling())
        if chosen:
            rows, frames = len(chosen), len(chosen) * max(ready[key].num_frames for key in chosen)
            self.pass_time(self.flow_ms(frames), self.costs.flow.observe, frames)
            self.pass_time(self.vocoder_ms(frames), self.costs.vocoder.observe, frames)
        for key in chosen:
            self.give_out(key, self.streams[key])

    def pass_time(self, cost_ms: float, observe: Callable[..., None], *sizes: int) -> None:
        self.now_ms += cost_ms
        observe(*sizes, cost_ms)

    def give_out(self, key: int, s: Spoken) -> None:
        is_last = s.num_needed == s.num_tokens
        num_new = s.num_tokens - s.num_given if is_last else s.hop
        if s.first_audio_ms is None:
            s.first_audio_ms = self.now_ms - s.opened_ms
        if (underrun_ms := s.clock.sent(self.now_ms, 40.0 * num_new)) > 0.0:
            self.underruns_ms.append(underrun_ms)
        s.num_given += num_new
        if is_last:
            self.over.append(self.streams.pop(key))
            return
        slack_ms = s.clock.deadline_ms - self.now_ms
        behind, num_ready = PROMPT_TOKENS + s.num_given, s.num_sampled - s.num_given
        s.hop = self.scheduler.choose_hop(slack_ms, behind=behind, num_ready=num_ready, num_streams=len(self.streams))

    @property
    def first_audio_ms(self) -> list[float]:
        return [s.first_audio_ms for s in self.over if s.first_audio_ms is not None]


def test_one_stream_hears_its_first_audio_as_soon_as_the_device_can() -> None:
    device = FakeDevice(target_ms=200.0).run([(0.0, 250)])
    at_best_ms = device.prefill_ms(150) + 28 * device.lm_step_ms(1) + device.flow_ms(56) + device.vocoder_ms(56)
    assert device.first_audio_ms == [pytest.approx(at_best_ms)]
    assert device.underruns_ms == []


@pytest.mark.parametrize("num_streams", [8, 64])
@pytest.mark.parametrize("apart_ms", [0.0, 17.0, 150.0], ids=["at once", "close together", "staggered"])
def test_below_capacity_nobody_is_refused_nor_runs_dry(num_streams: int, apart_ms: float) -> None:
    device = FakeDevice(target_ms=450.0).run([(apart_ms * number, 200) for number in range(num_streams)])
    assert device.refusals == []
    assert len(device.over) == num_streams
    assert max(device.first_audio_ms) <= 450.0
    assert device.underruns_ms == []


def test_of_a_burst_those_are_taken_who_can_be_served_in_time() -> None:
    device = FakeDevice(target_ms=200.0).run([(0.0, 150)] * 64)
    assert set(device.refusals) == {RefusalCode.FIRST_AUDIO}
    assert 15 <= len(device.over) <= 60
    assert max(device.first_audio_ms) <= 200.0
    assert device.underruns_ms == []


ABOVE_CAPACITY: Final = [(75.0 * number, 300) for number in range(150)]


def test_above_capacity_streams_are_refused_before_anybody_runs_dry() -> None:
    device = FakeDevice(target_ms=700.0, slowness=4.0).run(ABOVE_CAPACITY)
    assert set(device.refusals) <= {RefusalCode.UTILISATION, RefusalCode.FIRST_AUDIO, RefusalCode.STARVING}
    assert len(device.refusals) >= 30
    assert len(device.over) >= 60
    in_order = sorted(device.first_audio_ms)
    assert in_order[int(0.95 * len(in_order))] <= 1.1 * 700.0  # the target is predicted, not guaranteed
    assert in_order[-1] <= 1.25 * 700.0
    assert device.underruns_ms == []


def test_without_admission_the_same_load_starves_listeners() -> None:
    device = FakeDevice(target_ms=700.0, slowness=4.0, is_open_to_all=True).run(ABOVE_CAPACITY[:100])
    assert len(device.over) == 100
    assert len(device.underruns_ms) > 100
    assert sum(device.underruns_ms) > 10_000.0
