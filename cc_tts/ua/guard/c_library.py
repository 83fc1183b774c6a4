"""C functions of PJSIP that pjsua2 exports and does not wrap. Runs on: the SIP thread.

The text of a message comes from pjsua2's own ``SipRxData``, filled by its C++ method, since the layout of ``pjsip_rx_data``
depends on how the library was built.
"""

import ctypes
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from cc_tts import logs
from cc_tts.ua.guard.limits import host_of
from cc_tts.ua.sip import forwarding

_FROM_PJ: Final = "_ZN2pj9SipRxData6fromPjER13pjsip_rx_data"
"""``pj::SipRxData::fromPj(pjsip_rx_data &)`` as the Itanium C++ ABI spells it."""
_SENT_FROM_PJ: Final = "_ZN2pj9SipTxData6fromPjER13pjsip_tx_data"
"""``pj::SipTxData::fromPj(pjsip_tx_data &)`` is spelt likewise."""
_MAX_RX_DATA_BYTES: Final = 60_000
"""A ``pjsip_rx_data`` is smaller; most of it is the packet."""
_BODY_AT: Final = 104
"""A ``pjsip_msg`` has its body here, behind the type, the start line and the list of headers."""
_MEDIA_TYPE_BYTES: Final = 80
"""A ``pjsip_media_type`` has two strings and a list of parameters."""
_PART_BODY_AT: Final = 80
"""A ``pjsip_multipart_part`` has its body here, behind the links of a list and a header."""
_INVITE_STATE_AT: Final = 56
"""A ``pjsip_inv_session`` has its state here, behind its name and three pools."""
_DISCONNECTED: Final = 6
"""This is ``PJSIP_INV_STATE_DISCONNECTED``, the last of the states."""
_PORT_AT: Final = 16
"""A ``pjmedia_sdp_media`` has its port here, behind the kind."""
_MEDIA_AT: Final = 712
"""A ``pjmedia_sdp_session`` says here, behind 68 attributes, how many m-lines there are, and where they are."""
_ENCODING: Final = 1
"""This is ``PJMEDIA_DIR_ENCODING`` (pjmedia/types.h)."""
_DECODING: Final = 2
"""This is ``PJMEDIA_DIR_DECODING`` (pjmedia/types.h)."""

_REPAIRED_KEPT: Final = 16
"""The number of replaced bodies that are kept, although one message is processed at a time; unmeasured."""

log = logs.get(__name__)

OnMessage = Callable[[int], bool]
"""Takes a ``pjsip_rx_data *``; returns whether the message needs no further processing."""
Headers = Sequence[tuple[str, str]]


class String(ctypes.Structure):
    """``pj_str_t``. PJSIP's may end without a NUL. As an argument type it accepts a text, or ``None`` for NULL."""

    _fields_ = (("ptr", ctypes.c_char_p), ("slen", ctypes.c_ssize_t))

    @classmethod
    def of(cls, text: str) -> "String":
        data = text.encode("utf-8", "surrogateescape")
        return cls(data, len(data))

    @classmethod
    def from_param(cls, text: str | None) -> Any:
        """Return ``text``, or a string that is one already, as ctypes wants it."""
        return None if text is None else ctypes.byref(cls.of(text))

    def __bytes__(self) -> bytes:
        return ctypes.string_at(_pointer_at(ctypes.addressof(self)), self.slen) if self.slen > 0 else b""


class SocketAddress(ctypes.Structure):
    """The C structure ``sockaddr_in`` (netinet/in.h)."""

    _fields_ = (
        ("family", ctypes.c_uint16),
        ("port", ctypes.c_uint16),
        ("address", ctypes.c_uint8 * 4),
        ("zero", ctypes.c_uint8 * 8),
    )

    @property
    def host(self) -> str:
        return socket.inet_ntoa(bytes(self.address))


def _pointer_at(address: int) -> int:
    return ctypes.c_size_t.from_address(address).value


