"""The prompts of one call: they queue, become PCM, and go to the line no faster than it plays.

::

    enqueue ─▸ _waiting ─▸ _feed: source.open ─▸ chunks ─▸ less than the window? ─▸ line ─▸ _on_line ─▸ finished()
                             stop / barge-in / replace: cancel the feed, cut the line, complete with the cause

Prompts are synthesised from the ringing or the answer on; the leg's buffer keeps them until the caller listens. One task a
call feeds one utterance after the other. The next is fed while the last of the one before still plays, so that queued
prompts follow each other without a gap; an utterance is *in progress* from the moment it is the first on the line.
"""

import asyncio
import contextlib
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat
from cc_tts.calls.call_state import UtteranceEvent
from cc_tts.calls.services import CallServices
from cc_tts.calls.utterance import CompletionCause, Interrupter, SpokenSpan, Utterance, UtteranceError
from cc_tts.clock import ms_between
from cc_tts.errors import (
    CcTtsError,
    EngineFailed,
    EngineOverloaded,
    LanguageUnsupported,
    QuotaExceeded,
    ServerError,
    UserAgentUnavailable,
)
from cc_tts.media.playout_events import PlayoutFinished, PlayoutProgress
from cc_tts.speech.chunks import OVERLOAD_POLL_S, ChunkStream, SpeechChunk
from cc_tts.speech.prompt import AudioContent, Content, SilenceContent
from cc_tts.tenants.quotas import Reservation
from cc_tts.ua import messages

