"""The engine's streams over a library that is not there: turns, bounds, cancelling, failures, words."""

import asyncio
import threading
from array import array
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from cc_tts.audio import PcmChunk, WordMark
from cc_tts.engines.espeak import engine as engine_module
from cc_tts.engines.espeak.engine import EspeakEngine, EspeakStream
from cc_tts.engines.espeak.library import EspeakVoice, OnAudio, WordEvent
from cc_tts.errors import ConfigError, EngineFailed, EngineOverloaded, UnknownVoice

pytestmark = pytest.mark.unit

RATE_HZ = 1000
LEAD_MS = 20
MS_PER_CHAR = 10
PIECE_MS = 40
LEVEL = 1000


@dataclass
class FakeLibrary:
    """Says every character in 10 ms at a constant level, after 20 ms of silence; words begin where a space ended."""

    sample_rate_hz: int = RATE_HZ
    said: list[tuple[str, str, int]] = field(default_factory=list)
    num_pieces: int = 0
    hold: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)
    fail_to_open: Exception | None = None

    def opened(self) -> Any:
        if self.fail_to_open is not None:
            raise self.fail_to_open
        return self

    def voices(self) -> tuple[EspeakVoice, ...]:
        return (EspeakVoice("en-us", "gmw/en-US", "English"), EspeakVoice("cmn", "sit/cmn", "Chinese"))

    def variants(self) -> tuple[str, ...]:
        return ("f3",)

    def synthesise(self, text: str, *, voice: str, rate_wpm: int, on_audio: OnAudio) -> None:
        self.said.append((text, voice, rate_wpm))
        if "fail" in text:
            raise EngineFailed("espeak-ng: synthesis returned 1")
        if "bug" in text:
            raise ZeroDivisionError
        if "hold" in text:
            self.reached.set()
            assert self.hold.wait(10)
        level = 0 if text.strip(". ") == "" else LEVEL
        pcm = array("h", [0] * LEAD_MS + [level] * MS_PER_CHAR * len(text)).tobytes()
        starts = [0, *(index + 1 for index, char in enumerate(text) if char == " " and index + 1 < len(text))]
        words = [WordEvent(position, LEAD_MS + position * MS_PER_CHAR) for position in starts]
        for start in range(0, len(pcm), 2 * PIECE_MS):
            self.num_pieces += 1
            now = tuple(word for word in words if start <= 2 * word.sample < start + 2 * PIECE_MS)
            if not on_audio(pcm[start : start + 2 * PIECE_MS], now):
                return


@pytest.fixture
def library() -> FakeLibrary:
    return FakeLibrary()


@pytest.fixture
async def engine(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EspeakEngine]:
    monkeypatch.setattr(engine_module, "MAX_STREAMS", 4)
    monkeypatch.setattr(engine_module, "MAX_AHEAD_MS", 500)
    engine = EspeakEngine(open_library=library.opened)
    await engine.start()
    library.said.clear()
    yield engine
    library.hold.set()
    await engine.stop()


def open_stream(engine: EspeakEngine, *texts: str, voice: str = "en-us", speed: float = 1.0) -> EspeakStream:
    stream = engine.open(voice, speed=speed)
    for index, text in enumerate(texts):
        stream.push(text, text_chunk_index=index)
    return stream


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 what it waits for happens on the espeak thread
        await asyncio.sleep(0)


async def read(stream: EspeakStream, into: list[PcmChunk] | None = None) -> list[PcmChunk]:
    chunks: list[PcmChunk] = [] if into is None else into
    async for chunk in stream:
        chunks.append(chunk)  # noqa: PERF401 what came before a failure counts
    return chunks


def ms_by_text_chunk(chunks: list[PcmChunk]) -> dict[int, float]:
    total: dict[int, float] = {}
    for chunk in chunks:
        total[chunk.text_chunk_index] = total.get(chunk.text_chunk_index, 0) + chunk.duration_ms
    return total


async def test_audio_comes_in_order_with_its_text_chunk(engine: EspeakEngine, library: FakeLibrary) -> None:
    stream = open_stream(engine, "one two", "three.", "four")
    stream.end()
    chunks = await read(stream)
    assert [chunk.text_chunk_index for chunk in chunks] == sorted(chunk.text_chunk_index for chunk in chunks)
    # 5 ms of the lead stay; a pause's first 100 ms end a chunk, the rest of it begins the next
    assert ms_by_text_chunk(chunks) == {0: 5 + 70 + 30, 1: 5 + 60 + 100, 2: 200 + 5 + 40 + 30}
    assert library.said == [(text, "gmw/en-US", 175) for text in ("one two", "three.", "four")]
    assert chunks[0].audio_format.rate_hz == RATE_HZ


