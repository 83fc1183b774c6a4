"""The ways on which SIP comes in: UDP, TCP and TLS. A flow is how a message came, and how one goes back.

Runs on: the event loop.
"""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeVar, cast

from cc_tts import logs, port_owner
from cc_tts.errors import ProcessFailed
from cc_tts.ua.sip.message import header_value

MAX_MESSAGE_BYTES: Final = 65_535
"""The datagrams of the kernel have no more."""
MAX_CONNECTIONS: Final = 1000  # unmeasured
RECEIVE_BUFFER_BYTES: Final = 1 << 20
"""A burst of INVITEs waits here; the kernel may give less."""
IDLE_S: Final = 300.0
"""A connection without a message for so long is closed, unless a session has it (unmeasured)."""
FIRST_MESSAGE_S: Final = 30.0
"""A connection that has brought no message so long after it was opened is closed (unmeasured)."""
BIND_TIMEOUT_S: Final = 3.0
"""A process whose server has handed over still ends its sessions, and has the port for a second (unmeasured)."""
BIND_POLL_S: Final = 0.1  # unmeasured
_HEAD_ENDS: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(r"\d{1,6}", re.ASCII)

log = logs.get(__name__)

Address = tuple[str, int]
T = TypeVar("T")


class Flow(Protocol):
    """A way to a peer."""

    transport: str
    """UDP, TCP or TLS, as Via has it."""
    peer: Address

    @property
    def local_host(self) -> str:
        """Our address on it."""

    @property
    def is_reliable(self) -> bool:
        """Whether what is sent arrives, so that nothing is sent again."""

    def send(self, data: bytes, to: Address | None = None) -> None:
        """Send a message to the peer; a datagram goes to another address if one is named."""


Receive = Callable[[str, Flow], None]
MayConnect = Callable[[str], bool]


