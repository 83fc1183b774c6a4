import math
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.engines.cosyvoice2.engine.admission import Admission, AdmissionConfig, RefusalCode, Situation
from cc_tts.engines.cosyvoice2.engine.costs import DefaultCosts, StageCosts

pytestmark = pytest.mark.unit

NOW: Final = 5000.0
# whatever the size: 10 for a prefill, 28 steps of 2, a call of 20: first audio after 1.15 × 86 ms on a free device
COSTS: Final = DefaultCosts(prefill_ms=10.0, lm_step_ms=2.0, flow_ms=15.0, vocoder_ms=5.0)
AT_BEST_MS: Final = 1.15 * 86.0


def admission(*, target_ms: float = 500.0, slowness: float = 1.0, **config: Any) -> Admission:
    costs = DefaultCosts(
        prefill_ms=slowness * COSTS.prefill_ms,
        lm_step_ms=slowness * COSTS.lm_step_ms,
        flow_ms=slowness * COSTS.flow_ms,
        vocoder_ms=slowness * COSTS.vocoder_ms,
    )
    return Admission(
        AdmissionConfig(first_audio_target_ms=target_ms, **{"max_streams": 64, **config}), StageCosts(costs)
    )


def situation(**changed: Any) -> Situation:
    usual = {
        "num_streams": 8,
        "num_first_pending": 0,
        "min_slack_ms": 800.0,
        "free_slots": 10,
        "free_pages": 100,
        "pages_needed": 5,
        "lm_rows": 8,
    }
    return Situation(**{**usual, **changed})


IDLE: Final = situation(num_streams=0, lm_rows=0, min_slack_ms=math.inf)


def test_a_free_device_takes_a_stream_and_says_when_it_will_be_heard() -> None:
    decision = admission().decide(NOW, IDLE)
    assert decision.admit
    assert decision.first_audio_ms == pytest.approx(AT_BEST_MS)
    # 25 steps of 2 ms for a second, a call of 20 ms for two, and 30 ms of its beginning in the 500 ms of the target
    assert decision.utilisation == pytest.approx(0.050 + 0.010 + 30 / 500)
    assert (decision.code, decision.reason, decision.retry_after_s) == (None, "", 1)


