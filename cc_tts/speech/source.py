"""Text in, line-rate PCM out: chunker, engine and resampler as one stream, for calls and for ``/v1/audio/speech``."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.config.schema import RouteConfig
from cc_tts.config.sections.models import MAX_INSTRUCTION_CHARS, TtsConfig
from cc_tts.config.sections.relay import RelaySettings
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED, ChunkStream
from cc_tts.engines.factory import COSYVOICE2
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.errors import (
    CcTtsError,
    ClientError,
    ConfigError,
    EngineOverloaded,
    FetchFailed,
    FieldError,
    LanguageUnsupported,
    NothingToSay,
    PromptNotFound,
    TextTooLong,
    UnknownVoice,
    Unprocessable,
)
from cc_tts.media import tones
from cc_tts.metrics import Metrics
from cc_tts.speech.cache.prompt_cache import ready
from cc_tts.speech.cache.shared_synthesis import CachedSource
from cc_tts.speech.chunks import CHUNK_MS, ReadyChunks, SpokenPrompt, fixed
from cc_tts.speech.incremental.audio import IncrementalAudioStream
from cc_tts.speech.incremental.stream import IncrementalStream
from cc_tts.speech.lexicons import Lexicons, replacements_in
from cc_tts.speech.prompt import (
    AudioContent,
    Content,
    Disclosure,
    IncrementalContent,
    MarkContent,
    Part,
    PromptDefaults,
    ReadyContent,
    RefusedContent,
    SequenceContent,
    SilenceContent,
    StagedContent,
    TextContent,
    ToneContent,
    UrlContent,
    texts_of,
)
from cc_tts.speech.sequence import SequenceStream
from cc_tts.speech.staged.urls import downloaded
from cc_tts.speech.synthesis import Synthesis, TextHere
from cc_tts.speech.voicing.levels import VoiceLevels
from cc_tts.speech.voicing.parts import Voicing
from cc_tts.text.characters import has_speech
from cc_tts.text.chunker import SLICE_CHARS, Chunker, Chunking
from cc_tts.text.language import detect_language, latin_language, rule_set
from cc_tts.text.markup.markdown import has_words
from cc_tts.text.markup.unspoken import said_of
from cc_tts.text.normalizer import Normalizer
from cc_tts.text.process.client import TextPreparation, TextProcess
from cc_tts.text.pronunciation.lexicon import CompiledLexicon
from cc_tts.voices.voice import Voice

LONG_TEXT_CHARS: Final = 1000
"""Lexicons are matched against this many characters in at most 3 ms (13 ms for 5,000 against ten lexicons)."""
RETRY_AFTER_S: Final = 1  # unmeasured
"""Retry-After while the engine takes no prompt."""

log = logs.get(__name__)


class SpeechSource:
    """Opens streams; those of text through ``cache`` if there is one. ``line_rate_hz`` is that of calls.

    A server prepares texts in ``text_process``, where they cannot hold up its event loop. Runs on: the event loop.
    """

    def __init__(
        self,
        engine: WorkerEngine,
        normalizer: Normalizer,
        config: TtsConfig,
        *,
        cache: CachedSource | None = None,
        line_rate_hz: int = 8000,
        text_process: TextProcess | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self.engine = engine
        self._normalizer = normalizer
        self._text_process = text_process
        self._config = config
        self._cache = cache
        self._line_rate_hz = line_rate_hz
        self.lexicons = Lexicons(config)
        self._voicing = Voicing(engine, config, self.lexicons)
        self._levels = VoiceLevels(config.target_dbfs)

    def check_voices(self, routes: Mapping[str, RouteConfig], disclosure: str = "") -> list[str]:
        """Find out at start, not by refused calls, what cannot be spoken: ``ConfigError`` for a voice that does not exist, a
        language, a greeting or a disclosure that cannot be spoken; returns a sentence for each that is longer than a prompt
        may be.
        """
        self._check_voice("tts", self._config.voice, "")
        self._check_voice("tts", "", self._config.language)
        for name, voice in self._config.voice_aliases.items():
            self._check_voice(f"tts.voice_aliases.{name}", voice, "")
        warnings = self._wording_warnings("calls.disclosure", _disclosed(disclosure))
        for user, route in routes.items():
            key = f"routes.{user}" if re.fullmatch(r"[A-Za-z0-9_-]+", user) else f'routes."{user}"'
            self._check_voice(key, route.voice, route.language)
            for name, text in (
                ("greeting", route.greeting),
                ("unanswered_greeting", route.unanswered_greeting),
                ("disclosure", _disclosed(route.disclosure)),
            ):
                warnings += self._wording_warnings(f"{key}.{name}", text, route.voice, route.language)
            warnings += self._instructions_warnings(key, route)
            if route.relay:
                warnings += self._relay_warnings(f"{key}.relay", route.relay, route)
        return warnings

    def _instructions_warnings(self, key: str, route: RouteConfig) -> list[str]:
        if not route.instructions:
            return []
        voice = self._voicing.voice(TextContent(route.greeting, route.voice or None, route.language or None))
        return [] if voice.takes_instructions else [f"{key}.instructions: the voice {voice.id} takes no instructions"]

    def _relay_warnings(self, key: str, relay: RelaySettings, route: RouteConfig) -> list[str]:
        voice, language = relay.voice or route.voice, relay.language or route.language
        self._check_voice(key, voice, language)
        for tag, name in relay.languages.items():
            self._check_voice(f"{key}.languages.{tag}", name, tag)
        texts = (("welcome_greeting", relay.welcome_greeting), ("fallback", relay.fallback))
        return [each for name, text in texts for each in self._wording_warnings(f"{key}.{name}", text, voice, language)]

    def _wording_warnings(self, key: str, text: str, voice: str = "", language: str = "") -> list[str]:
        try:
            if text:
                self.check(TextContent(text, voice or None, language or None))
        except TextTooLong as error:
            return [f"{key}: {error.detail}: calls that are to hear it are refused"]
        except ClientError as error:
            raise ConfigError(f"{key}: {error.detail}") from error
        return []

    def _check_voice(self, section: str, voice: str, language: str) -> None:
        try:
            self._voicing.check(voice or None, language or None)
        except UnknownVoice as error:
            raise ConfigError(f"{section}.voice: {error.detail}") from error
        except LanguageUnsupported as error:
            raise ConfigError(f"{section}.language: {error.detail}") from error

    def check(self, content: Content) -> Voice | None:
        """Refuse early what could not be spoken (``TextTooLong``, ``NothingToSay``, ``UnknownVoice``, ``UnknownLexicon``,
        ``LanguageUnsupported``, ``Unprocessable``); returns the voice that will speak, ``None`` for tones and silence.
        """
        match content:
            case TextContent() | SequenceContent():
                self.check_text(content)
                voices = []
                for each in texts_of(content):
                    self.lexicons.check(each.lexicons)
                    voices.append(self._voice(self._voiced(each)[0]))
                    _instructions(each, voices[-1])
                return voices[0] if voices else None
            case IncrementalContent(words):
                self.lexicons.check(words.lexicons)
                voice = self._voicing.voice(words)
                _instructions(words, voice)
                return voice
            case ToneContent(name, duration_ms):
                tones.check(name, 8000, max_ms=duration_ms)
        return None

    async def match_lexicons(self, content: Content) -> None:
        """Match the lexicons against long texts on a thread, so that the event loop finds the results. Texts that
        :meth:`check` refuses are skipped.
        """
        for text in texts_of(content):
            if LONG_TEXT_CHARS <= len(text.text) <= self._config.max_text_chars:
                with suppress(ClientError):
                    await _match(text, self._voicing.lexicons(text))
                    for part in self._voicing.parts(text):
                        if isinstance(part, TextContent):
                            await _match(_for_voice(part, self._voice(part)), self._lexicons(part))

    def check_defaults(self, defaults: PromptDefaults) -> None:
        """Refuse unusable defaults early.

        Raises:
            UnknownVoice, LanguageUnsupported, UnknownLexicon: a default is of no use.
        """
        self._voicing.check(defaults.voice, defaults.language)
        self.lexicons.check(defaults.lexicons)

    def check_text(self, content: TextContent | SequenceContent) -> None:
        """Do the part of :meth:`check` that needs no engine: raises ``TextTooLong`` or ``NothingToSay``."""
        limit = self._config.max_text_chars
        texts = texts_of(content)
        num_chars = sum(len(each.text) + sum(len(other.spoken) for other in each.replacements) for each in texts)
        if num_chars > limit:
            raise TextTooLong(f"{num_chars} characters; tts.max_text_chars is {limit}")
        if isinstance(content, TextContent) and not self._has_words(content):
            raise NothingToSay("the text has no letter and no digit that is spoken")
        if isinstance(content, SequenceContent) and all(isinstance(each, MarkContent) for each in content.parts):
            raise NothingToSay("the SSML document has no letter, no digit and no break")

    def check_capacity(self, content: Content, *, may_wait: bool = False) -> None:
        """Refuse a prompt that would start now on a call and needs the engine, if the engine cannot take it: raises
        ``EngineOverloaded`` with the engine's reason. One that ``may_wait`` is not refused by an engine that is full.
        """
        if not (texts := texts_of(content)):
            return
        first = self._first_part(texts)
        voice = self._voice(first).id
        if (reason := self.engine.not_ready_because(voice)) is None or (may_wait and self.engine.is_full(voice)):
            return
        if not self._is_cached(first):
            raise EngineOverloaded(reason, retry_after_s=RETRY_AFTER_S)

    def utilisation(self, content: Content) -> float:
        """Return how busy the engine for this content is, 0 to 1; 0 if it needs no engine. Raises as :meth:`check` does."""
        texts = texts_of(content)
        if not texts or self._is_cached(first := self._first_part(texts)):
            return 0.0
        return self.engine.utilisation(self._voice(first).id)

    def _first_part(self, texts: Sequence[TextContent]) -> TextContent:
        return self._voiced(texts[0])[0]

    def _is_cached(self, content: TextContent) -> bool:
        cache = self._cache if content.may_cache else None
        return cache is not None and cache.has(self._spoken(content, self._line_rate_hz))

    def open(
        self,
        content: Content,
        *,
        rate_hz: int,
        call_id: str = "",
        utterance_id: str = "",
        is_again: bool = False,
        must_speak: bool = False,
    ) -> ChunkStream:
        """Begin to produce the content at ``rate_hz``, for a call if one is named; ``is_again`` after a stream of it that
        gave nothing, ``must_speak`` if it has waited for the engine as long as it may. Raises ``EngineOverloaded`` if the
        engine refuses the stream, and ``UnknownVoice``, ``LanguageUnsupported`` and ``Unprocessable`` as :meth:`check` does.
        """
        audio_format, overload_wait_ms = AudioFormat(rate_hz), self._config.overload_wait_ms
        open_part = partial(self.open, rate_hz=rate_hz, call_id=call_id, utterance_id=utterance_id)
        match content:
            case TextContent():
                part, *others = self._voiced(content)
                if others:
                    return SequenceStream((part, *others), open_part, audio_format, overload_wait_ms, is_again=is_again)
                prompt = self._spoken(part, rate_hz)
                speak = partial(self._speak, prompt, call_id, utterance_id, must_speak=must_speak)
                if self._cache is None or not content.may_cache:
                    return speak()
                return self._cache.open(prompt, speak, is_again=is_again)
            case ToneContent() | SilenceContent() | ReadyContent() | StagedContent() | UrlContent():
                return _without_engine(content, audio_format)
            case SequenceContent():
                voiced = self._voicing.sequence(content.parts)
                _refuse(voiced)
                return SequenceStream(voiced, open_part, audio_format, overload_wait_ms, is_again=is_again)
            case IncrementalContent():
                return IncrementalStream(content, open_part, self._voicing, audio_format, overload_wait_ms)
            case AudioContent(incremental):
                return IncrementalAudioStream(incremental)

    def path(self, content: TextContent) -> list[str]:
        """Return a description of each stage of the content's way to the line; the engine has started. Raises
        ``UnknownVoice`` and ``LanguageUnsupported`` as :meth:`check` does.
        """
        prompt = self._spoken(self._first_part([content]), self._line_rate_hz)
        steps = ["text"]
        if self._cache is not None and content.may_cache:
            steps.append(str(self._cache.cache))
        steps += [str(self._chunker(prompt)), f"engine({prompt.engine}, {prompt.voice})"]
        if prompt.voice_rate_hz != prompt.rate_hz:
            steps.append(f"resampler {prompt.voice_rate_hz}▸{prompt.rate_hz}")
        return [*steps, f"level {self._config.target_dbfs:g} dBFS", f"chunks {CHUNK_MS} ms"]

    def _spoken(self, content: TextContent, rate_hz: int) -> SpokenPrompt:
        config, voice = self._config, self._voice(content)
        content = _for_voice(content, voice)
        speed = float(config.speed if content.speed is None else content.speed)
        return SpokenPrompt(
            text=content.text,
            engine=voice.engine,
            voice=voice.id,
            chunking=Chunking(
                language=self._voicing.asked_language(content),
                detected_language=detect_language(self._said(content)),
                latin_language=latin_language(voice.language),
                first_chunk_max_chars=config.first_chunk_max_chars,
                chunk_max_chars=config.chunk_max_chars,
                says_numbers=voice.engine == COSYVOICE2,
                before=content.before,
                markup=content.markup,
                strips_markup=self._strips_markup(content),
            ),
            gain_db=round(self._levels.gain_db(voice) + content.gain_db, 1),
            speed=min(max(speed * content.rate, MIN_SPEED), MAX_SPEED),
            voice_rate_hz=voice.rate_hz,
            rate_hz=rate_hz,
            replacements=replacements_in(content.text, self._lexicons(content), content.replacements),
            instructions=_instructions(content, voice),
        )

    def _lexicons(self, part: TextContent) -> tuple[CompiledLexicon, ...]:
        voice = self._voice(part)
        return self.lexicons.for_prompt(part.lexicons, voice.id, self._voicing.asked_language(part) or voice.language)

    def _speak(self, prompt: SpokenPrompt, call_id: str, utterance_id: str, *, must_speak: bool = False) -> ChunkStream:
        text: TextHere | TextPreparation
        if self._text_process is None or _is_quick(prompt):
            text = TextHere(self._chunker(prompt))
        else:
            text = self._text_process.prepare(prompt.text, prompt.chunking, prompt.replacements)
        try:
            stream = self.engine.open(
                prompt.voice, prompt.speed, instructions=prompt.instructions, call_id=call_id, must_speak=must_speak
            )
        except CcTtsError:
            text.cancel()
            raise
        return Synthesis(
            stream,
            text,
            prompt,
            open_stand_in=partial(self.engine.open_stand_in, prompt.voice, prompt.speed),
            tells_chunks=not self._is_interleaved(prompt),
            on_no_audio=self._metrics.engine_no_audio.labels(engine=prompt.engine).inc,
            utterance_id=utterance_id,
            meter=self._levels.meter(prompt),
        )

    def _is_interleaved(self, prompt: SpokenPrompt) -> bool:
        """Whether its text chunks become one sequence of the model, so that their audio cannot be separated."""
        model = self._config.models.get(self.engine.resolve_voice(prompt.voice, None).model)
        return model is not None and model.interleaved_text

    def _chunker(self, prompt: SpokenPrompt) -> Chunker:
        return Chunker(self._normalizer, prompt.chunking, prompt.text, prompt.replacements)

    def _voiced(self, content: TextContent) -> list[TextContent]:
        """Return the parts of a text, each with one voice; raises ``LanguageUnsupported`` if a part has none."""
        parts = self._voicing.parts(content)
        _refuse(parts)
        return [part for part in parts if isinstance(part, TextContent)]

    def _strips_markup(self, content: TextContent) -> bool:
        return content.strips_markup and self._config.markdown == "strip"

    def _has_words(self, content: TextContent) -> bool:
        return has_words(content.text, content.markup) if self._strips_markup(content) else has_speech(content.text)

    def _said(self, content: TextContent) -> str:
        """Return the text without a model's reasoning and the like."""
        return said_of(content.text, content.markup) if self._strips_markup(content) else content.text

    def _voice(self, part: TextContent) -> Voice:
        return self.engine.resolve_voice(part.voice, None)


