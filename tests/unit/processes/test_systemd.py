"""What a service manager is told, without a socket."""

import os
from collections.abc import Mapping

import pytest

from cc_tts.processes import systemd
from cc_tts.processes.systemd import EXTENSION_S, INTERVAL_S, MAX_STATUS_CHARS, Notifier
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

EXTEND = f"EXTEND_TIMEOUT_USEC={EXTENSION_S * 1e6:.0f}"


class Manager:
    """Keeps what it is told, a list of assignments a message."""

    def __init__(self, *, watchdog_s: float = 0.0) -> None:
        self.messages: list[list[str]] = []
        self.is_full = False
        clock = FakeClock()
        clock.at_ns = 7_000_999
        self.notifier = Notifier(self.take, clock=clock, watchdog_s=watchdog_s)

    def take(self, message: str) -> bool:
        """A message; ``False`` if its socket is full."""
        if not self.is_full:
            self.messages.append(message.split("\n"))
        return not self.is_full

    def update(self, reason: str | None, num_calls: int = 0) -> list[str]:
        self.messages.clear()
        self.notifier.update(not_ready_because=reason, num_calls=num_calls)
        return [line for message in self.messages for line in message]


def test_what_could_not_be_sent_is_said_again() -> None:
    manager = Manager()
    manager.is_full = True
    assert manager.update(None) == []
    manager.is_full = False
    assert manager.update(None) == ["READY=1", "STATUS=0 calls"]
    assert manager.update(None) == []


def test_ready_is_said_once_and_not_before_a_call_would_be_answered() -> None:
    manager = Manager()
    starting = "the SIP user agent is starting"
    assert manager.update(starting) == [EXTEND, f"STATUS=0 calls; not ready: {starting}"]
    assert manager.update(starting) == [EXTEND]
    assert manager.update(None) == ["READY=1", "STATUS=0 calls"]
    assert manager.update(None) == []
    assert manager.update("all 4 lines are busy", 4) == ["STATUS=4 calls; not ready: all 4 lines are busy"]
    assert manager.update(None, 1) == ["STATUS=1 call"]


def test_a_drain_keeps_the_manager_waiting_and_is_never_ready_again() -> None:
    manager = Manager()
    manager.update(None, 2)
    manager.messages.clear()
    manager.notifier.stopping()
    assert manager.messages == [["STOPPING=1", EXTEND]]
    assert manager.update("draining", 2) == [EXTEND, "STATUS=2 calls; not ready: draining"]
    manager.messages.clear()
    manager.notifier.reloading()
    manager.notifier.reloaded()
    assert manager.messages == []
    not_started = Manager()
    not_started.update("the speech engine: starting")
    not_started.notifier.stopping()
    assert "READY=1" not in not_started.update(None)


def test_a_reload_is_bracketed_and_stamped() -> None:
    manager = Manager()
    manager.notifier.reloading()
    assert manager.messages == []  # it has never been ready, and READY=1 would say that it is
    manager.update(None)
    manager.messages.clear()
    manager.notifier.reloading()
    manager.notifier.reloaded()
    assert manager.messages == [["RELOADING=1", "MONOTONIC_USEC=7000"], ["READY=1"]]


def test_the_watchdog_is_fed_at_least_three_times_in_its_interval() -> None:
    manager = Manager(watchdog_s=1.5)
    assert manager.notifier.interval_s == 0.5
    assert manager.update("starting")[0] == "WATCHDOG=1"
    manager.update(None)
    assert manager.update(None) == ["WATCHDOG=1"]
    assert Manager(watchdog_s=30).notifier.interval_s == INTERVAL_S


def test_the_status_is_one_line_of_bounded_length() -> None:
    (_, status) = Manager().update("the speech engine: one\nREADY=1\n" + "x" * 1000)
    assert status.startswith("STATUS=0 calls; not ready: the speech engine: one READY=1 x")
    assert len(status) == len("STATUS=") + MAX_STATUS_CHARS


@pytest.mark.parametrize(
    ("environ", "is_on", "interval_s"),
    [
        ({}, False, INTERVAL_S),
        ({"NOTIFY_SOCKET": ""}, False, INTERVAL_S),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, False, INTERVAL_S),
        ({"NOTIFY_SOCKET": "/nowhere/notify"}, True, INTERVAL_S),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "600000"}, True, 0.2),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "600000", "WATCHDOG_PID": str(os.getpid())}, True, 0.2),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "600000", "WATCHDOG_PID": "1"}, True, INTERVAL_S),
        ({"NOTIFY_SOCKET": "@abstract", "WATCHDOG_USEC": "soon"}, True, INTERVAL_S),
    ],
)
def test_the_environment_decides(environ: Mapping[str, str], is_on: bool, interval_s: float) -> None:
    notifier = systemd.notifier(environ, clock=FakeClock())
    assert notifier.is_on is is_on
    assert notifier.interval_s == pytest.approx(interval_s)
    notifier.update(not_ready_because=None, num_calls=0)  # a manager that is gone stops nothing
