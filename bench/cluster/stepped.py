"""A worker with the real engine on the simulated H200 of ``bench.engine.simulated``. Wants torch."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.cluster.workers import REPORT_INTERVAL_MS, WINDOW_MS, Answer, Key, Reply, Text, Worker
from bench.cluster.world import MS_PER_S, World
from bench.engine.front import sized_text
from bench.engine.listener import Listener
from bench.engine.simulated import BYTES_PER_FRAME, FixedClock, Simulated
from cc_tts.clock import NS_PER_MS
from cc_tts.engines.cosyvoice2.engine.capacity import EngineSnapshot
from cc_tts.engines.cosyvoice2.engine.engine import Engine
from cc_tts.engines.engine_core import SpeechOut, StepOut, StreamRequest
from cc_tts.engines.worker.messages import StreamAudio, StreamEnded, StreamFailed
from cc_tts.errors import CcTtsError, EngineFailed

MAX_STREAMS: Final = 256
OWN_MS: Final = 0.1
OWN_EACH_MS: Final = 0.01
"""The engine's own work in a step, and for each stream in it (``engine_simulated.json``)."""
MS_PER_BYTE: Final = 20.0 / BYTES_PER_FRAME


@dataclass(slots=True)
class Attempt:
    """A request as the engine found it, and when its first audio came."""

    came_ms: float
    snapshot: EngineSnapshot
    predicted_ms: float
    first_audio_ms: float = math.nan
    """From its coming; not a number for one that was refused or not heard."""


class SteppedWorker(Worker):
    """See :class:`bench.cluster.workers.Worker`; its machine is never lost."""

    def __init__(self, world: World, name: str, generation: str, *, folder: Path) -> None:
        super().__init__(world, name, generation)
        self.attempts: list[Attempt] = []
        self._clock = FixedClock()
        simulated = Simulated(folder, self._clock)
        self._voice_id = next(iter(simulated.speakers))
        self._device = simulated.device(MAX_STREAMS)
        self._engine = simulated.engine(self._device, Engine, MAX_STREAMS, target_ms=300.0)
        self._ids: dict[Key, int] = {}
        self._streams: dict[int, tuple[Key, Reply, Listener, Attempt]] = {}
        self._numbers = itertools.count(1)
        self._waiting: list[tuple[float, Key, list[Text], Reply]] = []
        self._is_busy = False
        self.load = self._engine.load_report()
        world.after(world.random(name).uniform(0.0, REPORT_INTERVAL_MS), self._report)

    def take(self, key: Key, texts: list[Text], reply: Reply) -> None:
        """See the contract."""
        self._waiting.append((self._world.now_ms, key, texts, reply))
        self._wake()

    def cancel(self, key: Key) -> None:
        """See the contract; a request that waits for the end of a step is spoken all the same."""
        if (number := self._ids.pop(key, None)) is not None:
            del self._streams[number]
            self._engine.cancel(number)

    def taken(self, key: Key, taken_ms: float, ahead_ms: float | None) -> None:
        """Listeners who play in real time are kept here instead."""

    def fail(self) -> None:
        """Not here."""
        raise NotImplementedError

    def come_back(self) -> None:
        """Not here."""
        raise NotImplementedError

    def _wake(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            self._world.after(0.0, self._turn)

    def _turn(self) -> None:
        """What came, then one step, whose end is when the device is done."""
        now_ms = self._world.now_ms
        self._clock.rest(now_ms - self._clock.now_ns() / NS_PER_MS)
        for came_ms, key, texts, reply in self._waiting:
            self._open(self._attempt(came_ms), key, texts, reply)
        self._waiting.clear()
        if not self._engine.has_work:
            self._is_busy = False
            return
        self._clock.rest(OWN_MS + OWN_EACH_MS * self._device.num_used)
        outs = self._engine.step()
        self._world.at(self._clock.now_ns() / NS_PER_MS, self._give, outs)

    def _attempt(self, came_ms: float) -> Attempt:
        engine = self._engine
        snapshot = engine._snapshot(self._voice_id)  # noqa: SLF001 - what admission is about to look at
        attempt = Attempt(came_ms, snapshot, engine._capacity.first_audio_ms(snapshot))  # noqa: SLF001
        self.attempts.append(attempt)
        return attempt

    def _open(self, attempt: Attempt, key: Key, texts: list[Text], reply: Reply) -> None:
        number = next(self._numbers)
        try:
            self._engine.open(StreamRequest(number, self._voice_id))
        except CcTtsError as error:
            self.num_refused += 1
            reply(key[1], [(StreamFailed(key[1], error.code, error.detail, error.retry_after_s), 0.0)])
            return
        self.num_taken += 1
        for length_ms, index in texts:
            self._engine.push(number, sized_text(length_ms / MS_PER_S, number), index)
        self._engine.end(number)
        self._ids[key] = number
        self._streams[number] = key, reply, Listener(attempt.came_ms, hold_ms=WINDOW_MS), attempt

    def _give(self, outs: Sequence[StepOut]) -> None:
        now_ms = self._world.now_ms
        for out in outs:
            if out.stream_id not in self._streams:
                continue
            key, reply, listener, attempt = self._streams[out.stream_id]
            answers: list[Answer]
            if isinstance(out, SpeechOut):
                audio_ms = len(out.pcm) * MS_PER_BYTE
                listener.got(now_ms, audio_ms)
                attempt.first_audio_ms = listener.first_audio_ms() or math.nan
                answers = [(StreamAudio(key[1], out.text_chunk_index), audio_ms)]
            else:
                del self._streams[out.stream_id], self._ids[key]
                error = out.error
                answers = [(StreamEnded(key[1]) if error is None else StreamFailed(key[1], EngineFailed.code, ""), 0.0)]
            reply(key[1], answers)
        self._turn()

    def _report(self) -> None:
        now_ms = self._world.now_ms
        for number, (_, _, listener, _) in self._streams.items():
            if listener.first_ms is not None:
                self._engine.taken(number, *listener.report(now_ms))
        self.load = self._engine.load_report()
        self.num_reports += 1
        self.reported_ms = now_ms
        self._world.after(REPORT_INTERVAL_MS, self._report)
        self._wake()
