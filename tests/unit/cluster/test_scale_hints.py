"""How many workers and nodes there should be."""

from typing import Any

import msgspec
import pytest

from cc_tts.cluster.messages import Node
from cc_tts.pool.hints import BUSY_FOR_S, CALM_FOR_S, CALM_LINES_FOR_S, REFUSED_FOR_S, ScaleHints
from cc_tts.pool.hosts import HostStatus
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

TARGET_MS = 300.0


def host(number: int = 0, **how: Any) -> HostStatus:
    status = HostStatus(id=f"worker-{number}", address="grpc://10.0.0.1:7400", host="a", device="cpu", state="ready")
    return msgspec.structs.replace(status, **how)


class Looked:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.hints = ScaleHints(self.clock, first_audio_target_ms=TARGET_MS)

    def workers(self, seconds: float, *hosts: HostStatus) -> int:
        for _ in range(round(seconds)):
            self.clock.advance(1000)
            self.hints.poll(hosts, ())
        return self.hints.wanted_workers

    def nodes(self, seconds: float, *nodes: Node) -> int:
        for _ in range(round(seconds)):
            self.clock.advance(1000)
            self.hints.poll((), nodes)
        return self.hints.wanted_nodes


def test_as_many_as_there_are_while_nothing_presses() -> None:
    assert Looked().workers(300, host(0, utilisation=0.5), host(1, utilisation=0.5)) == 2


def test_more_once_they_are_busy_for_a_while() -> None:
    looked, busy = Looked(), (host(0, utilisation=0.7), host(1, utilisation=0.7))
    assert looked.workers(BUSY_FOR_S, *busy) == 2
    assert looked.workers(2, *busy) == 3


def test_as_many_more_as_the_load_needs() -> None:
    assert Looked().workers(BUSY_FOR_S + 2, *(host(n, utilisation=0.95) for n in range(4))) == 7


def test_a_moment_of_calm_begins_the_wait_anew() -> None:
    looked = Looked()
    looked.workers(BUSY_FOR_S - 5, host(utilisation=0.9))
    looked.workers(1, host(utilisation=0.4))
    assert looked.workers(BUSY_FOR_S - 5, host(utilisation=0.9)) == 1


def test_more_at_once_when_first_audio_would_be_late() -> None:
    assert Looked().workers(1, host(first_audio_ms=250.0)) == 2
    assert Looked().workers(1, host(first_audio_ms=200.0)) == 1


def test_more_for_a_minute_after_a_refusal() -> None:
    looked = Looked()
    assert looked.workers(1, host(is_refusing=True)) == 2
    assert looked.workers(REFUSED_FOR_S - 1, host()) == 2
    assert looked.workers(3, host()) == 1


def test_one_less_after_a_long_calm_and_never_none() -> None:
    looked, calm = Looked(), (host(0, utilisation=0.1), host(1, utilisation=0.1))
    assert looked.workers(CALM_FOR_S, *calm) == 2
    assert looked.workers(2, *calm) == 1
    assert Looked().workers(CALM_FOR_S + 2, host()) == 1
    assert Looked().workers(1) == 1


def test_a_drained_worker_counts_neither_as_one_nor_as_calm() -> None:
    assert Looked().workers(BUSY_FOR_S + 2, host(0, utilisation=0.9), host(1, state="drained")) == 2


def test_nodes_by_their_lines() -> None:
    busy = Node(name="a", calls=70, max_calls=100)
    calm = Node(name="b", calls=10, max_calls=100)
    assert Looked().nodes(1, busy) == 2
    assert Looked().nodes(1, busy, calm) == 2
    looked = Looked()
    assert looked.nodes(CALM_LINES_FOR_S, calm, calm) == 2
    assert looked.nodes(2, calm, calm) == 1
    assert Looked().nodes(1, Node(name="c", max_calls=0)) == 1
