"""The Via that the dispatcher adds to a request and removes from the response (RFC 3261 §16.11, RFC 3581).

It adds a Via of its own. The parameters :data:`SOURCE` and :data:`PORT` of that Via say where the request came from and
where the responses go, so that the dispatcher keeps no transactions, and a UA process knows the sender's address.
"""

import hashlib
import re
from typing import Final

from cc_tts.config.sip_uri import MAX_PORT

SOURCE: Final = "cc-tts-source"
PORT: Final = "cc-tts-port"
Address = tuple[str, int]

_REQUEST_LINE: Final = re.compile(rb"([A-Za-z0-9.!%*_+`'~-]+) +[^\s]+ +SIP/2\.0[ \t]*\r?\n")
"""RFC 3261 §7.1. The method is a token (§25.1), so that no header can stand in its place."""
_VIA: Final = re.compile(rb"^(?:via|v)[ \t]*:\s*((?:[^,\r\n]|\r?\n[ \t])*)", re.IGNORECASE | re.MULTILINE)
"""The first value of the first Via; lines that begin with white space continue the one before (RFC 3261 §7.3.1)."""
_CALL_ID: Final = re.compile(rb"^(?:call-id|i)[ \t]*:\s*(\S*)", re.IGNORECASE | re.MULTILINE)
_CSEQ: Final = re.compile(rb"^cseq[ \t]*:\s*(\d{1,10})", re.IGNORECASE | re.MULTILINE)
_SENT_BY: Final = re.compile(rb"SIP\s*/\s*2\.0\s*/\s*UDP\s+[^\s;:]+(?:\s*:\s*(\d{1,5}))?", re.IGNORECASE)
_RECEIVED: Final = re.compile(rb"(?<!\s)\s*+;\s*+received\s*+=[^;]*", re.IGNORECASE)
_RPORT: Final = re.compile(rb";\s*rport(?:\s*=[^;]*)?(?=\s*(?:;|$))", re.IGNORECASE)
_BRANCH: Final = re.compile(rb";\s*branch\s*=\s*([^;\s]+)", re.IGNORECASE)
_OUR_VIA: Final = re.compile(
    rf"^Via:[^\r\n]*;{SOURCE}=(\d{{1,3}}(?:\.\d{{1,3}}){{3}});{PORT}=(\d{{1,5}})(?!\d)[^\r\n]*\r\n".encode(),
    re.MULTILINE,
)
_COPIED: Final = re.compile(
    rb"^(?:via|v|from|f|(to|t)|call-id|i|cseq)[ \t]*:(?:[^\r\n]|\r?\n[ \t])*", re.IGNORECASE | re.MULTILINE
)
"""A response repeats these headers (RFC 3261 §8.2.6.2), folded ones whole; the group is there for To."""
_TAG: Final = re.compile(rb";\s*tag\s*=", re.IGNORECASE)
_END_OF_HEADERS: Final = re.compile(rb"\r?\n\r?\n")


def method_of(datagram: bytes) -> bytes:
    """Return the method of a request; empty for a response and for what is not SIP."""
    return _group(_REQUEST_LINE.match(datagram))


def call_id_of(datagram: bytes) -> bytes:
    """Return the Call-ID of a message; empty without one."""
    return _group(_CALL_ID.search(_head(datagram)))


def forwarded(request: bytes, source: Address, via: Address) -> bytes | None:
    """Return ``request``, which came from ``source``, with a Via that routes its responses to ``via``; ``None`` if it has no
    Via.

    The client's own Via gets ``received`` and, if it asks for it, ``rport`` (RFC 3581 §4). The new branch is the same for
    a retransmission, for the CANCEL and for the ACK to a refusal (RFC 3261 §16.11).
    """
    head = _head(request)
    found = _VIA.search(head)
    if found is None or not found.start():
        return None
    value, branch, cseq = _with_source(found[1], source), _BRANCH.search(found[1]), _CSEQ.search(head)
    transaction = (source[0].encode(), _group(branch, found[1]), call_id_of(head), _group(cseq))
    digest = hashlib.blake2b(b"\0".join(transaction), digest_size=12).hexdigest()
    sent_by = f"{via[0]}:{via[1]};branch=z9hG4bK{digest}"
    own = f"Via: SIP/2.0/UDP {sent_by};{SOURCE}={source[0]};{PORT}={_reply_port(found[1], source)}\r\n".encode()
    start = request.index(b"\n") + 1
    return request[:start] + own + request[start : found.start(1)] + value + request[found.end(1) :]


def returned(response: bytes) -> tuple[bytes, Address] | None:
    """Return ``response`` without the dispatcher's Via, and its destination; ``None`` if the first Via is not the
    dispatcher's.
    """
    head = _head(response)
    found = _OUR_VIA.search(head)
    first = _VIA.search(head)
    if found is None or first is None or first.start() != found.start() or int(found[2]) > MAX_PORT:
        return None
    return response[: found.start()] + response[found.end() :], (found[1].decode(), int(found[2]))


def sender_port(response: bytes) -> int:
    """Return the port of the request's sender from the first Via; 0 if it is no response."""
    found = _VIA.search(_head(response)) if response.startswith(b"SIP/2.0 ") else None
    return int(_group(_SENT_BY.match(_group(found)), b"0"))


def source_of(request: str) -> str:
    """Return the host in the dispatcher's Via, empty without one. Anybody can forge one: use it only for messages of the
    dispatcher.
    """
    back = returned(request.encode("utf-8", "surrogateescape"))
    return back[1][0] if back else ""


def refusal(request: bytes, source: Address, *, retry_after_s: int) -> tuple[bytes, Address] | None:
    """Return a 503 with Retry-After (RFC 3261 §21.5.4) and its destination; ``None`` if the request has no Via."""
    head = _head(request)
    found = _VIA.search(head)
    if found is None:
        return None
    marked = head[: found.start(1)] + _with_source(found[1], source) + head[found.end(1) :]
    text = response(marked, "503 Service Unavailable", f"Retry-After: {retry_after_s}")
    return text, (source[0], _reply_port(found[1], source))


def response(head: bytes, status: str, *headers: str) -> bytes:
    """Return a response without a transaction to the request with these headers (RFC 3261 §8.2.6.2, §8.2.7)."""
    tag = b";tag=" + hashlib.blake2b(call_id_of(head), digest_size=8).hexdigest().encode()
    copied = [each[0] + tag if each[1] and not _TAG.search(each[0]) else each[0] for each in _COPIED.finditer(head)]
    end = "".join(f"{each}\r\n" for each in (*headers, "Content-Length: 0", ""))
    return b"\r\n".join([f"SIP/2.0 {status}".encode(), *copied, end.encode()])


def _head(message: bytes) -> bytes:
    end = _END_OF_HEADERS.search(message)
    return message[: end.start()] if end else message


def _with_source(via: bytes, source: Address) -> bytes:
    marked = _RECEIVED.sub(b"", via).rstrip()
    marked = _RPORT.sub(f";rport={source[1]}".encode(), marked)
    return marked + f";received={source[0]}".encode()


def _reply_port(via: bytes, source: Address) -> int:
    """Return the source port if the client asks for it by ``rport``, else that of its Via (RFC 3261 §18.2.2)."""
    port = 0 if _RPORT.search(via) else int(_group(_SENT_BY.match(via), b"5060"))
    return port if 0 < port <= MAX_PORT else source[1]


def _group(found: re.Match[bytes] | None, otherwise: bytes = b"") -> bytes:
    """Return the first group of a match, if there is one and it took part in it."""
    return (found and found[1]) or otherwise
