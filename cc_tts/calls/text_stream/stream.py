"""One client's stream of text into a call: tokens in, speech out, utterance by utterance.

::

    start · tokens ──▸ open utterance ──▸ the call's player, as any prompt
    flush · mark · end      │
    clear ──▸ discard       └─▸ on_started · on_progress · on_complete ──▸ messages to the client

An utterance is open from ``start`` or its first tokens to ``end``. Text of an utterance that was interrupted from outside
(a key, ``stop``, another prompt) is not spoken, though the client still sends it for a moment: up to the next
``start``, ``end`` or ``clear``, or until nothing has come for :data:`INTERRUPTED_QUIET_S`.

Runs on: the event loop.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.follower import CallView
from cc_tts.calls.prompts.utterance import CompletionCause, SpokenSpan, Utterance, WordReader
from cc_tts.calls.text_stream.messages import (
    MarkReached,
    Paused,
    Resumed,
    StreamId,
    StreamMessage,
    StreamSpeakComplete,
    StreamSpeakInterrupted,
    StreamSpeakRefused,
    StreamSpeakStarted,
    StreamWord,
    TokensResult,
    TokensStatus,
    Words,
)
from cc_tts.clock import ms_between
from cc_tts.errors import TextTooLong, WrongState
from cc_tts.speech.incremental.text import IncrementalText, segmenting_of
from cc_tts.speech.prompt import IncrementalContent, Prompt, TextContent

INTERRUPTED_QUIET_S: Final = 0.5
"""Tokens of an LLM come at most 200 ms apart; the next answer takes longer than this. Both are unmeasured."""
LOW_WATER_SHARE: Final = 4
"""Text is taken again below a quarter of ``stream.max_buffered_chars``; unmeasured."""
MAX_MARKS: Final = 1000
"""Marks of one utterance that may wait to be reached; unmeasured."""

log = logs.get(__name__)


class TextStream:
    """``send`` gets the messages for the client and must do nothing but queue them; ``on_call_ended`` is called once.

    Raises:
        WrongState: the call is over.
        CapacityExceeded: the call has as many streams as the config allows.
    """

    def __init__(
        self,
        call: CallView,
        *,
        send: Callable[[StreamMessage], None],
        on_call_ended: Callable[[], None],
        has_words: bool,
    ) -> None:
        self._call = call
        self._services = call.services
        self._send = send
        self._on_call_ended = on_call_ended
        self._has_words = has_words
        self._max_buffered_chars = call.services.config.stream.max_buffered_chars
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, _Live] = {}
        """Utterances of this stream that are not complete, by their ids, in order."""
        self._open: _Live | None = None
        self._blank = ""
        """White space that came before the first words of an utterance."""
        self._is_paused = False
        self._took_one_more = False
        self._last_status = ""
        self._discards_until_s = 0.0
        limit = call.services.config.stream.max_per_call
        call.followers.check(type(self), call, limit=limit, what="text streams", key="stream.max_per_call")
        call.followers.join(self)

    @property
    def buffered_chars(self) -> int:
        """Text that is not being spoken yet."""
        return len(self._blank) + sum(live.incremental.num_pending for live in self._live.values())

    def start(self, prompt: Prompt) -> None:
        """Open an utterance, which ends the one before. The prompt's text is empty.

        Raises:
            WrongState, QueueFull, DuplicateId, UnknownVoice, UnknownLexicon, LanguageUnsupported, EngineOverloaded: as
                :meth:`cc_tts.calls.call.Call.speak`.
        """
        self.end()
        incremental = self._new_text()
        assert isinstance(prompt.content, TextContent)
        words = replace(prompt.content, may_cache=False)
        utterance = self._call.speak(replace(prompt, content=IncrementalContent(words, incremental)))
        utterance.watcher = self
        self._open = self._live[utterance.id] = _Live(utterance, incremental, WordReader(utterance))

    def tokens(self, text: str, message_id: StreamId | None = None) -> None:
        """Append text to the open utterance, or open one with defaults.

        Raises:
            TextTooLong: more than ``tts.max_text_chars`` in one message.
            WrongState, QueueFull, EngineOverloaded, UnknownVoice, LanguageUnsupported: an utterance cannot be opened.
            QuotaExceeded: that, or the tenant has used up its characters.
        """
        limit = self._services.config.tts.max_text_chars
        if len(text) > limit:
            raise TextTooLong(f"{len(text)} characters in one message; tts.max_text_chars is {limit}")
        now_s = self._loop.time()
        if now_s < self._discards_until_s:
            self._discards_until_s = now_s + INTERRUPTED_QUIET_S
            self._answer("interrupted", message_id)
        elif self._is_paused and self._took_one_more:
            self._answer("full", message_id)
        else:
            self._took_one_more = self._is_paused
            self._append(text)
            self._answer("ok", message_id)
            self._update_pause()

    def flush(self) -> None:
        """Speak what has come, without waiting for the end of a sentence."""
        if (live := self._open_now) is not None:
            live.incremental.flush()

    def mark(self, name: str) -> None:
        """Name the place behind the text that has come; the last utterance's end if none is open.

        Raises:
            WrongState: too many marks wait to be reached.
        """
        live = self._open_now or next(reversed(self._live.values()), None)
        if live is None:
            self._send(MarkReached(utterance_id="", name=name, played_ms=0.0))
            return
        if live.num_marks >= MAX_MARKS:
            raise WrongState(f"{MAX_MARKS} marks of utterance {live.utterance.id} wait to be reached")
        live.num_marks += 1
        if live.incremental.is_over:
            live.utterance.spans.append(SpokenSpan("", live.utterance.fed_ms, marks=[(0.0, name)]))
        else:
            live.incremental.mark(name)

    def end(self) -> None:
        """No more text comes for the open utterance; the next tokens open another one."""
        if (live := self._open_now) is not None:
            live.incremental.end()
        self._open, self._blank = None, ""
        self._discards_until_s = 0.0

    def clear(self) -> None:
        """Drop what was not played of this stream's utterances. Text that comes after this is new."""
        self.end()
        for live in reversed(tuple(self._live.values())):
            self._call.player.discard(live.utterance, CompletionCause.CANCELLED, by="clear")
        self._update_pause()

    def close(self) -> None:
        """The client is gone: what it has sent is spoken to its end, and no message follows."""
        self.end()
        self._call.followers.leave(self)

    def on_key(self, digit: str, duration_ms: int) -> None:
        """Do nothing: a client of text hears no keys."""

    def on_speech(self, speech_id: str, at_ns: int, *, begins: bool) -> None:
        """Do nothing: a client of text does not listen."""

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - the client is told it by its utterances
        """The call is over."""
        self._on_call_ended()

    # --- of the utterances -----------------------------------------------------------------------------------------

    def on_started(self, utterance: Utterance) -> None:
        """The first frame that carries speech was sent."""
        live = self._live[utterance.id]
        if live.incremental.voice is not None:
            utterance.voice, utterance.engine = live.incremental.voice.id, live.incremental.voice.engine
        assert utterance.first_speech_ns is not None
        self._send(
            StreamSpeakStarted(
                **utterance.event_fields,
                time_to_first_audio_ms=utterance.time_to_first_audio_ms,
                time_from_first_token_ms=ms_between(live.first_token_ns, utterance.first_speech_ns),
            )
        )

    def on_progress(self, utterance: Utterance, marks: Sequence[tuple[str, float]]) -> None:
        """More of it was played, and these marks were reached: the name and the place in the audio, ms."""
        live = self._live[utterance.id]
        live.num_marks -= len(marks)
        if self._has_words and (words := live.words.take()):
            told = [StreamWord(text=each.text, start_ms=each.start_ms, end_ms=each.end_ms) for each in words]
            self._send(Words(words=told, **utterance.event_fields))
        for name, at_ms in marks:
            self._send(MarkReached(name=name, played_ms=round(at_ms, 1), **utterance.event_fields))

    def on_refused(self, utterance: Utterance, words: str, detail: str) -> None:
        """No voice speaks these words."""
        assert utterance.error is not None
        self._send(StreamSpeakRefused(error=utterance.error.code, detail=detail, text=words, **utterance.event_fields))

    def on_complete(self, utterance: Utterance) -> None:
        """Nothing more will be heard of it; its text is forgotten after this."""
        live, utterance.watcher = self._live.pop(utterance.id), None
        if live is self._open:
            self._open = None
            if not live.incremental.has_ended:
                self._discards_until_s = self._loop.time() + INTERRUPTED_QUIET_S
        self._send(_final_message(utterance))
        self._update_pause()

    # ---------------------------------------------------------------------------------------------------------------

    @property
    def _open_now(self) -> "_Live | None":
        """The utterance that text goes to, unless it has ended because no text came."""
        if self._open is not None and self._open.incremental.has_ended:
            self._open = None
        return self._open

    def _new_text(self) -> IncrementalText:
        config = self._services.config
        return IncrementalText(
            self._services.clock,
            segmenting=segmenting_of(config.tts),
            idle_timeout_s=config.stream.idle_timeout_s,
            on_taken=self._update_pause,
        )

    def _append(self, text: str) -> None:
        with self._services.tenants.characters(self._call.tenant, len(text)):
            if self._open_now is None:
                if not text.strip():
                    self._blank += text
                    return
                blank = self._blank
                self.start(Prompt(content=TextContent("")))
                text = blank + text
        live = self._open
        assert live is not None
        live.first_token_ns = live.first_token_ns or self._services.clock.now_ns()
        live.utterance.text_chars += len(text)
        live.incremental.append(text)

    def _answer(self, status: TokensStatus, message_id: StreamId | None) -> None:
        is_news = status != self._last_status
        self._last_status = status
        if status != "ok" or (message_id is not None and is_news):
            self._send(
                TokensResult(
                    id=UNSET if message_id is None else message_id, status=status, buffered_chars=self.buffered_chars
                )
            )

    def _update_pause(self) -> None:
        buffered = self.buffered_chars
        if not self._is_paused and buffered >= self._max_buffered_chars:
            self._is_paused = True
            self._send(Paused())
        elif self._is_paused and buffered <= self._max_buffered_chars // LOW_WATER_SHARE:
            self._is_paused = self._took_one_more = False
            self._send(Resumed())


@dataclass(slots=True)
class _Live:
    """One utterance of a stream that is not complete."""

    utterance: Utterance
    incremental: IncrementalText
    words: WordReader
    first_token_ns: int = 0
    num_marks: int = 0
    """Marks that were not reached yet."""


def _final_message(utterance: Utterance) -> StreamMessage:
    """Return the message that tells how an utterance ended."""
    cause, spoken = utterance.completion_cause, utterance.spoken_text
    assert cause is not None
    pending = utterance.pending_text
    fields = utterance.event_fields | {"spoken_text": spoken, "played_ms": round(utterance.played_ms, 1)}
    match cause:
        case CompletionCause.NORMAL:
            return StreamSpeakComplete(completion_cause=cause, **fields)
        case CompletionCause.ERROR:
            assert utterance.error is not None
            return StreamSpeakComplete(
                completion_cause=cause, error=utterance.error.code, pending_text=pending, **fields
            )
        case CompletionCause.CALL_ENDED:
            return StreamSpeakInterrupted(by="call_ended", pending_text=pending, **fields)
    return StreamSpeakInterrupted(by=utterance.interrupted_by or "stop", pending_text=pending, **fields)
