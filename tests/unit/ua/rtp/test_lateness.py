"""Lateness of the media clock, in virtual time."""

import pytest

from cc_tts.ua.messages import MediaLateness
from cc_tts.ua.rtp.lateness import LONGEST_MS, MIN_FRAMES, WINDOW_TURNS, TickLateness

pytestmark = pytest.mark.unit

MS = 1_000_000
SECOND = 1_000 * MS
BOUND_MS = 40.0


class Clock20ms:
    """Seconds of many legs' frames, one after the other."""

    def __init__(self, max_ms: float = BOUND_MS) -> None:
        self.lateness = TickLateness(max_ms)
        self._now_ns = 10 * SECOND
        self.lateness.tick(self._now_ns)

    def second(self, *gaps_ms: float, legs: int = 4) -> MediaLateness:
        """``legs`` with 50 frames, of which the last ones come after ``gaps_ms`` instead of 20 ms."""
        for _ in range(legs):
            for gap_ms in [20.0] * (50 - len(gaps_ms)) + list(gaps_ms):
                self.lateness.add(round(gap_ms * MS))
        self._now_ns += SECOND
        found = self.lateness.tick(self._now_ns)
        assert found is not None
        return found


def test_a_steady_beat_is_not_late_few_frames_say_nothing_and_a_bound_of_zero_refuses_nothing() -> None:
    assert Clock20ms().second() == MediaLateness(p99_ms=0.0, refusing=False)
    clock = Clock20ms()
    for _ in range(MIN_FRAMES - 1):
        clock.lateness.add(200 * MS)
    assert clock.second(legs=0) == MediaLateness(p99_ms=0.0, refusing=False)
    assert Clock20ms(0).second(*[320] * 25) == MediaLateness(p99_ms=300.0, refusing=False)


def test_one_frame_in_a_hundred_may_be_late() -> None:
    clock = Clock20ms()
    for gap in (20, 300):
        assert clock.second(gap, legs=1).p99_ms == 0.0
    assert clock.second(120, 120, legs=1) == MediaLateness(p99_ms=100.0, refusing=False), (
        "three late frames are too few to refuse for"
    )
    assert clock.second(*[120] * 7, legs=1).refusing


def test_refuses_above_the_bound_and_welcomes_at_half_of_it() -> None:
    clock = Clock20ms()
    seen = [clock.second(*[gap] * 25).refusing for gap in (60, 61)]
    for gap in (50, 41, 40):
        seen += [clock.second(*[gap] * 25).refusing for _ in range(WINDOW_TURNS)]
    assert seen == [False, True] + [True] * (2 * WINDOW_TURNS) + [True] * (WINDOW_TURNS - 1) + [False]


def test_what_is_past_the_window_counts_no_more() -> None:
    clock = Clock20ms()
    assert clock.second(*[500] * 25).refusing
    assert [clock.second().refusing for _ in range(WINDOW_TURNS)] == [True] * (WINDOW_TURNS - 1) + [False]


def test_a_leg_that_was_on_hold_is_not_late() -> None:
    clock = Clock20ms()
    assert clock.second(*[20 + LONGEST_MS + 1] * 25).p99_ms == 0.0
    assert clock.second(*[20 + LONGEST_MS] * 25).p99_ms == LONGEST_MS


def test_looks_once_a_second() -> None:
    lateness = TickLateness(BOUND_MS)
    assert lateness.tick(5 * SECOND) is not None
    assert lateness.tick(6 * SECOND - 1) is None
    assert lateness.tick(6 * SECOND) is not None
