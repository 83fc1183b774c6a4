"""Answers 513 (RFC 3261 §21.5.7) to a request that is longer than PJSIP's buffer and came over TCP or TLS, and ends its
connection: nobody knows where the next message would begin. PJSIP drops such a request and says nothing. What is left of it
is read for a moment, as closing a connection with unread bytes would take the answer back. Runs on: the SIP thread.
"""

import ctypes
import ipaddress
import secrets
from collections.abc import Callable
from typing import Final

from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.sip import message as sip_message

_OVERFLOW: Final = 171_062
"""This is ``PJSIP_ERXOVERFLOW`` (pjsip/sip_errno.h)."""
_BY_TRANSPORT: Final = 1
"""This is ``PJSIP_TPSELECTOR_TRANSPORT`` (pjsip/sip_transport.h)."""
_KIND_AT: Final = 80
"""A ``pjsip_transport`` has its kind and the far side's address here, behind its name, four pointers and three flags."""
_AF_INET: Final = 2
_ADDRESS_BYTES: Final = 28
READ_ON_NS: Final = 2_000 * NS_PER_MS
"""The time that the rest of the request may take; unmeasured."""


class _Dropped(ctypes.Structure):
    """The C structure ``pjsip_tp_dropped_data`` (pjsip/sip_transport.h)."""

    _fields_ = (
        ("transport", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("status", ctypes.c_int),
    )


class _Received(ctypes.Structure):
    """The C structure ``pjsip_tp_rx_data`` (pjsip/sip_transport.h)."""

    _fields_ = (("transport", ctypes.c_size_t), ("data", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Selector(ctypes.Structure):
    """The C structure ``pjsip_tpselector`` (pjsip/sip_transport.h)."""

    _fields_ = (("kind", ctypes.c_int), ("no_reuse", ctypes.c_int), ("transport", ctypes.c_size_t))


class _Remote(ctypes.Structure):
    """A ``pjsip_transport_key``: the kind of the transport and a ``sockaddr_in``."""

    _fields_ = (
        ("kind", ctypes.c_long),
        ("family", ctypes.c_uint16),
        ("port", ctypes.c_uint16),
        ("address", ctypes.c_uint8 * 4),
    )


_OnDropped = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_OnReceived = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class LongMessages:
    """``may_answer`` gets the host of each request, and says whether it gets an answer."""

    def __init__(self, library: CLibrary, clock: Clock, *, server: str, may_answer: Callable[[str], bool]) -> None:
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self._clock = clock
        self._server = server
        self._may_answer = may_answer
        self._ending: dict[int, int] = {}  # since when, by the address of the transport
        self._manager = library.bind("pjsip_endpt_get_tpmgr", pointer, pointer)(library.endpoint)
        self._on_drop = library.bind("pjsip_tpmgr_set_drop_data_cb", integer, pointer, pointer)
        self._on_receive = library.bind("pjsip_tpmgr_set_recv_data_cb", integer, pointer, pointer)
        self._hold = library.bind("pjsip_transport_add_ref", integer, size)
        self._let_go = library.bind("pjsip_transport_dec_ref", integer, size)
        self._shut_down = library.bind("pjsip_transport_shutdown", integer, size)
        sent = (pointer, ctypes.c_long, pointer, pointer, ctypes.c_char_p, size, pointer, integer, pointer, pointer)
        self._send_raw = library.bind("pjsip_tpmgr_send_raw", integer, *sent)
        self._hooks = (_OnDropped(self._dropped), _OnReceived(self._received))

    def install(self) -> None:
        self._on_drop(self._manager, ctypes.cast(self._hooks[0], ctypes.c_void_p))

    def tick(self, now_ns: int) -> None:
        """Close the connections whose time is over."""
        for transport, since_ns in list(self._ending.items()):
            if now_ns - since_ns >= READ_ON_NS:
                del self._ending[transport]
                self._shut_down(transport)
                self._let_go(transport)
                if not self._ending:
                    self._on_receive(self._manager, None)

    def _dropped(self, data_at: int) -> None:
        dropped = _Dropped.from_address(data_at)
        if dropped.status != _OVERFLOW or dropped.transport in self._ending:
            return
        transport = dropped.transport
        remote = _Remote.from_address(transport + _KIND_AT)
        host = str(ipaddress.IPv4Address(bytes(remote.address))) if remote.family == _AF_INET else ""
        head = ctypes.string_at(dropped.data, dropped.length).decode("utf-8", "surrogateescape")
        answer = answer_to(head, server=self._server)
        if self._may_answer(host) and answer and host:
            self._send(transport, remote, answer)
        self._hold(transport)  # PJSIP keeps it as long as it is held
        self._on_receive(self._manager, ctypes.cast(self._hooks[1], ctypes.c_void_p))
        self._ending[transport] = self._clock.now_ns()

    def _received(self, data_at: int) -> int:
        received = _Received.from_address(data_at)
        if received.transport in self._ending:
            received.length = 0  # bytes that PJSIP is to look at
        return 0

    def _send(self, transport: int, remote: _Remote, answer: bytes) -> None:
        selector = _Selector(_BY_TRANSPORT, 0, transport)
        address = transport + _KIND_AT + ctypes.sizeof(ctypes.c_long)
        to = (address, _ADDRESS_BYTES)
        selected = ctypes.byref(selector)
        self._send_raw(self._manager, remote.kind, selected, None, answer, len(answer), *to, None, None)


def answer_to(head: str, *, server: str) -> bytes:
    """Return a 513 for the beginning of a request; empty if it is none, or lacks headers that an answer repeats."""
    head = head.rpartition("\r\n")[0]  # the last line is cut
    method = head.partition(" ")[0]
    if method == "ACK" or not sip_message.request_uri(head) or sip_message.is_ambiguous(head):
        return b""
    vias = sip_message.header_values(head, "via", "v")
    if not vias:
        return b""
    to = sip_message.header_value(head, "to")
    tag = "" if sip_message.dialog_of(head) else f";tag={secrets.token_hex(8)}"
    lines = [
        "SIP/2.0 513 Message Too Large",
        *(f"Via: {via}" for via in vias),
        f"From: {sip_message.header_value(head, 'from')}",
        f"To: {to}{tag}",
        f"Call-ID: {sip_message.header_value(head, 'call-id')}",
        f"CSeq: {sip_message.header_value(head, 'cseq')}",
        *([f"Server: {server}"] if server else []),
        "Content-Length: 0",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "surrogateescape")
