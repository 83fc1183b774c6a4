"""Speech workers: the engine's own admission and load report, over a model of how fast it speaks.

::

    take ─▸ Capacity.admit ─▸ waits for its first audio ─▸ shares the device with the others ─▸ ended

``bench.cluster.calibrate`` took the model (:class:`EngineModel`) from the real engine on the simulated H200: how first
audio compares with its prediction, and how much time the most urgent listener has left, by the number of streams. From
their first audio on the streams share what the device can make (``Capacity.utilisation``).
"""

import functools
import heapq
import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.cluster.world import World
from bench.engine.costs import simulated_costs
from bench.report import RESULTS
from cc_tts.engines.cosyvoice2.engine.capacity import Capacity, EngineSnapshot, StageCosts
from cc_tts.engines.cosyvoice2.engine.config import EngineConfig
from cc_tts.engines.cosyvoice2.engine.sequence import MAX_AHEAD_MS
from cc_tts.engines.engine_core import EngineLoad
from cc_tts.engines.worker.messages import StreamAudio, StreamEnded, StreamFailed
from cc_tts.errors import EngineOverloaded
from cc_tts.processes.channel import Message
from lab.server import Json

REPORT_INTERVAL_MS: Final = 100.0
FIRST_PIECE_MS: Final = 320.0
"""Audio of a first hop (engine/schedule.py)."""
WINDOW_MS: Final = 1000.0
"""Audio that a server has sent ahead to the line (``playout.window_ms``)."""
NUM_PAGES: Final = 829
"""Of an H200 (``engine_simulated.json``). A page holds a second of speech."""
PAGES_EACH: Final = 8

Key = tuple[int, int]
"""Of a stream in a worker: the server, and its number there."""
Text = tuple[float, int]
"""The length of a text chunk in speech, ms, and its index."""
Answer = tuple[Message, float]
"""A message to a server, with the length of its audio, ms."""
Reply = Callable[[int, list[Answer]], None]


class Worker(ABC):
    """One worker as servers notice it."""

    load: EngineLoad

    def __init__(self, world: World, name: str, generation: str) -> None:
        self.name = name
        self.generation = generation
        self.is_up = True
        self.num_reports = 0
        self.reported_ms = 0.0
        self.num_taken = 0
        self.num_refused = 0
        self._world = world

    @abstractmethod
    def take(self, key: Key, texts: list[Text], reply: Reply) -> None:
        """A request came."""

    @abstractmethod
    def cancel(self, key: Key) -> None:
        """Free a stream."""

    @abstractmethod
    def taken(self, key: Key, taken_ms: float, ahead_ms: float | None) -> None:
        """The listener's side reports."""

    @abstractmethod
    def fail(self) -> None:
        """Its machine is lost, with what was under way. What was sent before still arrives."""

    @abstractmethod
    def come_back(self) -> None:
        """It is there again, and empty."""


@dataclass(slots=True, eq=False)
class _Stream:
    stream_id: int
    texts: list[Text]
    reply: Reply
    length_ms: float
    given_ms: float = 0.0
    begin_ms: float = 0.0
    """What the clock of made audio showed at the first piece."""
    first_at_ms: float = math.inf
    is_over: bool = False

    def give(self, upto_ms: float) -> list[Answer]:
        """The audio up to there, a message a text chunk."""
        pieces: list[Answer] = []
        begin_ms = 0.0
        for length_ms, index in self.texts:
            new_ms = min(begin_ms + length_ms, upto_ms) - max(begin_ms, self.given_ms)
            if new_ms > 0.0:
                pieces.append((StreamAudio(self.stream_id, index), new_ms))
            begin_ms += length_ms
        self.given_ms = max(self.given_ms, upto_ms)
        return pieces


