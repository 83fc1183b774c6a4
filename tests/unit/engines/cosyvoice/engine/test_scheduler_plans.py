"""Plans as tables, and what holds for all of them."""

import math
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cosyvoice.engine.capacity import StageCost, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.scheduler import (
    FlowCandidate,
    LmCandidate,
    LmPlan,
    Scheduler,
)

pytestmark = pytest.mark.unit

NOW: Final = 10_000.0
LIMITS: Final = EngineConfig(
    max_prefill_positions=500,
    max_steps_per_round=8,
    run_ahead_tokens=20,
    wait_slack_ms=300.0,
    easy_slack_ms=5000.0,
    max_flow_rows=4,
    max_flow_frames=1000,
)


def constant_costs(*, prefill_ms: float = 5.0, lm_step_ms: float = 2.0, call_ms: float = 20.0) -> StageCosts:
    """All sizes cost the same; flow and vocoder cost ``call_ms`` together."""
    half_ms = call_ms / 2
    return StageCosts(
        prefill=StageCost(prefill_ms),
        lm_step=StageCost(lm_step_ms),
        flow=StageCost(half_ms),
        vocoder=StageCost(half_ms),
    )


def growing_costs(*, flow_ms_per_frame: float = 0.2) -> StageCosts:
    """The flow costs in proportion to its padded frames; the rest is free."""
    free = StageCost(0.0)
    return StageCosts(prefill=free, lm_step=free, flow=StageCost(0.0, flow_ms_per_frame), vocoder=free)


def sampling(
    key: int, slack_ms: float, num_sampled: int, num_needed: int = 28, *, is_first: bool = False, num_prefill: int = 0
) -> LmCandidate:
    return LmCandidate(
        key=key,
        deadline_ms=NOW + slack_ms,
        num_sampled=num_sampled,
        num_needed=num_needed,
        is_first=is_first,
        num_prefill=num_prefill,
    )


def ready(key: int, slack_ms: float, num_frames: int = 50, *, is_first: bool = False) -> FlowCandidate:
    return FlowCandidate(key=key, deadline_ms=NOW + slack_ms, num_frames=num_frames, num_keys=0, is_first=is_first)


LM_PLANS: dict[str, tuple[list[LmCandidate], list[FlowCandidate], LmPlan]] = {
    "nobody": ([], [], LmPlan()),
    "one with time samples a full round": ([sampling(1, 2000, 0)], [], LmPlan(decode={1: 8}, num_steps=8)),
    "the need of a first piece ends the round however far its deadline": (
        [sampling(1, 5000, 26, is_first=True), sampling(2, 2000, 10)],
        [],
        LmPlan(decode={1: 28, 2: 12}, num_steps=2),
    ),
    "any other need does not": (
        [sampling(1, 100, 27), sampling(2, 2000, 10)],
        [],
        LmPlan(decode={1: 35, 2: 18}, num_steps=8),
    ),
    "ahead of its need up to the limit": ([sampling(1, 1000, 45)], [], LmPlan(decode={1: 48}, num_steps=3)),
    "at the limit it yields": ([sampling(1, 1000, 48)], [], LmPlan()),
    "those that sample ahead take part": (
        [sampling(1, 900, 30), sampling(2, 800, 40), *(sampling(key, 1000, 0) for key in (3, 4, 5))],
        [],
        LmPlan(decode={1: 38, 3: 8, 4: 8, 5: 8, 2: 48}, num_steps=8),
    ),
    "newcomers draw in the round of their prefill": (
        [sampling(1, 200, 0, is_first=True, num_prefill=300), sampling(2, 1000, 10)],
        [],
        LmPlan(prefill=(1,), decode={1: 8, 2: 18}, num_steps=8),
    ),
    "prefills are bounded, the shorter may slip through": (
        [
            sampling(key, key, 0, is_first=True, num_prefill=positions)
            for key, positions in ((1, 300), (2, 300), (3, 150))
        ],
        [],
        LmPlan(prefill=(1, 3), decode={1: 8, 3: 8}, num_steps=8),
    ),
    "one prefill at least": (
        [sampling(1, 1, 0, is_first=True, num_prefill=900), sampling(2, 2, 0, is_first=True, num_prefill=1)],
        [],
        LmPlan(prefill=(1,), decode={1: 8}, num_steps=8),
    ),
    "a flow call that waits shortens the round": (  # 31 − 20 for the call − 5 for the prefill = 3 steps of 2
        [sampling(1, 1000, 0, is_first=True, num_prefill=100)],
        [ready(7, 31)],
        LmPlan(prefill=(1,), decode={1: 3}, num_steps=3),
    ),
    "a flow call that waits puts off further prefills": (
        [sampling(key, 1000, 0, is_first=True, num_prefill=100) for key in (1, 2)],
        [ready(7, 24)],
        LmPlan(prefill=(1,), decode={1: 1}, num_steps=1),
    ),
    "one step at least": ([sampling(1, 1000, 0)], [ready(7, 20.5)], LmPlan(decode={1: 1}, num_steps=1)),
    "a flow call that is late leaves as much time as it takes": (
        [sampling(1, 1000, 0)],
        [ready(7, -500)],
        LmPlan(decode={1: 8}, num_steps=8),
    ),
    "a flow call with time shortens nothing": (
        [sampling(1, 1000, 0)],
        [ready(7, 500)],
        LmPlan(decode={1: 8}, num_steps=8),
    ),
    "no round while a first piece can run": (
        [sampling(1, 301, 0), sampling(2, 100, 30)],
        [ready(7, 500), ready(8, 900, is_first=True)],
        LmPlan(),
    ),
}


