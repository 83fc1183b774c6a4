"""A client plays audio into a call, utterance by utterance.

An utterance is open from its first audio to ``end``, or until the line has had nothing to play for ``media.idle_end_ms``.
Audio of an utterance that was interrupted is dropped for :data:`INTERRUPTED_MAX_S` at most: a client that plays a
microphone never pauses.

Runs on: the event loop.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import UNSET

from cc_tts.audio import BYTES_PER_SAMPLE, PTIME_MS, AudioFormat
from cc_tts.calls.audio.messages import (
    MediaMark,
    MediaMessage,
    MediaPaused,
    MediaResumed,
    MediaSpeakComplete,
    MediaSpeakInterrupted,
    MediaSpeakStarted,
)
from cc_tts.calls.follower import CallView
from cc_tts.calls.input.stream import InputStream, LiveUtterance
from cc_tts.calls.prompts.utterance import CompletionCause, Utterance
from cc_tts.errors import EngineFailed, MalformedRequest, QueueFull
from cc_tts.speech.incremental.audio import IncrementalAudio
from cc_tts.speech.prompt import AudioContent, Prompt

INTERRUPTED_MAX_S: Final = 2.0  # unmeasured
PAUSED_SHARE: Final = 2
"""The client is asked to pause above one half of ``media.max_buffered_ms``; unmeasured."""


class AudioInput(InputStream[IncrementalAudio, MediaMessage]):
    """``barge_in_dtmf`` says whether keys and speech interrupt its utterances; ``None``: as the call says."""

    def __init__(
        self, call: CallView, rate_hz: int, *, send: Callable[[MediaMessage], None], barge_in_dtmf: bool | None = None
    ) -> None:
        self._config = config = call.services.config.media
        super().__init__(
            call,
            send=send,
            max_pending=config.max_buffered_ms,
            pause_at=config.max_buffered_ms / PAUSED_SHARE,
            discards_at_most_s=INTERRUPTED_MAX_S,
        )
        self._rate_hz = rate_hz
        self._barge_in_dtmf = barge_in_dtmf
        self._hangs_up = False

    def audio(self, pcm: bytes) -> None:
        """Take more audio of the open utterance, or open a new one.

        Raises:
            MalformedRequest: half a sample.
            QueueFull: more waits than ``media.max_buffered_ms``, reported once until there is room again; or as many prompts
                as the call takes.
            WrongState: the call is over.
        """
        if len(pcm) % BYTES_PER_SAMPLE:
            raise MalformedRequest(f"binary messages are whole 16-bit samples, not {len(pcm)} bytes")
        if not pcm or self._is_discarding():
            return
        if self.num_pending >= self._config.max_buffered_ms:
            self._drop(pcm)
            return
        live = self._open_now or self._begin_audio()
        live.source.append(pcm)
        self._update_pause()

    def clear(self) -> None:
        """Drop this client's audio that was not played, and report its marks. Audio after this opens a new utterance."""
        super().clear()
        for live in tuple(self._live.values()):
            self._clear_marks(live)

    def close(self, *, hangs_up: bool = False) -> None:
        """End the stream, since the client has gone. Its audio is played to the end; then the call is ended
        if ``hangs_up``.
        """
        self.end()
        self._hangs_up = hangs_up
        self._end_call()

    def on_started(self, utterance: Utterance) -> None:
        self._send(
            MediaSpeakStarted(utterance_id=utterance.id, time_to_first_audio_ms=utterance.time_to_first_audio_ms)
        )

    def on_progress(self, utterance: Utterance, marks: Sequence[tuple[str, float]]) -> None:
        """Report the marks that were reached to the client."""
        super().on_progress(utterance, marks)
        if marks:
            utterance.spans = [span for span in utterance.spans if span.marks]

    def on_complete(self, utterance: Utterance) -> None:
        """Tell the client how its utterance ended, and end a call that waits for this."""
        super().on_complete(utterance)
        self._end_call()

    # -----------------------------------------------------------------------------------------------------------------

    def _begin_audio(self) -> LiveUtterance[IncrementalAudio]:
        source = IncrementalAudio(
            AudioFormat(self._call.services.config.rtp.clock_rate_hz),
            rate_hz=self._rate_hz,
            start_ms=self._config.start_threshold_ms,
            idle_end_s=self._config.idle_end_ms / 1000,
            on_taken=self._update_pause,
        )
        may_interrupt = self._barge_in_dtmf
        prompt = Prompt(content=AudioContent(source), barge_in_dtmf=may_interrupt, barge_in_speech=may_interrupt)
        return self._begin(prompt, source)

    def _drop(self, pcm: bytes) -> None:
        num_frames = AudioFormat(self._rate_hz).ms_for_bytes(len(pcm)) / PTIME_MS
        self._call.services.metrics.call_audio_dropped.labels(where="talk").inc(num_frames)
        if not self._is_full:
            self._is_full = True
            raise QueueFull(
                f"{self.num_pending:.0f} ms of audio wait to be played and {self._config.max_buffered_ms} may "
                "(media.max_buffered_ms); more is dropped until resumed"
            )

    def _tell_pause(self, *, is_paused: bool) -> None:
        self._send(MediaPaused(buffered_ms=round(self.num_pending, 1)) if is_paused else MediaResumed())

    def _tell_mark(self, name: str, at_ms: float, utterance: Utterance | None) -> None:  # noqa: ARG002
        self._send(MediaMark(name=name, cleared=False))

    def _clear_marks(self, live: LiveUtterance[IncrementalAudio]) -> None:
        is_played = live.utterance.completion_cause is CompletionCause.NORMAL
        for name in live.marks:
            self._send(MediaMark(name=name, cleared=not is_played))
        live.marks.clear()

    def _tell_end(self, live: LiveUtterance[IncrementalAudio]) -> None:
        utterance = live.utterance
        live.source.forget()
        self._clear_marks(live)
        cause, played_ms = utterance.completion_cause, round(utterance.played_ms, 1)
        assert cause is not None
        if cause in (CompletionCause.NORMAL, CompletionCause.ERROR):
            failed = utterance.error.code if utterance.error is not None else EngineFailed.code
            error = UNSET if cause is CompletionCause.NORMAL else failed
            self._send(
                MediaSpeakComplete(utterance_id=utterance.id, completion_cause=cause, played_ms=played_ms, error=error)
            )
        elif cause is not CompletionCause.CALL_ENDED:  # "stop" follows
            by = utterance.interrupted_by or "stop"
            self._send(MediaSpeakInterrupted(utterance_id=utterance.id, by=by, played_ms=played_ms))

    def _end_call(self) -> None:
        if self._hangs_up and not self._live:
            self._hangs_up = False
            self._call.end_heard_out("media_closed")
