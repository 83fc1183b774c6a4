"""SIP by hand over UDP: for requests that no well-behaved peer would send, and for answers at a moment of our choosing."""

import asyncio
import hashlib
import itertools
import re
import secrets
from typing import Any

from cc_tts.softphone.rtp.packets import is_rtcp
from lab.ports import HOST
from lab.udp import Address, UdpEndpoint
from lab.waiting import PATIENCE_S

SDP = (
    "v=0\r\no=raw 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
    "m=audio {port} RTP/AVP {formats}\r\na=rtpmap:101 telephone-event/8000\r\na=ptime:20\r\n"
)

_numbers = itertools.count(1)


def headers_of(text: str, name: str) -> list[str]:
    """Every header of this name, or of ``one|other``, in a message."""
    return re.findall(rf"^(?:{name})[ \t]*:[ \t]*(.*?)\r?$", text, re.MULTILINE | re.IGNORECASE)


class Answer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.status = int(text.split(" ", 2)[1])

    def header(self, name: str) -> str | None:
        return next(iter(self.headers(name)), None)

    def headers(self, name: str) -> list[str]:
        return headers_of(self.text, name)

    @property
    def formats(self) -> list[int]:
        """Payload types of the SDP's audio."""
        match = re.search(r"^m=audio \d+ RTP/AVP ([\d ]+)", self.text, re.MULTILINE)
        return [int(each) for each in match[1].split()] if match else []


