"""How many connections the PyPI wheel takes, in virtual time."""

import pytest

from cc_tts.ua.capacity import SOCKET_CLOSING_NS
from cc_tts.ua.guard.connections import ConnectionBudget
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

MOST = 28
CLOSED_AGAIN_MS = SOCKET_CLOSING_NS // 1_000_000 + 1


def test_connections_that_are_closed_at_once_keep_their_places_for_a_while() -> None:
    clock = FakeClock()
    budget = ConnectionBudget(MOST, clock)
    assert [budget.take(0) for _ in range(2 * MOST)] == [True] * MOST + [False] * MOST
    clock.advance(CLOSED_AGAIN_MS)
    assert [budget.take(0) for _ in range(MOST + 1)] == [True] * MOST + [False]


def test_no_more_than_that_are_open() -> None:
    clock = FakeClock()
    budget = ConnectionBudget(MOST, clock)
    for num_open in range(MOST):
        assert budget.take(num_open)
        clock.advance(CLOSED_AGAIN_MS)
    assert not budget.take(MOST)
    assert budget.take(MOST - 1)


def test_those_that_are_refused_do_not_keep_others_out() -> None:
    clock = FakeClock()
    budget = ConnectionBudget(MOST, clock)
    for _ in range(MOST):
        budget.take(0)
    clock.advance(CLOSED_AGAIN_MS - 2)
    assert not budget.take(0)
    clock.advance(2)
    assert budget.take(0)
