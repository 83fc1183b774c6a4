"""Speech sources and engines that say what a test wants: so many milliseconds a word, an error, or nothing until told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from cc_tts.audio import AudioFormat
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import LanguageUnsupported, UnknownVoice
from cc_tts.speech.prompt import Content, PromptDefaults, SilenceContent, TextContent, ToneContent
from cc_tts.voices.voice import Voice
from tests.fakes.worker_here import none_elsewhere

CHUNK_MS = 200
Step = SpeechChunk | Exception | asyncio.Event
VOICE = Voice(id="en-us", engine="fake", language="en-US", rate_hz=16_000)


def pcm(ms: float, rate_hz: int = 8000) -> bytes:
    return b"\x10\x10" * AudioFormat(rate_hz).samples_for_ms(ms)


def tone(ms: float, rate_hz: int = 8000) -> bytes:
    """A square wave of 250 Hz, which passes levelling and resampling."""
    num_samples = AudioFormat(rate_hz).samples_for_ms(ms)
    half = rate_hz // 500
    wave = b"\x10\x10" * half + b"\xf0\xef" * half
    return (wave * (num_samples // (2 * half) + 1))[: 2 * num_samples]


class FakeChunks:
    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self.num_read = 0
        self.is_over = False
        self.num_cancels = 0
        self.buffered_ms = 0.0

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        for step in self._steps:
            if self.num_cancels:
                return
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            else:
                self.num_read += 1
                yield step
        self.is_over = True

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self.buffered_ms = buffered_ms

    async def cancel(self) -> None:
        self.num_cancels += 1
        await asyncio.sleep(0)  # as one that has to wait for another process


class FakeSource:
    """Opens streams: a word is a chunk of 200 ms, unless ``plans`` says otherwise for the text."""

    def __init__(self) -> None:
        self.plans: dict[str, Sequence[Step]] = {}
        self.open_error: Exception | None = None
        self.has_fallback = False
        self.opened: list[Content] = []
        self.opened_again: list[bool] = []
        self.streams: list[FakeChunks] = []
        self.refusal: Exception | None = None
        self.full: Exception | None = None
        self.busy = 0.0

    def utilisation(self, content: Content) -> float:
        return self.busy

    def check(self, content: Content) -> Voice | None:
        if self.refusal is not None:
            raise self.refusal
        return VOICE if isinstance(content, TextContent) else None

    def check_defaults(self, defaults: PromptDefaults) -> None:
        if self.refusal is not None:
            raise self.refusal
        FakeEngine().resolve_voice(defaults.voice, None)

    def check_capacity(self, content: Content, *, may_wait: bool = False) -> None:
        if self.full is not None and not may_wait:
            raise self.full

    def open(
        self,
        content: Content,
        *,
        rate_hz: int,
        call_id: str = "",
        utterance_id: str = "",
        is_again: bool = False,
        must_speak: bool = False,
    ) -> FakeChunks:
        if self.open_error is not None and not (must_speak and self.has_fallback):
            raise self.open_error
        self.opened.append(content)
        self.opened_again.append(is_again)
        self.streams.append(FakeChunks(self.steps_of(content, rate_hz)))
        return self.streams[-1]

    def steps_of(self, content: Content, rate_hz: int) -> Sequence[Step]:
        match content:
            case TextContent():
                words = [f"{word} " for word in content.text.split()]
                return self.plans.get(content.text) or [SpeechChunk(pcm(CHUNK_MS), word) for word in words]
            case ToneContent():
                return [SpeechChunk(pcm(content.duration_ms or 1000, rate_hz))]
            case SilenceContent():
                return [SpeechChunk(bytes(len(pcm(content.silence_ms, rate_hz))))]
        raise NotImplementedError(content)


class FakeEngineStream:
    """A stream of an engine: 10 ms a character, one chunk of PCM for each text chunk."""

    def __init__(self, engine: "FakeEngine") -> None:
        self._engine = engine
        self._texts: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
        self.pushed: list[str] = []
        self.is_cancelled = False
        self.buffered_ms = 0.0

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        self.pushed.append(spoken_text)
        self._texts.put_nowait((spoken_text, text_chunk_index))

    def end(self) -> None:
        self._texts.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        while (each := await self._texts.get()) is not None and not self.is_cancelled:
            if self._engine.error is not None:
                raise self._engine.error
            text, index = each
            sound = self._engine.make_pcm(10 * len(text), self._engine.audio_format.rate_hz)
            after_loss, self._engine.is_after_loss = self._engine.is_after_loss, False
            yield SpeechChunk(
                sound,
                rate_hz=self._engine.audio_format.rate_hz,
                text_chunk_index=index,
                is_resumed=self._engine.is_resumed,
                after_loss=after_loss,
            )

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self.buffered_ms = buffered_ms

    async def cancel(self) -> None:
        self.is_cancelled = True
        self._texts.put_nowait(None)


class Request(NamedTuple):
    voice: str
    speed: float


class FakeEngine:
    name = "fake"
    identity = ""

    def __init__(self) -> None:
        self.audio_format = AudioFormat(16000)
        self.is_resumed = False
        self.is_after_loss = False
        self.refusal: str | None = None
        self.is_busy = False
        self.degraded_because: str | None = None
        self.error: Exception | None = None
        self.requests: list[Request] = []
        self.instructions: list[str] = []
        self.call_ids: list[str] = []
        self.streams: list[FakeEngineStream] = []
        self.is_started = False
        self.make_pcm = pcm
        self.stand_in: FakeEngine | None = None
        self.elsewhere = none_elsewhere()

    def not_ready_because(self, voice: str | None = None) -> str | None:
        return self.refusal

    def is_full(self, voice: str | None = None) -> bool:
        return self.refusal is not None and self.is_busy

    def utilisation(self, voice: str) -> float:
        return 0.0

    async def start(self) -> None:
        self.is_started = True

    async def stop(self) -> None:
        self.is_started = False

    async def refresh_voices(self) -> None:
        """It has them all."""

    voice_faults: tuple[str, ...] = ()

    def voices(self) -> tuple[Voice, ...]:
        return (VOICE, Voice(id="de", engine="fake", language="de", rate_hz=16_000))

    def resolve_voice(self, voice: str | None, language: str | None) -> Voice:
        for each in self.voices():
            if voice == each.id or (voice is None and (language or "en")[:2] == each.language[:2]):
                return each
        if voice is None:
            raise LanguageUnsupported(f"nobody speaks {language}")
        raise UnknownVoice(f"no voice is called {voice}")

    def open_stand_in(self, voice: str, speed: float = 1.0) -> FakeEngineStream | None:
        return None if self.stand_in is None else self.stand_in.open(voice, speed)

    def open(
        self, voice: str, speed: float = 1.0, *, instructions: str = "", call_id: str = "", must_speak: bool = False
    ) -> FakeEngineStream:
        self.requests.append(Request(voice, speed))
        self.instructions.append(instructions)
        self.call_ids.append(call_id)
        self.streams.append(FakeEngineStream(self))
        return self.streams[-1]
