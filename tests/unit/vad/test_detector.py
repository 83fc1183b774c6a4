"""Many legs through one model, which is made up: a window is speech if it is as loud as the test says."""

from typing import Any, cast

import numpy as np
import pytest

from cc_tts.vad.detector import WINDOW_NS, LegAudio, VoiceDetector
from cc_tts.vad.messages import SpeechEdge
from cc_tts.vad.silero import Floats, Memory
from cc_tts.vad.speech import Edge, Listening, SpeechStarted, SpeechStopped

pytestmark = pytest.mark.unit

RATE_HZ = 8000
FRAME = 160
FRAME_NS = 20_000_000
T0_NS = 10**12
LOUD = 0.2
SOFT_NOISE = 0.0001


class LoudnessModel:
    """Calls a window speech if it is loud and not the hum of :data:`HUM`. Each call is written down."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.memories: list[int] = []
        self.counts: list[float] = []  # of windows that the memory of the first one has
        self.probability = 1.0

    def probabilities(self, windows: list[tuple[Memory, Floats]]) -> list[float]:
        self.batches.append(len(windows))
        assert len({id(memory) for memory, _ in windows}) == len(windows), "a leg comes once in a batch"
        self.memories += [id(memory.state) for memory, _ in windows]
        for memory, _ in windows:
            memory.state = memory.state + 1
        self.counts.append(float(windows[0][0].state.max()))
        return [self.probability if np.abs(samples).max() > LOUD / 2 else 0.0 for _, samples in windows]


class Bench:
    """A detector and the time."""

    def __init__(self) -> None:
        self.model = LoudnessModel()
        self.detector = VoiceDetector(cast("Any", self.model), RATE_HZ)
        self.now_ns = T0_NS
        self.found: list[SpeechEdge] = []

    def listen(self, *legs: str, **listening: Any) -> None:
        for leg in legs:
            self.detector.listen(leg, Listening(**listening))

    def run(self, ms: int, levels: dict[str, float], *, sent: float | None = None) -> list[SpeechEdge]:
        """So much audio of each leg at its amplitude; returns the edges in it."""
        edges: list[SpeechEdge] = []
        for _ in range(ms // 20):
            frames = [LegAudio(leg, False, self.now_ns, square(level)) for leg, level in levels.items()]
            if sent is not None:
                frames += [LegAudio(leg, True, self.now_ns, square(sent)) for leg in levels]
            edges += self.detector.push(frames)
            self.now_ns += FRAME_NS
        self.found += edges
        return edges

    def ms(self, at_ns: int) -> float:
        return (at_ns - T0_NS) / 1e6


def square(amplitude: float) -> bytes:
    wave = np.full(FRAME, amplitude * 32767)
    wave[1::2] *= -1
    return wave.astype("<i2").tobytes()


def kinds(edges: list[SpeechEdge]) -> list[tuple[str, type[Edge]]]:
    return [(each.leg, type(each.edge)) for each in edges]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_speech_of_each_leg_is_its_own(bench: Bench) -> None:
    bench.listen("a", "b")
    bench.run(1000, {"a": SOFT_NOISE, "b": SOFT_NOISE})
    assert kinds(bench.run(1000, {"a": LOUD, "b": SOFT_NOISE})) == [("a", SpeechStarted)]
    found = bench.run(1000, {"a": SOFT_NOISE, "b": LOUD})
    assert kinds(found) == [("b", SpeechStarted), ("a", SpeechStopped)]
    (started, _, stopped) = bench.found
    assert bench.ms(started.edge.onset_ns) == pytest.approx(1000, abs=WINDOW_NS / 1e6)
    assert isinstance(stopped.edge, SpeechStopped)
    assert bench.ms(stopped.edge.end_ns) == pytest.approx(2000, abs=WINDOW_NS / 1e6)


def test_the_model_judges_all_legs_at_once_and_none_that_is_silent(bench: Bench) -> None:
    legs = [f"leg{number}" for number in range(10)]
    bench.listen(*legs)
    bench.run(1000, dict.fromkeys(legs, SOFT_NOISE))
    assert bench.model.batches == []
    bench.run(640, dict.fromkeys(legs, LOUD))
    assert set(bench.model.batches) == {10}


def test_the_model_hears_what_came_just_before(bench: Bench) -> None:
    bench.listen("a")
    bench.run(960, {"a": SOFT_NOISE})
    bench.run(320, {"a": LOUD})
    assert len(bench.model.batches) == 10 + 3


def test_audio_of_others_is_ignored(bench: Bench) -> None:
    bench.listen("a")
    assert bench.run(1000, {"b": LOUD}) == []
    bench.run(1000, {"a": LOUD})
    bench.detector.ignore("a")
    bench.detector.ignore("a")
    assert bench.run(1000, {"a": SOFT_NOISE}) == []


def test_other_parameters_count_from_then_on(bench: Bench) -> None:
    bench.listen("a", min_speech_ms=5000)
    bench.run(500, {"a": SOFT_NOISE})
    assert bench.run(1000, {"a": LOUD}) == []
    bench.listen("a", min_speech_ms=1200)
    assert kinds(bench.run(500, {"a": LOUD})) == [("a", SpeechStarted)]
    assert bench.ms(bench.found[0].edge.onset_ns) == pytest.approx(500, abs=WINDOW_NS / 1e6)


def test_the_threshold_is_that_of_the_leg_and_lower_in_speech(bench: Bench) -> None:
    bench.listen("a", threshold=0.8)
    bench.run(500, {"a": SOFT_NOISE})
    bench.model.probability = 0.7
    assert bench.run(1000, {"a": LOUD}) == []
    bench.model.probability = 0.9
    assert kinds(bench.run(400, {"a": LOUD})) == [("a", SpeechStarted)]
    bench.model.probability = 0.7
    assert bench.run(1000, {"a": LOUD}) == []
    bench.model.probability = 0.6
    assert kinds(bench.run(1000, {"a": LOUD})) == [("a", SpeechStopped)]


def test_the_model_forgets_after_two_seconds_of_a_tone(bench: Bench) -> None:
    bench.listen("a")
    bench.model.probability = 0.0
    bench.run(6400, {"a": LOUD})
    assert bench.model.counts[-1] < 2200 / 32, "it was begun anew less than about two seconds ago"


def test_lost_frames_are_a_gap(bench: Bench) -> None:
    bench.listen("a")
    bench.run(500, {"a": SOFT_NOISE})
    bench.run(200, {"a": LOUD})
    bench.now_ns += 5_000_000_000
    assert bench.run(240, {"a": LOUD}) == [], "two halves are not speech of five seconds"
    found = bench.run(200, {"a": LOUD})
    assert kinds(found) == [("a", SpeechStarted)]
    assert bench.ms(found[0].edge.onset_ns) == pytest.approx(5700, abs=WINDOW_NS / 1e6)


def test_speech_that_is_cut_off_stops_when_the_audio_goes_on(bench: Bench) -> None:
    bench.listen("a")
    bench.run(500, {"a": SOFT_NOISE})
    bench.run(500, {"a": LOUD})
    bench.now_ns += 5_000_000_000
    bench.run(500, {"a": LOUD})
    assert [type(each.edge) for each in bench.found] == [SpeechStarted, SpeechStopped, SpeechStarted]


def test_frames_that_come_a_little_unevenly_are_no_gap(bench: Bench) -> None:
    bench.listen("a")
    bench.run(500, {"a": SOFT_NOISE})
    for number in range(25):
        jitter_ns = (number % 3 - 1) * 8_000_000
        bench.found += bench.detector.push([LegAudio("a", False, bench.now_ns + jitter_ns, square(LOUD))])
        bench.now_ns += FRAME_NS
    assert [type(each.edge) for each in bench.found] == [SpeechStarted]


def test_the_echo_of_a_prompt_is_not_the_caller(bench: Bench) -> None:
    bench.listen("a")
    bench.run(500, {"a": SOFT_NOISE}, sent=0.0)
    bench.model.probability = 1.0
    assert bench.run(3000, {"a": LOUD / 1.9}, sent=0.99) == []
    assert kinds(bench.run(1000, {"a": 0.4}, sent=0.99)) == [("a", SpeechStarted)]
