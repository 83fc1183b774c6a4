"""A client streams text into a call: tokens in, speech out, utterance by utterance.

An utterance is open from ``start`` or its first tokens to ``end``. Runs on: the event loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from msgspec import UNSET

from cc_tts.calls.follower import CallView, Follower
from cc_tts.calls.input.stream import InputStream, LiveUtterance
from cc_tts.calls.input.text_messages import (
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
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance, WordReader
from cc_tts.clock import ms_between
from cc_tts.errors import TextTooLong
from cc_tts.speech.incremental.text import IncrementalText, segmenting_of
from cc_tts.speech.prompt import IncrementalContent, Prompt, TextContent

DEFAULTS: Final = Prompt(content=TextContent(""))
"""A prompt without settings of voice or language."""


class TextStream(InputStream[IncrementalText, StreamMessage], Follower):
    """A client of text hears no keys and no speech. ``on_call_ended`` is called once.

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
        config = call.services.config.stream
        super().__init__(call, send=send, max_pending=config.max_buffered_chars, pause_at=config.max_buffered_chars)
        self._services = call.services
        self._on_call_ended = on_call_ended
        self._has_words = has_words
        self._words: dict[str, WordReader] = {}
        """Readers of the words of the utterances that are heard, by utterance id."""
        self._blank = ""
        """White space before the first words of an utterance."""
        self._last_status = ""
        call.followers.check(
            type(self), call, limit=config.max_per_call, what="text streams", key="stream.max_per_call"
        )
        call.followers.join(self)
        call.services.metrics.text_streams.inc()

    @property
    def num_pending(self) -> int:
        """Characters that are not being spoken yet."""
        return len(self._blank) + int(super().num_pending)

    @property
    def open_id(self) -> str | None:
        """The id of the open utterance; ``None`` if the next text opens one."""
        return None if (live := self._open_now) is None else live.utterance.id

    def start(self, prompt: Prompt) -> None:
        """Open an utterance, which ends the one before it. The prompt's text is empty.

        Raises:
            WrongState, QueueFull, DuplicateId, UnknownVoice, UnknownLexicon, LanguageUnsupported, EngineOverloaded: as
                :meth:`cc_tts.calls.call.Call.speak`.
        """
        self.end()
        source = self._new_text()
        assert isinstance(prompt.content, TextContent)
        words = replace(prompt.content, may_cache=False)
        self._begin(replace(prompt, content=IncrementalContent(words, source)), source)

    def tokens(self, text: str, message_id: StreamId | None = None, *, opens_with: Prompt = DEFAULTS) -> None:
        """Append text to the open utterance, or open one with a prompt whose text is empty.

        Raises:
            TextTooLong: more than ``tts.max_text_chars`` in one message.
            WrongState, QueueFull, EngineOverloaded, UnknownVoice, LanguageUnsupported: an utterance cannot be opened.
            QuotaExceeded: that, or the tenant has used up its characters.
        """
        limit = self._services.config.tts.max_text_chars
        if len(text) > limit:
            raise TextTooLong(f"{len(text)} characters in one message; tts.max_text_chars is {limit}")
        if self._is_discarding():
            self._answer("interrupted", message_id)
        elif self._is_full:
            self._answer("full", message_id)
        else:
            self._is_full = self._is_paused
            self._append(text, opens_with)
            self._answer("ok", message_id)
            self._update_pause()

    def flush(self) -> None:
        """Speak the text so far, without waiting for the end of a sentence."""
        if (live := self._open_now) is not None:
            live.source.flush()

    def end(self) -> None:
        """End the open utterance; the next tokens open another one."""
        super().end()
        self._blank = ""

    def close(self) -> None:
        """End the stream, since the client has gone. Its text is spoken to the end; no message follows."""
        self.end()
        if self._call.followers.leave(self):
            self._services.metrics.text_streams.dec()

    def on_call_ended(self, reason: str) -> None:  # noqa: ARG002 - the client is told it by its utterances
        self._on_call_ended()

    # --- of the utterances -----------------------------------------------------------------------------------------

    def on_started(self, utterance: Utterance) -> None:
        source = self._live[utterance.id].source
        if source.voice is not None:
            utterance.voice, utterance.engine = source.voice.id, source.voice.engine
        assert utterance.first_speech_ns is not None
        self._send(
            StreamSpeakStarted(
                **utterance.event_fields,
                time_to_first_audio_ms=utterance.time_to_first_audio_ms,
                time_from_first_token_ms=ms_between(source.begun_ns, utterance.first_speech_ns),
            )
        )

    def on_progress(self, utterance: Utterance, marks: Sequence[tuple[str, float]]) -> None:
        """Tell the client which words have begun to sound, and which marks were reached."""
        if self._has_words and (words := self._words.setdefault(utterance.id, WordReader(utterance)).take()):
            told = [StreamWord(text=each.text, start_ms=each.start_ms, end_ms=each.end_ms) for each in words]
            self._send(Words(words=told, **utterance.event_fields))
        super().on_progress(utterance, marks)

    def on_refused(self, utterance: Utterance, words: str, detail: str) -> None:
        assert utterance.error is not None
        self._send(StreamSpeakRefused(error=utterance.error.code, detail=detail, text=words, **utterance.event_fields))

    # ---------------------------------------------------------------------------------------------------------------

    def _tell_pause(self, *, is_paused: bool) -> None:
        self._send(Paused() if is_paused else Resumed())

    def _tell_mark(self, name: str, at_ms: float, utterance: Utterance | None) -> None:
        fields = {"utterance_id": ""} if utterance is None else utterance.event_fields
        self._send(MarkReached(name=name, played_ms=round(at_ms, 1), **fields))

    def _tell_end(self, live: LiveUtterance[IncrementalText]) -> None:
        self._words.pop(live.utterance.id, None)
        self._send(_final_message(live.utterance))

    def _new_text(self) -> IncrementalText:
        config = self._services.config
        return IncrementalText(
            self._services.clock,
            segmenting=segmenting_of(config.tts),
            idle_timeout_s=config.stream.idle_timeout_s,
            on_taken=self._update_pause,
        )

    def _append(self, text: str, opens_with: Prompt) -> None:
        with self._services.tenants.characters(self._call.tenant, len(text)):
            if self._open_now is None:
                if not text.strip():
                    self._blank += text
                    return
                blank = self._blank
                self.start(opens_with)
                text = blank + text
        live = self._open
        assert live is not None
        live.utterance.text_chars += len(text)
        live.source.append(text)

    def _answer(self, status: TokensStatus, message_id: StreamId | None) -> None:
        is_news = status != self._last_status
        self._last_status = status
        if status != "ok" or (message_id is not None and is_news):
            answered = UNSET if message_id is None else message_id
            self._send(TokensResult(id=answered, status=status, buffered_chars=self.num_pending))


def _final_message(utterance: Utterance) -> StreamMessage:
    cause = utterance.completion_cause
    assert cause is not None
    fields = utterance.event_fields | {
        "spoken_text": utterance.spoken_text,
        "played_ms": round(utterance.played_ms, 1),
    }
    if cause is CompletionCause.NORMAL:
        return StreamSpeakComplete(completion_cause=cause, **fields)
    fields["pending_text"] = utterance.pending_text
    if cause is CompletionCause.ERROR:
        assert utterance.error is not None
        return StreamSpeakComplete(completion_cause=cause, error=utterance.error.code, **fields)
    by = "call_ended" if cause is CompletionCause.CALL_ENDED else utterance.interrupted_by or "stop"
    return StreamSpeakInterrupted(by=by, **fields)
