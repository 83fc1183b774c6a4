"""An engine that gives no audio for words is found out: a stand-in says them, or the prompt fails."""

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from cc_tts.config.schema import TtsConfig
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import NoAudio
from cc_tts.metrics import Metrics
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer
from tests.fakes.fake_engine import FakeEngine, tone

pytestmark = pytest.mark.unit

SENTENCES = [f"This is sentence number {number} and it is long enough. " for number in ("one", "two", "three")]
TEXT = "".join(SENTENCES)


class Dumb(FakeEngine):
    """Gives nothing for the text chunks of these numbers."""

    def __init__(self, *silent: int) -> None:
        super().__init__()
        self._silent = silent
        self._num_made = 0
        self.make_pcm = self._some

    def _some(self, ms: float, rate_hz: int = 8000) -> bytes:
        number, self._num_made = self._num_made, self._num_made + 1
        return b"" if number in self._silent else tone(ms, rate_hz)


class Lab:
    def __init__(self, *silent: int, has_stand_in: bool = True, **tts: Any) -> None:
        self.metrics = Metrics()
        self.engine = Dumb(*silent)
        self.engine.stand_in = FakeEngine() if has_stand_in else None
        if self.engine.stand_in is not None:
            self.engine.stand_in.make_pcm = tone
        config = TtsConfig(chunk_max_chars=70, **tts)
        self.source = SpeechSource(cast("Any", self.engine), Normalizer(), config, metrics=self.metrics)

    async def read(self, text: str = TEXT) -> list[SpeechChunk]:
        return [chunk async for chunk in self.source.open(TextContent(text), rate_hz=8000)]

    @property
    def said_instead(self) -> list[str]:
        assert self.engine.stand_in is not None
        return [text for stream in self.engine.stand_in.streams for text in stream.pushed]

    @property
    def num_counted(self) -> float:
        return self.metrics.registry.get_sample_value("cctts_engine_no_audio_total", {"engine": "fake"}) or 0.0


@pytest.mark.parametrize("silent", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
async def test_the_stand_in_says_each_chunk_without_audio_in_its_place(silent: tuple[int, ...]) -> None:
    lab, whole = Lab(*silent), Lab()
    chunks = await lab.read()
    said = [each.strip() for each in SENTENCES]
    assert lab.said_instead == [said[number] for number in silent]
    assert lab.num_counted == len(silent)
    assert [each.begins_source for each in chunks if each.begins_source] == [
        each.begins_source for each in await whole.read() if each.begins_source
    ]
    assert sum(len(each.data) for each in chunks) == pytest.approx(
        sum(len(each.data) for each in await whole.read()), rel=0.02
    )


async def test_audio_of_the_stand_in_is_not_cached_as_the_voices_own() -> None:
    assert any(chunk.is_resumed for chunk in await Lab(1).read())


@pytest.mark.parametrize("silent", [(0,), (1,), (2,)])
async def test_without_a_stand_in_the_prompt_fails_and_the_log_has_no_text(silent: tuple[int, ...]) -> None:
    lab = Lab(*silent, has_stand_in=False)
    with capture_logs() as lines, pytest.raises(NoAudio, match="the voice en-us gave no audio"):
        await lab.read()
    (line,) = [each for each in lines if each["event"] == "no_audio"]
    assert line["log_level"] == "error"
    assert "sentence" not in repr(lines)
    assert lab.num_counted == 1


async def test_a_stand_in_that_is_silent_as_well_is_an_error() -> None:
    lab = Lab(0)
    assert lab.engine.stand_in is not None
    lab.engine.stand_in.make_pcm = Dumb(0).make_pcm
    with pytest.raises(NoAudio):
        await lab.read()


async def test_a_cancelled_stream_is_not_said_instead() -> None:
    lab = Lab(1, 2)
    stream = lab.source.open(TextContent(TEXT), rate_hz=8000)
    async for chunk in stream:
        assert chunk.begins_source in (SENTENCES[0].strip(), None)
        await stream.cancel()
    assert lab.said_instead == []


async def test_digital_silence_is_no_audio() -> None:
    lab = Lab()
    lab.engine.make_pcm = lambda ms, rate_hz=8000: bytes(round(ms * rate_hz / 1000) * 2)
    await lab.read()
    assert lab.num_counted == len(SENTENCES)


async def test_an_engine_that_speaks_is_left_alone() -> None:
    lab = Lab()
    await lab.read()
    assert (lab.said_instead, lab.num_counted) == ([], 0)
