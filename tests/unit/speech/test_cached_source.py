"""Prompts between calls and a made-up engine: kept, shared while they are made, and bounded."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.events.bus import EventBus
from cc_tts.calls.prompts.player import PromptPlayer
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.calls.services import CallServices
from cc_tts.config.schema import CacheConfig, Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.engine import ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import EngineFailed, EngineOverloaded, NothingToSay
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.prompt_cache import (
    engine_identity,
    prompt_key,
)
from cc_tts.speech.cache.shared_synthesis import MAX_UNATTENDED, UNATTENDED_BUFFERED_MS, CachedSource
from cc_tts.speech.chunks import SpokenPrompt
from cc_tts.speech.prompt import Prompt, TextContent
from cc_tts.speech.source import SpeechSource
from cc_tts.text.chunker import Chunking
from cc_tts.text.normalizer import Normalizer
from tests.fakes.fake_engine import FakeChunks, FakeEngine, Step, pcm
from tests.fakes.fake_line import FakeClock, FakeLine
from tests.fakes.fake_vad import FakeVad
from tests.support.neural_settings import neural_settings
from tests.support.virtual_time import virtual_time

pytestmark = pytest.mark.unit

RATE_HZ = 8000
TEXT = "one two three four five six"
CHUNKS = tuple(SpeechChunk(bytes([n, 1]) * 1600, word) for n, word in enumerate(re.findall(r"\w+ ?", TEXT)))
WORDS = (
    SpeechChunk(b"\x01\x02" * 1600, "one two ", ((0.0, 0.0), (150.0, 0.5))),
    SpeechChunk(b"\x03\x04" * 1600, None, ((310.0, 0.7),)),
    SpeechChunk(b"\x05\x06" * 100, "three four five six"),
)


def prompt(text: str = TEXT, **changed: Any) -> SpokenPrompt:
    facts: dict[str, Any] = {
        "text": text,
        "engine": "fake",
        "voice": "en-us",
        "chunking": Chunking(),
        "speed": 1.0,
        "voice_rate_hz": 16_000,
        "rate_hz": RATE_HZ,
    }
    return SpokenPrompt(**{**facts, **changed})


class Desk:
    """A cached source and the streams that it had to ask for."""

    def __init__(self, folder: Path | None = None, *, max_held_bytes: int = 1 << 20, **config: Any) -> None:
        self.metrics = Metrics()
        self.source = CachedSource(CacheConfig(disk_dir=str(folder or ""), **config), self.metrics)
        self.source.max_held_bytes = max_held_bytes
        self.cache = self.source.cache
        self.source.identity = "model"
        self.plan: list[Step] = list(CHUNKS)
        self.plans: list[list[Step]] = []
        self.refusal: Exception | None = None
        self.made: list[FakeChunks] = []

    def open(self, text: str = TEXT, *, is_again: bool = False, **changed: Any) -> ChunkStream:
        return self.source.open(prompt(text, **changed), self.make, is_again=is_again)

    def make(self) -> ChunkStream:
        if self.refusal is not None:
            raise self.refusal
        self.made.append(FakeChunks(self.plans.pop(0) if self.plans else self.plan))
        return self.made[-1]

    async def say(self, text: str = TEXT, **changed: Any) -> list[SpeechChunk]:
        stream = self.open(text, **changed)
        chunks = [chunk async for chunk in stream]
        await stream.cancel()
        return chunks

    def requests(self, result: str) -> float:
        name = "cctts_prompt_cache_requests_total"
        return self.metrics.registry.get_sample_value(name, {"result": result}) or 0.0


def audio(chunks: list[SpeechChunk]) -> bytes:
    return b"".join(chunk.data for chunk in chunks)


def spans(chunks: list[SpeechChunk]) -> list[tuple[int, str | None, Any]]:
    """Where in the audio which words of the caller begin."""
    found, place = [], 0
    for chunk in chunks:
        if chunk.begins_source is not None or chunk.words:
            found.append((place, chunk.begins_source, chunk.words))
        place += len(chunk.data)
    return found


def listed(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


# --- kept ----------------------------------------------------------------------------------------------------------------


async def test_the_third_time_the_engine_is_not_asked() -> None:
    desk = Desk()
    desk.plan = list(WORDS)
    first, second, third = [await desk.say() for _ in range(3)]
    assert len(desk.made) == 2
    assert audio(first) == audio(second) == audio(third) == audio(list(WORDS))
    assert spans(third) == spans(list(WORDS))
    assert [any(chunk.cached for chunk in each) for each in (first, second, third)] == [False, False, True]
    assert all(chunk.cached for chunk in third)
    assert (desk.requests("missed"), desk.requests("memory")) == (2, 1)


async def test_a_cached_stream_can_be_cancelled() -> None:
    desk = Desk(min_uses=1)
    await desk.say()
    stream = desk.open()
    chunks = aiter(stream)
    await anext(chunks)
    stream.set_buffered_ms(100.0)
    await stream.cancel()
    await stream.cancel()
    assert [chunk async for chunk in chunks] == []


async def test_words_that_are_not_those_of_the_text_are_not_kept() -> None:
    desk = Desk(min_uses=1)
    desk.plan = [SpeechChunk(pcm(200), "something else")]
    await desk.say()
    await desk.say()
    assert len(desk.made) == 2


async def test_what_was_said_in_place_of_a_lost_worker_is_not_kept() -> None:
    desk = Desk(min_uses=1)
    desk.plan = [*CHUNKS[:-1], structs.replace(CHUNKS[-1], is_resumed=True)]
    await desk.say()
    desk.plan = list(CHUNKS)
    assert audio(await desk.say()) == audio(list(CHUNKS))
    await desk.say()
    assert len(desk.made) == 2


async def test_nothing_is_kept_before_the_engine_is_known() -> None:
    desk = Desk(min_uses=1)
    desk.source.identity = None
    await desk.say()
    await desk.say()
    assert len(desk.made) == 2
    assert not desk.source.has(prompt())


async def test_a_prompt_longer_than_the_limit_is_made_each_time_and_not_held() -> None:
    desk = Desk(min_uses=1, max_prompt_s=0.5)
    stream = desk.open()
    held = [desk.source.held_bytes async for _ in stream]
    assert max(held) <= 3 * 3200
    assert held[-1] == 0
    await desk.say()
    assert len(desk.made) == 2


# --- shared while it is made ---------------------------------------------------------------------------------------------


async def test_fifty_calls_that_ask_at_once_share_one_synthesis() -> None:
    desk = Desk()
    heard = await asyncio.gather(*(desk.say() for _ in range(50)))
    assert len(desk.made) == 1
    assert {audio(chunks) for chunks in heard} == {audio(list(CHUNKS))}
    assert all(spans(chunks) == spans(list(CHUNKS)) for chunks in heard)
    assert (desk.requests("missed"), desk.requests("joined")) == (1, 49)
    assert desk.source.held_bytes == 0
    assert audio(await desk.say()) == audio(list(CHUNKS))
    assert desk.requests("memory") == 1


async def test_one_that_comes_late_hears_it_from_the_beginning() -> None:
    desk = Desk()
    first = aiter(desk.open())
    for _ in range(3):
        await anext(first)
    late = [chunk async for chunk in desk.open()]
    rest = [chunk async for chunk in first]
    assert audio(late) == audio(list(CHUNKS))
    assert audio(rest) == audio(list(CHUNKS[3:]))
    assert len(desk.made) == 1


async def test_no_more_is_made_than_the_fastest_listener_asks_for() -> None:
    desk = Desk()
    fast, slow = aiter(desk.open()), aiter(desk.open())
    await anext(slow)
    for _ in range(3):
        await anext(fast)
    await settle()
    assert desk.made[0].num_read == 3


async def test_a_slow_listener_keeps_nobody_waiting_and_hears_everything() -> None:
    desk = Desk(min_uses=1)
    slow_stream = desk.open()
    slow = aiter(slow_stream)
    first = await anext(slow)
    others = await asyncio.gather(*(desk.say() for _ in range(5)))
    assert {audio(chunks) for chunks in others} == {audio(list(CHUNKS))}
    assert desk.source.held_bytes == len(audio(list(CHUNKS[1:])))
    rest = [chunk async for chunk in slow]
    assert audio([first, *rest]) == audio(list(CHUNKS))
    assert desk.source.held_bytes == 0
    assert len(desk.made) == 1


async def test_when_the_first_caller_hangs_up_the_others_go_on() -> None:
    desk = Desk()
    gate = asyncio.Event()
    desk.plan = [*CHUNKS[:2], gate, *CHUNKS[2:]]
    maker = desk.open()
    reading = aiter(maker)
    follower = asyncio.create_task(desk.say())
    await anext(reading)
    await settle()
    await maker.cancel()
    gate.set()
    assert audio(await follower) == audio(list(CHUNKS))
    assert len(desk.made) == 1


async def test_a_listener_cancelled_while_it_waits_is_let_go() -> None:
    desk = Desk(min_uses=3)
    desk.plan = [CHUNKS[0], asyncio.Event()]
    stream = desk.open()
    reading = asyncio.create_task(_all(stream))
    other = desk.open()
    await settle()
    await stream.cancel()
    assert audio(await reading) == CHUNKS[0].data
    assert desk.made[0].num_cancels == 0
    await other.cancel()
    assert desk.made[0].num_cancels == 1


async def test_a_prompt_that_the_engine_refuses_and_then_takes_is_used_once() -> None:
    desk = Desk(min_uses=2)
    desk.plans = [[EngineOverloaded("full")]] * 3
    for number in range(3):
        stream = desk.open(is_again=number > 0)
        with pytest.raises(EngineOverloaded):
            await anext(aiter(stream))
        await stream.cancel()
    chunks = [chunk async for chunk in desk.open(is_again=True)]
    assert audio(chunks) == audio(list(CHUNKS))
    assert desk.requests("missed") == 1
    assert not desk.source.has(prompt(TEXT)), "a prompt said once is not kept"
    await desk.say()
    assert desk.source.has(prompt(TEXT))


async def test_when_the_last_one_leaves_the_engine_is_freed() -> None:
    desk = Desk()
    stream = desk.open()
    await anext(aiter(stream))
    await stream.cancel()
    await settle()
    assert desk.made[0].num_cancels == 1
    assert desk.source.held_bytes == 0
    assert not desk.source.has(prompt())
    assert audio(await desk.say()) == audio(list(CHUNKS))
    assert len(desk.made) == 2


# --- prompts that are interrupted each time ------------------------------------------------------------------------------


async def test_a_wanted_prompt_is_finished_though_everybody_left() -> None:
    desk = Desk(min_uses=1)
    stream = desk.open()
    await anext(aiter(stream))
    await stream.cancel()
    await settle()
    assert desk.made[0].is_over
    assert desk.made[0].buffered_ms == UNATTENDED_BUFFERED_MS
    assert all(chunk.cached for chunk in await desk.say())
    assert len(desk.made) == 1


async def test_only_so_many_are_finished_unattended() -> None:
    desk = Desk(min_uses=1)
    desk.plan = [CHUNKS[0], asyncio.Event()]
    for number in range(MAX_UNATTENDED + 1):
        stream = desk.open(f"{TEXT} {number}")
        await anext(aiter(stream))
        await stream.cancel()
    assert [made.num_cancels for made in desk.made] == [*[0] * MAX_UNATTENDED, 1]
    await desk.source.stop()
    assert [made.num_cancels for made in desk.made] == [1] * (MAX_UNATTENDED + 1)


async def test_one_may_join_what_is_finished_unattended() -> None:
    desk = Desk(min_uses=1)
    gate = asyncio.Event()
    desk.plan = [CHUNKS[0], gate, *CHUNKS[1:]]
    stream = desk.open()
    await anext(aiter(stream))
    await stream.cancel()
    joined = asyncio.create_task(desk.say())
    await settle()
    gate.set()
    assert audio(await joined) == audio(list(CHUNKS))
    assert len(desk.made) == 1


async def test_what_one_listener_adds_to_a_chunk_no_other_reads() -> None:
    desk = Desk()
    first, second = aiter(desk.open()), aiter(desk.open())
    chunk = await anext(first)
    chunk.begin_with("unspoken ")
    chunk.marks = ((0.0, "m"),)
    assert await anext(second) == CHUNKS[0]


async def test_what_gets_too_long_unattended_is_given_up() -> None:
    desk = Desk(min_uses=1, max_prompt_s=0.5)
    stream = desk.open()
    await anext(aiter(stream))
    await stream.cancel()
    await settle()
    assert desk.made[0].num_cancels == 1
    assert not desk.made[0].is_over
    assert desk.source.held_bytes == 0


# --- failures ------------------------------------------------------------------------------------------------------------


async def test_when_the_maker_fails_before_any_audio_another_takes_over() -> None:
    desk = Desk()
    desk.plans = [[EngineFailed("worker died")]]
    heard = await asyncio.gather(*(desk.say() for _ in range(5)), return_exceptions=True)
    assert isinstance(heard[0], EngineFailed)
    assert [audio(cast("list[SpeechChunk]", each)) for each in heard[1:]] == [audio(list(CHUNKS))] * 4
    assert len(desk.made) == 2


async def test_an_engine_that_stays_broken_is_asked_twice_at_most() -> None:
    desk = Desk()
    desk.plan = [EngineFailed("worker died")]
    heard = await asyncio.gather(*(desk.say() for _ in range(50)), return_exceptions=True)
    assert {type(each) for each in heard} == {EngineFailed}
    assert len(desk.made) == 2
    assert desk.source.held_bytes == 0


async def test_a_failure_in_the_middle_ends_those_who_heard_the_beginning_and_nothing_is_kept() -> None:
    desk = Desk(min_uses=1)
    gate = asyncio.Event()
    desk.plans = [[*CHUNKS[:2], gate, EngineFailed("worker died")]]
    tasks = [asyncio.create_task(_all(desk.open())) for _ in range(3)]
    await settle()
    late = desk.open()
    gate.set()
    heard = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in heard} == {EngineFailed}
    assert audio(await _all(late)) == audio(list(CHUNKS)), "it had heard nothing and begins again"
    assert len(desk.made) == 2


async def test_what_is_wrong_with_the_prompt_is_not_tried_again() -> None:
    desk = Desk()
    desk.plan = [NothingToSay()]
    heard = await asyncio.gather(*(desk.say() for _ in range(3)), return_exceptions=True)
    assert {type(each) for each in heard} == {NothingToSay}
    assert len(desk.made) == 1


async def test_a_refusal_is_the_callers_and_no_use() -> None:
    desk = Desk()
    desk.refusal = EngineOverloaded("full", retry_after_s=1)
    for _ in range(3):
        with pytest.raises(EngineOverloaded):
            desk.open()
    assert not desk.cache.is_wanted(prompt_key(prompt(), "model"))
    assert desk.requests("missed") == 0


# --- bounds --------------------------------------------------------------------------------------------------------------


async def test_beyond_the_bound_prompts_are_made_without_being_held() -> None:
    desk = Desk(max_held_bytes=9000)
    first = desk.open()
    reading = aiter(first)
    for _ in range(2):
        await anext(reading)
    assert desk.source.held_bytes == 6400
    second = desk.open(TEXT + " more")
    more = aiter(second)
    await anext(more)
    assert desk.source.held_bytes == 6400, "the one that came over the bound holds nothing"
    async for _ in more:
        assert desk.source.held_bytes <= 9600
    await first.cancel()
    assert desk.source.held_bytes == 0


async def test_while_too_much_is_being_made_the_engine_is_asked_straight() -> None:
    desk = Desk(max_held_bytes=3000)
    desk.source.hold(3000)
    assert desk.open() is desk.made[0]
    assert desk.requests("bypassed") == 1


@virtual_time
async def test_the_engine_hears_of_the_listener_that_runs_dry_first() -> None:
    desk = Desk()
    fast_stream, slow_stream = desk.open(), desk.open()
    fast, slow = aiter(fast_stream), aiter(slow_stream)
    for _ in range(3):
        await anext(fast)
    await anext(slow)
    fast_stream.set_buffered_ms(500.0)
    assert desk.made[0].buffered_ms == 500.0
    slow_stream.set_buffered_ms(20.0)
    assert desk.made[0].buffered_ms == 20.0 + 400.0
    fast_stream.set_buffered_ms(450.0)
    assert desk.made[0].buffered_ms == 420.0
    slow_stream.set_buffered_ms(200.0)
    assert desk.made[0].buffered_ms == 450.0
    await fast_stream.cancel()
    slow_stream.set_buffered_ms(0.0)
    assert desk.made[0].buffered_ms == 400.0
    await slow_stream.cancel()


@given(
    st.lists(st.tuples(st.sampled_from(("open", "read", "leave", "wait")), st.integers(0, 5)), max_size=60),
    st.sampled_from((4000, 9000, 1 << 20)),
    st.sampled_from(([*CHUNKS], [*CHUNKS[:4], EngineFailed("worker died")])),
    st.integers(1, 3),
)
@settings(max_examples=100)
def test_whoever_comes_and_goes_everybody_hears_it_from_its_beginning_and_nothing_is_left(
    steps: list[tuple[str, int]], max_held_bytes: int, plan: list[Step], min_uses: int
) -> None:
    async def run() -> None:
        desk = Desk(max_held_bytes=max_held_bytes, min_uses=min_uses)
        desk.plan = plan
        whole = audio([step for step in plan if isinstance(step, SpeechChunk)])
        listeners: list[tuple[ChunkStream, AsyncIterator[SpeechChunk], list[SpeechChunk]]] = []
        for what, number in steps:
            if what == "open":
                stream = desk.open()
                listeners.append((stream, aiter(stream), []))
            elif what == "wait":
                await settle()
            elif listeners:
                stream, reading, heard = listeners[number % len(listeners)]
                if what == "leave":
                    await stream.cancel()
                else:
                    await _read(reading, heard, max_chunks=1)
        for _, reading, heard in listeners[::2]:
            await _read(reading, heard)
        for stream, _, _ in listeners:
            await stream.cancel()
        for _, _, heard in listeners:
            assert whole.startswith(audio(heard))
        await must_be_empty(desk)

    asyncio.run(run())


async def must_be_empty(desk: Desk) -> None:
    await settle()
    await desk.source.stop()
    assert desk.source.held_bytes == 0
    assert not {*desk.source.running, *desk.source.shared}
    assert all(made.is_over or made.num_cancels for made in desk.made)


async def _read(reading: AsyncIterator[SpeechChunk], heard: list[SpeechChunk], *, max_chunks: int = 100) -> None:
    with contextlib.suppress(StopAsyncIteration, EngineFailed):
        for _ in range(max_chunks):
            chunk = await anext(reading)
            heard.append(chunk)


# --- from disk -----------------------------------------------------------------------------------------------------------


async def kept_on_disk(folder: Path) -> None:
    desk = Desk(folder, min_uses=1)
    desk.plan = list(WORDS)
    await desk.cache.files.start()
    await desk.say()
    await desk.cache.files.stop()


async def test_after_a_restart_it_comes_from_disk_with_its_words(tmp_path: Path) -> None:
    await kept_on_disk(tmp_path)
    desk = Desk(tmp_path)
    await desk.cache.files.start()
    assert desk.source.has(prompt())
    heard = await asyncio.gather(*(desk.say() for _ in range(10)))
    assert {audio(chunks) for chunks in heard} == {audio(list(WORDS))}
    assert spans(heard[0]) == spans(list(WORDS))
    assert all(chunk.cached for chunks in heard for chunk in chunks)
    assert desk.made == []
    assert (desk.requests("disk"), desk.requests("joined")) == (1, 9)
    await desk.say()
    assert desk.requests("memory") == 1
    await desk.cache.files.stop()


async def test_the_callers_words_are_not_on_disk(tmp_path: Path) -> None:
    await kept_on_disk(tmp_path)
    (file,) = listed(tmp_path)
    for word in (b"one", b"three", b"four", b"six", b"en-us"):
        assert word not in file.read_bytes()


async def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    await kept_on_disk(tmp_path)
    (file,) = listed(tmp_path)
    file.write_bytes(b"x" + file.read_bytes()[1:])
    desk = Desk(tmp_path, min_uses=1)
    await desk.cache.files.start()
    chunks = await desk.say()
    assert audio(chunks) == audio(list(CHUNKS))
    assert not any(chunk.cached for chunk in chunks)
    assert len(desk.made) == 1
    assert all(chunk.cached for chunk in await desk.say())
    await desk.cache.files.stop()


async def test_cancel_while_the_file_is_read(tmp_path: Path) -> None:
    await kept_on_disk(tmp_path)
    desk = Desk(tmp_path)
    await desk.cache.files.start()
    stream = desk.open()
    reading = asyncio.create_task(_all(stream))
    await asyncio.sleep(0)
    await stream.cancel()
    assert await reading == []
    assert desk.made == []
    await desk.cache.files.stop()


# --- keys ----------------------------------------------------------------------------------------------------------------


def test_everything_that_changes_the_audio_changes_the_key() -> None:
    identity = "model"
    keys = [
        prompt_key(each, identity)
        for each in (
            prompt(),
            prompt(TEXT + " "),
            prompt(voice="de"),
            prompt(engine="other"),
            prompt(chunking=Chunking(language="de")),
            prompt(speed=1.1),
            prompt(chunking=Chunking(first_chunk_max_chars=61)),
            prompt(chunking=Chunking(chunk_max_chars=201)),
            prompt(chunking=Chunking(strips_markup=False)),
            prompt(rate_hz=16000),
        )
    ]
    keys.append(prompt_key(prompt(), "other"))
    assert len(set(keys)) == len(keys)
    assert all(len(key) == 64 for key in keys)
    assert len(prompt_key(prompt("\ud800 text that UTF-8 does not have"), identity)) == 64


def test_another_style_of_a_public_voice_is_another_identity(tmp_path: Path) -> None:
    config = Config(tts=TtsConfig(voices_dir=str(tmp_path)))
    found = {engine_identity(config)}
    for name in ("kokoro/model.onnx", "kokoro/styles/zf_a.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
        found.add(engine_identity(config))
    assert len(found) == 3
    (tmp_path / "kokoro" / "cache").mkdir()
    (tmp_path / "kokoro" / "cache" / "made.onnx").write_bytes(b"1")
    assert engine_identity(config) in found, "what the engine makes of them is no other voice"


@pytest.mark.parametrize("folder", ["model_dir", "voices_dir"])
def test_another_model_or_voice_is_another_identity(tmp_path: Path, folder: str) -> None:
    here = str(tmp_path)
    config = Config(tts=neural_settings(here) if folder == "model_dir" else TtsConfig(voices_dir=here))
    empty = engine_identity(config)
    (tmp_path / "llm.pt").write_bytes(b"1")
    one = engine_identity(config)
    (tmp_path / "llm.pt").write_bytes(b"22")
    assert len({empty, one, engine_identity(config)}) == 3
    gone = Config(tts=TtsConfig(voices_dir=str(tmp_path / "gone")))
    assert engine_identity(gone) == engine_identity(Config())
    assert engine_identity(Config(tts=neural_settings(tmp_path / "gone"))), "the engine says that it is gone"


# --- as the rest of the program sees it ----------------------------------------------------------------------------------


async def test_a_speech_source_with_a_cache() -> None:
    desk, engine = Desk(), FakeEngine()
    source = SpeechSource(cast("Any", engine), Normalizer(), TtsConfig(), cache=desk.source, line_rate_hz=RATE_HZ)
    text = "  Good morning, you have 3 messages.  You have £2.50 left.\n Goodbye. … "
    content = TextContent(text)
    said = [await _all(source.open(content, rate_hz=RATE_HZ)) for _ in range(3)]
    assert audio(said[0]) == audio(said[2])
    assert spans(said[0]) == spans(said[2])
    assert [chunk.cached for chunk in said[2]] == [True] * len(said[2])
    assert len(engine.streams) == 2
    fresh = await _all(source.open(TextContent(text, may_cache=False), rate_hz=RATE_HZ))
    assert not any(chunk.cached for chunk in fresh)
    assert len(engine.streams) == 3
    engine.refusal = "full"
    source.check_capacity(content)
    with pytest.raises(EngineOverloaded):
        source.check_capacity(TextContent(text, may_cache=False))
    with pytest.raises(EngineOverloaded):
        source.check_capacity(TextContent(text + "more"))
    with pytest.raises(EngineOverloaded):
        source.check_capacity(TextContent(text, speed=1.5))


async def test_utterances_say_whether_they_were_cached_and_barge_in_knows_the_words() -> None:
    desk, line = Desk(), FakeLine()
    completed: list[Utterance] = []
    source = SpeechSource(cast("Any", FakeEngine()), Normalizer(), TtsConfig(), cache=desk.source)
    services = CallServices(
        config=Config(),
        ua=cast("Any", line),
        source=source,
        vad=cast("Any", FakeVad()),
        events=EventBus(FakeClock()),
        metrics=desk.metrics,
        clock=FakeClock(),
    )
    player = PromptPlayer(
        CallInfo(services=services, id="c", direction="inbound", caller="", callee="", sip_call_id="", headers={}),
        on_started=lambda *_: None,
        on_complete=completed.append,
    )
    line.listener = player
    player.open_line(0)
    text = "Good morning, how are you? I am fine, and the weather is not bad either."
    for number in range(3):
        player.enqueue(utterance := spoken(number, text))
        while not utterance.is_complete:
            await settle()
            if number == 2 and utterance.played_ms >= 400:
                player.discard(utterance, CompletionCause.BARGE_IN)
            line.play(100)
    assert [each.cached for each in completed] == [False, False, True]
    assert [each.spoken_text for each in completed[:2]] == [text] * 2
    assert completed[2].completion_cause is CompletionCause.BARGE_IN
    assert completed[2].spoken_text
    assert text.startswith(completed[2].spoken_text)
    assert len(completed[2].spoken_text) < len(text)
    player.close(CompletionCause.CALL_ENDED)


def spoken(number: int, text: str) -> Utterance:
    return Utterance(
        id=f"u{number}",
        call_id="c",
        prompt=Prompt(content=TextContent(text)),
        voice="en-us",
        engine="fake",
        accepted_at_s=0.0,
        origin_ns=0,
        barge_in_dtmf=True,
    )


async def _all(stream: ChunkStream) -> list[SpeechChunk]:
    chunks: AsyncIterator[SpeechChunk] = aiter(stream)
    return [chunk async for chunk in chunks]
