"""espeak-ng as a model of the CPU worker, over a library that is not there: words, pauses, bounds, cancelling."""

import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from cc_tts.audio import WordMark
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.cpu.contract import FoundModel, WordStart
from cc_tts.engines.cpu.engine import CpuEngine
from cc_tts.engines.cpu.espeak import EspeakSynthesiser
from cc_tts.engines.cpu.libespeak import EspeakLibrary, OnAudio
from cc_tts.engines.engine_core import StreamDone, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import WorkerSettings
from cc_tts.errors import EngineOverloaded, UnknownVoice
from cc_tts.voices.voice import Voice
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

RATE_HZ = 1000
LEAD_MS = 20
MS_PER_CHAR = 10
PIECE_MS = 40
LEVEL = 1000
WAIT_S = 10.0
MAX_STREAMS = 4


@dataclass
class FakeLibrary:
    """Says every character in 10 ms at a constant level, after 20 ms of silence; words begin where a space ended."""

    sample_rate_hz: int = RATE_HZ
    said: list[tuple[str, str, int]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def synthesise(self, text: str, *, voice: str, rate_wpm: int, on_audio: OnAudio) -> None:
        self.said.append((text, voice, rate_wpm))
        if "hold" in text:
            self.reached.set()
            assert self.hold.wait(WAIT_S)
        level = 0 if text.strip(". ") == "" else LEVEL
        pcm = array("h", [0] * LEAD_MS + [level] * MS_PER_CHAR * len(text)).tobytes()
        starts = [0, *(index + 1 for index, char in enumerate(text) if char == " " and index + 1 < len(text))]
        words = [WordStart(position, LEAD_MS + position * MS_PER_CHAR) for position in starts]
        for start in range(0, len(pcm), 2 * PIECE_MS):
            now = tuple(word for word in words if start <= 2 * word.sample < start + 2 * PIECE_MS)
            if not on_audio(pcm[start : start + 2 * PIECE_MS], now):
                return


class Room:
    """A worker's engine with two voices of such a library."""

    def __init__(self) -> None:
        self.library = FakeLibrary()
        self._news = threading.Semaphore(0)
        synthesiser = EspeakSynthesiser(cast("EspeakLibrary", self.library), {"en-us": "gmw/en-US", "cmn": "sit/cmn"})
        voices = tuple(Voice(each, "espeak", each, rate_hz=RATE_HZ, level_dbfs=-20.9) for each in ("en-us", "cmn"))
        model = FoundModel(voices, lambda: synthesiser, ("f3",))
        tts = TtsConfig(engine="espeak", num_threads=1, max_streams=MAX_STREAMS)
        settings = WorkerSettings(device="cpu", tts=tts, log=LogConfig())
        self.engine = CpuEngine(
            settings, clock=FakeClock(), wake=self._news.release, find_models=lambda _folder: [model]
        )
        self.engine.load(lambda _what: None)

    def speak(self, *texts: str, voice: str = "en-us", speed: float = 1.0, stream_id: int = 1) -> None:
        self.engine.open(StreamRequest(stream_id, voice, speed))
        for index, text in enumerate(texts):
            self.engine.push(stream_id, text, index)
        self.engine.end(stream_id)

    def heard(self, *texts: str, voice: str = "en-us", speed: float = 1.0, stream_id: int = 1) -> list[SpeechChunk]:
        """All audio of a stream; raises what it broke off with."""
        self.speak(*texts, voice=voice, speed=speed, stream_id=stream_id)
        found: list[SpeechChunk] = []
        while True:
            for out in self.engine.step():
                match out:
                    case SpeechChunk():
                        found.append(out)
                    case StreamDone(_, None):
                        return found
                    case StreamDone(_, error):
                        assert error is not None
                        raise error
            assert self._news.acquire(timeout=WAIT_S)


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.library.hold.set()
    made.engine.close()


def ms_by_text_chunk(outs: list[SpeechChunk]) -> dict[int, float]:
    total: dict[int, float] = {}
    for out in outs:
        total[out.text_chunk_index] = total.get(out.text_chunk_index, 0) + len(out.data) / 2
    return total


def test_audio_comes_in_order_with_its_text_chunk(room: Room) -> None:
    outs = room.heard("one two", "three.", "four")
    assert [out.text_chunk_index for out in outs] == sorted(out.text_chunk_index for out in outs)
    # 5 ms of the lead stay; a pause's first 100 ms end a chunk, the rest of it begins the next
    assert ms_by_text_chunk(outs) == {0: 5 + 70 + 30, 1: 5 + 60 + 100, 2: 200 + 5 + 40 + 30}
    assert room.library.said == [(text, "gmw/en-US", 175) for text in ("one two", "three.", "four")]


def test_the_first_audio_is_given_out_before_the_passage_is_made(room: Room) -> None:
    assert len(room.heard("a passage of many pieces")) > 3


@pytest.mark.parametrize("texts", [(), ("...",), ("", " ")])
def test_nothing_pushed_or_nothing_audible_is_a_quiet_end(room: Room, texts: tuple[str, ...]) -> None:
    assert room.heard(*texts) == []


def test_words_are_placed_in_their_text_chunk(room: Room) -> None:
    outs = room.heard("ab cd.", "ef gh")
    assert [(out.text_chunk_index, word) for out in outs for word in out.spoken_words] == [
        (0, WordMark(0, 5.0)),
        (0, WordMark(3, 35.0)),
        (1, WordMark(0, 205.0)),
        (1, WordMark(3, 235.0)),
    ]


def test_words_of_a_long_text_chunk_keep_their_positions(room: Room) -> None:
    text = "word " * 100
    outs = room.heard(text)
    words = [word for out in outs for word in out.spoken_words]
    assert [word.position for word in words if text[word.position : word.position + 4] == "word"] == [
        5 * index for index in range(100)
    ]
    assert [word.offset_ms for word in words] == sorted(word.offset_ms for word in words)
    assert max(len(text) for text, *_ in room.library.said) <= 240
    elapsed_ms = 0.0
    for out in outs:
        elapsed_ms += len(out.data) / 2
        assert all(word.offset_ms <= elapsed_ms for word in out.spoken_words)


@pytest.mark.parametrize(("speed", "rate_wpm"), [(0.5, 88), (1.0, 175), (1.5, 262), (2.0, 350)])
def test_speed_is_a_rate_and_a_variant_goes_with_its_voice(room: Room, speed: float, rate_wpm: int) -> None:
    room.heard("x", voice="cmn+f3", speed=speed)
    assert room.library.said == [("x", "sit/cmn+f3", rate_wpm)]


def test_control_characters_never_reach_espeak(room: Room) -> None:
    room.heard("a\x00b\x01c\ud800d\n\x9fe")
    assert [text for text, *_ in room.library.said] == ["a b c d  e"]


def test_cancel_stops_the_synthesis_and_ends_nothing_else(room: Room) -> None:
    room.speak("hold " * 40, "never said")
    assert room.library.reached.wait(WAIT_S)
    room.engine.cancel(1)
    room.library.hold.set()
    assert room.heard("after", stream_id=2)
    assert [text for text, *_ in room.library.said] == ["hold " * 40, "after"]


def test_only_the_number_of_its_streams_limits_it(room: Room) -> None:
    for stream_id in range(MAX_STREAMS):
        room.engine.open(StreamRequest(stream_id, "en-us"))
        room.engine.push(stream_id, "a long text " * 50, 0)
    report = room.engine.load_report()
    assert (report.room, report.utilisation) == (0, 1.0)
    assert report.refusal
    with pytest.raises(EngineOverloaded) as refused:
        room.engine.open(StreamRequest(9, "en-us"))
    assert refused.value.retry_after_s
    room.engine.cancel(0)
    assert room.engine.load_report().room == 1
    room.engine.open(StreamRequest(9, "cmn"))


def test_open_refuses_an_unknown_voice(room: Room) -> None:
    for unknown in ("nobody", "en-us+nobody"):
        with pytest.raises(UnknownVoice):
            room.engine.open(StreamRequest(1, unknown))
    assert [voice.id for voice in room.engine.voices] == ["en-us", "cmn"]
