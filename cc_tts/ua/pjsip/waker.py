"""Ends PJSIP's wait for the network from another thread: it then looks at a socket of ours as at its own.

Runs on: the SIP thread, except :meth:`Waker.wake`.
"""

import contextlib
import ctypes
import socket
from typing import Final

from cc_tts.ua.guard.c_library import CLibrary

_BUFFER_BYTES: Final = 64  # unmeasured: a wake-up has one byte

_OnRead = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
)


class _Callbacks(ctypes.Structure):
    """The C structure ``pj_activesock_cb`` (pj/activesock.h)."""

    _fields_ = (("on_data_read", _OnRead), ("others", ctypes.c_void_p * 5))


class Waker:
    """A pair of sockets, one of which PJSIP reads."""

    def __init__(self, library: CLibrary) -> None:
        """Raise ``RuntimeError`` if PJSIP takes no socket."""
        pointer, integer, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._writer.settimeout(0)
        poller = library.bind("pjsip_endpt_get_ioqueue", pointer, pointer)(library.endpoint)
        pool = library.bind("pjsua_pool_create", pointer, ctypes.c_char_p, size, size)(b"waker", 1024, 1024)
        create = library.bind(
            "pj_activesock_create",
            integer,
            pointer,
            ctypes.c_long,
            integer,
            pointer,
            pointer,
            pointer,
            pointer,
            pointer,
        )
        start = library.bind("pj_activesock_start_read", integer, pointer, pointer, ctypes.c_uint, ctypes.c_uint)
        self._callbacks = _Callbacks(on_data_read=_OnRead(lambda *_: 1))  # go on to read
        made = ctypes.c_void_p()
        status = create(
            pool,
            self._reader.fileno(),
            int(socket.SOCK_DGRAM),
            None,
            poller,
            ctypes.byref(self._callbacks),
            None,
            ctypes.byref(made),
        ) or start(made, pool, _BUFFER_BYTES, 0)
        if status:
            raise RuntimeError(f"pj_activesock_create: status {status}")

    def wake(self) -> None:
        """Have PJSIP return from its wait, or not wait the next time. Runs on: the reader thread."""
        with contextlib.suppress(BlockingIOError):  # it is awake already
            self._writer.send(b"\0")
