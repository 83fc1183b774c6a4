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
"""All reserved bits: whoever reads this closes with 1002, a protocol error."""


class Reader(Protocol):
    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take what has come; returns whether the reader has ended, and what is left."""
        ...

    def feed_eof(self) -> None: ...


class MaskedFrames:
    """Gives to ``reader`` what a client sends. In place of a frame that is not masked the reader gets a protocol error."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._header = b""
        """The beginning of a header that is not complete."""
        self._num_left = 0
        """Bytes of the latest frame that are still to come."""

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
    """The length of a frame by the beginning of its header: 0 if more of that is needed, -1 if it is not masked."""
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
