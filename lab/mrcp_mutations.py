"""Mutated messages for the MRCP server: SIP over UDP and TCP, and MRCP on a channel of a session of its own."""

import asyncio
import contextlib
import random
import re
import socket
from collections import Counter
from typing import Final

from lab.ports import HOST

OFFER: Final = (
    "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=application 9 TCP/MRCPv2 1\r\n"
    "a=setup:active\r\na=connection:new\r\na=resource:speechsynth\r\na=cmid:1\r\nm=audio 40000 RTP/AVP 0 8 96 101\r\n"
    "a=rtpmap:0 PCMU/8000\r\na=rtpmap:96 L16/8000\r\na=recvonly\r\na=mid:1\r\n"
)
SSML: Final = b'<speak version="1.1" xml:lang="en">One <mark name="a"/> two<break time="200ms"/> three.</speak>'
PLS: Final = b'<lexicon version="1.0" xml:lang="en"><lexeme><grapheme>a</grapheme><alias>b</alias></lexeme></lexicon>'
_SPLICES: Final = (
    b"\r\n", b"\r\n\r\n", b":", b" ", b"\0", b"\xff\xfe", b"9" * 30, b"-1", b"%s%n", b"<", b"@", b";", b"A" * 3000,
    b"\xe2\x82", b"Content-Length: 99999999\r\n", b"MRCP/2.0 ", b"SIP/2.0 200 OK\r\n", b"m=audio 0 RTP/AVP\r\n", b"\t",
)  # fmt: skip


