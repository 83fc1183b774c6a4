"""The transports of SIP: UDP, TCP and TLS. A flow is the path on which a message came, and on which messages go back.

Runs on: the event loop.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

from cc_tts.egress.own_address import own_address_towards
from cc_tts.mrcp.tcp import Address, MayConnect, TcpConnection, TcpListener, bound
from cc_tts.ua.sip.message import header_value

MAX_MESSAGE_BYTES: Final = 65_535
"""The kernel has no longer datagrams."""
RECEIVE_BUFFER_BYTES: Final = 1 << 20
"""A burst of INVITEs waits in this buffer; the kernel may grant less."""
IDLE_S: Final = 300.0
"""A connection without a session is closed after this long without a message (unmeasured)."""
FIRST_MESSAGE_S: Final = 30.0
"""A new connection is closed if no message arrives within this time (unmeasured)."""
_HEAD_ENDS: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(r"\d{1,6}", re.ASCII)


class UdpFlow:
    """The path on which a datagram came."""

    transport = "UDP"
    """The transport as Via names it."""
    is_reliable = False
    """Whether messages arrive for certain, so that none is sent again."""

    def __init__(self, socket_: asyncio.DatagramTransport, peer: Address, host: str) -> None:
        self._transport = socket_
        self._host = host
        self.peer = peer

    @property
    def local_host(self) -> str:
        """Our address on this path."""
        if self._host != "0.0.0.0":
            return self._host
        with suppress(OSError):
            return own_address_towards(self.peer[0])
        return "127.0.0.1"

    def send(self, data: bytes, to: Address | None = None) -> None:
        """Send a datagram, which may be lost, to the peer or another address."""
        with suppress(OSError, ValueError):
            self._transport.sendto(data, to or self.peer)


class StreamFlow(TcpConnection):
    """A connection that a peer has opened."""

    is_reliable = True

    def __init__(self, listener: "SipListener", transport: str) -> None:
        super().__init__(listener, max_unread_bytes=MAX_MESSAGE_BYTES)
        self._receive = listener.receive
        self._buffer = bytearray()
        self.has_brought = False
        self.transport = transport
        self.num_sessions = 0
        """The number of sessions that keep it open."""

    @property
    def local_host(self) -> str:
        found = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(found[0]) if found else "127.0.0.1"

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            while (message := self._next()) is not None:
                self._heard_s = asyncio.get_running_loop().time()
                self.has_brought = True
                self._receive(message, self)
        except ValueError:
            self.close()

    def _next(self) -> str | None:
        """Return the next complete message. Raises ``ValueError`` if it is too long, or its length is unknown."""
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
        """Send a message to the peer, the only address of the connection."""
        del to
        super().send(data)

    def is_unused(self, now_s: float) -> bool:
        return not self.num_sessions and now_s - self._heard_s > (IDLE_S if self.has_brought else FIRST_MESSAGE_S)


Flow = UdpFlow | StreamFlow
"""The path to a peer, on which a message came and on which messages go back."""
Receive = Callable[[str, Flow], None]


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


class SipListener(TcpListener):
    """Listens and hands messages on; ``may_connect`` decides which addresses may connect."""

    def __init__(self, receive: Receive, may_connect: MayConnect) -> None:
        super().__init__(may_connect)
        self.receive = receive
        self._udp: asyncio.DatagramTransport | None = None

    async def listen_udp(self, host: str, port: int) -> int:
        """Listen for datagrams; returns the port. Raises ``ProcessFailed``."""
        loop = asyncio.get_running_loop()

        async def bind() -> asyncio.DatagramTransport:
            make = partial(_Datagrams, self.receive, self._may_connect, host)
            return (await loop.create_datagram_endpoint(make, (host, port)))[0]

        self._udp = await bound(bind, host, port, "udp")
        self._udp.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return int(self._udp.get_extra_info("sockname")[1])

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen for connections; returns the port. Raises ``ProcessFailed``."""
        name = "TLS" if tls is not None else "TCP"
        return await self._listen(lambda: StreamFlow(self, name), host, port, tls=tls)

    def close(self) -> None:
        super().close()
        if self._udp is not None:
            self._udp.close()
