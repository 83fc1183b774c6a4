import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cosyvoice2.engine.costs import CostRow, DefaultCosts, Stage, StageCosts

pytestmark = pytest.mark.unit

DEFAULTS = DefaultCosts(prefill_ms=4.0, lm_step_ms=2.0, flow_ms=16.0, vocoder_ms=8.0)
Ask = Callable[[StageCosts], float]

counts = st.integers(1, 4096)
costs_ms = st.floats(0.01, 10_000.0)


def row(stage: Stage, rows: float, size: float, cost_ms: float) -> CostRow:
    return CostRow(stage=stage.value, rows=rows, size=size, cost_ms=cost_ms)


def lm_costs(*known: tuple[int, float]) -> StageCosts:
    return StageCosts.from_table((row(Stage.LM_STEP, rows, 1, cost_ms) for rows, cost_ms in known), DEFAULTS)


@pytest.mark.parametrize(
    ("ask", "expected_ms"),
    [
        (lambda costs: costs.prefill_ms(300), 4.0),
        (lambda costs: costs.lm_step_ms(17), 2.0),
        (lambda costs: costs.flow_ms(3, 150, 400), 16.0),
        (lambda costs: costs.vocoder_ms(3, 150), 8.0),
        (lambda costs: costs.prefill_ms(0), 0.0),
        (lambda costs: costs.lm_step_ms(0), 0.0),
        (lambda costs: costs.flow_ms(0, 0, 0), 0.0),
        (lambda costs: costs.vocoder_ms(0, 0), 0.0),
    ],
)
def test_what_is_not_known_is_the_default_and_no_work_costs_nothing(ask: Ask, expected_ms: float) -> None:
    assert ask(StageCosts(DEFAULTS)) == expected_ms


@pytest.mark.parametrize(
    ("known", "rows", "expected_ms"),
    [
        ([(1, 1.0), (64, 1.6)], 1, 1.0),
        ([(1, 1.0), (64, 1.6)], 64, 1.6),
        ([(1, 1.0), (64, 1.6)], 128, 3.2),  # beyond: in proportion
        ([(4, 8.0)], 1, 4.0),  # below: the root of the proportion
        ([(4, 8.0)], 16, 32.0),
        ([(1, 10.0), (4, 40.0)], 2, 20.0),  # between: as the neighbours allow
        ([(1, 10.0), (4, 20.0)], 2, 10.0 * math.sqrt(2)),
        ([(1, 10.0), (4, 10.0)], 2, 10.0),
        ([(8, 20.0), (16, 12.0)], 16, 20.0),  # more work never costs less
    ],
)
def test_between_and_beyond_the_known_tiers(known: list[tuple[int, float]], rows: int, expected_ms: float) -> None:
    assert lm_costs(*known).lm_step_ms(rows) == pytest.approx(expected_ms)


def test_observations_are_averaged_into_their_tier() -> None:
    costs = lm_costs((8, 10.0))
    costs.observe_lm_step(8, 20.0)
    assert costs.lm_step_ms(8) == pytest.approx(12.0)
    costs.observe_lm_step(8, 2.0)
    assert costs.lm_step_ms(8) == pytest.approx(10.0)
    for _ in range(40):
        costs.observe_lm_step(8, 30.0)
    assert costs.lm_step_ms(8) == pytest.approx(30.0, rel=0.01)


def test_a_spike_counts_as_four_times_what_was_expected() -> None:
    costs = lm_costs((8, 10.0))
    costs.observe_lm_step(8, 5000.0)
    assert costs.lm_step_ms(8) == pytest.approx(16.0)
    fresh = StageCosts(DEFAULTS)
    fresh.observe_flow(1, 56, 0, 60_000.0)
    assert fresh.flow_ms(1, 56, 0) == pytest.approx(1.6 * 16.0)


def test_a_lasting_rise_is_learnt_in_a_dozen_observations() -> None:
    costs = lm_costs((8, 1.0))
    for _ in range(12):
        costs.observe_lm_step(8, 10.0)
    assert 8.0 < costs.lm_step_ms(8) <= 10.0


def test_a_cost_of_nothing_can_rise_again() -> None:
    costs = StageCosts(DEFAULTS)
    for _ in range(200):
        costs.observe_vocoder(1, 50, 0.0)
    low = costs.vocoder_ms(1, 50)
    for _ in range(40):
        costs.observe_vocoder(1, 50, 5.0)
    assert 0.0 < low < 0.01
    assert costs.vocoder_ms(1, 50) == pytest.approx(5.0, rel=0.01)


def test_stages_learn_apart() -> None:
    costs = StageCosts(DEFAULTS)
    costs.observe_prefill(200, 5.0)
    costs.observe_vocoder(1, 50, 9.0)
    assert (costs.lm_step_ms(4), costs.flow_ms(1, 50, 0)) == (2.0, 16.0)
    assert costs.prefill_ms(200) == pytest.approx(4.2)
    assert costs.vocoder_ms(1, 50) == pytest.approx(8.2)


