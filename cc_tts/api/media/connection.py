"""One media stream over one WebSocket, whoever opened it.

::

    MediaStream ─▸ Outbox ─▸ _send_all ─▸ dialect ─▸ socket
    socket ─▸ Receiver ─▸ dialect ─▸ AudioInput

A client that reads slowly loses frames, which are counted and reported in their place; one that takes nothing for
:data:`.SEND_TIMEOUT_S` is closed with 1013, and one that answers no ping is broken off. A message that cannot be followed is
answered by ``error``; :data:`.MAX_FAULTS` of them in a row close with 1008. The end of the call closes with 1000.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

from aiohttp import WSCloseCode, WSMessage, WSMsgType
from prometheus_client import Counter

from cc_tts import logs
from cc_tts.api.events.websocket import CLOSE_TIMEOUT_S, SEND_TIMEOUT_S
from cc_tts.api.http.receiver import Receiver, Socket
from cc_tts.api.media.dialect import ClearAudio, Command, Dialect, EndAudio, Item, MarkAudio
from cc_tts.audio import PTIME_MS
from cc_tts.calls.audio.audio_input import AudioInput
from cc_tts.calls.audio.messages import FramesDropped, MediaError, MediaMessage
from cc_tts.errors import CcTtsError, MalformedRequest
from cc_tts.ua.messages import AudioDirection

MAX_MESSAGES_OUT: Final = 2000
"""Messages besides audio that wait for a client that does not read."""

Ending = Literal["client", "call", "too_slow", "faults"]
"""Who ended a stream, or why the server did."""

log = logs.get(__name__)


class Outbox:
    """What waits to be sent: a :class:`cc_tts.calls.audio.stream.MediaSink`. Audio beyond ``max_queued_ms`` is dropped."""

    def __init__(self, max_queued_ms: int, dropped: Counter) -> None:
        self._max_frames = max(1, max_queued_ms // PTIME_MS)
        self._dropped = dropped
        self._queue: deque[Item] = deque()
        self._num_frames = self._num_messages = self._num_dropped = 0
        self._wake = asyncio.Event()
        self._has_ended = False
        self.is_too_slow = False

    def audio(self, direction: AudioDirection, frame: bytes) -> None:
        """Queue a frame, if there is room."""
        if self._has_ended:
            return
        if self._num_frames >= self._max_frames:
            self._num_dropped += 1
            self._dropped.inc()
            return
        self._report_dropped()
        self._num_frames += 1
        self._queue.append((direction, frame))
        self._wake.set()

    def message(self, message: MediaMessage) -> None:
        """Queue a message; nothing happens after the end."""
        if self._has_ended:
            return
        self._report_dropped()
        self._num_messages += 1
        self._queue.append(message)
        if self._num_messages > MAX_MESSAGES_OUT:
            self.is_too_slow = True
            self.end()
        self._wake.set()

    def end(self) -> None:
        """Nothing more comes; what is queued is still given out."""
        self._has_ended = True
        self._wake.set()

    async def get(self) -> Item | None:
        """The oldest; ``None`` at the end."""
        while not self._queue and not self._has_ended:
            self._wake.clear()
            await self._wake.wait()
        if self.is_too_slow or not self._queue:
            return None
        item = self._queue.popleft()
        if isinstance(item, tuple):
            self._num_frames -= 1
        else:
            self._num_messages -= 1
        return item

    def _report_dropped(self) -> None:
        if self._num_dropped:
            self._queue.append(FramesDropped(frames=self._num_dropped))
            self._num_messages += 1
            self._num_dropped = 0


class MediaConnection:
    """One socket while it is open. ``abort`` breaks its connection off."""

    def __init__(
        self, socket: Socket, dialect: Dialect, outbox: Outbox, talk: AudioInput | None, *, abort: Callable[[], None]
    ) -> None:
        self._socket = socket
        self._dialect = dialect
        self._outbox = outbox
        self._talk = talk
        self._abort = abort
        self._receiver = Receiver(socket, follow=self._follow, refuse=self._refuse)

    async def run(self) -> Ending:
        """Serve until the client closes, is gone, or the call is over. Raises ``ConnectionError``."""
        receiving, sending, _ = tasks = [
            asyncio.create_task(each) for each in (self._receive_all(), self._send_all(), self._receiver.ping_all())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if receiving.done():
                receiving.result()
                return "faults" if self._receiver.has_given_up else "client"
            if sending.done() and sending.result():
                await self._close(WSCloseCode.OK, b"the call is over")
                return "call"
            await self._close(WSCloseCode.TRY_AGAIN_LATER, b"too slow")
            self._abort()
            return "too_slow"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _close(self, code: WSCloseCode, message: bytes) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._socket.close(code=code, message=message)

    async def _send_all(self) -> bool:
        """Send until the end; returns whether everything was taken."""
        while (item := await self._outbox.get()) is not None:
            for message in self._dialect.encode(item):
                try:
                    async with asyncio.timeout(SEND_TIMEOUT_S):
                        if isinstance(message, str):
                            await self._socket.send_frame(message.encode(), WSMsgType.TEXT)
                        else:
                            await self._socket.send_frame(message, WSMsgType.BINARY)
                except TimeoutError:
                    return False
        return not self._outbox.is_too_slow

    async def _receive_all(self) -> None:
        await self._receiver.receive_all()
        if self._receiver.has_given_up:
            await self._close(WSCloseCode.POLICY_VIOLATION, b"too many faults")

    def _follow(self, message: WSMessage) -> None:
        is_text = message.type is WSMsgType.TEXT
        self._obey(self._dialect.read_text(message.data) if is_text else self._dialect.read_binary(message.data))

    def _obey(self, command: Command | None) -> None:
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
