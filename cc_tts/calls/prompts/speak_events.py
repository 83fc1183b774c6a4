"""The events ``speak.*`` of one call, and the reports to the watcher of each utterance.

Runs on: the event loop.
"""

from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from cc_tts import logs
from cc_tts.calls.call_info import CallInfo
from cc_tts.calls.events import types
from cc_tts.calls.prompts.utterance import Utterance
from cc_tts.engines.speech_chunk import SpeechChunk

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class TextPlace:
    """A text chunk of an utterance: its index from 0, and its first word and its end in characters of the text."""

    text_chunk: int = -1
    char_start: int = 0
    char_end: int = 0

    def after(self, source: str | None) -> "TextPlace":
        """Return the chunk that is spoken after a chunk with this text has begun. Silence and marks have no chunk."""
        if not source:
            return self
        num_blanks = len(source) - len(source.lstrip())
        return TextPlace(self.text_chunk + 1, self.char_end + num_blanks, self.char_end + len(source))


FIRST_CHUNK: Final = TextPlace(0)


class SpeakEvents:
    """Publishes the events of the utterances of a call."""

    def __init__(self, call: CallInfo) -> None:
        self._log = log.bind(call_id=call.id)
        self._publish = call.publish

    def queued(self, utterance: Utterance) -> None:
        self._publish(types.SpeakQueued(**utterance.event_fields, text_chars=utterance.text_chars))
        self._log.info("speak", utterance_id=utterance.id, text_chars=utterance.text_chars, voice=utterance.voice)

    def started(self, utterance: Utterance) -> None:
        self._publish(
            types.SpeakStarted(
                **utterance.event_fields,
                time_to_first_audio_ms=utterance.time_to_first_audio_ms,
                time_to_first_pcm_ms=utterance.time_to_first_pcm_ms,
            )
        )
        if utterance.watcher is not None:
            utterance.watcher.on_started(utterance)

    def progress(self, utterance: Utterance) -> None:
        """More of an utterance was played: report the marks that were reached."""
        marks = utterance.take_marks()
        for name, at_ms in marks:
            self._publish(types.SpeakMark(**utterance.event_fields, name=name, played_ms=round(at_ms, 1)))
        if utterance.watcher is not None:
            utterance.watcher.on_progress(utterance, marks)

    def recovered(self, utterance: Utterance, place: TextPlace, reason: types.RecoveryReason) -> None:
        """Report that another worker or the fallback engine continues the utterance from this place."""
        self._publish(
            types.SpeakRecovered(
                **utterance.event_fields, reason=reason, text_chunk=place.text_chunk, char_start=place.char_start
            )
        )

    def refused(self, utterance: Utterance, chunk: SpeechChunk, place: TextPlace) -> None:
        """Report that no voice speaks the words of this chunk, and give the utterance the error."""
        assert utterance.error is not None
        words = chunk.begins_source or ""
        self._log.warning("words_refused", utterance_id=utterance.id, code=utterance.error.code)
        self._publish(
            types.SpeakRefused(
                **utterance.event_fields,
                error=utterance.error.code,
                detail=chunk.refused_because,
                text=words,
                char_start=place.char_end - len(words.lstrip()),
            )
        )
        if utterance.watcher is not None:
            utterance.watcher.on_refused(utterance, words, chunk.refused_because)

    def complete(self, utterance: Utterance) -> None:
        cause = utterance.completion_cause
        assert cause is not None
        self._publish(
            types.SpeakComplete(
                **utterance.event_fields,
                completion_cause=cause,
                interrupted_by=utterance.interrupted_by,
                speech_id=UNSET if utterance.speech_id is None else utterance.speech_id,
                played_ms=round(utterance.played_ms, 1),
                text_chars=utterance.text_chars,
                spoken_text=utterance.spoken_text,
                underruns=utterance.underruns,
                time_to_first_audio_ms=utterance.time_to_first_audio_ms,
                error=None if utterance.error is None else utterance.error.code,
            )
        )
        self._log.info(
            "spoken",
            utterance_id=utterance.id,
            text_chars=utterance.text_chars,
            cause=cause.value,
            played_ms=round(utterance.played_ms),
            time_to_first_audio_ms=utterance.time_to_first_audio_ms,
        )
