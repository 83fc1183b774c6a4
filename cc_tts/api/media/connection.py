"""One media stream over one WebSocket, whoever opened it.

::

    MediaStream ─▸ MediaOutbox ─▸ dialect ─▸ socket
    socket ─▸ Receiver ─▸ dialect ─▸ AudioInput

A client that reads slowly loses frames, which are counted and reported in their place; one that takes nothing for
:data:`.SEND_TIMEOUT_S` is closed with 1013, and one that answers no ping is broken off. A message that cannot be followed is
answered by ``error``; :data:`.MAX_FAULTS` of them in a row close with 1008. The end of the call closes with 1000.
"""

from collections.abc import Callable
from typing import Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType
from prometheus_client import Counter

from cc_tts.api.events import websocket
from cc_tts.api.http.receiver import Receiver, Socket
from cc_tts.api.media.dialect import ClearAudio, Dialect, EndAudio, Item, MarkAudio
from cc_tts.audio import PTIME_MS
from cc_tts.calls.audio.messages import FramesDropped, MediaError, MediaMessage
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.input.audio import AudioInput
from cc_tts.errors import CcTtsError, MalformedRequest
from cc_tts.ua.messages import AudioDirection

MAX_MESSAGES_OUT: Final = 2000
"""Messages besides audio that wait for a client that does not read. Unmeasured."""


class MediaOutbox(Outbox[Item]):
    """A :class:`cc_tts.calls.audio.stream.MediaSink`. Audio beyond ``max_queued_ms`` is dropped, and its place says so."""

    def __init__(self, max_queued_ms: int, dropped: Counter) -> None:
        self._max_frames = max(1, max_queued_ms // PTIME_MS)
        super().__init__(self._max_frames + MAX_MESSAGES_OUT)
        self._dropped = dropped
        self._num_frames = self._num_dropped = 0

    def audio(self, direction: AudioDirection, frame: bytes) -> None:
        """Queue a frame, if there is room."""
        if self._num_frames < self._max_frames:
            self._report_dropped()
            self._num_frames += 1
            self.put((direction, frame))
        elif not self.is_closed:
            self._num_dropped += 1
            self._dropped.inc()

    def message(self, message: MediaMessage) -> None:
        """Queue a message; nothing happens after the end."""
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


class MediaConnection:
    """One socket while it is open. ``abort`` breaks its connection off."""

    def __init__(
        self,
        socket: Socket,
        dialect: Dialect,
        outbox: MediaOutbox,
        talk: AudioInput | None,
        *,
        abort: Callable[[], None],
    ) -> None:
        self._socket = socket
        self._dialect = dialect
        self._outbox = outbox
        self._talk = talk
        self._abort = abort

    async def run(self) -> None:
        """Serve until the client closes, is gone, or the call is over. Raises ``ConnectionError``."""
        receiver = Receiver(self._socket, follow=self._follow, refuse=self._refuse)
        await websocket.serve(
            self._socket,
            self._outbox,
            receiver.receive_all(),
            receiver.ping_all(),
            encode=self._dialect.encode,
            end=(WSCloseCode.OK, b"the call is over"),
            on_too_slow=lambda: None,
            abort=self._abort,
        )

    def _follow(self, message: WSMessage) -> None:
        is_text = message.type is WSMsgType.TEXT
        command = self._dialect.read_text(message.data) if is_text else self._dialect.read_binary(message.data)
        if command is None:
            return
        if (talk := self._talk) is None:
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

    def _refuse(self, error: CcTtsError) -> None:
        self._outbox.message(MediaError(code=error.code, detail=error.detail))
