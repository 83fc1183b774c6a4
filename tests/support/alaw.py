"""A-law as the far side makes it, by the reference code of ITU-T G.191."""

import numpy as np


def _compressed(sample: int) -> int:
    """G.191 ``alaw_compress``."""
    value = (~sample if sample < 0 else sample) >> 4
    if value > 15:
        exponent = 1
        while value > 16 + 15:
            value >>= 1
            exponent += 1
        value = value - 16 + (exponent << 4)
    if sample >= 0:
        value |= 0x80
    return value ^ 0x55


_TABLE = np.array([_compressed(sample) for sample in range(-32768, 32768)], np.uint8)


def alaw_encode(pcm: bytes) -> bytes:
    """16-bit PCM → one A-law octet a sample."""
    octets: bytes = _TABLE[np.frombuffer(pcm, "<i2").astype(int) + 32768].tobytes()
    return octets
