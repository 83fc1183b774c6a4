"""Answers what must not become a call: 503 with Retry-After to INVITE and OPTIONS over the limit (RFC 3261 §21.5.4,
§20.33), 405, 481 or 489 to methods that are not served outside a dialog (§8.2.1, §12.2.2).

pjsua answers 486 when its call table is full and always 200 to OPTIONS, and offers no callback to change either. PJSIP's
own way is a module in front of pjsua's; pjsua2 does not wrap that, but the extension module exports PJSIP's C functions,
and four of them are enough. The module sits just before the application layer, so retransmissions and requests inside a
dialog never reach it. Only the two list pointers of a header and the public head of ``pjsip_module`` are laid out here;
everything else is opaque. If a build hides the symbols, the gate says so and pjsua's answers stand.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

from cc_tts import logs
from cc_tts.ua.sip_thread import SipThread

_PRIORITY: Final = 62
"""Before PJSIP_MOD_PRIORITY_APPLICATION (64) and the modules just under it, after the dialog layer (48)."""
ALLOWED: Final = "INVITE, ACK, BYE, CANCEL, OPTIONS, INFO, PRACK, UPDATE"
_PASSED: Final = frozenset((b"INVITE", b"OPTIONS", b"ACK"))
_STRAY: Final = frozenset((b"BYE", b"CANCEL", b"INFO", b"PRACK", b"UPDATE", b"NOTIFY"))
"""Methods that belong into a dialog: without one 481 (RFC 3261 §12.2.2)."""
_POOL_BYTES: Final = 1024

log = logs.get(__name__)


class _Str(ctypes.Structure):
    _fields_ = (("ptr", ctypes.c_char_p), ("slen", ctypes.c_ssize_t))


class _ListHead(ctypes.Structure):
    _fields_ = (("prev", ctypes.c_void_p), ("next", ctypes.c_void_p), ("rest", ctypes.c_byte * 128))


_OnRequest = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _Module(ctypes.Structure):
    """``struct pjsip_module`` (pjsip/sip_module.h)."""

    _fields_ = (
        ("prev", ctypes.c_void_p),
        ("next", ctypes.c_void_p),
        ("name", _Str),
        ("id", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("load", ctypes.c_void_p),
        ("start", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("unload", ctypes.c_void_p),
        ("on_rx_request", _OnRequest),
        ("on_rx_response", ctypes.c_void_p),
        ("on_tx_request", ctypes.c_void_p),
        ("on_tx_response", ctypes.c_void_p),
        ("on_tsx_state", ctypes.c_void_p),
    )


class CLibrary:
    """PJSIP's C functions as the pjsua2 extension module exports them."""

    def __init__(self) -> None:
        import pjsua2

        extension: Any = getattr(pjsua2, "_pjsua2", None)
        if extension is None:
            from pjsua2 import pjsua2 as wrapper

            extension = wrapper._pjsua2  # noqa: SLF001 - where SWIG keeps the extension module
        self._library = ctypes.CDLL(extension.__file__)
        self.register_module = self._bind("pjsip_endpt_register_module", ctypes.c_int, 2)
        self.respond_stateless = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
        )(("pjsip_endpt_respond_stateless", self._library))
        self.header_create = self._bind("pjsip_generic_string_hdr_create", ctypes.c_void_p, 3)
        self.rx_data_info = self._bind("pjsip_rx_data_get_info", ctypes.c_char_p, 1)
        self.endpoint = self._bind("pjsua_get_pjsip_endpt", ctypes.c_void_p, 0)
        self.pool_create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t)(
            ("pjsua_pool_create", self._library)
        )
        self.pool_release = self._bind("pj_pool_release", None, 1)
        self.set_log_level = ctypes.CFUNCTYPE(None, ctypes.c_int)(("pj_log_set_level", self._library))
        self.num_calls = ctypes.CFUNCTYPE(ctypes.c_uint)(("pjsua_call_get_count", self._library))
        self.max_calls = ctypes.CFUNCTYPE(ctypes.c_uint)(("pjsua_call_get_max_count", self._library))

    def _bind(self, name: str, result: Any, num_pointers: int) -> Any:
        prototype = ctypes.CFUNCTYPE(result, *([ctypes.c_void_p] * num_pointers))
        return prototype((name, self._library))


class Gate:
    """The module in front of pjsua. ``refusal`` is asked for each new INVITE and OPTIONS: seconds for Retry-After, or
    ``None`` to let it pass. Runs on: the SIP thread.
    """

    def __init__(self, library: CLibrary, *, refusal: Callable[[], int | None], on_refused: Callable[[], None]) -> None:
        self._c = library
        self._refusal = refusal
        self._on_refused = on_refused
        self._callback = _OnRequest(self._on_request)  # kept alive as long as PJSIP may call it
        self._module = _Module(
            name=_Str(b"mod-cc-tts-gate", 15), id=-1, priority=_PRIORITY, on_rx_request=self._callback
        )

    def install(self) -> None:
        """Register with PJSIP.

        Raises:
            RuntimeError: PJSIP refuses the module.
        """
        SipThread.check()
        status = self._c.register_module(self._c.endpoint(), ctypes.addressof(self._module))
        if status:
            raise RuntimeError(f"pjsip_endpt_register_module: status {status}")

    def _on_request(self, rdata: int) -> int:
        """Tell PJSIP whether the request is taken (1) or goes on (0)."""
        try:
            words = self._c.rx_data_info(rdata).split(b" ", 3)
            method = words[2].split(b"/", 1)[0] if len(words) > 2 else b""  # noqa: PLR2004 - "Request msg INVITE/cseq=1"
            if method in _STRAY:
                self._respond(rdata, 481)
            elif method == b"SUBSCRIBE":
                self._respond(rdata, 489)  # Bad Event (RFC 6665 §4.2.1): no event package is served
            elif method not in _PASSED:
                self._respond(rdata, 405, "Allow", ALLOWED)
            elif method == b"ACK" or (retry_after_s := self._refusal()) is None:
                return 0
            else:
                self._respond(rdata, 503, "Retry-After", str(retry_after_s))
                if method == b"INVITE":
                    self._on_refused()
        except Exception:
            log.exception("gate_failed")
            return 0
        return 1

    def _respond(self, rdata: int, code: int, name: str = "", value: str = "") -> None:
        """Answer without a transaction, with one header if ``name`` is given."""
        if not name:
            self._c.respond_stateless(self._c.endpoint(), rdata, code, None, None, None)
            return
        pool = self._c.pool_create(b"gate", _POOL_BYTES, _POOL_BYTES)
        try:
            texts = [_Str(text.encode(), len(text)) for text in (name, value)]
            header = self._c.header_create(pool, *(ctypes.addressof(text) for text in texts))
            head = _ListHead(prev=header, next=header)
            links = _ListHead.from_address(header)
            links.prev = links.next = ctypes.addressof(head)
            # PJSIP clones the listed headers into the response before it returns
            self._c.respond_stateless(self._c.endpoint(), rdata, code, None, ctypes.addressof(head), None)
        finally:
            self._c.pool_release(pool)
