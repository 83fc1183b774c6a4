"""The channel between the server process and a child: typed messages with binary payloads over a socket pair.

A record on the wire::

    0        4        8             8+m            8+m+p
    ├────────┼────────┼──────────────┼───────────────┤
    │ m: u32 │ p: u32 │ message      │ payload       │      little-endian lengths
    └────────┴────────┴──────────────┴───────────────┘
                        msgpack, tagged by type

The first record each side sends is :class:`Hello`; another ``protocol`` ends the child. Lengths are bounded: a record that
exceeds them means the other side is broken, not that more should be read.
"""

import collections
import contextlib
import functools
import operator
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from cc_tts.errors import UNREADABLE, ProcessFailed

PROTOCOL_VERSION: Final = 4
MAX_MESSAGE_BYTES: Final = 1 << 20  # unmeasured
MAX_PAYLOAD_BYTES: Final = 4 << 20  # unmeasured
MAX_BACKLOG_BYTES: Final = 32 << 20
"""A side with more unsent data than this is no longer being read by the other (unmeasured)."""
READ_BYTES: Final = 1 << 16
"""The most bytes in one read (unmeasured)."""
HEADER: Final = struct.Struct("<II")
"""The lengths of a record's message and payload."""
CLOSED: Final = "closed by the other side"
"""The reason that is given when the other end closed without a message."""

_JOIN_BYTES: Final = 1 << 16
"""A record shorter than this is sent together with the records behind it."""


