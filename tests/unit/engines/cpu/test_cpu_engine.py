"""The scheduling of the engine of the CPU, with a voice that speaks when the test lets it."""

import queue
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.cpu.contract import Found, FoundModel, Parts, SentenceAudio, Synthesiser
from cc_tts.engines.cpu.engine import MAX_AHEAD_MS, CpuEngine
from cc_tts.engines.cpu.networks import pcm_of
from cc_tts.engines.cpu.sample_texts import SAMPLES, sample_of
from cc_tts.engines.engine_core import StepOut, StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.errors import ConfigError, EngineFailed, EngineOverloaded, UnknownVoice
from cc_tts.voices.voice import Voice
from tests.fakes.fake_line import FakeClock
from tests.support.captured_logs import capture_logs

pytestmark = [pytest.mark.unit, pytest.mark.timeout(20)]

RATE_HZ = 8000
WAIT_S = 10.0


SIXTY_CHARACTERS = "text " * 12


class HeldVoice:
    """Speaks one second of audio for each sentence (``|`` parts them), when the test releases it."""

    rate_hz = RATE_HZ

    def __init__(self, clock: FakeClock, cost_s: float) -> None:
        self._clock = clock
        self.cost_s = cost_s
        self.asked: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.released: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.num_left = 0
        """Chunks that nobody listened to until the end."""

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        said = text.split("|")
        for number, sentence in enumerate(said, 1):
            if text not in sample_of("en"):
                self.asked.put(sentence)
                self.released.get(timeout=WAIT_S)
            if sentence == "broken":
                raise RuntimeError(sentence)
            self._clock.advance(1000 * self.cost_s)
            pcm = pcm_of(np.full(round(RATE_HZ / speed), 0.5, np.float32))
            try:
                yield SentenceAudio(pcm, "", is_last=number == len(said))
            except GeneratorExit:
                self.num_left += number < len(said)
                raise


def settings(**limits: Any) -> WorkerSettings:
    return WorkerSettings(device="cpu", tts=TtsConfig(num_threads=1, **limits), log=LogConfig())


class Hall:
    """An engine with one such voice, and what it gave out."""

    def __init__(self, *, cost_s: float = 0.01, **limits: Any) -> None:
        self.clock = FakeClock()
        self.voice = HeldVoice(self.clock, cost_s)
        self._news = threading.Semaphore(0)
        found = FoundModel((Voice("anna", "onnx", "en-US", rate_hz=RATE_HZ),), lambda: self.voice)
        self.engine = CpuEngine(
            settings(**limits), clock=self.clock, wake=self._news.release, find_models=lambda _folder: [found]
        )
        self.engine.load(lambda _what: None)

    def speak(self, stream_id: int, *texts: str, end: bool = True) -> None:
        self.engine.open(StreamRequest(stream_id=stream_id, voice="anna"))
        for index, text in enumerate(texts):
            self.engine.push(stream_id, text, index)
        if end:
            self.engine.end(stream_id)

    def asked(self) -> str:
        """What the voice is asked to speak next."""
        return self.voice.asked.get(timeout=WAIT_S)

    def release(self) -> None:
        self.voice.released.put(None)

    def outs(self, num: int) -> list[StepOut]:
        """As many things as are expected."""
        found: list[StepOut] = []
        while len(found) < num:
            assert self._news.acquire(timeout=WAIT_S)
            found += self.engine.step()
        return found


@pytest.fixture
def hall() -> Iterator[Hall]:
    made = Hall()
    yield made
    for _ in range(20):
        made.release()
    made.engine.close()


def test_a_stream_is_spoken_in_order_and_ends(hall: Hall) -> None:
    hall.speak(1, "one|two", "three")
    said = []
    for _ in range(3):
        said.append(hall.asked())
        hall.release()
    outs = hall.outs(4)
    assert said == ["one", "two", "three"]
    assert [out.text_chunk_index for out in outs if isinstance(out, SpeechChunk)] == [0, 0, 1]
    assert isinstance(outs[0], SpeechChunk)
    assert np.frombuffer(outs[0].data, "<i2")[0] == 16383
    assert outs[3] == StreamDone(1)
    assert hall.engine.load_report().num_streams == 0


