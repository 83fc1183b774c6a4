"""Text in, line-rate PCM out, with a made-up engine."""

import asyncio
import dataclasses
from typing import Any, cast

import pytest

from cc_tts.audio import AudioFormat
from cc_tts.config.schema import CacheConfig, RouteConfig
from cc_tts.config.sections.models import TtsConfig
from cc_tts.config.sections.relay import RelaySettings
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import (
    ConfigError,
    EngineFailed,
    LanguageUnsupported,
    NothingToSay,
    TextTooLong,
    UnknownLexicon,
    UnknownVoice,
    Unprocessable,
)
from cc_tts.media.tones import MAX_TONE_MS
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.shared_synthesis import CachedSource
from cc_tts.speech.chunks import CHUNK_MS
from cc_tts.speech.prompt import Content, PromptDefaults, SequenceContent, SilenceContent, TextContent, ToneContent
from cc_tts.speech.source import SpeechSource
from cc_tts.speech.ssml import from_ssml
from cc_tts.text.chunker import SLICE_CHARS
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.pronunciation.lexicon import Entry, Lexicon
from cc_tts.voices.inline_sounds import SOUNDS
from cc_tts.voices.voice import Voice
from tests.fakes.fake_engine import VOICE, FakeEngine, tone
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

RATE_HZ = 8000
MARKUP_ALONE = (
    "![](https://example.com/a.png)",
    "[](https://example.com)",
    "<br/><hr>",
    "&nbsp;&nbsp;",
    "{name}",
    "~~old~~",
    '{"a": {}}',
    "| | |\n|---|---|",
    "<think>x</think><br/>",
)
"""Nothing is left of these when their markup is taken out."""


def make(engine: FakeEngine | None = None, **config: Any) -> SpeechSource:
    """A source with the real text front end."""
    return SpeechSource(cast("Any", engine or FakeEngine()), Normalizer(), TtsConfig(**config))


async def read(source: SpeechSource, content: Content) -> list[SpeechChunk]:
    return [chunk async for chunk in source.open(content, rate_hz=RATE_HZ, utterance_id="u")]


async def test_text_becomes_chunks_and_keeps_the_callers_words() -> None:
    engine = FakeEngine()
    text = "Good morning. " * 20
    chunks = await read(make(engine), TextContent(text))
    assert "".join(chunk.begins_source or "" for chunk in chunks).strip() == text.strip()
    pushed = sum(len(each) for each in engine.streams[0].pushed)
    assert sum(len(chunk.data) for chunk in chunks) / 16 == pytest.approx(10 * pushed, abs=5)
    assert max(len(chunk.data) for chunk in chunks) <= CHUNK_MS * 16
    assert all(len(chunk.data) % 2 == 0 for chunk in chunks)


async def test_a_fallback_of_another_rate_goes_on_in_the_same_stream() -> None:
    engine = FakeEngine()
    stream = make(engine).open(TextContent("Good morning. " * 8), rate_hz=RATE_HZ)
    chunks = aiter(stream)
    num_bytes, is_resumed = len((await anext(chunks)).data), False
    engine.audio_format, engine.is_resumed = AudioFormat(22_050), True
    async for chunk in chunks:
        assert chunk.is_resumed or not is_resumed
        is_resumed = chunk.is_resumed
        num_bytes += len(chunk.data)
    assert is_resumed
    pushed = sum(len(each) for each in engine.streams[0].pushed)
    assert num_bytes / 16 == pytest.approx(10 * pushed, abs=30)


async def test_a_long_text_is_prepared_in_slices_while_it_is_spoken() -> None:
    engine = FakeEngine()
    text = "This is a sentence like many others. " * 100
    source = make(engine)
    stream = source.open(TextContent(text), rate_hz=RATE_HZ)
    chunks = aiter(stream)
    await anext(chunks)
    assert sum(len(each) for each in engine.streams[0].pushed) <= 2 * SLICE_CHARS
    heard = [chunk async for chunk in chunks]
    assert len(text) > 5 * SLICE_CHARS
    assert len(heard) > 100
    await stream.cancel()


async def test_cancel_in_the_middle_frees_the_engine() -> None:
    engine = FakeEngine()
    stream = make(engine).open(TextContent("This is a sentence. " * 100), rate_hz=RATE_HZ)
    await anext(aiter(stream))
    await stream.cancel()
    await stream.cancel()
    await asyncio.sleep(0)
    assert engine.streams[0].is_cancelled


async def test_an_engine_that_fails_says_so() -> None:
    engine = FakeEngine()
    engine.error = EngineFailed("worker died")
    with pytest.raises(EngineFailed):
        await read(make(engine), TextContent("Hello."))


