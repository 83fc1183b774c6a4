"""Frames of WebSocket clients must be masked, and a server closes on one that is not (RFC 6455 §5.1). aiohttp reads both.

Masking is what keeps a script from making a browser send bytes that a proxy takes for an HTTP response (RFC 6455 §10.3).
Runs on: the event loop.
"""

from typing import Final, Protocol

_MASKED: Final = 0x80
_LENGTH_OF_16_BITS, _LENGTH_OF_64_BITS = 126, 127
_LENGTH_BYTES: Final = {_LENGTH_OF_16_BITS: 2, _LENGTH_OF_64_BITS: 8}
_SHORTEST_HEADER, _LONGEST_HEADER, _KEY_BYTES = 2, 10, 4
_NO_FRAME: Final = b"\xff\x80"
"""A header with all reserved bits, which makes the reader close with 1002, a protocol error."""


class Reader(Protocol):
    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take more bytes; return whether the reader has ended, and the bytes that are left."""
        ...

    def feed_eof(self) -> None: ...


class MaskedFrames:
    """Passes the bytes of a client to ``reader``. In place of an unmasked frame the reader gets a protocol error."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._header = b""
        """The start of an incomplete header."""
        self._num_left = 0
        """The bytes of the current frame that have not arrived."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        data = self._header + data
        begin, self._header = self._num_left, b""
        while begin < len(data):
            size = _frame_bytes(data[begin : begin + _LONGEST_HEADER])
            if size < 0:
                return self._reader.feed_data(data[:begin] + _NO_FRAME)
            if size == 0:
                data, self._header = data[:begin], data[begin:]
                break
            begin += size
        self._num_left = begin - len(data)
        return self._reader.feed_data(data)

    def feed_eof(self) -> None:
        self._reader.feed_eof()


def _frame_bytes(header: bytes) -> int:
    """Return the length of a frame from the start of its header: 0 if more bytes are needed, -1 if it is not masked."""
    if len(header) < _SHORTEST_HEADER:
        return 0
    if not header[1] & _MASKED:
        return -1
    length = header[1] & ~_MASKED
    num_bytes = _LENGTH_BYTES.get(length, 0)
    size = _SHORTEST_HEADER + num_bytes
    if len(header) < size:
        return 0
    if num_bytes:
        length = int.from_bytes(header[_SHORTEST_HEADER:size])
    return size + _KEY_BYTES + length