def local_host_towards(host: str) -> str:
    """The address of this machine that a peer sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, suppress(OSError):
        sock.connect((host, 9))
        return str(sock.getsockname()[0])
    return "127.0.0.1"


class UdpFlow:
    """The way on which a datagram came."""

    transport = "UDP"
    is_reliable = False

    def __init__(self, socket_: asyncio.DatagramTransport, peer: Address, host: str) -> None:
        self._transport = socket_
        self._host = host
        self.peer = peer

    @property
    def local_host(self) -> str:
        """Our address on it."""
        return self._host if self._host != "0.0.0.0" else local_host_towards(self.peer[0])

    def send(self, data: bytes, to: Address | None = None) -> None:
        """Send it; it may be lost."""
        with suppress(OSError, ValueError):
            self._transport.sendto(data, to or self.peer)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, receive: Receive, may_connect: MayConnect, host: str) -> None:
        self._receive = receive
        self._may_connect = may_connect
        self._host = host
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        assert self._transport is not None
        peer = str(addr[0]), addr[1]
        if data.strip() and peer[1] and self._may_connect(peer[0]):
            self._receive(data.decode("utf-8", "surrogateescape"), UdpFlow(self._transport, peer, self._host))


class StreamFlow(asyncio.Protocol):
    """A connection that a peer has opened."""

    is_reliable = True

    def __init__(self, listener: "SipListener", transport: str) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._heard_s = asyncio.get_running_loop().time()
        self.has_brought = False
        self.transport = transport
        self.peer: Address = ("", 0)
        self.num_sessions = 0
        """Sessions that it belongs to keep it open."""

    @property
    def local_host(self) -> str:
        """Our address on it."""
        found = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(found[0]) if found else "127.0.0.1"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("peername") or ("", 0)
        self.peer = str(found[0]), int(found[1])
        self._transport.set_write_buffer_limits(high=MAX_MESSAGE_BYTES)
        if not self._listener.take(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        self._listener.forget(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while (message := self._next()) is not None:
                self._heard_s = asyncio.get_running_loop().time()
                self.has_brought = True
                self._listener.receive(message, self)
        except ValueError:
            self.close()

    def _next(self) -> str | None:
        """The next message that is there as a whole. Raises ``ValueError`` if it is too long or has no end."""
        while self._buffer[:2] == b"\r\n":  # a keep-alive (RFC 5626 §3.5.1)
            if self._buffer[:4] == _HEAD_ENDS:
                self.send(b"\r\n")
            del self._buffer[:2]
        end = self._buffer.find(_HEAD_ENDS)
        if end < 0:
            if len(self._buffer) > MAX_MESSAGE_BYTES:
                raise ValueError
            return None
        head = self._buffer[: end + len(_HEAD_ENDS)].decode("utf-8", "surrogateescape")
        written = header_value(head, "content-length")
        if not _LENGTH.fullmatch(written):  # RFC 3261 §18.3: a message on a stream has one
            raise ValueError
        length = end + len(_HEAD_ENDS) + int(written)
        if length > MAX_MESSAGE_BYTES:
            raise ValueError
        if len(self._buffer) < length:
            return None
        message = self._buffer[:length].decode("utf-8", "surrogateescape")
        del self._buffer[:length]
        return message

    def send(self, data: bytes, to: Address | None = None) -> None:
        """Send it, unless the peer has stopped reading: then the connection is closed."""
        del to
        if self._transport is None or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > MAX_MESSAGE_BYTES:
            self._transport.abort()
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._transport is not None:
            self._transport.close()

    def is_idle(self, now_s: float) -> bool:
        """Whether nobody needs it."""
        return not self.num_sessions and now_s - self._heard_s > (IDLE_S if self.has_brought else FIRST_MESSAGE_S)


class SipListener:
    """Listens, and hands on what comes; ``may_connect`` says from which addresses."""

    def __init__(self, receive: Receive, may_connect: MayConnect) -> None:
        self.receive = receive
        self._may_connect = may_connect
        self._flows: set[StreamFlow] = set()
        self._servers: list[asyncio.Server] = []
        self._udp: asyncio.DatagramTransport | None = None

    async def listen_udp(self, host: str, port: int) -> int:
        """Listen for datagrams; returns the port. Raises ``ProcessFailed``."""
        loop = asyncio.get_running_loop()

        async def bind() -> asyncio.DatagramTransport:
            make = partial(_Datagrams, self.receive, self._may_connect, host)
            return (await loop.create_datagram_endpoint(make, (host, port)))[0]

        self._udp = await _bound(bind, host, port, "udp")
        self._udp.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return int(self._udp.get_extra_info("sockname")[1])

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen for connections; returns the port. Raises ``ProcessFailed``."""
        name = "TLS" if tls is not None else "TCP"
        server = await listen_tcp(lambda: StreamFlow(self, name), host, port, tls=tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def take(self, flow: StreamFlow) -> bool:
        """Whether a connection may stay."""
        if not self._may_connect(flow.peer[0]) or len(self._flows) >= MAX_CONNECTIONS:
            return False
        self._flows.add(flow)
        return True

    def forget(self, flow: StreamFlow) -> None:
        """A connection is closed."""
        self._flows.discard(flow)

    def close_idle(self, now_s: float) -> None:
        """Close the connections that nobody needs."""
        for flow in [each for each in self._flows if each.is_idle(now_s)]:
            flow.close()

    def close(self) -> None:
        """Listen no more, and close what is open."""
        for server in self._servers:
            server.close()
        if self._udp is not None:
            self._udp.close()
        for flow in tuple(self._flows):
            flow.close()


async def listen_tcp(
    make: Callable[[], asyncio.Protocol], host: str, port: int, *, tls: ssl.SSLContext | None
) -> asyncio.Server:
    """Listen for connections. Raises ``ProcessFailed`` if the port is taken."""
    return await _bound(lambda: asyncio.get_running_loop().create_server(make, host, port, ssl=tls), host, port, "tcp")


async def _bound(bind: Callable[[], Awaitable[T]], host: str, port: int, kind: Literal["udp", "tcp"]) -> T:
    """Return what ``bind`` does, once the process before this one has left the port."""
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
