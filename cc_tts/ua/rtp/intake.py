"""Stands between a call's media transport and its stream, for what PJMEDIA does not tell or not do: that RTCP has come and,
in the PyPI wheel, that a packet of another payload type is decoded (the server build does it by itself, in C:
``sip/pjproject/patches/0007-other-payload-types.patch``).

A stream attaches its functions for packets to the SRTP transport, which every call of pjsua has, encrypted or not. That
transport's ``attach2`` is replaced by one that puts the functions here in front. Runs on: the SIP thread, and PJMEDIA's I/O
thread where a docstring says so.
"""

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any, Final

from cc_tts import logs
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.rtp.other_payloads import Decoded, OtherPayloads

_OPERATIONS_AT: Final = 40
"""A ``pjmedia_transport`` has its functions here, behind its name and its type."""
_DESTROY, _ATTACH2, _NUM_OPERATIONS = 11, 12, 13
"""A ``pjmedia_transport_op`` has its functions at these indexes (pjmedia/transport.h)."""
_NEAR: Final = 1 << 27
"""No function of the library is further from another."""
_RTCP_TYPES: Final = range(200, 208)
"""These are SR, RR, SDES, BYE, APP (RFC 3550 §12.1) and what later documents add."""
_MIN_RTCP_BYTES: Final = 8  # unmeasured
_VERSION: Final = 0x80
"""The version is 2, in the first two bits (RFC 3550 §6.4.1)."""

log = logs.get(__name__)


class _AttachParameters(ctypes.Structure):
    """The C structure ``pjmedia_transport_attach_param`` (pjmedia/transport.h)."""

    _fields_ = (
        ("stream", ctypes.c_void_p),
        ("media_type", ctypes.c_int),
        ("addresses", ctypes.c_byte * 56),
        ("address_length", ctypes.c_uint),
        ("user_data", ctypes.c_void_p),
        ("on_rtp", ctypes.c_void_p),
        ("on_rtcp", ctypes.c_void_p),
        ("on_rtp2", ctypes.c_void_p),
    )


class _Received(ctypes.Structure):
    """The beginning of a ``pjmedia_tp_cb_param``."""

    _fields_ = (("stream", ctypes.c_void_p), ("packet", ctypes.c_void_p), ("size", ctypes.c_ssize_t))


_Attach = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Destroy = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_OnRtcp = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t)
_OnRtp = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Intake:
    """The packets that come for the streams of all calls. ``decodes_others``: packets of other payload types are to be
    changed here.
    """

    def __init__(self, library: CLibrary, *, decodes_others: bool) -> None:
        self._library = library
        self._decodes_others = decodes_others
        self.on_rtcp: Callable[[int, bytes], None] | None = None
        """Gets the stream of each RTCP packet, and a copy of it. Runs on: PJMEDIA's I/O thread."""
        self._num_rtcp: dict[int, int] = {}
        self._others: dict[int, OtherPayloads] = {}
        self._attach: Any = None
        self._stream_on_rtcp: Any = None
        self._stream_on_rtp: Any = None
        self._hooks = (_Attach(self._on_attach), _OnRtcp(self._on_rtcp), _OnRtp(self._on_rtp))

    def install(self) -> None:
        """Replace ``attach2``. Raises ``RuntimeError`` if the build lays out its transports otherwise."""
        operations = self._operations()
        self._attach = _Attach(operations[_ATTACH2])
        operations[_ATTACH2] = _address(self._hooks[0])

    def _operations(self) -> Any:
        """Return the table of functions that all SRTP transports have."""
        endpoint = ctypes.c_void_p(self._library.bind("pjsua_get_pjmedia_endpt", ctypes.c_void_p)())
        create = "pjmedia_transport_loop_create", "pjmedia_transport_srtp_create"
        pointer = ctypes.c_void_p
        loop, transport = pointer(), pointer()
        failed = self._library.bind(create[0], ctypes.c_int, pointer, pointer)(endpoint, ctypes.byref(loop))
        if not failed:
            create_srtp = self._library.bind(create[1], ctypes.c_int, pointer, pointer, pointer, pointer)
            failed = create_srtp(endpoint, loop, None, ctypes.byref(transport))
        if failed or not transport.value:
            raise RuntimeError(f"no SRTP transport: status {failed}")
        at = ctypes.c_size_t.from_address(transport.value + _OPERATIONS_AT).value
        if not self._is_near(at):
            raise RuntimeError("a media transport is not laid out as expected")
        operations = (ctypes.c_size_t * _NUM_OPERATIONS).from_address(at)
        if not all(self._is_near(operations[each]) for each in (0, _DESTROY, _ATTACH2)):
            raise RuntimeError("the functions of a media transport are not laid out as expected")
        _Destroy(operations[_DESTROY])(transport)  # and the other one with it
        return operations

    def _is_near(self, address: int | None) -> bool:
        """Whether an address may be one of the library's."""
        return address is not None and abs(address - self._library.some_address) < _NEAR

    # --- what the legs ask for ---------------------------------------------------------------------------------------

    def open(self, stream: int) -> None:
        self._num_rtcp[stream] = 0

    def close(self, stream: int) -> None:
        self._num_rtcp.pop(stream, None)
        self._others.pop(stream, None)

    def num_rtcp(self, stream: int) -> int:
        return self._num_rtcp.get(stream, 0)

    def num_unknown(self, stream: int) -> int:
        """Return how many packets of RTP nothing was made of, as far as they are changed here."""
        others = self._others.get(stream)
        return others.num_unknown if others else 0

    def decode(self, stream: int, decoded: Decoded) -> None:
        if self._decodes_others and stream in self._num_rtcp:
            self._others[stream] = OtherPayloads(self._library, decoded)

    # --- what PJMEDIA calls ------------------------------------------------------------------------------------------

    def _on_attach(self, transport: int, parameters: int) -> int:
        wanted = _AttachParameters.from_address(parameters)
        if self._is_near(wanted.on_rtcp) and self._is_near(wanted.on_rtp2):
            # those of PJMEDIA's streams are the same for all
            self._stream_on_rtcp, self._stream_on_rtp = _OnRtcp(wanted.on_rtcp), _OnRtp(wanted.on_rtp2)
            wanted.on_rtcp = _address(self._hooks[1])
            if self._decodes_others:
                wanted.on_rtp2 = _address(self._hooks[2])
        return int(self._attach(transport, parameters))

    def _on_rtcp(self, stream: int, packet: int, size: int) -> None:
        """Runs on: PJMEDIA's I/O thread."""
        if size >= _MIN_RTCP_BYTES:
            first, kind = ctypes.string_at(packet, 2)
            if first & 0xC0 == _VERSION and kind in _RTCP_TYPES:
                with contextlib.suppress(KeyError):  # the call has let go of it
                    self._num_rtcp[stream] += 1
                    if (copy := self.on_rtcp) is not None:
                        copy(stream, ctypes.string_at(packet, size))
        self._stream_on_rtcp(stream, packet, size)

    def _on_rtp(self, received_at: int) -> None:
        """Runs on: PJMEDIA's I/O thread."""
        received = _Received.from_address(received_at)
        others = self._others.get(received.stream)
        if others is not None and received.size > 0:
            try:
                others.change(received.packet, received.size)
            except Exception:
                self._others.pop(received.stream, None)
                log.exception("packet_not_decoded", consequence="this stream decodes one codec")
        self._stream_on_rtp(received_at)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