class RawCaller(UdpEndpoint):
    """One dialog. Use it as a context manager. ``user`` may be followed by ``;parameters`` for the URI; ``source`` is the
    address it sends from.
    """

    def __init__(self, user: str, port: int, *, source: str = HOST) -> None:
        super().__init__(host=source, peer_port=port)
        number = next(_numbers)
        user, semicolon, parameters = user.partition(";")
        self.uri = f"sip:{user}@{HOST}:{port}{semicolon}{parameters}"
        self.to = f"<{self.uri.partition(';')[0]}>"
        """The value of To in the next request; it gets the tag of an answer."""
        self.call_id = f"raw-{number}-{id(self):x}"
        self._tag = f"raw{number}"
        self.received: asyncio.Queue[str] = asyncio.Queue()
        """Messages that no method here has read."""
        self.cseq = 0
        """The number of the last request."""
        self._awaited = 0  # CSeq of the request whose answer is waited for
        self._branch = ""
        self._route = b""  # Route lines, once a proxy has recorded itself

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.received.put_nowait(data.decode(errors="replace"))

    def send(
        self,
        method: str,
        *,
        headers: bytes = b"",
        body: str = "",
        content_type: str = "application/sdp",
        from_name: bytes = b'"raw"',
        cseq: int | None = None,
    ) -> None:
        """Send a request; ``headers`` are whole lines."""
        if cseq is None:
            self.cseq += 1
            cseq = self.cseq
        if method != "ACK":
            self._awaited = cseq
        if method != "CANCEL":
            self._branch = f"z9hG4bK{self.call_id}-{cseq}-{method}"
        head = (
            f"{method} {self.uri} SIP/2.0\r\n"
            f"Via: SIP/2.0/UDP {self.own};rport;branch={self._branch}\r\n"
            f"To: {self.to}\r\nCall-ID: {self.call_id}\r\nCSeq: {cseq} {method}\r\n"
            f"Contact: <sip:raw@{self.own}>\r\nMax-Forwards: 70\r\n"
        ).encode()
        sender = b"From: " + from_name + f" <sip:raw@{HOST}>;tag={self._tag}\r\n".encode()
        kind = f"Content-Type: {content_type}\r\n".encode() if body and content_type else b""
        self.transmit(
            head + sender + self._route + headers + kind + f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )

    def invite(
        self, *, headers: bytes = b"", formats: str = "0 101", from_name: bytes = b'"raw"', rtp_port: int = 9
    ) -> None:
        self.send("INVITE", headers=headers, body=SDP.format(port=rtp_port, formats=formats), from_name=from_name)

    async def establish(self, **offer: Any) -> Answer:
        """Call with an offer as of :meth:`invite`, and acknowledge the 200."""
        self.invite(**offer)
        return await self.acknowledge(200)

    async def final(self, timeout_s: float = PATIENCE_S) -> Answer:
        """The next final answer to the last request, not one that is repeated. It is not acknowledged."""
        async with asyncio.timeout(timeout_s):
            while True:
                text = await self.received.get()
                if text.startswith("SIP/2.0 ") and not text.startswith("SIP/2.0 1"):
                    answer = Answer(text)
                    if (answer.header("CSeq") or "").partition(" ")[0] != str(self._awaited):
                        continue
                    to = answer.header("To")
                    if to is not None and ";tag=" in to:
                        self.to = to
                    return answer

    async def acknowledge(self, status: int) -> Answer:
        """The next final answer, which must have this status; it is acknowledged."""
        answer = await self.final()
        assert answer.status == status, answer.text
        self.ack()
        return answer

    async def request(
        self,
        method: str,
        timeout_s: float = PATIENCE_S,
        *,
        status: str = "200 OK",
        headers: str = "",
        body: str = "",
    ) -> str:
        """Wait for a request of the server, such as BYE or an INVITE, and answer it; ``body`` is SDP."""
        async with asyncio.timeout(timeout_s):
            while True:
                text = await self.received.get()
                if text.startswith(f"{method} "):
                    kind = f"Contact: <sip:raw@{self.own}>\r\nContent-Type: application/sdp\r\n" if body else ""
                    head = f"SIP/2.0 {status}\r\n{repeated(text)}{headers}{kind}Content-Length: {len(body)}"
                    self.transmit(f"{head}\r\n\r\n{body}".encode())
                    return text

    async def left_unanswered(self, method: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait for a request of the server and leave it without an answer."""
        async with asyncio.timeout(timeout_s):
            while not (text := await self.received.get()).startswith(f"{method} "):
                pass
            return text

    def ack(self, *, body: str = "") -> None:
        """Acknowledge the last INVITE; ``body`` answers an offer in its 200."""
        self.send("ACK", cseq=self.cseq, body=body)

    async def challenges(self) -> list[str]:
        """Send an INVITE; returns what the 401 asks for, and forgets its tag, as the next INVITE is outside a dialog."""
        before = self.to
        self.invite()
        answer = await self.final()
        assert answer.status == 401, answer.text
        self.ack()
        self.to = before
        return answer.headers("WWW-Authenticate")

    async def bye(self) -> Answer:
        self.send("BYE")
        return await self.final()


def repeated(request: str, *, tag: str = "") -> str:
    """The headers of a request that its answer repeats, with our ``tag`` in a To that has none (RFC 3261 §8.2.6.2)."""
    lines = re.findall(r"^((?:Via|From|To|Call-ID|CSeq)\s*:.*)\r$", request, re.MULTILINE | re.IGNORECASE)
    lines = [f"{line};tag={tag}" if tag and line.startswith("To:") and ";tag=" not in line else line for line in lines]
    return "".join(f"{line}\r\n" for line in lines)


async def invite_once(user: str, port: int, *, headers: bytes = b"", from_name: bytes = b'"raw"') -> Answer:
    """Call, and hang up if it is answered; returns the answer."""
    async with RawCaller(user, port) as caller:
        caller.invite(headers=headers, from_name=from_name)
        answer = await caller.final()
        caller.ack()
        if answer.status == 200:
            await caller.bye()
        return answer


async def options(port: int) -> Answer:
    async with RawCaller("ping", port) as caller:
        caller.send("OPTIONS")
        return await caller.final()


def tcp_options(port: int) -> bytes:
    number = f"{next(_numbers)}-{secrets.token_hex(8)}"
    return (
        f"OPTIONS sip:ping@{HOST}:{port} SIP/2.0\r\nVia: SIP/2.0/TCP {HOST}:9;branch=z9hG4bK-{number}\r\n"
        f"From: <sip:raw@{HOST}>;tag=1\r\nTo: <sip:ping@{HOST}>\r\nCall-ID: tcp-{number}\r\nCSeq: 1 OPTIONS\r\n"
        "Max-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
    ).encode()


class RawPeer(UdpEndpoint):
    """An answering side that says what the test tells it to. Use it as a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.received: asyncio.Queue[tuple[str, Address]] = asyncio.Queue()
        self.sender: Address = ("", 0)
        """The source of the last request."""
        self._seen: set[tuple[str, str]] = set()
        self.request = ""

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.received.put_nowait((data.decode(errors="replace"), addr))

    async def expect(self, method: str, timeout_s: float = PATIENCE_S) -> str:
        """The next request of this kind, which :meth:`answer` will be for; not one that is repeated."""
        async with asyncio.timeout(timeout_s):
            while True:
                text, sender = await self.received.get()
                branch = re.search(r";\s*branch=([^;\s,]+)", text)
                name = (method, branch[1] if branch else "")
                if text.startswith(f"{method} ") and name not in self._seen:
                    self._seen.add(name)
                    self.request, self.sender = text, sender
                    return text

    def answer(
        self,
        status: str,
        *,
        headers: str = "",
        formats: str = "",
        body: str = "",
        content_type: str = "application/sdp",
        contact: str = "",
        rtp_port: int = 9,
        tag: str = "peer",
    ) -> None:
        """Answer the last request, with an answer to its offer if there is a ``body`` or there are ``formats``."""
        head = f"SIP/2.0 {status}\r\n{repeated(self.request, tag=tag)}{headers}"
        if formats:
            body = SDP.format(port=rtp_port, formats=formats)
        if body:
            head += f"Content-Type: {content_type}\r\nContact: {contact or f'<sip:peer@{self.own}>'}\r\n"
        self.transmit(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode(), self.sender)

    async def take_bye(self) -> str:
        """Wait for a BYE, and answer it; returns the request."""
        text = await self.expect("BYE")
        self.answer("200 OK")
        return text

    def send_inside(self, method: str, cseq: int, *, tag: str = "peer", body: str = "") -> str:
        """Send a request inside the dialog of the last request; returns the branch of its Via."""
        headers = dict(line.split(": ", 1) for line in repeated(self.request, tag=tag).splitlines())
        branch = f"z9hG4bK-{method}-{cseq}-{secrets.token_hex(8)}"
        head = (
            f"{method} sip:{HOST}:{self.sender[1]} SIP/2.0\r\nVia: SIP/2.0/UDP {self.own};branch={branch}\r\n"
            f"From: {headers['To']}\r\nTo: {headers['From']}\r\nCall-ID: {headers['Call-ID']}\r\nCSeq: {cseq} {method}\r\n"
            f"Contact: <sip:peer@{self.own}>\r\nMax-Forwards: 70\r\n"
        )
        if body:
            head += "Content-Type: application/sdp\r\n"
        self.transmit(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode(), self.sender)
        return branch

    async def request_inside(self, method: str, cseq: int, *, tag: str = "peer", body: str = "") -> str:
        """The final response to a request sent by :meth:`send_inside`."""
        branch = self.send_inside(method, cseq, tag=tag, body=body)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                text, _ = await self.received.get()
                if text.startswith("SIP/2.0 ") and not text.startswith("SIP/2.0 1") and branch in text:
                    return text


class RtpEar(UdpEndpoint):
    """Takes down RTP packets. Use it as a context manager.

    It drops RTCP (RFC 5761 §4 tells the two apart): what comes is of another call, whose RTP port is the one below.
    """

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[bytes] = []

    def datagram_received(self, data: bytes, addr: Address) -> None:
        if not is_rtcp(data):
            self.packets.append(data)

    @property
    def payload_types(self) -> set[int]:
        return {packet[1] & 0x7F for packet in self.packets}

    @property
    def payloads(self) -> list[bytes]:
        return [packet[12:] for packet in self.packets]


def digest_response(authorization: str, *, method: str, password: str) -> str:
    """What ``response`` must be in a digest answer without qop (RFC 2617 §3.2.2)."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', authorization))
    first = md5(f"{fields['username']}:{fields['realm']}:{password}")
    second = md5(f"{method}:{fields['uri']}")
    return md5(f"{first}:{fields['nonce']}:{second}")


def authorization(
    challenge: str, *, password: str, username: str = "pbx", nc: int = 1, method: str = "INVITE", uri: str = "sip:a@b"
) -> bytes:
    """The Authorization line that answers a challenge with ``qop=auth`` (RFC 7616 §3.4)."""
    asked = {name: quoted or plain for name, quoted, plain in re.findall(r'(\w+)=(?:"([^"]*)"|([\w-]+))', challenge)}
    hashed = {"MD5": md5, "SHA-256": _sha256}[asked["algorithm"]]
    first = hashed(f"{username}:{asked['realm']}:{password}")
    second = hashed(f"{method}:{uri}")
    response = hashed(f"{first}:{asked['nonce']}:{nc:08x}:0a4f113b:auth:{second}")
    return (
        f'Authorization: Digest username="{username}", realm="{asked["realm"]}", nonce="{asked["nonce"]}", uri="{uri}", '
        f'response="{response}", algorithm={asked["algorithm"]}, cnonce="0a4f113b", qop=auth, nc={nc:08x}\r\n'
    ).encode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def md5(text: str) -> str:
    """Hex MD5, as digest authentication wants it."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