def _without_engine(
    content: ToneContent | SilenceContent | ReadyContent | StagedContent | UrlContent, audio_format: AudioFormat
) -> ChunkStream:
    """Return the audio of content that needs no engine: tones, silence and complete audio."""
    match content:
        case ToneContent(name, duration_ms):
            return fixed(tones.tone(name, audio_format.rate_hz, max_ms=duration_ms), audio_format.rate_hz)
        case SilenceContent(silence_ms):
            return fixed(bytes(audio_format.bytes_for_ms(silence_ms)), audio_format.rate_hz)
        case ReadyContent(audio, text, gain_db):
            return ready(audio, text, gain_db)
        case StagedContent(prompt_id):  # an accepted prompt has been replaced by its audio or text
            raise PromptNotFound.named(prompt_id)
        case UrlContent(_, gain_db, download):
            if download is None:  # an accepted prompt has its download
                raise FetchFailed
            return ReadyChunks(downloaded(download, gain_db))


def _for_voice(content: TextContent, voice: Voice) -> TextContent:
    """Return the text without the signs of sounds and emphasis if the voice cannot make them: they would split words of a
    lexicon.
    """
    if voice.takes_instructions or not content.replacements:
        return content
    return replace(content, replacements=tuple(each for each in content.replacements if not each.sign))


