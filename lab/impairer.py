"""A bad network on the loopback interface: SIP over UDP, RTP and RTCP lose, delay, disorder and repeat packets.

    phone ◂── front ── Network ── back ──▸ server        one pair of sockets for SIP, two for each call's media

One phone calls :attr:`Network.sip_port` as if that were the server. Ports in Contact and SDP are replaced on the way, so
that everything else of the dialog and all media come through here as well.
"""

import asyncio
import contextlib
import itertools
import random
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

from cc_tts.clock import NS_PER_S
from cc_tts.softphone.rtp.packets import RtpPacket, is_rtcp
from lab.ports import HOST, free_ports

MAX_DATAGRAM_BYTES: Final = 65_535
SO_TIMESTAMPNS: Final = 35
"""asm-generic/socket.h; Python does not name it."""
_TIMESPEC: Final = struct.Struct("@ll")

Address = tuple[str, int]
Rewrite = Callable[[bytes], bytes]

_CONTACT: Final = re.compile(rf"^(Contact\s*:.*?{re.escape(HOST)}:)\d+".encode(), re.MULTILINE | re.IGNORECASE)
_MEDIA: Final = re.compile(rb"^(m=audio )(\d+)", re.MULTILINE)
_RTCP: Final = re.compile(rb"^(a=rtcp:)\d+", re.MULTILINE)
_LENGTH: Final = re.compile(rb"^(Content-Length\s*:\s*)\d+", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Impairment:
    """What happens to a packet, each on its own: probabilities from 0 to 1, delays in ms."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    """How many are held back by ``reordering_ms``, so that later ones overtake them."""
    reordering_ms: float = 50.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Up to so much more delay, evenly spread."""

    def delays_ms(self, dice: random.Random) -> list[float]:
        """After how long the copies of a packet arrive; none if it is lost."""
        if dice.random() < self.loss:
            return []
        delays = []
        for _ in range(2 if dice.random() < self.duplication else 1):
            late = self.reordering_ms if dice.random() < self.reordering else 0.0
            delays.append(self.delay_ms + late + dice.random() * self.jitter_ms)
        return delays


@dataclass(slots=True)
class Sent:
    """What the server has sent on one stream of RTP, before anything happened to it: in the order of the wire."""

    packets: list[RtpPacket] = field(default_factory=list)
    at_ns: list[int] = field(default_factory=list)
    """When the kernel got each, ns; good for differences only."""

    def take(self, data: bytes, at_ns: int) -> None:
        self.at_ns.append(at_ns)
        self.packets.append(RtpPacket.from_bytes(data))

    @property
    def holes(self) -> int:
        """Numbers that were left out or came twice (RFC 3550 §5.1)."""
        return sum((b.sequence - a.sequence) % 65_536 != 1 for a, b in self._pairs())

    def steps(self) -> Counter[int]:
        """How far the timestamp went on, in RTP clock ticks, from packet to packet."""
        return Counter((b.timestamp - a.timestamp) % (1 << 32) for a, b in self._pairs())

    def _pairs(self) -> Iterator[tuple[RtpPacket, RtpPacket]]:
        return itertools.pairwise(self.packets)


class Network:
    """The way to a server. Use it as a context manager."""

    def __init__(self, server_port: int, impairment: Impairment, *, seed: int = 1) -> None:
        self.counts: Counter[str] = Counter()
        """Packets by what became of them: ``sent``, ``lost``, ``doubled``, ``late``."""
        self.sent: list[Sent] = []
        """RTP of the server, by call."""
        self._server_port = server_port
        self._impairment = impairment
        self._dice = random.Random(seed)
        self._sip: _Link | None = None
        self._media: dict[tuple[str, int], int] = {}
        self._links: list[_Link] = []
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def sip_port(self) -> int:
        assert self._sip is not None
        return self._sip.front_port

    async def __aenter__(self) -> Self:
        self._sip = _Link(self, far=(HOST, self._server_port), to_server=self._to_server, to_phone=self._to_phone)
        await self._sip.open()
        self._links.append(self._sip)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await asyncio.gather(*self._opening)
        for link in self._links:
            link.close()

    def impair(self, deliver: Callable[[], None]) -> None:
        """Let a packet meet its fate."""
        self.counts["sent"] += 1
        delays_ms = self._impairment.delays_ms(self._dice)
        self.counts["lost"] += not delays_ms
        self.counts["doubled"] += len(delays_ms) > 1
        for delay_ms in delays_ms:
            self.counts["late"] += delay_ms >= self._impairment.reordering_ms
            asyncio.get_running_loop().call_later(delay_ms / 1000, deliver)

    def _to_server(self, message: bytes) -> bytes:
        """A message of the phone: its media is told to the server as ours."""
        assert self._sip is not None
        return self._rewritten(message, self._sip.back_port, side="phone")

    def _to_phone(self, message: bytes) -> bytes:
        return self._rewritten(message, self.sip_port, side="server")

    def _rewritten(self, message: bytes, contact_port: int, *, side: str) -> bytes:
        head, separator, body = message.partition(b"\r\n\r\n")
        head = _CONTACT.sub(rb"\g<1>%d" % contact_port, head)
        media = _MEDIA.search(body)
        if media is not None and int(media[2]):
            port = self._relayed(call_id(head), int(media[2]), side)
            body = _RTCP.sub(rb"\g<1>%d" % (port + 1), _MEDIA.sub(rb"\g<1>%d" % port, body))
            head = _LENGTH.sub(rb"\g<1>%d" % len(body), head)
        return head + separator + body

    def _relayed(self, call: bytes, port: int, side: str) -> int:
        """The port that stands for ``port`` of the phone or the server in this call."""
        links = self._call_links(call)
        for offset, link in enumerate(links):
            if side == "phone":
                link.near = (HOST, port + offset)
            else:
                link.far = (HOST, port + offset)
        return links[0].back_port if side == "phone" else links[0].front_port

    def _call_links(self, call: bytes) -> "list[_Link]":
        links = [link for link in self._links if link.call == call]
        if not links:
            self.sent.append(sent := Sent())
            rtp = _Link(self, call=call, heard=sent.take)
            links = [rtp, _Link(self, call=call, ports=(rtp.front_port + 1, rtp.back_port + 1))]
            self._links += links
            for link in links:
                opening = asyncio.create_task(link.open())
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)
        return links