def test_the_listener_who_runs_dry_first_is_served_first(hall: Hall) -> None:
    for stream_id in (1, 2):
        hall.speak(stream_id, f"first of {stream_id}", f"second of {stream_id}")
    assert hall.asked() == "first of 1"
    hall.release()
    assert hall.asked() == "first of 2"
    hall.clock.advance(100)
    hall.engine.taken(1, 1000, 900)
    hall.engine.taken(2, 0, 0)
    hall.release()
    hall.outs(2)
    hall.engine.taken(2, 1000, 300)
    assert hall.asked() == "second of 1"  # it was free while nobody knew how long the other has
    hall.release()
    assert hall.asked() == "second of 2"


def test_a_new_stream_waits_for_one_that_is_about_to_run_dry(hall: Hall) -> None:
    hall.speak(1, "blocks the thread")
    hall.asked()
    hall.speak(2, "begins", "goes on")
    hall.release()
    assert hall.asked() == "begins"
    hall.speak(3, "is new")
    hall.engine.taken(2, 0, 0)
    hall.release()
    hall.outs(3)
    assert hall.asked() == "is new"  # its target comes before the second of audio that the other holds
    hall.engine.taken(2, 1000, 10)
    hall.release()
    assert hall.asked() == "goes on"


def test_a_first_part_comes_before_the_later_parts_of_a_chunk_that_was_begun(hall: Hall) -> None:
    hall.speak(1, "begins|goes on|and ends")
    assert hall.asked() == "begins"
    hall.speak(2, "is new")
    hall.release()
    assert hall.asked() == "is new"
    hall.release()
    assert hall.asked() == "goes on"


def test_audio_that_comes_after_its_listener_ran_dry_is_an_underrun_unless_there_was_no_text(hall: Hall) -> None:
    hall.speak(1, "first", end=False)
    hall.asked()
    hall.release()
    hall.outs(1)
    hall.clock.advance(5000)
    hall.engine.push(1, "late text", 1)
    hall.engine.push(1, "late audio", 2)
    hall.asked()
    hall.release()
    assert hall.asked() == "late audio"
    assert hall.engine.load_report().num_underruns == 0
    hall.clock.advance(5000)
    hall.release()
    hall.outs(2)
    assert hall.engine.load_report().num_underruns == 1


def test_no_more_is_made_than_the_listener_will_soon_take(hall: Hall) -> None:
    hall.speak(1, *["a second"] * 9)
    for _ in range(round(MAX_AHEAD_MS / 1000)):
        hall.asked()
        hall.release()
    hall.outs(round(MAX_AHEAD_MS / 1000))
    assert hall.voice.asked.empty()
    hall.engine.taken(1, 1000, None)
    assert hall.asked() == "a second"


def test_a_cancelled_stream_gives_nothing_more(hall: Hall) -> None:
    hall.speak(1, "dropped|never asked", "nor this")
    hall.asked()
    hall.engine.cancel(1)
    hall.speak(2, "next")
    hall.release()
    assert hall.asked() == "next"
    hall.release()
    assert {out.stream_id for out in hall.outs(2)} == {2}


def test_a_voice_is_left_where_the_stream_of_a_begun_chunk_is_cancelled(hall: Hall) -> None:
    hall.speak(1, "begins|never said")
    hall.asked()
    hall.speak(2, "is new")
    hall.release()
    hall.asked()
    hall.engine.cancel(1)
    assert hall.voice.num_left == 1
    hall.release()
    hall.outs(2)
    assert hall.voice.asked.empty()


def test_what_breaks_off_is_one_stream(hall: Hall) -> None:
    hall.speak(1, "broken")
    hall.speak(2, "whole")
    for _ in range(2):
        hall.asked()
        hall.release()
    outs = hall.outs(3)
    failed = next(out for out in outs if out.stream_id == 1)
    assert isinstance(failed, StreamDone)
    assert isinstance(failed.error, EngineFailed)
    assert outs[-1] == StreamDone(2)


def test_a_stream_without_text_ends_at_once(hall: Hall) -> None:
    hall.speak(1)
    assert list(hall.engine.step()) == [StreamDone(1)]


