"""RTCP reports (RFC 3550 §6.4, RFC 3611 §4.7) as the JSON that HEP's type 5 carries. No I/O."""

import struct
from typing import Any, Final

import msgspec

from cc_tts.ua.quality import xr

_SR: Final = xr.SENDER_REPORT
_RR: Final = xr.RECEIVER_REPORT
_HEADER_BYTES: Final = 8
_SENDER_BYTES: Final = 20
_BLOCK_BYTES: Final = 24


def as_json(packet: bytes) -> bytes | None:
    """Return the first sender or receiver report of a compound packet; ``None`` if it has none or is cut off."""
    if len(packet) < _HEADER_BYTES or packet[1] not in (_SR, _RR):
        return None
    count, kind = packet[0] & 0x1F, packet[1]
    blocks_at = _HEADER_BYTES + (_SENDER_BYTES if kind == _SR else 0)
    if len(packet) < blocks_at + count * _BLOCK_BYTES:
        return None
    report: dict[str, Any] = {"type": kind, "ssrc": int.from_bytes(packet[4:8], "big"), "report_count": count}
    if kind == _SR:
        names = ("ntp_timestamp_sec", "ntp_timestamp_usec", "rtp_timestamp", "packets", "octets")
        report["sender_information"] = dict(zip(names, struct.unpack_from("!5I", packet, _HEADER_BYTES), strict=True))
    report["report_blocks"] = [_block(packet, blocks_at + number * _BLOCK_BYTES) for number in range(count)]
    if (told := xr.told(packet)) is not None:
        report["report_blocks_xr"] = {"type": xr.VOIP_METRICS, **msgspec.to_builtins(told)}
    return msgspec.json.encode(report)


def _block(packet: bytes, at: int) -> dict[str, int]:
    ssrc, loss, highest, jitter, lsr, dlsr = struct.unpack_from("!6I", packet, at)
    lost = loss & 0xFFFFFF
    return {
        "source_ssrc": ssrc,
        "fraction_lost": loss >> 24,
        "packets_lost": lost - (1 << 24) if lost & 0x800000 else lost,
        "highest_seq_no": highest,
        "ia_jitter": jitter,
        "lsr": lsr,
        "dlsr": dlsr,
    }
