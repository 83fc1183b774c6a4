from array import array

import pytest

from cc_tts.media.levels import is_audible

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], False),
        ([0] * 160, False),
        ([103, -103], False),
        ([104], True),
        ([0, -104, 0], True),
        ([-32768], True),
        ([32767], True),
    ],
)
def test_peak_decides(samples: list[int], expected: bool) -> None:
    assert is_audible(array("h", samples).tobytes()) is expected