REFUSALS: dict[str, tuple[Admission, Situation, RefusalCode | None, str]] = {
    "all is well": (admission(), situation(), None, ""),
    "no slot": (admission(), situation(free_slots=0), RefusalCode.SLOTS, "8 streams are open and no slot is free"),
    "as many as may": (admission(max_streams=8), situation(), RefusalCode.SLOTS, "8 streams"),
    "no slot on a free device": (admission(), situation(num_streams=0, free_slots=0), RefusalCode.SLOTS, "no slot"),
    "no pages": (admission(), situation(free_pages=4), RefusalCode.MEMORY, "5 pages are needed and 4 free"),
    "just enough pages": (admission(), situation(free_pages=5), None, ""),
    "no pages, but they can be done without": (admission(allow_recompute=True), situation(free_pages=0), None, ""),
    "too slow to begin": (
        admission(target_ms=100.0),
        situation(),
        RefusalCode.FIRST_AUDIO,
        "instead of at most 100 ms",
    ),
    "one who would rather wait": (admission(target_ms=100.0, queue_ms=20.0), situation(), None, ""),
    "much is under way": (
        admission(),
        situation(device_free_ms=NOW + 450),
        RefusalCode.FIRST_AUDIO,
        "first audio would come after",
    ),
    "it was under way": (admission(), situation(device_free_ms=NOW - 450), None, ""),
    "the device has no time left": (
        admission(target_ms=9000.0, slowness=12.0),
        situation(min_slack_ms=9000.0),
        RefusalCode.UTILISATION,
        "% of the device would be needed where at most 90 % may be",
    ),
    "a listener has less time than a beginning takes": (
        admission(),
        situation(min_slack_ms=44.0),
        RefusalCode.STARVING,
        "has 44 ms left where 45 ms are needed",
    ),
    "just enough time": (admission(), situation(min_slack_ms=46.0), None, ""),
    "nobody listens yet": (admission(), situation(num_first_pending=8, min_slack_ms=math.inf), None, ""),
    "a device that is too slow, but free": (admission(target_ms=1.0), IDLE, None, ""),
    "a device with no share to give, but free": (admission(slowness=100.0), IDLE, None, ""),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_who_is_refused_and_why(name: str) -> None:
    asked, state, code, reason = REFUSALS[name]
    decision = asked.preview(NOW, state)
    assert decision.code is code
    assert decision.admit is (code is None)
    assert reason in decision.reason
    assert bool(decision.reason) is (code is not None)


def test_codes_are_a_closed_set_of_labels() -> None:
    assert [code.value for code in RefusalCode] == ["slots", "memory", "first_audio", "utilisation", "starving"]


# slack left, whether it is admitted: closed at 45 ms, open again at 50
TIMES: Final = [(46, True), (44, False), (46, False), (49, False), (51, True), (46, True), (44, False)]


def test_what_closed_opens_a_little_higher() -> None:
    asked = admission()
    assert [(slack, asked.decide(NOW, situation(min_slack_ms=float(slack))).admit) for slack, _ in TIMES] == TIMES


def test_previews_and_want_of_room_close_nothing() -> None:
    asked = admission()
    assert not asked.preview(NOW, situation(min_slack_ms=0.0)).admit
    assert not asked.decide(NOW, situation(free_slots=0)).admit
    assert not asked.decide(NOW, situation(free_pages=0)).admit
    assert asked.decide(NOW, situation(min_slack_ms=46.0)).admit


@pytest.mark.parametrize(
    ("next_end_ms", "retry_after_s"),
    [(math.inf, 1), (NOW - 100, 1), (NOW + 1, 1), (NOW + 1001, 2), (NOW + 8000, 8), (NOW + 1e9, 60)],
)
def test_when_to_try_again(next_end_ms: float, retry_after_s: int) -> None:
    decision = admission().decide(NOW, situation(free_slots=0, next_end_ms=next_end_ms))
    assert decision.retry_after_s == retry_after_s


def test_a_burst_is_taken_until_the_last_would_be_heard_too_late() -> None:
    costs = StageCosts(COSTS)
    for _ in range(60):
        for rows in (1, 2, 4, 8, 16, 32):
            costs.observe_flow(rows, 56 * rows, 500, 10.0 * rows)
    asked = Admission(AdmissionConfig(first_audio_target_ms=300.0, max_streams=64), costs)
    taken = 0
    while taken < 64:
        state = situation(num_streams=taken, num_first_pending=taken, lm_rows=taken, min_slack_ms=math.inf)
        decision = asked.decide(NOW, state)
        if not decision.admit:
            break
        assert decision.first_audio_ms <= 300.0
        taken += 1
    assert 5 <= taken <= 30
    assert decision.code in (RefusalCode.FIRST_AUDIO, RefusalCode.UTILISATION)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: admission(target_ms=0.0),
        lambda: admission(target_ms=math.inf),
        lambda: admission(queue_ms=-1.0),
        lambda: admission(max_streams=0),
        lambda: admission(max_utilisation=0.0),
        lambda: admission(max_flow_rows=0),
    ],
)
def test_limits_must_let_something_through(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError):
        wrong()


@given(st.integers(1, 60), st.integers(0, 60), st.floats(0, 1000), st.integers(0, 60), st.floats(0, 500))
def test_more_load_never_shortens_the_wait(
    streams: int, pending: int, slack_ms: float, more_pending: int, busy_ms: float
) -> None:
    asked = admission()
    now = situation(num_streams=streams + 60, num_first_pending=pending, min_slack_ms=slack_ms)
    more = situation(
        num_streams=streams + 60 + more_pending,
        num_first_pending=pending + more_pending,
        min_slack_ms=slack_ms,
        device_free_ms=NOW + busy_ms,
    )
    assert asked.preview(NOW, more).first_audio_ms >= asked.preview(NOW, now).first_audio_ms - 1e-9
    # a quarter of the streams is rounded up to rows
    assert asked.preview(NOW, more).utilisation >= asked.preview(NOW, now).utilisation - 0.005


def test_it_closes_on_what_was_measured_whatever_is_predicted() -> None:
    door = admission(guard_ms=60.0)
    assert door.decide(NOW, situation(measured_slack_ms=31.0)).admit
    for slack_ms in (29.0, -5.0):
        refused = door.decide(NOW, situation(measured_slack_ms=slack_ms))
        assert (refused.admit, refused.code) == (False, RefusalCode.STARVING)
        assert "listeners run dry" in refused.reason
    assert not door.decide(NOW, situation(measured_slack_ms=59.0)).admit
    assert door.decide(NOW, situation(measured_slack_ms=61.0)).admit
    assert door.decide(NOW, situation(measured_slack_ms=31.0)).admit
    assert admission(guard_ms=60.0).decide(NOW, situation(num_streams=0, measured_slack_ms=-5.0)).admit
