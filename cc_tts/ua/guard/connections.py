"""Bounds the SIP connections over TCP of the PyPI wheel. Runs on: the SIP thread.

PJLIB keeps the place of a closed socket for half a second. The wheel is compiled with assertions, and one of them ends the
process with all its calls when a socket finds none of the 64 places free. So each connection, of either direction, is asked
for here before PJSIP makes it.
"""

import contextlib
import ctypes
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from cc_tts.clock import Clock
from cc_tts.ua.capacity import SOCKET_CLOSING_NS
from cc_tts.ua.guard.c_library import CLibrary, SocketAddress

IDLE_TIMEOUT_S: Final = 10
"""A connection that has sent no SIP message is closed after this time, as in the server build (``config_site.h``)."""
_OTHER_SOCKETS: Final = 8
"""The places for what is no connection: UDP, the listener, PJSIP's resolver; unmeasured."""
_TOO_MANY: Final = 70_010
"""This is ``PJ_ETOOMANY`` (pj/errno.h)."""
_NO_PLACE_LEFT: Final = (
    "this pjsua2 is the PyPI wheel, but not one whose TCP connections can be bounded, without which strangers can end it: "
    'take "tcp" out of sip.transports'
)


Peer = tuple[str, int]


class ConnectionBudget:
    """Lets ``most`` connections be open at a time, and ``most`` begin while PJLIB keeps the place of a closed one. So they
    never take more than twice as many places.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._begun: deque[int] = deque(maxlen=most)

    def take(self, num_open: int) -> bool:
        """Return whether another connection may begin while ``num_open`` are open, and count it if so."""
        now_ns = self._clock.now_ns()
        is_burst = len(self._begun) == self._most and now_ns - self._begun[0] <= SOCKET_CLOSING_NS
        if is_burst or num_open >= self._most:
            return False
        self._begun.append(now_ns)
        return True


class SourceShare:
    """Lets one source have no more accepted connections than places are left to others, so that few cannot keep the rest
    out: the first source gets half of the places, the next one half of what is left, and so on (dynamic thresholds,
    Choudhury and Hahne 1998). ``peer_of`` returns where a socket is connected to, ``None`` if it is closed.
    """

    def __init__(self, peer_of: Callable[[int], Peer | None]) -> None:
        self._peer_of = peer_of
        self._peers: dict[int, Peer] = {}

    def take(self, accepted: int, num_free: int) -> bool:
        """Return whether this socket may stay while ``num_free`` places are left, and count it if so."""
        # the number of a closed socket is that of another by now
        self._peers = {
            each: peer for each, peer in self._peers.items() if each != accepted and self._peer_of(each) == peer
        }
        peer = self._peer_of(accepted)
        if peer is None or sum(peer[0] == other for other, _ in self._peers.values()) >= num_free:
            return False
        self._peers[accepted] = peer
        return True


def peer_of(number: int) -> Peer | None:
    """Return where the socket of this number is connected to; ``None`` if it is not, or there is none."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=number)
        try:
            host, port = connection.getpeername()[:2]
        finally:
            connection.detach()
        return host, port
    return None


class _Manager(ctypes.Structure):
    """The beginning of PJSIP's ``pjsip_tpmgr`` (sip_transport.c)."""

    _fields_ = (
        ("table", ctypes.c_void_p),
        ("lock", ctypes.c_void_p),
        ("endpoint", ctypes.c_void_p),
        ("last_factory", ctypes.c_size_t),
        ("first_factory", ctypes.c_size_t),
    )


class _Listener(ctypes.Structure):
    """The beginning of PJSIP's ``tcp_listener`` (sip_transport_tcp.c), which begins with a ``pjsip_tpfactory``."""

    _fields_ = (
        ("name_pool_and_lock", ctypes.c_byte * 64),
        ("kind", ctypes.c_int),
        ("description_and_address", ctypes.c_byte * 84),
        ("connect", ctypes.c_void_p),
        ("connect2_and_destroy", ctypes.c_void_p * 2),
        ("is_registered", ctypes.c_int),
        ("endpoint", ctypes.c_void_p),
        ("manager", ctypes.c_void_p),
        ("socket", ctypes.c_void_p),
        ("bound_address_and_options", ctypes.c_byte * 148),
        ("num_accepts", ctypes.c_uint),
        ("idle_timeout_s", ctypes.c_uint),
    )


