"""The softphone's RTCP as bytes: sender and receiver reports with a CNAME (RFC 3550 §6.4, §6.5). No sockets, no clocks."""

import struct
from typing import Final

SENDER_REPORT: Final = 200
RECEIVER_REPORT: Final = 201
_SOURCE_DESCRIPTION: Final = 202
_CNAME: Final = 1
_NTP_EPOCH_S: Final = 2_208_988_800
"""1970 in seconds since 1900 (RFC 5905 §6)."""
_HEADER: Final = struct.Struct("!BBH")
_SENDER: Final = struct.Struct("!QIII")


def sender_info(wall_s: float, timestamp: int, packets: int, octets: int) -> bytes:
    """Return what was sent until ``wall_s``, in seconds since 1970 (§6.4.1)."""
    ntp = int((wall_s + _NTP_EPOCH_S) * 2**32) & 0xFFFF_FFFF_FFFF_FFFF
    return _SENDER.pack(ntp, timestamp, packets & 0xFFFF_FFFF, octets & 0xFFFF_FFFF)


def report_block(
    ssrc: int, *, fraction_lost: int, lost: int, highest: int, jitter_ticks: int, lsr: int = 0, dlsr: int = 0
) -> bytes:
    """Return what was received of one source (§6.4.1). ``lsr`` and ``dlsr`` are in 1/65536 s, 0 if it has sent no report."""
    loss = min(fraction_lost, 255) << 24 | min(max(lost, -0x80_0000), 0x7F_FFFF) & 0xFF_FFFF
    return struct.pack("!IIIIII", ssrc, loss, highest & 0xFFFF_FFFF, jitter_ticks, lsr, dlsr & 0xFFFF_FFFF)


def compound(ssrc: int, cname: str, sender: bytes, block: bytes) -> bytes:
    """One datagram: a sender report, or a receiver report from one who has sent nothing, and who it is from."""
    name = cname.encode()[:255]
    item = bytes((_CNAME, len(name))) + name + b"\0"
    item += bytes(-len(item) % 4)
    report = _packet(SENDER_REPORT if sender else RECEIVER_REPORT, 1 if block else 0, ssrc, sender + block)
    return report + _packet(_SOURCE_DESCRIPTION, 1, ssrc, item)


def _packet(kind: int, count: int, ssrc: int, body: bytes) -> bytes:
    return _HEADER.pack(2 << 6 | count, kind, 1 + len(body) // 4) + ssrc.to_bytes(4, "big") + body


def last_sender_report(data: bytes) -> tuple[int, int] | None:
    """SSRC and the middle 32 bits of the NTP timestamp of the last sender report in a datagram, whatever that holds."""
    found = None
    while len(data) >= _HEADER.size:
        first, kind, words = _HEADER.unpack_from(data)
        size = 4 * (words + 1)
        if first >> 6 != 2 or size > len(data):  # noqa: PLR2004 - the version
            break
        if kind == SENDER_REPORT and size >= _HEADER.size + 4 + _SENDER.size:
            ssrc, ntp = struct.unpack_from("!IQ", data, _HEADER.size)
            found = ssrc, ntp >> 16 & 0xFFFF_FFFF
        data = data[size:]
    return found
