"""Text in, line-rate PCM out: chunker, engine and resampler as one stream. Calls and ``/v1/audio/speech`` use the same."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from cc_tts.audio import AudioFormat
from cc_tts.config.schema import RouteConfig, TtsConfig
from cc_tts.engines.engine import Engine, SpeechStream, SynthesisRequest
from cc_tts.errors import (
    CcTtsError,
    ClientError,
    ConfigError,
    EngineFailed,
    EngineOverloaded,
    LanguageUnsupported,
    NothingToSay,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
)
from cc_tts.media import tones
from cc_tts.speech.prompt import Content, SilenceContent, TextContent, ToneContent
from cc_tts.speech.resampler import StreamResampler
from cc_tts.text.characters import has_speech
from cc_tts.text.chunker import Chunker, TextChunk
from cc_tts.text.language import detect_language, rule_set
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process.client import TextPreparation, TextProcess
from cc_tts.voices.voice import Voice

CHUNK_MS: Final = 200
"""Longest chunk handed on at once: what one message to the UA process carries."""
TEXT_SLICE_CHARS: Final = 100
"""Where there is no text process, the text is prepared in slices of this size, with turns of the event loop in between.
Where there is one, a text of one such slice is prepared here if that takes about as long as handing it over.
"""
MAX_TONE_MS: Final = 600_000
RETRY_AFTER_S: Final = 1
"""Retry-After while the engine takes no prompt."""


@dataclass(frozen=True, slots=True)
class SpeechChunk:
    """Line-rate PCM; the caller's words if a new text chunk begins with it; the words that begin in it (as in
    :class:`cc_tts.calls.utterance.SpokenSpan`); whether it comes from the cache.
    """

    data: bytes
    begins_source: str | None = None
    words: tuple[tuple[float, float], ...] = ()
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenPrompt:
    """All that decides what a prompt of text sounds like on the line, the engine's identity aside.

    ``asked_language`` is the prompt's own, ``language`` the one its text is read in; empty: found from the text.
    """

    text: str
    voice: Voice
    asked_language: str
    language: str
    speed: float
    first_chunk_max_chars: int
    chunk_max_chars: int
    rate_hz: int


class ChunkStream(Protocol):
    """Line-rate audio of one prompt, as it is synthesised."""

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """The line holds so much of the audio that is not played yet, ms."""
        ...

    def __aiter__(self) -> AsyncIterator[SpeechChunk]: ...

    async def cancel(self) -> None:
        """Stop and free everything. Safe to call twice and after the end."""
        ...


Synthesise = Callable[[], ChunkStream]
"""Opens a stream of the engine; raises what :meth:`SpeechSource.open` does."""


class SpeechCache(Protocol):
    """Audio of prompts that were spoken before."""

    def has(self, prompt: SpokenPrompt) -> bool:
        """Whether the engine is not needed for it."""
        ...

    def open(self, prompt: SpokenPrompt, synthesise: Synthesise, *, is_again: bool = False) -> ChunkStream:
        """Begin to read a prompt; ``synthesise`` is for one that must be made. ``is_again``: this use has been counted."""
        ...


class SpeechSource:
    """Opens streams; those of text through ``cache`` if there is one. ``line_rate_hz`` is that of calls.

    A server prepares texts in ``text_process``, where they cannot hold up its event loop. Runs on: the event loop.
    """

    def __init__(
        self,
        engine: Engine,
        normalizer: Normalizer,
        config: TtsConfig,
        *,
        cache: SpeechCache | None = None,
        line_rate_hz: int = 8000,
        text_process: TextProcess | None = None,
    ) -> None:
        self._engine = engine
        self._normalizer = normalizer
        self._text_process = text_process
        self._config = config
        self._cache = cache
        self._line_rate_hz = line_rate_hz

    @property
    def engine(self) -> Engine:
        """The engine behind it."""
        return self._engine

    def check_default_voice(self) -> None:
        """Find out at start, not at the first prompt, that ``tts.voice`` does not exist.

        Raises:
            ConfigError: it does not.
        """
        try:
            self._engine.resolve_voice(self._config.voice or None, None)
        except UnknownVoice as error:
            raise ConfigError(f"tts.voice: {error.detail}") from error
        self._check_language("tts.language", self._config.language)

    def check_routes(self, routes: Mapping[str, RouteConfig]) -> list[str]:
        """Find out at start, not by refused calls, what a route cannot speak.

        Returns:
            Which greetings are longer than a prompt may be, a sentence each.

        Raises:
            ConfigError: a voice does not exist, a language is not spoken, or a greeting cannot be spoken.
        """
        warnings: list[str] = []
        for user, route in routes.items():
            key = f"routes.{user}" if re.fullmatch(r"[A-Za-z0-9_-]+", user) else f'routes."{user}"'
            try:
                if route.voice:
                    self._engine.resolve_voice(route.voice, route.language or None)
            except UnknownVoice as error:
                raise ConfigError(f"{key}.voice: {error.detail}") from error
            if not route.voice:
                self._check_language(f"{key}.language", route.language)
            for name, text in (("greeting", route.greeting), ("unanswered_greeting", route.unanswered_greeting)):
                try:
                    if text:
                        self.check(TextContent(text, route.voice or None, route.language or None))
                except TextTooLong as error:
                    warnings.append(f"{key}.{name}: {error.detail}: calls that are to hear it are refused")
                except ClientError as error:
                    raise ConfigError(f"{key}.{name}: {error.detail}") from error
        return warnings

    def _check_language(self, key: str, language: str) -> None:
        try:
            if language:
                self._engine.resolve_voice(None, language)
        except LanguageUnsupported as error:
            raise ConfigError(f"{key}: {error.detail}") from error

    def check(self, content: Content) -> Voice | None:
        """Refuse early what could not be spoken.

        Returns:
            The voice that will speak; ``None`` for tones and silence.

        Raises:
            TextTooLong, NothingToSay, UnknownVoice, LanguageUnsupported, Unprocessable: the content is of no use.
        """
        match content:
            case TextContent():
                self.check_text(content.text)
                return self._voice(content)
            case ToneContent():
                tones.tone(content.tone, 8000, max_ms=1)
        return None

    def check_text(self, text: str) -> None:
        """Do what :meth:`check` does, as far as no engine is needed for it.

        Raises:
            TextTooLong, NothingToSay: the text is of no use.
        """
        limit = self._config.max_text_chars
        if len(text) > limit:
            raise TextTooLong(f"{len(text)} characters; tts.max_text_chars is {limit}")
        if not has_speech(text):
            raise NothingToSay("the text has no letter and no digit")

    def check_room(self, content: Content) -> None:
        """Refuse a prompt that would start now on a call while the engine could not take it and needs to.

        Raises:
            EngineOverloaded: it could not; the message says why.
        """
        if not isinstance(content, TextContent):
            return
        prompt = self._spoken(content, self._line_rate_hz)
        if (reason := self._engine.not_ready_for(prompt.voice)) is not None:
            if self._cache is not None and content.may_cache and self._cache.has(prompt):
                return
            raise EngineOverloaded(reason, retry_after_s=RETRY_AFTER_S)

    def open(self, content: Content, *, rate_hz: int, utterance_id: str = "", is_again: bool = False) -> ChunkStream:
        """Begin to produce the content at ``rate_hz``; ``is_again`` after a stream of it that gave nothing.

        Raises:
            EngineOverloaded: the engine refuses the stream.
            UnknownVoice, LanguageUnsupported, Unprocessable: as :meth:`check`.
        """
        match content:
            case TextContent():
                prompt = self._spoken(content, rate_hz)
                if self._cache is None or not content.may_cache:
                    return self._speak(prompt, utterance_id)
                return self._cache.open(prompt, lambda: self._speak(prompt, utterance_id), is_again=is_again)
            case ToneContent():
                if content.duration_ms > MAX_TONE_MS:
                    raise Unprocessable(f"a tone lasts at most {MAX_TONE_MS} ms")
                return _fixed(tones.tone(content.tone, rate_hz, max_ms=content.duration_ms), rate_hz)
            case SilenceContent():
                return _fixed(tones.silence(content.silence_ms, rate_hz), rate_hz)

    def path(self, content: TextContent) -> list[str]:
        """What the content goes through on its way to the line, a description each; the engine has started.

        Raises:
            UnknownVoice, LanguageUnsupported: as :meth:`check`.
        """
        prompt = self._spoken(content, self._line_rate_hz)
        resampler = self._resampler(prompt)
        steps = ["text"]
        if self._cache is not None and content.may_cache:
            steps.append(str(self._cache))
        steps += [str(self._chunker(prompt)), f"engine({prompt.voice.engine}, {prompt.voice.id})"]
        if resampler.source_rate_hz != resampler.target_rate_hz:
            steps.append(str(resampler))
        return [*steps, f"chunks {CHUNK_MS} ms"]

    def _spoken(self, content: TextContent, rate_hz: int) -> SpokenPrompt:
        config = self._config
        return SpokenPrompt(
            text=content.text,
            voice=self._voice(content),
            asked_language=content.language or "",
            language=content.language or config.language,
            speed=content.speed if content.speed is not None else config.speed,
            first_chunk_max_chars=config.first_chunk_max_chars,
            chunk_max_chars=config.chunk_max_chars,
            rate_hz=rate_hz,
        )

    def _speak(self, prompt: SpokenPrompt, utterance_id: str) -> ChunkStream:
        request = SynthesisRequest(
            voice=prompt.voice.id,
            language=prompt.asked_language or None,
            speed=prompt.speed,
            utterance_id=utterance_id,
        )
        text = self._prepare(prompt)
        try:
            stream = self._engine.open(request)
        except CcTtsError:
            text.cancel()
            raise
        return _Synthesis(stream, text, self._resampler(prompt))

    def _prepare(self, prompt: SpokenPrompt) -> "_TextHere | TextPreparation":
        language, detected_language = prompt.language or None, detect_language(prompt.text)
        first_max_chars, max_chars = prompt.first_chunk_max_chars, prompt.chunk_max_chars
        if self._text_process is not None and not _is_quick(prompt.text, language or detected_language):
            return self._text_process.prepare(
                prompt.text,
                language=language,
                detected_language=detected_language,
                first_chunk_max_chars=first_max_chars,
                chunk_max_chars=max_chars,
            )
        return _TextHere(prompt.text, self._chunker(prompt))

    def _chunker(self, prompt: SpokenPrompt) -> Chunker:
        return Chunker(
            self._normalizer,
            language=prompt.language or None,
            detected_language=detect_language(prompt.text),
            first_chunk_max_chars=prompt.first_chunk_max_chars,
            chunk_max_chars=prompt.chunk_max_chars,
        )

    def _resampler(self, prompt: SpokenPrompt) -> StreamResampler:
        return StreamResampler(prompt.voice.rate_hz, prompt.rate_hz)

    def _voice(self, content: TextContent) -> Voice:
        language = content.language or self._config.language or None
        voice = content.voice
        if voice is None and language is None:
            spoken = detect_language(content.text)
            default = self._engine.resolve_voice(self._config.voice or None, None)
            if default.language.split("-")[0].lower() == spoken.split("-")[0].lower() or spoken == "en":
                return default
            return self._engine.resolve_voice(None, spoken)
        if voice is None:
            default = self._engine.resolve_voice(self._config.voice or None, None)
            assert language is not None
            if default.language.split("-")[0].lower() == language.split("-")[0].lower():
                return default
        return self._engine.resolve_voice(voice, language)


def _is_quick(text: str, language: str) -> bool:
    """Whether a text is prepared sooner than it is handed to another process: about a millisecond, without wetext."""
    return len(text) <= TEXT_SLICE_CHARS and text.isascii() and rule_set(language) != "zh"


class _TextHere:
    """A text that is prepared in this process; see :class:`cc_tts.text.process.client.TextPreparation`."""

    def __init__(self, text: str, chunker: Chunker) -> None:
        self._text = text
        self._chunker = chunker

    async def feed(self, take: Callable[[TextChunk], None]) -> None:
        for start in range(0, len(self._text), TEXT_SLICE_CHARS):
            for chunk in self._chunker.push(self._text[start : start + TEXT_SLICE_CHARS]):
                take(chunk)
            await asyncio.sleep(0)
        for chunk in self._chunker.flush():
            take(chunk)

    def cancel(self) -> None:
        """Nothing to do: whoever feeds is cancelled."""


class _Synthesis:
    """A text on its way through the engine: PCM at the engine's rate in, chunks at the line's rate out."""

    def __init__(self, stream: SpeechStream, text: _TextHere | TextPreparation, resampler: StreamResampler) -> None:
        self._stream = stream
        self._text = text
        self._format = AudioFormat(resampler.target_rate_hz)
        self._resampler = resampler
        self._sources: list[str] = []
        self._spoken_chars: dict[int, int] = {}
        self._feeder: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def set_buffered_ms(self, buffered_ms: float) -> None:
        self._stream.set_buffered_ms(buffered_ms)

    async def cancel(self) -> None:
        if self._feeder is not None:
            self._feeder.cancel()
        self._text.cancel()
        await self._stream.cancel()

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        self._feeder = asyncio.create_task(self._feed())
        announced = -1
        source: str | None = None
        words: tuple[tuple[float, float], ...] = ()
        async for pcm in self._stream:
            if pcm.text_chunk_index > announced:
                source = (source or "") + "".join(self._sources[announced + 1 : pcm.text_chunk_index + 1])
                announced = pcm.text_chunk_index
            length = self._spoken_chars.get(pcm.text_chunk_index, 0) or 1
            words = (*words, *((word.offset_ms, word.position / length) for word in pcm.words))
            for data in _cut(self._resampler.process(pcm.data), self._format):
                yield SpeechChunk(data, source, words)
                source, words = None, ()
        if self._failure is not None:
            raise self._failure
        for data in _cut(self._resampler.process(b"", last=True), self._format):
            yield SpeechChunk(data, source, words)
            source, words = None, ()
        if not self._sources:
            raise NothingToSay("nothing of the text can be spoken")

    async def _feed(self) -> None:
        try:
            await self._text.feed(self._push)
            self._stream.end()
        except CcTtsError as error:  # raised where the audio is read, so that the reader is not left waiting
            await self._fail(error)
        except Exception as error:  # noqa: BLE001 - likewise
            failure = EngineFailed("the text could not be prepared")
            failure.__cause__ = error
            await self._fail(failure)

    def _push(self, chunk: TextChunk) -> None:
        self._sources.append(chunk.source)
        self._spoken_chars[chunk.index] = len(chunk.spoken)
        self._stream.push(chunk.spoken, text_chunk_index=chunk.index)

    async def _fail(self, failure: CcTtsError) -> None:
        self._failure = failure
        await self._stream.cancel()


class ReadyChunks:
    """Audio that is there as a whole: a tone, silence, a cached prompt. Each chunk is given out once."""

    def __init__(self, chunks: Iterable[SpeechChunk]) -> None:
        self._chunks = iter(chunks)

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Nothing to do: nothing is synthesised."""

    async def cancel(self) -> None:
        """Give out no more."""
        self._chunks = iter(())

    def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        return self

    async def __anext__(self) -> SpeechChunk:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


def _fixed(pcm: bytes, rate_hz: int) -> ReadyChunks:
    return ReadyChunks(SpeechChunk(data) for data in _cut(pcm, AudioFormat(rate_hz)))


def _cut(data: bytes, audio_format: AudioFormat) -> list[bytes]:
    size = audio_format.bytes_for_ms(CHUNK_MS)
    return [data[start : start + size] for start in range(0, len(data), size)]
