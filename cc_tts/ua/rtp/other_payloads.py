"""Converts packets of other payload types to the one that a stream decodes, in place.

An answer may name several codecs, and its sender may use any of them at any time (RFC 3264 §6.1, §7); others send with the
numbers of their own SDP. PJMEDIA decodes one payload type, and one of telephone events. PCMU, PCMA and G.722 have 64 kbit/s
each and timestamps of 8 kHz, so a packet of one has the length that it has as one of another. Runs on: PJMEDIA's I/O thread.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cc_tts.media import g711
from cc_tts.ua.guard.c_library import CLibrary

_CODECS: Final = {0: "PCMU", 8: "PCMA", 9: "G722"}
"""These codecs have 64 kbit/s (RFC 3551 §6)."""
_COMFORT_NOISE: Final = 13
"""The far side is silent meanwhile (RFC 3551 §6)."""
_FIRST_DYNAMIC: Final = 96
_EVENT_BYTES: Final = 4
"""A telephone event has this size (RFC 4733 §2.3)."""
_MAX_EVENT: Final = 16
"""0 to 15 are keys (RFC 4733 §3.2), and 16 is the flash."""
_HEADER_BYTES: Final = 12
_STATE_BYTES: Final = 4_096
"""PJMEDIA's ``g722_dec_t`` and ``g722_enc_t`` are smaller; they have some 130 numbers."""
_G722_SHIFT: Final = 2
"""Its samples have 14 bits."""

_Samples = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The format that a stream decodes: its codec, by its number in our SDP and in the far side's, and our number for
    telephone events.
    """

    codec: str
    payload_type: int
    sent_payload_type: int
    event_type: int


class OtherPayloads:
    """Converts the packets of one stream."""

    def __init__(self, library: CLibrary, decoded: Decoded) -> None:
        self._decoded = decoded
        self._g722 = _G722(library)
        self.num_unknown = 0  # packets that nothing was made of

    def change(self, at: int, size: int) -> None:
        packet = ctypes.string_at(at, size)
        decoded = self._decoded
        payload_type = packet[1] & 0x7F if size > _HEADER_BYTES else decoded.payload_type
        if payload_type in (decoded.payload_type, decoded.event_type):
            return
        begin, end = _payload(packet)
        if begin == end:
            return
        taken_for = decoded.payload_type
        codec = _CODECS.get(payload_type, "")
        if codec and payload_type != decoded.sent_payload_type and decoded.codec in _CODECS.values():
            ctypes.memmove(at + begin, self._transcoded(packet[begin:end], codec), end - begin)
        elif payload_type >= _FIRST_DYNAMIC and end - begin == _EVENT_BYTES and packet[begin] <= _MAX_EVENT:
            taken_for = decoded.event_type  # an event under a number that is not ours: nothing else is so short
        elif payload_type != decoded.sent_payload_type:
            self.num_unknown += payload_type != _COMFORT_NOISE
            return
        ctypes.memset(at + 1, packet[1] & 0x80 | taken_for, 1)

    def _transcoded(self, payload: bytes, codec: str) -> bytes:
        if codec == "G722":
            pcm = self._g722.decode(payload)
        else:
            octets = g711.alaw_decode(payload) if codec == "PCMA" else g711.ulaw_decode(payload)
            pcm = np.frombuffer(octets, "<i2").astype(np.int32)
        if self._decoded.codec == "G722":
            return self._g722.encode(pcm)
        samples = pcm.astype("<i2").tobytes()
        return g711.alaw_encode(samples) if self._decoded.codec == "PCMA" else g711.ulaw_encode(samples)


def _payload(packet: bytes) -> tuple[int, int]:
    """Return the start and the end of the payload (RFC 3550 §5.1, §5.3.1); an empty range if the packet is malformed."""
    begin = _HEADER_BYTES + 4 * (packet[0] & 0x0F)
    if packet[0] & 0x10 and len(packet) >= begin + 4:
        begin += 4 + 4 * int.from_bytes(packet[begin + 2 : begin + 4])
    end = len(packet) - (packet[-1] if packet[0] & 0x20 else 0)
    return (begin, end) if begin < end else (0, 0)


class _G722:
    """PJMEDIA's G.722 codec, between its octets and samples of 8 kHz."""

    def __init__(self, library: CLibrary) -> None:
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self._states = [ctypes.create_string_buffer(_STATE_BYTES) for _ in ("decoder", "encoder")]
        for name, state in zip(("g722_dec_init", "g722_enc_init"), self._states, strict=True):
            library.bind(name, ctypes.c_int, pointer)(ctypes.byref(state))
        self._decode = library.bind("g722_dec_decode", ctypes.c_int, pointer, pointer, size, pointer, pointer)
        self._encode = library.bind("g722_enc_encode", ctypes.c_int, pointer, pointer, size, pointer, pointer)
        self._last = 0

    def decode(self, octets: bytes) -> _Samples:
        """Return two samples of 16 kHz for each octet; of those, a weighted mean of three around every second one."""
        wide = np.zeros(2 * len(octets), np.int16)
        self._run(self._decode, 0, octets, len(octets), wide, wide.size)
        samples = np.concatenate(([self._last], wide)).astype(np.int32)
        self._last = int(wide[-1])
        narrow = (samples[:-1:2] + 2 * samples[1::2] + samples[2::2]) * (1 << _G722_SHIFT) // 4
        clipped: _Samples = np.clip(narrow, -32_768, 32_767)
        return clipped

    def encode(self, pcm: _Samples) -> bytes:
        """Return each sample, after the mean of it and the one before it."""
        samples = pcm >> _G722_SHIFT
        wide = np.repeat(samples, 2)
        wide[::2] = (np.concatenate(([self._last], samples[:-1])) + samples) // 2
        self._last = int(samples[-1])
        octets = np.zeros(len(samples), np.uint8)
        self._run(self._encode, 1, wide.astype(np.int16).tobytes(), wide.size, octets, octets.size)
        return octets.tobytes()

    def _run(self, function: Any, state: int, given: bytes, count: int, result: npt.NDArray[Any], room: int) -> None:
        given_at = ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p)
        function(
            ctypes.byref(self._states[state]), given_at, count, result.ctypes.data, ctypes.byref(ctypes.c_size_t(room))
        )
