"""SSML as it is heard: the real source with espeak-ng, and each element measured in the audio."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from cc_tts.config.schema import CacheConfig, Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import make_engine
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.media.levels import PEAK_DBFS, active_level_dbfs
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.shared_synthesis import CachedSource
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.speech.ssml import from_ssml
from cc_tts.text.normalizer import Normalizer

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

RATE_HZ = 8000
SOUND = 40
"""A little over the −60 dBFS at which the silence around speech is cut."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def source() -> AsyncIterator[SpeechSource]:
    engine = make_engine(Config(tts=TtsConfig(engine="espeak")))
    await engine.start()
    yield SpeechSource(engine, Normalizer(), TtsConfig())
    await engine.stop()


async def chunks_of(source: SpeechSource, inner: str) -> list[SpeechChunk]:
    content = from_ssml(f"<speak>{inner}</speak>")
    source.check(content)
    return [chunk async for chunk in source.open(content, rate_hz=RATE_HZ)]


def samples_of(chunks: list[SpeechChunk]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.frombuffer(b"".join(chunk.data for chunk in chunks), np.int16).astype(np.int32)


async def heard(source: SpeechSource, inner: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    return samples_of(await chunks_of(source, inner))


async def plain(source: SpeechSource, text: str) -> np.ndarray[Any, np.dtype[np.int32]]:
    content = TextContent(text)
    return samples_of([chunk async for chunk in source.open(content, rate_hz=RATE_HZ)])


def pauses_ms(samples: np.ndarray[Any, np.dtype[np.int32]], *, at_least_ms: float = 90.0) -> list[float]:
    loud = np.flatnonzero(np.abs(samples) > SOUND)
    gaps = np.diff(loud) / RATE_HZ * 1000
    return [float(gap) for gap in gaps if gap >= at_least_ms]


def speech_s(samples: np.ndarray[Any, np.dtype[np.int32]]) -> float:
    loud = np.flatnonzero(np.abs(samples) > SOUND)
    return float(loud[-1] - loud[0]) / RATE_HZ


@pytest.mark.parametrize(
    ("inner", "pauses"),
    [
        ('Hello<break time="500ms"/>you.', [500]),
        ("Hello<break/>you.", [400]),
        ('Hello.<break time="2s"/>You.', [2000]),
        ('Hello<break strength="strong"/>you<break strength="weak"/>all.', [700, 200]),
        ("<p>Hello.</p><p>You.</p>", [400]),
        ("<p><s>Hello.</s><s>You.</s></p>", [200]),
        ('Hello<break time="150ms"/><break time="150ms"/>you.', [300]),
    ],
)
async def test_pauses(source: SpeechSource, inner: str, pauses: list[float]) -> None:
    assert pauses_ms(await heard(source, inner)) == [pytest.approx(pause, abs=10.0) for pause in pauses]


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ('<say-as interpret-as="digits">1234</say-as>', "one two three four"),
        ('<say-as interpret-as="telephone">8005550199</say-as>', "eight zero zero, five five five, zero one nine nine"),
        ('Code <say-as interpret-as="characters">XB7</say-as>.', "Code X B seven."),
        ('<say-as interpret-as="date" format="dmy">3/4/2026</say-as>', "April third, twenty twenty-six"),
        ('<say-as interpret-as="ordinal">3</say-as> floor', "third floor"),
        ('The <sub alias="World Wide Web">W3</sub> page', "The World Wide Web page"),
        ('<phoneme alphabet="ipa" ph="təˈmɑːtoʊ">potato</phoneme>', "tomahto"),
    ],
)
async def test_words_are_said_as_asked(source: SpeechSource, inner: str, words: str) -> None:
    marked, written = await heard(source, inner), await plain(source, words)
    assert speech_s(marked) == pytest.approx(speech_s(written), rel=0.03)


async def test_a_pronunciation_is_not_the_word_inside(source: SpeechSource) -> None:
    marked = await heard(source, '<phoneme ph="ˈsuːpərˌkælɪfrædʒɪˌlɪstɪk">so</phoneme>')
    assert speech_s(marked) > 3 * speech_s(await plain(source, "so"))


async def test_a_pronunciation_that_espeak_lacks_is_the_word_inside(source: SpeechSource) -> None:
    marked = await heard(source, '<phoneme ph="ħʕ">hello</phoneme>')
    assert speech_s(marked) == pytest.approx(speech_s(await plain(source, "hello")), rel=0.03)


