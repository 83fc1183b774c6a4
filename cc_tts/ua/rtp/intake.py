"""Stands between a call's media transport and its stream, for what PJMEDIA does not tell or not do: that RTCP comes and
goes, the extended reports (RFC 3611) of either side and, in the PyPI wheel, that a packet of another payload type is decoded
(the server build does it by itself, in C: ``sip/pjproject/patches/0007-other-payload-types.patch``).

A stream attaches its functions for packets to the SRTP transport, which every call of pjsua has, encrypted or not. That
transport's ``attach2`` is replaced by one that puts the functions here in front, and once anybody needs it its
``send_rtcp``.
Runs on: the SIP thread, and PJMEDIA's I/O thread where a docstring says so.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from cc_tts import logs
from cc_tts.media.quality import VoipMetrics
from cc_tts.ua.guard.c_library import CLibrary
from cc_tts.ua.quality import xr
from cc_tts.ua.rtp.other_payloads import Decoded, OtherPayloads

_OPERATIONS_AT: Final = 40
"""A ``pjmedia_transport`` has its functions here, behind its name and its type."""
_SEND_RTCP, _DESTROY, _ATTACH2, _NUM_OPERATIONS = 4, 11, 12, 13
"""A ``pjmedia_transport_op`` has its functions at these indexes (pjmedia/transport.h)."""
_NEAR: Final = 1 << 27
"""No function of the library is further from another."""
_RTCP_TYPES: Final = range(200, 208)
"""These are SR, RR, SDES, BYE, APP (RFC 3550 §12.1) and what later documents add."""
_MIN_RTCP_BYTES: Final = 8  # the header and the SSRC (RFC 3550 §6.4)
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
_SendRtcp = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(slots=True)
class StreamPackets:
    """The packets of one stream: what they report, and what is done to them."""

    num_rtcp: int = 0
    told: VoipMetrics | None = None
    """How the far side said last that it hears us."""
    ssrcs: tuple[int, int] = (0, 0)
    """Our synchronisation source and that of the far side; 0 for one that is not known yet."""
    reporter: Callable[[], VoipMetrics] | None = None
    """An extended report of what it returns is added to each RTCP packet."""
    others: OtherPayloads | None = None
    """It changes packets of other payload types, if that is done here."""


class Intake:
    """The packets that come for the streams of all calls. ``decodes_others``: packets of other payload types are to be
    changed here.
    """

    def __init__(self, library: CLibrary, *, decodes_others: bool) -> None:
        self._library = library
        self._decodes_others = decodes_others
        self._copy: Callable[[int, bytes, bool], None] | None = None
        self._operations: Any = None
        self._streams: dict[int, StreamPackets] = {}
        self._transports: dict[int, int] = {}
        """The stream that each transport sends for."""
        self._closed = 0  # the stream that was closed last
        self._attach: Any = None
        self._send_rtcp: Any = None
        self._stream_on_rtcp: Any = None
        self._stream_on_rtp: Any = None
        self._hooks = (_Attach(self._on_attach), _OnRtcp(self._on_rtcp), _OnRtp(self._on_rtp))
        self._sending_hook = _SendRtcp(self._on_send_rtcp)

    def install(self) -> None:
        """Replace ``attach2``. Raises ``RuntimeError`` if the build lays out its transports otherwise."""
        self._operations = self._find_operations()
        self._attach = _Attach(self._operations[_ATTACH2])
        self._operations[_ATTACH2] = _address(self._hooks[0])

    def watch_sent(self) -> None:
        """Replace ``send_rtcp`` as well, from now on."""
        if self._send_rtcp is None:
            self._send_rtcp = _SendRtcp(self._operations[_SEND_RTCP])
            self._operations[_SEND_RTCP] = _address(self._sending_hook)

    def copy_rtcp(self, take: Callable[[int, bytes, bool], None] | None) -> None:
        """Have ``take`` get the stream of each RTCP packet, a copy of it, and whether we send it, on any thread; ``None``:
        no more.
        """
        self._copy = take
        if take is not None:
            self.watch_sent()

    def _find_operations(self) -> Any:
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
        if not all(self._is_near(operations[each]) for each in (0, _SEND_RTCP, _DESTROY, _ATTACH2)):
            raise RuntimeError("the functions of a media transport are not laid out as expected")
        _Destroy(operations[_DESTROY])(transport)  # and the other one with it
        return operations

    def _is_near(self, address: int | None) -> bool:
        return address is not None and abs(address - self._library.some_address) < _NEAR

    # --- what the legs ask for ---------------------------------------------------------------------------------------

    def open(self, stream: int) -> StreamPackets:
        if stream == self._closed:  # a new one at the same address
            self._closed = 0
        self._streams[stream] = packets = StreamPackets()
        return packets

    def close(self, stream: int) -> None:
        self._streams.pop(stream, None)
        closed, self._closed = self._closed, stream  # PJMEDIA sends the BYE of a stream (RFC 3550 §6.6) after its end
        self._transports = {transport: each for transport, each in self._transports.items() if each != closed}

    def decode(self, packets: StreamPackets, decoded: Decoded) -> None:
        if self._decodes_others:
            packets.others = OtherPayloads(self._library, decoded)

    # --- what PJMEDIA calls ------------------------------------------------------------------------------------------

    def _on_attach(self, transport: int, parameters: int) -> int:
        wanted = _AttachParameters.from_address(parameters)
        self._transports[transport] = wanted.user_data or 0
        if self._is_near(wanted.on_rtcp) and self._is_near(wanted.on_rtp2):
            # the callbacks of PJMEDIA are the same for all its streams
            self._stream_on_rtcp, self._stream_on_rtp = _OnRtcp(wanted.on_rtcp), _OnRtp(wanted.on_rtp2)
            wanted.on_rtcp = _address(self._hooks[1])
            if self._decodes_others:
                wanted.on_rtp2 = _address(self._hooks[2])
        return int(self._attach(transport, parameters))

    def _on_rtcp(self, stream: int, packet: int, size: int) -> None:
        """Runs on: PJMEDIA's I/O thread."""
        packets = self._streams.get(stream)  # none if the call has let go of it
        if packets is not None and size >= _MIN_RTCP_BYTES:
            first, kind = ctypes.string_at(packet, 2)
            if first & 0xC0 == _VERSION and kind in _RTCP_TYPES:
                packets.num_rtcp += 1
                self._take_rtcp(stream, packets, ctypes.string_at(packet, size))
        self._stream_on_rtcp(stream, packet, size)

    def _take_rtcp(self, stream: int, packets: StreamPackets, data: bytes) -> None:
        packets.told = xr.told(data, about_ssrc=packets.ssrcs[0]) or packets.told
        if (copy := self._copy) is not None:
            copy(stream, data, False)  # noqa: FBT003 - it has come

    def _on_send_rtcp(self, transport: int, packet: int, size: int) -> int:
        """Runs on: the media clock's thread, every five seconds of a call; the SIP thread; PJMEDIA's I/O thread."""
        try:
            data = self._sent(self._transports.get(transport, 0), ctypes.string_at(packet, size))
        except Exception:
            log.exception("rtcp_not_extended")
            return int(self._send_rtcp(transport, packet, size))
        return int(self._send_rtcp(transport, ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data)))

    def _sent(self, stream: int, data: bytes) -> bytes:
        if (packets := self._streams.get(stream)) is not None:  # otherwise the call has released it
            own_ssrc, about_ssrc = packets.ssrcs = xr.ssrcs(data)
            if packets.reporter is not None and about_ssrc:
                data += xr.encoded(packets.reporter(), own_ssrc=own_ssrc, about_ssrc=about_ssrc)
        if (copy := self._copy) is not None:
            copy(stream, data, True)  # noqa: FBT003 - it goes
        return data

    def _on_rtp(self, received_at: int) -> None:
        """Runs on: PJMEDIA's I/O thread."""
        received = _Received.from_address(received_at)
        packets = self._streams.get(received.stream)
        if packets is not None and packets.others is not None and received.size > 0:
            try:
                packets.others.change(received.packet, received.size)
            except Exception:
                packets.others = None
                log.exception("packet_not_decoded", consequence="this stream decodes one codec")
        self._stream_on_rtp(received_at)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
