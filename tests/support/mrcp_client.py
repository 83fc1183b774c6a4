"""A client of MRCPv2 over real sockets, written for these tests: SIP over UDP, TCP or TLS, MRCP, and RTP as it comes.

It shares no code with the server: a message that both read wrongly the same way would be found by neither.
"""

import asyncio
import contextlib
import re
import socket
import ssl
import struct
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Self

HOST = "127.0.0.1"
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class SipReply:
    """A response: its status, its headers by lower-case name, the last one of each, and its body."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def to_tag(self) -> str:
        return self.headers["to"].partition("tag=")[2]


@dataclass(frozen=True)
class MrcpReply:
    start: tuple[str, ...]
    headers: dict[str, str]
    body: bytes

    @property
    def is_event(self) -> bool:
        return not self.start[2].isdigit()

    @property
    def name(self) -> str:
        return self.start[2]

    @property
    def request_id(self) -> int:
        return int(self.start[3] if self.is_event else self.start[2])

    @property
    def status(self) -> int:
        return int(self.start[3])

    @property
    def state(self) -> str:
        return self.start[4]


@dataclass(frozen=True)
class Packet:
    at_s: float
    payload_type: int
    marker: bool
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes


class _Rtp(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.packets: list[Packet] = []

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        del addr
        first, second, sequence, timestamp, ssrc = struct.unpack(">BBHII", data[:12])
        assert first == 0x80
        now_s = asyncio.get_running_loop().time()
        self.packets.append(Packet(now_s, second & 0x7F, bool(second & 0x80), sequence, timestamp, ssrc, data[12:]))


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        del addr
        self._take(data)


def control_lines(
    *, resource: str = "speechsynth", cmid: str = "1", protocol: str = "TCP/MRCPv2", **changes: str
) -> str:
    """The ``m=`` section of a resource."""
    port, setup, connection = changes.get("port", "9"), changes.get("setup", "active"), changes.get("connection", "new")
    return (
        f"m=application {port} {protocol} 1\r\na=setup:{setup}\r\na=connection:{connection}\r\n"
        f"a=resource:{resource}\r\na=cmid:{cmid}\r\n"
    )


def audio_lines(port: int, formats: str = "0 8 96 101", direction: str = "recvonly") -> str:
    """The ``m=`` section of audio."""
    return (
        f"m=audio {port} RTP/AVP {formats}\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=rtpmap:96 L16/8000\r\n"
        f"a=rtpmap:97 L16/16000\r\na=rtpmap:101 telephone-event/8000\r\na={direction}\r\na=mid:1\r\n"
    )


def offer(*sections: str) -> str:
    return f"v=0\r\no=client 1 1 IN IP4 {HOST}\r\ns=-\r\nc=IN IP4 {HOST}\r\nt=0 0\r\n" + "".join(sections)


class SipAgent:
    def __init__(self, transport: str, port: int) -> None:
        self.transport = transport
        self.port = port
        self.local_port = 0
        self.send: Callable[[bytes], None] = lambda _data: None
        self._replies: dict[tuple[str, str], asyncio.Queue[SipReply]] = {}
        self.requests: asyncio.Queue[str] = asyncio.Queue()
        self.answers_byes = True
        self._buffer = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._close: Callable[[], None] = lambda: None

    @classmethod
    async def open(cls, transport: str, port: int, tls: ssl.SSLContext | None = None) -> Self:
        agent = cls(transport, port)
        loop = asyncio.get_running_loop()
        if transport == "UDP":
            udp, _ = await loop.create_datagram_endpoint(lambda: _Udp(agent.take), (HOST, 0), (HOST, port))
            agent.send, agent._close = udp.sendto, udp.close
            agent.local_port = udp.get_extra_info("sockname")[1]
            return agent
        reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
        agent.send, agent._close = writer.write, writer.close
        agent.local_port = writer.get_extra_info("sockname")[1]
        agent._tasks.append(asyncio.create_task(agent._read(reader)))
        return agent

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
                self.take(head + await reader.readexactly(length))

    def take(self, data: bytes) -> None:
        text = data.decode()
        head, _, body = text.partition("\r\n\r\n")
        lines = head.split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (each.partition(":") for each in lines[1:])
        }
        if lines[0].startswith("SIP/2.0 "):
            key = headers["call-id"], headers["cseq"]
            self._replies.setdefault(key, asyncio.Queue()).put_nowait(SipReply(int(lines[0].split()[1]), headers, body))
            return
        self.requests.put_nowait(text)
        if self.answers_byes:
            copied = "".join(
                f"{each}\r\n" for each in lines[1:] if re.match("via|from|to|call-id|cseq", each, re.IGNORECASE)
            )
            self.send(f"SIP/2.0 200 OK\r\n{copied}Content-Length: 0\r\n\r\n".encode())

    def message(
        self,
        method: str,
        *,
        call_id: str,
        cseq: int,
        branch: str = "",
        to_tag: str = "",
        body: str = "",
        extra: str = "",
    ) -> bytes:
        tag = f";tag={to_tag}" if to_tag else ""
        kind = "Content-Type: application/sdp\r\n" if body else ""
        branch = branch or f"z9hG4bK{uuid.uuid4().hex}"
        uri = f"sip:mrcp@{HOST}:{self.port}"
        via = f"SIP/2.0/{self.transport} {HOST}:{self.local_port};branch={branch};rport"
        return (
            f"{method} {uri} SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\n"
            f"From: <sip:client@{HOST}>;tag=c1\r\nTo: <{uri}>{tag}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {method}\r\n"
            f"Contact: <sip:client@{HOST}:{self.local_port}>\r\n{extra}{kind}"
            f"Content-Length: {len(body.encode())}\r\n\r\n{body}"
        ).encode()

    async def reply(self, call_id: str, cseq: int, method: str) -> SipReply:
        queue = self._replies.setdefault((call_id, f"{cseq} {method}"), asyncio.Queue())
        async with asyncio.timeout(TIMEOUT_S):
            return await queue.get()

    def num_waiting(self, call_id: str, cseq: int, method: str) -> int:
        """How many responses to this request were not asked for."""
        return self._replies[call_id, f"{cseq} {method}"].qsize()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._close()


class MrcpConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.came: asyncio.Queue[MrcpReply | None] = asyncio.Queue()
        self.log: list[MrcpReply] = []
        self._task = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        return cls(*await asyncio.open_connection(HOST, port, ssl=tls))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                line = await reader.readuntil(b"\r\n")
                rest = await reader.readexactly(int(line.split()[1]) - len(line))
                head, _, body = rest.partition(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
                self.log.append(MrcpReply(tuple(line.decode().split()), headers, body))
                self.came.put_nowait(self.log[-1])
        self.came.put_nowait(None)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def next(self) -> MrcpReply:
        """The next message; an ``EOFError`` if the server has closed the connection."""
        async with asyncio.timeout(TIMEOUT_S):
            found = await self.came.get()
        if found is None:
            raise EOFError
        return found

    def close(self) -> None:
        self._task.cancel()
        self._writer.close()


def mrcp_message(method: str, request_id: int, channel: str, headers: dict[str, str], body: bytes) -> bytes:
    """A request; its length is found by trying."""
    lines = [f"Channel-Identifier: {channel}"] if channel else []
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}"] if body else []
    rest = f" {method} {request_id}\r\n".encode() + "".join(f"{each}\r\n" for each in lines).encode() + b"\r\n" + body
    length = next(each for each in range(20, 1 << 20) if len(f"MRCP/2.0 {each}") + len(rest) == each)
    return f"MRCP/2.0 {length}".encode() + rest


@dataclass
class MrcpSession:
    agent: SipAgent
    connection: MrcpConnection
    call_id: str
    channel: str
    to_tag: str
    rtp: _Rtp
    rtp_transport: asyncio.DatagramTransport
    answer: str
    cseq: int = 1
    last_id: int = 0
    owned: list[Callable[[], None]] = field(default_factory=list)

    @property
    def packets(self) -> list[Packet]:
        return self.rtp.packets

    @property
    def rtp_port(self) -> int:
        port: int = self.rtp_transport.get_extra_info("sockname")[1]
        return port

    def send(self, method: str, body: bytes | str = b"", **headers: str) -> int:
        """Send a request; returns its id. ``_`` in the names of headers stands for ``-``."""
        self.last_id += 1
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        self.connection.send(mrcp_message(method, self.last_id, self.channel, named, data))
        return self.last_id

    async def ask(self, method: str, body: bytes | str = b"", **headers: str) -> MrcpReply:
        """Send a request; returns its response."""
        number = self.send(method, body, **headers)
        while (found := await self.connection.next()).is_event or found.request_id != number:
            pass
        return found

    async def speak(self, text: bytes | str, **headers: str) -> MrcpReply:
        return await self.ask("SPEAK", text, **{"Content_Type": "text/plain", **headers})

    async def event(self, name: str) -> MrcpReply:
        while not (found := await self.connection.next()).is_event or found.name != name:
            pass
        return found

    async def modify(self, *sections: str) -> SipReply:
        self.cseq += 1
        self.agent.send(
            self.agent.message(
                "INVITE", call_id=self.call_id, cseq=self.cseq, to_tag=self.to_tag, body=offer(*sections)
            )
        )
        reply = await self.agent.reply(self.call_id, self.cseq, "INVITE")
        self.agent.send(self.agent.message("ACK", call_id=self.call_id, cseq=self.cseq, to_tag=self.to_tag))
        return reply

    async def bye(self) -> SipReply:
        self.cseq += 1
        self.agent.send(self.agent.message("BYE", call_id=self.call_id, cseq=self.cseq, to_tag=self.to_tag))
        return await self.agent.reply(self.call_id, self.cseq, "BYE")

    def close(self) -> None:
        self.rtp_transport.close()
        for each in self.owned:
            each()


def channel_of(answer: str) -> str:
    """The channel of an answer; empty if there is none."""
    match = re.search(r"a=channel:(\S+)", answer)
    return match[1] if match else ""


def ports_of(sdp: str) -> list[int]:
    """The ports of the ``m=`` lines."""
    return [int(each) for each in re.findall(r"^m=\w+ (\d+)", sdp, re.MULTILINE)]


async def invite(agent: SipAgent, *sections: str, extra: str = "") -> tuple[str, SipReply]:
    """Send an INVITE, and acknowledge its answer; returns the Call-ID and the answer."""
    call_id = uuid.uuid4().hex
    branch = f"z9hG4bK{uuid.uuid4().hex}"
    body = offer(*sections) if sections else ""
    agent.send(agent.message("INVITE", call_id=call_id, cseq=1, branch=branch, body=body, extra=extra))
    reply = await agent.reply(call_id, 1, "INVITE")
    own = "" if reply.status == 200 else branch  # the ACK of a refusal belongs to the transaction
    agent.send(agent.message("ACK", call_id=call_id, cseq=1, branch=own, to_tag=reply.to_tag))
    return call_id, reply


@contextlib.asynccontextmanager
async def session_with(
    sip_port: int,
    *,
    transport: str = "UDP",
    formats: str = "0 8 96 101",
    protocol: str = "TCP/MRCPv2",
    tls: ssl.SSLContext | None = None,
    connection: MrcpConnection | None = None,
) -> AsyncIterator[MrcpSession]:
    loop = asyncio.get_running_loop()
    agent = await SipAgent.open(transport, sip_port, tls)
    rtp_transport, rtp = await loop.create_datagram_endpoint(_Rtp, (HOST, 0), family=socket.AF_INET)
    rtp_port = rtp_transport.get_extra_info("sockname")[1]
    kind = "new" if connection is None else "existing"
    call_id, reply = await invite(
        agent, control_lines(protocol=protocol, connection=kind), audio_lines(rtp_port, formats)
    )
    assert reply.status == 200, reply
    owned = [agent.close]
    if connection is None:
        is_tls = "TLS" in protocol
        connection = await MrcpConnection.open(ports_of(reply.body)[0], tls if is_tls else None)
        owned.append(connection.close)
    session = MrcpSession(
        agent, connection, call_id, channel_of(reply.body), reply.to_tag, rtp, rtp_transport, reply.body, owned=owned
    )
    try:
        yield session
    finally:
        session.close()
