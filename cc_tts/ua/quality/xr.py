"""VoIP metrics of RTCP extended reports as bytes (RFC 3611 §4.7), and how they are agreed on in SDP (§5). No I/O."""

import re
import struct
from collections.abc import Iterator
from typing import Final

from cc_tts.media.quality import VoipMetrics

SENDER_REPORT: Final = 200
RECEIVER_REPORT: Final = 201
_EXTENDED_REPORT: Final = 207
VOIP_METRICS: Final = 7
"""Packet types (RFC 3550 §12.1, RFC 3611 §2), and the type of the block."""
_HEADER: Final = struct.Struct("!BBHI")
_BLOCK: Final = struct.Struct("!BxHIBBBBHHHHbbBBBBBBBxHHH")
_BLOCK_WORDS: Final = 8
"""The length of the block without its first word."""
_BLOCKS_AT: Final = {SENDER_REPORT: 28, RECEIVER_REPORT: 8}
"""The blocks of a report begin here (RFC 3550 §6.4.1, §6.4.2)."""
_VERSION: Final = 0x80
_COUNT: Final = 0x1F
_UNKNOWN: Final = 127
GMIN: Final = 16
"""Packets without a loss that end a burst: what RFC 3611 §4.7.2 recommends."""
_RX_CONFIG: Final = 0b11_11_0000
"""Losses are concealed in the standard way, and the jitter buffer is adaptive, at a rate that is not told (§4.7.6)."""
_MAX_U16: Final = 0xFFFF
"""Fields of 16 bits hold no more (RFC 3611 §4.7)."""
_ATTRIBUTE: Final = re.compile(r"^a=rtcp-xr:(?:[^\r\n]* )?voip-metrics\b", re.MULTILINE | re.IGNORECASE)
_AUDIO: Final = re.compile(r"^m=audio .*?(?=^m=|\Z)", re.MULTILINE | re.DOTALL)


def packets(compound: bytes) -> Iterator[tuple[int, bytes]]:
    """Give the type and the bytes of each packet of a compound one, up to the first that is cut off."""
    at = 0
    while at + _HEADER.size <= len(compound):
        first, kind, words, _ = _HEADER.unpack_from(compound, at)
        end = at + 4 * (words + 1)
        if first & 0xC0 != _VERSION or end > len(compound):
            return
        yield kind, compound[at:end]
        at = end


def ssrcs(compound: bytes) -> tuple[int, int]:
    """Return whose report a compound packet begins with, and who it is about first; 0 for what it does not say."""
    for kind, packet in packets(compound):
        if kind in _BLOCKS_AT:
            block = packet[_BLOCKS_AT[kind] :]
            about = int.from_bytes(block[:4], "big") if packet[0] & _COUNT and len(block) >= 4 else 0  # noqa: PLR2004
            return int.from_bytes(packet[4:8], "big"), about
    return 0, 0


def encoded(metrics: VoipMetrics, *, own_ssrc: int, about_ssrc: int) -> bytes:
    """Return the packet by which ``own_ssrc`` says how it hears ``about_ssrc``."""
    header = _HEADER.pack(_VERSION, _EXTENDED_REPORT, _BLOCK_WORDS + 2, own_ssrc)
    return header + _BLOCK.pack(
        VOIP_METRICS,
        _BLOCK_WORDS,
        about_ssrc,
        *map(_fraction, (metrics.loss_rate, metrics.discard_rate, metrics.burst_density, metrics.gap_density)),
        *(min(each, _MAX_U16) for each in (metrics.burst_ms, metrics.gap_ms)),
        *(min(each, _MAX_U16) for each in (metrics.round_trip_ms, metrics.end_system_delay_ms)),
        *(_UNKNOWN if each is None else each for each in (metrics.signal_dbm, metrics.noise_dbm)),
        _UNKNOWN if metrics.echo_return_loss_db is None else metrics.echo_return_loss_db,
        GMIN,
        _UNKNOWN if metrics.r_factor is None else metrics.r_factor,
        _UNKNOWN,
        *(_UNKNOWN if each is None else round(10 * each) for each in (metrics.mos_lq, metrics.mos_cq)),
        _RX_CONFIG,
        *(min(each, _MAX_U16) for each in (metrics.jitter_buffer_ms, *2 * (metrics.jitter_buffer_max_ms,))),
    )


def told(compound: bytes, *, about_ssrc: int = 0) -> VoipMetrics | None:
    """Return how the sender of a compound packet hears us, ``about_ssrc``; 0: nobody knows our own. ``None``: it does not
    say.
    """
    for kind, packet in packets(compound):
        if kind != _EXTENDED_REPORT:
            continue
        for block_type, block in _blocks(packet):
            if block_type == VOIP_METRICS and len(block) == _BLOCK.size:
                ssrc, metrics = _decoded(block)
                if about_ssrc in (0, ssrc):
                    return metrics
    return None


def _blocks(packet: bytes) -> Iterator[tuple[int, bytes]]:
    at = _HEADER.size
    while at + 4 <= len(packet):
        end = at + 4 * (int.from_bytes(packet[at + 2 : at + 4], "big") + 1)
        if end > len(packet):
            return
        yield packet[at], packet[at:end]
        at = end


def _decoded(block: bytes) -> tuple[int, VoipMetrics]:
    (_, _, ssrc, loss, discard, burst, gap, burst_ms, gap_ms, round_trip, delay, signal, noise, echo, _, r, _, lq, cq, _,
     nominal, maximum, _) = _BLOCK.unpack(block)  # fmt: skip
    return ssrc, VoipMetrics(
        loss_rate=round(loss / 256, 4),
        discard_rate=round(discard / 256, 4),
        burst_density=round(burst / 256, 4),
        gap_density=round(gap / 256, 4),
        burst_ms=burst_ms,
        gap_ms=gap_ms,
        round_trip_ms=round_trip,
        end_system_delay_ms=delay,
        signal_dbm=None if signal == _UNKNOWN else signal,
        noise_dbm=None if noise == _UNKNOWN else noise,
        echo_return_loss_db=None if echo == _UNKNOWN else echo,
        r_factor=r if r <= 100 else None,  # noqa: PLR2004 - the range (§4.7.5)
        mos_lq=_score(lq),
        mos_cq=_score(cq),
        jitter_buffer_ms=nominal,
        jitter_buffer_max_ms=maximum,
    )


def _fraction(share: float) -> int:
    """A fixed point number with the binary point at the left edge (§4.7.1)."""
    return min(255, int(256 * share))


def _score(tenths: int) -> float | None:
    return tenths / 10 if 10 <= tenths <= 50 else None  # noqa: PLR2004 - the range (§4.7.5)


def is_wanted(sdp: str) -> bool:
    """Whether the writer of a session description asks for the block (§5.1)."""
    return _ATTRIBUTE.search(sdp) is not None


def asking(sdp: str) -> str:
    """Return a session description that asks for the block in its m-line of audio."""
    audio = _AUDIO.search(sdp)
    if audio is None or is_wanted(sdp):
        return sdp
    end = "" if audio[0].endswith("\n") else "\r\n"
    return f"{sdp[: audio.end()]}{end}a=rtcp-xr:voip-metrics\r\n{sdp[audio.end() :]}"
