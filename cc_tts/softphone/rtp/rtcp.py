"""The softphone's RTCP as bytes and as values: sender and receiver reports with a CNAME (RFC 3550 §6.4, §6.5).

No sockets, no clocks.
"""

import struct
from dataclasses import dataclass
from typing import Final

SENDER_REPORT: Final = 200
RECEIVER_REPORT: Final = 201
_SOURCE_DESCRIPTION: Final = 202
_CNAME: Final = 1
_NTP_EPOCH_S: Final = 2_208_988_800
"""1970 in seconds since 1900 (RFC 5905 §6)."""
_HEADER: Final = struct.Struct("!BBH")
_SENDER: Final = struct.Struct("!IIIII")
_BLOCK: Final = struct.Struct("!IIIIII")
_WORD: Final = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """What was received of one source (§6.4.1). ``lsr`` and ``dlsr`` are in 1/65536 s, 0 if it has sent no report."""

    ssrc: int
    fraction_lost: int
    lost: int
    highest_sequence: int
    jitter_ticks: int
    lsr: int = 0
    dlsr: int = 0

    def to_bytes(self) -> bytes:
        """Block as it goes on the wire."""
        lost = min(max(self.lost, -0x80_0000), 0x7F_FFFF) & 0xFF_FFFF
        fraction = min(max(self.fraction_lost, 0), 255)
        return _BLOCK.pack(
            self.ssrc,
            fraction << 24 | lost,
            self.highest_sequence & 0xFFFF_FFFF,
            self.jitter_ticks,
            self.lsr,
            self.dlsr & 0xFFFF_FFFF,
        )


@dataclass(frozen=True, slots=True)
class Sender:
    """What was sent so far (§6.4.1); ``ntp`` is the instant as :func:`ntp_of` gives it."""

    ntp: int
    timestamp: int
    packets: int
    octets: int

    def to_bytes(self) -> bytes:
        """Sender information as it goes on the wire."""
        counts = (self.packets & 0xFFFF_FFFF, self.octets & 0xFFFF_FFFF)
        return _SENDER.pack(self.ntp >> 32, self.ntp & 0xFFFF_FFFF, self.timestamp, *counts)


def ntp_of(wall_s: float) -> int:
    """Seconds since 1970 as a 64-bit NTP timestamp."""
    return int((wall_s + _NTP_EPOCH_S) * 2**32) & 0xFFFF_FFFF_FFFF_FFFF


def compound(ssrc: int, cname: str, sender: Sender | None, block: ReportBlock | None) -> bytes:
    """One datagram: a sender report, or a receiver report from one who has sent nothing, and who it is from."""
    kind = RECEIVER_REPORT if sender is None else SENDER_REPORT
    body = _WORD.pack(ssrc) + (sender.to_bytes() if sender else b"") + (block.to_bytes() if block else b"")
    name = cname.encode()[:255]
    item = bytes((_CNAME, len(name))) + name + b"\0"
    item += bytes(-len(item) % 4)
    return _packet(kind, 1 if block else 0, body) + _packet(_SOURCE_DESCRIPTION, 1, _WORD.pack(ssrc) + item)


def last_sender_report(data: bytes) -> tuple[int, int] | None:
    """SSRC and the middle 32 bits of the NTP timestamp of the last sender report in a datagram, whatever that holds."""
    found = None
    while len(data) >= _HEADER.size:
        first, kind, words = _HEADER.unpack_from(data)
        size = 4 * (words + 1)
        if first >> 6 != 2 or size > len(data):  # noqa: PLR2004 - the version
            break
        if kind == SENDER_REPORT and size >= _HEADER.size + _WORD.size + _SENDER.size:
            ssrc, high, low = struct.unpack_from("!III", data, _HEADER.size)
            found = ssrc, (high & 0xFFFF) << 16 | low >> 16
        data = data[size:]
    return found


def _packet(kind: int, count: int, body: bytes) -> bytes:
    return _HEADER.pack(2 << 6 | count, kind, len(body) // 4) + body
