from array import array

import pytest

from cc_tts.media.speech_activity import is_audible, peak, peak_for_dbfs

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("samples", "expected_peak", "expected"),
    [
        ([], 0, False),
        ([0] * 160, 0, False),
        ([103, -103], 103, False),
        ([104], 104, True),
        ([0, -104, 0], 104, True),
        ([-32768], 32768, True),
        ([32767], 32767, True),
    ],
)
def test_peak_decides(samples: list[int], expected_peak: int, expected: bool) -> None:
    pcm = array("h", samples).tobytes()
    assert peak(pcm) == expected_peak
    assert is_audible(pcm) is expected


def test_threshold_in_dbfs() -> None:
    assert peak_for_dbfs(0) == 32768
    assert peak_for_dbfs(-20) == 3277
    assert peak_for_dbfs(-200) == 1
    assert is_audible(array("h", [40]).tobytes(), threshold_dbfs=-60)


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="whole 16-bit samples"):
        is_audible(b"\0\0\0")
