"""A client's audio into a call: it is played as any prompt is, utterance by utterance.

::

    audio · mark · end ──▸ open utterance ──▸ the call's player
    clear ──▸ discard           └─▸ on_started · on_progress · on_complete ──▸ messages to the client

An utterance is open from its first audio to ``end``, or until the line has had nothing to play for ``media.idle_end_ms``.
Audio of an utterance that was interrupted from outside (a key, ``stop``, another prompt) is not played, though the client
still sends it for a moment: up to the next ``end`` or ``clear``, until nothing has come for :data:`INTERRUPTED_QUIET_S`,
or for :data:`INTERRUPTED_MAX_S`.

Runs on: the event loop.
"""

import asyncio
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
from cc_tts.calls.prompts.utterance import CompletionCause, SpokenSpan, Utterance
from cc_tts.errors import EngineFailed, MalformedRequest, QueueFull, WrongState
from cc_tts.media.half_band import HalfBand
from cc_tts.speech.incremental.audio import IncrementalAudio
from cc_tts.speech.prompt import AudioContent, Prompt

INTERRUPTED_QUIET_S: Final = 0.5  # unmeasured
INTERRUPTED_MAX_S: Final = 2.0
"""Audio of an interrupted utterance is dropped until none has come for the first time, or for the second one. Both are
unmeasured.
"""
PAUSED_SHARE: Final = 2  # unmeasured
RESUMED_SHARE: Final = 4
"""The client is asked to pause above one half of ``media.max_buffered_ms``, and to resume below a quarter; unmeasured."""
MAX_MARKS: Final = 1000
"""Marks of one utterance that may wait to be reached; unmeasured."""


