"""When a key goes down and up, by the packets of its event."""

from typing import Any

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.ua.rtp.keys import LOST_AFTER_NS, MAX_DOWN_NS, Keypad, checked_duration_ms

pytestmark = pytest.mark.unit


def packet(
    keypad: Keypad, at_ms: int, duration_ms: int, digit: str = "5", **more: Any
) -> list[tuple[str, str, int, int]]:
    """What became of one packet: edge, digit, instant and duration in ms."""
    given = {"timestamp_ms": 1000, "is_update": True, "is_end": False, **more}
    edges = keypad.packet(digit, duration_ms=duration_ms, now_ns=at_ms * NS_PER_MS, **given)
    return [(edge, key.digit, key.began_ns // NS_PER_MS, key.duration_ms) for edge, key in edges]


def test_a_key_goes_down_with_its_first_packet_and_up_with_its_end() -> None:
    keypad = Keypad()
    assert packet(keypad, 10, 20, is_update=False) == [("down", "5", 10, 20)]
    assert packet(keypad, 50, 60) == []
    assert packet(keypad, 90, 100, is_end=True) == [("up", "5", 10, 100)]
    assert packet(keypad, 110, 100, is_end=True) == [], "the end is sent three times"
    assert keypad.overdue(10**12) is None


def test_only_the_end_of_a_key_came() -> None:
    assert packet(Keypad(), 10, 100, is_update=False, is_end=True) == [("down", "5", 10, 100), ("up", "5", 10, 100)]


def test_a_key_whose_ends_are_lost_goes_up_when_nothing_more_comes() -> None:
    keypad = Keypad()
    packet(keypad, 10, 20, is_update=False)
    packet(keypad, 70, 80)
    lost_ns = 70 * NS_PER_MS + LOST_AFTER_NS
    assert keypad.overdue(lost_ns - 1) is None
    key = keypad.overdue(lost_ns)
    assert key is not None
    assert key.duration_ms == 80
    assert keypad.overdue(lost_ns) is None
    assert packet(keypad, 500, 400) == [], "a late packet of it is no new key"
    assert packet(keypad, 520, 400, is_end=True) == []


@pytest.mark.parametrize(("digit", "at_ms"), [("6", 130), ("5", 230)])
def test_the_next_key_ends_one_whose_ends_are_lost_and_the_same_one_is_no_segment(digit: str, at_ms: int) -> None:
    keypad = Keypad()
    packet(keypad, 10, 20, is_update=False)
    edges = packet(keypad, at_ms, 20, digit=digit, timestamp_ms=990 + at_ms, is_update=False)
    assert edges == [("up", "5", 10, 20), ("down", digit, at_ms, 20)]


def test_the_same_key_again_is_known_by_its_timestamp() -> None:
    """PJMEDIA takes it for an update when its first packet that comes says no less than the last of the key before."""
    keypad = Keypad()
    packet(keypad, 10, 20, is_update=False, is_end=True)
    assert packet(keypad, 200, 40, timestamp_ms=1190) == [("down", "5", 200, 40)]


def test_a_sender_whose_timestamp_moves_within_a_key_presses_one() -> None:
    keypad = Keypad()
    packet(keypad, 10, 20, is_update=False)
    assert packet(keypad, 30, 40, timestamp_ms=1020) == []
    assert [edge[0] for edge in packet(keypad, 50, 60, timestamp_ms=1040, is_end=True)] == ["up"]


def test_a_key_that_is_never_let_go_is_reported() -> None:
    keypad = Keypad()
    packet(keypad, 0, 20, is_update=False)
    for at_ms in range(100, MAX_DOWN_NS // NS_PER_MS, 100):
        packet(keypad, at_ms, min(at_ms, 8191))
    key = keypad.overdue(MAX_DOWN_NS)
    assert key is not None
    assert key.duration_ms == 8191


SEGMENT_MS = 8_191
"""The longest that 16 bits count at 8 kHz."""


def held(keypad: Keypad, from_ms: int, until_ms: int) -> list[tuple[str, str, int, int]]:
    """What becomes of the packets of a key that stays down, of which one comes every 50 ms and one at each segment's end."""
    edges = []
    for at_ms in sorted({*range(50, until_ms, 50), *range(SEGMENT_MS, until_ms, SEGMENT_MS)}):
        segment = (at_ms - 1) // SEGMENT_MS
        duration_ms = at_ms - segment * SEGMENT_MS
        if at_ms >= from_ms:
            more = {"timestamp_ms": 1000 + segment * SEGMENT_MS, "is_update": at_ms > 50 and duration_ms > 50}
            edges += packet(keypad, at_ms, duration_ms, **more)
    return edges


def test_a_key_in_two_segments_is_one() -> None:
    keypad = Keypad()
    assert [edge[0] for edge in held(keypad, 0, 9_000)] == ["down"]
    assert packet(keypad, 9_000, 809, timestamp_ms=9191, is_end=True) == [("up", "5", 50, 9_000)]


def test_a_key_that_was_given_up_is_none_again_with_its_next_segments() -> None:
    keypad = Keypad()
    held(keypad, 0, 8_000)
    assert keypad.overdue(MAX_DOWN_NS + 50 * NS_PER_MS) is not None
    assert held(keypad, 8_000, 25_000) == []
    assert packet(keypad, 25_000, 427, timestamp_ms=1000 + 3 * 8191, is_end=True) == []
    assert packet(keypad, 25_200, 20, timestamp_ms=26_200, is_update=False) == [("down", "5", 25_200, 20)]


def test_a_timestamp_that_begins_anew_does_not_part_a_key() -> None:
    keypad = Keypad()
    wrap_ms = 2**32 // 8
    packet(keypad, 0, 8_191, timestamp_ms=wrap_ms - 4_000, is_update=False)
    assert packet(keypad, 50, 50, timestamp_ms=4_191, is_update=False) == []


def test_ends_that_are_repeated_between_packets_of_the_next_key_are_none() -> None:
    keypad = Keypad()
    packet(keypad, 0, 100, "1", is_update=False, is_end=True)
    edges = []
    for at_ms in (120, 140, 160):
        edges += packet(keypad, at_ms, at_ms - 100, "2", timestamp_ms=1120, is_update=False)
        edges += packet(keypad, at_ms + 5, 100, "1", is_update=False, is_end=True)
    edges += packet(keypad, 180, 80, "2", timestamp_ms=1120, is_update=False, is_end=True)
    edges += packet(keypad, 185, 100, "1", is_update=False, is_end=True)
    assert edges == [("down", "2", 120, 20), ("up", "2", 120, 80)]


def test_an_end_that_is_repeated_does_not_end_the_same_key_pressed_again() -> None:
    keypad = Keypad()
    packet(keypad, 0, 100, is_update=False, is_end=True)
    packet(keypad, 200, 20, timestamp_ms=1200, is_update=False)
    assert packet(keypad, 205, 100, is_end=True) == []
    assert packet(keypad, 260, 60, timestamp_ms=1200, is_update=False, is_end=True) == [("up", "5", 200, 60)]


def test_a_sender_without_timestamps_presses_every_key() -> None:
    keypad = Keypad()
    for _ in range(2):
        assert [edge[0] for edge in packet(keypad, 0, 20, timestamp_ms=0, is_update=False)] == ["down"]
        assert [edge[0] for edge in packet(keypad, 80, 100, timestamp_ms=0, is_end=True)] == ["up"]


def test_the_call_ends_while_a_key_is_down() -> None:
    keypad = Keypad()
    assert keypad.release() is None
    packet(keypad, 0, 20, is_update=False)
    key = keypad.release()
    assert key is not None
    assert key.duration_ms == 20
    assert keypad.release() is None


@pytest.mark.parametrize(
    ("stated", "taken"), [(0, 0), (250, 250), (60_000, 60_000), (60_001, 0), (2**32 - 1, 0), (-1, 0)]
)
def test_what_a_duration_may_be(stated: int, taken: int) -> None:
    assert checked_duration_ms(stated) == taken
