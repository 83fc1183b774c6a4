"""One client of a call's audio: what it hears, and what it plays.

::

    AudioHub ─▸ FrameShaper ─▸ sink.audio          sink.message ◂─ keys, marks, the end
    client ──▸ AudioInput ─▸ the call's player

Runs on: the event loop.
"""

from typing import Protocol

from msgspec import UNSET

from cc_tts.audio import PTIME_MS
from cc_tts.calls.audio.frames import FrameShaper
from cc_tts.calls.audio.messages import (
    HEARD,
    MediaDirection,
    MediaDtmf,
    MediaMessage,
    MediaSpeechStarted,
    MediaSpeechStopped,
    MediaStart,
    MediaStop,
)
from cc_tts.calls.follower import CallView, Follower
from cc_tts.calls.input.audio import AudioInput
from cc_tts.clock import ms_between
from cc_tts.ua.messages import AudioDirection, CallAudio


class MediaSink(Protocol):
    """The destination of a stream. Its methods must only queue."""

    def audio(self, direction: AudioDirection, frame: bytes) -> None:
        """Send 20 ms of audio. If the stream interleaves, both directions come together under ``in``."""

    def message(self, message: MediaMessage) -> None:
        """Send a message that is not audio."""

    def close(self) -> None:
        """End the stream, since the call is over; nothing follows."""


class MediaStream(Follower):
    """One client's stream. ``interleaves``: the two directions of ``both`` are channels of the same frames. :meth:`close` it
    when the client has gone.

    Raises:
        WrongState: the call is over.
        CapacityExceeded: the call has as many streams as the config allows.
        UserAgentUnavailable: the UA process is not up.
    """

    def __init__(
        self,
        call: CallView,
        sink: MediaSink,
        *,
        direction: MediaDirection,
        rate_hz: int,
        interleaves: bool = True,
        barge_in_dtmf: bool | None = None,
    ) -> None:
        limit = call.services.config.media.max_per_call
        call.followers.check(type(self), call, limit=limit, what="media streams", key="media.max_per_call")
        self.call = call
        self._sink = sink
        heard = HEARD[direction]
        line_rate_hz = call.services.config.rtp.clock_rate_hz
        self._shaper = FrameShaper(heard, line_rate_hz, rate_hz, interleaves=interleaves)
        self.talk: AudioInput | None = None
        if direction == "talk":
            self.talk = AudioInput(call, rate_hz, send=sink.message, barge_in_dtmf=barge_in_dtmf)
        sink.message(
            MediaStart(
                call_id=call.id,
                direction=direction,
                rate=rate_hz,
                channels=self._shaper.num_channels,
                frame_ms=PTIME_MS,
                caller=call.caller,
                callee=call.callee,
                headers=call.headers,
                metadata=call.metadata,
                api=call.services.nodes.base_url or UNSET,
            )
        )
        self._unsubscribe = call.audio.subscribe(heard, self._on_audio)
        call.followers.join(self)
        call.services.metrics.media_streams.inc()

    def close(self, *, clears: bool = False, hangs_up: bool = False) -> None:
        """End the stream, since the client has gone. The audio that it has sent is played to its end, or dropped if
        ``clears``. Then the call is ended if ``hangs_up``. Safe to call twice.
        """
        if not self.call.followers.leave(self):
            return
        self.call.services.metrics.media_streams.dec()
        self._unsubscribe()
        if self.talk is not None:
            if clears:
                self.talk.clear()
            self.talk.close(hangs_up=hangs_up)

    def on_key(self, digit: str, duration_ms: int) -> None:
        self._sink.message(MediaDtmf(digit=digit, duration_ms=duration_ms))

    def on_speech(self, speech_id: str, at_ns: int, *, begins: bool) -> None:
        """The caller began or stopped speaking at that time."""
        if self._shaper.begun_ns is None:
            return
        kind = MediaSpeechStarted if begins else MediaSpeechStopped
        at_ms = max(0.0, ms_between(self._shaper.begun_ns, at_ns))
        self._sink.message(kind(speech_id=speech_id, at_ms=round(at_ms, 1)))

    def on_call_ended(self, reason: str) -> None:
        self._sink.message(MediaStop(reason=reason))
        self._sink.close()

    def _on_audio(self, audio: CallAudio, pcm: bytes) -> None:
        for direction, frame in self._shaper.frames(audio, pcm):
            self._sink.audio(direction, frame)
