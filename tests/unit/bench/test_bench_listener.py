import itertools
import random

import pytest

pytest.importorskip("torch")

from bench.engine.listener import Listener
from bench.engine.phone import burst, most_sustained, poisson
from bench.engine.phone_load import Tally, figures

pytestmark = pytest.mark.unit


def test_plays_in_real_time_from_the_first_piece_on() -> None:
    listener = Listener(opened_ms=100.0)
    assert listener.first_audio_ms() is None
    listener.got(350.0, 840.0)
    assert listener.first_audio_ms() == 250.0
    assert listener.played_ms(350.0) == 0.0
    assert listener.played_ms(750.0) == 400.0
    assert listener.played_ms(9000.0) == 840.0


def test_a_piece_in_time_is_slack_and_no_deficit() -> None:
    listener = Listener(opened_ms=0.0)
    listener.got(100.0, 500.0)
    listener.got(400.0, 1000.0)
    assert listener.slacks_ms == [200.0]
    assert listener.worst_deficit_ms == 0.0
    assert listener.dry_ms == 1600.0


def test_late_pieces_add_up_to_the_worst_deficit() -> None:
    listener = Listener(opened_ms=0.0)
    listener.got(0.0, 100.0)
    listener.got(150.0, 100.0)
    assert listener.worst_deficit_ms == 50.0
    listener.got(280.0, 100.0)
    assert listener.slacks_ms == [-50.0, -30.0]
    assert listener.worst_deficit_ms == 80.0
    assert listener.dry_ms == 380.0


def test_one_who_waits_at_the_end_counts_what_is_owed() -> None:
    listener = Listener(opened_ms=0.0)
    assert listener.waited_ms(500.0) == 0.0
    listener.got(0.0, 100.0)
    assert listener.waited_ms(300.0) == 200.0
    listener.ended()
    assert listener.waited_ms(300.0) == 0.0


def test_takes_what_it_can_hold() -> None:
    listener = Listener(opened_ms=0.0, hold_ms=1000.0)
    listener.got(0.0, 3000.0)
    assert listener.report(0.0) == (1000.0, 1000.0)
    assert listener.report(500.0) == (1500.0, 1000.0)
    assert listener.report(2900.0) == (3000.0, 100.0)


def test_has_heard_all_when_done_and_dry() -> None:
    listener = Listener(opened_ms=0.0)
    listener.got(0.0, 100.0)
    assert not listener.has_heard_all(100.0)
    listener.ended()
    assert not listener.has_heard_all(99.0)
    assert listener.has_heard_all(100.0)


def test_figures_count_underruns_by_their_size() -> None:
    tally = Tally(wall_ms=2000.0, busy_ms=500.0, audio_ms=4000.0)
    for deficit in (0.0, 10.0, 70.0, 150.0):
        listener = Listener(opened_ms=0.0)
        listener.got(100.0, 100.0)
        listener.worst_deficit_ms = deficit
        tally.heard.append(listener)
    result = figures(tally)
    assert result["underrun_rate"] == {
        "any": 0.75,
        "over_20_ms": 0.5,
        "over_60_ms_jitter_buffer": 0.5,
        "over_100_ms": 0.25,
    }
    assert (result["busy_share"], result["audio_s_per_s"], result["worst_deficit_ms"]) == (0.25, 2.0, 150.0)
    assert result["first_audio_ms"]["p50"] == 100.0


def test_figures_of_nobody() -> None:
    result = figures(Tally())
    assert result["sentences"] == 0
    assert result["underrun_rate"]["any"] is None


def cell(p95: float, underruns: float, refused: int) -> dict[str, object]:
    return {"first_audio_ms": {"p95": p95}, "underrun_rate": {"any": underruns}, "refused": refused}


def test_the_headline_is_the_most_calls_without_fault() -> None:
    cells = {
        "1": cell(50.0, 0.0, 0),
        "64": cell(290.0, 0.0, 0),
        "128": cell(290.0, 0.01, 0),
        "256": cell(200.0, 0.0, 3),
    }
    assert most_sustained(cells | {"512": "memory holds 300 streams"}, 300.0) == 64
    assert most_sustained({"1": cell(300.0, 0.0, 0)}, 300.0) == 0
    assert most_sustained({"1": {"first_audio_ms": {"n": 0}, "underrun_rate": {"any": None}, "refused": 0}}, 300.0) == 0


def test_poisson_arrivals_are_as_many_as_keep_so_many_busy() -> None:
    callers = poisson(10, 600_000.0, random.Random(1))
    assert len(callers) == pytest.approx(1000, rel=0.1)
    assert not any(caller.speaks_on for caller in callers)
    assert all(a.next_ms < b.next_ms for a, b in itertools.pairwise(callers))


def test_a_burst_is_at_one_instant() -> None:
    assert {caller.next_ms for caller in burst(5)} == {0.0}