class _Link:
    """Two sockets: ``front`` towards the phone at ``near``, ``back`` towards the server at ``far``."""

    def __init__(
        self,
        network: Network,
        *,
        call: bytes = b"",
        far: Address | None = None,
        ports: tuple[int, int] = (0, 0),
        heard: Callable[[bytes, int], None] | None = None,
        to_server: Rewrite = bytes,
        to_phone: Rewrite = bytes,
    ) -> None:
        self.call = call
        self.near: Address | None = None
        self.far = far
        self.front_port: int
        self.back_port: int
        self._sockets = [_bound(port) for port in ports]
        self.front_port, self.back_port = (each.getsockname()[1] for each in self._sockets)
        self._network = network
        self._heard = heard
        self._to_server = to_server
        self._to_phone = to_phone
        self._front: asyncio.DatagramTransport | None = None
        self._back: _TimedSocket | None = None

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        front, back = self._sockets
        self._front, _ = await loop.create_datagram_endpoint(lambda: _Socket(self._from_phone), sock=front)
        self._back = _TimedSocket(back, self._from_server)

    def close(self) -> None:
        for transport in (self._front, self._back):
            if transport is not None:
                transport.close()

    def _from_phone(self, data: bytes, source: Address) -> None:
        if not self.call:
            self.near = source  # SIP: the phone is whoever calls
        self._pass(self._to_server(data), lambda: self._back, lambda: self.far)

    def _from_server(self, data: bytes, at_ns: int) -> None:
        if self._heard is not None and not is_rtcp(data):
            self._heard(data, at_ns)
        self._pass(self._to_phone(data), lambda: self._front, lambda: self.near)

    def _pass(
        self,
        data: bytes,
        transport: "Callable[[], asyncio.DatagramTransport | _TimedSocket | None]",
        to: Callable[[], Address | None],
    ) -> None:
        def deliver() -> None:
            out, address = transport(), to()
            if out is not None and not out.is_closing() and address is not None:
                out.sendto(data, address)

        self._network.impair(deliver)


class _TimedSocket:
    """A UDP socket whose packets carry the kernel's time (SO_TIMESTAMPNS), which asyncio's transports do not give."""

    def __init__(self, bound: socket.socket, take: Callable[[bytes, int], None]) -> None:
        self._socket = bound
        self._take = take
        bound.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        asyncio.get_running_loop().add_reader(bound, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                data, ancillary, _, _ = self._socket.recvmsg(MAX_DATAGRAM_BYTES, 64)
                (seconds, nanoseconds), *_ = (_TIMESPEC.unpack(stamp) for _, _, stamp in ancillary)
                self._take(data, seconds * NS_PER_S + nanoseconds)

    def sendto(self, data: bytes, to: Address) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            self._socket.sendto(data, to)

    def is_closing(self) -> bool:
        return self._socket.fileno() < 0

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()


class _Socket(asyncio.DatagramProtocol):
    def __init__(self, take: Callable[[bytes, Address], None]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._take(data, addr)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens there (any more)."""


def _bound(port: int) -> socket.socket:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.setblocking(False)
    taken.bind((HOST, port or free_ports(2)))
    return taken


def call_id(head: bytes) -> bytes:
    match = re.search(rb"^(?:Call-ID|i)\s*:\s*(\S+)", head, re.MULTILINE | re.IGNORECASE)
    assert match is not None, head
    return match[1]
