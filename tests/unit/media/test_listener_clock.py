import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.media.listener_clock import ListenerClock, SlackWindow

pytestmark = pytest.mark.unit

TARGET_MS = 200.0
GUARD_MS = 60.0


def opened(now_ms: float = 1000.0) -> ListenerClock:
    clock = ListenerClock(first_audio_target_ms=TARGET_MS, guard_ms=GUARD_MS)
    clock.text_came(now_ms)
    return clock


Event = tuple[float, str, tuple[float, ...]]
# what happens at an instant, and then: deadline, audio ahead, whether the next piece is a first one
Line = tuple[Event, float, float, bool]

NEVER = math.inf
TABLES: dict[str, list[Line]] = {
    "in time": [
        ((1000, "text_came", ()), 1200, 0, True),
        ((1100, "sent", (840,)), 1880, 840, False),
        ((1500, "sent", (1000,)), 2880, 1440, False),
        ((2500, "sent", (2000,)), 4880, 2440, False),
    ],
    "text later than the opening": [
        ((1000, "text_spoken", ()), NEVER, 0, True),
        ((5000, "text_came", ()), 5200, 0, True),
        ((5100, "text_came", ()), 5200, 0, True),
        ((5150, "sent", (500,)), 5590, 500, False),
    ],
    "an underrun puts off playing": [
        ((1000, "sent", (500,)), 1440, 500, False),
        ((1600, "nothing", ()), 1440, 0, False),
        ((1700, "sent", (500,)), 2140, 500, False),
    ],
    "reports correct the time of playing": [
        ((1000, "sent", (1000,)), 1940, 1000, False),
        ((1400, "taken", (400, 400)), 2340, 1000, False),  # began to play 400 ms late
        ((1600, "sent", (500,)), 2840, 1300, False),
        ((2000, "taken", (1400, 700)), 2740, 800, False),
        ((2100, "taken", (1502, 690)), 2730, 690, False),  # 2 ms more than was sent: resampled
    ],
    "a listener who is paused needs nothing": [
        ((1000, "sent", (1000,)), 1940, 1000, False),
        ((1500, "taken", (1000, 500)), 1940, 500, False),
        ((2500, "taken", (1000, 500)), 2940, 500, False),
        ((9500, "taken", (1000, 500)), 9940, 500, False),
    ],
    "reports do not forgive an underrun": [
        ((1000, "sent", (500,)), 1440, 500, False),
        ((1800, "taken", (500, 0)), 1440, 0, False),
        ((2400, "taken", (500, 0)), 1440, 0, False),
    ],
    "a report before any audio says nothing": [
        ((1100, "taken", (0, 0)), 1200, 0, True),
        ((1150, "taken", (300, 300)), 1200, 0, True),
    ],
    "new text while audio is left": [
        ((1000, "text_came", ()), 1200, 0, True),
        ((1000, "sent", (2000,)), 2940, 2000, False),
        ((1100, "text_spoken", ()), NEVER, 1900, False),
        ((1500, "text_came", ()), 2940, 1500, False),
        ((1600, "sent", (1000,)), 3940, 2400, False),
    ],
    "new text when the listener is dry": [
        ((1000, "text_came", ()), 1200, 0, True),
        ((1000, "sent", (500,)), 1440, 500, False),
        ((1000, "text_spoken", ()), NEVER, 500, False),
        ((4000, "text_came", ()), 4200, 0, True),
        ((4000, "taken", (500, 0)), 4200, 0, True),
        ((4100, "sent", (500,)), 4540, 500, False),
    ],
    "new text within the guard": [
        ((1000, "text_came", ()), 1200, 0, True),
        ((1000, "sent", (500,)), 1440, 500, False),
        ((1000, "text_spoken", ()), NEVER, 500, False),
        ((1450, "text_came", ()), 1650, 50, True),
        ((1460, "taken", (500, 490)), 1890, 490, True),  # paused meanwhile
    ],
    "nothing sent is nothing": [
        ((1000, "sent", (0,)), 1200, 0, True),
    ],
}


@pytest.mark.parametrize("name", TABLES)
def test_deadlines(name: str) -> None:
    clock = opened()
    clock_does: dict[str, Callable[..., object]] = {
        "sent": clock.sent,
        "taken": clock.taken,
        "text_came": clock.text_came,
        "text_spoken": lambda _now_ms: clock.text_spoken(),
        "nothing": lambda _now_ms: None,
    }
    for (now_ms, what, arguments), deadline_ms, ahead_ms, is_first in TABLES[name]:
        clock_does[what](now_ms, *arguments)
        seen = (clock.deadline_ms, max(0.0, clock.left_ms(now_ms)), clock.is_first)
        assert seen == (deadline_ms, ahead_ms, is_first), (now_ms, what)


@pytest.mark.parametrize(
    ("second_ms", "is_gap", "underrun_ms"),
    [(1400, False, 0), (1500, False, 0), (1530, False, 30), (3000, False, 1500), (3000, True, 0)],
)
def test_underruns_are_told_where_audio_was_owed(second_ms: float, is_gap: bool, underrun_ms: float) -> None:
    clock = opened()
    clock.text_came(1000)
    assert clock.sent(1000, 500) == 0
    if is_gap:
        clock.text_spoken()
        clock.text_came(2900)
    assert clock.sent(second_ms, 500) == underrun_ms


def test_a_late_first_piece_is_no_underrun() -> None:
    assert opened().sent(9000, 500) == 0


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(1, 2000)), min_size=1, max_size=20))
def test_without_underruns_audio_ends_when_its_length_has_passed(pieces: list[tuple[float, float]]) -> None:
    clock = opened(0.0)
    now_ms, dry_ms = 0.0, math.inf
    for wait_ms, audio_ms in pieces:
        now_ms = min(now_ms + wait_ms, dry_ms)
        assert clock.sent(now_ms, audio_ms) <= 1e-6
        dry_ms = clock.deadline_ms + GUARD_MS
        assert max(0.0, clock.left_ms(now_ms)) == pytest.approx(dry_ms - now_ms)
    assert dry_ms == pytest.approx(min(pieces[0][0], math.inf) + clock.sent_ms)


def test_the_slack_of_the_last_two_seconds_is_known() -> None:
    window = SlackWindow()
    assert window.low_ms(0.0) == math.inf
    for number in range(100):
        window.add(1000.0, 100.0 + number)
    assert window.low_ms(1000.0) == 105.0
    window.add(1500.0, -1.0)
    assert window.low_ms(1500.0) == -1.0
    assert window.low_ms(3400.0) == -1.0
    assert window.low_ms(3501.0) == math.inf