class _ListHead(ctypes.Structure):
    _fields_ = (("prev", ctypes.c_void_p), ("next", ctypes.c_void_p), ("rest", ctypes.c_byte * 128))


class _Body(ctypes.Structure):
    """The beginning of a ``pjsip_msg_body`` (pjsip/sip_msg.h)."""

    _fields_ = (
        ("type", String),
        ("subtype", String),
        ("parameters", ctypes.c_byte * 48),
        ("data", ctypes.c_void_p),
        ("length", ctypes.c_uint),
    )


class _SdpInfo(ctypes.Structure):
    """The C structure ``pjsip_sdp_info`` (pjsip-ua/sip_inv.h)."""

    _fields_ = (
        ("body", ctypes.c_void_p),
        ("length", ctypes.c_ssize_t),
        ("error", ctypes.c_int),
        ("sdp", ctypes.c_void_p),
    )


class _Message(ctypes.Structure):
    """The first fields of ``pjsip_rx_data.msg_info`` (pjsip/sip_transport.h)."""

    _fields_ = (("text", ctypes.c_size_t), ("length", ctypes.c_int), ("message", ctypes.c_size_t))


class _ArrayHeader(ctypes.Structure):
    """The C structure ``pjsip_generic_array_hdr`` (pjsip/sip_msg.h)."""

    _fields_ = (
        ("links", ctypes.c_void_p * 2),
        ("type", ctypes.c_int),
        ("name", String),
        ("short_name", String),
        ("vptr", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("values", String * 32),
    )


_OnRx = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _Module(ctypes.Structure):
    """The C structure ``pjsip_module`` (pjsip/sip_module.h)."""

    _fields_ = (
        ("links", ctypes.c_void_p * 2),
        ("name", String),
        ("id", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("load_start_stop_unload", ctypes.c_void_p * 4),
        ("on_rx_request", _OnRx),
        ("on_rx_response", _OnRx),
        ("on_tx_request", _OnRx),
        ("on_tx_response", _OnRx),
        ("on_tsx_state", ctypes.c_void_p),
    )


class CLibrary:
    """PJSIP's functions. Raises ``AttributeError`` if the build hides one of them."""

    def __init__(self) -> None:
        import pjsua2

        extension: Any = getattr(pjsua2, "_pjsua2", None)
        if extension is None:
            from pjsua2 import pjsua2 as wrapper

            extension = wrapper._pjsua2  # noqa: SLF001 - where SWIG keeps the extension module
        self._library = ctypes.CDLL(extension.__file__)
        pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
        self._register_module = self.bind("pjsip_endpt_register_module", integer, pointer, pointer)
        self._respond_stateless = self.bind(
            "pjsip_endpt_respond_stateless", integer, pointer, pointer, integer, String, pointer, pointer
        )
        self._header_create = self.bind("pjsip_generic_string_hdr_create", pointer, pointer, String, String)
        self._rx_data_info = self.bind("pjsip_rx_data_get_info", text, pointer)
        self._find_dialog = self.bind("pjsip_ua_find_dialog", pointer, String, String, String, integer)
        self._invite_of = self.bind("pjsip_dlg_get_inv_session", pointer, pointer)
        self._sdp_info = self.bind("pjsip_rdata_get_sdp_info", pointer, pointer)
        self._find_part = self.bind("pjsip_multipart_find_part", pointer, pointer, pointer, pointer)
        media_type_init = self.bind("pjsip_media_type_init2", None, pointer, text, text)
        self._sdp_type = ctypes.create_string_buffer(_MEDIA_TYPE_BYTES)
        media_type_init(ctypes.byref(self._sdp_type), b"application", b"sdp")
        self._find_header = self.bind("pjsip_msg_find_hdr_by_name", pointer, pointer, String, pointer)
        self._erase = self.bind("pj_list_erase", None, pointer)
        self._capability = self.bind("pjsip_endpt_get_capability", pointer, pointer, integer, pointer)
        self._endpoint = self.bind("pjsua_get_pjsip_endpt", pointer)
        self._endpoint_name = self.bind("pjsip_endpt_name", pointer, pointer)
        self._pool_create = self.bind("pjsua_pool_create", pointer, text, ctypes.c_size_t, ctypes.c_size_t)
        self._pool_release = self.bind("pj_pool_release", None, pointer)
        self._from_pj = self.bind(_FROM_PJ, None, pointer, pointer)
        self.end_transaction = self.bind("pjsip_tsx_terminate", integer, pointer, integer)
        self._end_invite = self.bind("pjsip_inv_terminate", integer, pointer, integer, integer)
        self._dialog_of = self.bind("pjsip_tsx_get_dlg", pointer, pointer)
        self._end_timer = self.bind("pjsip_timer_end_session", integer, pointer)
        self.set_log_level = self.bind("pj_log_set_level", None, integer)
        self._dial_dtmf = self.bind("pjmedia_stream_dial_dtmf", integer, pointer, String)
        self._stream_pause = self.bind("pjmedia_stream_pause", integer, pointer, integer)
        self.send_report = self.bind("pjmedia_stream_send_rtcp_sdes", integer, pointer)
        self._signal_level = self.bind("pjsua_conf_get_signal_level", integer, integer, pointer, pointer)
        self._stream_resume = self.bind("pjmedia_stream_resume", integer, pointer, integer)
        self._media_endpoint = self.bind("pjsua_get_pjmedia_endpt", pointer)
        self._codec_manager = self.bind("pjmedia_endpt_get_codec_mgr", pointer, pointer)
        self._register_factory = self.bind("pjmedia_codec_mgr_register_factory", integer, pointer, pointer)
        self.num_calls = self.bind("pjsua_call_get_count", ctypes.c_uint)
        self.max_calls = self.bind("pjsua_call_get_max_count", ctypes.c_uint)
        self._received: Any = pjsua2.SipRxData()
        self._received_at = int(self._received.this)
        self._sent: Any = None
        self._modules: list[tuple[_Module, Any]] = []
        self.server_header: Headers = ()  # added to every response of respond()
        self.dispatcher = ""  # address and port of the dispatcher; empty without one
        self._message_at = 0
        self._kept_tokens: list[String] = []
        self._repaired: dict[int, Any] = {}  # bodies that replace those of messages, by their address

    def bind(self, name: str, result: Any, *arguments: Any) -> Any:
        """Return a function of the library with these result and argument types."""
        return ctypes.CFUNCTYPE(result, *arguments)((name, self._library))

    @property
    def endpoint(self) -> int:
        return int(self._endpoint())

    def set_name(self, name: bytes) -> None:
        """Have PJSIP's warnings name this agent (RFC 3261 §20.43), not the machine."""
        self._name = String.from_address(self._endpoint_name(self._endpoint()))  # kept, and ``name`` with it
        self._name.ptr, self._name.slen = name, len(name)

    @property
    def some_address(self) -> int:
        return ctypes.cast(self._library.pjsua_get_pjmedia_endpt, ctypes.c_void_p).value or 0

    def register_module(
        self,
        name: bytes,
        priority: int,
        *,
        on_request: OnMessage | None = None,
        on_response: OnMessage | None = None,
        on_sent: OnMessage | None = None,
    ) -> None:
        """Register functions that PJSIP calls for each message that reaches ``priority``. They must not raise. ``on_sent``
        gets a ``pjsip_tx_data *``, and returns ``False``.
        """
        on_rx = [_OnRx(asked) if asked else _OnRx() for asked in (on_request, on_response, on_sent, on_sent)]
        module = _Module(
            name=String(name, len(name)),
            id=-1,
            priority=priority,
            **dict(zip(("on_rx_request", "on_rx_response", "on_tx_request", "on_tx_response"), on_rx, strict=True)),
        )
        self._modules.append((module, on_rx))  # kept alive as long as PJSIP may call them
        if status := self._register_module(self._endpoint(), ctypes.addressof(module)):
            raise RuntimeError(f"pjsip_endpt_register_module: status {status}")

    def received(self, rdata: int) -> tuple[str, str]:
        """Return the source address of a message, and its text as :meth:`message` does."""
        self._from_pj(self._received_at, rdata)
        return self._received.srcAddress, self._received.wholeMsg

    def sent(self, tdata: int) -> tuple[str, str]:
        """Return the destination of a message, and its text, from a ``pjsip_tx_data *`` that has been written."""
        if self._sent is None:
            import pjsua2

            self._sent = pjsua2.SipTxData()
            self._sent_from_pj = self.bind(_SENT_FROM_PJ, None, ctypes.c_void_p, ctypes.c_void_p)
        self._sent_from_pj(int(self._sent.this), tdata)
        return self._sent.dstAddress, self._sent.wholeMsg

    def takes_events(self, stream: int) -> bool:
        """Whether the far side of a ``pjmedia_stream *`` accepts telephone events (RFC 4733)."""
        return bool(stream) and self._dial_dtmf(stream, "") == 0  # no digits: only the status

    def pause_stream(self, stream: int, *, paused: bool) -> None:
        """Stop the RTP of a ``pjmedia_stream *``, or start it again; its timestamps continue."""
        (self._stream_pause if paused else self._stream_resume)(stream, _ENCODING)

    def levels(self, port_id: int) -> tuple[int, int]:
        """Return the level of the last frame that went to a port of the bridge, and of the last that came from it, as μ-law.
        pjsua2 gives percentages, in steps of 2 dB.
        """
        sent, received = ctypes.c_uint(), ctypes.c_uint()
        self._signal_level(port_id, ctypes.byref(sent), ctypes.byref(received))
        return sent.value, received.value

    def drop_received(self, stream: int) -> None:
        """Empty the jitter buffer of a ``pjmedia_stream *``, which is full of old frames while nobody takes them out."""
        self._stream_pause(stream, _DECODING)
        self._stream_resume(stream, _DECODING)

    @property
    def l16_deinit(self) -> int:
        """Return the function that ends PJMEDIA's L16 codec. Raises ``AttributeError`` if the build has no such codec."""
        return ctypes.cast(self._library.pjmedia_codec_l16_deinit, ctypes.c_void_p).value or 0

    def register_codec_factory(self, factory: int) -> int:
        """Register a ``pjmedia_codec_factory *``; return PJMEDIA's status."""
        return int(self._register_factory(self._codec_manager(self._media_endpoint()), factory))

    def method_of(self, rdata: int) -> str:
        """Return the method of a request as PJSIP parsed it, or the status of a response; empty if there is no text."""
        # as in: Request msg INVITE/cseq=1; Response msg 200/INVITE/cseq=1
        words = self._rx_data_info(rdata).decode("utf-8", "surrogateescape").split(" ", 3)
        return words[2].partition("/")[0] if len(words) > 2 else ""  # noqa: PLR2004 - the third word

    def message(self, rdata: int) -> tuple[str, str]:
        """Return the source host of a message and its text, with lone surrogates for bytes that are not UTF-8 (PEP 383)."""
        address, text = self.received(rdata)
        return self.source_host(address, text), text

    def source_host(self, address: str, message: str) -> str:
        """Return the host in ``address``, or the one in the dispatcher's Via if the dispatcher sent it; empty for a
        response.
        """
        return forwarding.source_of(message) if address == self.dispatcher else host_of(address)

    def sdp(self, rdata: int, repaired: Callable[[str], str] = str) -> tuple[str, bool] | None:
        """Return the session description as PJSIP finds it in the body, or in a part of it, and whether PJSIP could read it;
        the first time PJSIP is shown what ``repaired`` makes of it.

        ``None`` if there is none. One of nothing but line ends is not shown to PJSIP, whose parser skips line ends beyond
        the end of the text and then throws where nothing catches.
        """
        if self._is_blank(rdata, repaired):
            return "", False
        info = _SdpInfo.from_address(self._sdp_info(rdata))
        if not info.body:
            return None
        return ctypes.string_at(info.body, info.length).decode("utf-8", "surrogateescape"), not info.error

    def _is_blank(self, rdata: int, repaired: Callable[[str], str]) -> bool:
        """Whether the session description is there and empty; otherwise it is repaired. Raises as :meth:`drop_headers`."""
        at = self._sdp_body(_pointer_at(self._parsed(rdata) + _BODY_AT))
        if not at:
            return False
        body = _Body.from_address(at)
        if body.data in self._repaired:
            return False
        if body.length and not rdata < body.data < rdata + _MAX_RX_DATA_BYTES - body.length:
            raise RuntimeError("the body is not laid out as expected")
        text = ctypes.string_at(body.data, body.length)
        if not text.strip(b"\r\n"):
            return True
        new = repaired(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if new != text:
            self._replace(body, new)
        return False

    def _replace(self, body: _Body, text: bytes) -> None:
        """Replace the text of a body. PJSIP reads it while it processes the message, and copies what it keeps."""
        kept = ctypes.create_string_buffer(text)  # its parser needs the NUL at the end
        at = ctypes.addressof(kept)
        self._repaired[at] = kept
        while len(self._repaired) > _REPAIRED_KEPT:
            del self._repaired[next(iter(self._repaired))]
        body.data, body.length = at, len(text)

    def _sdp_body(self, at: int) -> int:
        """Return the address of the body that is SDP: the message's, at ``at``, or one of its parts; 0 if there is none."""
        body = _Body.from_address(at) if at else _Body()
        main_type = bytes(body.type).lower()
        if main_type == b"multipart":
            part = self._find_part(at, ctypes.byref(self._sdp_type), None)
            return _pointer_at(part + _PART_BODY_AT) if part else 0
        return at if (main_type, bytes(body.subtype).lower()) == (b"application", b"sdp") else 0

    def switch_off(self, rdata: int, indexes: Sequence[int], *, num_media: int) -> None:
        """Make PJSIP see port 0 in these m-lines (RFC 3264 §6). Raises as :meth:`drop_headers`."""
        info = _SdpInfo.from_address(self._sdp_info(rdata))
        has_all = info.sdp and not info.error and ctypes.c_uint.from_address(info.sdp + _MEDIA_AT).value == num_media
        media = list((ctypes.c_size_t * num_media).from_address(info.sdp + _MEDIA_AT + 8)) if has_all else []
        if not media or any(not info.body <= _pointer_at(each) < info.body + info.length for each in media):
            raise RuntimeError("the session description is not laid out as expected")
        for index in indexes:
            ctypes.c_uint16.from_address(media[index] + _PORT_AT).value = 0

    def drop_body(self, rdata: int) -> None:
        """Make PJSIP see a message without its body. Raises as :meth:`drop_headers`."""
        ctypes.c_size_t.from_address(self._parsed(rdata) + _BODY_AT).value = 0

    def drop_headers(self, rdata: int, name: str) -> None:
        """Make PJSIP see a message without the headers of this name, in either form.

        Raises:
            RuntimeError: the build lays out what it received otherwise.
        """
        message = self._parsed(rdata)
        while found := self._find_header(message, name, None):
            self._erase(found)

    def _parsed(self, rdata: int) -> int:
        """Return the ``pjsip_msg`` of a received message. Its distance from the packet depends on the build, so it is found
        by the fields beside it: the address and the length of the text.
        """
        text = self.received(rdata)[1].encode("utf-8", "surrogateescape")
        for at in (self._message_at, *range(0, _MAX_RX_DATA_BYTES, 8)):
            found = _Message.from_address(rdata + at)
            is_inside = rdata < found.text < rdata + _MAX_RX_DATA_BYTES and found.length == len(text)
            if is_inside and ctypes.string_at(found.text, len(text)) == text:
                self._message_at = at
                return int(found.message)
        raise RuntimeError("the received message is not laid out as expected")

    def set_capability(self, kind: int, name: str, tokens: Sequence[str]) -> None:
        """Set the value that PJSIP writes into headers of this kind, a ``pjsip_hdr_e``. Raises as :meth:`drop_headers`."""
        at = self._capability(self._endpoint(), kind, None)
        header = _ArrayHeader.from_address(at) if at else None
        if header is None or header.type != kind or bytes(header.name) != name.encode():
            raise RuntimeError(f"the header {name} is not laid out as expected")
        strings = [String.of(token) for token in tokens]
        self._kept_tokens += strings  # kept alive: the header points to them
        header.values[: len(strings)] = strings
        header.count = len(strings)

    def stop_refreshing(self, transaction: int) -> None:
        """End the timer that refreshes the call (RFC 4028) which a ``pjsip_transaction *`` belongs to."""
        dialog = self._dialog_of(transaction)
        if invite := dialog and self._invite_of(dialog):
            self._end_timer(invite)

    def has_dialog(self, call_id: str, local_tag: str, remote_tag: str) -> bool:
        """Whether there is such a dialog (RFC 3261 §12) of a call that is not over."""
        return self.is_over(call_id, local_tag, remote_tag) is False

    def is_over(self, call_id: str, local_tag: str, remote_tag: str) -> bool | None:
        """Whether this dialog's call is over; ``None`` if PJSIP has no such dialog. Raises as :meth:`drop_headers`."""
        dialog = self._find_dialog(call_id, local_tag, remote_tag, 0)  # 0: do not lock it
        if not dialog:
            return None
        invite = self._invite_of(dialog)
        if not invite:
            return True
        state = ctypes.c_int.from_address(invite + _INVITE_STATE_AT).value
        if not 0 <= state <= _DISCONNECTED:
            raise RuntimeError("a call's state is not where it is expected")
        return state == _DISCONNECTED

    def end_call(self, call_id: str, local_tag: str, remote_tag: str) -> bool:
        """End the call of a dialog without a word to the far side; return whether there was one that was not over. Raises as
        :meth:`drop_headers`.
        """
        if not self.has_dialog(call_id, local_tag, remote_tag):
            return False
        invite = self._invite_of(self._find_dialog(call_id, local_tag, remote_tag, 0))
        status: int = self._end_invite(invite, 408, 1)  # 1: PJSUA is told, and lets its slot go
        return status == 0

    def respond(self, rdata: int, code: int, headers: Headers = (), *, reason: str = "") -> None:
        """Answer without a transaction (RFC 3261 §8.2.7)."""
        pool = self._pool_create(b"response", 2048, 2048)
        try:
            head = _ListHead()
            at = [self._header_create(pool, name, value) for name, value in (*headers, *self.server_header)]
            at.append(ctypes.addressof(head))
            for index, address in enumerate(at):
                links = _ListHead.from_address(address)
                links.prev, links.next = at[index - 1], at[(index + 1) % len(at)]
            # PJSIP clones the listed headers into the response before it returns
            self._respond_stateless(self._endpoint(), rdata, code, reason or None, at[-1], None)
        finally:
            self._pool_release(pool)


def guarded(step: OnMessage, *, otherwise: bool) -> OnMessage:
    """Return ``step`` as a function for PJSIP, with the answer for messages on which it fails."""

    def on_message(data: int) -> bool:
        try:
            return step(data)
        except Exception:
            log.exception("filter_failed")
            return otherwise

    return on_message