async def test_text_may_come_later_and_the_end_alone_ends_it(engine: EspeakEngine) -> None:
    stream = open_stream(engine)
    reading = asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    stream.push("late", text_chunk_index=0)
    await asyncio.sleep(0)
    assert not reading.done()
    stream.end()
    assert ms_by_text_chunk(await reading) == {0: 5 + 40 + 30}
    with pytest.raises(ValueError, match="push after end"):
        stream.push("too late", text_chunk_index=1)


async def test_nothing_pushed_or_nothing_audible_is_a_quiet_end(engine: EspeakEngine) -> None:
    for texts in [(), ("...",), ("", " ")]:
        stream = open_stream(engine, *texts)
        stream.end()
        assert await read(stream) == []


async def test_words_are_placed_in_their_text_chunk(engine: EspeakEngine) -> None:
    stream = open_stream(engine, "ab cd.", "ef gh")
    stream.end()
    chunks = await read(stream)
    words = [(chunk.text_chunk_index, word) for chunk in chunks for word in chunk.words]
    assert words == [
        (0, WordMark(0, 5.0)),
        (0, WordMark(3, 35.0)),
        (1, WordMark(0, 205.0)),
        (1, WordMark(3, 235.0)),
    ]


async def test_words_of_a_long_text_chunk_keep_their_positions(engine: EspeakEngine) -> None:
    text = "word " * 100
    stream = open_stream(engine, text)
    stream.end()
    chunks = await read(stream)
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.position for word in words if text[word.position : word.position + 4] == "word"] == [
        5 * index for index in range(100)
    ]
    assert [word.offset_ms for word in words] == sorted(word.offset_ms for word in words)
    elapsed_ms = 0.0
    for chunk in chunks:
        elapsed_ms += chunk.duration_ms
        assert all(word.offset_ms <= elapsed_ms for word in chunk.words)


@pytest.mark.parametrize(("speed", "rate_wpm"), [(0.5, 88), (1.0, 175), (1.5, 262), (2.0, 350), (0.01, 80), (9.0, 450)])
async def test_speed_is_a_rate(engine: EspeakEngine, library: FakeLibrary, speed: float, rate_wpm: int) -> None:
    stream = open_stream(engine, "x", voice="cmn+f3", speed=speed)
    stream.end()
    await read(stream)
    assert library.said == [("x", "sit/cmn+f3", rate_wpm)]


async def test_control_characters_never_reach_espeak(engine: EspeakEngine, library: FakeLibrary) -> None:
    stream = open_stream(engine, "a\x00b\x01c\ud800d\n\x9fe")
    stream.end()
    await read(stream)
    assert [text for text, *_ in library.said] == ["a b c d  e"]


async def test_first_passages_go_first_and_the_rest_take_turns(engine: EspeakEngine, library: FakeLibrary) -> None:
    busy = open_stream(engine, "hold", "busy 2", "busy 3")
    await until(library.reached.is_set)
    others = [open_stream(engine, f"{name} 1", f"{name} 2") for name in ("x", "y")]
    library.hold.set()
    for stream in (busy, *others):
        stream.end()
    await asyncio.gather(*map(read, (busy, *others)))
    assert [text for text, *_ in library.said] == ["hold", "x 1", "y 1", "busy 2", "x 2", "y 2", "busy 3"]


async def test_a_slow_reader_holds_up_only_itself(engine: EspeakEngine, library: FakeLibrary) -> None:
    slow = open_stream(engine, *["s" * 40] * 5)
    quick = open_stream(engine, *["q" * 40] * 5)
    slow.end()
    quick.end()
    assert ms_by_text_chunk(await read(quick)).keys() == set(range(5))
    said = [text for text, *_ in library.said]
    assert said.count("q" * 40) == 5
    assert said.count("s" * 40) == 2  # the second passes the bound of 500 ms
    assert ms_by_text_chunk(await read(slow)).keys() == set(range(5))


async def test_a_long_text_chunk_is_said_in_passages(engine: EspeakEngine, library: FakeLibrary) -> None:
    stream = open_stream(engine, "A few words. " * 60)
    await asyncio.wait_for(anext(stream), 10)
    other = open_stream(engine, "other")
    other.end()
    await read(other)
    assert max(len(text) for text, *_ in library.said) <= 240
    await stream.cancel()


async def test_cancel_stops_the_synthesis_and_ends_the_iteration(engine: EspeakEngine, library: FakeLibrary) -> None:
    stream = open_stream(engine, "hold " * 40, "never said")
    await until(library.reached.is_set)
    reading = asyncio.create_task(read(stream))
    await asyncio.sleep(0)
    await stream.cancel()
    assert await reading == []
    before = library.num_pieces
    library.hold.set()
    after = open_stream(engine, "after")
    after.end()
    await read(after)
    assert [text for text, *_ in library.said] == ["hold " * 40, "after"]
    assert library.num_pieces - before <= 1 + 3  # one piece for the cancelled one
    await stream.cancel()
    stream.push("ignored", text_chunk_index=9)
    assert await read(stream) == []
    assert stream.queued_ms == 0
    assert not stream.passages


