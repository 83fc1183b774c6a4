import numpy as np
import pytest

from bench.engine.figures import ROW_SECONDS, flatness, ratios, shards, spread
from bench.engine.seams import COMB, RATE_HZ, end_noise, jump, seams

pytestmark = pytest.mark.unit


def tone(seconds: float = 2.0, hz: float = 150.0) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * hz * np.arange(int(seconds * RATE_HZ)) / RATE_HZ)


def test_spread_of_nothing_is_its_number() -> None:
    assert spread([]) == {"n": 0}


def test_spread_is_by_numpy_percentile() -> None:
    figures = spread([float(value) for value in range(1, 27)])
    assert figures == {"n": 26, "mean": 13.5, "p50": 13.5, "p90": 23.5, "p95": 24.75, "p99": 25.75, "max": 26.0}


@pytest.mark.parametrize("num_tasks", [1, 2, 4, 6, 8, 10, 26, 30])
def test_shards_are_contiguous_and_alike(num_tasks: int) -> None:
    parts = shards(range(26), num_tasks)
    assert [row for part in parts for row in part] == list(range(26))
    assert len(parts) == num_tasks
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_no_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="0 tasks"):
        shards(range(3), 0)


def test_the_rows_are_as_many_and_as_long_as_the_published_ones() -> None:
    assert len(ROW_SECONDS) == 26
    assert 170.0 <= sum(ROW_SECONDS) <= 172.0


def test_ratios_are_taken_within_a_round() -> None:
    rounds = [{"slow": 100.0, "fast": 50.0}, {"slow": 400.0, "fast": 100.0}, {"slow": 90.0, "fast": 30.0}]
    result = ratios(rounds, "slow")
    assert result["slow"]["times_less"] == 1.0
    assert result["fast"] == {"median_ms": 50.0, "times_less": 3.0, "times_less_from": 2.0, "times_less_to": 4.0}
    assert ratios([], "slow") == {}


def test_flat_is_within_a_fifth() -> None:
    assert flatness([10.0, 11.9, 8.1, 10.0])["is_flat"]
    assert not flatness([10.0, 10.0, 10.0, 12.1])["is_flat"]
    grown = flatness([10.0, 15.0, 20.0, 25.0])
    assert (grown["is_flat"], grown["last_to_first"]) == (False, 2.5)


def test_a_click_is_found_where_it_is() -> None:
    whole = tone()
    broken = whole.copy()
    broken[20_000:] += 0.2
    found = seams(broken, whole, [10_000, 20_000, 30_000])
    assert found["num_joins"] == 3
    assert found["num_clicks"] == 1
    assert jump(broken, 20_000) > 5 * jump(broken, 10_000)


def test_the_same_audio_has_no_clicks() -> None:
    audio = tone() + 0.05 * np.random.default_rng(1).standard_normal(2 * RATE_HZ)
    found = seams(audio, audio, range(2 * COMB, 40_000, 3840))
    assert found["num_clicks"] == 0
    assert found["jump_at_joins"] == found["jump_of_whole_there"]


def test_silence_has_no_jumps() -> None:
    silence = np.zeros(RATE_HZ)
    assert jump(silence, 5000) == 0.0
    assert seams(silence, silence, [5000])["num_clicks"] == 0
    assert end_noise(silence) == {"rms_ratio": None, "step_ratio": None}


def test_noise_at_the_end_is_seen() -> None:
    audio = tone()
    assert end_noise(audio)["rms_ratio"] == pytest.approx(1.0, abs=0.01)
    audio[-400:] += 0.5 * np.random.default_rng(2).standard_normal(400)
    noisy = end_noise(audio)
    assert noisy["rms_ratio"] > 1.3
    assert noisy["step_ratio"] > 10.0
