import pytest

from cc_tts.media.start_threshold import StartThreshold

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("what_happened", "expected_ms"),
    [
        ([], [40]),
        ([None], [40]),
        ([20], [40, 80]),
        ([20, 20, 60], [40, 80, 140, 270]),
        ([20, 20, 60, 60, 500], [40, 80, 140, 270, 300, 300]),
        ([60, None, None, None], [40, 120, 104, 91, 81]),
        ([-5], [40, 60]),
    ],
)
def test_underruns_raise_it_and_smooth_utterances_lower_it(
    what_happened: list[float | None], expected_ms: list[int]
) -> None:
    threshold = StartThreshold(floor_ms=40, ceiling_ms=300)
    currents = [threshold.current_ms]
    for missing_ms in what_happened:
        if missing_ms is None:
            threshold.smooth()
        else:
            threshold.underrun(missing_ms)
        currents.append(threshold.current_ms)
    assert currents[: len(expected_ms)] == expected_ms


def test_it_comes_back_to_its_floor() -> None:
    threshold = StartThreshold(floor_ms=60, ceiling_ms=200)
    threshold.underrun(1000)
    assert threshold.current_ms == 200
    for _ in range(25):
        threshold.smooth()
    assert threshold.current_ms == 60