@pytest.mark.parametrize(
    ("cost_s", "limits", "num_taken"),
    [
        (0.01, {"max_streams": 3}, 3),
        (0.2, {"first_audio_target_ms": 60_000.0}, 4),
        (0.02, {"first_audio_target_ms": 130.0}, 5),
    ],
    ids=["slots", "utilisation", "first audio"],
)
def test_admission(cost_s: float, limits: dict[str, float], num_taken: int) -> None:
    hall = Hall(cost_s=cost_s, **limits)
    try:
        assert hall.engine.load_report().room == num_taken
        for stream_id in range(num_taken):
            hall.speak(stream_id, SIXTY_CHARACTERS, end=False)
        with pytest.raises(EngineOverloaded):
            hall.speak(99, "text")
        report = hall.engine.load_report()
        assert (report.room, report.num_streams) == (0, num_taken)
        assert report.refusal
    finally:
        hall.release()
        hall.engine.close()


def test_admission_counts_the_text_that_waits() -> None:
    hall = Hall(cost_s=0.02, first_audio_target_ms=130.0)
    try:
        hall.speak(1, 2 * SIXTY_CHARACTERS, end=False)
        assert hall.engine.load_report().room == 3
    finally:
        hall.release()
        hall.engine.close()


def spoken(hall: Hall, stream_id: int, *, cost_s: float) -> None:
    """Speak sixty characters, which take the voice so long."""
    hall.voice.cost_s = cost_s
    hall.speak(stream_id, SIXTY_CHARACTERS)
    hall.asked()
    hall.release()
    hall.outs(2)


def test_what_a_burst_cost_is_forgotten_while_nothing_is_spoken() -> None:
    """Other processes took the core meanwhile. Nobody is let in who could show that it is free again."""
    hall = Hall(cost_s=0.02)
    try:
        before = hall.engine.load_report().room
        for stream_id in range(10):
            spoken(hall, stream_id, cost_s=0.2)
        assert hall.engine.load_report().room < before / 4
        hall.clock.advance(3000)
        assert hall.engine.load_report().room >= 0.75 * before
    finally:
        hall.engine.close()


def test_a_voice_that_has_become_dearer_for_good_is_not_forgotten() -> None:
    hall = Hall(cost_s=0.02)
    try:
        before = hall.engine.load_report().room
        for stream_id in range(400):
            spoken(hall, stream_id, cost_s=0.06)
        hall.clock.advance(60_000)
        assert hall.engine.load_report().room < before / 2
    finally:
        hall.engine.close()


def test_a_chunk_that_is_nearly_made_hardly_delays_the_next_prompt() -> None:
    hall = Hall(cost_s=0.1)
    try:
        hall.speak(1, SIXTY_CHARACTERS)
        hall.asked()
        whole_ms = hall.engine.load_report().first_audio_ms
        hall.clock.advance(90)
        assert hall.engine.load_report().first_audio_ms == pytest.approx(whole_ms - 90, abs=1)
    finally:
        hall.release()
        hall.engine.close()


def test_an_unknown_voice_is_refused(hall: Hall) -> None:
    with pytest.raises(UnknownVoice):
        hall.engine.open(StreamRequest(stream_id=1, voice="nobody"))


def test_without_voices_it_does_not_start() -> None:
    engine = CpuEngine(settings(), clock=FakeClock(), wake=lambda: None, find_models=lambda _folder: [])
    with pytest.raises(ConfigError, match=r"tts\.voices_dir"):
        engine.load(lambda _what: None)


class Recorder:
    """Keeps the texts that it is asked to speak."""

    rate_hz = RATE_HZ

    def __init__(self) -> None:
        self.texts: list[str] = []

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        self.texts.append(text)
        yield SentenceAudio(pcm_of(np.full(round(RATE_HZ * len(text) / speed), 0.5, np.float32)), "")


def no_voice() -> Recorder:
    raise ConfigError("bad.onnx: not a model that onnxruntime can load")


def loaded(*found: Found) -> CpuEngine:
    engine = CpuEngine(settings(), clock=FakeClock(), wake=lambda: None, find_models=lambda _folder: found)
    engine.load(lambda _what: None)
    engine.close()
    return engine


