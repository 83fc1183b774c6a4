"""One run: servers, workers and calls, of which a part of the workers is lost and comes back, and what came of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Final

from bench.cluster.callers import Call, Conversation, Tally
from bench.cluster.servers import Server
from bench.cluster.workers import EngineModel, ModelWorker, Worker
from bench.cluster.world import MS_PER_S, World
from bench.engine.figures import spread
from cc_tts.audio import PTIME_MS
from cc_tts.engines.remote.connection import MAX_MISSED_PINGS, PING_INTERVAL_S
from lab.server import Json

SAMPLE_MS: Final = 1000.0
BIN_S: Final = 5.0
LOW: Final = 0.7
"""Calls at the begin and the end of the busy hour, as a share of those in its middle."""
OLD, NEW = "1.0.0", "1.1.0"
"""Generations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated."""

    servers: int = 50
    workers: int = 40
    calls: int = 10_000
    """At once, in the middle."""
    minutes: float = 10.0
    is_flat: bool = False
    """As many calls from the begin to the end."""
    seed: int = 1
    lost_share: float = 0.1
    away_s: float = 60.0
    canary_share: float = 0.05
    tenants: tuple[tuple[str, float], ...] = (("", 1.0),)
    """Names, and their shares of the calls."""
    is_fair: bool = False
    """Tenants are configured, with equal weights."""
    warm_up_s: float = 20.0
    """After the begin, not counted."""
    talk: Conversation = field(default_factory=Conversation)

    @property
    def until_ms(self) -> float:
        """The end."""
        return 60_000.0 * self.minutes

    def num_calls(self, at_ms: float) -> float:
        """How many calls there are to be."""
        share = 1.0 if self.is_flat else LOW + (1.0 - LOW) * math.sin(math.pi * at_ms / self.until_ms)
        return self.calls * share


@dataclass(slots=True)
class Sample:
    """The cluster at an instant."""

    at_s: float
    num_calls: int
    num_listening: int
    streams: list[int]
    """Open in each worker that is up."""
    utilisations: list[float]


MakeWorker = Callable[[World, str, str], Worker]
"""With its name and its generation."""


def of_model(model: EngineModel) -> MakeWorker:
    """Workers with such engines."""
    return lambda world, name, generation: ModelWorker(world, name, generation, model=model)


class Cluster:
    """A run; the event loop must be there, and gets no turn."""

    def __init__(self, scenario: Scenario, make_worker: MakeWorker) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed)
        self.tally = Tally()
        self.samples: list[Sample] = []
        self.num_calls = 0
        num_canaries = round(scenario.canary_share * scenario.workers)
        self.workers: list[Worker] = [
            make_worker(self.world, f"worker {number}", NEW if number < num_canaries else OLD)
            for number in range(scenario.workers)
        ]
        weights = {NEW: scenario.canary_share} if num_canaries else {}
        tenants = [name for name, _ in scenario.tenants] if scenario.is_fair else []
        self.servers = [
            Server(self.world, number, self.workers, weights, tenants) for number in range(scenario.servers)
        ]
        self.lost_at_ms: float | None = None
        self._draw = self.world.random("calls")

    async def run(self) -> None:
        """All of it."""
        scenario, world = self.scenario, self.world
        for server in self.servers:
            await server.engine.start()
        for _ in range(round(scenario.num_calls(0.0))):
            self._call(self._draw.uniform(0.0, MS_PER_S * 2.0 * scenario.talk.pause_median_s))
        world.after(0.0, self._arrive)
        world.after(SAMPLE_MS, self._sample)
        if scenario.lost_share:
            world.at(scenario.until_ms / 2, self._lose)
        world.run(scenario.until_ms)
        for server in self.servers:
            server.close()

    def _call(self, first_prompt_ms: float) -> None:
        """A call at the server that has the fewest, as a dispatcher by load places it."""
        server = min(self.servers, key=lambda each: each.num_calls)
        self.num_calls += 1
        talk = self.scenario.talk
        names, shares = zip(*self.scenario.tenants, strict=True)
        draw = self.world.random(f"call {self.num_calls}")
        tenant = self.world.random(f"tenant of call {self.num_calls}").choices(names, shares)[0]
        call = Call(f"call_{self.num_calls}", tenant, server, self.tally, talk=talk, draw=draw)
        self.world.after(first_prompt_ms, call.speak)
        self.world.after(MS_PER_S * self._draw.expovariate(1.0 / talk.mean_call_s), call.hang_up)

    def _arrive(self) -> None:
        """The calls of the next tenth of a second: as many as end, and as the profile rises."""
        scenario, now_ms, step_ms = self.scenario, self.world.now_ms, 100.0
        rise = scenario.num_calls(now_ms + step_ms) - scenario.num_calls(now_ms)
        expected = max(0.0, rise + scenario.num_calls(now_ms) * step_ms / (MS_PER_S * scenario.talk.mean_call_s))
        at_ms = self._draw.expovariate(1.0)
        while at_ms < expected:
            self.world.after(at_ms / expected * step_ms, self._call, 0.0)
            at_ms += self._draw.expovariate(1.0)
        self.world.after(step_ms, self._arrive)

    def _lose(self) -> None:
        """A tenth of the machines with workers vanish: nothing is closed, and pings stay unanswered."""
        self.lost_at_ms = self.world.now_ms
        count = round(self.scenario.lost_share * len(self.workers))
        pings = self.world.random("pings")
        for worker in pings.sample(self.workers, count):
            worker.fail()
            self.world.after(MS_PER_S * self.scenario.away_s, worker.come_back)
            for server in self.servers:
                process = next(each for each in server.processes if each.worker is worker)
                noticed_ms = MS_PER_S * PING_INTERVAL_S * pings.uniform(MAX_MISSED_PINGS, MAX_MISSED_PINGS + 1)
                self.world.after(noticed_ms, server.lose, process)
                again_ms = MS_PER_S * (self.scenario.away_s + pings.uniform(0.0, 5.0))  # BACKOFF_MAX_S
                self.world.after(again_ms, process.come_back)

    def _sample(self) -> None:
        loads = [worker.load for worker in self.workers if worker.is_up]
        self.samples.append(
            Sample(
                at_s=self.world.now_ms / MS_PER_S,
                num_calls=sum(server.num_calls for server in self.servers),
                num_listening=self.tally.num_listening,
                streams=[load.num_streams for load in loads],
                utilisations=[load.utilisation for load in loads],
            )
        )
        self.world.after(SAMPLE_MS, self._sample)

    def report(self) -> Json:
        """What came of it, without the warm-up where it is about time."""
        tally, warm_ms = self.tally, MS_PER_S * self.scenario.warm_up_s
        first = list(zip(tally.asked_at_ms, tally.first_audio_ms, tally.servers, strict=True))
        counted = [entry for entry in first if entry[0] >= warm_ms]
        samples = [sample for sample in self.samples if sample.at_s * MS_PER_S >= warm_ms]
        canary = [worker.num_taken for worker in self.workers if worker.generation == NEW]
        per_worker = [worker.num_taken for worker in self.workers]
        lost_at_ms = self.lost_at_ms if self.lost_at_ms is not None else math.inf
        away_until_ms = lost_at_ms + MS_PER_S * (self.scenario.away_s + 5.0)
        away = [ms for at_ms, ms, _ in counted if lost_at_ms <= at_ms < away_until_ms]
        others = [ms for at_ms, ms, _ in counted if not lost_at_ms <= at_ms < away_until_ms]
        return {
            "calls": self.num_calls,
            "most_calls_at_once": max(sample.num_calls for sample in samples),
            "most_listening_at_once": max(sample.num_listening for sample in samples),
            "utterances": tally.asked,
            "utterances_per_s": round(len(counted) / ((self.scenario.until_ms - warm_ms) / MS_PER_S), 1),
            "endings": {str(ending): count for ending, count in tally.endings.items()},
            "asked_again": tally.asked_again,
            "refused_by_a_worker": sum(worker.num_refused for worker in self.workers),
            "wrong_lengths": tally.wrong_lengths,
            "first_audio_ms": spread([ms for _, ms, _ in counted]),
            "first_audio_ms_with_all_workers": spread(others),
            "first_audio_ms_while_workers_are_away": spread(away),
            "loss": {
                "workers": round(self.scenario.lost_share * len(self.workers)),
                "utterances_under_way_there": tally.lost,
                "gap_ms_of_those_heard_before": spread(list(tally.gaps_ms)),
                "without_a_gap": sum(1 for gap_ms in tally.gaps_ms if gap_ms == 0.0),
                "had_come_whole": sum(1 for cut_ms in tally.cut_ms if cut_ms < PTIME_MS),
                "left_out_ms_of_those_cut_short": spread([each for each in tally.cut_ms if each >= PTIME_MS]),
                "first_audio_ms_of_those_not_heard_before": spread(list(tally.waits_ms)),
            },
            "canary": {
                "workers": len(canary),
                "wanted_share": self.scenario.canary_share,
                "share_of_streams": round(sum(canary) / max(1, sum(per_worker)), 4),
            },
            "load": {
                "streams_per_worker": spread([count for sample in samples for count in sample.streams]),
                "utilisation": spread([each for sample in samples for each in sample.utilisations], 3),
                "variation_between_workers": round(fmean(map(_variation, (each.streams for each in samples))), 4),
                "streams_taken_by_a_worker": {"least": min(per_worker), "most": max(per_worker)},
            },
            "fairness_between_servers": self._fairness(counted),
            "tenants": {
                name: {
                    "utterances": each.asked,
                    "refused_share": round(each.refused / max(1, each.asked), 4),
                    "first_audio_ms": spread(list(each.first_audio_ms)),
                }
                for name, each in tally.tenants.items()
            },
        }

    def _fairness(self, counted: Sequence[tuple[float, float, int]]) -> Json:
        by_server: list[list[float]] = [[] for _ in self.servers]
        for _, ms, server in counted:
            by_server[server].append(ms)
        refused = [self.tally.refused_servers.count(number) for number in range(len(self.servers))]
        means = [fmean(values) for values in by_server if values]
        shares = [count / max(1, count + len(values)) for count, values in zip(refused, by_server, strict=True)]
        served = [1.0 - share for share in shares]
        return {
            "mean_first_audio_ms": {"least": round(min(means), 2), "most": round(max(means), 2)},
            "refused_share": {"least": round(min(shares), 4), "most": round(max(shares), 4)},
            "jain_index_of_served_shares": round(sum(served) ** 2 / (len(served) * sum(each**2 for each in served)), 5),
        }

    def timeline(self) -> Json:
        """For the plot: by :data:`BIN_S`."""
        num_bins = math.ceil(self.scenario.until_ms / MS_PER_S / BIN_S)
        first: list[list[float]] = [[] for _ in range(num_bins)]
        refused = [0] * num_bins
        for at_ms, ms in zip(self.tally.asked_at_ms, self.tally.first_audio_ms, strict=True):
            first[int(at_ms / MS_PER_S / BIN_S)].append(ms)
        for at_ms in self.tally.refused_at_ms:
            refused[int(at_ms / MS_PER_S / BIN_S)] += 1
        rows = []
        for number, values in enumerate(first):
            begin_s = number * BIN_S
            samples = [each for each in self.samples if begin_s <= each.at_s < begin_s + BIN_S]
            if not samples or not values:
                continue
            streams = [count for each in samples for count in each.streams]
            quantiles = spread(values, 1)
            rows.append(
                {
                    "at_s": begin_s,
                    "calls": round(fmean(each.num_calls for each in samples)),
                    "listening": round(fmean(each.num_listening for each in samples)),
                    "p50": quantiles["p50"],
                    "p95": quantiles["p95"],
                    "p99": quantiles["p99"],
                    "streams_least": min(streams),
                    "streams_mean": round(fmean(streams), 1),
                    "streams_most": max(streams),
                    "workers": len(samples[0].streams),
                    "refused": refused[number],
                }
            )
        return {"rows": rows, "bin_s": BIN_S}


def _variation(counts: Sequence[int]) -> float:
    """The standard deviation between workers over their mean."""
    mean = fmean(counts) if counts else 0.0
    return pstdev(counts) / mean if mean else 0.0
