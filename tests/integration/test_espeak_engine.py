"""A worker of the real espeak-ng, behind the engine of the server."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio

from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.cpu.contract import WordStart
from cc_tts.engines.cpu.libespeak import EspeakLibrary
from cc_tts.engines.factory import make_engine
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import EngineFailed, LanguageUnsupported, UnknownVoice
from cc_tts.media.levels import is_audible
from cc_tts.media.silence_trimmer import KEEP_LEAD_MS
from cc_tts.processes.supervisor import Supervisor

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

ENGLISH = "Hello world, your balance is twelve dollars."
CHINESE = "你好，世界。您的余额是十二元。"


def espeak() -> WorkerEngine:
    engine = make_engine(Config(tts=TtsConfig(engine="espeak", stall_timeout_ms=1000.0)))
    assert isinstance(engine, WorkerEngine)
    return engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[WorkerEngine]:
    engine = espeak()
    await engine.start()
    yield engine
    await engine.stop()


def worker_pid(engine: WorkerEngine) -> int:
    (link,) = engine.workers
    assert isinstance(link.process, Supervisor)
    assert link.process.pid is not None
    return link.process.pid


async def say(engine: WorkerEngine, *texts: str, voice: str = "en-us", speed: float = 1.0) -> list[SpeechChunk]:
    stream = engine.open(voice, speed=speed)
    for index, text in enumerate(texts):
        stream.push(text, text_chunk_index=index)
    stream.end()
    return [chunk async for chunk in stream]


def samples(chunks: list[SpeechChunk]) -> npt.NDArray[np.int32]:
    return np.frombuffer(b"".join(chunk.data for chunk in chunks), np.int16).astype(np.int32)


def seconds(chunks: list[SpeechChunk]) -> float:
    return sum(chunk.duration_ms for chunk in chunks) / 1000


async def test_it_speaks_english_in_22050_hz(engine: WorkerEngine) -> None:
    chunks = await say(engine, ENGLISH)
    assert {chunk.rate_hz for chunk in chunks} == {22050}
    assert 2 < seconds(chunks) < 4
    assert np.abs(samples(chunks)).max() > 8000


@pytest.mark.parametrize("voice", ["en-us", "en-us+f3", "en-gb", "de", "fr-fr", "cmn"])
@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["english", "chinese"])
async def test_the_first_20_ms_hold_speech(engine: WorkerEngine, voice: str, text: str) -> None:
    chunks = await say(engine, text, voice=voice)
    heard = np.flatnonzero(np.abs(samples(chunks)) > 33)
    assert heard[0] / 22.05 <= KEEP_LEAD_MS
    assert is_audible(chunks[0].data[: 2 * 441])


async def test_chinese_speaks_and_every_character_is_a_word_in_its_place(engine: WorkerEngine) -> None:
    chunks = await say(engine, CHINESE, voice="cmn")
    assert 2.5 < seconds(chunks) < 5
    positions = [word.position for chunk in chunks for word in chunk.spoken_words]
    assert positions[0] == 0
    assert set(positions) >= {3, 6, 7, 8, 9, 10, 11, 12, 13}
    assert positions == sorted(positions)


async def test_mixed_text(engine: WorkerEngine) -> None:
    assert seconds(await say(engine, "您好 Mr. Smith，您的 PIN 是 1234。", voice="cmn")) > 2
    assert seconds(await say(engine, "Press 1 for 中文, 2 for English.")) > 2


async def test_words_point_to_the_text_and_to_the_audio(engine: WorkerEngine) -> None:
    first, second = "One, two.", "Three four five."
    chunks = await say(engine, first, second)
    words = [(chunk.text_chunk_index, word) for chunk in chunks for word in chunk.spoken_words]
    assert [(index, (first, second)[index][word.position :].split()[0].strip(",.")) for index, word in words] == [
        (0, "One"),
        (0, "two"),
        (1, "Three"),
        (1, "four"),
        (1, "five"),
    ]
    assert words[0][1].offset_ms == 0
    audio = samples([chunk for chunk in chunks if chunk.text_chunk_index == 1])
    at = round(words[2][1].offset_ms * 22.05)
    assert np.abs(audio[: at - 221]).max() <= 33  # the pause before it
    assert np.abs(audio[at : at + 2205]).max() > 3000


async def test_words_of_a_text_longer_than_a_passage(engine: WorkerEngine) -> None:
    text = "This is the first of many sentences, and here it ends. " * 12
    chunks = await say(engine, text)
    starts = [word.position for chunk in chunks for word in chunk.spoken_words]
    assert starts == [
        index for index in range(len(text)) if text[index] != " " and (not index or text[index - 1] == " ")
    ]


async def test_no_click_where_text_chunks_meet(engine: WorkerEngine) -> None:
    """At each join the audio is near silence, and the pause is one a person would make."""
    chunks = await say(engine, "Hello there.", "Your balance is", "twelve dollars,", "thank you.")
    pauses_ms = []
    for index in range(1, 4):
        before = samples([chunk for chunk in chunks if chunk.text_chunk_index == index - 1])
        after = samples([chunk for chunk in chunks if chunk.text_chunk_index == index])
        assert max(np.abs(before[-22:]).max(), np.abs(after[:22]).max()) <= 33
        trail = len(before) - np.flatnonzero(np.abs(before) > 33)[-1]
        lead = np.flatnonzero(np.abs(after) > 33)[0]
        pauses_ms.append(float(trail + lead) / 22.05)
    assert pauses_ms == pytest.approx([300, 30, 150], abs=8)
    assert samples(chunks)[-1] == 0


async def test_speed(engine: WorkerEngine) -> None:
    durations = [seconds(await say(engine, ENGLISH, speed=speed)) for speed in (0.5, 1.0, 2.0)]
    assert durations[0] > 1.7 * durations[1]
    assert durations[1] > 1.7 * durations[2]


HOSTILE = {
    "20,000 letters": "a" * 20_000,
    "20,000 ideographs": "你" * 20_000,
    "digits": "1" * 20_000,
    "markup": "<speak><break time='10s'/><!-- " + "<" * 2000,
    "phoneme brackets": "[[h@l'oU]] " * 100,
    "espeak commands": "\x0150S\x01+30P hello \x1b[2J",
    "NUL": "before\0after",
    "control characters": "".join(map(chr, range(32))) * 50,
    "lone surrogates": "\ud800 hi \udfff" * 50,
    "right to left": "\u202e\u0645\u0631\u062d\u0628\u0627" * 200,
    "combining": "a" + "\u0301" * 5000,
    "emoji": "😀👨‍👩‍👧" * 300,
    "punctuation": "!?.,;" * 2000,
    "non-characters": "\uffff\ufffe\U0010ffff" * 100,
    "percent": "%s%n%x" * 500,
}


@pytest.mark.parametrize("voice", ["en-us", "cmn", "ar"])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_text_does_no_harm(engine: WorkerEngine, text: str, voice: str) -> None:
    stream = engine.open(voice)
    stream.push(text, text_chunk_index=0)
    stream.end()
    heard_s = 0.0
    async for chunk in stream:
        heard_s += chunk.duration_ms / 1000
        if heard_s > 60:
            break
    await stream.cancel()
    assert seconds(await say(engine, "Still here.")) > 0.5


async def test_markup_is_text_not_markup(engine: WorkerEngine) -> None:
    assert seconds(await say(engine, "<break time='10s'/>")) < 5
    assert seconds(await say(engine, "<b>hello</b>")) > seconds(await say(engine, "hello"))


async def test_hundred_streams_at_once_and_some_are_cancelled(engine: WorkerEngine) -> None:
    async def cancelled() -> list[SpeechChunk]:
        stream = engine.open("de")
        stream.push(ENGLISH * 20, text_chunk_index=0)
        first = await anext(aiter(stream))
        await stream.cancel()
        return [first, *[chunk async for chunk in stream]]

    results = await asyncio.gather(
        *(cancelled() if index % 5 == 0 else say(engine, ENGLISH, CHINESE, voice="cmn") for index in range(100))
    )
    for index, chunks in enumerate(results):
        if index % 5 == 0:
            assert len(chunks) == 1
        else:
            assert [chunk.text_chunk_index for chunk in chunks] == sorted(chunk.text_chunk_index for chunk in chunks)
            assert seconds(chunks) > 5


async def test_every_voice_of_the_list_speaks(engine: WorkerEngine) -> None:
    voices = engine.voices()
    assert len(voices) > 100
    assert len({voice.id for voice in voices}) == len(voices)
    assert {"en-us", "en-gb", "cmn", "de", "fr-fr", "es", "yue"} <= {voice.id for voice in voices}
    assert {voice.id: voice.language for voice in voices}["en-gb"] == "en-GB"
    for voice in voices:
        assert seconds(await say(engine, "1 a", voice=voice.id)) > 0.1, voice.id


async def test_voices_are_resolved(engine: WorkerEngine) -> None:
    for language, expected in [
        ("zh", "cmn"),
        ("zh-CN", "cmn"),
        ("en-GB", "en-gb"),
        ("en", "en-us"),
        ("fr", "fr-fr"),
        ("pt-BR", "pt-br"),
        ("vi", "vi"),
        ("nl-NL", "nl"),
    ]:
        assert engine.resolve_voice(None, language).id == expected
    assert engine.resolve_voice(None, None).id == "en-us"
    assert engine.resolve_voice("cmn", "en").id == "cmn"
    assert engine.resolve_voice("en-us+f3", None).id == "en-us+f3"
    with pytest.raises(UnknownVoice, match="did you mean en-us"):
        engine.resolve_voice("en-usa", None)
    with pytest.raises(UnknownVoice):
        engine.resolve_voice("en-us+nobody", None)
    with pytest.raises(LanguageUnsupported):
        engine.resolve_voice(None, "tlh")


async def test_variants_sound_different(engine: WorkerEngine) -> None:
    assert not np.array_equal(
        samples(await say(engine, "hello"))[:4000], samples(await say(engine, "hello", voice="en-us+f3"))[:4000]
    )


async def test_an_exception_in_the_callback_comes_out_of_synthesise_and_the_library_goes_on() -> None:
    library = EspeakLibrary()

    def broken(_pcm: bytes, _words: object) -> bool:
        raise ZeroDivisionError

    def keep(pcm: bytes, _words: object) -> bool:
        pieces.append(pcm)
        return True

    pieces: list[bytes] = []
    with pytest.raises(ZeroDivisionError):
        library.synthesise("hello", voice="en-us", rate_wpm=175, on_audio=broken)
    library.synthesise("hello", voice="en-us", rate_wpm=175, on_audio=keep)
    assert sum(map(len, pieces)) > 10_000


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_a_worker_that_dies_or_hangs_costs_what_it_was_saying_and_comes_back(number: signal.Signals) -> None:
    engine = espeak()
    await engine.start()
    try:
        pid = worker_pid(engine)
        saying = asyncio.create_task(say(engine, *[ENGLISH] * 100))
        if number is signal.SIGSTOP:
            os.kill(pid, number)
        await asyncio.sleep(0.02)
        os.kill(pid, number)
        async with asyncio.timeout(60):
            with pytest.raises(EngineFailed) as failed:
                await saying
            assert failed.value.retry_after_s
            while engine.not_ready_because() is not None:  # noqa: ASYNC110 - another process has no event here
                await asyncio.sleep(0.02)
        assert worker_pid(engine) != pid
        assert seconds(await say(engine, ENGLISH)) > 2
    finally:
        await engine.stop()


async def test_the_server_has_no_library_of_espeak(engine: WorkerEngine) -> None:
    script = (
        "import sys, cc_tts.server, cc_tts.engines.factory; from pathlib import Path; "
        "assert 'espeak' not in Path('/proc/self/maps').read_text(); "
        "assert 'espeakng_loader' not in sys.modules"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    assert await process.wait() == 0
    loaded = await asyncio.to_thread(Path(f"/proc/{worker_pid(engine)}/maps").read_text)
    assert "libespeak-ng" in loaded
    assert "onnxruntime" not in loaded


async def test_mandarin_syllables_that_espeak_says_in_english_are_said_in_chinese_and_words_keep_their_positions() -> (
    None
):
    library = EspeakLibrary()
    words: list[WordStart] = []

    def on_audio(_pcm: bytes, events: tuple[WordStart, ...]) -> bool:
        words.extend(events)
        return True

    library.synthesise("我兄弟在琼海", voice="sit/cmn", rate_wpm=175, on_audio=on_audio)
    assert [word.position for word in words] == [0, 1, 2, 3, 4, 5]
    said = library.phonemes("熊先生，兄弟，穷，囧，女兒", voice="sit/cmn")
    assert "(en)" not in said
    assert [said.count(syllable) for syllable in ("ɕjˈonɡɜ", "ɕjˈonɡ5", "tɕhjˈonɡɜ", "tɕjˈonɡ2")] == [1, 1, 1, 1]
