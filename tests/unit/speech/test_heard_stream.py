"""An engine that gives no audio for words is found out: a stand-in says them, or the prompt fails."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import NoAudio
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.prompt_cache import as_cached
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.speech.synthesis import unsaid_part
from cc_tts.text.normalizer import Normalizer
from cc_tts.voices.inline_ipa import pronounced
from tests.fakes.fake_engine import FakeEngine, tone
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

IPA = pronounced("Main Street", "ˈmeɪn ˈstɹiːt")
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


class Runaway(FakeEngine):
    """Is stopped in a text chunk after the audio of a share of it, and says the others."""

    def __init__(self, index: int, share: float) -> None:
        super().__init__()
        self.make_pcm = tone
        self._index = index
        self._share = share

    def open(self, *args: Any, **options: Any) -> Any:
        stream = super().open(*args, **options)
        return RunawayStream(stream, self._index, self._share)


class RunawayStream:
    def __init__(self, stream: Any, index: int, share: float) -> None:
        self._stream = stream
        self._index = index
        self._share = share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        async for chunk in self._stream:
            if chunk.text_chunk_index != self._index:
                yield chunk
                continue
            chunk.data = chunk.data[: int(self._share * len(chunk.data)) // 2 * 2]
            if chunk.data:
                yield chunk
            yield SpeechChunk(rate_hz=chunk.rate_hz, text_chunk_index=self._index, gave_up_after=self._share)


class Lab:
    def __init__(self, *silent: int, has_stand_in: bool = True, engine: FakeEngine | None = None, **tts: Any) -> None:
        self.metrics = Metrics()
        self.engine = engine or Dumb(*silent)
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


# --- a voice that ran away and was stopped


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_the_stand_in_says_the_rest_of_a_text_chunk_in_its_place(index: int) -> None:
    lab = Lab(engine=Runaway(index, 0.5))
    chunks = await lab.read()
    sentence = SENTENCES[index].strip()
    (rest,) = lab.said_instead
    assert sentence.endswith(rest)
    assert 0.3 * len(sentence) <= len(rest) <= 0.5 * len(sentence)
    assert [each.begins_source for each in chunks if each.begins_source] == [
        each.begins_source for each in await Lab().read() if each.begins_source
    ]
    told = [number for number, each in enumerate(chunks) if each.gave_up_after is not None]
    assert len(told) == 1
    assert [each.is_resumed for each in chunks[: told[0]]] == [False] * told[0]
    assert chunks[told[0]].is_resumed
    assert lab.num_counted == 1


async def test_a_text_chunk_that_ran_away_from_its_beginning_is_said_whole_by_the_stand_in() -> None:
    lab = Lab(engine=Runaway(1, 0.0))
    await lab.read()
    assert lab.said_instead == [SENTENCES[1].strip()]
    assert lab.num_counted == 1


@pytest.mark.parametrize(("index", "share"), [(0, 1.0), (1, 0.99), (2, 0.99), (2, 1.0)])
async def test_nothing_is_said_instead_where_no_word_is_left_and_it_is_told(index: int, share: float) -> None:
    lab = Lab(engine=Runaway(index, share))
    chunks = await lab.read()
    assert (lab.said_instead, lab.num_counted) == ([], 0)
    assert [each.gave_up_after for each in chunks if each.gave_up_after is not None] == [share]
    assert as_cached(chunks, TEXT) is None


async def test_a_runaway_without_a_stand_in_fails_the_prompt() -> None:
    lab = Lab(engine=Runaway(1, 0.4), has_stand_in=False)
    with capture_logs() as lines, pytest.raises(NoAudio):
        await lab.read()
    (line,) = [each for each in lines if each["event"] == "no_audio"]
    assert (line["text_chunk"], line["ran_away"]) == (1, True)
    assert "sentence" not in repr(lines)


@pytest.mark.parametrize(
    ("text", "said", "rest"),
    [
        ("One two, three four. Five six.", 0.0, "One two, three four. Five six."),
        ("One two, three four. Five six.", 0.1, " three four. Five six."),
        ("One two, three four. Five six.", 0.5, " Five six."),
        ("One two, three four. Five six.", 0.8, "six."),
        ("One two, three four. Five six.", 0.95, ""),
        ("Seventeen two, three. Four.", 0.2, "Seventeen two, three. Four."),
        ("Goodbye.", 0.3, "Goodbye."),
        ("Goodbye.", 0.7, ""),
        (f"One {IPA} three.", 0.0, f"One {IPA} three."),
        (f"One {IPA} three.", 0.3, "Street three."),
        ("您好，请问有什么可以帮您？请稍等。", 0.1, "请问有什么可以帮您？请稍等。"),
        ("您好，请问有什么可以帮您？请稍等。", 0.4, "请稍等。"),
        ("您好，请问有什么可以帮您？请稍等。", 0.9, "等。"),
        ("您好，请问有什么可以帮您？请稍等。", 0.02, "您好，请问有什么可以帮您？请稍等。"),
    ],
)
def test_what_is_left_begins_with_a_clause_or_else_with_a_word(text: str, said: float, rest: str) -> None:
    assert unsaid_part(text, said) == rest
