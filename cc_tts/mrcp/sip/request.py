"""A SIP request to the MRCP process, and the responses to it (RFC 3261 §8.2)."""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cc_tts.config.sip_uri import MAX_PORT
from cc_tts.mrcp.sip.flows import Flow
from cc_tts.mrcp.tcp import Address
from cc_tts.ua.sip import message

REASONS: Final = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 405: "Method Not Allowed", 415: "Unsupported Media Type",
    420: "Bad Extension", 481: "Call/Transaction Does Not Exist", 487: "Request Terminated", 488: "Not Acceptable Here",
    491: "Request Pending", 500: "Server Internal Error", 503: "Service Unavailable",
}  # fmt: skip
ALLOW: Final = "INVITE, ACK, BYE, CANCEL, OPTIONS"
_START: Final = re.compile(r"([A-Z]{1,32}) (\S{1,1024}) SIP/2\.0", re.ASCII)
_CSEQ: Final = re.compile(r"(\d{1,10}) +([A-Z]{1,32})", re.ASCII)
_VIA: Final = re.compile(
    r"SIP *\/ *2\.0 *\/ *([A-Za-z]{1,8}) +([^;,\s]{1,255})((?:[^,\"]|\"[^\"]*\")*)(,.*)?", re.ASCII | re.DOTALL
)
_BRANCH: Final = re.compile(r"; *branch *= *([^;,\s]{1,256})", re.IGNORECASE)
_RPORT: Final = re.compile(r"; *rport(?= *(?:;|$))", re.IGNORECASE)
_RECEIVED: Final = re.compile(r"; *received *= *[^;,\s]*", re.IGNORECASE)
_SENT_BY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:]+)(?::(\d{1,5}))?", re.ASCII)
_MAX_CSEQ: Final = 2**31
"""A CSeq is less than this (RFC 3261 §8.1.1.5)."""
DEFAULT_PORT: Final = 5060


class SipRefusal(Exception):
    """The request gets this status."""

    def __init__(self, status: int, reason: str = "", *, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.headers = headers


Headers = Iterable[tuple[str, str]]


@dataclass(slots=True, eq=False)
class SipRequest:
    """A request, and the flow on which it came."""

    text: str
    flow: Flow
    method: str
    cseq: int
    call_id: str
    via: str
    """The first Via of the request, completed by us (RFC 3261 §18.2.1, RFC 3581)."""
    branch: str
    reply_to: Address
    fault: str = ""
    """Why the answer is 400; empty if the request is well-formed."""

    @property
    def key(self) -> tuple[str, ...]:
        """The key of its transaction (RFC 3261 §17.2.3); an ACK has that of its INVITE."""
        method = "INVITE" if self.method == "ACK" else self.method
        return (method, self.branch, self.via.split(";")[0], self.call_id, str(self.cseq))

    @property
    def dialog_key(self) -> tuple[str, str] | None:
        """Call-ID and our tag; ``None`` outside a dialog."""
        found = message.dialog_of(self.text)
        return None if found is None else (found[0], found[1])

    @property
    def body(self) -> str:
        """Return as many bytes as Content-Length says; a datagram may have more (RFC 3261 §18.3)."""
        length = self.header("content-length")
        body = message.body_of(self.text).encode("utf-8", "surrogateescape")
        counted = body[: int(length[: message.MAX_LENGTH_DIGITS])] if length.isascii() and length.isdigit() else body
        return counted.decode("utf-8", "surrogateescape")

    def header(self, name: str) -> str:
        return message.header_value(self.text, name)

    def response(self, status: int, *, reason: str = "", tag: str = "", headers: Headers = (), body: str = "") -> bytes:
        """Return a response to it; ``tag`` is ours, if To has none."""
        others = message.header_values(self.text, "via", "v")[1:]
        to = self.header("to")
        if tag and message.dialog_of(self.text) is None:
            to = f"{to};tag={tag}"
        lines = [
            f"SIP/2.0 {status} {reason or REASONS.get(status, 'Refused')}",
            f"Via: {self.via}",
            *(f"Via: {each}" for each in others),
            f"From: {self.header('from')}",
            f"To: {to}",
            f"Call-ID: {self.call_id}",
            f"CSeq: {self.cseq} {self.method}",
            *(f"{name}: {value}" for name, value in headers),
        ]
        return written(lines, body)

    def reply(self, data: bytes) -> None:
        """Send a response to where it belongs (RFC 3261 §18.2.2)."""
        self.flow.send(data, self.reply_to)


def written(lines: Sequence[str], body: str = "") -> bytes:
    """Return a message of these lines and a session description, if there is one."""
    content = body.encode("utf-8", "surrogateescape")
    kind = ["Content-Type: application/sdp"] if body else []
    head = "".join(f"{line}\r\n" for line in (*lines, *kind, f"Content-Length: {len(content)}", ""))
    return head.encode("utf-8", "surrogateescape") + content


def new_tag() -> str:
    return secrets.token_hex(8)


def read(text: str, flow: Flow) -> SipRequest | None:
    """Read a request; ``None`` if not even a response can be made."""
    start = _START.fullmatch(text.split("\r\n", 1)[0])
    vias = message.header_values(text, "via", "v")
    cseq = _CSEQ.fullmatch(message.header_value(text, "cseq"))
    call_id = message.header_value(text, "call-id")
    via = _VIA.fullmatch(vias[0]) if vias else None
    if start is None or via is None or cseq is None or not call_id:
        return None
    if not message.header_value(text, "from") or not message.header_value(text, "to"):
        return None
    branch = _BRANCH.search(via[3])
    request = SipRequest(
        text,
        flow,
        start[1],
        int(cseq[1]),
        call_id,
        _noted_via(via, flow),
        branch[1] if branch is not None else "",
        _reply_to(via, flow),
    )
    request.fault = _fault(text, request)
    return request


def _fault(text: str, request: SipRequest) -> str:
    if message.is_ambiguous(text):
        return "a header that comes once is there twice, or a line ends otherwise than with CR LF"
    if request.cseq >= _MAX_CSEQ:
        return "CSeq is too large"
    return message.contradiction(text)


def _noted_via(via: re.Match[str], flow: Flow) -> str:
    parameters = _RECEIVED.sub("", via[3])
    host = flow.peer[0]
    parameters, asked = _RPORT.subn(f";rport={flow.peer[1]}", parameters)
    sent_by = _SENT_BY.fullmatch(via[2])
    if asked or sent_by is None or sent_by[1] != host:
        parameters += f";received={host}"
    return f"SIP/2.0/{via[1]} {via[2]}{parameters}{via[4] or ''}"


def _reply_to(via: re.Match[str], flow: Flow) -> Address:
    """Return where a response goes over UDP: to the address of the sender, at the port of Via."""
    host, port = flow.peer
    if _RPORT.search(via[3]):
        return host, port
    sent_by = _SENT_BY.fullmatch(via[2])
    written_port = int(sent_by[2]) if sent_by is not None and sent_by[2] else DEFAULT_PORT
    return host, written_port if 0 < written_port <= MAX_PORT else port
