"""The text process: the same chunks as here, no turn of the event loop lost, and what becomes of texts when it ends."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio

from cc_tts.clock import MonotonicClock
from cc_tts.config.sections.log import LogConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded
from cc_tts.speech.prompt import TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.chunker import Chunking, TextChunk
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process import client
from cc_tts.text.process.client import TextProcess
from cc_tts.text.pronunciation.replacements import Replacement
from lab.chunk_text import chunk_text
from lab.waiting import until
from tests.fakes.fake_engine import FakeEngine

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

TIMEOUT_S = 100.0
CHINESE = "您好，您的账户余额是12345.67元，请在2026年11月20日前缴费，电话13800138000。"
SLOW = "②" * 5000
TEXTS = (
    ("Call 1-800-555-0199 on 11/20/2026, pay $1,234.56. Dr. Smith will see you at 5:30 p.m. " * 12, None),
    (CHINESE * 12, "zh"),
    (CHINESE + "Thank you for calling. " + CHINESE, None),
    ("①" * 500, "zh"),
    ("a lone \ud800 surrogate, and the rest. " * 10, "en"),
    ("?!" * 5000 + "yes", None),
    ("1" * 3000, "en"),
    ("short", None),
    ("  \n ", None),
    ("", None),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process() -> AsyncIterator[TextProcess]:
    process = make_process()
    await process.start()
    yield process
    await process.stop()


def make_process(downs: list[bool] | None = None) -> TextProcess:
    def on_down() -> None:
        if downs is not None:
            downs.append(True)

    return TextProcess(clock=MonotonicClock(), log=LogConfig(level="warning"), on_down=on_down)


async def chunks_of(process: TextProcess, text: str, language: str | None = None) -> list[TextChunk]:
    chunks: list[TextChunk] = []
    async with asyncio.timeout(TIMEOUT_S):
        await process.prepare(text, Chunking(language=language, detected_language="en")).feed(chunks.append)
    return chunks


@pytest.mark.parametrize(("text", "language"), TEXTS, ids=range(len(TEXTS)))
async def test_the_same_is_said_as_without_it(process: TextProcess, text: str, language: str | None) -> None:
    here = chunk_text(text, Normalizer(), language=language or "en")
    there = await chunks_of(process, text, language or "en")
    assert [chunk.spoken for chunk in there] == [chunk.spoken for chunk in here]
    assert (
        "".join(chunk.source for chunk in there) == "".join(chunk.source for chunk in here)[: sum(map(_length, there))]
    )


def _length(chunk: TextChunk) -> int:
    return len(chunk.source)


async def test_a_text_that_takes_long_does_not_hold_up_the_event_loop(process: TextProcess) -> None:
    """Both are measured here and now, in CPU time of this thread: how fast or busy the machine is does not matter."""
    normalizer = Normalizer()
    normalizer.warm_up()
    begun_s = time.thread_time()
    chunk_text(SLOW, normalizer, language="zh")
    here_s = time.thread_time() - begun_s
    source = SpeechSource(cast("Any", FakeEngine()), normalizer, TtsConfig(), text_process=process)
    content = TextContent(SLOW[:2500], None, "zh", None)

    async def read() -> int:
        return len([piece async for piece in source.open(content, rate_hz=8000)])

    requests = [asyncio.create_task(read()) for _ in range(4)]
    turns_s = []
    while not all(request.done() for request in requests):
        begun_s = time.thread_time()
        await asyncio.sleep(0.001)
        turns_s.append(time.thread_time() - begun_s)
    results = await asyncio.gather(*requests, return_exceptions=True)
    assert all(isinstance(result, int | CcTtsError) for result in results)
    assert max(turns_s) < here_s / 2
    assert sum(turns_s) < here_s


async def test_a_long_text_does_not_hold_up_the_first_words_of_another(process: TextProcess) -> None:
    order: list[str] = []

    def prepare(name: str, text: str) -> asyncio.Task[None]:
        preparation = process.prepare(text, Chunking(language="zh", detected_language="zh"))
        return asyncio.create_task(preparation.feed(lambda _chunk: order.append(name)))

    long, short = prepare("long", "①" * 2000), prepare("short", CHINESE)  # at once, so that the long one cannot be over
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(long, short)
    assert order.index("short") < len(order) - 2
    assert order[-1] == "long"


async def test_a_text_that_nobody_waits_for_is_dropped(process: TextProcess) -> None:
    preparation = process.prepare(SLOW, Chunking(language="zh", detected_language="zh"))
    preparation.cancel()
    preparation.cancel()
    assert await chunks_of(process, "one")
    assert process.num_texts == 0


async def test_a_text_that_takes_too_long_fails(process: TextProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PREPARE_TIMEOUT_S", 0.05)
    with pytest.raises(EngineFailed, match="not prepared within"):
        await chunks_of(process, SLOW, "zh")
    monkeypatch.undo()
    assert await chunks_of(process, "two")


async def test_too_many_texts_are_refused(process: TextProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_TEXTS", 1)
    waiting = asyncio.create_task(chunks_of(process, "①" * 300, "zh"))
    await asyncio.sleep(0)
    with pytest.raises(EngineOverloaded):
        await chunks_of(process, "three")
    assert await waiting


async def test_texts_are_prepared_without_the_process_when_it_dies_and_it_comes_back() -> None:
    downs: list[bool] = []
    process = make_process(downs)
    assert await chunks_of(process, CHINESE, "zh")  # it is not started
    await process.start()
    try:
        waiting = asyncio.create_task(chunks_of(process, CHINESE * 100, "zh"))
        await asyncio.sleep(0)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert [chunk.spoken for chunk in await waiting] == said_here(CHINESE * 100)
        await until(lambda: process.is_responsive, TIMEOUT_S)
        assert await chunks_of(process, "again")
        assert downs == [True]
    finally:
        await process.stop()


async def test_texts_are_prepared_without_a_process_that_is_stopped(process: TextProcess) -> None:
    """Within about a second, of as many calls as speak; and by the process when it answers again."""
    assert process.pid is not None
    before = asyncio.create_task(chunks_of(process, CHINESE * 50, "zh"))
    await asyncio.sleep(0)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        begun_s = time.monotonic()
        calls = [asyncio.create_task(first_of_text(process, f"{CHINESE}{n}")) for n in range(12)]
        firsts = await asyncio.gather(*calls)
        assert time.monotonic() - begun_s < 3 * client.STALL_TIMEOUT_S
        assert [chunk.spoken for chunk in firsts] == [said_here(f"{CHINESE}{n}")[0] for n in range(12)]
        assert [chunk.spoken for chunk in await before] == said_here(CHINESE * 50)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    await until(lambda: process.is_responsive, TIMEOUT_S)
    assert [chunk.spoken for chunk in await chunks_of(process, CHINESE, "zh")] == said_here(CHINESE)
    assert process.num_texts == 0


async def test_the_event_loop_runs_while_the_server_prepares_texts() -> None:
    """The longest turn of the loop is a slice of a text, and not the text."""
    process = make_process()
    working = asyncio.create_task(chunks_of(process, SLOW[:2500], "zh"))
    turns_s = []
    while not working.done():
        begun_s = time.thread_time()
        await asyncio.sleep(0.001)
        turns_s.append(time.thread_time() - begun_s)
    assert await working
    assert len(turns_s) > 10
    assert max(turns_s) < 0.02
    await process.stop()


async def first_of_text(process: TextProcess, text: str) -> TextChunk:
    return (await chunks_of(process, text, "zh"))[0]


def said_here(text: str) -> list[str]:
    return [chunk.spoken for chunk in chunk_text(text, Normalizer(), language="zh")]


async def test_private_use_characters_are_no_trouble(process: TextProcess) -> None:
    text = "Hello \ue000 world \uf8ef. " * 10
    assert " ".join(chunk.spoken for chunk in await chunks_of(process, text, "en")).startswith("Hello world.")


async def test_replaced_parts_cross_over(process: TextProcess) -> None:
    text = "Call Siobhan on 0800. " * 10
    replacements = (Replacement(5, 12, "Shivawn"), Replacement(16, 20, say_as="digits"))
    chunks: list[TextChunk] = []
    async with asyncio.timeout(TIMEOUT_S):
        await process.prepare(text, Chunking(language="en"), replacements).feed(chunks.append)
    assert chunks[0].spoken == "Call Shivawn on zero eight zero zero."
    assert chunks[0].replaced == ((5, 12, 5, 12), (16, 36, 16, 20))
    assert text.startswith("".join(chunk.source for chunk in chunks))


async def test_what_is_warm_has_read_the_transducers_that_chinese_needs_and_no_others() -> None:
    code = """
