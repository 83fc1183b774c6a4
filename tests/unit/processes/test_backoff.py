"""Attempts that fail come less and less often, and one that held begins anew."""

import pytest

from cc_tts.processes.backoff import STABLE_AFTER_S, Backoff
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(FakeClock(), min_s=0.5, max_s=3.0)
    assert [backoff.delay_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_an_attempt_that_held_is_followed_by_the_shortest_delay() -> None:
    clock = FakeClock()
    backoff = Backoff(clock, min_s=0.5, max_s=3.0)
    for lasted_s, delay_s in ((0.0, 0.5), (STABLE_AFTER_S, 1.0), (STABLE_AFTER_S + 1, 0.5), (0.0, 1.0)):
        backoff.begin()
        clock.advance(lasted_s * 1000)
        assert backoff.delay_s() == delay_s
