"""The audio of a text that is still arriving: voice, language and pauses of its segments, in virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import numpy as np
import pytest

from cc_tts.audio import AudioFormat
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineOverloaded, NothingToSay
from cc_tts.speech.chunks import ReadyChunks
from cc_tts.speech.incremental.stream import IncrementalStream
from cc_tts.speech.incremental.text import IncrementalText
from cc_tts.speech.lexicons import Lexicons
from cc_tts.speech.prompt import Content, IncrementalContent, TextContent
from cc_tts.speech.voicing.parts import Voicing
from cc_tts.text.segments import Segmenting
from cc_tts.voices.voice import Voice
from tests.fakes.fake_engine import FakeEngine
from tests.support.virtual_time import LoopClock, in_virtual_time, virtual_time

pytestmark = pytest.mark.unit

FORMAT = AudioFormat(8000)
LOUD_MS = 400
ANN = Voice(id="ann", engine="fake", language="en")
LI = Voice(id="li", engine="fake", language="zh", also_reads=("LATIN",))


class TwoVoices(FakeEngine):
    """Ann speaks English, Li Chinese, and nobody anything else."""

    def voices(self) -> tuple[Voice, ...]:
        return (ANN, LI)


class Part(ReadyChunks):
    is_over = False

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        async for chunk in super().__aiter__():
            yield chunk
        self.is_over = True


class Scene:
    """A growing text, the stream of it, and what the engine was asked for."""

    def __init__(self) -> None:
        self.opened: list[TextContent] = []
        self.parts: list[Part] = []
        self.num_refusals = 0
        self.chunks: list[SpeechChunk] = []
        self.text = IncrementalText(LoopClock(), segmenting=Segmenting(), idle_timeout_s=30)
        voicing = Voicing(cast("Any", TwoVoices()), TtsConfig(), Lexicons(TtsConfig()))
        self.stream = IncrementalStream(
            IncrementalContent(TextContent(""), self.text), self._open, voicing, FORMAT, 1000.0
        )
        self.reading = asyncio.create_task(self._read())

    def _open(self, content: Content, *, is_again: bool, must_speak: bool = False) -> ChunkStream:
        del is_again, must_speak
        assert isinstance(content, TextContent)
        if self.num_refusals:
            self.num_refusals -= 1
            raise EngineOverloaded
        self.opened.append(content)
        if "<br/>" in content.text:
            raise NothingToSay
        sound = np.full(FORMAT.samples_for_ms(LOUD_MS), 8000, np.int16).tobytes()
        self.parts.append(Part([SpeechChunk(sound, content.text)]))
        return self.parts[-1]

    async def ended(self) -> None:
        """Nothing follows, and all was read."""
        self.text.end()
        await self.reading

    async def _read(self) -> None:
        async for chunk in self.stream:
            self.chunks.append(chunk)

    @property
    def audio_ms(self) -> float:
        return FORMAT.ms_for_bytes(sum(len(chunk.data) for chunk in self.chunks))

    @property
    def sources(self) -> list[str]:
        return [chunk.begins_source for chunk in self.chunks if chunk.begins_source]


@contextlib.asynccontextmanager
async def a_scene() -> AsyncIterator[Scene]:
    yield Scene()


on_scene = in_virtual_time(a_scene)


@on_scene
async def test_each_segment_is_spoken_by_a_voice_of_its_language_and_digits_follow_the_words_before(
    scene: Scene,
) -> None:
    for token in ("您的余额是：", "12。", "OK, WiFi. ", "Thank you for calling us, goodbye. ", "34. ", "再见。"):
        scene.text.append(token)
        scene.text.flush()
        await asyncio.sleep(0.1)
    await scene.ended()
    assert [content.voice for content in scene.opened] == ["li", "li", "li", "ann", "ann", "li"]
    assert [content.language for content in scene.opened] == ["zh", "zh", "zh", None, "en", "zh"]
    assert scene.text.voice == LI
    assert not any(content.may_cache for content in scene.opened)


@on_scene
async def test_words_that_tell_no_language_are_in_that_of_most_words_so_far(scene: Scene) -> None:
    for token in ("WiFi. ", "您的订单已经发货，预计三天到达。", "OK. "):
        scene.text.append(token)
        scene.text.flush()
        await asyncio.sleep(0.1)
    await scene.ended()
    assert [content.voice for content in scene.opened] == ["ann", "li", "li"]


@on_scene
async def test_words_that_no_voice_speaks_are_told_in_their_place_and_the_rest_is_spoken(scene: Scene) -> None:
    scene.text.append("Hello! Your name is สมชาย, right? ")
    await scene.ended()
    assert [content.text for content in scene.opened] == ["Hello! Your name is ", "right? "]
    told = [(chunk.begins_source, chunk.refused_because) for chunk in scene.chunks if chunk.refused_because]
    assert told == [("สมชาย, ", "ann does not speak Thai: nobody speaks th")]
    assert "".join(scene.sources) == "Hello! Your name is สมชาย, right? "


@on_scene
async def test_a_text_that_no_voice_speaks_is_refused_and_not_empty(scene: Scene) -> None:
    scene.text.append("สมชาย")
    await scene.ended()
    assert [chunk.refused_because for chunk in scene.chunks] == ["ann does not speak Thai: nobody speaks th"]


@virtual_time
async def test_the_pause_of_a_segment_is_silence_that_the_line_did_not_have_already() -> None:
    async def spoken_ms(between_s: float, buffered_ms: float) -> float:
        scene = Scene()
        scene.text.append("One. ")
        await asyncio.sleep(0.01)
        scene.stream.set_buffered_ms(buffered_ms)
        await asyncio.sleep(between_s)
        scene.text.append("Two.")
        await scene.ended()
        return scene.audio_ms - 2 * (LOUD_MS + 100)  # 100 ms of each pause come at once

    assert await spoken_ms(0.0, 1000.0) == pytest.approx(200, abs=2)
    assert await spoken_ms(0.1, 0.0) == pytest.approx(100, abs=12)
    assert await spoken_ms(0.2, 1000.0) == pytest.approx(200, abs=2), "the line still speaks"
    assert await spoken_ms(5.0, 0.0) == pytest.approx(0, abs=2)


@on_scene
async def test_it_says_that_it_waits_for_text_and_holds_no_stream_meanwhile(scene: Scene) -> None:
    scene.text.append("One. ")
    await asyncio.sleep(0.1)
    assert scene.chunks[-1].awaits_text
    assert scene.parts[-1].is_over
    scene.text.append("Two. ")
    await asyncio.sleep(0.1)
    await scene.ended()
    assert [chunk.awaits_text for chunk in scene.chunks].count(True) == 2, "after each"


@on_scene
async def test_markup_alone_is_silent_and_stays_in_the_text(scene: Scene) -> None:
    scene.text.append("One. ")
    scene.text.flush()
    await asyncio.sleep(0.1)
    scene.text.append("<br/>")
    scene.text.mark("m")
    scene.text.flush()
    await asyncio.sleep(0.1)
    scene.text.append("Two.")
    await scene.ended()
    assert scene.sources == ["One. ", "<br/>", "Two."]
    assert [mark for chunk in scene.chunks for mark in chunk.marks] == [(0.0, "m")]


@on_scene
async def test_a_busy_engine_is_asked_again_in_the_middle(scene: Scene) -> None:
    scene.text.append("One. ")
    await asyncio.sleep(0.1)
    scene.num_refusals = 3
    scene.text.append("Two. ")
    await scene.ended()
    assert scene.sources == ["One.", " Two. "]


@on_scene
async def test_a_text_that_gets_nothing_ends_by_itself(scene: Scene) -> None:
    scene.text.append("One. ")
    await asyncio.sleep(29)
    assert not scene.text.has_ended
    await asyncio.sleep(2)
    assert scene.text.has_ended
    await scene.reading


@on_scene
async def test_cancelled_while_it_waits(scene: Scene) -> None:
    scene.text.append("One. ")
    await asyncio.sleep(0.1)
    scene.reading.cancel()
    await scene.stream.cancel()
    await scene.stream.cancel()
    assert scene.sources == ["One."]


@pytest.mark.parametrize(
    ("pause_s", "segments"),
    [
        (0.7, ["Your code is", " 482193 okay."]),
        (1.5, ["Your code is", " 482193 okay."]),
        (2.5, ["Your code is", " 48", "2193 okay."]),
    ],
)
@on_scene
async def test_a_number_waits_for_its_rest_when_the_model_pauses_and_is_read_by_the_words_before(
    scene: Scene, pause_s: float, segments: list[str]
) -> None:
    scene.text.append("Your code is 48")
    await asyncio.sleep(pause_s)
    scene.text.append("21")
    scene.text.append("93 okay.")
    await scene.ended()
    assert [content.text for content in scene.opened] == segments
    assert [content.before for content in scene.opened] == ["".join(segments[:at]) for at in range(len(segments))]


@on_scene
async def test_reasoning_is_no_part_that_is_spoken_and_stays_in_the_text(scene: Scene) -> None:
    text = "Sure. <think>They want it. Be brief.</think>You have 5 messages. <tool_call>{}</tool_call>"
    for token in text.split(" "):
        scene.text.append(f" {token}" if scene.text.text else token)
        await asyncio.sleep(0.1)
    await scene.ended()
    assert [content.text for content in scene.opened] == ["Sure. ", "You have 5 messages. "]
    assert text.startswith("".join(scene.sources))