BESIDE_A_CALL: dict[str, tuple[float, list[LmCandidate], LmPlan]] = {  # how long it still takes, ms
    "nobody lacks tokens": (40, [sampling(1, 100, 30)], LmPlan()),
    "whoever lacks them has time until its end": (40, [sampling(1, 500, 20)], LmPlan()),
    "somebody has not, so all are sampled, until its end": (  # 100 − 8 steps of 2 − 50 for its call
        10,
        [sampling(1, 500, 20), sampling(2, 30, 20)],
        LmPlan(decode={2: 25, 1: 25}, num_steps=5),
    ),
    "a first piece does not wait, whatever its deadline": (
        40,
        [sampling(1, 5000, 0, is_first=True, num_prefill=100), sampling(2, 5000, 40)],
        LmPlan(prefill=(1,), decode={1: 8, 2: 48}, num_steps=8),
    ),
    "prefills that would outlast it wait, but for one": (
        4,
        [sampling(key, 100, 0, is_first=True, num_prefill=100) for key in (1, 2)],
        LmPlan(prefill=(1,), decode={1: 1}, num_steps=1),
    ),
    "a call that should have ended is looked after at each step": (
        -5,
        [sampling(1, 100, 0, is_first=True)],
        LmPlan(decode={1: 1}, num_steps=1),
    ),
}


@pytest.mark.parametrize("case", BESIDE_A_CALL)
def test_what_is_sampled_beside_a_call(case: str) -> None:
    left_ms, candidates, expected = BESIDE_A_CALL[case]
    scheduler = Scheduler(LIMITS, constant_costs())
    waiting = [ready(7, 1, is_first=True)]  # for its end
    assert scheduler.plan_lm(NOW, candidates, waiting, call_end_ms=NOW + left_ms) == expected


def test_a_listener_has_more_to_spare_where_tokens_and_calls_overlap() -> None:
    spare_ms = []
    for overlaps in (False, True):
        scheduler = Scheduler(replace(LIMITS, overlaps=overlaps), constant_costs())
        spare_ms.append(scheduler.spare_ms(NOW, [sampling(1, 310, 8)], [ready(key, 300) for key in range(2, 6)]))
    assert spare_ms[1] > spare_ms[0]


