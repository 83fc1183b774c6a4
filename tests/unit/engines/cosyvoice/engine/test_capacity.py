"""Costs as lines, and which new requests fit."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cosyvoice.engine.capacity import (
    MAX_FREE_CAPACITY,
    TYPICAL_POSITIONS,
    Capacity,
    EngineSnapshot,
    RefusalCode,
    StageCost,
    StageCosts,
    weighted_frames,
)
from cc_tts.engines.cosyvoice.engine.config import EngineConfig

pytestmark = pytest.mark.unit

Costs = Callable[[int], float]
costs_ms = st.floats(0.01, 10_000.0)


def learnt(cost_ms: Costs, *sizes: int) -> StageCost:
    """A cost that was observed often enough at these sizes."""
    cost = StageCost(5.0)
    for _ in range(60):
        for size in sizes:
            cost.observe(size, cost_ms(size))
    return cost


def test_what_is_not_known_is_the_default_and_no_work_costs_nothing() -> None:
    costs = StageCosts()
    assert [costs.prefill.ms(300), costs.lm_step.ms(17), costs.flow.ms(50), costs.vocoder.ms(50)] == [10, 5, 30, 10]
    assert (costs.call_ms(0, 0, 0), costs.call_ms(1, 50, 0)) == (0.0, 40.0)
    assert StageCost(1.0, 0.5).ms(8) == 5.0


def test_a_line_is_learnt_between_and_beyond_what_was_seen() -> None:
    cost = learnt(lambda size: 10.0 + 0.5 * size, 4, 16, 64)
    assert [cost.ms(size) for size in (1, 4, 32, 64, 1000)] == pytest.approx([10.5, 12.0, 26.0, 42.0, 510.0], rel=0.01)


def test_what_is_not_a_line_is_met_within_a_few_percent() -> None:
    """A decode step of an H200: 1.1 ms for one row, 1.6 for 64, 3 for 256."""
    true: Costs = lambda rows: 1.1 + 0.5 * rows / 64 if rows <= 64 else 1.6 + 1.4 * (rows - 64) / 192  # noqa: E731
    cost = learnt(true, 1, 2, 4, 8, 16, 32, 64, 128, 256)
    for rows in range(1, 257):
        assert cost.ms(rows) == pytest.approx(true(rows), rel=0.08)


@pytest.mark.parametrize(
    ("seen", "size", "expected_ms"),
    [
        ({8: 20.0}, 8, 20.0),
        ({8: 20.0}, 16, 30.0),  # one size alone: half of it is taken to be fixed
        ({8: 20.0, 16: 12.0}, 1000, 14.1),  # more work never costs less
        ({8: 10.0, 16: 40.0}, 1, 1.4),  # a line that would begin below zero begins at zero
    ],
)
def test_a_line_neither_falls_nor_begins_below_zero(seen: dict[int, float], size: int, expected_ms: float) -> None:
    assert learnt(seen.__getitem__, *seen).ms(size) == pytest.approx(expected_ms, rel=0.05)


def test_a_spike_counts_as_four_times_what_was_expected() -> None:
    cost = learnt(lambda _: 10.0, 8)
    cost.observe(8, 5000.0)
    assert cost.ms(8) == pytest.approx(16.0)


def test_the_first_call_counts_as_it_is() -> None:
    """A CPU takes a hundred times the default, and measures one call."""
    cost = StageCost(30.0)
    cost.observe(8, 3000.0)
    assert cost.ms(8) == pytest.approx(3000.0)


def test_a_longer_first_piece_is_counted_in_first_audio() -> None:
    short, long = (capacity(first_hop_tokens=hop).first_audio_ms(IDLE) for hop in (12, 25))
    assert long - short == pytest.approx(1.15 * 12 * 2.0), "12 steps more of 2 ms, with the margin"


def test_a_lasting_rise_is_learnt_in_a_dozen_observations() -> None:
    cost = learnt(lambda _: 1.0, 8)
    for _ in range(12):
        cost.observe(8, 10.0)
    assert 8.0 < cost.ms(8) <= 10.0


def test_a_cost_of_nothing_can_rise_again() -> None:
    cost = learnt(lambda _: 0.0, 50)
    assert 0.0 < cost.ms(50) < 0.01
    for _ in range(40):
        cost.observe(50, 5.0)
    assert cost.ms(50) == pytest.approx(5.0, rel=0.01)


def test_a_flow_call_costs_more_for_more_keys() -> None:
    assert weighted_frames(50, 1160) == pytest.approx(100.0)
    costs = StageCosts(flow=StageCost(0.0, 0.1), vocoder=StageCost(4.0))
    assert costs.call_ms(2, 25, 1160) == pytest.approx(10.0 + 4.0)
    assert costs.calls_ms(70, 25, 0, max_rows=32) == pytest.approx(2 * (80.0 + 4.0) + 15.0 + 4.0)


@given(st.lists(st.tuples(st.integers(1, 4096), costs_ms), max_size=12), st.integers(0, 4096), st.integers(0, 4096))
def test_more_work_is_never_predicted_to_cost_less(seen: list[tuple[int, float]], size: int, more: int) -> None:
    cost = StageCost(5.0)
    for size_seen, cost_ms in seen:
        cost.observe(size_seen, cost_ms)
    assert 0.0 <= cost.ms(size) <= (1.0 + 1e-9) * cost.ms(size + more)


@given(st.integers(1, 4096), st.lists(costs_ms, min_size=1, max_size=20))
def test_each_observation_moves_the_prediction_towards_it_and_not_far(size: int, seen_ms: list[float]) -> None:
    cost = StageCost(5.0)
    cost.observe(size, 5.0)
    for cost_ms in seen_ms:
        before_ms = cost.ms(size)
        cost.observe(size, cost_ms)
        after_ms = cost.ms(size)
        assert min(before_ms, cost_ms) * (1 - 1e-9) <= after_ms <= max(before_ms, cost_ms) * (1 + 1e-9)
        assert 0.8 * before_ms * (1 - 1e-9) <= after_ms <= 1.6 * before_ms * (1 + 1e-9)


# --- whether a new request fits

AT_BEST_MS: Final = 1.15 * 86.0
"""On an idle device: 10 for a prefill, 28 steps of 2, a call of 20, whatever the size."""


def constant_costs(slowness: float = 1.0) -> StageCosts:
    return StageCosts(
        prefill=StageCost(slowness * 10.0),
        lm_step=StageCost(slowness * 2.0),
        flow=StageCost(slowness * 15.0),
        vocoder=StageCost(slowness * 5.0),
    )


def capacity(*, target_ms: float = 500.0, slowness: float = 1.0, **config: Any) -> Capacity:
    limits = {"max_streams": 64, "guard_ms": 0.0, **config}
    return Capacity(EngineConfig(first_audio_target_ms=target_ms, **limits), constant_costs(slowness))


def snapshot(**changed: Any) -> EngineSnapshot:
    usual = {
        "num_streams": 8,
        "num_first_pending": 0,
        "spare_ms": 800.0,
        "num_free_pages": 10_000,
        "pages_each": 5,
        "num_lm_rows": 8,
    }
    return EngineSnapshot(**{**usual, **changed})


IDLE: Final = snapshot(num_streams=0, num_lm_rows=0, spare_ms=math.inf)


def with_more(one: EngineSnapshot, num_more: int) -> EngineSnapshot:
    """The same after so many new requests were taken, none of whom has heard anything."""
    return dataclasses.replace(
        one,
        num_streams=one.num_streams + num_more,
        num_first_pending=one.num_first_pending + num_more,
        num_lm_rows=one.num_lm_rows + num_more,
        pending_positions=one.pending_positions + TYPICAL_POSITIONS * num_more,
    )


def test_an_idle_device_takes_a_stream_and_says_when_it_will_be_heard() -> None:
    asked = capacity()
    assert asked.admit(IDLE) is None
    assert asked.first_audio_ms(IDLE) == pytest.approx(AT_BEST_MS)
    # 25 steps of 2 ms for a second, a call of 20 ms for two
    assert asked.utilisation(1) == pytest.approx(0.050 + 0.010)
    assert asked.utilisation(0) == 0.0


REFUSALS: dict[str, tuple[Capacity, EngineSnapshot, RefusalCode | None, str]] = {
    "all is well": (capacity(), snapshot(), None, ""),
    "no slot": (capacity(max_streams=8), snapshot(), RefusalCode.SLOTS, "8 streams are open and no slot is free"),
    "no pages": (capacity(), snapshot(num_free_pages=4), RefusalCode.MEMORY, "5 pages are needed and 4 free"),
    "just enough pages": (capacity(), snapshot(num_free_pages=5), None, ""),
    "pages are owed to those who have not begun": (
        capacity(),
        snapshot(num_free_pages=9, num_first_pending=1),
        RefusalCode.MEMORY,
        "no memory for the flow's state",
    ),
    "too slow to begin": (capacity(target_ms=100.0), snapshot(), RefusalCode.FIRST_AUDIO, "instead of at most 100 ms"),
    "the device has no time left": (
        capacity(target_ms=9000.0, slowness=12.0),
        snapshot(spare_ms=9000.0),
        RefusalCode.UTILISATION,
        "% of the device would be needed where at most 90 % may be",
    ),
    "behind a beginning half of the guard would not be left": (
        capacity(guard_ms=60.0),
        snapshot(spare_ms=-1.0),
        RefusalCode.STARVING,
        "would come with 29 ms left where 30 ms should be",
    ),
    "just enough time": (capacity(guard_ms=60.0), snapshot(spare_ms=1.0), None, ""),
    "lately half of the guard was not left": (
        capacity(guard_ms=60.0),
        snapshot(measured_slack_ms=29.0),
        RefusalCode.STARVING,
        "would come with 29 ms left where 30 ms should be",
    ),
    "just enough was left": (capacity(guard_ms=60.0), snapshot(measured_slack_ms=31.0), None, ""),
    "somebody has run dry, but nobody listens now": (
        capacity(guard_ms=60.0),
        dataclasses.replace(IDLE, measured_slack_ms=-5.0),
        None,
        "",
    ),
    "nobody listens yet": (capacity(), snapshot(num_first_pending=8, spare_ms=math.inf), None, ""),
    "a device that is too slow, but idle": (capacity(target_ms=1.0), IDLE, None, ""),
    "a device with no share to give, but idle": (capacity(slowness=100.0), IDLE, None, ""),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_who_is_refused_and_why(name: str) -> None:
    asked, state, code, reason = REFUSALS[name]
    refusal = asked.refusal(state)
    assert (refusal.code if refusal else None) is code
    assert reason in (refusal.reason if refusal else "")


def test_codes_are_a_closed_set_of_labels() -> None:
    assert [code.value for code in RefusalCode] == ["slots", "memory", "first_audio", "utilisation", "starving"]


def test_what_closed_opens_a_little_lower() -> None:
    asked = capacity(target_ms=108.0)  # 0.9 of it is less than the best
    best, late = snapshot(num_streams=1, num_first_pending=1), snapshot(num_streams=33, num_first_pending=33)
    asked_in_turn = [best, late, best, IDLE, best]
    assert [asked.admit(state) is None for state in asked_in_turn] == [True, False, False, True, True]


def test_questions_and_want_of_anything_but_time_close_nothing() -> None:
    asked = capacity(target_ms=108.0, max_streams=40)
    best = snapshot(num_streams=1, num_first_pending=1)
    assert asked.free_capacity(snapshot(num_streams=33, num_first_pending=33)) == 0
    for state in (snapshot(num_streams=40), snapshot(num_free_pages=0), snapshot(spare_ms=0.0)):
        assert asked.admit(state) is not None
    assert asked.admit(best) is None


@pytest.mark.parametrize(
    ("next_end_in_ms", "retry_after_s"),
    [(math.inf, 1), (0, 1), (1, 1), (1001, 2), (8000, 8), (1e9, 60)],
)
def test_when_to_try_again(next_end_in_ms: float, retry_after_s: int) -> None:
    assert snapshot(next_end_in_ms=next_end_in_ms).retry_after_s == retry_after_s


def test_a_burst_is_taken_until_the_last_would_be_heard_too_late() -> None:
    asked = Capacity(EngineConfig(max_streams=64), costs_of_frames())
    state = IDLE
    while (refusal := asked.admit(state)) is None:
        assert asked.first_audio_ms(state) <= 300.0
        state = with_more(state, 1)
    assert 5 <= state.num_streams <= 30
    assert refusal.code in (RefusalCode.FIRST_AUDIO, RefusalCode.UTILISATION)


def costs_of_frames() -> StageCosts:
    costs = constant_costs()
    costs.flow = StageCost(0.0, 10.0 / weighted_frames(56, 500))
    return costs


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 60))
def test_more_load_never_shortens_the_wait(streams: int, pending: int, more: int) -> None:
    asked = capacity()
    now = snapshot(num_streams=streams + 60, num_first_pending=pending)
    assert asked.first_audio_ms(with_more(now, more)) >= asked.first_audio_ms(now) - 1e-9
    # a quarter of the streams is rounded up to rows
    assert asked.utilisation(now.num_streams + more) >= asked.utilisation(now.num_streams) - 0.005


@pytest.mark.parametrize(
    ("config", "state", "expected"),
    [
        ({}, IDLE, None),
        ({"slowness": 0.01, "max_streams": 200}, snapshot(num_streams=1), MAX_FREE_CAPACITY),
        ({"slowness": 0.01, "max_streams": 7}, snapshot(num_streams=3), 4),
        ({"slowness": 0.01, "max_streams": 7}, snapshot(num_streams=7), 0),
        ({"slowness": 0.01}, snapshot(num_streams=1, num_free_pages=27), 5),
        ({"slowness": 0.01}, snapshot(num_streams=4, num_first_pending=2, num_free_pages=27), 3),
        ({}, snapshot(spare_ms=100.0), None),
        ({"slowness": 3.0}, snapshot(), None),
    ],
)
def test_the_free_capacity_is_how_many_would_be_taken(
    config: dict[str, Any], state: EngineSnapshot, expected: int | None
) -> None:
    asked = capacity(**config)
    num_taken = 0
    while num_taken < MAX_FREE_CAPACITY and asked.admit(with_more(state, num_taken)) is None:
        num_taken += 1
    assert capacity(**config).free_capacity(state) == num_taken
    assert expected is None or num_taken == expected
