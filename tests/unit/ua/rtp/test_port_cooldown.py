"""Ports of ended calls, with sockets that are only words."""

import errno
import functools
from collections.abc import Callable

import pytest

from cc_tts.config.schema import RtpConfig
from cc_tts.ua.rtp.port_cooldown import PortCooldown

pytestmark = pytest.mark.unit

S = 1_000_000_000
FIRST = 20_000


class Lab:
    """A machine: who holds which port, and what time it is."""

    def __init__(self, *, pairs: int = 8, max_pairs: int = 100, cooldown_s: float = 5.0) -> None:
        self.bound: set[int] = set()
        self.by_others: dict[int, int] = {}
        self.now_s = 0.0
        self.cooldown = PortCooldown(
            host="127.0.0.1",
            rtp=RtpConfig(port_min=FIRST, port_max=FIRST + 2 * pairs - 1, port_cooldown_s=cooldown_s),
            max_pairs=max_pairs,
            clock=self,
            bind=self._bind,
        )

    def now_ns(self) -> int:
        return int(self.now_s * S)

    def wall_s(self) -> float:
        return self.now_s

    def _bind(self, host: str, port: int) -> Callable[[], None]:
        assert host == "127.0.0.1"
        assert port not in self.bound
        if port in self.by_others:
            raise OSError(self.by_others[port], "taken")
        self.bound.add(port)
        return functools.partial(self.bound.remove, port)

    def end_call(self, *pairs: int) -> None:
        self.cooldown.take([FIRST + 2 * pair for pair in pairs])

    def tick(self, *, at_s: float, num_calls: int = 0) -> None:
        self.now_s = at_s
        self.cooldown.tick(num_calls)

    @property
    def held(self) -> list[int]:
        """Pairs held; both ports of each are."""
        assert len(self.bound) == 2 * len(self.cooldown)
        pairs = sorted({(port - FIRST) // 2 for port in self.bound})
        assert len(pairs) == len(self.cooldown)
        return pairs


def test_ports_rest_for_their_time() -> None:
    lab = Lab()
    lab.end_call(0)
    lab.now_s = 2.0
    lab.end_call(3)
    lab.tick(at_s=4.9)
    assert lab.held == [0, 3]
    lab.tick(at_s=5.0)
    assert lab.held == [3]
    lab.tick(at_s=7.0)
    assert lab.held == []


@pytest.mark.parametrize(
    ("lab", "ended", "held"),
    [
        (Lab(cooldown_s=0), range(2), []),
        (Lab(pairs=1), range(1), []),
        (Lab(pairs=500, max_pairs=3), range(10), [7, 8, 9]),
    ],
    ids=["without a time nothing is held", "a range for one call is never blocked", "no more files than allowed"],
)
def test_what_is_held_at_most(lab: Lab, ended: range, held: list[int]) -> None:
    lab.end_call(*ended)
    lab.tick(at_s=0)
    assert lab.held == held


def test_the_oldest_make_room_for_the_next_calls() -> None:
    lab = Lab(pairs=8)
    for pair in (5, 1, 3, 0):
        lab.end_call(pair)
    lab.tick(at_s=1, num_calls=2)
    assert lab.held == [0, 1, 3, 5]
    lab.tick(at_s=1, num_calls=3)
    assert lab.held == [0, 1, 3]
    lab.tick(at_s=1, num_calls=5)
    assert lab.held == [0]
    lab.tick(at_s=1, num_calls=6)
    assert lab.held == []


@pytest.mark.parametrize("half", [0, 1])
def test_ports_that_are_not_free_yet_are_taken_later(half: int) -> None:
    lab = Lab()
    lab.by_others[FIRST + 4 + half] = errno.EADDRINUSE
    lab.end_call(2)
    assert lab.held == []
    lab.tick(at_s=1)
    assert lab.held == []
    lab.by_others.clear()
    lab.tick(at_s=2)
    assert lab.held == [2]
    lab.tick(at_s=5)
    assert lab.held == []


def test_ports_that_somebody_else_keeps_are_given_up() -> None:
    lab = Lab()
    lab.by_others[FIRST] = errno.EADDRINUSE
    lab.end_call(0)
    lab.tick(at_s=5)
    lab.by_others.clear()
    lab.tick(at_s=6)
    assert lab.held == []


def test_without_files_calls_go_on_unprotected() -> None:
    lab = Lab()
    lab.by_others[FIRST + 1] = errno.EMFILE
    lab.end_call(0)
    lab.by_others.clear()
    lab.tick(at_s=1)
    assert lab.held == []


@pytest.mark.parametrize(("last", "pairs"), [(20_001, 1), (20_002, 1), (20_003, 2), (20_199, 100)])
def test_pairs_of_a_range(last: int, pairs: int) -> None:
    assert RtpConfig(port_min=FIRST, port_max=last).num_pairs == pairs
