"""L16/8000 (RFC 3551 §4.5.11), for peers that offer nothing else, such as a loopback leg of FreeSWITCH. We accept it, and
offer it only inside a call that already uses it.

PJMEDIA has the codec, but its builds list it at 44.1 kHz alone. Registering a factory that adds 8 kHz to the list is
enough: PJMEDIA's own L16 factory makes the codec, for any rate. PJMEDIA answers and offers whatever is enabled, so the codec
is enabled just before an offer is read or made, and only if it is wanted there. Runs on: the SIP thread.
"""

import ctypes
from typing import Any, Final

from cc_tts import logs
from cc_tts.ua.guard.c_library import CLibrary, String
from cc_tts.ua.guard.sdp_check import L16_PAYLOAD_TYPE

NAME: Final = "L16"
SDP_NAME: Final = "L16/8000"
"""The name of the codec in an SDP."""
CODEC_ID: Final = "L16/8000/1"
_AUDIO: Final = 1
"""This is ``PJMEDIA_TYPE_AUDIO`` (pjmedia/types.h)."""
_PAYLOAD_TYPES: Final = (L16_PAYLOAD_TYPE, 120)
"""These are FreeSWITCH's, and any from 96 on: PJMEDIA compares lower ones by number, the rest by ``a=rtpmap``."""
_LOWEST_PRIORITY: Final = 1
_OFF: Final = 0
log = logs.get(__name__)


class _CodecInfo(ctypes.Structure):
    """The C structure ``pjmedia_codec_info`` (pjmedia/codec.h)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("pt", ctypes.c_uint),
        ("encoding_name", String),
        ("clock_rate", ctypes.c_uint),
        ("channel_cnt", ctypes.c_uint),
    )


_TestAlloc = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_EnumInfo = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(_CodecInfo))


class _FactoryOperations(ctypes.Structure):
    """The C structure ``pjmedia_codec_factory_op`` (pjmedia/codec.h)."""

    _fields_ = (
        ("test_alloc", _TestAlloc),
        ("default_attr", ctypes.c_void_p),
        ("enum_info", _EnumInfo),
        ("alloc_codec", ctypes.c_void_p),
        ("dealloc_codec", ctypes.c_void_p),
        ("destroy", ctypes.c_void_p),
    )


class _Factory(ctypes.Structure):
    """The C structure ``pjmedia_codec_factory`` (pjmedia/codec.h)."""

    _fields_ = (("links_and_data", ctypes.c_void_p * 3), ("op", ctypes.POINTER(_FactoryOperations)))


class L16:
    """Switches L16/8000 on and off, once it is installed."""

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint
        self._is_installed = False
        self._is_on = False

    def install(self, library: CLibrary) -> None:
        """Add the codec, switched off, if the build has it. Raises ``RuntimeError`` if PJMEDIA refuses it."""
        if not any(codec.codecId.startswith(f"{NAME}/") for codec in self._endpoint.codecEnum2()):
            log.warning("no_l16", consequence="offers of L16/8000 alone get 488")
            return
        self._register(library)
        self._endpoint.codecSetPriority(CODEC_ID, _OFF)
        self._is_installed = True

    def before_answer(self, codecs: frozenset[str]) -> None:
        """An offer with these of our codecs is about to be answered: any other codec is preferred to L16."""
        self._switch(on=codecs == {SDP_NAME})

    def before_offer(self, codec: str) -> None:
        """We are about to make an offer in a call that uses this codec now."""
        self._switch(on=codec == NAME)

    def _switch(self, *, on: bool) -> None:
        if self._is_installed and on != self._is_on:
            self._endpoint.codecSetPriority(CODEC_ID, _LOWEST_PRIORITY if on else _OFF)
            self._is_on = on

    def _register(self, library: CLibrary) -> None:
        name = String.of(NAME)

        def enumerate_codecs(_factory: int, count: Any, codecs: Any) -> int:
            for index, payload_type in enumerate(_PAYLOAD_TYPES):
                codecs[index] = _CodecInfo(_AUDIO, payload_type, name, 8000, 1)
            count[0] = len(_PAYLOAD_TYPES)
            return 0

        operations = _FactoryOperations(
            test_alloc=_TestAlloc(lambda _factory, _codec: -1),  # PJMEDIA's own factory makes it
            enum_info=_EnumInfo(enumerate_codecs),
            destroy=library.l16_deinit,  # must be there, and does nothing the second time
        )
        factory = _Factory(op=ctypes.pointer(operations))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object((name, operations, factory)))  # PJMEDIA may go later than Python
        if status := library.register_codec_factory(ctypes.addressof(factory)):
            raise RuntimeError(f"pjmedia_codec_mgr_register_factory: status {status}")