import kaldifst
read, transducer = [], kaldifst.TextNormalizer
def reading(path):
    read.append("/".join(path.split("/")[-3:]))
    return transducer(path)
kaldifst.TextNormalizer = reading
from cc_tts.text.normalizer import Normalizer
normalizer = Normalizer()
normalizer.warm_up()
print(*read)
normalizer.normalize("2024年3月5日14:30，价格12.5元，约3%，电话13800138000，長度5km。", "zh")
print(len(read))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert (await process.communicate())[0] == b"zh/tn/tagger.fst zh/tn/verbalizer.fst\n2\n"


async def test_a_server_that_has_started_compiles_no_rules_for_a_short_text() -> None:
    code = """
import asyncio
from tests.support.counted_rules import compiled
from cc_tts.clock import MonotonicClock
from cc_tts.config.sections.log import LogConfig
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process.client import TextProcess
async def main():
    process = TextProcess(clock=MonotonicClock(), log=LogConfig(), on_down=lambda: None)
    await process.start()
    was = len(compiled)
    for language in ("en-US", "en-GB"):
        Normalizer().normalize("See 18 U.S.C. 1 on 3/4/2026 at 5 pm, $5.", language)
    print(was > 100, len(compiled) - was)
    await process.stop()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert (await process.communicate())[0].split()[-2:] == [b"True", b"0"]
