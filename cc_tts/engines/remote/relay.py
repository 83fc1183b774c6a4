"""Relays messages inside ``cc-tts worker``, between the connected servers and the one engine process.

::

    server A ─ stream 7 ─▸ ConnectedServer ─▸ RelayedStream 1 ─┐
    server B ─ stream 7 ─▸ ConnectedServer ─▸ RelayedStream 2 ─┴─▸ WorkerLink ─▸ engine process

Each server numbers its streams by itself; the engine process knows them by numbers of the worker's own.
Runs on: the event loop.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from cc_tts.clock import Clock
from cc_tts.engines.engine_core import EngineLoad, StreamCommand, StreamRequest
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.link import NO_LOAD, OpenStream, WorkerLink, WorkerLost
from cc_tts.engines.worker.messages import (
    CancelStream,
    EndText,
    PlaybackProgress,
    StreamEnded,
    StreamFailed,
)
from cc_tts.errors import CcTtsError
from cc_tts.processes.channel import Message, Ping, Pong
from cc_tts.processes.watchdog import Watchdog

Send = Callable[[Message, bytes], None]

PING_LOOK_S: Final = 0.5
"""The interval of checking a server's pings (unmeasured)."""
SERVER_TIMEOUT_S: Final = 5.0
"""A server that has not pinged for this time is gone, and its streams are freed (unmeasured)."""
DEFAULT_RATE_HZ: Final = 24_000


class RelayedStream(OpenStream):
    def __init__(self, stream_id: int, request: StreamRequest, server: "ConnectedServer", rate_hz: int) -> None:
        super().__init__(stream_id, server.link, rate_hz)
        self._their_id = request.stream_id
        self._server = server
        self._taken_ms = 0.0

    @property
    def can_move(self) -> bool:
        """Always false: its server moves it, since it knows the other workers."""
        return False

    @property
    def _is_waited_for(self) -> bool:
        return self._taken_ms >= self._listener.sent_ms - 1.0

    def carry(self, command: StreamCommand) -> None:
        """Pass on a message of its server."""
        match command:
            case CancelStream():
                self._is_over = True
                self.break_off(None)
                return
            case EndText():
                self._is_text_whole = True
            case PlaybackProgress(_, taken_ms, ahead_ms):
                self._taken_ms, self.buffered_ms = taken_ms, ahead_ms
                self._listener.taken(self._link.now_ms, taken_ms, ahead_ms or 0.0)
        self._link.send(msgspec.structs.replace(command, stream_id=self.stream_id))

    def deliver(self, chunk: SpeechChunk) -> None:
        """Pass audio on to the server."""
        chunk.stream_id, chunk.rate_hz = self._their_id, self._rate_hz
        self._listener.sent(self._link.now_ms, chunk.duration_ms)
        self._server.send(chunk, b"")

    def over(self, failure: CcTtsError | None) -> None:
        """Nothing more will come."""
        self._server.streams.pop(self._their_id, None)
        if self._is_over:
            return
        self._is_over = True
        if failure is None:
            self._server.send(StreamEnded(self._their_id), b"")
        else:
            is_lost = isinstance(failure, WorkerLost)
            failed = StreamFailed(self._their_id, failure.code, failure.detail, failure.retry_after_s, is_lost)
            self._server.send(failed, b"")


class ConnectedServer:
    """One server that uses this worker: its streams, and whether it is still there."""

    def __init__(self, link: WorkerLink, ids: Iterator[int], send: Send, clock: Clock) -> None:
        self.link = link
        self.send = send
        self.streams: dict[int, RelayedStream] = {}
        self._ids = ids
        self._silence = Watchdog(clock, max_step_s=2 * PING_LOOK_S)

    @property
    def is_gone(self) -> bool:
        """Whether it has not pinged for too long; checked every :data:`PING_LOOK_S`."""
        return self._silence.poll() > SERVER_TIMEOUT_S

    def take(self, message: Message) -> None:
        match message:
            case Ping():
                self._silence.heard()
                self.send(Pong(serial=message.serial), b"")
            case StreamRequest():
                if message.stream_id not in self.streams:
                    self._open(message)
            case StreamCommand() if (known := self.streams.get(message.stream_id)) is not None:
                known.carry(message)
            case _:  # a message for a stream that has just ended
                pass

    def _open(self, request: StreamRequest) -> None:
        voice = self.link.find_voice(request.voice)
        rate_hz = voice.rate_hz if voice is not None else DEFAULT_RATE_HZ
        stream = RelayedStream(next(self._ids), request, self, rate_hz)
        self.streams[request.stream_id] = stream
        self.link.begin(stream, msgspec.structs.replace(request, stream_id=stream.stream_id))
        if not self.link.is_ready:
            stream.break_off(WorkerLost("the engine of the worker starts again", retry_after_s=1))

    def leave(self) -> None:
        """Free the streams of the server, which is gone."""
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.carry(CancelStream(stream.stream_id))


def report_of(link: WorkerLink, *, is_draining: bool) -> EngineLoad:
    """Return the load of the engine process, and why it accepts nothing now, for the servers."""
    if link.load is None:
        reason = f"the engine of the worker starts again: {link.down_reason}"
        return msgspec.structs.replace(NO_LOAD, refusal=reason)
    return msgspec.structs.replace(link.load, room=0, refusal="the worker is draining") if is_draining else link.load
