"""RTP by hand: an address that says what a test wants and takes down what it hears."""

import asyncio
import contextlib
import random
import selectors
import struct
from collections.abc import Callable, Sequence
from typing import Final, Self

from cc_tts.softphone.rtp.packets import (
    EVENT_PAYLOAD_TYPE,
    SAMPLES_PER_PACKET,
    RtpPacket,
    TelephoneEvent,
    event_code,
    is_rtcp,
)
from lab.ports import HOST, free_ports
from lab.waiting import PATIENCE_S

PACKET_MS: Final = 20
SPEECH: Final = bytes([0x2A, 0xAA] * (SAMPLES_PER_PACKET // 2))
"""A loud square wave, PCMU."""
_RECEIVER_REPORT: Final = struct.pack("!BBHI", 0x80, 201, 1, 4711)

Address = tuple[str, int]


class RtpPeer:
    """A pair of sockets, RTP and RTCP, at ``host``. Use it as a context manager."""

    def __init__(self, host: str = HOST, *, first_sequence: int | None = None) -> None:
        self.host = host
        self.port = 0
        self.heard: list[RtpPacket] = []
        self.num_rtcp_heard = 0
        self.last_rtcp = b""
        self._ssrc = random.getrandbits(32)
        self._sequence = random.getrandbits(16) if first_sequence is None else first_sequence - 1
        self._timestamp = random.randrange(1 << 20)
        self._transports: list[asyncio.DatagramTransport] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self.port = free_ports(2)
        for port, deaf in ((self.port, False), (self.port + 1, True)):
            transport, _ = await loop.create_datagram_endpoint(
                lambda deaf=deaf: _Ear(self, is_rtcp=deaf),  # type: ignore[misc]
                local_addr=(self.host, port),
            )
            self._transports.append(transport)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for transport in self._transports:
            transport.close()

    def take(self, data: bytes, *, rtcp: bool) -> None:
        if rtcp or is_rtcp(data):
            self.num_rtcp_heard += 1
            self.last_rtcp = data
        else:
            self.heard.append(RtpPacket.from_bytes(data))
        self._changed.set()

    async def num_heard(self) -> int:
        """Packets that have come; none waits in the socket. The event loop reads one of each socket at a time, so that one
        socket may be behind another.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._transports[0].get_extra_info("socket"), selectors.EVENT_READ)
            while selector.select(0):  # noqa: ASYNC110 - nothing reports an empty socket
                await asyncio.sleep(0)
        return len(self.heard)

    def report(self, to: Address, more: bytes = b"") -> None:
        """Send an empty receiver report (RFC 3550 §6.4.2) and ``more`` from the RTCP port to the one above ``to``."""
        self._transports[1].sendto(_RECEIVER_REPORT + more, (to[0], to[1] + 1))

    async def say(self, to: Address, num_packets: int, payload: bytes = SPEECH) -> None:
        """Send PCMU, a packet each ``PACKET_MS``."""
        await self.send(to, [RtpPacket(0, 0, SAMPLES_PER_PACKET * each, 0, payload) for each in range(num_packets)])

    async def say_on(self, to: Address) -> None:
        while True:
            await self.say(to, 1)

    async def press(self, to: Address, digit: str) -> None:
        """Send a key for 100 ms, its last packet three times (RFC 4733 §2.5.1)."""
        durations = [SAMPLES_PER_PACKET * each for each in (1, 2, 3, 4, 5, 5, 5)]
        key = [TelephoneEvent(event_code(digit), at >= 4, each).to_bytes() for at, each in enumerate(durations)]
        await self.send(to, [RtpPacket(EVENT_PAYLOAD_TYPE, 0, 0, 0, each, not at) for at, each in enumerate(key)])

    async def send(self, to: Address, packets: Sequence[RtpPacket], *, spend: bool = True) -> None:
        """Send packets ``PACKET_MS`` apart. Their sequence numbers and SSRC are set here; timestamps count from now on, and
        from the same instant the next time unless the time is to ``spend``.
        """
        for packet in packets:
            self._send_numbered(to, packet)
            await asyncio.sleep(PACKET_MS / 1000)
        if spend:
            self._timestamp += SAMPLES_PER_PACKET * len(packets)

    def next_packet(self, to: Address, payload: bytes, payload_type: int) -> None:
        """Send one packet at once, 20 ms after the one before by its timestamp."""
        self._send_numbered(to, RtpPacket(payload_type, 0, 0, 0, payload))
        self._timestamp += SAMPLES_PER_PACKET

    def _send_numbered(self, to: Address, packet: RtpPacket) -> None:
        self._sequence = (self._sequence + 1) % 65_536
        numbered = RtpPacket(
            packet.payload_type,
            self._sequence,
            self._timestamp + packet.timestamp,
            self._ssrc,
            packet.payload,
            packet.marker,
        )
        self._transports[0].sendto(self.on_the_wire(numbered), to)

    def on_the_wire(self, packet: RtpPacket) -> bytes:
        return packet.to_bytes()

    async def hears(self, num_packets: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until so many more packets have come."""
        wanted = len(self.heard) + num_packets
        await self._until(lambda: len(self.heard) >= wanted, timeout_s, f"{num_packets} packets of RTP")

    async def hears_type(self, payload_type: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a packet of this payload type has come."""
        await self._until(
            lambda: any(packet.payload_type == payload_type for packet in self.heard), timeout_s, f"type {payload_type}"
        )

    async def hears_rtcp(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait until RTCP has come."""
        await self._until(lambda: self.num_rtcp_heard > 0, timeout_s, "RTCP")

    async def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        assert condition(), f"{self.host}:{self.port} was sent no {what}; it has heard {len(self.heard)} packets"


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, peer: RtpPeer, *, is_rtcp: bool) -> None:
        self._peer = peer
        self._is_rtcp = is_rtcp

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._peer.take(data, rtcp=self._is_rtcp)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there (any more)."""


def missing(packets: Sequence[RtpPacket]) -> int:
    """How many packets lie between the first and the last of these without being among them."""
    if not packets:
        return 0
    numbers = {(packet.sequence - packets[0].sequence) % 65_536 for packet in packets}
    return max(numbers) + 1 - len(numbers)
