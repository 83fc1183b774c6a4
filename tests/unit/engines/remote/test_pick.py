"""Which worker an utterance goes to."""

import random
from collections import Counter
from typing import Any

import pytest

from cc_tts.engines.engine_core import EngineLoad
from cc_tts.engines.remote.pick import WorkerCapacity, capacity_of, pick, tiers

pytestmark = pytest.mark.unit

CALLS = [f"call_{number:016x}" for number in range(4000)]


def capacity(generation: str = "1.0.0", **changes: Any) -> WorkerCapacity:
    values: dict[str, Any] = {"first_audio_ms": 100.0, "utilisation": 0.5, "room": 10}
    return WorkerCapacity(generation=generation, **(values | changes))


def picked(
    capacities: dict[str, WorkerCapacity], weights: dict[str, float] | None = None, keys: list[str] = CALLS
) -> Counter[str]:
    """How many of the keys each worker gets."""
    rng = random.Random(7)
    return Counter(str(pick(capacities, key=key, weights=weights or {}, rng=rng)) for key in keys)


def load(**changes: Any) -> EngineLoad:
    values: dict[str, Any] = {"num_streams": 4, "first_audio_ms": 80.0, "utilisation": 0.2, "room": 16}
    return EngineLoad(**(values | changes))


# --- the worker ---


def test_streams_opened_since_the_report_count() -> None:
    assert capacity_of(load(), num_opened=0, generation="1") == WorkerCapacity("1", 80.0, 0.2, 16)
    then = capacity_of(load(), num_opened=2, generation="1")
    assert (then.first_audio_ms, then.room) == (120.0, 14)
    assert then.utilisation == pytest.approx(0.3)
    assert capacity_of(load(), num_opened=17, generation="1").room == 0
    assert capacity_of(load(utilisation=1.2, room=0), num_opened=1, generation="1").utilisation == 1.2


def test_the_worker_that_speaks_a_tick_sooner_is_better_whatever_its_utilisation() -> None:
    assert picked({"a": capacity(first_audio_ms=80.0, utilisation=0.8), "b": capacity()}) == {"a": len(CALLS)}


def test_predictions_within_a_tick_are_equal_and_utilisation_decides() -> None:
    assert picked({"a": capacity(first_audio_ms=80.1, utilisation=0.6), "b": capacity()}) == {"b": len(CALLS)}


def test_equal_workers_get_equal_shares() -> None:
    assert picked({"a": capacity(), "b": capacity()})["a"] == pytest.approx(len(CALLS) / 2, rel=0.1)


def test_idle_workers_share_a_burst_before_their_next_report() -> None:
    loads = {"a": load(num_streams=0, first_audio_ms=15.0), "b": load(num_streams=0, first_audio_ms=15.4)}
    num_opened = dict.fromkeys(loads, 0)
    rng = random.Random(7)
    for call in CALLS[:20]:
        capacities = {name: capacity_of(loads[name], num_opened=num_opened[name], generation="1") for name in loads}
        num_opened[str(pick(capacities, key=call, weights={}, rng=rng))] += 1
    assert num_opened == {"a": 10, "b": 10}


def test_of_many_workers_two_are_compared() -> None:
    capacities = {name: capacity(first_audio_ms=100.0 * place) for place, name in enumerate("abcde")}
    assert picked(capacities).keys() == set("abcd")  # the worst of all is never the better of two


def test_a_worker_without_free_capacity_is_left_out() -> None:
    assert picked({"a": capacity(room=0), "b": capacity(first_audio_ms=900.0)}) == {"b": len(CALLS)}
    assert picked({"a": capacity(room=0)}) == picked({}) == {"None": len(CALLS)}


# --- the generation ---


def test_the_newest_version_gets_all_and_older_ones_what_it_cannot_take() -> None:
    old, new = capacity("1.9.0"), capacity("1.10.0", first_audio_ms=900.0)
    assert picked({"old": old, "new": new}) == {"new": len(CALLS)}
    assert picked({"old": old, "new": capacity("1.10.0", room=0)}) == {"old": len(CALLS)}
    assert picked({"old": old}) == {"old": len(CALLS)}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("0.9.1", "0.10.0"),
        ("1.2", "1.2.1"),
        ("1.3.0-rc1", "1.3.0"),
        ("1.3.0rc1", "1.3.0rc2"),
        ("1.3.0", "1.3.0.post1"),
        ("1.3.0.post1", "1.3.1.dev1"),
        ("1.3.0.dev4", "1.3.0a1"),
        ("v1.3.0", "v1.3.1"),
        ("20261124", "20261125"),
        ("blue", "0.0.1"),
    ],
)
def test_what_is_newer(older: str, newer: str) -> None:
    assert tiers({older, newer}, {}, "") == tiers({newer, older}, {}, "") == [{newer}, {older}]


@pytest.mark.parametrize("alike", [{"blue", "green", ""}, {"1.3", "1.3.0", "v1.3.0+local.1"}])
def test_what_has_no_order_is_used_alike(alike: set[str]) -> None:
    assert tiers(alike, {}, "") == [alike]


def test_a_canary_gets_its_share_of_the_calls_and_the_same_ones_every_time() -> None:
    capacities = {"old": capacity("1.0.0"), "new": capacity("1.1.0")}
    assert picked(capacities, {"1.1.0": 0.05})["new"] == pytest.approx(0.05 * len(CALLS), rel=0.2)
    first = {call for call in CALLS if tiers({"1.0.0", "1.1.0"}, {"1.1.0": 0.05}, call)[0] == {"1.1.0"}}
    more = {call for call in CALLS if tiers({"1.0.0", "1.1.0"}, {"1.1.0": 0.2}, call)[0] == {"1.1.0"}}
    assert first < more
    assert tiers({"1.0.0", "1.1.0"}, {"1.1.0": 0.05}, "call_1") == [{"1.0.0"}, {"1.1.0"}]  # on every machine


def test_a_generation_that_cannot_take_its_share_leaves_it_to_the_other() -> None:
    weights = {"1.1.0": 0.05}
    for gone in ({"new": capacity("1.1.0", room=0), "old": capacity("1.0.0")}, {"old": capacity("1.0.0")}):
        assert picked(gone, weights) == {"old": len(CALLS)}
    for gone in ({"new": capacity("1.1.0"), "old": capacity("1.0.0", room=0)}, {"new": capacity("1.1.0")}):
        assert picked(gone, weights) == {"new": len(CALLS)}


def test_labels_get_what_the_setting_says() -> None:
    capacities = {"blue": capacity("blue"), "green": capacity("green")}
    assert picked(capacities, {"green": 1.0}) == {"green": len(CALLS)}
    assert picked(capacities, {"green": 0.0}) == {"blue": len(CALLS)}
    assert picked(capacities, {"green": 0.3, "blue": 0.7})["green"] == pytest.approx(0.3 * len(CALLS), rel=0.1)


def test_a_share_of_nothing_is_asked_last() -> None:
    assert tiers({"1", "2", "3", "4"}, {"4": 0.0, "2": 0.0, "3": 0.0001}, "call_1") == [{"1"}, {"3"}, {"4"}, {"2"}]
