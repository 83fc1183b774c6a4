"""G.711 as tables (ITU-T G.711): μ-law and A-law octets → 16-bit linear PCM, and back.

Encoding is bit-exact to the reference code of ITU-T G.191 (``ulaw_compress``, ``alaw_compress``). Of μ-law 14 bits of the
magnitude count, and the magnitude of a negative sample is its one's complement. Silence (0) is 0xFF there; 0x7F, the other
zero, is decoded but never made.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

_Samples = npt.NDArray[np.int16]
_Octets = npt.NDArray[np.uint8]

_ULAW_BIAS: Final = 33
_ULAW_MAX: Final = 0x1FFF
_ALAW_TOGGLE: Final = 0x55


def _ulaw_decode_table() -> _Samples:
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((((code & 0x0F) << 1) + _ULAW_BIAS) << ((code >> 4) & 7)) - _ULAW_BIAS << 2
    return np.where(code & 0x80, -magnitude, magnitude).astype("<i2")


def _ulaw_encode_table() -> _Octets:
    sample = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.minimum((np.where(sample < 0, ~sample, sample) >> 2) + _ULAW_BIAS, _ULAW_MAX)
    exponent = np.sum([magnitude >> bit != 0 for bit in range(6, 13)], axis=0, dtype=np.int32)
    code = (exponent << 4) | ((magnitude >> (exponent + 1)) & 0x0F) | np.where(sample < 0, 0x80, 0)
    octets: _Octets = (~code & 0xFF).astype(np.uint8)
    return octets


def _alaw_decode_table() -> _Samples:
    code = np.arange(256, dtype=np.int32) ^ _ALAW_TOGGLE
    exponent = (code >> 4) & 7
    mantissa = ((code & 0x0F) << 4) + 8
    magnitude = np.where(exponent > 0, (mantissa + 0x100) << np.maximum(exponent - 1, 0), mantissa)
    return np.where(code & 0x80, magnitude, -magnitude).astype("<i2")


def _alaw_encode_table() -> _Octets:
    sample = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.where(sample < 0, ~sample, sample) >> 4
    exponent = np.sum([magnitude >> bit != 0 for bit in range(4, 11)], axis=0, dtype=np.int32)
    mantissa = (magnitude >> np.maximum(exponent - 1, 0)) & 0x0F
    code = (exponent << 4) | mantissa | np.where(sample < 0, 0, 0x80)
    octets: _Octets = (code ^ _ALAW_TOGGLE).astype(np.uint8)
    return octets


_ULAW_TO_PCM: Final = _ulaw_decode_table()
_PCM_TO_ULAW: Final = _ulaw_encode_table()
_ALAW_TO_PCM: Final = _alaw_decode_table()
_PCM_TO_ALAW: Final = _alaw_encode_table()


def ulaw_encode(pcm: bytes) -> bytes:
    """16-bit PCM → one μ-law octet a sample."""
    return _PCM_TO_ULAW.take(np.frombuffer(pcm, "<u2")).tobytes()


def ulaw_decode(octets: bytes) -> bytes:
    return _ULAW_TO_PCM.take(np.frombuffer(octets, np.uint8)).tobytes()


def alaw_decode(octets: bytes) -> bytes:
    return _ALAW_TO_PCM.take(np.frombuffer(octets, np.uint8)).tobytes()


def alaw_encode(pcm: bytes) -> bytes:
    """16-bit PCM → one A-law octet a sample."""
    return _PCM_TO_ALAW.take(np.frombuffer(pcm, "<u2")).tobytes()
