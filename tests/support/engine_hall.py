"""An engine over the fake device, with listeners who hear its streams in virtual time."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cc_tts.engines.cosyvoice.engine.capacity import StageCost, StageCosts
from cc_tts.engines.cosyvoice.engine.config import EngineConfig
from cc_tts.engines.cosyvoice.engine.engine import LOAD_REPORT_INTERVAL_MS, Engine
from cc_tts.engines.engine_core import StepOut, StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from tests.fakes.fake_device import FakeCosts, FakeDevice, FakeFront
from tests.fakes.fake_line import FakeClock

BYTES_PER_MS: Final = 48
MAX_STEPS: Final = 100_000
MAX_VAIN_STEPS: Final = 1
"""A text without a word is passed over, or the end of a text is noted, and nobody outside sees that."""


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
    """Opens streams, steps and listens."""

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
        self.by_seed: dict[int, int] = {}
        """The streams by the seeds of their first texts."""
        self.num_vain = 0
        """Steps that the engine asked for and that did nothing, since the last news from outside."""

    def open(
        self, stream_id: int, *texts: str, voice: str = "anna", speed: float = 1.0, end: bool = True, reads: bool = True
    ) -> Heard:
        self.engine.open(StreamRequest(stream_id=stream_id, voice=voice, speed=speed))
        heard = self.heard[stream_id] = Heard(is_reading=reads)
        self.by_seed[self.front.seed(voice, texts[0] if texts else "")] = stream_id
        self.num_vain = 0
        for index, text in enumerate(texts):
            self.engine.push(stream_id, text, index)
        if end:
            self.engine.end(stream_id)
        return heard

    def step(self) -> Sequence[StepOut]:
        """One step; its outs are heard. Nothing comes of it when the engine says that there is nothing to do, and the engine
        does not ask for steps in vain.
        """
        has_work, before = self.engine.has_work, self._trace()
        outs = self.engine.step()
        did_work = bool(outs) or self._trace() != before
        assert has_work or not did_work, "the engine said that there was nothing to do"
        self.num_vain = 0 if did_work else self.num_vain + has_work
        assert self.num_vain <= MAX_VAIN_STEPS, "the engine asks for steps in which nothing happens"
        for out in outs:
            self._hear(out)
        return outs

    def _trace(self) -> object:
        """What a step changes, as it is seen from outside."""
        device = self.device
        return len(device.calls), device.under_way, tuple(device.slots), self.front.num_calls, self.clock.at_ns

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
        """Step until there is one; the streams that it is for, which were opened with different texts."""
        while self.device.under_way is None:
            self.step()
        return [self.by_seed[self.device.slots[slot].seed] for slot in self.device.under_way.slots]

    def take(self, stream_id: int) -> None:
        """The listener's side takes all it was given, of which it plays in real time."""
        heard = self.heard[stream_id]
        now_ms = self.clock.at_ns / 1e6
        self.engine.taken(stream_id, heard.sent_ms, max(0.0, heard.dry_ms - now_ms))

    def check_empty(self) -> None:
        self.clock.advance(LOAD_REPORT_INTERVAL_MS)
        load = self.engine.load_report()
        assert not self.engine.has_work
        assert (load.num_streams, load.slots_used, load.pages_used) == (0, 0, 0)
        assert not self.device.slots

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


def words(rng: random.Random, num_words: int) -> str:
    return " ".join("".join(rng.choices("abcdefgh", k=4)) for _ in range(num_words))


def alone(*texts: str, voice: str = "anna", speed: float = 1.0, **config: Any) -> bytes:
    hall = Hall(**config)
    heard = hall.open(0, *texts, voice=voice, speed=speed)
    hall.run()
    assert heard.done == [StreamDone(0)]
    hall.check_empty()
    return heard.pcm
