import pytest

from bench.engine.clock import WorkClock
from cc_tts.clock import NS_PER_MS

pytestmark = pytest.mark.unit


def test_rest_is_skipped_and_counts() -> None:
    clock = WorkClock()
    begin_ns = clock.now_ns()
    clock.rest(3_600_000.0)
    assert clock.now_ns() - begin_ns >= 3_600_000 * NS_PER_MS


def test_time_does_not_go_back() -> None:
    clock = WorkClock()
    instants = [clock.now_ns() for _ in range(100)]
    assert instants == sorted(instants)