MAX_ON_LINE: Final = 8
"""Utterances the line holds at once; matters only for very short ones."""

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A text chunk of an utterance, counted from 0; in characters of the text, where its first word begins, and its end."""

    text_chunk: int = -1
    char_start: int = 0
    char_end: int = 0

    def after(self, source: str | None) -> "TextPlace":
        """The chunk that is spoken once one with this text has begun; silence and marks have none."""
        if not source:
            return self
        num_blanks = len(source) - len(source.lstrip())
        return TextPlace(self.text_chunk + 1, self.char_end + num_blanks, self.char_end + len(source))


class PromptPlayer:
    """The prompts of one call. Nothing is heard of them before ``heard_from_ns``. Runs on: the event loop."""

    def __init__(
        self,
        call_id: str,
        services: CallServices,
        *,
        tenant: str = "",
        on_complete: Callable[[Utterance], None],
        on_marks: Callable[[Utterance, list[tuple[str, float]]], None],
        on_recovered: Callable[[Utterance, TextPlace], None],
        on_refused: Callable[[Utterance, SpeechChunk, TextPlace], None],
    ) -> None:
        self._call_id = call_id
        self._services = services
        self._tenant = tenant
        self._format = AudioFormat(services.config.rtp.clock_rate_hz)
        self._overload_wait_ms = services.config.tts.overload_wait_ms
        self._on_complete = on_complete
        self._on_marks = on_marks
        self._on_recovered = on_recovered
        self._on_refused = on_refused
        self._waiting: deque[Utterance] = deque()
        self._on_line: deque[Utterance] = deque()
        self._feeding: tuple[Utterance, asyncio.Task[None]] | None = None
        self._feeds = self._is_open = False
        self._moved = asyncio.Event()
        self.heard_from_ns = 0

    @property
    def queue(self) -> list[Utterance]:
        """Everything not complete, in order."""
        return [*self._on_line, *self._waiting]

    def prepare(self) -> None:
        """Synthesise what waits. The leg plays it once the far side listens, which :meth:`open_line` tells of."""
        self._feeds = True
        self._next()

    def open_line(self, at_ns: int) -> None:
        """The far side hears the prompts from ``at_ns`` on, and those that waited for it count their time from then."""
        if self._is_open:
            return
        self._is_open, self.heard_from_ns = True, at_ns
        for utterance in self.queue:
            utterance.origin_ns = max(utterance.origin_ns, at_ns)
        self._turn()
        self.prepare()

    def restore(self, on_line: list[Utterance], waiting: list[Utterance]) -> None:
        """Utterances of a server before this one, which have an error: what the line has of the first is played, the others
        complete when it is their turn.
        """
        self._on_line.extend(on_line)
        self._waiting.extend(waiting)
        self._turn()
        self._next()

    def stop_feeding(self) -> None:
        """The call is about to end: begin nothing more."""
        self._feeds = False

    def enqueue(self, utterance: Utterance) -> None:
        """Queue one. It waits for a turn of its own only behind a prompt that is played to its end, not behind a cut."""
        utterance.has_waited = any(earlier.discard_cause is None for earlier in self.queue)
        self._waiting.append(utterance)
        self._next()

    def discard(self, utterance: Utterance, cause: CompletionCause, *, by: Interrupter | None = None) -> float:
        """Empty every layer of one utterance; returns how much produced audio is dropped, ms. It completes at once if the
        line never had it, else when the line reports silence. ``by`` is what interrupts it, unless something has.
        """
        by = by or ("dtmf" if cause is CompletionCause.BARGE_IN else None)
        utterance.interrupted_by = utterance.interrupted_by or by
        if utterance in self._waiting:
            self._waiting.remove(utterance)
            self._complete(utterance, cause)
            return 0.0
        if utterance not in self._on_line or utterance.discard_cause is not None:
            return 0.0
        utterance.discard_cause = cause
        self._stop_feeding(utterance)
        self._services.ua.send(messages.CutUtterance(self._call_id, utterance.id))
        return max(0.0, utterance.fed_ms - utterance.played_ms)

    def progress(self, report: PlayoutProgress) -> None:
        """The line has come this far."""
        if (utterance := self._find(report.utterance_id)) is not None:
            utterance.played_ms = report.played_ms
            self._on_marks(utterance, utterance.take_marks())
        self._moved.set()

    def finished(self, report: PlayoutFinished) -> None:
        """The line is done with one."""
        if (utterance := self._find(report.utterance_id)) is not None:
            utterance.played_ms, utterance.underruns = report.played_ms, report.underruns
            utterance.completed_ns = report.at_ns
            self._on_marks(utterance, utterance.take_marks())
            self._on_line.remove(utterance)
            cause = CompletionCause.NORMAL
            if report.cause == "cut":
                cause = CompletionCause.CANCELLED
                self._stop_feeding(utterance)
            if utterance.error is not None:
                cause = CompletionCause.ERROR
            self._complete(utterance, utterance.discard_cause or cause)
            self._turn()
        self._moved.set()
        self._next()

    def _find(self, utterance_id: str) -> Utterance | None:
        return next((utterance for utterance in self._on_line if utterance.id == utterance_id), None)

    def close(self, cause: CompletionCause) -> None:
        """The call is over: everything completes now, without asking the line."""
        self._feeds = False
        if self._feeding is not None:
            self._feeding[1].cancel()
        pending = self.queue
        self._waiting.clear()
        self._on_line.clear()
        for utterance in pending:
            self._complete(utterance, utterance.discard_cause or cause)

    def _stop_feeding(self, utterance: Utterance) -> None:
        """Cancel its feed; not from within, where the stream has still to be freed."""
        if self._feeding is not None and self._feeding[0] is utterance:
            task = self._feeding[1]
            if task is not asyncio.current_task():
                task.cancel()

    def _next(self) -> None:
        while self._waiting and self._waiting[0].error is not None:
            if self._on_line:
                return
            self._complete(self._waiting.popleft(), CompletionCause.ERROR)
        last = self._on_line[-1] if self._on_line else None
        full = len(self._on_line) >= MAX_ON_LINE or (last is not None and last.prompt.then == "hangup")
        if self._feeds and self._waiting and self._feeding is None and not full:
            utterance = self._waiting.popleft()
            self._on_line.append(utterance)
            self._turn()
            with contextlib.suppress(UserAgentUnavailable):  # its end closes this player
                start_ms = self._start_ms(utterance.prompt.content)
                self._services.ua.send(messages.BeginUtterance(self._call_id, utterance.id, start_ms))
            task = asyncio.create_task(self._feed(utterance), name=f"feed {utterance.id}", context=utterance.context)
            self._feeding = (utterance, task)
            task.add_done_callback(self._fed)

    def _start_ms(self, content: Content) -> int:
        return (
            round(content.incremental.start_ms)
            if isinstance(content, AudioContent)
            else self._services.threshold.current_ms
        )

    def _fed(self, _task: asyncio.Task[None]) -> None:
        self._feeding = None
        self._next()

    def _turn(self) -> None:
        """The first on the line is in progress; its clock starts when its turn comes, not while it waits."""
        if self._is_open and self._on_line and self._on_line[0].machine.can(UtteranceEvent.START):
            head = self._on_line[0]
            head.machine.fire(UtteranceEvent.START)
            if head.has_waited:
                head.origin_ns = self._services.clock.now_ns()

    async def _feed(self, utterance: Utterance) -> None:
        prompt = utterance.prompt
        try:
            for turn in range(prompt.repeat):
                if turn and prompt.delay_ms:
                    await self._produce(SilenceContent(prompt.delay_ms), utterance, spans=False)
                await self._produce(prompt.content, utterance, spans=turn == 0)
            self._services.ua.send(messages.FinishUtterance(self._call_id, utterance.id))
        except Exception as error:  # noqa: BLE001 - whatever broke, the utterance completes and the call goes on
            self._fail(utterance, error)

    async def _produce(self, content: Content, utterance: Utterance, *, spans: bool) -> None:
        """Synthesise; while the engine or the tenant's part of it is full, wait a bounded time. Then the fallback engine
        speaks, if there is one. A worker reports that it is full after it was asked.
        """
        begun_ns, fed_before_ms = self._services.clock.now_ns(), utterance.fed_ms
        was_open = False
        while self._bytes_left(utterance) > 0:
            stream: ChunkStream | None = None
            held = Reservation()
            now_ns = self._services.clock.now_ns()
            if self._buffered_ms() > 0 or not self._is_open:  # the prompt before is heard, or nobody listens yet
                begun_ns = now_ns
            must_speak = ms_between(begun_ns, now_ns) >= self._overload_wait_ms
            try:
                held = self._services.hold_stream(self._tenant, content)
                with self._services.tenants.asking_engine(self._tenant):
                    stream = self._services.source.open(
                        content,
                        rate_hz=self._format.rate_hz,
                        call_id=self._call_id,
                        utterance_id=utterance.id,
                        is_again=was_open,
                        must_speak=must_speak,
                    )
                    was_open = True
                    await self._send(stream, utterance, spans=spans)
            except (EngineOverloaded, QuotaExceeded):
                if utterance.fed_ms > fed_before_ms or must_speak:
                    raise
            else:
                return
            finally:
                held.release()
                if stream is not None:
                    await stream.cancel()
            await asyncio.sleep(OVERLOAD_POLL_S)

    async def _send(self, stream: ChunkStream, utterance: Utterance, *, spans: bool) -> None:
        """Send chunks to the line while it holds less than the window."""
        place = TextPlace()
        async for chunk in stream:
            self._note(chunk, utterance, spans=spans)
            place = place.after(chunk.begins_source)
            if chunk.refused_because:
                self._refuse(chunk, utterance, place)
            if chunk.after_loss:
                self._on_recovered(utterance, place if place.text_chunk >= 0 else TextPlace(0))
            while self._buffered_ms() > self._services.config.playout.window_ms:
                self._moved.clear()
                await self._moved.wait()
            data = chunk.data[: self._bytes_left(utterance)]
            if data:
                self._services.ua.send(messages.Audio(self._call_id, utterance.id), data)
            utterance.fed_ms += self._format.ms_for_bytes(len(data))
            stream.set_buffered_ms(self._buffered_ms())
            if self._bytes_left(utterance) <= 0:
                return  # the rest was cut off, so its last span has no end
        if spans:
            _close_span(utterance)

    def _refuse(self, chunk: SpeechChunk, utterance: Utterance, place: TextPlace) -> None:
        """Go on without words that no voice speaks; the utterance completes with the error."""
        utterance.error = utterance.error or UtteranceError(LanguageUnsupported.code, chunk.refused_because)
        log.warning("words_refused", utterance_id=utterance.id, code=LanguageUnsupported.code)
        self._on_refused(utterance, chunk, place)

    def _note(self, chunk: SpeechChunk, utterance: Utterance, *, spans: bool) -> None:
        """Take in what a chunk says besides its audio."""
        if utterance.first_pcm_ns is None and chunk.data:
            utterance.first_pcm_ns = self._services.clock.now_ns()
            utterance.cached = chunk.cached
        if spans:
            _extend_spans(utterance, chunk)
        if chunk.marks and utterance.played_ms:  # nothing may be left to play that would report them
            self._on_marks(utterance, utterance.take_marks())
        if chunk.awaits_text:
            _close_span(utterance)
            self._services.ua.send(messages.ExpectUnderrun(self._call_id, utterance.id))

    def _buffered_ms(self) -> float:
        return sum(utterance.fed_ms - utterance.played_ms for utterance in self._on_line)

    def _bytes_left(self, utterance: Utterance) -> int:
        """Audio that may still be sent of it."""
        limit_ms = utterance.prompt.max_duration_ms
        return sys.maxsize if limit_ms is None else self._format.bytes_for_ms(limit_ms - utterance.fed_ms)

    def _fail(self, utterance: Utterance, error: Exception) -> None:
        if isinstance(error, UserAgentUnavailable):
            return  # the line is gone; its end completes the utterance with the call's
        known = error if isinstance(error, CcTtsError) else EngineFailed()
        is_refusal = isinstance(error, EngineOverloaded | QuotaExceeded)
        is_expected = isinstance(error, CcTtsError) and error.__cause__ is None
        (log.warning if is_refusal else log.error)(
            "utterance_failed",
            utterance_id=utterance.id,
            code=known.code,
            detail=known.detail if isinstance(known, ServerError) else None,  # that of others may quote the text
            exc_info=None if is_expected else error,
        )
        utterance.error = UtteranceError(known.code, known.detail)
        with contextlib.suppress(UserAgentUnavailable):  # the line is gone as well
            self.discard(utterance, CompletionCause.ERROR)

    def _complete(self, utterance: Utterance, cause: CompletionCause) -> None:
        if utterance.is_complete:
            return
        utterance.completion_cause = cause
        utterance.machine.fire(UtteranceEvent.COMPLETE)
        self._on_complete(utterance)


def _extend_spans(utterance: Utterance, chunk: SpeechChunk) -> None:
    if chunk.begins_source is not None:
        _close_span(utterance)
        utterance.spans.append(
            SpokenSpan(
                chunk.begins_source,
                utterance.fed_ms,
                marks=list(chunk.marks),
                is_refused=bool(chunk.refused_because),
                paces=chunk.paces,
            )
        )
    if chunk.words and utterance.spans:
        utterance.spans[-1].words.extend(chunk.words)


def _close_span(utterance: Utterance) -> None:
    if utterance.spans and utterance.spans[-1].end_ms is None:
        utterance.spans[-1].end_ms = utterance.fed_ms