async def test_a_mark_behind_an_alias_comes_behind_its_words(source: SpeechSource) -> None:
    alias = "World Wide Web consortium of the whole planet"
    chunks = await chunks_of(source, f'<sub alias="{alias}">W3</sub><mark name="m"/> now and then')
    words = [word for chunk in chunks for word in chunk.words]
    alone_ms = 1000 * speech_s(await plain(source, alias))
    (mark,) = [mark for chunk in chunks for mark in chunk.marks]
    reached_ms = next(offset_ms for offset_ms, share in words if share >= mark[0])
    assert reached_ms == pytest.approx(alone_ms, rel=0.1)


async def test_rate(source: SpeechSource) -> None:
    text = "Thank you for calling the service desk today"
    normal, slow, fast = [
        speech_s(await heard(source, f'<prosody rate="{rate}">{text}</prosody>')) for rate in ("100%", "60%", "160%")
    ]
    assert slow / normal == pytest.approx(1 / 0.6, rel=0.12)
    assert fast / normal == pytest.approx(1 / 1.6, rel=0.12)


async def test_a_silent_part_is_silent_and_the_rest_is_not(source: SpeechSource) -> None:
    chunks = await chunks_of(source, 'One. <prosody volume="silent">Two three four.</prosody> Five.')
    samples = samples_of(chunks)
    assert max(pauses_ms(samples)) > 700
    assert "".join(chunk.begins_source or "" for chunk in chunks) == "One. Two three four. Five."


async def test_volume(source: SpeechSource) -> None:
    async def level_of(volume: str) -> float:
        samples = await heard(source, f'<prosody volume="{volume}">Thank you for calling the service desk.</prosody>')
        level = active_level_dbfs(samples.astype(np.int16).tobytes(), RATE_HZ)
        assert level is not None
        return level

    normal = await level_of("medium")
    assert await level_of("-6dB") - normal == pytest.approx(-6.0, abs=0.7)
    assert await level_of("soft") - normal == pytest.approx(-6.0, abs=0.7)
    loud = await heard(source, '<prosody volume="+20dB">Thank you.</prosody>')
    assert np.max(np.abs(loud)) <= 32768 * 10 ** (PEAK_DBFS / 20) + 1


@pytest.mark.parametrize("element", ['voice name="de"', 'voice xml:lang="de"', 'lang xml:lang="de-DE"'])
async def test_another_voice_speaks_its_part(source: SpeechSource, element: str) -> None:
    content = from_ssml(
        f"<speak>Hello <{element}>Straße</{element.split(maxsplit=1)[0]}> there.</speak>",
        TextContent("", voice="en-us"),
    )
    voices = [source.check(part).id for part in content.parts]  # type: ignore[arg-type, union-attr]
    assert voices == ["en-us", "de", "en-us"]


async def test_marks_come_where_their_words_are(source: SpeechSource) -> None:
    chunks = await chunks_of(
        source, '<mark name="a"/>One two <mark name="b"/>three.<break time="300ms"/><mark name="c"/>Four.'
    )
    assert [mark for chunk in chunks for mark in chunk.marks] == [
        (0.0, "a"),
        (pytest.approx(8 / 14), "b"),
        (0.0, "c"),
    ]


async def test_parts_are_cached_and_each_other_way_of_speaking_apart(source: SpeechSource) -> None:
    metrics = Metrics()
    cached = CachedSource(CacheConfig(min_uses=1), metrics)
    cached.identity = "engine"
    with_cache = SpeechSource(source.engine, Normalizer(), Config().tts, cache=cached)

    async def results(inner: str) -> tuple[float | None, float | None]:
        await chunks_of(with_cache, inner)
        return tuple(
            metrics.registry.get_sample_value("cctts_prompt_cache_requests_total", {"result": result})
            for result in ("missed", "memory")
        )  # type: ignore[return-value]

    assert await results("One<break/>pin 12") == (2.0, None)
    assert await results("One<break/>pin 12") == (2.0, 2.0)
    assert await results('One<break/>pin <say-as interpret-as="digits">12</say-as>') == (3.0, 3.0)
    assert await results('<prosody rate="slow">One</prosody>') == (4.0, 3.0)
