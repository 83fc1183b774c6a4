"""TCP connections of clients, with or without TLS, for SIP and for MRCP: who may connect, how many, and when they are
closed.

Runs on: the event loop.
"""

import asyncio
import errno
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar, cast

from cc_tts import port_owner
from cc_tts.errors import ProcessFailed

MAX_CONNECTIONS: Final = 1000
"""The most connections of a listener (unmeasured)."""
BIND_TIMEOUT_S: Final = 3.0
"""After a handover the former process is still ending its sessions, and holds the port for up to a second (unmeasured)."""
BIND_POLL_S: Final = 0.1  # unmeasured

Address = tuple[str, int]
MayConnect = Callable[[str], bool]
T = TypeVar("T")


class TcpConnection(asyncio.Protocol, ABC):
    """A connection of a client. A client that leaves more than ``max_unread_bytes`` unread counts as stopped."""

    def __init__(self, listener: "TcpListener", *, max_unread_bytes: int) -> None:
        self._listener = listener
        self._max_unread_bytes = max_unread_bytes
        self._transport: asyncio.Transport | None = None
        self._heard_s = asyncio.get_running_loop().time()
        self.peer: Address = ("", 0)

    @abstractmethod
    def is_unused(self, now_s: float) -> bool:
        """Whether it can be closed."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("peername") or ("", 0)
        self.peer = str(found[0]), int(found[1])
        self._transport.set_write_buffer_limits(high=self._max_unread_bytes)
        if not self._listener.take(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._listener.forget(self)

    def send(self, data: bytes) -> None:
        """Send bytes; if the client has stopped reading, close the connection instead."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > self._max_unread_bytes:
            self._transport.abort()
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close it once everything was sent."""
        if self._transport is not None:
            self._transport.close()


class TcpListener:
    """Listens, and keeps the connections; ``may_connect`` decides which addresses may connect."""

    def __init__(self, may_connect: MayConnect) -> None:
        self._may_connect = may_connect
        self._connections: set[TcpConnection] = set()
        self._servers: list[asyncio.Server] = []

    async def _listen(
        self, make: Callable[[], TcpConnection], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen; returns the port. Raises ``ProcessFailed`` if it is in use."""

        async def bind() -> asyncio.Server:
            return await asyncio.get_running_loop().create_server(make, host, port, ssl=tls)

        server = await bound(bind, host, port, "tcp")
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def take(self, connection: TcpConnection) -> bool:
        if not self._may_connect(connection.peer[0]) or len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: TcpConnection) -> None:
        self._connections.discard(connection)

    def close_unused(self, now_s: float) -> None:
        for connection in [each for each in self._connections if each.is_unused(now_s)]:
            connection.close()

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.close()


async def bound(bind: Callable[[], Awaitable[T]], host: str, port: int, kind: Literal["udp", "tcp"]) -> T:
    """Return the result of ``bind``, once the former process has released the port. Raises ``ProcessFailed``."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + BIND_TIMEOUT_S
    while True:
        try:
            return await bind()
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() > until_s:
                why = port_owner.reason(kind, port, str(error))
                raise ProcessFailed(f"cannot listen on {host}:{port}/{kind}: {why}") from error
        await asyncio.sleep(BIND_POLL_S)
