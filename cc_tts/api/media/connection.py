"""One stream over one WebSocket: of text or audio, of a call or of a vendor's speech API, whoever opened it.

::

    outbox ─▸ encode ─▸ socket
    socket ─▸ receive_all ─▸ follow ─▸ InputStream

The client is pinged; one that answers nothing for :data:`PONG_TIMEOUT_S`, or whose host acknowledges nothing for
:data:`UNACKED_TIMEOUT_S`, is broken off, and one that takes nothing for
:data:`.SEND_TIMEOUT_S` is closed with 1013. A message that cannot be followed is answered by ``error`` and the stream goes
on; :data:`MAX_FAULTS` of them in a row close with 1008. The end of the outbox closes with 1000.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from socket import IPPROTO_TCP, TCP_USER_TIMEOUT
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from cc_tts import logs
from cc_tts.api.events import websocket
from cc_tts.api.events.websocket import Socket
from cc_tts.api.http.bodies import explained
from cc_tts.api.http.connections import abort
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.calls.events.outbox import Outbox
from cc_tts.errors import UNREADABLE, CcTtsError, MalformedRequest

PING_INTERVAL_S: Final = 5.0  # unmeasured
UNACKED_TIMEOUT_S: Final = 10.0  # unmeasured
"""A client's host that has acknowledged nothing for this time counts as gone: its caller would hear silence. Longer than
:data:`.SEND_TIMEOUT_S`, since the kernel also counts the time for which a client reads nothing.
"""
PONG_TIMEOUT_S: Final = 60.0  # unmeasured
"""A client that has sent nothing for this time, not even a pong, counts as gone, although its host is there."""
PING_SEND_TIMEOUT_S: Final = 5.0  # unmeasured
MAX_MESSAGES_PER_S: Final = 1000
"""The most messages of one client that are read in a second; others are read later. Unmeasured."""
MAX_FAULTS: Final = 20  # unmeasured
"""After this many faulty messages in a row the connection is closed."""

log = logs.get(__name__)

T = TypeVar("T")


class Frame(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, tag_field="type"):
    """Base of the JSON messages of our own clients."""


class StreamConnection(ABC, Generic[T]):
    """``kind`` names the connection in the log; ``fields`` are further fields of its log lines. :meth:`close` it after
    :meth:`run`.
    """

    end: tuple[WSCloseCode, bytes] = (WSCloseCode.OK, b"the call is over")
    """How the connection is closed when nothing more will be sent."""
    frames: ClassVar[Any]
    """The type of the client's JSON messages."""

    def __init__(self, outbox: Outbox[T], *, kind: str, **fields: str) -> None:
        self.outbox = outbox
        self._kind = kind
        self.fields = fields
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._num_faults = 0
        self._has_logged_fault = False

    @abstractmethod
    def follow(self, message: WSMessage) -> None:
        """Carry out a message; raises the errors in :data:`UNREADABLE`, and ``CcTtsError``."""

    @abstractmethod
    def refuse(self, error: CcTtsError) -> None:
        """Tell the client that its message could not be carried out."""

    def encode(self, item: T) -> list[str | bytes]:
        return websocket.as_json(item)

    @abstractmethod
    def close(self) -> None:
        """Detach from the call, as the client has asked for its end."""

    def event(self, what: str) -> str:
        return f"{self._kind}_stream_{what}"

    async def run(self, socket: Socket, *, abort: Callable[[], None] = lambda: None) -> None:
        """Serve until the client closes or is gone, or nothing more will be sent. ``abort`` breaks the connection.

        Raises:
            ConnectionError: the client is gone.
        """
        log.info(self.event("opened"), **self.fields)
        self._heard_s = self._loop.time()
        _limit_unacked(socket)
        try:
            await websocket.serve(
                socket,
                self.outbox,
                self._receive_all(socket),
                self._ping_all(socket),
                encode=self.encode,
                end=lambda: self.end,
                on_too_slow=lambda: log.info(self.event("client_too_slow"), **self.fields),
                abort=abort,
            )
        finally:
            self.outbox.close()
            log.info(self.event("closed"), **self.fields)

    async def _ping_all(self, socket: Socket) -> None:
        """Ping until the client has been silent for too long."""
        while self._loop.time() - self._heard_s < PONG_TIMEOUT_S:
            await asyncio.sleep(PING_INTERVAL_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_SEND_TIMEOUT_S):
                    await socket.ping()

    async def _receive_all(self, socket: Socket) -> None:
        """Carry out the client's messages until it closes, or until too many in a row are faulty. Other tasks run after each
        message.
        """
        second_began_s, num_messages = self._loop.time(), 0
        async for message in socket:
            self._heard_s = self._loop.time()
            if self._heard_s - second_began_s >= 1.0:
                second_began_s, num_messages = self._heard_s, 0
            num_messages += 1
            if num_messages > MAX_MESSAGES_PER_S:
                await asyncio.sleep(second_began_s + 1.0 - self._heard_s)
            if message.type is WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                self._take(message)
            if self._num_faults >= MAX_FAULTS:
                await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many faults")
                return
            await asyncio.sleep(0)

    def _take(self, message: WSMessage) -> None:
        try:
            self.follow(message)
        except UNREADABLE as error:
            self._fault(MalformedRequest(explained(error, self.frames).detail.removeprefix("the body: ")))
        except CcTtsError as error:
            self._fault(error)
        else:
            self._num_faults = 0

    def _fault(self, error: CcTtsError) -> None:
        self._num_faults += 1
        if not self._has_logged_fault:  # some services have no message for an error
            self._has_logged_fault = True
            log.warning(self.event("message_refused"), code=error.code, **self.fields)
        self.refuse(error)


def _limit_unacked(socket: Socket) -> None:
    """Have the kernel break the connection off if what we send is not acknowledged (``tcp(7)``)."""
    if (tcp := socket.get_extra_info("socket")) is not None:  # none if the client has gone
        tcp.setsockopt(IPPROTO_TCP, TCP_USER_TIMEOUT, round(UNACKED_TIMEOUT_S * 1000))


async def serve(
    request: web.Request, open_connection: Callable[[], StreamConnection[Any]], *, max_frame_bytes: int
) -> web.StreamResponse:
    socket = websocket.new_socket(max_frame_bytes=max_frame_bytes, autoping=False)
    if not socket.can_prepare(request):
        raise UpgradeRequired("open this path with a WebSocket handshake (RFC 6455 §4.1)")
    with contextlib.closing(open_connection()) as connection:
        try:
            await socket.prepare(request)
            request.app[websocket.OPEN_SOCKETS].add(socket)
            await connection.run(socket, abort=lambda: abort(request))
        except ConnectionError:
            log.debug(connection.event("client_gone"), **connection.fields)
        except Exception:  # the handshake is answered: there is no status left to give
            log.exception(connection.event("failed"), **connection.fields)
            abort(request)
    return socket