@pytest.mark.parametrize(
    ("language", "sample"), [("zh", "zh"), ("cmn", "zh"), ("hi-IN", "hi"), ("de_DE", "de"), ("xx", "en")]
)
def test_a_voice_is_measured_in_its_own_language(language: str, sample: str) -> None:
    recorder = Recorder()
    loaded(FoundModel((Voice("li", "onnx", language, rate_hz=RATE_HZ),), lambda: recorder))
    assert tuple(recorder.texts) == SAMPLES[sample]


def test_a_voice_that_cannot_be_loaded_costs_itself_alone() -> None:
    voices = {name: Voice(name, "onnx", "en", rate_hz=RATE_HZ) for name in ("bad", "good")}
    with capture_logs() as lines:
        engine = loaded(FoundModel((voices["bad"],), no_voice), FoundModel((voices["good"],), Recorder))
    assert [voice.id for voice in engine.voices] == ["good"]
    (line,) = [line for line in lines if line["event"] == "voice_left_out"]
    assert (line["log_level"], line["voice"]) == ("error", "bad")
    assert "bad.onnx" in line["detail"]
    with pytest.raises(ConfigError, match=r"bad\.onnx"):
        loaded(FoundModel((voices["bad"],), no_voice))


class Mute:
    """Gives so many samples of silence for every text."""

    rate_hz = RATE_HZ

    def __init__(self, num_samples: int) -> None:
        self._samples = np.zeros(num_samples, np.float32)

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        yield SentenceAudio(pcm_of(self._samples), "")


@pytest.mark.parametrize("num_samples", [0, RATE_HZ])
def test_a_voice_of_which_nothing_is_heard_is_left_out(num_samples: int) -> None:
    voices = {name: Voice(name, "onnx", "en", rate_hz=RATE_HZ) for name in ("mute", "good")}
    engine = loaded(FoundModel((voices["mute"],), lambda: Mute(num_samples)), FoundModel((voices["good"],), Recorder))
    assert [voice.id for voice in engine.voices] == ["good"]
    assert engine.faults == (
        "mute: nothing is heard when it is to say 'Thank you for calling, how may I help you today?'",
    )


def test_models_that_came_or_went_are_found_without_a_new_start() -> None:
    clock, folder = FakeClock(), {}
    for name in ("anna", "bert"):
        folder[name] = FoundModel((Voice(name, "onnx", "en", rate_hz=RATE_HZ),), lambda: HeldVoice(clock, 0.01))
    there = ["anna"]
    engine = CpuEngine(
        settings(), clock=clock, wake=lambda: None, find_models=lambda _folder: [folder[name] for name in there]
    )
    engine.load(lambda _what: None)
    for now in (["anna", "bert"], ["bert"], ["anna", "bert"], []):
        there[:] = now
        done = threading.Event()
        engine.refresh(done.set)
        assert done.wait(WAIT_S)
        assert [voice.id for voice in engine.voices] == (now or ["anna", "bert"])
    engine.open(StreamRequest(1, "bert"))
    there[:] = ["anna"]
    done = threading.Event()
    engine.refresh(done.set)
    assert done.wait(WAIT_S)
    with pytest.raises(UnknownVoice):
        engine.open(StreamRequest(2, "bert"))
    assert engine.load_report().num_streams == 1
    engine.close()