def sip_message(method: str, number: int, port: int, *, transport: str = "UDP", to_tag: str = "") -> bytes:
    body = OFFER if method == "INVITE" else ""
    tag = f";tag={to_tag}" if to_tag else ""
    return (
        f"{method} sip:mrcp@{HOST}:{port} SIP/2.0\r\nVia: SIP/2.0/{transport} {HOST}:39999;branch=z9hG4bKm{number};rport\r\n"
        f"Max-Forwards: 70\r\nFrom: <sip:m@{HOST}>;tag=m\r\nTo: <sip:mrcp@{HOST}>{tag}\r\nCall-ID: mutated{number}\r\n"
        f"CSeq: {1 + (method == 'BYE')} {method}\r\nContact: <sip:m@{HOST}:39999>\r\n"
        + ("Content-Type: application/sdp\r\n" if body else "")
        + f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def mrcp_message(number: int, channel: str, generator: random.Random) -> bytes:
    """A request as it should be, of any method."""
    kinds: list[tuple[str, list[str], bytes]] = [
        ("SPEAK", ["Content-Type: text/plain", "Prosody-Rate: fast"], b"Hello there."),
        ("SPEAK", ["Content-Type: application/ssml+xml", "Kill-On-Barge-In: false"], SSML),
        ("STOP", ["Active-Request-Id-List: 1,2,3"], b""),
        ("STOP", [], b""),
        ("PAUSE", [], b""),
        ("RESUME", [], b""),
        ("BARGE-IN-OCCURRED", [], b""),
        ("CONTROL", ["Jump-Size: -1 Second"], b""),
        ("SET-PARAMS", ["Voice-Gender: female", "Speech-Language: en-US", "Prosody-Volume: +3dB"], b""),
        ("GET-PARAMS", ["Voice-Name:"], b""),
        ("DEFINE-LEXICON", ["Content-Type: application/pls+xml", f"Content-ID: <{number % 20}>"], PLS),
    ]
    method, headers, body = generator.choice(kinds)
    lines = [f"Channel-Identifier: {channel}", *headers, *([f"Content-Length: {len(body)}"] if body else [])]
    rest = (f" {method} {number}\r\n" + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode() + body
    length = next(each for each in range(20, 10_000) if len(f"MRCP/2.0 {each}") + len(rest) == each)
    return f"MRCP/2.0 {length}".encode() + rest


def mutated(data: bytes, generator: random.Random) -> bytes:
    """The message with up to four things done to it; the length at its beginning may be made right again."""
    changed = bytearray(data)
    for _ in range(generator.randint(0, 4)):
        at = generator.randrange(len(changed) + 1)
        match generator.randrange(5):
            case 0 if at < len(changed):
                changed[at] = generator.randrange(256)
            case 1:
                changed[at:at] = generator.choice(_SPLICES)
            case 2:
                del changed[at : at + generator.randrange(40)]
            case 3:
                changed[at:at] = changed[at : at + generator.randrange(200)]
            case _:
                changed = changed[: max(1, at)] if generator.random() < 0.1 else changed
    if data.startswith(b"MRCP/") and generator.random() < 0.8:
        changed = bytearray(re.sub(rb"^MRCP/2\.0 \d+", b"MRCP/2.0 %d" % len(changed), bytes(changed), count=1))
    return bytes(changed) or b"\n"


class Mutations:
    """Sends mutated messages to a server, and counts what it sent."""

    def __init__(self, sip_port: int, control_port: int, *, seed: int = 1) -> None:
        self._sip_port = sip_port
        self._control_port = control_port
        self._generator = random.Random(seed)
        self._number = 0
        self._channel = ""
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((HOST, 0))
        self._udp.settimeout(0)
        self.sent: Counter[str] = Counter()

    async def run(self, num: int, *, per_s: float) -> None:
        """Send so many, at this rate."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for number in range(num):
            await self._send_one()
            await asyncio.sleep(max(0.0, begun_s + number / per_s - loop.time()))
        self.close()

    async def _send_one(self) -> None:
        self._number += 1
        kind = self._generator.choice(("sip/udp", "sip/tcp", "mrcp", "mrcp", "mrcp"))
        self.sent[kind] += 1
        if kind == "mrcp":
            await self._send_mrcp()
            return
        method = self._generator.choice(("INVITE", "INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "PRACK"))
        transport = kind[-3:].upper()
        data = mutated(sip_message(method, self._number, self._sip_port, transport=transport), self._generator)
        if kind == "sip/udp":
            with contextlib.suppress(OSError):
                self._udp.sendto(data, (HOST, self._sip_port))
        else:
            await self._send_once(data)

    async def _send_once(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, self._sip_port)
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
            writer.close()

    async def _send_mrcp(self) -> None:
        if not self._channel or self._number % 200 == 0:
            self._channel = await self._new_channel() or "0@speechsynth"
        if self._writer is None or self._writer.is_closing():
            await self._connect()
        assert self._writer is not None
        data = mutated(mrcp_message(self._number, self._channel, self._generator), self._generator)
        at = self._generator.randrange(len(data))
        with contextlib.suppress(OSError):
            for part in (data[:at], data[at:]):
                self._writer.write(part)
                await self._writer.drain()

    async def _connect(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        reader, self._writer = await asyncio.open_connection(HOST, self._control_port)
        self._reading = asyncio.create_task(self._read(reader, self._writer))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(65_536):
                pass
        writer.close()

    async def _new_channel(self) -> str:
        """Begin a session; returns its channel, if one was given."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(0)
            udp.bind((HOST, 0))
            invite = sip_message("INVITE", self._number, self._sip_port)
            await loop.sock_sendto(udp, invite, (HOST, self._sip_port))
            try:
                async with asyncio.timeout(2):
                    answer = (await loop.sock_recv(udp, 65_535)).decode(errors="replace")
            except TimeoutError:
                return ""
            tag = re.search(r"^To:.*tag=(\w+)", answer, re.MULTILINE)
            ack = sip_message("ACK", self._number, self._sip_port, to_tag=tag[1] if tag else "")
            await loop.sock_sendto(udp, ack, (HOST, self._sip_port))
        channel = re.search(r"a=channel:(\S+)", answer)
        return channel[1] if channel else ""

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        self._udp.close()
