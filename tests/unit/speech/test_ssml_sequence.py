"""The parts of an SSML prompt one after the other: exact silences, marks, a busy engine."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest

from cc_tts.audio import AudioFormat
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineFailed, EngineOverloaded
from cc_tts.media.silence_trimmer import KEEP_LEAD_MS
from cc_tts.speech.chunks import CHUNK_MS, ReadyChunks
from cc_tts.speech.prompt import Content, MarkContent, Part, SilenceContent, TextContent, ToneContent
from cc_tts.speech.sequence import SequenceStream

pytestmark = pytest.mark.unit

FORMAT = AudioFormat(8000)
LOUD_MS, EDGE_MS = 400, 60


def speech(text: str) -> list[SpeechChunk]:
    """400 ms of sound for a part, in two chunks, with 60 ms of silence on both sides."""
    silence = np.zeros(FORMAT.samples_for_ms(EDGE_MS), np.int16)
    sound = np.full(FORMAT.samples_for_ms(LOUD_MS), 8000, np.int16)
    pcm = np.concatenate((silence, sound, silence)).tobytes()
    return [SpeechChunk(pcm[:3200], text, ((0.0, 0.0),)), SpeechChunk(pcm[3200:])]


class Engine:
    """Opens made-up streams; refuses as often as it is told to."""

    def __init__(self) -> None:
        self.opened: list[Content] = []
        self.again: list[bool] = []
        self.num_refusals = 0
        self.buffered: list[float] = []

    def open(self, content: Content, *, is_again: bool, must_speak: bool = False) -> ChunkStream:
        self.again.append(is_again)
        if isinstance(content, TextContent) and content.text == "broken":
            raise EngineFailed
        if self.num_refusals:
            self.num_refusals -= 1
            raise EngineOverloaded
        self.opened.append(content)
        if isinstance(content, ToneContent):
            return ReadyChunks([SpeechChunk(np.full(800, 500, np.int16).tobytes())])
        assert isinstance(content, TextContent)
        return ReadyChunks(speech(content.text))


def stream_of(*parts: Part, engine: Engine | None = None, wait_ms: float = 1000.0) -> SequenceStream:
    return SequenceStream(parts, (engine or Engine()).open, FORMAT, wait_ms)


async def read(stream: SequenceStream) -> list[SpeechChunk]:
    return [chunk async for chunk in stream]


def gaps_ms(chunks: list[SpeechChunk]) -> list[float]:
    """The lengths of the silences, the one before the first sound and the one after the last included."""
    loud = np.flatnonzero(np.frombuffer(b"".join(chunk.data for chunk in chunks), np.int16) > 100)
    num_samples = sum(len(chunk.data) for chunk in chunks) // 2
    edges = np.diff(np.concatenate(([-1], loud, [num_samples]))) - 1
    return [round(float(edge) / 8, 2) for index, edge in enumerate(edges) if edge > 8 or index in (0, len(edges) - 1)]


@pytest.mark.parametrize("milliseconds", [100, 250, 1000, 4321])
async def test_a_break_is_as_long_as_it_says(milliseconds: int) -> None:
    chunks = await read(stream_of(TextContent("One."), SilenceContent(milliseconds), TextContent("Two.")))
    lead, pause, tail = gaps_ms(chunks)
    assert pause == pytest.approx(milliseconds, abs=1.0)
    assert lead <= KEEP_LEAD_MS
    assert tail == 100.0


async def test_without_a_break_the_voice_pauses_as_ever() -> None:
    chunks = await read(stream_of(TextContent("One."), TextContent("two,"), TextContent("three"), TextContent("four.")))
    assert gaps_ms(chunks)[1:-1] == [pytest.approx(pause_ms, abs=1.0) for pause_ms in (300, 150, 30)]


async def test_a_long_silence_inside_a_part_leaves_in_chunks() -> None:
    class Hesitant(Engine):
        def open(self, content: Content, *, is_again: bool, must_speak: bool = False) -> ChunkStream:
            sound = np.full(800, 8000, np.int16).tobytes()
            chunks = [SpeechChunk(data) for data in (sound, *[bytes(3200)] * 20, sound)]
            return ReadyChunks([SpeechChunk(chunks[0].data, "One."), *chunks[1:]])

    chunks = await read(stream_of(TextContent("One."), engine=Hesitant()))
    assert max(FORMAT.ms_for_bytes(len(chunk.data)) for chunk in chunks) <= CHUNK_MS
    assert [chunk.begins_source for chunk in chunks if chunk.begins_source] == ["One."]
    assert FORMAT.ms_for_bytes(sum(len(chunk.data) for chunk in chunks)) == pytest.approx(4200 + 100, abs=5)


async def test_silences_at_the_ends_stay() -> None:
    chunks = await read(stream_of(SilenceContent(500), TextContent("One."), SilenceContent(700)))
    assert gaps_ms(chunks) == [pytest.approx(500, abs=1.0), pytest.approx(700, abs=1.0)]


async def test_the_words_of_a_span_end_where_its_sound_ends() -> None:
    chunks = await read(stream_of(TextContent("One."), SilenceContent(500), TextContent(" Two.")))
    begun = [(index, chunk.begins_source) for index, chunk in enumerate(chunks) if chunk.begins_source is not None]
    assert [source for _, source in begun] == ["One.", "", " Two."]
    before_silence = b"".join(chunk.data for chunk in chunks[: begun[1][0]])
    assert FORMAT.ms_for_bytes(len(before_silence)) == pytest.approx(KEEP_LEAD_MS + LOUD_MS, abs=1.0)


async def test_marks_lie_in_the_words_or_between_the_parts() -> None:
    text = TextContent("One two.", marks=((4, "inside"), (8, "end")))
    chunks = await read(stream_of(MarkContent("first"), text, SilenceContent(100), MarkContent("last")))
    assert [mark for chunk in chunks for mark in chunk.marks] == [
        (0.0, "first"),
        (0.5, "inside"),
        (1.0, "end"),
        (0.0, "last"),
    ]


async def test_marks_behind_the_words_that_are_spoken_are_not_lost() -> None:
    chunks = await read(stream_of(TextContent("One.", marks=((9, "late"),)), TextContent("Two.")))
    assert [mark for chunk in chunks for mark in chunk.marks] == [(0.0, "late")]


async def test_a_silent_part_takes_its_time() -> None:
    chunks = await read(stream_of(TextContent("One.", gain_db=float("-inf"))))
    assert FORMAT.ms_for_bytes(sum(len(chunk.data) for chunk in chunks)) >= LOUD_MS + 2 * EDGE_MS


async def test_a_busy_engine_is_asked_again_and_nothing_comes_twice() -> None:
    engine = Engine()
    engine.num_refusals = 2
    chunks = await read(stream_of(MarkContent("a"), SilenceContent(100), TextContent("One."), engine=engine))
    assert [mark for chunk in chunks for mark in chunk.marks] == [(0.0, "a")]
    assert len(engine.opened) == 1


async def test_a_busy_engine_is_asked_again_in_the_middle() -> None:
    engine = Engine()
    engine.num_refusals = 2
    chunks = await read(stream_of(TextContent("One."), ToneContent("beep", 100), TextContent("Two."), engine=engine))
    assert len(engine.opened) == 3
    assert engine.again == [False] * 5, "what is not opened is no use"
    assert [chunk.begins_source for chunk in chunks if chunk.begins_source] == ["One.", "Two."]


async def test_a_part_that_is_refused_after_it_was_opened_counts_as_one_use() -> None:
    class Late(Engine):
        def open(self, content: Content, *, is_again: bool, must_speak: bool = False) -> ChunkStream:
            stream = super().open(content, is_again=is_again, must_speak=must_speak)
            if len(self.again) not in (1, 2):
                return stream

            class Refused(ReadyChunks):
                async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
                    raise EngineOverloaded
                    yield

            return Refused([])

    engine = Late()
    chunks = await read(stream_of(TextContent("One."), TextContent("Two."), engine=engine))
    assert [chunk.begins_source for chunk in chunks if chunk.begins_source] == ["One.", "Two."]
    assert engine.again == [False, True, True, False]


async def test_a_busy_engine_is_not_asked_for_ever() -> None:
    engine = Engine()
    engine.num_refusals = 1000
    with pytest.raises(EngineOverloaded):
        await read(stream_of(TextContent("One."), TextContent("Two."), engine=engine, wait_ms=0.0))


async def test_a_part_that_fails_fails_the_prompt() -> None:
    with pytest.raises(EngineFailed):
        await read(stream_of(TextContent("One."), TextContent("broken")))


async def test_cancelling_ends_it_at_once() -> None:
    class Endless(Engine):
        cancelled = 0

        def open(self, content: Content, *, is_again: bool, must_speak: bool = False) -> ChunkStream:
            self.opened.append(content)
            engine = self

            class Stream(ReadyChunks):
                async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
                    while not engine.cancelled:
                        yield speech("x")[0]
                        await asyncio.sleep(0)

                async def cancel(self) -> None:
                    engine.cancelled += 1

            return Stream([])

    engine = Endless()
    stream = stream_of(TextContent("One."), TextContent("Two."), engine=engine)
    async for _ in stream:
        await stream.cancel()
    assert engine.cancelled >= 1
    assert len(engine.opened) == 1