Kind = TypeVar("Kind", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Base of every message between processes."""


class Hello(Message, frozen=True):
    """Child → server, first. ``build`` describes what the child runs on (library versions, limits)."""

    protocol: int
    process: str
    pid: int
    build: dict[str, str] = {}


class Starting(Message, frozen=True):
    """Child → server, any number of times before :class:`Ready`: what it is doing, in a few words."""

    detail: str


class Ready(Message, frozen=True):
    """Child → server, once: it can work now."""


class StartFailed(Message, frozen=True):
    """Child → server, instead of :class:`Ready`: why it exits, for people."""

    detail: str


class Ping(Message, frozen=True):
    """Server → child, every heartbeat interval."""

    serial: int


class Pong(Message, frozen=True):
    """Child → server: the answer to :class:`Ping`, sent by the thread that does the work."""

    serial: int


class Shutdown(Message, frozen=True):
    """Server → child: end everything in an orderly way and exit 0."""


COMMON_MESSAGES: Final[tuple[type[Message], ...]] = (Hello, Starting, Ready, StartFailed, Ping, Pong, Shutdown)

Record = tuple[Message, bytes]


def kinds_of(root: type[Kind]) -> tuple[type[Kind], ...]:
    """Return the leaf classes below ``root``, in the order of their definition."""
    below = root.__subclasses__()
    return tuple(kind for each in below for kind in kinds_of(each)) if below else (root,)


_encoder = msgspec.msgpack.Encoder()


def encode(message: Message, payload: bytes = b"") -> bytes:
    """Return one record as bytes; raises ``ProcessFailed`` if the message or the payload is too long."""
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise ProcessFailed(f"record of {len(body)} + {len(payload)} bytes exceeds the channel's bounds")
    return b"".join((HEADER.pack(len(body), len(payload)), body, payload))


class Decoder:
    """Splits a byte stream into records. ``types`` are the message types that this side expects."""

    def __init__(self, types: Sequence[type[Message]]) -> None:
        any_of_them: Any = functools.reduce(operator.or_, types)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(any_of_them)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Record]:
        """Add bytes; return the records that they complete. Raises ``ProcessFailed`` for unexpected types."""
        self._buffer += data
        records: list[Record] = []
        offset = 0
        while len(self._buffer) - offset >= HEADER.size:
            message_bytes, payload_bytes = HEADER.unpack_from(self._buffer, offset)
            if message_bytes > MAX_MESSAGE_BYTES or payload_bytes > MAX_PAYLOAD_BYTES:
                raise ProcessFailed(
                    f"record of {message_bytes} + {payload_bytes} bytes announced: the channel is broken"
                )
            start = offset + HEADER.size
            end = start + message_bytes + payload_bytes
            if len(self._buffer) < end:
                break
            try:
                message = self._decoder.decode(memoryview(self._buffer)[start : start + message_bytes])
            except UNREADABLE as error:
                raise ProcessFailed(f"unreadable message: {error}") from error
            records.append((message, bytes(memoryview(self._buffer)[start + message_bytes : end])))
            offset = end
        if offset:
            del self._buffer[:offset]
        return records


class ChildChannel:
    """The child's end: blocking reads on one thread, non-blocking sends on another. ``timeout_s``: after this long without a
    record the server counts as gone.
    """

    def __init__(self, sock: socket.socket, types: Sequence[type[Message]], *, timeout_s: float | None = None) -> None:
        self._sock = sock
        self._decoder = Decoder((*COMMON_MESSAGES, *types))
        self._outbox: collections.deque[memoryview] = collections.deque()
        self.backlog_bytes = 0
        """The number of unsent bytes."""
        sock.settimeout(timeout_s)

    def fileno(self) -> int:
        """Return the file descriptor, for a selector that waits for more than the server."""
        return self._sock.fileno()

    def read(self) -> list[Record]:
        """Wait for the next records; an empty list if the server is gone. Raises ``ProcessFailed`` for unreadable data. Runs
        on: the reader thread.
        """
        while True:
            try:
                data = self._sock.recv(READ_BYTES)
            except OSError:
                return []
            if not data:
                return []
            records = self._decoder.feed(data)
            if records:
                return records

    def poll(self) -> list[Record]:
        """Return the records that have arrived, without waiting. Raises ``ProcessFailed`` if the other side is gone or has
        sent unreadable data. Runs on: the working thread, instead of :meth:`read`.
        """
        try:
            data = self._sock.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ProcessFailed(f"the other side is gone: {error}") from error
        if not data:
            raise ProcessFailed("the other side is gone")
        return self._decoder.feed(data)

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Queue a record and send as much as the socket takes: :meth:`put`, then :meth:`flush`."""
        self.put(message, payload)
        self.flush()

    def put(self, message: Message, payload: bytes = b"") -> None:
        """Queue a record for the next :meth:`flush`, which sends many with one system call. Raises ``ProcessFailed`` if the
        server has stopped reading. Runs on: the working thread.
        """
        data = memoryview(encode(message, payload))
        self._outbox.append(data)
        self.backlog_bytes += len(data)
        if self.backlog_bytes > MAX_BACKLOG_BYTES:
            raise ProcessFailed("the server has stopped reading")

    @property
    def has_backlog(self) -> bool:
        """Whether there are unsent bytes."""
        return bool(self._outbox)

    def flush(self) -> None:
        """Send as much of the queue as the socket takes without blocking. Raises ``ProcessFailed`` if the server is gone.
        Runs on: the working thread.
        """
        while self._outbox:
            if len(self._outbox) > 1 and len(self._outbox[0]) < _JOIN_BYTES:
                joined = memoryview(b"".join(self._outbox))
                self._outbox.clear()
                self._outbox.append(joined)
            data = self._outbox[0]
            try:
                sent = self._sock.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError as error:
                raise ProcessFailed(f"the server is gone: {error}") from error
            self.backlog_bytes -= sent
            if sent < len(data):
                self._outbox[0] = data[sent:]
            else:
                self._outbox.popleft()

    def drain(self, timeout_s: float) -> None:
        """Send the whole queue, and wait for that. Raises ``OSError`` if it takes too long or the other side is gone."""
        self._sock.settimeout(timeout_s)
        while self._outbox:
            self._sock.sendall(self._outbox.popleft())

    def close(self) -> None:
        """Close this end; a reader waiting in :meth:`read` returns."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
