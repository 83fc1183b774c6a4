"""The sockets of the hostile bench: what goes out is kept for a replay, what comes in is answered so that every call ends.

Each answer to an INVITE is acknowledged from what the answer itself says, so that calls end whatever was done to the
request; what the server asks (BYE, CANCEL, an INVITE it was told to place) is answered, now and then badly.
"""

import asyncio
import contextlib
import random
import re
import time
from base64 import b64encode
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bench.hostile.answers import Here, Step, registered, to_invite, to_register, to_request
from bench.hostile.sip import Sip, spoil
from lab.ports import HOST
from lab.raw_sip import headers_of
from lab.udp import Address, UdpEndpoint

KEPT_MESSAGES: Final = 2000
KEPT_TAGS: Final = 5000
MAX_DATAGRAM_BYTES: Final = 65_000
MAX_DIALOGS: Final = 60
BYE_INTERVAL_S: Final = 1.0
MAX_BYES: Final = 4
TCP_LINGER_S: Final = 1.0

Send = Callable[[bytes], None]


@dataclass(slots=True)
class Dialog:
    call_id: str
    from_: str
    to: str
    target: str
    cseq: int
    end_at_s: float
    rtp_port: int = 0
    ssrc: int = 0
    seq: int = 0
    num_byes: int = 0
    kept: bool = False
    """One of the calls in progress: nothing is done to it."""


@dataclass(slots=True)
class Ledger:
    sent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_MESSAGES))
    tags: OrderedDict[str, str] = field(default_factory=OrderedDict)
    answers: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def keep(self, via: str, kind: str, data: bytes, call_id: str = "", **more: Any) -> None:
        """One message that goes out."""
        self.kinds[kind] += 1
        self.sent.append(
            {"n": self.number, "via": via, "kind": kind, "call": call_id, "data": b64encode(data).decode(), **more}
        )

    def tag(self, call_id: str, to: str) -> None:
        """The server's tag in a dialog."""
        match = re.search(r";tag=([^;>\s]+)", to)
        if match:
            self.tags[call_id] = match[1]
            while len(self.tags) > KEPT_TAGS:
                self.tags.popitem(last=False)


def on_loopback(data: bytes) -> bytes:
    """No address but loopback's, whatever was mutated: nothing must be sent elsewhere."""
    return re.sub(rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}", _local, data)


def _local(match: re.Match[bytes]) -> bytes:
    return match[0] if match[0].startswith((b"127.", b"0.0.0.0")) else b"127.0.0.1"


def header(text: str, name: str) -> str:
    """Value of the first header of this name, long or compact; empty without one."""
    return next(iter(headers_of(text, name)), "")


def repeated(request: str) -> dict[str, str]:
    """What a response repeats of the server's request."""
    branch = re.search(r";branch=([^;,\s]+)", header(request, "Via|v"))
    tag = re.search(r";tag=([^;>\s]+)", header(request, "From|f"))
    number, _, method = header(request, "CSeq").partition(" ")
    return {
        "method": method.strip(),
        "branch": branch[1] if branch else "",
        "call_id": header(request, "Call-ID|i"),
        "tag": tag[1] if tag else "",
        "cseq": f"{number} ",
    }


@dataclass(frozen=True, slots=True)
class Response:
    """Bytes that go back to a request of the server."""

    kind: str
    data: bytes
    after_s: float


