"""Silence is counted on a clock that stands still while this process does."""

import pytest

from cc_tts.processes.watchdog import Watchdog
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def test_silence_grows_until_something_is_heard() -> None:
    clock = FakeClock()
    silence = Watchdog(clock, max_step_s=1.0)
    for _ in range(3):
        clock.advance(500)
        silence.poll()
    assert silence.seconds == pytest.approx(1.5)
    clock.advance(500)
    silence.heard()
    assert silence.seconds == 0
    clock.advance(250)
    assert silence.poll() == pytest.approx(0.25)


def test_a_pause_counts_as_one_step() -> None:
    clock = FakeClock()
    silence = Watchdog(clock, max_step_s=1.0)
    clock.advance(3_600_000)
    assert silence.poll() == pytest.approx(1.0)
    clock.advance(100)
    assert silence.poll() == pytest.approx(1.1)
