"""One client of a call's audio.

::

    MediaStream ─▸ MediaOutbox ─▸ dialect ─▸ socket
    socket ─▸ dialect ─▸ AudioInput

A client that reads slowly loses frames, which are counted and reported in their place.
"""

from typing import Final

from aiohttp import WSMessage, WSMsgType
from prometheus_client import Counter

from cc_tts.api.media.connection import StreamConnection
from cc_tts.api.media.dialect import ClearAudio, Dialect, EndAudio, Item, MarkAudio, TextCommand
from cc_tts.audio import PTIME_MS
from cc_tts.calls.audio.messages import FramesDropped, MediaDirection, MediaError, MediaMessage
from cc_tts.calls.audio.stream import MediaStream
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.follower import CallView
from cc_tts.errors import CcTtsError, MalformedRequest
from cc_tts.ua.messages import AudioDirection

MAX_MESSAGES_OUT: Final = 2000
"""The most messages besides audio that wait for a client that does not read. Unmeasured."""


class MediaOutbox(Outbox[Item]):
    """A :class:`cc_tts.calls.audio.stream.MediaSink`. Audio beyond ``max_queued_ms`` is dropped, and a message is put in its
    place.
    """

    def __init__(self, max_queued_ms: int, dropped: Counter) -> None:
        self._max_frames = max(1, max_queued_ms // PTIME_MS)
        super().__init__(self._max_frames + MAX_MESSAGES_OUT)
        self._dropped = dropped
        self._num_frames = self._num_dropped = 0

    def audio(self, direction: AudioDirection, frame: bytes) -> None:
        if self._num_frames < self._max_frames:
            self._report_dropped()
            self._num_frames += 1
            self.put((direction, frame))
        elif not self.is_closed:
            self._num_dropped += 1
            self._dropped.inc()

    def message(self, message: MediaMessage) -> None:
        """Queue a message; does nothing after the end."""
        self._report_dropped()
        self.put(message)

    def take(self) -> Item:
        item = super().take()
        self._num_frames -= isinstance(item, tuple)
        return item

    def _report_dropped(self) -> None:
        num_dropped, self._num_dropped = self._num_dropped, 0
        if num_dropped:
            self.put(FramesDropped(frames=num_dropped))


class MediaConnection(StreamConnection[Item]):
    """``clears``, ``hangs_up``: what happens when it ends, as in :meth:`.MediaStream.close`.

    Raises:
        WrongState, CapacityExceeded, UserAgentUnavailable: as :class:`cc_tts.calls.audio.stream.MediaStream`.
    """

    frames = TextCommand
    outbox: MediaOutbox

    def __init__(
        self,
        call: CallView,
        dialect: Dialect,
        *,
        direction: MediaDirection = "talk",
        clears: bool = False,
        hangs_up: bool = False,
    ) -> None:
        dropped = call.services.metrics.call_audio_dropped.labels(where="client")
        outbox = MediaOutbox(call.services.config.media.max_queued_ms, dropped)
        super().__init__(outbox, kind="media", call_id=call.id, direction=direction)
        self._dialect = dialect
        self._clears = clears
        self._hangs_up = hangs_up
        self._stream = MediaStream(
            call,
            outbox,
            direction=direction,
            rate_hz=dialect.rate_hz,
            interleaves=dialect.interleaves,
            barge_in_dtmf=dialect.barge_in_dtmf,
        )

    def encode(self, item: Item) -> list[str | bytes]:
        return self._dialect.encode(item)

    def follow(self, message: WSMessage) -> None:
        is_text = message.type is WSMsgType.TEXT
        command = self._dialect.read_text(message.data) if is_text else self._dialect.read_binary(message.data)
        if command is None:
            return
        if (talk := self._stream.talk) is None:
            raise MalformedRequest("this stream only listens; direction=talk plays what is sent")
        match command:
            case bytes():
                talk.audio(command)
            case MarkAudio(name=name):
                talk.mark(name)
            case ClearAudio():
                talk.clear()
            case EndAudio():
                talk.end()

    def refuse(self, error: CcTtsError) -> None:
        self.outbox.message(MediaError(code=error.code, detail=error.detail))

    def close(self) -> None:
        self._stream.close(clears=self._clears, hangs_up=self._hangs_up)