async def test_a_front_end_that_fails_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    source = make(engine)
    calls = 0

    def broken(*_arguments: object, **_more: object) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ValueError("broken")
        return ()

    monkeypatch.setattr("cc_tts.text.sentences.SentenceSplitter.push", broken)
    with pytest.raises(EngineFailed):
        await read(source, TextContent("This is a sentence. " * 100))
    assert engine.streams[0].is_cancelled


async def test_tones_and_silence() -> None:
    source = make()
    silence = b"".join(chunk.data for chunk in await read(source, SilenceContent(450)))
    assert (len(silence), any(silence)) == (450 * 16, False)
    tone = b"".join(chunk.data for chunk in await read(source, ToneContent("beep", 300)))
    assert 0 < len(tone) <= 300 * 16
    assert any(tone)
    stream = source.open(SilenceContent(1000), rate_hz=RATE_HZ)
    await stream.cancel()
    assert [chunk async for chunk in stream] == []


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (TextContent("x" * 101), TextTooLong),
        (TextContent(" … !"), NothingToSay),
        (TextContent(""), NothingToSay),
        *((TextContent(text), NothingToSay) for text in MARKUP_ALONE),
        (TextContent("hi", voice="nobody"), UnknownVoice),
        (TextContent("hi", language="xx"), LanguageUnsupported),
        (ToneContent("no such tone"), Unprocessable),
    ],
)
def test_what_could_not_be_spoken_is_refused_early(content: Content, error: type[Exception]) -> None:
    with pytest.raises(error):
        make(max_text_chars=100).check(content)


def test_what_can_be_spoken() -> None:
    source = make()
    voice = source.check(TextContent("hi"))
    assert voice is not None
    assert voice.id == "en-us"
    german = source.check(TextContent("Hallo", language="de-AT"))
    assert german is not None
    assert german.id == "de"
    assert source.check(SilenceContent(10)) is None
    assert source.check(ToneContent("beep")) is None


def test_a_tone_without_end_is_refused() -> None:
    with pytest.raises(Unprocessable):
        make().open(ToneContent("beep", MAX_TONE_MS + 1), rate_hz=RATE_HZ)


def test_a_default_voice_that_does_not_exist_is_found_at_the_start() -> None:
    make().check_voices({})
    with pytest.raises(ConfigError, match=r"tts\.voice"):
        make(voice="nobody").check_voices({})


def test_instructions_of_a_route_whose_voice_takes_none_are_told_at_the_start() -> None:
    routes = {"a": RouteConfig(instructions="speak calmly"), "b": RouteConfig()}
    assert make().check_voices(routes) == ["routes.a.instructions: the voice en-us takes no instructions"]


@pytest.mark.parametrize("text", MARKUP_ALONE)
def test_a_greeting_of_markup_alone_is_found_at_the_start(text: str) -> None:
    with pytest.raises(ConfigError, match=r"routes\.a\.greeting"):
        make().check_voices({"a": RouteConfig(greeting=text)})
    assert make(markdown="keep").check_voices({"a": RouteConfig(greeting="{name}")}) == []