async def test_cancel_after_the_end_is_harmless(engine: EspeakEngine) -> None:
    stream = open_stream(engine, "x")
    stream.end()
    await read(stream)
    await stream.cancel()
    await stream.cancel()


@pytest.mark.parametrize(("text", "message"), [("fail", "synthesis returned 1"), ("bug", "ZeroDivisionError")])
async def test_failure_ends_one_stream_and_the_next_one_works(engine: EspeakEngine, text: str, message: str) -> None:
    stream = open_stream(engine, "fine", text, "not reached")
    chunks: list[PcmChunk] = []
    with pytest.raises(EngineFailed, match=message):
        await read(stream, chunks)
    assert ms_by_text_chunk(chunks).keys() == {0}
    following = open_stream(engine, "works")
    following.end()
    assert await read(following)


async def test_streams_are_bounded_and_come_free(engine: EspeakEngine) -> None:
    streams = [open_stream(engine) for _ in range(4)]
    reason = engine.not_ready_because()
    assert reason == "4 streams are open, as many as configured"
    with pytest.raises(EngineOverloaded) as refused:
        open_stream(engine)
    assert refused.value.retry_after_s
    await streams[0].cancel()
    assert engine.not_ready_because() is None
    replacement = open_stream(engine, "x")
    replacement.end()
    await read(replacement)
    assert engine.not_ready_because() is None


async def test_a_stream_that_breaks_off_says_when_to_come_again(engine: EspeakEngine) -> None:
    stream = open_stream(engine)
    stream.break_off(EngineFailed("busy", retry_after_s=2))
    with pytest.raises(EngineFailed, match="busy") as failed:
        await read(stream)
    assert failed.value.retry_after_s == 2


async def test_a_cancelled_stream_ends_without_an_error(engine: EspeakEngine) -> None:
    stream = open_stream(engine, "hello")
    await stream.cancel()
    stream.break_off(EngineFailed("busy"))
    assert await read(stream) == []


async def test_stop_ends_every_iteration_and_the_thread(library: FakeLibrary) -> None:
    engine = EspeakEngine(open_library=library.opened)
    await engine.start()
    await engine.start()
    stream = open_stream(engine, "hold")
    reading = asyncio.create_task(read(stream))
    await until(library.reached.is_set)
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(0)
    library.hold.set()
    await stopping
    assert await reading == []
    assert "espeak" not in {thread.name for thread in threading.enumerate()}
    assert engine.not_ready_because() == "stopped"
    with pytest.raises(EngineFailed, match="stopped"):
        open_stream(engine)
    await engine.stop()

    await engine.start()
    again = open_stream(engine, "again")
    again.end()
    assert await read(again)
    await engine.stop()


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (EngineFailed("no library"), EngineFailed, "no library"),
        (OSError("broken"), EngineFailed, "did not start: OSError"),
    ],
)
async def test_a_start_that_fails(
    library: FakeLibrary, error: Exception, expected: type[Exception], message: str
) -> None:
    library.fail_to_open = error
    engine = EspeakEngine(open_library=library.opened)
    with pytest.raises(expected, match=message):
        await engine.start()
    assert message.split(":", maxsplit=1)[0] in (engine.not_ready_because() or "")
    library.fail_to_open = None
    await engine.start()
    assert engine.not_ready_because() is None
    await engine.stop()


async def test_a_default_voice_that_does_not_exist(library: FakeLibrary) -> None:
    engine = EspeakEngine(open_library=library.opened, default_voice="nobody")
    with pytest.raises(ConfigError, match="nobody"):
        await engine.start()


async def test_before_the_start() -> None:
    engine = EspeakEngine()
    assert engine.voices() == ()
    assert engine.not_ready_because() == "not started"
    with pytest.raises(EngineFailed, match="not started"):
        engine.resolve_voice(None, None)
    with pytest.raises(EngineFailed, match="not started"):
        open_stream(engine)
    await engine.stop()


async def test_open_refuses_an_unknown_voice(engine: EspeakEngine) -> None:
    with pytest.raises(UnknownVoice):
        open_stream(engine, voice="nobody")
    assert [voice.id for voice in engine.voices()] == ["en-us", "cmn"]


async def test_an_event_loop_that_went_away_does_not_hurt_the_thread(
    engine: EspeakEngine, library: FakeLibrary
) -> None:
    def speak_and_leave() -> None:
        async def push() -> None:
            open_stream(engine, "hold")
            await until(library.reached.is_set)

        asyncio.run(push())

    await asyncio.to_thread(speak_and_leave)
    library.hold.set()
    following = open_stream(engine, "works")
    following.end()
    assert await read(following)
