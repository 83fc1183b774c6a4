"""Messages of MRCPv2 (RFC 6787 §5): cut out of a stream of bytes, read and written.

::

    MRCP/2.0 <length> SPEAK <request-id>              request
    MRCP/2.0 <length> <request-id> <status> <state>   response
    MRCP/2.0 <length> <event> <request-id> <state>    event

The length is that of the whole message, the digits of the length among it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

MAX_MESSAGE_BYTES: Final = 131_072  # unmeasured
"""Twice the size of the largest SSML document that is accepted, so that it fits in any encoding."""
MAX_START_LINE_BYTES: Final = 256  # unmeasured
MAX_HEADERS: Final = 100  # unmeasured
MAX_VALUE_CHARS: Final = 4096  # unmeasured
MAJOR_VERSION: Final = 2
VERSION: Final = f"MRCP/{MAJOR_VERSION}.0"
_PREFIX: Final = re.compile(rb"MRCP/(\d{1,3})\.(\d{1,3}) {1,8}(\d{1,19}) ")
_REQUEST: Final = re.compile(r"([A-Za-z0-9_.!*'%+-]{1,64}) +(\d{1,10})")
"""A method and a request-id (RFC 6787 §5.1, §5.2)."""
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")


class StatusCode(IntEnum):
    """The status codes (RFC 6787 §5.4)."""

    SUCCESS = 200
    NOT_ALLOWED = 401
    WRONG_STATE = 402
    UNSUPPORTED_HEADER = 403
    ILLEGAL_VALUE = 404
    NO_CHANNEL = 405
    MISSING_HEADER = 406
    FAILED = 407
    UNSUPPORTED_ENTITY = 408
    UNSUPPORTED_VALUE = 409
    INTERNAL = 501
    UNSUPPORTED_VERSION = 502
    TOO_LARGE = 504


class RequestState(StrEnum):
    """The progress of a request (RFC 6787 §5.3)."""

    COMPLETE = "COMPLETE"
    IN_PROGRESS = "IN-PROGRESS"
    PENDING = "PENDING"


Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client. If a header is repeated, the first one counts."""

    method: str
    request_id: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str | None:
        """Return the value of a header; ``None`` without it."""
        return next((value for each, value in self.headers if each.lower() == name.lower()), None)

    @property
    def media_type(self) -> str:
        """The type of the body, without parameters; empty if the client names none."""
        return (self.header("Content-Type") or "").partition(";")[0].strip().lower()

    @property
    def channel_id(self) -> str:
        return self.header("Channel-Identifier") or ""


class MalformedMessage(Exception):
    """The bytes are not a message, so the start of the next one is unknown."""


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A complete message that is not a valid request. ``request_id`` is ``None`` if it is unknown; then there
    is no answer.
    """

    status: StatusCode
    request_id: int | None = None
    channel_id: str = ""


class MessageReader:
    """Cuts a stream into messages. It holds at most one message, of limited size."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._to_skip = 0

    def feed(self, data: bytes) -> Iterable[Request | RefusedMessage]:
        """Add bytes; yields the messages that they complete. Raises ``Malformed`` at bytes that are not a message; the
        messages before them are valid.
        """
        self._buffer += data
        while self._skip() and self._buffer:
            found = self._next()
            if found is None:
                return
            yield found

    def _skip(self) -> bool:
        """Skip the rest of a message that is too large; return whether all of it is skipped."""
        num = min(self._to_skip, len(self._buffer))
        del self._buffer[:num]
        self._to_skip -= num
        return not self._to_skip

    def _next(self) -> Request | RefusedMessage | None:
        match = _PREFIX.match(self._buffer)
        if match is None:
            if len(self._buffer) >= MAX_START_LINE_BYTES or b"\n" in self._buffer or not _may_begin(self._buffer):
                raise MalformedMessage("no start line of MRCPv2")
            return None
        is_version_2 = int(match[1]) == MAJOR_VERSION  # read before the buffer changes, which the match is of
        length = int(match[3])
        if length <= match.end():
            raise MalformedMessage("the length is less than that of the start line")
        end_of_line = self._buffer.find(b"\r\n", 0, MAX_START_LINE_BYTES)
        if end_of_line < 0:
            if len(self._buffer) >= MAX_START_LINE_BYTES:
                raise MalformedMessage("the start line does not end")
            return None
        if end_of_line + 2 > length:
            raise MalformedMessage("the length ends within the start line")
        start = self._buffer[match.end() : end_of_line].decode("ascii", "replace")
        if length > MAX_MESSAGE_BYTES:
            self._to_skip = length
            return RefusedMessage(StatusCode.TOO_LARGE, _request_id(start))
        if len(self._buffer) < length:
            return None
        rest = bytes(self._buffer[end_of_line + 2 : length])
        del self._buffer[:length]
        return _read(start, rest, is_version_2=is_version_2)


