"""Holding and resuming a call while the far side sends a re-INVITE of its own (RFC 3261 §14.1)."""

import pytest

from cc_tts.clock import NS_PER_MS
from cc_tts.ua.hold_request import MAX_REINVITES, HoldRequest, glare_pause_ms

pytestmark = pytest.mark.unit

LONGEST_PAUSE_NS = 4_000 * NS_PER_MS


@pytest.fixture
def asked() -> HoldRequest:
    return HoldRequest(hold=True, owns_call_id=True)


@pytest.mark.parametrize(("status", "failure"), [(200, ""), (202, ""), (488, "the far side answered 488")])
def test_an_answer_ends_it(asked: HoldRequest, status: int, failure: str) -> None:
    asked.answered(status, 0, is_repeated=False)
    assert (asked.is_over, asked.failure) == (True, failure)


def test_a_challenge_that_is_answered_does_not_end_it(asked: HoldRequest) -> None:
    asked.answered(401, 0, is_repeated=True)
    assert not asked.is_over
    asked.answered(200, 0, is_repeated=False)
    assert (asked.is_over, asked.failure) == (True, "")


def test_after_491_it_is_sent_once_more_after_a_pause(asked: HoldRequest) -> None:
    asked.answered(491, 0, is_repeated=False)
    assert not asked.is_over
    assert not asked.take_due(2_100 * NS_PER_MS - 1)
    assert asked.take_due(LONGEST_PAUSE_NS)
    assert not asked.take_due(LONGEST_PAUSE_NS)
    asked.answered(200, LONGEST_PAUSE_NS, is_repeated=False)
    assert (asked.is_over, asked.failure) == (True, "")


def test_it_is_given_up_after_some_collisions(asked: HoldRequest) -> None:
    for number in range(1, MAX_REINVITES):
        asked.answered(491, number, is_repeated=False)
        assert not asked.is_over
    asked.collided("one is under way", 0)
    assert (asked.is_over, asked.failure) == (True, "one is under way")


def test_the_two_sides_wait_for_different_times() -> None:
    ours = {glare_pause_ms(owns_call_id=True) for _ in range(2000)}
    theirs = {glare_pause_ms(owns_call_id=False) for _ in range(2000)}
    assert min(ours) >= 2100
    assert max(ours) <= 4000
    assert max(theirs) <= 2000
    assert not {pause % 10 for pause in ours | theirs} - {0}