@pytest.mark.parametrize("name", LM_PLANS)
def test_rounds_of_the_language_model(name: str) -> None:
    candidates, waiting, expected = LM_PLANS[name]
    scheduler = Scheduler(LIMITS, constant_costs())
    assert scheduler.plan_lm(NOW, candidates, waiting) == expected
    assert scheduler.plan_lm(NOW, candidates[::-1], waiting) == expected


FLOW_PLANS: dict[str, tuple[list[FlowCandidate], list[LmCandidate], tuple[int, ...]]] = {
    "nobody": ([], [], ()),
    "one": ([ready(1, 500)], [], (1,)),
    "the earliest first, as many as rows": ([ready(key, 900 - key) for key in (1, 2, 3, 4, 5)], [], (5, 4, 3, 2)),
    "two rows of 10 ms each would be too late": ([ready(1, 15), ready(2, 500)], [], (1,)),
    "three rows are in time with a margin, four are not": (
        [ready(1, 46), *(ready(key, 500) for key in (2, 3, 4))],
        [],
        (1, 2, 3),
    ),
    "a large hop is left out, the small ones after it are not": (
        [ready(1, 60), ready(2, 70, 200), ready(3, 500)],
        [],
        (1, 3),
    ),
    "those that cannot be in time are taken together": ([ready(1, 5), ready(2, 8)], [], (1, 2)),
    "late ones are taken together": ([ready(1, -5), ready(2, -3), ready(3, 2)], [], (1, 2, 3)),
    "late ones are not held up by those with time": ([ready(1, -5), ready(2, 500)], [], (1,)),
    "padding that costs more than a call of its own": ([ready(1, 3000), ready(2, 3000, 200)], [], (1,)),
    "started and late comes before new and later": ([ready(1, -90, is_first=True), ready(2, -5)], [], (2, 1)),
    "new and a second late is as good as started": ([ready(1, -1090, is_first=True), ready(2, -5)], [], (1, 2)),
    "a single call may be larger than allowed": ([ready(1, 10, 2000)], [], (1,)),
    "together no larger than allowed": ([ready(1, 3000, 400), ready(2, 3000, 400), ready(3, 3000, 400)], [], (1, 2)),
    # the pending piece needs a call of 56 frames, about 12 ms
    "a first piece in the making bounds the batch": (
        [ready(key, 330) for key in (1, 2, 3)],
        [sampling(9, 42, 20, is_first=True)],
        (1, 2),
    ),
    "a late piece in the making is not held up by those with time": (
        [ready(1, 100, is_first=True), ready(2, 900)],
        [sampling(9, 10, 20)],
        (1,),
    ),
    "those who cannot wait are taken all the same": ([ready(1, 16)], [sampling(9, 15, 20, is_first=True)], (1,)),
    "those with the earlier deadline as well": ([ready(1, 14)], [sampling(9, 15, 20, is_first=True)], (1,)),
    "with little time no more rows are waited for": ([ready(1, 330), ready(2, 500)], [sampling(9, 900, 20)], (1, 2)),
    "with more time they are": ([ready(1, 400), ready(2, 500)], [sampling(9, 900, 20)], ()),
    "of those with time the oldest first": (
        [ready(key, 9000 - 900 * key) for key in (1, 2, 3, 4)] + [ready(5, 5400)],
        [],
        (1, 2, 3, 4),
    ),
    "after those without": ([ready(1, 5001), ready(2, 8000), ready(3, 5000), ready(4, 400)], [], (4, 3, 1, 2)),
    "and after first pieces": ([ready(1, 5001), ready(2, 9000, is_first=True)], [], (2, 1)),
    "a piece in the making is not for them to wait for that has as much time": (
        [ready(1, 6000, is_first=True)],
        [sampling(9, 6500, 20)],
        (1,),
    ),
    "unless there is nothing to draw": ([ready(1, 400)], [sampling(9, 900, 28)], (1,)),
    "unless a first piece is ready": ([ready(1, 400), ready(2, 500, is_first=True)], [sampling(9, 900, 20)], (1, 2)),
}