class Peer(UdpEndpoint):
    """One UDP socket for signalling and one for media. Use it as a context manager."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.server_port = 0
        """While 0, whoever sends the first datagram is the server: it registers before its port is known."""
        self.hostile = False
        """Until then a registration is answered as it should be."""
        self.rng = rng
        self.ledger = Ledger()
        self.dialogs: dict[str, Dialog] = {}
        self.waiting: dict[str, asyncio.Future[tuple[int, str]]] = {}
        self._media = UdpEndpoint()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def rtp_port(self) -> int:
        return self._media.port

    async def __aenter__(self) -> Self:
        await self._media.__aenter__()
        return await super().__aenter__()

    async def __aexit__(self, *exception: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._media.__aexit__(*exception)
        await super().__aexit__(*exception)

    # --- out ----------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """A datagram to the server's SIP port."""
        self.transmit(on_loopback(data)[:MAX_DATAGRAM_BYTES], (HOST, self.server_port))

    def send_media(self, data: bytes, port: int) -> None:
        if 0 < port < 65_536:
            self._media.transmit(data[:MAX_DATAGRAM_BYTES], (HOST, port))

    def send_tcp(self, data: bytes) -> None:
        """A connection of its own for these bytes, in a few pieces."""
        self._later(self._tcp(on_loopback(data)))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tcp(self, data: bytes) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection(HOST, self.server_port)
            try:
                cut = self.rng.randrange(len(data) + 1) if self.rng.random() < 0.3 else len(data)
                writer.write(data[:cut])
                if cut < len(data):
                    await asyncio.sleep(0.02)
                    writer.write(data[cut:])
                async with asyncio.timeout(TCP_LINGER_S):
                    while received := await reader.read(65_536):
                        for text in re.split(r"(?=^SIP/2\.0 \d)", received.decode("latin-1"), flags=re.MULTILINE):
                            self.received(text, writer.write)
            finally:
                writer.close()

    # --- in -----------------------------------------------------------------------------------------------------------

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self.server_port = self.server_port or addr[1]
        self.received(data.decode("latin-1"), self.send)

    def error_received(self, exc: Exception) -> None:
        """The server is gone; the watch finds out."""

    def received(self, text: str, send: Send) -> None:
        """An answer or a request of the server."""
        if text.startswith("SIP/2.0 "):
            self._answered(text, send)
        elif text.strip():
            self._asked(text, send)

    def _answered(self, text: str, send: Send) -> None:
        status = int(text[8:11]) if text[8:11].isdigit() else 0
        cseq, _, method = header(text, "CSeq").partition(" ")
        call_id = header(text, "Call-ID|i")
        method = method.strip()
        self.ledger.answers[f"{method[:12] if method.isascii() else '?'} {status}"] += 1
        if status < 200:
            return
        self.ledger.tag(call_id, header(text, "To|t"))
        if method == "INVITE":
            send(self._ack(text, call_id, cseq, status))
        elif method == "BYE":
            self.dialogs.pop(call_id, None)
        future = self.waiting.pop(call_id, None)
        if future is not None and not future.done():
            future.set_result((status, text))

    def _ack(self, text: str, call_id: str, cseq: str, status: int) -> bytes:
        """RFC 3261 §13.2.2.4 and §17.1.1.3."""
        target = re.search(r"<(sips?:[^>]*)>", header(text, "Contact|m"))
        uri = target[1] if target and status < 300 else f"sip:{HOST}:{self.server_port}"
        via = header(text, "Via|v")
        if status < 300:
            via = f"SIP/2.0/UDP {HOST}:{self.port};rport;branch=z9hG4bK{time.monotonic_ns()}"
            media = re.search(r"^m=audio (\d+)", text, re.MULTILINE)
            number = int(cseq) if cseq.isdigit() else 1
            if call_id not in self.dialogs:
                self.dialogs[call_id] = Dialog(
                    call_id=call_id,
                    from_=header(text, "From|f"),
                    to=header(text, "To|t"),
                    target=uri,
                    cseq=number,
                    end_at_s=time.monotonic() + self.rng.uniform(0.2, 5),
                    ssrc=self.rng.getrandbits(32),
                )
            dialog = self.dialogs[call_id]
            dialog.cseq = max(dialog.cseq, number)
            dialog.rtp_port = int(media[1]) if media else dialog.rtp_port
        headers = [("Via", via), ("From", header(text, "From|f")), ("To", header(text, "To|t")), ("Call-ID", call_id)]
        return Sip(f"ACK {uri} SIP/2.0", [*headers, ("CSeq", f"{cseq} ACK"), ("Max-Forwards", "70")]).render()

    def within(self, dialog: Dialog, method: str, body: str = "", content_type: str = "application/sdp") -> Sip:
        dialog.cseq += method not in ("ACK", "CANCEL")
        headers = [
            ("Via", f"SIP/2.0/UDP {HOST}:{self.port};rport;branch=z9hG4bK{time.monotonic_ns()}"),
            ("From", dialog.from_),
            ("To", dialog.to),
            ("Call-ID", dialog.call_id),
            ("CSeq", f"{dialog.cseq} {method}"),
            ("Contact", f"<sip:hostile@{HOST}:{self.port}>"),
            ("Max-Forwards", "70"),
        ]
        if body:
            headers.append(("Content-Type", content_type))
        return Sip(f"{method} {dialog.target} SIP/2.0", headers, body)

    def sweep(self) -> None:
        """Hang up what has lasted long enough; a BYE nobody answers is sent again, a few times."""
        now_s = time.monotonic()
        for dialog in [each for each in self.dialogs.values() if not each.kept]:
            if dialog.end_at_s > now_s and (dialog.num_byes or len(self.dialogs) < MAX_DIALOGS):
                continue
            dialog.num_byes += 1
            dialog.end_at_s = now_s + BYE_INTERVAL_S
            if dialog.num_byes > MAX_BYES:
                self.ledger.answers["BYE none"] += 1
                del self.dialogs[dialog.call_id]
            else:
                self.send(self.within(dialog, "BYE").render())

    # --- the server asks ----------------------------------------------------------------------------------------------

    def _asked(self, text: str, send: Send) -> None:
        method = text.split(" ", 1)[0][:12]
        self.ledger.asked[method] += 1
        if method == "ACK":
            return
        call_id = header(text, "Call-ID|i")
        responses = self._responses(method, text)
        if method == "BYE":
            self.dialogs.pop(call_id, None)
        elif (
            method == "INVITE" and call_id not in self.dialogs and any(b"SIP/2.0 2" in each.data for each in responses)
        ):
            self.dialogs[call_id] = self._called(text, call_id)
        self._later(self._respond(text, responses, send))

    def _responses(self, method: str, request: str) -> list[Response]:
        """What goes back to a request of the server."""
        rng, here = self.rng, Here(HOST, self.port, self.rtp_port)
        if not self.hostile and method == "REGISTER":
            steps = [Step("200 good", registered(request, here, expires="6"))]
        elif method == "REGISTER":
            steps = to_register(rng, request, here)
        elif method == "INVITE" and header(request, "Call-ID|i") not in self.dialogs:
            steps = to_invite(rng, request, here)
        else:
            steps = to_request(rng, request, here)
        return [
            Response(f"answer {method} {each.kind}", on_loopback(spoil(rng, each.sip.render())), each.after_s)
            for each in steps
        ]

    def _called(self, request: str, call_id: str) -> Dialog:
        """The call from this side: requests inside it go to the server like those of calls it has answered."""
        target = re.search(r"<(sips?:[^>]*)>", header(request, "Contact|m"))
        media = re.search(r"^m=audio (\d+)", request, re.MULTILINE)
        to = header(request, "To|t")
        return Dialog(
            call_id=call_id,
            from_=to if ";tag=" in to else f"{to};tag=peer",
            to=header(request, "From|f"),
            target=target[1] if target else f"sip:{HOST}:{self.server_port}",
            cseq=self.rng.randrange(1, 1000),
            end_at_s=time.monotonic() + self.rng.uniform(0.5, 5),
            rtp_port=int(media[1]) if media else 0,
            ssrc=self.rng.getrandbits(32),
        )

    async def _respond(self, request: str, responses: Sequence[Response], send: Send) -> None:
        """In their order, each kept with what it repeats of the request, so that a replay can put its own there."""
        for each in responses:
            await asyncio.sleep(each.after_s)
            self.ledger.keep("answer", each.kind, each.data, header(request, "Call-ID|i"), request=repeated(request))
            send(each.data)


def registration(peer: Peer) -> tuple[str, ...]:
    """Settings with which the server registers with ``peer``."""
    return (
        f'registration.registrar="sip:{HOST}:{peer.port}"',
        'registration.username="hostile"',
        'registration.password="open sesame"',
        "registration.expires_s=60",
        "registration.retry_s=1",
    )