class Paced:
    """Speaks four parts of a quarter of a second, each after a quarter of ``cost_s``."""

    rate_hz = RATE_HZ

    def __init__(self, clock: FakeClock, cost_s: float) -> None:
        self._clock = clock
        self._cost_s = cost_s
        self.num_spoken = 0

    def speak(self, text: str, *, voice_id: str, speed: float) -> Parts:
        self.num_spoken += 1
        for end in (None, None, None, "."):
            self._clock.advance(250 * self._cost_s)
            yield SentenceAudio(pcm_of(np.full(RATE_HZ // 4, 0.5, np.float32)), end)


def _itself(voice: Synthesiser) -> Synthesiser:
    return voice


def paced(*costs_s: float, num_threads: int = 1, family: str = "", **limits: Any) -> tuple[CpuEngine, list[Paced]]:
    """An engine of voices of these costs, called 0, 1 and so on, which is not asked to speak."""
    clock = FakeClock()
    made = [Paced(clock, cost_s) for cost_s in costs_s]
    voices = [Voice(str(number), "onnx", "zh-CN", rate_hz=RATE_HZ) for number in range(len(made))]
    found = [
        FoundModel((voice,), partial(_itself, each), family=family) for voice, each in zip(voices, made, strict=True)
    ]
    tts = TtsConfig(num_threads=num_threads, **limits)
    worker = WorkerSettings(device="cpu", purpose="measure", tts=tts, log=LogConfig())
    engine = CpuEngine(worker, clock=clock, wake=lambda: None, find_models=lambda _folder: found)
    engine.load(lambda _what: None)
    return engine, made


@pytest.mark.parametrize(
    ("cost_s", "num_threads", "streams"),
    [(0.09, 1, 7), (0.09, 4, 31), (0.5, 1, 1), (0.5, 3, 4), (0.71, 8, 0), (2.0, 8, 0)],
)
def test_a_voice_tells_how_many_listeners_this_machine_carries(cost_s: float, num_threads: int, streams: int) -> None:
    engine, _ = paced(cost_s, num_threads=num_threads, max_utilisation=0.7)
    (voice,) = engine.voices
    assert voice.cost == pytest.approx(cost_s)
    assert (voice.streams, voice.is_live) == (streams, streams > 0)


def test_a_voice_that_is_slower_than_speech_makes_one_prompt_beside_others_where_a_thread_is_left() -> None:
    with capture_logs() as lines:
        engine, _ = paced(0.1, 1.5, num_threads=2)
    assert [line["voice"] for line in lines if line["event"] == "voice_too_slow"] == ["1"]
    engine.open(StreamRequest(1, "0"))
    engine.open(StreamRequest(2, "1"))
    with pytest.raises(EngineOverloaded, match="one prompt at a time"):
        engine.open(StreamRequest(3, "1"))
    engine.open(StreamRequest(4, "0"))
    engine, _ = paced(0.1, 1.5, num_threads=1)
    engine.open(StreamRequest(1, "1"))
    engine.cancel(1)
    engine.open(StreamRequest(2, "0"))
    with pytest.raises(EngineOverloaded, match="the only thread"):
        engine.open(StreamRequest(3, "1"))


def test_a_voice_whose_first_audio_takes_longer_than_the_target_speaks_to_several_at_a_time() -> None:
    engine, _ = paced(0.4, num_threads=4, first_audio_target_ms=60.0, max_utilisation=0.7)
    for number in range(2):
        engine.open(StreamRequest(number, "0"))
    assert engine.load_report().room == 5, "as many as are kept supplied"


def test_further_voices_of_a_network_are_asked_for_their_level_alone_by_the_same_text() -> None:
    engine, made = paced(0.2, 0.9, family="kokoro")
    assert [voice.cost for voice in engine.voices] == [pytest.approx(0.2)] * 2
    assert [each.num_spoken for each in made] == [2, 1]
    assert len({voice.level_dbfs for voice in engine.voices}) == 1


def test_a_further_voice_whose_level_is_known_says_nothing_at_the_start() -> None:
    recorders = [Recorder(), Recorder()]
    voices = [Voice(name, "onnx", "en", rate_hz=RATE_HZ, level_dbfs=-30.0) for name in "ab"]
    found = [
        FoundModel((voice,), partial(_itself, each), family="kokoro")
        for voice, each in zip(voices, recorders, strict=True)
    ]
    engine = loaded(*found)
    assert [len(each.texts) for each in recorders] == [2, 0]
    assert [voice.level_dbfs for voice in engine.voices] == [-6.0, -30.0]


def test_files_that_are_no_voices_are_told() -> None:
    engine = loaded(
        FoundModel((Voice("a", "onnx", "en", rate_hz=RATE_HZ),), Recorder), ConfigError("b.onnx.json: no voice")
    )
    assert [voice.id for voice in engine.voices] == ["a"]
    assert engine.faults == ("b.onnx.json: no voice",)
