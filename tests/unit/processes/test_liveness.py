"""Silence is counted on a clock that stands still while this process does."""

import pytest

from cc_tts.processes.liveness import Silence
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit


def test_silence_grows_until_something_is_heard() -> None:
    clock = FakeClock()
    silence = Silence(clock, max_step_s=1.0)
    for _ in range(3):
        clock.advance(500)
        silence.look()
    assert silence.seconds == pytest.approx(1.5)
    clock.advance(500)
    silence.heard()
    assert silence.seconds == 0
    clock.advance(250)
    assert silence.look() == pytest.approx(0.25)


def test_a_pause_counts_as_one_step() -> None:
    clock = FakeClock()
    silence = Silence(clock, max_step_s=1.0)
    clock.advance(3_600_000)
    assert silence.look() == pytest.approx(1.0)
    clock.advance(100)
    assert silence.look() == pytest.approx(1.1)
