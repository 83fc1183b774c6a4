"""Audio that passes from one leg to another."""

import numpy as np
import pytest

from cc_tts.ua.bridge.passed_frame import Passed
from cc_tts.ua.rtp.mixing import mixed

pytestmark = pytest.mark.unit


def test_what_one_leg_says_the_other_hears_once() -> None:
    first = Passed()
    second = first.other_way
    first.said.put(b"a")
    assert (second.heard.take(), second.heard.take(), first.heard.take()) == (b"a", b"", b"")
    second.said.put(b"b")
    assert first.heard.take() == b"b"
    for frame in (b"1", b"2"):
        first.said.put(frame)
    assert (second.heard.take(), second.heard.take()) == (b"2", b""), "what nobody took does not come later"


def test_two_at_once_are_added_and_do_not_wrap() -> None:
    loud, quiet = np.array([30_000, -30_000, 5], "<i2"), np.array([10_000, -10_000, -7], "<i2")
    assert np.frombuffer(mixed(loud.tobytes(), quiet.tobytes()), "<i2").tolist() == [32_767, -32_768, -2]
