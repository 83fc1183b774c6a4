"""One SPEAK request on the server: it checks and synthesises the text, and sends the audio no faster than it is played.

::

    OpenSpeech ─▸ check ─▸ Taken
    StartSpeech ─▸ SpeechSource ─▸ SpeechAudio … ─▸ SpeechOver
    JumpSpeech ─▸ SpeechJumped ─▸ the same text again, without what lies before the place

Runs on: the event loop.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from msgspec.structs import replace as replaced

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.clock import Clock, ms_between
from cc_tts.config.schema import Config
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED, ChunkStream
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.errors import (
    CcTtsError,
    EngineFailed,
    LanguageUnsupported,
    MalformedRequest,
    NoAudio,
)
from cc_tts.metrics import Metrics
from cc_tts.mrcp.messages import (
    JumpSpeech,
    OpenSpeech,
    SpeechAudio,
    SpeechJumped,
    SpeechMark,
    SpeechOver,
    SpeechProgress,
    StartSpeech,
    Style,
    Taken,
)
from cc_tts.mrcp.server.places import place_of
from cc_tts.mrcp.server.voices import voice_of
from cc_tts.processes.channel import Message
from cc_tts.speech.admission import CHUNK_TIMEOUT_S, AdmittedStream
from cc_tts.speech.prompt import Content, TextContent, text_of, with_texts
from cc_tts.speech.source import SpeechSource
from cc_tts.speech.ssml import from_ssml
from cc_tts.speech.timing.spans import ROUNDING_MS, SpokenSpan, close_span, extend_spans, offsets_ms
from cc_tts.tenants.accounting import AccountingLog, UtteranceLine
from cc_tts.tenants.quotas import TenantQuotas
from cc_tts.text.characters import clean
from cc_tts.text.pronunciation.lexicon import CompiledLexicon, replacements_by
from cc_tts.tracing.span import CURRENT, Span
from cc_tts.voices.voice import Voice

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechServices:
    """The objects that every speech uses."""

    config: Config
    source: SpeechSource
    tenants: TenantQuotas
    accounting: AccountingLog
    metrics: Metrics
    clock: Clock
    new_id: Callable[[], str]
    send: Callable[..., None]

    @property
    def tenant(self) -> str:
        return self.config.mrcp.tenant


class MrcpSpeech:
    """A text and its progress."""

    def __init__(
        self,
        opened: OpenSpeech,
        payload: bytes,
        lexicons: tuple[CompiledLexicon, ...],
        services: SpeechServices,
        span: Span | None = None,
    ) -> None:
        self._opened = opened
        self._payload = payload
        self._lexicons = lexicons
        self._services = services
        self._send = services.send
        self._format = AudioFormat(opened.rate_hz)
        self._style = opened.style
        self._content: Content | None = None
        self._voice: Voice | None = None
        self._started = asyncio.Event()
        self._moved = asyncio.Event()
        self._is_charged = False
        self._task: asyncio.Task[None] | None = None
        self._from_ms = self._played_ms = 0.0
        self._sent_ms = 0.0
        self._spans: list[SpokenSpan] = []
        self._num_marks = 0
        self._is_cached = False
        self._error: str | None = None
        self._span = span
        self._context = contextvars.copy_context()
        self._context.run(CURRENT.set, span)

    def begin(self) -> None:
        self._task = asyncio.create_task(self._first(), name="mrcp speech", context=self._context)

    def take(self, message: Message) -> None:
        match message:
            case StartSpeech():
                self._started.set()
            case SpeechProgress(played_ms=played_ms):
                self._played_ms = played_ms
                self._tell_marks()
                self._moved.set()
            case JumpSpeech():
                before = self._task
                self._task = asyncio.create_task(self._jump(message, before), name="mrcp speech", context=self._context)

    async def close(self, played_ms: float, reason: str) -> None:
        await _end(self._task)
        if self._is_charged and self._content is not None:
            self._services.accounting.add(self._line(self._content, played_ms, reason))
        if self._span is not None:
            self._end_span(self._span, played_ms, reason)

    def _end_span(self, span: Span, played_ms: float, reason: str) -> None:
        span.attributes |= {"cctts.played_ms": round(played_ms), "cctts.cached": self._is_cached, "result": reason}
        if self._voice is not None:
            span.attributes |= {"cctts.voice": self._voice.id, "gen_ai.request.model": self._voice.engine}
        span.end(error=self._error or "")

    # ---------------------------------------------------------------------------------------------------------------------

    async def _first(self) -> None:
        try:
            self._content = await self._read(self._style)
            self._voice = self._services.source.check(self._content)
            self._charge(self._content)
        except CcTtsError as error:
            self._fail(error, Taken)
            return
        except Exception as error:
            log.exception("mrcp_text_failed")
            self._fail(EngineFailed(type(error).__name__), Taken)
            return
        self._send(Taken(self._opened.speech_id))
        await self._started.wait()
        await self._speak(0.0)

    def _fail(self, error: CcTtsError, kind: type[Taken] | type[SpeechOver]) -> None:
        self._error = error.code
        if self._span is not None:
            self._span.trace.keep()  # at once: the session may be over before this span is closed
        self._send(kind(self._opened.speech_id, error.code, error.detail[:200]))

    def _charge(self, content: Content) -> None:
        with self._services.tenants.characters(self._services.tenant, len(text_of(content))):
            self._is_charged = True

    async def _read(self, style: Style) -> Content:
        try:
            text = self._payload.decode(self._opened.charset)
        except UnicodeDecodeError:
            raise MalformedRequest(f"the text is not {self._opened.charset.removesuffix('-sig')}") from None
        words = self._words(style)
        is_ssml = self._opened.markup == "ssml"
        content: Content = from_ssml(text, words, pointer="") if is_ssml else replace(words, text=clean(text))
        if self._lexicons:
            content = await asyncio.to_thread(with_texts, content, self._pronounced)
        await self._services.source.match_lexicons(content)
        return content

    def _words(self, style: Style) -> TextContent:
        return TextContent(
            "",
            voice=voice_of(style, self._services.source.engine.voices(), self._services.config.tts),
            language=style.language or None,
            rate=_rate(style),
            gain_db=style.gain_db or 0.0,
        )

    def _pronounced(self, text: TextContent) -> TextContent:
        """Return a text with the replacements of the session's lexicons. Runs on: a thread."""
        language = text.language or self._services.config.tts.language
        lexicons = [each for each in self._lexicons if not language or each.speaks(language)]
        return replace(text, replacements=replacements_by(lexicons, text.text, text.replacements))

    async def _jump(self, wanted: JumpSpeech, before: asyncio.Task[None] | None) -> None:
        await _end(before)
        jumped = SpeechJumped(self._opened.speech_id, wanted.played_ms, restarts=False)
        try:
            jumped = await self._place(wanted)
        except CcTtsError as error:
            jumped = replaced(jumped, code=error.code, detail=error.detail[:200])
        except Exception as error:
            log.exception("mrcp_jump_failed")
            jumped = replaced(jumped, code=EngineFailed.code, detail=type(error).__name__)
        self._send(jumped)
        await self._speak(jumped.at_ms)

    async def _place(self, wanted: JumpSpeech) -> SpeechJumped:
        """Return where the text continues, and apply the requested style to the rest."""
        at_ms, restarts = wanted.played_ms, False
        if wanted.count:
            at_ms, restarts = place_of(self._spans, wanted.played_ms, wanted.count, wanted.unit)
        if wanted.style != self._style:
            content = await self._read(wanted.style)
            self._services.source.check(content)
            at_ms *= _rate(self._style) / _rate(wanted.style)
            self._style, self._content = wanted.style, content
        return SpeechJumped(self._opened.speech_id, at_ms, restarts)

    async def _speak(self, from_ms: float) -> None:
        try:
            await self._produce(from_ms)
        except CcTtsError as error:
            self._fail(error, SpeechOver)
        except Exception as error:
            log.exception("mrcp_speech_failed")
            self._fail(EngineFailed(type(error).__name__), SpeechOver)
        else:
            self._send(SpeechOver(self._opened.speech_id))

    async def _produce(self, from_ms: float) -> None:
        """Synthesise; while the engine is full, wait as long as a call would."""
        services, content = self._services, self._content
        assert content is not None
        begun_ns = services.clock.now_ns()
        self._spans, self._num_marks, self._sent_ms = [], 0, 0.0
        self._from_ms = self._played_ms = from_ms
        stream = AdmittedStream(
            partial(services.source.open, content, rate_hz=self._format.rate_hz),
            services.config.tts.overload_wait_ms,
            hold=partial(services.tenants.hold_stream, services.tenant, partial(services.source.utilisation, content)),
            asking=partial(services.tenants.asking_engine, services.tenant),
            chunk_timeout_s=CHUNK_TIMEOUT_S,
        )
        try:
            await self._send_stream(stream, from_ms, begun_ns)
        finally:
            await stream.cancel()

    async def _send_stream(self, stream: ChunkStream, from_ms: float, begun_ns: int) -> None:
        num_bytes = 0
        to_skip = self._format.bytes_for_ms(from_ms)
        limit_ms = self._opened.max_ms
        async for chunk in stream:
            if chunk.refused_because:
                raise LanguageUnsupported(chunk.refused_because)
            if not num_bytes and chunk.data and self._voice is not None and not from_ms:
                self._note_first(chunk, begun_ns)
            extend_spans(self._spans, chunk, self._format.ms_for_bytes(num_bytes))
            num_bytes += len(chunk.data)
            self._sent_ms = self._format.ms_for_bytes(num_bytes)
            await self._send_chunk(chunk.data[to_skip:])
            to_skip = max(0, to_skip - len(chunk.data))
            stream.set_buffered_ms(max(0.0, self._sent_ms - self._played_ms))
            if limit_ms is not None and self._sent_ms >= limit_ms:
                break
        close_span(self._spans, self._sent_ms)
        if not num_bytes and text_of(self._content or TextContent("")):
            raise NoAudio("the text was synthesised, and not one sample came of it")

    async def _send_chunk(self, data: bytes) -> None:
        if data:
            self._send(SpeechAudio(self._opened.speech_id), self._within_limit(data))
        while self._sent_ms - self._played_ms > self._services.config.playout.window_ms:
            self._moved.clear()
            await self._moved.wait()

    def _within_limit(self, data: bytes) -> bytes:
        """Return the audio up to Speak-Length."""
        if self._opened.max_ms is None:
            return data
        beyond = self._format.bytes_for_ms(max(0.0, self._sent_ms - self._opened.max_ms))
        return data[: max(0, len(data) - beyond)]

    def _note_first(self, chunk: SpeechChunk, begun_ns: int) -> None:
        assert self._voice is not None
        self._is_cached = chunk.cached
        elapsed_s = ms_between(begun_ns, self._services.clock.now_ns()) / 1000
        self._services.metrics.time_to_first_pcm.labels(engine=self._voice.engine).observe(elapsed_s)

    def _tell_marks(self) -> None:
        """Report the marks that were passed since the last report."""
        marks = [
            (span.start_ms + at_ms, name)
            for span in self._spans
            for at_ms, (_, name) in zip(offsets_ms(span, [share for share, _ in span.marks]), span.marks, strict=True)
        ]
        passed = [name for at_ms, name in marks if self._from_ms <= at_ms <= self._played_ms + ROUNDING_MS]
        for name in passed[self._num_marks :]:
            self._send(SpeechMark(self._opened.speech_id, name))
        self._num_marks = max(self._num_marks, len(passed))

    def _line(self, content: Content, played_ms: float, reason: str) -> UtteranceLine:
        return UtteranceLine(
            tenant=self._services.tenant,
            call_id=None,
            utterance_id=self._services.new_id(),
            characters=len(text_of(content)),
            played_ms=round(played_ms),
            cached=self._is_cached,
            voice="" if self._voice is None else self._voice.id,
            engine="" if self._voice is None else self._voice.engine,
            reason="error" if self._error else reason,
            error=self._error,
        )


async def _end(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end. The caller can be cancelled meanwhile: a closed speech must not go on."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})


def _rate(style: Style) -> float:
    return 1.0 if style.rate is None else min(max(style.rate, MIN_SPEED), MAX_SPEED)