def _instructions(content: TextContent, voice: Voice) -> str:
    """Return the instructions for a voice; empty if it takes none. Raises ``Unprocessable``."""
    if not content.instructions or not voice.takes_instructions:
        return ""
    instructions = " ".join(content.instructions.split())
    if len(instructions) > MAX_INSTRUCTION_CHARS:
        detail = f"{len(instructions)} characters; a voice takes {MAX_INSTRUCTION_CHARS} at most"
        raise Unprocessable.about(FieldError("/instructions", detail))
    return instructions


def _disclosed(key: str) -> str:
    """Return the text of a disclosure; empty if the key has none."""
    disclosure = Disclosure.of(key)
    return "" if disclosure is None else disclosure.text


async def _match(text: TextContent, lexicons: tuple[CompiledLexicon, ...]) -> None:
    if lexicons:
        await asyncio.to_thread(replacements_in, text.text, lexicons, text.replacements)


def _refuse(parts: Iterable[Part]) -> None:
    """Raise ``LanguageUnsupported`` for these parts, which no voice speaks."""
    for part in parts:
        if isinstance(part, RefusedContent):
            raise LanguageUnsupported(part.detail)


def _is_quick(prompt: SpokenPrompt) -> bool:
    """Whether preparing a text takes less time than sending it to another process: about a millisecond, without wetext."""
    text, language = prompt.text, prompt.chunking.language or prompt.chunking.detected_language or ""
    num_chars = len(text) + sum(len(each.spoken) for each in prompt.replacements)
    return num_chars <= SLICE_CHARS and text.isascii() and rule_set(language) != "zh"