def _may_begin(data: bytearray) -> bool:
    """Return whether these bytes could still become a start line."""
    return re.fullmatch(rb"M|MR|MRC|MRCP|MRCP/[\d.]{0,7}(?: {1,8}\d{0,19})?", data) is not None


def _request_id(rest: str) -> int | None:
    match = _REQUEST.fullmatch(rest.strip())
    return int(match[2]) if match is not None else None


def _read(start: str, rest: bytes, *, is_version_2: bool) -> Request | RefusedMessage:
    match = _REQUEST.fullmatch(start.strip())
    if match is None:
        return RefusedMessage(StatusCode.NOT_ALLOWED)
    request_id = int(match[2])
    if not is_version_2:
        return RefusedMessage(StatusCode.UNSUPPORTED_VERSION, request_id)
    head, separator, body = rest.partition(b"\r\n\r\n")
    if not separator and rest.startswith(b"\r\n"):
        head, body = b"", rest[2:]
    lines = _lines(head)
    request = Request(match[1].upper(), request_id, _fields(lines[: MAX_HEADERS + 1]), body)
    length = request.header("Content-Length")
    is_whole = not length or (length.isascii() and length.isdigit() and int(length[:10]) == len(body))
    if not (_are_sound(lines, request.headers) and is_whole):
        return RefusedMessage(StatusCode.ILLEGAL_VALUE, request_id, request.channel_id)
    return request


def _lines(head: bytes) -> list[str]:
    """Return the lines of a header, with folded ones joined (RFC 6787 §5.1 refers to RFC 5322)."""
    lines: list[str] = []
    for line in head.decode("utf-8", "replace").split("\r\n"):
        if line[:1] in (" ", "\t") and lines:
            lines[-1] += " " + line.strip()
        elif line:
            lines.append(line)
    return lines


def _are_sound(lines: Sequence[str], headers: Sequence[Header]) -> bool:
    """Return whether every line is a header, and there are neither too many nor too long ones."""
    is_bounded = len(lines) <= MAX_HEADERS and all(len(value) <= MAX_VALUE_CHARS for _, value in headers)
    return len(headers) == len(lines) and is_bounded


def _fields(lines: Iterable[str]) -> tuple[Header, ...]:
    fields = (line.partition(":") for line in lines)
    return tuple(
        (name.strip(), value.strip()) for name, colon, value in fields if colon and _NAME.fullmatch(name.strip())
    )


def response(
    request_id: int, status: StatusCode, state: RequestState, headers: Iterable[Header], body: bytes = b""
) -> bytes:
    return _written(f"{request_id} {status.value:03d} {state}", headers, body)


def event(name: str, request_id: int, state: RequestState, headers: Iterable[Header], body: bytes = b"") -> bytes:
    return _written(f"{name} {request_id} {state}", headers, body)


def request(method: str, request_id: int, headers: Iterable[Header], body: bytes = b"") -> bytes:
    return _written(f"{method} {request_id}", headers, body)


def _written(start: str, headers: Iterable[Header], body: bytes) -> bytes:
    lines = [f"{name}: {_one_line(value)}" for name, value in headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    rest = "".join(f"{line}\r\n" for line in (f" {start}", *lines, "")).encode() + body
    without_length = len(VERSION) + 1 + len(rest)
    length = without_length + len(str(without_length))
    if without_length + len(str(length)) > length:
        length += 1  # its own digits made it one digit longer
    return f"{VERSION} {length}".encode() + rest


def _one_line(value: str) -> str:
    return " ".join(value.split())
