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


def test_the_next_key_ends_one_whose_ends_are_lost() -> None:
    keypad = Keypad()
    packet(keypad, 10, 20, is_update=False)
    edges = packet(keypad, 130, 20, digit="6", timestamp_ms=1120, is_update=False)
    assert edges == [("up", "5", 10, 20), ("down", "6", 130, 20)]


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