@pytest.mark.parametrize(
    ("relay", "key"),
    [
        ({"voice": "nobody"}, r"routes\.a\.relay\.voice"),
        ({"language": "fr"}, r"routes\.a\.relay\.language"),
        ({"languages": {"de-DE": "nobody"}}, r"routes\.a\.relay\.languages\.de-DE\.voice"),
        ({"welcome_greeting": "…"}, r"routes\.a\.relay\.welcome_greeting"),
        ({"fallback": "…"}, r"routes\.a\.relay\.fallback"),
    ],
)
def test_what_a_relay_could_not_say_is_found_at_the_start(relay: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        make().check_voices({"a": RouteConfig(relay=RelaySettings(url="ws://app", **relay))})


async def test_speed_of_the_prompt_goes_before_that_of_the_config() -> None:
    engine = FakeEngine()
    source = make(engine, speed=1.5)
    await read(source, TextContent("one"))
    await read(source, TextContent("one", speed=0.75))
    assert [request.speed for request in engine.requests] == [1.5, 0.75]


async def test_a_placeholder_that_nobody_filled_is_logged_and_not_spoken() -> None:
    engine = FakeEngine()
    with capture_logs() as entries:
        await read(make(engine), TextContent("Hello {name}, welcome."))
    assert [(entry["event"], entry["utterance_id"]) for entry in entries] == [("unfilled_placeholder", "u")]
    assert engine.streams[0].pushed == ["Hello, welcome."]


async def test_markup_is_kept_where_the_configuration_says_so() -> None:
    engine = FakeEngine()
    await read(make(engine, markdown="keep"), TextContent("See [our site](https://a.com)."))
    assert "a dot com" in engine.streams[0].pushed[0]


@pytest.mark.parametrize(
    ("defaults", "error"),
    [
        (PromptDefaults(voice="nobody"), UnknownVoice),
        (PromptDefaults(voice="nobody", language="de"), UnknownVoice),
        (PromptDefaults(language="fr"), LanguageUnsupported),
        (PromptDefaults(lexicons=("none",)), UnknownLexicon),
    ],
    ids=repr,
)
def test_defaults_of_a_call_are_refused_early(defaults: PromptDefaults, error: type[Exception]) -> None:
    with pytest.raises(error):
        make().check_defaults(defaults)


def test_defaults_of_a_call_that_can_be_used() -> None:
    for defaults in (PromptDefaults(), PromptDefaults(voice="de", language="de"), PromptDefaults(language="de-AT")):
        make().check_defaults(defaults)


async def test_the_engine_hears_whose_call_it_is_for_every_part_of_a_prompt() -> None:
    engine = FakeEngine()
    source = make(engine)
    parts = SequenceContent((TextContent("One."), SilenceContent(20), TextContent("Two.")))
    for content in (TextContent("Hi."), parts):
        async for _ in source.open(content, rate_hz=RATE_HZ, call_id="call_1", utterance_id="u"):
            pass
    assert engine.call_ids == ["call_1"] * 3


@pytest.mark.parametrize("shape", ["text", "ssml"])
async def test_the_first_chunk_after_a_loss_says_so_and_no_other(shape: str) -> None:
    engine = FakeEngine()
    engine.make_pcm = tone
    text = TextContent("Good morning, and welcome. " * 20)
    content: Content = text if shape == "text" else SequenceContent((TextContent("One."), SilenceContent(20), text))
    source = make(engine)
    losses: list[bool] = []
    num_before = 3
    async for chunk in source.open(content, rate_hz=RATE_HZ):
        losses.append(chunk.after_loss)
        if len(losses) == num_before:
            engine.is_after_loss = engine.is_resumed = True
    assert losses.count(True) == 1
    assert not any(losses[:num_before])


async def test_a_loss_at_the_end_is_told_where_no_audio_follows() -> None:
    engine = FakeEngine()
    engine.make_pcm = lambda ms, rate_hz=RATE_HZ: b"\x01\x00" * 16  # no louder than silence
    engine.is_after_loss = True
    chunks = [chunk async for chunk in make(engine).open(TextContent("Hi."), rate_hz=RATE_HZ)]
    assert [chunk.after_loss for chunk in chunks] == [True]


INSTRUCTED = dataclasses.replace(VOICE, id="anna", takes_instructions=True)


class InstructedEngine(FakeEngine):
    """One of its voices takes instructions."""

    def voices(self) -> tuple[Voice, ...]:
        return (INSTRUCTED, *super().voices())


async def test_only_voices_that_take_instructions_have_them_and_sounds() -> None:
    engine = InstructedEngine()
    for voice in ("anna", "de"):
        style = TextContent("", voice, instructions=" speak\n calmly ")
        await read(make(engine), from_ssml('<speak>Hm<cc:sound name="sigh"/> hm</speak>', style))
    assert engine.instructions == ["speak calmly", ""]
    assert [stream.pushed for stream in engine.streams] == [[f"Hm{SOUNDS['sigh']} hm"], ["Hm hm"]]


async def test_emphasis_that_a_voice_does_not_make_parts_no_words_of_a_lexicon() -> None:
    engine = InstructedEngine()
    source = make(engine)
    source.lexicons.put("streets", Lexicon(entries=(Entry("Neue Straße", "neue gasse"),)))
    ssml = "<speak>Zur Neue <emphasis>Straße</emphasis></speak>"
    await read(source, from_ssml(ssml, TextContent("", "de", lexicons=("streets",))))
    assert [stream.pushed for stream in engine.streams] == [["Zur neue gasse"]]


async def test_cached_audio_is_that_of_the_same_instructions_where_they_are_taken() -> None:
    engine, cache = InstructedEngine(), CachedSource(CacheConfig(min_uses=1), Metrics())
    cache.identity = "the engine"
    source = SpeechSource(cast("Any", engine), Normalizer(), TtsConfig(), cache=cache)
    for voice in ("anna", "de"):
        for instructions in (None, "speak calmly", "speak  calmly", "in a whisper"):
            await read(source, TextContent("Hello.", voice, instructions=instructions))
    assert engine.instructions == ["", "speak calmly", "in a whisper", ""]


def test_instructions_that_are_too_long_are_refused_where_they_are_taken() -> None:
    source = make(InstructedEngine())
    with pytest.raises(Unprocessable, match="501 characters"):
        source.check(TextContent("Hello.", "anna", instructions="x" * 501))
    assert source.check(TextContent("Hello.", "de", instructions="x" * 501)) is not None
