"""Whatever comes when, of whomever: each stream ends once, says what it would say alone, and nothing is left."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_tts.engines.engine_core import StreamDone
from cc_tts.errors import EngineOverloaded
from tests.fakes.fake_device import FakeCosts
from tests.support.engine_hall import Hall, alone, words

pytestmark = pytest.mark.unit


@dataclass
class Said:
    voice: str
    speed: float
    texts: list[str] = field(default_factory=list)
    has_ended: bool = False
    is_cancelled: bool = False


class Traffic:
    """Random events between random numbers of steps. ``Hall.step`` checks ``has_work``."""

    def __init__(self, seed: int, *, interleaved: bool, overlaps: bool) -> None:
        self.rng = rng = random.Random(seed)
        num_slots = rng.randint(1, 10)
        self.config = {"interleaved": interleaved, "first_hop_tokens": rng.choice([10, 25])}
        costs = FakeCosts(lm_step_ms=rng.uniform(0.5, 10.0), call_ms=rng.uniform(2.0, 200.0))
        self.hall = Hall(
            num_slots=num_slots,
            max_streams=rng.randint(1, num_slots),
            num_pages=rng.choice([8, 20, 500]),
            admits_all=rng.random() < 0.5,
            costs=costs,
            overlaps=overlaps,
            **self.config,
        )
        self.said: dict[int, Said] = {}

    def event(self) -> None:
        rng, hall = self.rng, self.hall
        hall.num_vain = 0
        running = [each for each, said in self.said.items() if not said.is_cancelled and not hall.heard[each].done]
        action = rng.choice(["open", "open", "push", "push", "push", "end", "cancel", "wait", "deaf", "take"])
        if action == "open":
            self._open()
        elif action == "wait":
            hall.clock.advance(rng.uniform(0.0, 400.0))
        elif running:
            self._change(action, rng.choice(running))

    def _open(self) -> None:
        stream_id = len(self.said)
        said = Said(self.rng.choice(["anna", "ben", "cleo"]), self.rng.choice([1.0, 1.0, 1.25]))
        try:
            self.hall.open(stream_id, voice=said.voice, speed=said.speed, end=False)
        except EngineOverloaded:
            return
        self.said[stream_id] = said

    def _change(self, action: str, stream_id: int) -> None:
        hall, said = self.hall, self.said[stream_id]
        if action == "push":
            text = self.rng.choice(["", "...", "mute", words(self.rng, self.rng.randint(1, 25))])
            hall.engine.push(stream_id, text, len(said.texts))
            if not said.has_ended:
                said.texts.append(text)
        elif action == "end":
            hall.engine.end(stream_id)
            said.has_ended = True
        elif action == "cancel":
            hall.engine.cancel(stream_id)
            said.is_cancelled = True
        elif action == "deaf":
            hall.heard[stream_id].is_reading = False
        else:
            hall.heard[stream_id].is_reading = True
            hall.take(stream_id)

    def finish(self) -> None:
        hall = self.hall
        hall.num_vain = 0
        for stream_id, said in self.said.items():
            hall.engine.end(stream_id)
            hall.heard[stream_id].is_reading = True
            if not said.is_cancelled:
                hall.take(stream_id)
        hall.run()
        hall.check_empty()


@pytest.mark.parametrize("overlaps", [False, True], ids=["in turns", "overlapping"])
@pytest.mark.parametrize("interleaved", [False, True])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_each_stream_ends_once_and_says_what_it_would_say_alone(
    seed: int, *, interleaved: bool, overlaps: bool
) -> None:
    traffic = Traffic(seed, interleaved=interleaved, overlaps=overlaps)
    hall = traffic.hall
    for _ in range(40):
        traffic.event()
        for _ in range(traffic.rng.randint(0, 5)):
            hall.step()
        hall.engine.load_report()
    traffic.finish()
    for stream_id, said in traffic.said.items():
        heard = hall.heard[stream_id]
        if said.is_cancelled:
            assert not heard.done
            continue
        (done,) = heard.done
        expected = alone(*said.texts, voice=said.voice, speed=said.speed, **traffic.config)
        if done.error is None:
            assert done == StreamDone(stream_id)
            assert heard.pcm == expected
        else:
            assert isinstance(done.error, EngineOverloaded), done.error  # its voice had no place
            assert hall.device.num_pages < 100
            assert expected.startswith(heard.pcm)
