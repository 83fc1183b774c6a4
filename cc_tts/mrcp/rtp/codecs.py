"""The codecs of a session, and how their frames are encoded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cc_tts.media.g711 import alaw_encode, ulaw_encode


def _network_order(pcm: bytes) -> bytes:
    """L16 has the most significant octet first (RFC 3551 §4.5.11)."""
    return np.frombuffer(pcm, "<i2").astype(">i2").tobytes()


_ENCODERS: Final[dict[tuple[str, int], Callable[[bytes], bytes]]] = {
    ("PCMU", 8000): ulaw_encode,
    ("PCMA", 8000): alaw_encode,
    ("L16", 8000): _network_order,
    ("L16", 16000): _network_order,
}


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec that both sides have agreed on."""

    name: str
    rate_hz: int
    payload_type: int

    @property
    def is_known(self) -> bool:
        return (self.name, self.rate_hz) in _ENCODERS

    def encode(self, pcm: bytes) -> bytes:
        return _ENCODERS[self.name, self.rate_hz](pcm)


STATIC: Final = {0: Codec("PCMU", 8000, 0), 8: Codec("PCMA", 8000, 8)}
"""Payload types that need no ``a=rtpmap`` (RFC 3551 §6)."""
