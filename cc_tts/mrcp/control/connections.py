"""The MRCP connections of clients: one carries the messages of any number of channels (RFC 6787 §4.2).

A channel answers on the connection on which its last request came. When a connection is lost, its channels stay: the client
connects again, and its next request brings the events to the new connection. Runs on: the event loop.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cc_tts import logs
from cc_tts.mrcp.control.message import (
    MalformedMessage,
    MessageReader,
    RefusedMessage,
    Request,
    RequestState,
    StatusCode,
    response,
)
from cc_tts.mrcp.tcp import MayConnect, TcpConnection, TcpListener

MAX_UNREAD_BYTES: Final = 1 << 20
"""A client that leaves this much unread counts as stopped (unmeasured)."""
UNUSED_S: Final = 60.0
"""A connection without a channel is closed after this long without a message, or after a session's idle timeout if that is
longer: until the first request it is not known which connection a session uses (unmeasured).
"""
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A client that vanishes without closing is noticed after a minute (unmeasured)."""
_CHANNEL: Final = re.compile(r"([0-9A-Za-z]{1,64})@([a-z]{1,32})", re.ASCII)

log = logs.get(__name__)


class ControlConnection(TcpConnection):
    def __init__(self, control: "Control") -> None:
        super().__init__(control, max_unread_bytes=MAX_UNREAD_BYTES)
        self._control = control
        self._reader = MessageReader()
        self.channels: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in KEEPALIVE:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._control.unbind(self)

    def data_received(self, data: bytes) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        try:
            for found in self._reader.feed(data):
                self._control.receive(found, self)
        except MalformedMessage as error:
            log.info("mrcp_malformed", detail=str(error), consequence="the connection is closed")
            self.close()

    def is_unused(self, now_s: float) -> bool:
        """Whether it has no channel, and has been silent for long."""
        return not self.channels and self._heard_s < now_s - self._control.unused_s


class Control(TcpListener):
    """All connections, and the objects that carry out the requests of each channel. ``may_connect`` decides which addresses
    may connect; a session may be without a connection for ``idle_timeout_s``.
    """

    def __init__(self, may_connect: MayConnect, *, idle_timeout_s: float = 0.0) -> None:
        super().__init__(may_connect)
        self.unused_s = max(UNUSED_S, idle_timeout_s)
        self._channels: dict[str, Callable[[Request], None]] = {}
        self._connection_of: dict[str, ControlConnection] = {}

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port. Raises ``ProcessFailed``."""
        return await self._listen(lambda: ControlConnection(self), host, port, tls=tls)

    def add(self, channel_id: str, handle: Callable[[Request], None]) -> None:
        self._channels[channel_id] = handle

    def remove(self, channel_id: str) -> None:
        self._channels.pop(channel_id, None)
        if (connection := self._connection_of.pop(channel_id, None)) is not None:
            connection.channels.discard(channel_id)

    def is_connected(self, channel_id: str) -> bool:
        connection = self._connection_of.get(channel_id)
        return connection is not None and connection.is_open

    def send(self, channel_id: str, data: bytes) -> None:
        """Send a message of a channel; dropped if the channel has no connection."""
        if (connection := self._connection_of.get(channel_id)) is not None:
            connection.send(data)

    def unbind(self, connection: ControlConnection) -> None:
        for channel_id in connection.channels:
            if self._connection_of.get(channel_id) is connection:
                del self._connection_of[channel_id]
        connection.channels.clear()

    def receive(self, found: Request | RefusedMessage, connection: ControlConnection) -> None:
        if isinstance(found, RefusedMessage):
            self._refuse(found.request_id, found.status, found.channel_id, connection)
            return
        channel_id = found.channel_id.strip()
        if not channel_id:
            self._refuse(found.request_id, StatusCode.MISSING_HEADER, "", connection)
            return
        handle = self._channels.get(channel_id)
        if handle is None:
            self._refuse(found.request_id, StatusCode.NO_CHANNEL, channel_id, connection)
            return
        self._bind(channel_id, connection)
        try:
            handle(found)
        except Exception:
            log.exception("mrcp_request_failed", method=found.method)
            self._refuse(found.request_id, StatusCode.INTERNAL, channel_id, connection)

    def _bind(self, channel_id: str, connection: ControlConnection) -> None:
        before = self._connection_of.get(channel_id)
        if before is not connection:
            if before is not None:
                before.channels.discard(channel_id)
            self._connection_of[channel_id] = connection
            connection.channels.add(channel_id)

    def _refuse(
        self, request_id: int | None, status: StatusCode, channel_id: str, connection: ControlConnection
    ) -> None:
        if request_id is None:
            return
        headers = [("Channel-Identifier", channel_id)] if _CHANNEL.fullmatch(channel_id) else []
        connection.send(response(request_id, status, RequestState.COMPLETE, headers))