class AudioInput:
    """``send`` gets the messages for the client and must do nothing but queue them. ``barge_in_dtmf`` is of its utterances,
    for keys and for speech; ``None``: as the call has it.
    """

    def __init__(
        self, call: CallView, rate_hz: int, *, send: Callable[[MediaMessage], None], barge_in_dtmf: bool | None = None
    ) -> None:
        self._call = call
        self._config = call.services.config.media
        self._rate_hz = rate_hz
        self._line = AudioFormat(call.services.config.rtp.clock_rate_hz)
        self._send = send
        self._barge_in_dtmf = barge_in_dtmf
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, _Live] = {}
        """Utterances of this client that are not complete, by their ids, in order."""
        self._open: _Live | None = None
        self._is_paused = False
        self._is_overfull = False
        self._discards_until_s = self._discards_at_most_until_s = 0.0
        self._hangs_up = False

    @property
    def buffered_ms(self) -> float:
        """Audio that has not gone to the line."""
        return sum(live.incremental.pending_ms for live in self._live.values())

    def audio(self, pcm: bytes) -> None:
        """More audio of the open utterance, or the first of a new one.

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
        if self.buffered_ms >= self._config.max_buffered_ms:
            self._drop(pcm)
            return
        live = self._open_now or self._begin()
        live.incremental.append(live.filter.process(pcm))
        self._update_pause()

    def mark(self, name: str) -> None:
        """Name the place behind the audio that has come; it is reported at once if nothing waits to be played.

        Raises:
            WrongState: too many marks wait to be reached.
        """
        live = self._open_now or next(reversed(self._live.values()), None)
        if live is None:
            self._send(MediaMark(name=name, cleared=False))
            return
        if len(live.marks) >= MAX_MARKS:
            raise WrongState(f"{MAX_MARKS} marks of utterance {live.utterance.id} wait to be reached")
        live.marks.append(name)
        if live.incremental.is_over:
            live.utterance.spans.append(SpokenSpan("", live.utterance.fed_ms, marks=[(0.0, name)]))
        else:
            live.incremental.mark(name)

    def end(self) -> None:
        """No more audio comes for the open utterance; the next audio opens another one."""
        if (live := self._open_now) is not None:
            live.incremental.append(live.filter.flush())
            live.incremental.end()
        self._open = None
        self._discards_until_s = 0.0

    def clear(self) -> None:
        """Drop what was not played of this client's audio, and report its marks. Audio that comes after this is new."""
        self.end()
        for live in reversed(tuple(self._live.values())):
            self._call.player.discard(live.utterance, CompletionCause.CANCELLED, by="clear")
        for live in tuple(self._live.values()):
            self._clear_marks(live)
        self._update_pause()

    def close(self, *, hangs_up: bool = False) -> None:
        """The client is gone: what it has sent is played to its end. Then, if ``hangs_up``, the call is ended."""
        self.end()
        self._hangs_up = hangs_up
        self._end_call()

    # --- of the utterances -----------------------------------------------------------------------------------------

    def on_started(self, utterance: Utterance) -> None:
        """Tell the client that its audio is heard."""
        self._send(
            MediaSpeakStarted(utterance_id=utterance.id, time_to_first_audio_ms=utterance.time_to_first_audio_ms)
        )

    def on_progress(self, utterance: Utterance, marks: Sequence[tuple[str, float]]) -> None:
        """Tell the client of its marks that were reached."""
        live = self._live[utterance.id]
        for name, _ in marks:
            if name in live.marks:  # not one that was cleared
                live.marks.remove(name)
                self._send(MediaMark(name=name, cleared=False))
        if marks:
            utterance.spans = [span for span in utterance.spans if span.marks]

    def on_refused(self, utterance: Utterance, words: str, detail: str) -> None:
        """Nothing to do: audio has no words."""

    def on_complete(self, utterance: Utterance) -> None:
        """Tell the client how its utterance ended, and drop what follows of one that was interrupted."""
        live, utterance.watcher = self._live.pop(utterance.id), None
        if live is self._open:
            self._open = None
            if not live.incremental.has_ended:
                now_s = self._loop.time()
                self._discards_until_s = now_s + INTERRUPTED_QUIET_S
                self._discards_at_most_until_s = now_s + INTERRUPTED_MAX_S
        live.incremental.forget()
        self._clear_marks(live)
        self._send_end(utterance)
        self._update_pause()
        self._end_call()

    # ---------------------------------------------------------------------------------------------------------------

    @property
    def _open_now(self) -> "_Live | None":
        """The utterance that audio goes to, unless it has ended because no audio came."""
        if self._open is not None and self._open.incremental.has_ended:
            self._open = None
        return self._open

    def _begin(self) -> "_Live":
        incremental = IncrementalAudio(
            self._line,
            start_ms=self._config.start_threshold_ms,
            idle_end_s=self._config.idle_end_ms / 1000,
            on_taken=self._update_pause,
        )
        may_interrupt = self._barge_in_dtmf
        prompt = Prompt(content=AudioContent(incremental), barge_in_dtmf=may_interrupt, barge_in_speech=may_interrupt)
        utterance = self._call.speak(prompt)
        utterance.watcher = self
        self._open = self._live[utterance.id] = _Live(
            utterance, incremental, HalfBand(self._rate_hz, self._line.rate_hz)
        )
        return self._open

    def _is_discarding(self) -> bool:
        now_s = self._loop.time()
        if now_s >= self._discards_until_s:
            return False
        self._discards_until_s = min(now_s + INTERRUPTED_QUIET_S, self._discards_at_most_until_s)
        return True

    def _drop(self, pcm: bytes) -> None:
        num_frames = AudioFormat(self._rate_hz).ms_for_bytes(len(pcm)) / PTIME_MS
        self._call.services.metrics.call_audio_dropped.labels(where="talk").inc(num_frames)
        if not self._is_overfull:
            self._is_overfull = True
            raise QueueFull(
                f"{self._config.max_buffered_ms} ms of audio wait (media.max_buffered_ms); more is dropped until resumed"
            )

    def _clear_marks(self, live: "_Live") -> None:
        is_played = live.utterance.completion_cause is CompletionCause.NORMAL
        for name in live.marks:
            self._send(MediaMark(name=name, cleared=not is_played))
        live.marks.clear()

    def _send_end(self, utterance: Utterance) -> None:
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
            self._call.end_after_media()

    def _update_pause(self) -> None:
        buffered_ms, most_ms = self.buffered_ms, self._config.max_buffered_ms
        if not self._is_paused and buffered_ms >= most_ms / PAUSED_SHARE:
            self._is_paused = True
            self._send(MediaPaused())
        elif self._is_paused and buffered_ms <= most_ms / RESUMED_SHARE:
            self._is_paused = self._is_overfull = False
            self._send(MediaResumed())


class _Live:
    """One utterance that is not complete, and the marks of it that were not reached."""

    def __init__(self, utterance: Utterance, incremental: IncrementalAudio, rate_filter: HalfBand) -> None:
        self.utterance = utterance
        self.incremental = incremental
        self.filter = rate_filter
        self.marks: list[str] = []
