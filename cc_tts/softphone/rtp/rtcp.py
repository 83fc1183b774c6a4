"""The softphone's RTCP as bytes: sender and receiver reports with a CNAME (RFC 3550 §6.4, §6.5). No sockets, no clocks."""

import struct
from typing import Final

from cc_tts.ua.quality.xr import RECEIVER_REPORT, SENDER_REPORT, packets

_SOURCE_DESCRIPTION: Final = 202
_CNAME: Final = 1
_NTP_EPOCH_S: Final = 2_208_988_800
"""1970 in seconds since 1900 (RFC 5905 §6)."""
_HEADER: Final = struct.Struct("!BBH")
_SENDER: Final = struct.Struct("!QIII")
_BLOCK: Final = struct.Struct("!IIIIII")
_MAX_ROUND_TRIP: Final = 60 << 16
"""A round trip above a minute, in 1/65536 s, means that a clock was set (unmeasured)."""


def sender_info(wall_s: float, timestamp: int, packets: int, octets: int) -> bytes:
    """Return the figures of what was sent until ``wall_s``, in seconds since 1970 (§6.4.1)."""
    ntp = int((wall_s + _NTP_EPOCH_S) * 2**32) & 0xFFFF_FFFF_FFFF_FFFF
    return _SENDER.pack(ntp, timestamp, packets & 0xFFFF_FFFF, octets & 0xFFFF_FFFF)


def report_block(
    ssrc: int, *, fraction_lost: int, lost: int, highest: int, jitter_ticks: int, lsr: int = 0, dlsr: int = 0
) -> bytes:
    """Return the figures of one received source (§6.4.1). ``lsr`` and ``dlsr`` are in 1/65536 s, 0 if it has
    sent no report.
    """
    loss = min(fraction_lost, 255) << 24 | min(max(lost, -0x80_0000), 0x7F_FFFF) & 0xFF_FFFF
    return _BLOCK.pack(ssrc, loss, highest & 0xFFFF_FFFF, jitter_ticks, lsr, dlsr & 0xFFFF_FFFF)


def compound(ssrc: int, cname: str, sender: bytes, block: bytes) -> bytes:
    """Return one datagram: a sender report, or a receiver report if nothing was sent, and the CNAME."""
    name = cname.encode()[:255]
    item = bytes((_CNAME, len(name))) + name + b"\0"
    item += bytes(-len(item) % 4)
    report = _packet(SENDER_REPORT if sender else RECEIVER_REPORT, 1 if block else 0, ssrc, sender + block)
    return report + _packet(_SOURCE_DESCRIPTION, 1, ssrc, item)


def _packet(kind: int, count: int, ssrc: int, body: bytes) -> bytes:
    return _HEADER.pack(2 << 6 | count, kind, 1 + len(body) // 4) + ssrc.to_bytes(4, "big") + body


def last_sender_report(data: bytes) -> tuple[int, int] | None:
    """Return the SSRC and the middle 32 bits of the NTP timestamp of the last sender report in a datagram, which may be
    malformed.
    """
    found = None
    for kind, packet in packets(data):
        if kind == SENDER_REPORT and len(packet) >= _HEADER.size + 4 + _SENDER.size:
            ssrc, ntp = struct.unpack_from("!IQ", packet, _HEADER.size)
            found = ssrc, ntp >> 16 & 0xFFFF_FFFF
    return found


def round_trip_ms(data: bytes, ssrc: int, wall_s: float) -> float | None:
    """Return the round trip of the sender ``ssrc`` from a datagram that arrived at ``wall_s``; ``None`` if it has none."""
    now = int((wall_s + _NTP_EPOCH_S) * 0x1_0000) & 0xFFFF_FFFF
    found = None
    for kind, packet in packets(data):
        first = _HEADER.size + 4 + (_SENDER.size if kind == SENDER_REPORT else 0)
        if kind not in (SENDER_REPORT, RECEIVER_REPORT):
            continue
        for at in range(
            first, min(first + (packet[0] & 0x1F) * _BLOCK.size, len(packet) - _BLOCK.size + 1), _BLOCK.size
        ):
            source, *_, lsr, dlsr = _BLOCK.unpack_from(packet, at)
            units = (now - lsr - dlsr) & 0xFFFF_FFFF
            if source == ssrc and lsr and units < _MAX_ROUND_TRIP:
                found = units * 1000 / 0x1_0000
    return found