def test_a_flow_call_costs_more_for_more_keys() -> None:
    costs = StageCosts.from_table([row(Stage.FLOW, 1, 64, 10.0)], DEFAULTS)
    assert costs.flow_ms(1, 64, 0) == pytest.approx(10.0)
    assert costs.flow_ms(1, 64, 1160) == pytest.approx(20.0)


def test_many_rows_of_the_same_frames_cost_little_more_than_their_frames() -> None:
    costs = StageCosts.from_table([row(Stage.VOCODER, 1, 64, 4.0)], DEFAULTS)
    assert costs.vocoder_ms(1, 1024) == pytest.approx(64.0)
    assert costs.vocoder_ms(16, 1024) == pytest.approx(128.0)


def test_a_table_survives_json() -> None:
    costs = StageCosts(DEFAULTS)
    costs.observe_prefill(300, 6.0)
    for rows in (1, 3, 40):
        costs.observe_lm_step(rows, 1.0 + rows / 10)
        costs.observe_flow(rows, 56 * rows, 300, 10.0 + rows)
    table = json.loads(json.dumps(costs.as_table()))
    again = StageCosts.from_table(table, DEFAULTS)
    assert len(table) == 7
    assert again.as_table() == table
    assert again.flow_ms(3, 168, 300) == pytest.approx(costs.flow_ms(3, 168, 300), rel=1e-3)
    assert StageCosts.from_table([]).as_table() == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda costs: costs.lm_step_ms(-1),
        lambda costs: costs.flow_ms(1, -1, 0),
        lambda costs: costs.flow_ms(1, 1, -1),
        lambda costs: costs.prefill_ms(2**41),
        lambda costs: costs.observe_lm_step(1, -0.5),
        lambda costs: costs.observe_lm_step(1, math.nan),
        lambda costs: costs.observe_lm_step(1, math.inf),
        lambda costs: StageCosts(DefaultCosts(flow_ms=math.inf)),
        lambda costs: StageCosts.from_table([CostRow(stage="lunch", rows=1, size=1, cost_ms=1.0)]),
        lambda costs: StageCosts.from_table([row(Stage.FLOW, 0, 1, 1.0)]),
        lambda costs: StageCosts.from_table([row(Stage.FLOW, 1, math.nan, 1.0)]),
    ],
)
def test_what_is_no_size_and_no_cost_is_refused(wrong: Callable[[StageCosts], object]) -> None:
    costs = StageCosts(DEFAULTS)
    with pytest.raises(ValueError):
        wrong(costs)
    assert costs.as_table() == []


seen_calls = st.lists(st.tuples(counts, counts, st.integers(0, 4096), costs_ms), max_size=12)


@given(seen_calls, counts, counts, st.integers(0, 4096), st.tuples(*[st.integers(0, 4096)] * 3))
def test_more_work_is_never_predicted_to_cost_less(
    seen: list[tuple[int, int, int, float]], rows: int, frames: int, keys: int, more: tuple[int, int, int]
) -> None:
    costs = StageCosts(DEFAULTS)
    for num_rows, num_frames, num_keys, cost_ms in seen:
        costs.observe_flow(num_rows, num_rows * num_frames, num_keys, cost_ms)
        costs.observe_vocoder(num_rows, num_rows * num_frames, cost_ms)
        costs.observe_lm_step(num_rows, cost_ms)
        costs.observe_prefill(num_frames, cost_ms)
    more_rows, more_frames, more_keys = rows + more[0], frames + more[1], keys + more[2]
    within = 1.0 + 1e-9
    assert costs.lm_step_ms(rows) <= within * costs.lm_step_ms(more_rows)
    assert costs.prefill_ms(frames) <= within * costs.prefill_ms(more_frames)
    assert costs.flow_ms(rows, frames, keys) <= within * costs.flow_ms(more_rows, more_frames, more_keys)
    assert costs.vocoder_ms(rows, frames) <= within * costs.vocoder_ms(more_rows, more_frames)


@given(counts, st.lists(costs_ms, min_size=1, max_size=20))
def test_each_observation_moves_the_prediction_towards_it_and_not_far(rows: int, seen_ms: list[float]) -> None:
    costs = StageCosts(DEFAULTS)
    for cost_ms in seen_ms:
        before_ms = costs.lm_step_ms(rows)
        costs.observe_lm_step(rows, cost_ms)
        after_ms = costs.lm_step_ms(rows)
        assert min(before_ms, cost_ms) * (1 - 1e-9) <= after_ms <= max(before_ms, cost_ms) * (1 + 1e-9)
        assert 0.8 * before_ms * (1 - 1e-9) <= after_ms <= 1.6 * before_ms * (1 + 1e-9)
