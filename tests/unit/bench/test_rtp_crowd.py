"""What the many callers of the load bench count."""

import struct

import pytest

from bench.rtp_crowd import SILENCE, Tally, summary

pytestmark = pytest.mark.unit

MS = 1_000_000


def packet(seq: int, payload: bytes = SILENCE) -> bytes:
    return struct.pack("!BBHII", 0x80, 0, seq & 0xFFFF, 0, 7) + payload


def heard(*arrivals: tuple[int, int]) -> Tally:
    """A tally of packets given as sequence number and ms."""
    tally = Tally()
    for seq, at_ms in arrivals:
        tally.count(packet(seq), at_ms * MS)
    return tally


@pytest.mark.parametrize(
    ("seqs", "lost", "disordered"),
    [
        ((1, 2, 3), 0, 0),
        ((1, 2, 5), 2, 0),
        ((1, 3, 2, 4), 1, 1),
        ((1, 2, 2, 3), 0, 1),
        ((65534, 65535, 0, 1), 0, 0),
        ((65535, 2), 2, 0),
    ],
    ids=["in order", "lost", "late", "twice", "wraps", "lost at the wrap"],
)
def test_sequence_numbers(seqs: tuple[int, ...], lost: int, disordered: int) -> None:
    tally = heard(*((seq, 20 * index) for index, seq in enumerate(seqs)))
    assert (tally.num_lost, tally.num_disordered, tally.num_packets) == (lost, disordered, len(seqs))


def test_speech_is_what_is_not_silence() -> None:
    tally = Tally()
    tally.count(packet(1, b"\x12" * 160), 0)
    tally.count(packet(2), 20 * MS)
    assert tally.num_speech == 1
    assert summary([tally], window_s=0.04, dropped=0)["speech_share"] == 0.5


def test_gaps_are_of_one_leg_each() -> None:
    seen = summary([heard((1, 0), (2, 20), (3, 65)), heard((9, 10), (10, 30))], window_s=0.1, dropped=0)
    assert seen["gap_ms"]["max"] == 45
    assert (seen["gap_ms"]["over_40"], seen["gap_ms"]["over_60"]) == (1, 0)
    assert (seen["legs_heard"], seen["packets"], seen["packets_due"]) == (2, 5, 10)


def test_what_our_own_sockets_dropped_is_not_loss() -> None:
    seen = summary([heard((1, 0), (5, 80))], window_s=0.1, dropped=2)
    assert (seen["lost"], seen["dropped_at_caller"]) == (1, 2)


def test_nothing_heard() -> None:
    seen = summary([Tally(), Tally()], window_s=1.0, dropped=0)
    assert (seen["legs_heard"], seen["packets"], seen["packets_due"]) == (0, 0, 100)
    assert seen["gap_ms"]["max"] == 0
