"""A small cluster in virtual time: nothing is lost or counted twice, and the same seed gives the same figures."""

from collections import Counter
from dataclasses import asdict, replace

import pytest

from bench.cluster import plot
from bench.cluster.callers import Ending
from bench.cluster.simulation import Cluster, Scenario, of_model
from bench.cluster.workers import EngineModel
from cc_tts.engines.remote import pick

pytestmark = pytest.mark.unit

SMALL = Scenario(
    servers=3, workers=6, calls=300, minutes=0.3, is_flat=True, lost_share=0.0, canary_share=0.0, warm_up_s=6.0
)


async def run(scenario: Scenario) -> Cluster:
    cluster = Cluster(scenario, of_model(EngineModel.of_results()))
    await cluster.run()
    return cluster


async def test_each_utterance_ends_once_or_is_under_way() -> None:
    cluster = await run(SMALL)
    tally = cluster.tally
    assert sum(tally.endings.values()) + tally.num_open == tally.asked
    assert tally.endings[Ending.HEARD] > 300
    assert tally.wrong_lengths == 0
    assert sum(worker.load.num_streams for worker in cluster.workers) <= tally.num_open
    assert sum(worker.num_taken for worker in cluster.workers) == tally.asked


async def test_the_same_seed_gives_the_same_figures() -> None:
    scenario = replace(SMALL, minutes=0.2, lost_share=0.2, away_s=4.0)
    first, again, other = [(await run(each)).report() for each in (scenario, scenario, replace(scenario, seed=2))]
    assert first == again
    assert first != other


async def test_the_better_of_two_spreads_streams_more_evenly_than_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = replace(SMALL, calls=900)
    of_two = (await run(scenario)).report()["load"]["variation_between_workers"]
    monkeypatch.setattr(pick, "NUM_COMPARED", 1)
    by_chance = (await run(scenario)).report()["load"]["variation_between_workers"]
    assert of_two < 0.8 * by_chance


async def test_a_lost_worker_ends_no_utterance_and_is_used_again() -> None:
    cluster = await run(replace(SMALL, lost_share=1 / 6, away_s=3.0))
    tally, lost = cluster.tally, min(cluster.workers, key=lambda worker: worker.num_taken)
    assert tally.lost > 0
    assert tally.endings[Ending.FAILED] == tally.endings[Ending.REFUSED] == 0
    assert len(tally.gaps_ms) + len(tally.waits_ms) > 0
    assert max(tally.first_audio_ms) < 2500.0  # three pings of half a second, and the fourth look
    assert lost.load.num_streams > 0
    assert sum(tally.endings.values()) + tally.num_open == tally.asked


async def test_a_canary_gets_the_calls_of_its_share() -> None:
    report = (await run(replace(SMALL, canary_share=1 / 6))).report()
    assert report["canary"]["workers"] == 1
    assert report["canary"]["share_of_streams"] == pytest.approx(1 / 6, abs=0.06)


async def test_workers_that_cannot_take_all_refuse_some_and_every_server_is_served() -> None:
    cluster = await run(replace(SMALL, workers=1, calls=900, minutes=0.2))
    report = cluster.report()
    assert report["endings"]["refused"] > 0
    assert report["fairness_between_servers"]["jain_index_of_served_shares"] > 0.98
    assert Counter(cluster.tally.servers).keys() == {0, 1, 2}


async def test_tenants_are_counted_by_themselves() -> None:
    cluster = await run(replace(SMALL, tenants=(("campaign", 0.8), ("desk", 0.2)), is_fair=True))
    found = cluster.report()["tenants"]
    assert found["campaign"]["utterances"] + found["desk"]["utterances"] == cluster.tally.asked
    assert found["campaign"]["utterances"] > 2 * found["desk"]["utterances"] > 0


async def test_the_plot_has_a_panel_each_and_finite_coordinates() -> None:
    cluster = await run(SMALL)
    image = plot.busy_hour({"scenario": asdict(SMALL), "timeline": cluster.timeline()})
    assert image.count("<polyline") == 6
    assert image.count('class="name"') == 3
    assert "nan" not in image
    assert plot.even_ticks(3.0, 33.0) == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert plot.log_ticks(76.0, 1340.0) == [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]
    assert plot.apart([3.0, 3.0, 60.0]) == [3.0, 20.0, 60.0]
