"""Events over a WebSocket, one JSON text frame each.

A reader that is too slow is closed with 1013: when its queue (``http.event_queue_size``) is full, or when it takes
nothing for :data:`SEND_TIMEOUT_S` although events wait. What clients send is thrown away; more than
:data:`MAX_FRAMES_IN` in :data:`FRAMES_IN_WINDOW_S` closes with 1008.
"""

import asyncio
import struct
import weakref
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from cc_tts.calls.events.outbox import Outbox
from cc_tts.processes.tasks import first_of

HEARTBEAT_S: Final = 20.0  # unmeasured
"""A ping is sent this often; a client that does not answer within half of it is disconnected."""
SEND_TIMEOUT_S: Final = 5.0  # unmeasured
CLOSE_TIMEOUT_S: Final = 2.0  # unmeasured
"""How long the client may take to answer our close."""
MAX_FRAME_IN_BYTES: Final = 4096  # unmeasured
MAX_FRAMES_IN: Final = 100  # unmeasured
FRAMES_IN_WINDOW_S: Final = 10.0  # unmeasured
WRITE_BUFFER_BYTES: Final = 65_536

_DISPLACED: Final = (WSCloseCode.TRY_AGAIN_LATER, b"others have fewer readers, and there is no room for more")

_RECEIVING, _SENDING = 0, 1
"""The places of the tasks of :func:`serve` in its result."""

T = TypeVar("T")

OPEN_SOCKETS: Final[web.AppKey["weakref.WeakSet[web.WebSocketResponse]"]] = web.AppKey("open_sockets", weakref.WeakSet)


Socket = web.WebSocketResponse | aiohttp.ClientWebSocketResponse
"""A WebSocket that a client has opened, or the server."""


def why_closed(code: int, message: bytes, max_frame_bytes: int) -> bytes:
    """Return the reason of a close. aiohttp gives none for a message that is too long."""
    is_too_long = not message and code == WSCloseCode.MESSAGE_TOO_BIG
    return b"a message may have %d bytes at most" % max_frame_bytes if is_too_long else message


class _ServerSocket(web.WebSocketResponse):
    def __init__(self, *, max_msg_size: int, **options: Any) -> None:
        super().__init__(max_msg_size=max_msg_size, **options)
        self._max_frame_bytes = max_msg_size
        self._asked: web.BaseRequest | None = None

    async def prepare(self, request: web.BaseRequest) -> Any:
        self._asked = request
        return await super().prepare(request)

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        why = why_closed(code, message, self._max_frame_bytes)
        if why != message and not self.closed:
            await self._await_reader(struct.pack("!H", code) + why)
        return await super().close(code=code, message=why, drain=drain)

    async def _await_reader(self, close: bytes) -> None:
        """Tell a client that is still sending that it is closed, and wait until it has read that. The kernel resets a
        connection that is closed with unread data, and the client then loses the close with its reason.
        """
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.send_frame(close, WSMsgType.CLOSE)
                while self._asked is not None and self._asked.transport is not None:  # noqa: ASYNC110 - aiohttp tells nobody
                    await asyncio.sleep(0.02)
        if self._asked is not None and self._asked.transport is not None:
            self._asked.transport.close()


def new_socket(*, max_frame_bytes: int, **options: Any) -> web.WebSocketResponse:
    """Return a WebSocket whose handshake has not been answered. ``options`` are those of ``web.WebSocketResponse``."""
    return _ServerSocket(
        timeout=CLOSE_TIMEOUT_S,
        max_msg_size=max_frame_bytes,
        compress=False,
        writer_limit=WRITE_BUFFER_BYTES,
        **options,
    )


def as_json(item: object) -> list[str | bytes]:
    return [msgspec.json.encode(item).decode()]


async def serve(
    socket: Socket,
    outbox: Outbox[T],
    receiving: Coroutine[Any, Any, None],
    *watching: Coroutine[Any, Any, None],
    encode: Callable[[T], Iterable[str | bytes]] = as_json,
    end: Callable[[], tuple[WSCloseCode, bytes]],
    on_too_slow: Callable[[], None],
    abort: Callable[[], None],
) -> None:
    """Send what is in ``outbox`` until it ends, and close as ``end`` says; or until ``receiving`` ends, since the client
    has closed. A client that does not read, or for which ``watching`` ends, is closed with 1013 and broken off by ``abort``.

    Raises:
        ConnectionError: the client is gone.
    """
    first = await first_of(receiving, _send_all(socket, outbox, encode), *watching)
    if first == _RECEIVING:
        return
    if first == _SENDING and not outbox.overflowed:
        await _close(socket, *(_DISPLACED if outbox.displaced else end()))
        return
    on_too_slow()
    await _close(socket, WSCloseCode.TRY_AGAIN_LATER, b"too slow")
    abort()


async def _close(socket: Socket, code: WSCloseCode, message: bytes) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await socket.close(code=code, message=message)


async def _send_all(socket: Socket, outbox: Outbox[T], encode: Callable[[T], Iterable[str | bytes]]) -> None:
    """Send until the end, or until the reader is too slow and the outbox overflows."""
    async for item in outbox:
        if outbox.overflowed:
            return
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for message in encode(item):
                    if isinstance(message, str):
                        await socket.send_frame(message.encode(), WSMsgType.TEXT)
                    else:
                        await socket.send_frame(message, WSMsgType.BINARY)
        except TimeoutError:
            outbox.overflowed = True
            return


async def receive_nothing(socket: web.WebSocketResponse) -> None:
    """Answer pings and closes, and discard everything else, up to a limit."""
    loop = asyncio.get_running_loop()
    window_start_s, num_frames = loop.time(), 0
    async for message in socket:
        now_s = loop.time()
        if now_s - window_start_s > FRAMES_IN_WINDOW_S:
            window_start_s, num_frames = now_s, 0
        num_frames += 1
        if num_frames > MAX_FRAMES_IN:
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many frames", drain=False)
            return
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
