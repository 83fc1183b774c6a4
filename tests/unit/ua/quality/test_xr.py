"""VoIP metrics of RTCP extended reports: bytes, what is left out of broken ones, and SDP."""

import struct

import pytest

from cc_tts.media.quality import VoipMetrics
from cc_tts.ua.quality import xr
from cc_tts.ua.trace.rtcp import as_json

pytestmark = pytest.mark.unit

RECEIVER_REPORT = struct.pack("!BBHI6I", 0x81, 201, 7, 0x1111, 0x2222, 0, 0, 0, 0, 0)
BLOCK = bytes.fromhex(
    "07000008" "00002222"  # type 7, 8 words; about 0x2222
    "40800010"  # loss 64/256, discard 128/256, no burst density, gap density 16/256
    "00640bb8" "00780028"  # bursts of 100 ms, gaps of 3000 ms; 120 ms round trip, 40 ms in the end system
    "eec27f10"  # -18 dBm, noise -62 dBm, no echo figure, Gmin 16
    "5d7f2c29"  # R 93, no external R, MOS-LQ 4.4, MOS-CQ 4.1
    "b0000028" "005000f0"  # 40 ms nominal, 80 ms maximum, 240 ms at all
)  # fmt: skip
METRICS = VoipMetrics(
    loss_rate=0.25,
    discard_rate=0.5,
    gap_density=0.0625,
    burst_ms=100,
    gap_ms=3000,
    round_trip_ms=120,
    end_system_delay_ms=40,
    signal_dbm=-18,
    noise_dbm=-62,
    r_factor=93,
    mos_lq=4.4,
    mos_cq=4.1,
    jitter_buffer_ms=40,
    jitter_buffer_max_ms=80,
)
SDP = (
    "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\na=sendrecv\r\n"
)
ASKED = "a=rtcp-xr:voip-metrics\r\n"


def extended(*blocks: bytes) -> bytes:
    body = b"".join(blocks)
    return struct.pack("!BBHI", 0x80, 207, 1 + len(body) // 4, 0x1111) + body


def test_a_block_by_hand_is_read() -> None:
    compound = RECEIVER_REPORT + extended(struct.pack("!BxHII", 4, 2, 1, 2), BLOCK)
    assert xr.told(compound) == METRICS
    assert xr.told(compound, about_ssrc=0x2222) == METRICS
    assert xr.told(compound, about_ssrc=0x3333) is None, "it is about somebody else"
    assert xr.ssrcs(compound) == (0x1111, 0x2222)
    for_capture_servers = as_json(compound)
    assert for_capture_servers is not None
    assert b'"report_blocks_xr":{"type":7,"loss_rate":0.25' in for_capture_servers


def test_what_is_written_is_read() -> None:
    packet = xr.encoded(METRICS, own_ssrc=0x1111, about_ssrc=0x2222)
    assert len(packet) == 4 * (int.from_bytes(packet[2:4], "big") + 1)
    assert xr.told(RECEIVER_REPORT + packet) == METRICS
    nothing = xr.encoded(VoipMetrics(burst_ms=70_000), own_ssrc=1, about_ssrc=2)
    assert xr.told(nothing) == VoipMetrics(burst_ms=65_535)


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(RECEIVER_REPORT, id="no extended report"),
        pytest.param(RECEIVER_REPORT + extended(BLOCK)[:-4], id="the packet is cut off"),
        pytest.param(RECEIVER_REPORT + extended(BLOCK[:-4]), id="the block is cut off"),
        pytest.param(extended(b"\x07\x00\x00\x07" + BLOCK[4:-4]), id="a block of another length"),
        pytest.param(b"\x40" + extended(BLOCK)[1:], id="version 1"),
        pytest.param(RECEIVER_REPORT + extended(b"\x07\x00\xff\xff" + BLOCK[4:]), id="a length beyond the packet"),
    ],
)
def test_what_says_nothing_usable_is_left_out(packet: bytes) -> None:
    assert xr.told(packet) is None


def test_values_out_of_range_are_not_told() -> None:
    block = bytearray(BLOCK)
    block[24], block[26], block[27] = 101, 9, 51
    told = xr.told(extended(bytes(block)))
    assert told is not None
    assert (told.r_factor, told.mos_lq, told.mos_cq) == (None, None, None)


def test_the_audio_asks_for_them_once() -> None:
    assert not xr.is_wanted(SDP)
    asking = xr.asking(f"{SDP}m=video 0 RTP/AVP 31\r\n")
    assert asking == f"{SDP}{ASKED}m=video 0 RTP/AVP 31\r\n"
    assert xr.is_wanted(asking)
    assert xr.asking(asking) == asking
    assert xr.is_wanted(SDP + "a=rtcp-xr:rcvr-rtt=all:10 VoIP-metrics\r\n")
    assert not xr.is_wanted(SDP + "a=rtcp-xr:stat-summary=loss\r\n")