class _ActiveSocket(ctypes.Structure):
    """The beginning of PJLIB's ``pj_activesock_t`` (activesock.c), with the callbacks of a listener."""

    _fields_ = (
        ("key", ctypes.c_void_p),
        ("flags", ctypes.c_int * 2),
        ("poller", ctypes.c_void_p),
        ("owner", ctypes.c_size_t),
        ("counts", ctypes.c_uint * 4),
        ("on_data", ctypes.c_void_p * 3),
        ("on_accept", ctypes.c_void_p),
        ("on_accept2", ctypes.c_void_p),
    )


_OnAccept = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_int)
_OnConnect = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_void_p,
)


class Connections:
    """Stands before PJSIP's functions that take a connection or make one. ``on_refused`` gets the host of each that is
    refused; PJLIB has ``max_handles`` places.
    """

    def __init__(self, library: CLibrary, clock: Clock, *, max_handles: int, on_refused: Callable[[str], None]) -> None:
        self._library = library
        self._most = (max_handles - _OTHER_SOCKETS) // 2
        self._budget = ConnectionBudget(self._most, clock)
        self._share = SourceShare(peer_of)
        self._on_refused = on_refused
        self._count = library.bind("pj_hash_count", ctypes.c_uint, ctypes.c_void_p)
        self._hooks = (_OnAccept(self._accept), _OnConnect(self._connect))

    def install(self) -> None:
        """Stand before the listener, once PJSIP has it. Raises ``RuntimeError`` if the library is not as expected."""
        pointer, library = ctypes.c_void_p, self._library
        manager_at = library.bind("pjsip_endpt_get_tpmgr", pointer, pointer)(library.endpoint)
        poller = library.bind("pjsip_endpt_get_ioqueue", pointer, pointer)(library.endpoint)
        owner_of = library.bind("pj_activesock_get_user_data", ctypes.c_size_t, pointer)
        self._manager = _Manager.from_address(manager_at)
        listener_at = self._manager.first_factory
        listener = _Listener.from_address(listener_at)
        if (self._manager.endpoint, listener.endpoint, listener.manager) != (*[library.endpoint] * 2, manager_at):
            raise RuntimeError(_NO_PLACE_LEFT)
        accepting = _ActiveSocket.from_address(listener.socket)
        is_as_expected = (
            owner_of(listener.socket) == listener_at
            and accepting.poller == poller
            and accepting.on_accept
            and not accepting.on_accept2
            and listener.num_accepts == 1
        )
        if not is_as_expected:
            raise RuntimeError(_NO_PLACE_LEFT)
        listener.idle_timeout_s = IDLE_TIMEOUT_S
        self._pass_accepted = _OnAccept(accepting.on_accept)
        self._pass_connect = _OnConnect(listener.connect)
        accepting.on_accept = ctypes.cast(self._hooks[0], pointer)
        listener.connect = ctypes.cast(self._hooks[1], pointer)

    def _accept(self, listening: int, accepted: int, address: int, length: int) -> int:
        num_open = self._count(self._manager.table)
        if self._share.take(accepted, self._most - num_open) and self._budget.take(num_open):
            return int(self._pass_accepted(listening, accepted, address, length))
        os.close(accepted)
        self._on_refused(SocketAddress.from_address(address).host)
        return 1  # go on to accept

    def _connect(self, factory: int, manager: int, endpoint: int, address: int, length: int, made: int) -> int:
        if self._budget.take(self._count(self._manager.table)):
            return int(self._pass_connect(factory, manager, endpoint, address, length, made))
        return _TOO_MANY