@pytest.mark.parametrize("name", FLOW_PLANS)
def test_flow_calls(name: str) -> None:
    candidates, pending, expected = FLOW_PLANS[name]
    scheduler = Scheduler(LIMITS, growing_costs())
    assert scheduler.plan_flow(NOW, candidates, pending) == expected
    assert scheduler.plan_flow(NOW, candidates[::-1], pending) == expected
    at_once = scheduler.plan_flow(NOW, candidates, pending, may_wait=False)
    assert bool(at_once) == bool(candidates), "without a round to wait for there is a call"
    assert at_once == expected or not expected


GOES_BEFORE: dict[str, tuple[FlowCandidate, LmCandidate, tuple[int, ...]]] = {
    # the call takes 40 ms, and half as much again may be lost beside it; the piece needs 12 ms
    "a piece in the making would be late behind it": (ready(1, 400, 200), sampling(9, 70, 20), ()),
    "a first piece as well": (ready(1, 400, 200), sampling(9, 70, 20, is_first=True), ()),
    "it would not": (ready(1, 400, 200), sampling(9, 73, 20), (1,)),
    "the call cannot wait for it": (ready(1, 50, 200), sampling(9, 70, 20), (1,)),
    "the call has the first piece": (ready(1, 400, 200, is_first=True), sampling(9, 70, 20), (1,)),
    "its tokens are there, and it can be called itself": (ready(1, 400, 200), sampling(9, 70, 28), (1,)),
}


@pytest.mark.parametrize("name", GOES_BEFORE)
@pytest.mark.parametrize("may_wait", [False, True])
def test_a_call_with_time_waits_for_a_piece_that_would_be_late(name: str, may_wait: bool) -> None:
    candidate, lacking, expected = GOES_BEFORE[name]
    scheduler = Scheduler(replace(LIMITS, wait_slack_ms=1000.0), growing_costs())
    assert scheduler.plan_flow(NOW, [candidate], [lacking], may_wait=may_wait) == expected


def test_what_can_be_spared_is_less_the_work_that_is_due_before() -> None:
    scheduler = Scheduler(LIMITS, constant_costs())
    ready_soon, drawing_late = ready(1, 100), sampling(2, 400, 18)
    first = sampling(3, 50, 0, is_first=True, num_prefill=100)
    assert scheduler.spare_ms(NOW, [], []) == math.inf
    assert scheduler.spare_ms(NOW, [first], []) == math.inf
    assert scheduler.spare_ms(NOW, [], [ready_soon]) == pytest.approx(80)
    assert scheduler.spare_ms(NOW, [drawing_late], [ready_soon]) == pytest.approx(80)
    assert scheduler.spare_ms(NOW, [drawing_late], []) == pytest.approx(400 - 10 * 2 - 20)
    assert scheduler.spare_ms(NOW, [first, drawing_late], [ready_soon]) == pytest.approx(100 - 5 - 28 * 2 - 2 * 20)


@pytest.mark.parametrize(("num_streams", "needed_ms"), [(1, 50 * 2 + 20), (9, 50 * 4 + 20)])
def test_a_hop_takes_its_tokens_and_its_call(num_streams: int, needed_ms: float) -> None:
    """Half of the device's time is for the tokens, if there are others."""
    scheduler = Scheduler(LIMITS, constant_costs())
    for more_ms, expected in ((-1.0, 25), (1.0, 50)):
        slack_ms = 1.65 * needed_ms + more_ms
        assert scheduler.choose_hop(slack_ms, behind=250, num_ready=3, num_streams=num_streams) == expected


@pytest.mark.parametrize(
    ("slack_ms", "behind", "expected"),
    [
        (-100, 250, 25),
        (0, 250, 25),
        (82, 250, 25),  # a hop of 50 takes 50 ms: it needs more than 82.5
        (83, 250, 50),
        (165, 250, 50),
        (166, 250, 100),
        (math.inf, 250, 100),
        (-100, 260, 40),  # up to the grid
        (107, 260, 40),
        (108, 260, 65),
        (-100, 0, 25),
    ],
)
def test_hops_grow_with_slack(slack_ms: float, behind: int, expected: int) -> None:
    scheduler = Scheduler(LIMITS, constant_costs(lm_step_ms=1.0, call_ms=0.0))  # a hop takes 1 ms a token
    assert scheduler.choose_hop(slack_ms, behind=behind, num_ready=3, num_streams=1) == expected
    assert (behind + expected) % 25 == 0


