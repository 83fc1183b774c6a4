"""What the many callers of the load bench count."""

import numpy as np
import pytest

from bench.rtp_crowd import Tally, silences_of, summary, tally_of

pytestmark = pytest.mark.unit

MS = 1_000_000


def heard(*arrivals: tuple[int, int], speech: bool = False) -> Tally:
    """A tally of packets given as sequence number and ms."""
    seqs, at_ms = np.array(arrivals, dtype=np.int64).reshape(-1, 2).T
    return tally_of(seqs, at_ms * MS, np.full(len(seqs), speech))


@pytest.mark.parametrize(
    ("seqs", "lost", "disordered"),
    [
        ((1, 2, 3), 0, 0),
        ((1, 2, 5), 2, 0),
        ((1, 3, 2, 4), 1, 1),
        ((1, 2, 2, 3), 0, 1),
        ((65534, 65535, 0, 1), 0, 0),
        ((65535, 2), 2, 0),
        ((7,), 0, 0),
    ],
    ids=["in order", "lost", "late", "twice", "wraps", "lost at the wrap", "one"],
)
def test_sequence_numbers(seqs: tuple[int, ...], lost: int, disordered: int) -> None:
    tally = heard(*((seq, 20 * index) for index, seq in enumerate(seqs)))
    assert (tally.num_lost, tally.num_disordered, tally.num_packets) == (lost, disordered, len(seqs))


def test_a_late_packet_makes_no_gap() -> None:
    assert heard((1, 0), (3, 20), (2, 21), (4, 40)).gaps_ns.tolist() == [20 * MS, 20 * MS]


def test_the_share_of_speech() -> None:
    tally = tally_of(np.array([1, 2]), np.array([0, 20 * MS]), np.array([True, False]))
    assert summary([tally], num_legs=1, window_s=0.04, dropped=0)["speech_share"] == 0.5


def test_gaps_are_of_one_leg_each() -> None:
    legs = [heard((1, 0), (2, 20), (3, 65)), heard((9, 10), (10, 30))]
    seen = summary(legs, num_legs=2, window_s=0.1, dropped=0)
    assert seen["gap_ms"]["max"] == 45
    assert (seen["gap_ms"]["over_40"], seen["gap_ms"]["over_60"]) == (1, 0)
    assert (seen["legs_heard"], seen["packets"], seen["packets_due"]) == (2, 5, 10)


def test_what_our_own_sockets_dropped_is_not_loss() -> None:
    seen = summary([heard((1, 0), (5, 80))], num_legs=1, window_s=0.1, dropped=2)
    assert (seen["lost"], seen["dropped_at_caller"]) == (1, 2)


def test_nothing_heard() -> None:
    seen = summary([], num_legs=2, window_s=1.0, dropped=0)
    assert (seen["legs_heard"], seen["packets"], seen["packets_due"]) == (0, 0, 100)
    assert seen["gap_ms"]["max"] == 0


def test_silences_of_one_leg() -> None:
    speech_ns = np.array([0, 20, 40, 65, 565, 585], dtype=np.int64) * MS
    assert silences_of(speech_ns) == {"from_ns": 0, "to_ns": 585 * MS, "silences": [[65 * MS, 480.0]]}
