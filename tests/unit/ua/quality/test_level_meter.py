"""How loud either direction of a call is, while somebody looks."""

import numpy as np
import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.media.g711 import ulaw_encode
from cc_tts.media.quality import Levels, level_dbov
from cc_tts.ua.quality.level_meter import LOOK_MS, LevelMeter, amplitude_of, mean_amplitude

pytestmark = pytest.mark.unit


def test_levels_are_relative_to_overload() -> None:
    assert (level_dbov(32_768), level_dbov(16_384), level_dbov(0)) == (0, -6, -127)
    assert mean_amplitude(np.array([1000, -3000], "<i2").tobytes()) == 2000.0
    assert mean_amplitude(b"") == 0.0


@pytest.mark.parametrize("amplitude", [0, 8, 100, 1000, 8000, 32_000])
def test_the_level_of_the_bridge_is_a_sample_of_g711(amplitude: int) -> None:
    code = ulaw_encode(np.array([amplitude], "<i2").tobytes())[0]
    assert amplitude_of(code ^ 0xFF) == pytest.approx(amplitude, rel=0.04, abs=8)


def test_nothing_is_measured_while_nobody_looks() -> None:
    meter = LevelMeter()
    assert (meter.is_on, meter.take(), meter.is_over(0)) == (False, None, False)


def test_the_loudest_moment_counts_until_it_is_taken() -> None:
    meter = LevelMeter()
    meter.look(1)
    for received, sent in ((100.0, 0.0), (16_384.0, 0.0), (10.0, 0.0)):
        meter.note(received=received, sent=sent)
    assert meter.take() == Levels(received_dbov=-6, sent_dbov=-127)
    assert meter.take() == Levels(received_dbov=-127, sent_dbov=-127)


def test_a_look_ends() -> None:
    meter = LevelMeter()
    meter.look(0)
    assert not meter.is_over(LOOK_MS * NS_PER_MS - 1)
    assert meter.is_over(LOOK_MS * NS_PER_MS)
    assert not meter.is_over(LOOK_MS * NS_PER_MS), "once"
    assert meter.take() is None
