"""Pauses between tries."""

import pytest

from cc_tts.ua.sip.retry_pace import MAX_PAUSE_S, RetryPace
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def pauses_s(pace: RetryPace, clock: FakeClock, count: int) -> list[int]:
    """How many whole seconds each of ``count`` failures is waited for."""
    found = []
    for _ in range(count):
        pace.failed()
        waited = 0
        while not pace.is_due():
            clock.advance(1000)
            waited += 1
        found.append(waited)
    return found


def test_pauses_grow_to_a_limit_and_start_anew_after_a_success() -> None:
    clock = FakeClock()
    pace = RetryPace(first_s=5, base_s=15, clock=clock)
    assert not pace.is_due()
    assert pauses_s(pace, clock, 8) == [5, 15, 30, 60, 120, 240, 300, 300]
    pace.succeeded()
    assert not pace.is_due()
    assert pauses_s(pace, clock, 2) == [5, 15]
    longer = RetryPace(first_s=5, base_s=2 * MAX_PAUSE_S, clock=clock)
    assert pauses_s(longer, clock, 3) == [5, 600, 600], "a longer base is its own limit"
    longer.failed()
    longer.stop()
    clock.advance(10 * MAX_PAUSE_S * 1000)
    assert not longer.is_due()
