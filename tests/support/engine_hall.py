"""An engine over the fake device, with listeners who hear its streams in virtual time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cc_tts.engines.cosyvoice.engine.capacity import StageCost, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import Engine
from cc_tts.engines.engine_core import StepOut, StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from tests.fakes.fake_device import FakeCosts, FakeDevice, FakeFront
from tests.fakes.fake_line import FakeClock

BYTES_PER_MS: Final = 48
MAX_STEPS: Final = 100_000


@dataclass
class Heard:
    is_reading: bool = True
    pieces: list[tuple[float, SpeechChunk]] = field(default_factory=list)
    """With the instant, ms."""
    done: list[StreamDone] = field(default_factory=list)
    dry_ms: float = 0.0

    @property
    def pcm(self) -> bytes:
        return b"".join(out.data for _, out in self.pieces)

    @property
    def sent_ms(self) -> float:
        return len(self.pcm) / BYTES_PER_MS


class Hall:
    """Opens streams, steps, listens, and looks after each step whether anything was left behind."""

    def __init__(
        self,
        *,
        num_slots: int = 8,
        num_pages: int = 1000,
        costs: FakeCosts | None = None,
        overlaps: bool = False,
        **config: Any,
    ) -> None:
        config = {"max_streams": num_slots, "admits_all": True, "overlaps": overlaps, **config}
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock, num_slots=num_slots, num_pages=num_pages, costs=costs, overlaps=overlaps)
        fake = self.device.costs
        self.costs = StageCosts(
            prefill=StageCost(fake.start_ms),
            lm_step=StageCost(fake.lm_step_ms),
            flow=StageCost(0.8 * fake.call_ms),
            vocoder=StageCost(0.2 * fake.call_ms),
        )
        self.front = FakeFront()
        self.engine = Engine(
            self.device, self.front, self.costs, EngineConfig(**config), typical_voice="anna", clock=self.clock
        )
        self.heard: dict[int, Heard] = {}
        self.now_ms = 0.0

    def open(
        self, stream_id: int, *texts: str, voice: str = "anna", speed: float = 1.0, end: bool = True, reads: bool = True
    ) -> Heard:
        self.engine.open(StreamRequest(stream_id=stream_id, voice=voice, speed=speed))
        heard = self.heard[stream_id] = Heard(is_reading=reads)
        for index, text in enumerate(texts):
            self.engine.push(stream_id, text, index)
        if end:
            self.engine.end(stream_id)
        return heard

    def step(self) -> Sequence[StepOut]:
        """One step, which must do something exactly if the engine says so; its outs are heard."""
        has_work, before = self.engine.has_work, fingerprint(self)
        outs = self.engine.step()
        did_work = bool(outs) or fingerprint(self) != before
        assert did_work == has_work, f"has_work {has_work}, but the step did {'something' if did_work else 'nothing'}"
        for out in outs:
            self._hear(out)
        self.check()
        return outs

    def run(self, *, max_steps: int = MAX_STEPS) -> None:
        for _ in range(max_steps):
            if not self.engine.has_work:
                return
            self.step()
        raise AssertionError("the engine never rests")

    def play(self, ms: float) -> None:
        """Step for so long; when there is nothing to do, time passes."""
        end_ns = self.clock.at_ns + int(ms * 1e6)
        while self.clock.at_ns < end_ns:
            if self.engine.has_work:
                self.step()
            else:
                self.clock.advance(5.0)

    def until_a_call_is_under_way(self) -> list[int]:
        """Step until there is one; the streams that it is for."""
        while self.device.under_way is None:
            self.step()
        slots = self.device.under_way.slots
        streams = {each.slot: each.stream.stream_id for each in self.engine._table.sequences.values()}
        return [streams[slot] for slot in slots]

    @property
    def is_sampling(self) -> bool:
        return bool(self.engine._executor.lm_candidates())

    def owes_audio(self, stream_id: int) -> bool:
        """Whether the clock of a stream runs on, so that its next piece has a time."""
        return not self.engine._table.streams[stream_id].owes_nothing

    def take(self, stream_id: int) -> None:
        """The listener's side takes all it was given, of which it plays in real time."""
        heard = self.heard[stream_id]
        now_ms = self.clock.at_ns / 1e6
        self.engine.taken(stream_id, heard.sent_ms, max(0.0, heard.dry_ms - now_ms))

    def check(self) -> None:
        table = self.engine._table
        slots = {each.slot for each in table.sequences.values()}
        assert len(slots) == len(table.sequences)
        assert set(self.device.slots) <= slots
        assert not slots & set(table.free_slots)
        assert len(slots) + len(self.engine._table.free_slots) == self.device.num_slots
        assert sum(len(each.sequences) for each in table.streams.values()) == len(slots)
        num_owed = self.engine._config.max_streams - sum(1 for stream in table.streams.values() if stream.sequences)
        assert len(self.engine._table.free_slots) >= num_owed, "a stream without the slot it is owed"

    def check_empty(self) -> None:
        self.check()
        assert not self.engine.has_work
        assert not self.engine._table.streams
        assert not self.engine._table.sequences
        assert not self.device.slots
        assert len(self.engine._table.free_slots) == self.device.num_slots
        assert self.device.num_free_pages == self.device.num_pages

    def _hear(self, out: StepOut) -> None:
        heard = self.heard[out.stream_id]
        assert not heard.done, "something came after the end"
        if isinstance(out, StreamDone):
            heard.done.append(out)
            return
        now_ms = self.clock.at_ns / 1e6
        heard.pieces.append((now_ms, out))
        heard.dry_ms = max(heard.dry_ms, now_ms) + len(out.data) / BYTES_PER_MS
        if heard.is_reading:
            self.take(out.stream_id)


def fingerprint(hall: Hall) -> object:
    table = hall.engine._table
    sequences = [
        (
            each.key,
            len(each.tokens),
            each.num_given,
            each.prefill is None,
            each.is_sampling,
            each.is_sampled,
            each.takes_text,
        )
        for each in table.sequences.values()
    ]
    texts = [(stream_id, len(stream.texts), stream.held_text) for stream_id, stream in table.streams.items()]
    waited_ns = (
        0 if hall.device.under_way is None else hall.clock.at_ns
    )  # a step may wait for a call, and do nothing else
    return len(hall.device.calls), sequences, texts, hall.device.under_way, waited_ns


def words(rng: random.Random, num_words: int) -> str:
    return " ".join("".join(rng.choices("abcdefgh", k=4)) for _ in range(num_words))


def alone(*texts: str, voice: str = "anna", speed: float = 1.0, **config: Any) -> bytes:
    hall = Hall(**config)
    heard = hall.open(0, *texts, voice=voice, speed=speed)
    hall.run()
    assert heard.done == [StreamDone(0)]
    hall.check_empty()
    return heard.pcm
