"""How many connections the PyPI wheel takes, in virtual time."""

import pytest

from cc_tts.ua.capacity import SOCKET_CLOSING_NS
from cc_tts.ua.guard.connections import ConnectionBudget, SourceShare
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


def test_one_source_has_no_more_than_its_share() -> None:
    peers = {number: ("192.0.2.1", 1000 + number) for number in range(4)} | {9: ("192.0.2.2", 1000)}

    def peer_of(number: int) -> tuple[str, int] | None:
        return peers.get(number)

    share = SourceShare(peer_of)
    assert [share.take(number, 2) for number in (0, 1, 2, 9)] == [True, True, False, True]
    del peers[0]
    assert [share.take(number, 2) for number in (2, 3)] == [True, False]
    peers[1] = ("192.0.2.3", 1000)
    assert share.take(3, 2), "the socket with the number of a closed one is that of another source"


def test_two_sources_do_not_take_all_places() -> None:
    peers: dict[int, tuple[str, int]] = {}
    share = SourceShare(peers.get)
    taken: list[str] = []
    for source in ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"):
        first = len(taken)
        for number in range(first, first + MOST):
            peers[number] = (source, number)
            if not share.take(number, MOST - len(taken)):
                break
            taken.append(source)
    assert [taken.count(source) for source in dict.fromkeys(taken)] == [14, 7, 4, 2, 1]


def test_a_connection_that_is_closed_already_has_no_share() -> None:
    assert not SourceShare(lambda _number: None).take(1, MOST)
