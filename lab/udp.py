"""A UDP socket for those who speak a protocol by hand."""

import asyncio
from typing import Self

from lab.ports import HOST

Address = tuple[str, int]


class UdpEndpoint(asyncio.DatagramProtocol):
    """Open while its context lasts, at ``host`` and a port that the kernel chooses.

    With ``peer_port`` it is connected to that port of ``HOST``. That nobody listens there is not told: whoever waits for
    an answer finds out.
    """

    def __init__(self, *, host: str = HOST, peer_port: int | None = None) -> None:
        self.port = 0
        self._host = host
        self._peer = None if peer_port is None else (HOST, peer_port)
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def own(self) -> str:
        """Its address as SIP writes it."""
        return f"{self._host}:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=(self._host, 0), remote_addr=self._peer
        )
        self.port = self._transport.get_extra_info("sockname")[1]
        return self

    async def __aexit__(self, *_exception: object) -> None:
        assert self._transport is not None
        self._transport.close()

    def transmit(self, data: bytes, to: Address | None = None) -> None:
        """Send a datagram, to its peer if it has one."""
        assert self._transport is not None
        self._transport.sendto(data, to)
