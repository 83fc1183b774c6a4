"""Answers requests that PJSIP drops and says nothing to: 513 (RFC 3261 §21.5.7) to one that is longer than its buffer and
came over TCP or TLS, 400 to one that its parser cannot read, 505 to one of another version of SIP. A call that we place ends
with a refusal that PJSIP cannot read.

Where nobody knows where the next message of a connection would begin, the connection is ended. What is left of the message
is read for a moment, as closing a connection with unread bytes would take the answer back. Runs on: the SIP thread.
"""

import ctypes
import socket
from collections.abc import Callable
from typing import Final

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.ua.guard.c_library import CLibrary, SocketAddress
from cc_tts.ua.messages import RefusedCause
from cc_tts.ua.sip import forwarding
from cc_tts.ua.sip import message as sip_message

_OVERFLOW: Final = 171_062
"""This is ``PJSIP_ERXOVERFLOW`` (pjsip/sip_errno.h)."""
_UNREADABLE: Final = frozenset((171_020, 171_050, 171_051))
"""These are ``PJSIP_EINVALIDMSG``, ``PJSIP_EMISSINGHDR`` and ``PJSIP_EINVALIDHDR`` (pjsip/sip_errno.h)."""
_BY_TRANSPORT: Final = 1
"""This is ``PJSIP_TPSELECTOR_TRANSPORT`` (pjsip/sip_transport.h)."""
_KIND_AT: Final = 80
"""A ``pjsip_transport`` has its kind and the far side's address here, behind its name, four pointers and three flags."""
_UDP: Final = 1
"""This is ``PJSIP_TRANSPORT_UDP``, whose far side differs with each message."""
READ_ON_NS: Final = 2 * NS_PER_S
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


_OnDropped = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_OnReceived = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class DroppedMessages:
    """``may_answer`` gets the cause and the host of each request, and says whether it gets an answer; ``on_response`` gets
    the head of each response. PJSIP's buffer holds ``max_message_bytes``.
    """

    def __init__(
        self,
        library: CLibrary,
        clock: Clock,
        *,
        max_message_bytes: int,
        server: str,
        may_answer: Callable[[RefusedCause, str], bool],
        on_response: Callable[[str], None],
    ) -> None:
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self._library = library
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        self._server = server
        self._may_answer = may_answer
        self._on_response = on_response
        self._ending: dict[int, int] = {}  # since when each transport is ending, by its address
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
        is_cut = dropped.status == _OVERFLOW
        if (not is_cut and dropped.status not in _UNREADABLE) or dropped.transport in self._ending:
            return
        length = min(dropped.length, self._max_message_bytes)  # of a cut message PJSIP gives the announced length
        text = ctypes.string_at(dropped.data, length).decode("utf-8", "surrogateescape")
        head = text.rpartition("\r\n")[0] if is_cut else text.partition("\r\n\r\n")[0]  # the last line is cut
        transport = dropped.transport
        is_datagram = ctypes.c_long.from_address(transport + _KIND_AT).value == _UDP
        if sip_message.request_uri(head) and (remote_at := self._remote_at(dropped, is_datagram=is_datagram)):
            self._answer(transport, remote_at, head, is_cut=is_cut)
        elif head.startswith("SIP/2.0 "):
            self._on_response(head)
        if not is_datagram and (is_cut or not has_length(head)):
            self._hold(transport)  # PJSIP keeps it as long as it is held
            self._on_receive(self._manager, ctypes.cast(self._hooks[1], ctypes.c_void_p))
            self._ending[transport] = self._clock.now_ns()

    def _remote_at(self, dropped: _Dropped, *, is_datagram: bool) -> int:
        """Return where the address of the far side is kept; 0 if that is unknown."""
        if not is_datagram:
            return int(dropped.transport) + _KIND_AT + ctypes.sizeof(ctypes.c_long)
        if ctypes.string_at(dropped.data - 1, 1) in b"\r\n":  # it begins in the middle of the buffer
            return 0
        # Behind the buffer a pjsip_rx_data has a zero, the length of what came and the address.
        length_at = dropped.data + self._max_message_bytes + ctypes.sizeof(ctypes.c_size_t)
        is_as_expected = ctypes.c_size_t.from_address(length_at).value == dropped.length
        return length_at + ctypes.sizeof(ctypes.c_size_t) if is_as_expected else 0

    def _answer(self, transport: int, remote_at: int, head: str, *, is_cut: bool) -> None:
        remote = SocketAddress.from_address(remote_at)
        if remote.family != socket.AF_INET:
            return
        host = self._library.source_host(f"{remote.host}:{socket.ntohs(remote.port)}", head)
        answer = answer_to(head, is_cut=is_cut, server=self._server)
        if self._may_answer("too_long" if is_cut else "malformed", host) and answer:
            selected = ctypes.byref(_Selector(_BY_TRANSPORT, 0, transport))
            kind = ctypes.c_long.from_address(transport + _KIND_AT).value
            to = (remote_at, ctypes.sizeof(SocketAddress))
            self._send_raw(self._manager, kind, selected, None, answer, len(answer), *to, None, None)

    def _received(self, data_at: int) -> int:
        received = _Received.from_address(data_at)
        if received.transport in self._ending:
            received.length = 0  # bytes that PJSIP is to look at
        return 0


def has_length(head: str) -> bool:
    """Return whether a message says where it ends."""
    length = sip_message.header_value(head, "content-length")
    return length.isascii() and length.isdigit()


def answer_to(head: str, *, is_cut: bool, server: str) -> bytes:
    """Return the answer to a request whose headers are known as far as ``head`` has them; empty if it is none, or lacks what
    an answer repeats.
    """
    start = head.partition("\r\n")[0]
    if start.startswith("ACK ") or not sip_message.request_uri(head) or sip_message.is_ambiguous(head):
        return b""
    if not sip_message.header_values(head, "via", "v"):
        return b""
    status = _status(start, head, is_cut=is_cut)
    return forwarding.response(
        head.encode("utf-8", "surrogateescape"), status, *([f"Server: {server}"] if server else [])
    )


def _status(start: str, head: str, *, is_cut: bool) -> str:
    if not start.upper().endswith(" SIP/2.0"):
        return "505 Version Not Supported"
    if is_cut:
        return "513 Message Too Large"
    return "400 A header cannot be read" if has_length(head) else "400 Content-Length is no number"
