"""Prompts of the real espeak-ng through the cache, over a restart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cc_tts.config.schema import CacheConfig, Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import make_engine
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.prompt_cache import engine_identity
from cc_tts.speech.cache.shared_synthesis import CachedSource
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.normalizer import Normalizer

pytestmark = pytest.mark.integration

TEXTS = (
    "Your balance is 12.50 dollars. " + "You have three new messages, two of which are urgent. " * 12,
    "你好，世界。您的余额是十二元。",
    "Please hold.",
)


class Spoken:
    """One life of a server's sources: with the cache, and straight from the engine."""

    def __init__(self, config: Config, engine: WorkerEngine) -> None:
        self.metrics = Metrics()
        self.cached = CachedSource(config.cache, self.metrics)
        self.cache = self.cached.cache
        self.source = SpeechSource(engine, Normalizer(), config.tts, cache=self.cached)
        self.straight = SpeechSource(engine, Normalizer(), config.tts)

    async def say(self, text: str, *, rate_hz: int = 8000) -> list[SpeechChunk]:
        return [chunk async for chunk in self.source.open(TextContent(text), rate_hz=rate_hz)]

    def requests(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("cctts_prompt_cache_requests_total", {"result": result})


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[Spoken]:
    config = Config(cache=CacheConfig(disk_dir=str(folder)))
    engine = make_engine(Config(tts=TtsConfig(engine="espeak")))
    await engine.start()
    spoken = Spoken(config, engine)
    await spoken.cache.files.start()
    spoken.cached.identity = await asyncio.to_thread(engine_identity, config)
    yield spoken
    await spoken.cached.stop()
    await engine.stop()
    await spoken.cache.files.stop()


def audio(chunks: list[SpeechChunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


def words(chunks: list[SpeechChunk]) -> list[tuple[int, str | None, tuple[tuple[float, float], ...]]]:
    found, place = [], 0
    for chunk in chunks:
        if chunk.begins_source is not None or chunk.words:
            found.append((place, chunk.begins_source, chunk.words))
        place += len(chunk.data)
    return found


def sources(chunks: list[SpeechChunk]) -> list[str]:
    return [chunk.begins_source for chunk in chunks if chunk.begins_source is not None]


@pytest.mark.parametrize(
    ("text", "rate_hz"), list(zip(TEXTS, (8000, 16000, 8000), strict=True)), ids=["long", "chinese", "short"]
)
async def test_the_same_bytes_and_words_every_time(tmp_path: Path, text: str, rate_hz: int) -> None:
    async with server(tmp_path) as first:
        straight = [chunk async for chunk in first.straight.open(TextContent(text), rate_hz=rate_hz)]
        heard = [await first.say(text, rate_hz=rate_hz) for _ in range(4)]
        # espeak-ng's noise differs each time it speaks, so what comes straight from it is alike only
        assert sources(heard[1]) == sources(straight)
        assert abs(len(audio(heard[1])) - len(audio(straight))) < 0.05 * len(audio(straight))
        assert audio(heard[1]) == audio(heard[2]) == audio(heard[3])
        assert words(heard[1]) == words(heard[2]) == words(heard[3])
        assert (first.requests("missed"), first.requests("memory")) == (2, 2)
    async with server(tmp_path) as second:
        after = await second.say(text, rate_hz=rate_hz)
        assert audio(after) == audio(heard[1])
        assert words(after) == words(heard[1])
        assert all(chunk.cached for chunk in after)
        assert (second.requests("missed"), second.requests("disk")) == (None, 1)