slacks = st.floats(-3000, 5000)
flow_candidates = st.lists(
    st.tuples(slacks, st.integers(1, 400), st.booleans()).map(
        lambda drawn: ready(0, drawn[0], drawn[1], is_first=drawn[2])
    ),
    min_size=1,
    max_size=12,
).map(lambda rows: [ready(key, c.deadline_ms - NOW, c.num_frames, is_first=c.is_first) for key, c in enumerate(rows)])


@given(flow_candidates)
def test_whoever_has_the_earliest_deadline_is_taken(candidates: list[FlowCandidate]) -> None:
    """Among those it may come before: started ones, or all if it is a second late. The limits are kept besides."""
    by_key = {c.key: c for c in candidates}
    chosen = Scheduler(LIMITS, growing_costs()).plan_flow(NOW, candidates)
    earliest = min(candidates, key=lambda c: (c.deadline_ms, c.key))
    late_started = any(not c.is_first and c.deadline_ms < NOW for c in candidates)
    if not earliest.is_first or earliest.deadline_ms < NOW - 1000 or not late_started:
        assert chosen[0] == earliest.key
    assert len(set(chosen)) == len(chosen) <= 4
    frames = max(by_key[key].num_frames for key in chosen)
    assert len(chosen) == 1 or frames * len(chosen) <= 1000


@given(flow_candidates)
def test_no_row_makes_another_late(candidates: list[FlowCandidate]) -> None:
    by_key = {c.key: c for c in candidates}
    scheduler = Scheduler(LIMITS, growing_costs())
    chosen = scheduler.plan_flow(NOW, candidates)
    end_ms = NOW + growing_costs().call_ms(len(chosen), max(by_key[key].num_frames for key in chosen), 0)
    seed = by_key[chosen[0]]
    if NOW + growing_costs().call_ms(1, seed.num_frames, 0) <= seed.deadline_ms:
        assert end_ms <= seed.deadline_ms


@given(flow_candidates)
def test_in_the_end_everybody_was_taken(candidates: list[FlowCandidate]) -> None:
    scheduler = Scheduler(LIMITS, growing_costs())
    left = {c.key: c for c in candidates}
    for _ in candidates:
        for key in scheduler.plan_flow(NOW, list(left.values())):
            del left[key]
    assert not left


@given(
    st.lists(
        st.builds(
            sampling,
            st.just(0),
            slacks,
            st.integers(0, 60),
            is_first=st.booleans(),
            num_prefill=st.sampled_from([0, 0, 100, 700]),
        ),
        max_size=12,
    ),
    st.lists(st.builds(ready, st.just(99), slacks, is_first=st.booleans()), max_size=2),
)
def test_rounds_keep_their_limits_and_get_on(candidates: list[LmCandidate], waiting: list[FlowCandidate]) -> None:
    numbered = {
        key: sampling(
            key, c.deadline_ms - NOW, c.num_sampled, c.num_needed, is_first=c.is_first, num_prefill=c.num_prefill
        )
        for key, c in enumerate(candidates)
    }
    plan = Scheduler(LIMITS, constant_costs()).plan_lm(NOW, list(numbered.values()), waiting)
    may_sample = [c for c in numbered.values() if c.num_sampled < 48]
    assert bool(plan.decode) == (bool(may_sample) and not any(c.is_first for c in waiting))
    if plan.decode:
        assert 1 <= plan.num_steps <= 8
    positions = [numbered[key].num_prefill for key in plan.prefill]
    assert len(positions) <= 1 or sum(positions) <= 500
    assert set(plan.prefill) == {key for key in plan.decode if numbered[key].num_prefill}
    for key, until in plan.decode.items():
        assert numbered[key].num_sampled < until <= min(48, numbered[key].num_sampled + plan.num_steps)