class EngineModel:
    """How an engine behaves with so many open streams. Each list is by that number.

    ``factors``: first audio over its prediction, the median of a log-normal distribution, with ``sigmas``. ``spares_ms``:
    by how much the next audio of the most urgent listener will be in time, normally distributed with
    ``spare_deviations_ms``. ``rows``: what the language model computes. ``positions_each``: to be prefilled, of each stream
    that has not been heard.
    """

    def __init__(self, table: Json) -> None:
        counts = range(EngineConfig().max_streams + 1)
        points = table["points"]

        def column(name: str) -> list[float]:
            at = [point["streams"] for point in points]
            return [float(each) for each in np.interp(counts, at, [point[name] for point in points])]

        self.factors = column("factor")
        self.sigmas = column("sigma")
        self.spares_ms = column("spare_ms")
        self.spare_deviations_ms = column("spare_deviation_ms")
        self.rows = [max(count, round(rows)) for count, rows in zip(counts, column("rows"), strict=True)]
        self.positions_each = float(table["positions_each"])

    @classmethod
    def of_results(cls) -> "EngineModel":
        """The one that is kept with the results."""
        return cls(json.loads((RESULTS / "cluster_engine.json").read_text(encoding="utf-8")))


class ModelWorker(Worker):
    """See :class:`Worker`."""

    def __init__(self, world: World, name: str, generation: str, *, model: EngineModel) -> None:
        super().__init__(world, name, generation)
        self._config = EngineConfig()
        self._capacity = Capacity(self._config, _costs())
        self._rates = _rates()
        self._model = model
        self._draw = world.random(name)
        self._serials = itertools.count()
        self._empty()
        world.after(self._draw.uniform(0.0, REPORT_INTERVAL_MS), self._report_again)

    def take(self, key: Key, texts: list[Text], reply: Reply) -> None:
        """See the contract."""
        if not self.is_up:
            return
        snapshot = self._snapshot()
        if (refusal := self._capacity.admit(snapshot)) is not None:
            self.num_refused += 1
            reply(key[1], [(StreamFailed(key[1], EngineOverloaded.code, refusal.reason, snapshot.retry_after_s), 0.0)])
            return
        self.num_taken += 1
        factor = self._model.factors[snapshot.num_streams]
        factor *= self._draw.lognormvariate(0.0, self._model.sigmas[snapshot.num_streams])
        wait_ms = factor * self._capacity.first_audio_ms(snapshot)
        stream = self._streams[key] = _Stream(key[1], texts, reply, sum(length_ms for length_ms, _ in texts))
        self._num_pending += 1
        self._num_pages += _pages(stream.length_ms)
        self._world.after(wait_ms, self._first, key, stream)

    def cancel(self, key: Key) -> None:
        """See the contract."""
        stream = self._streams.pop(key, None)
        if stream is not None:
            self._free(stream)

    def taken(self, key: Key, taken_ms: float, ahead_ms: float | None) -> None:
        """The model takes every listener for one who plays in real time."""

    def fail(self) -> None:
        """See the contract."""
        self._pass()
        for stream in self._streams.values():
            if stream.first_at_ms < math.inf:
                made_ms = FIRST_PIECE_MS + self._made_ms - stream.begin_ms
                if pieces := stream.give(min(made_ms, stream.length_ms)):
                    stream.reply(stream.stream_id, pieces)
            stream.is_over = True
        self.is_up = False

    def come_back(self) -> None:
        """See the contract."""
        self._capacity = Capacity(self._config, _costs())
        self.is_up = True
        self._empty()

    def _empty(self) -> None:
        self._streams: dict[Key, _Stream] = {}
        self._num_pending = 0
        self._num_pages = 0
        self._num_making = 0
        self._made_ms = 0.0
        """Audio that each stream under way has got of the device: a clock of made audio."""
        self._made_at_ms = self._world.now_ms
        self._making: list[tuple[float, int, Key, _Stream]] = []
        """By what that clock shows when they are made."""
        self._plan = getattr(self, "_plan", 0) + 1
        self._report()

    def _first(self, key: Key, stream: _Stream) -> None:
        if stream.is_over:
            return
        self._pass()
        self._num_pending -= 1
        self._num_making += 1
        stream.first_at_ms, stream.begin_ms = self._world.now_ms, self._made_ms
        made_ms = self._made_ms + max(0.0, stream.length_ms - FIRST_PIECE_MS)
        heapq.heappush(self._making, (made_ms, next(self._serials), key, stream))
        stream.reply(key[1], stream.give(min(FIRST_PIECE_MS, stream.length_ms)))
        self._plan_next()

    def _pass(self) -> None:
        """Bring the clock of made audio up to now."""
        now_ms = self._world.now_ms
        self._made_ms += (now_ms - self._made_at_ms) * self._rates[min(self._num_making, len(self._rates) - 1)]
        self._made_at_ms = now_ms

    def _plan_next(self) -> None:
        self._plan += 1
        while self._making and self._making[0][3].is_over:
            heapq.heappop(self._making)
        if self._making:
            left_ms = self._making[0][0] - self._made_ms
            rate = self._rates[min(self._num_making, len(self._rates) - 1)]
            self._world.after(max(0.0, left_ms) / rate, self._made, self._plan)

    def _made(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._pass()
        while self._making and (self._making[0][3].is_over or self._making[0][0] <= self._made_ms + 1e-6):
            _, _, key, stream = heapq.heappop(self._making)
            if not stream.is_over:
                self._num_making -= 1
                # what is further ahead of its listener is not asked for yet
                self._world.at(stream.first_at_ms + stream.length_ms - MAX_AHEAD_MS - WINDOW_MS, self._end, key, stream)
        self._plan_next()

    def _end(self, key: Key, stream: _Stream) -> None:
        if stream.is_over:
            return
        stream.is_over = True
        self._num_pages -= _pages(stream.length_ms)
        del self._streams[key]
        stream.reply(key[1], [*stream.give(stream.length_ms), (StreamEnded(key[1]), 0.0)])

    def _free(self, stream: _Stream) -> None:
        """Of a stream that is not spoken to its end."""
        self._pass()
        if stream.first_at_ms == math.inf:
            self._num_pending -= 1
        elif any(each[3] is stream for each in self._making):
            self._num_making -= 1
        stream.is_over = True
        self._num_pages -= _pages(stream.length_ms)
        self._plan_next()

    def _snapshot(self) -> EngineSnapshot:
        model, num_streams = self._model, len(self._streams)
        return EngineSnapshot(
            num_streams=num_streams,
            num_first_pending=self._num_pending,
            spare_ms=self._draw.gauss(model.spares_ms[num_streams], model.spare_deviations_ms[num_streams]),
            num_lm_rows=model.rows[num_streams],
            pending_positions=round(self._num_pending * model.positions_each),
            num_free_pages=NUM_PAGES - self._num_pages,
            pages_each=PAGES_EACH,
        )

    def _report_again(self) -> None:
        self._world.after(REPORT_INTERVAL_MS, self._report_again)
        if self.is_up:
            self._report()

    def _report(self) -> None:
        snapshot = self._snapshot()
        refusal = self._capacity.refusal(snapshot)
        self.load = EngineLoad(
            num_streams=snapshot.num_streams,
            first_audio_ms=round(self._capacity.first_audio_ms(snapshot), 1),
            utilisation=round(self._capacity.utilisation(snapshot.num_streams), 4),
            room=self._capacity.free_capacity(snapshot),
            refusal=refusal.reason if refusal else "",
            retry_after_s=snapshot.retry_after_s,
        )
        self.num_reports += 1
        self.reported_ms = self._world.now_ms


def _pages(length_ms: float) -> int:
    return math.ceil(length_ms / 1000.0)


@functools.cache
def _costs() -> StageCosts:
    """Shared: nothing is learnt in a simulation."""
    return simulated_costs()


@functools.cache
def _rates() -> list[float]:
    """How much audio each of so many streams gets of the device in the time that it takes to hear one."""
    capacity = Capacity(EngineConfig(), _costs())
    return [1.0 / capacity.utilisation(max(1, count)) for count in range(EngineConfig().max_streams + 1)]
