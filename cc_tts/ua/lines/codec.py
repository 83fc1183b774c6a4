"""The audio formats of Asterisk's lines, converted to and from the rate of our lines."""

import sys
from collections.abc import Callable
from typing import Final

from cc_tts.media import g711
from cc_tts.media.half_band import HalfBand

_Convert = Callable[[bytes], bytes]


def _same(pcm: bytes) -> bytes:
    return pcm


FORMATS: Final[dict[str, tuple[int, int, _Convert, _Convert, str]]] = {
    "ulaw": (8000, 1, g711.ulaw_decode, g711.ulaw_encode, "PCMU"),
    "alaw": (8000, 1, g711.alaw_decode, g711.alaw_encode, "PCMA"),
    "slin": (8000, 2, _same, _same, "L16"),
    "slin16": (16000, 2, _same, _same, "L16"),
}
"""Asterisk's names: sample rate, octets of a sample, to PCM, from PCM, and the name of the encoding (RFC 3551)."""


class LineCodec:
    """One format, in both directions. The input may be cut anywhere."""

    def __init__(self, name: str, line_rate_hz: int) -> None:
        self.rate_hz, self._octets, self._decode, self._encode, self.encoding = FORMATS[name]
        self._rest = b""
        self._inward = HalfBand(self.rate_hz, line_rate_hz)
        self._outward = HalfBand(line_rate_hz, self.rate_hz)

    def decode(self, data: bytes) -> bytes:
        """Return PCM at the rate of the line; half a sample waits for the rest."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % self._octets
        self._rest = data[whole:]
        return self._inward.process(self._decode(data[:whole]))

    def encode(self, pcm: bytes) -> bytes:
        return self._encode(self._outward.process(pcm))


assert sys.byteorder == "little", "PCM in this program is little-endian"
