"""The softphone's RTCP: what it writes, and that it reads whatever comes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.softphone.rtp.rtcp import compound, last_sender_report, report_block, round_trip_ms, sender_info

pytestmark = pytest.mark.unit

SENDER = sender_info(0.5, timestamp=160, packets=7, octets=1120)
BLOCK = report_block(0xABCD, fraction_lost=64, lost=-1, highest=70_000, jitter_ticks=9, lsr=1, dlsr=2)


def test_a_sender_report_with_a_block_and_a_name() -> None:
    data = compound(0x1234, "a@b", SENDER, BLOCK)
    assert data[:8] == bytes.fromhex("81c8000c00001234")
    assert struct.unpack_from("!IIIII", data, 8) == (2_208_988_800, 1 << 31, 160, 7, 1120)
    assert struct.unpack_from("!IIIIII", data, 28) == (0xABCD, 64 << 24 | 0xFFFFFF, 70_000, 9, 1, 2)
    assert data[52:] == bytes.fromhex("81ca000300001234") + b"\x01\x03a@b\0\0\0"
    assert last_sender_report(data) == (0x1234, (2_208_988_800 & 0xFFFF) << 16 | 1 << 15)


def test_one_who_has_sent_nothing_reports_as_a_receiver() -> None:
    data = compound(1, "abc@d", b"", b"")
    assert data[:8] == bytes.fromhex("80c9000100000001")
    assert len(data) % 4 == 0
    assert last_sender_report(data) is None


@given(st.binary(max_size=100))
def test_no_datagram_breaks_the_reader(data: bytes) -> None:
    last_sender_report(data)
    round_trip_ms(data, 0, 0.0)
    last_sender_report(compound(1, "a@b", SENDER, BLOCK)[: len(data)] + data)


def test_the_round_trip_is_what_a_report_on_us_leaves() -> None:
    sent_s, held_s = 1_795_000_000.5, 0.25
    (_, lsr) = last_sender_report(compound(7, "a@b", sender_info(sent_s, 0, 1, 160), b"")) or (0, 0)
    block = report_block(7, fraction_lost=0, lost=0, highest=1, jitter_ticks=0, lsr=lsr, dlsr=round(held_s * 65_536))
    for sender in (b"", SENDER):
        data = compound(9, "c@d", sender, block)
        assert round_trip_ms(data, 7, sent_s + held_s + 0.08) == pytest.approx(80, abs=0.1)
        assert round_trip_ms(data, 8, sent_s + held_s + 0.08) is None, "it reports on somebody else"
        assert round_trip_ms(data, 7, sent_s) is None, "the clock went back"
    unheard = report_block(7, fraction_lost=0, lost=0, highest=1, jitter_ticks=0)
    assert round_trip_ms(compound(9, "c@d", b"", unheard), 7, sent_s) is None
