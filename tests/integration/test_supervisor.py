"""A supervised child: real processes that behave and misbehave."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import sys
import termios
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.errors import ProcessFailed
from cc_tts.processes import peer as peer_module
from cc_tts.processes import supervisor as supervisor_module
from cc_tts.processes.channel import Hello, Message, Ping
from cc_tts.processes.peer import STOPPED, ProcessState
from cc_tts.processes.supervisor import ChildSpec, Supervisor
from lab.waiting import until

pytestmark = pytest.mark.integration

TIMEOUT_S = 20.0
WAIT_S = 100.0
ROOT = Path(__file__).resolve().parents[2]

HEAD = """
import contextlib, os, signal, socket, sys, time
sys.path.insert(0, {root!r})
from cc_tts.processes.channel import *
given = sys.stdin.buffer.read()
sock = socket.socket(fileno=int(sys.argv[sys.argv.index("--channel-fd") + 1]))
channel = ChildChannel(sock, ())
def hello(protocol=PROTOCOL_VERSION, ready=True):
    channel.send(Hello(protocol=protocol, process="test", pid=os.getpid(), build={{"stdin": given.decode()}}))
    if ready:
        channel.send(Ready())
def serve(pong=True, shutdown=True):
    while records := channel.read():
        for message, payload in records:
            if isinstance(message, Ping) and pong:
                with contextlib.suppress(ProcessFailed):  # the server is gone, which the next read shows
                    channel.send(Pong(serial=message.serial), payload)
            if isinstance(message, Shutdown) and shutdown:
                channel.send(Pong(serial=-1))
                sys.exit(0)
"""


@dataclass
class Watched:
    supervisor: Supervisor
    ready: list[Hello]
    down: list[str]
    messages: list[tuple[Message, bytes]]


class Nursery:
    """Makes supervised children from small scripts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.all: list[Watched] = []
        self._others = own_children()  # such as a server that tests share

    def living(self) -> list[int]:
        return sorted(set(own_children()) - set(self._others))

    def make(self, script: str, *, argv: list[str] | None = None, **timeouts_s: float) -> Watched:
        """A supervisor of a child that runs ``script``; ``timeouts_s`` are those of :class:`ChildSpec`."""
        path = self._folder / f"child{len(self.all)}.py"
        path.write_text(HEAD.format(root=str(ROOT)) + dedent(script))
        ready: list[Hello] = []
        down: list[str] = []
        messages: list[tuple[Message, bytes]] = []
        supervisor = Supervisor(
            ChildSpec(
                name="test", argv=argv or [sys.executable, str(path)], messages=(), stdin=b"settings", **timeouts_s
            ),
            clock=MonotonicClock(),
            on_message=lambda message, payload: messages.append((message, payload)),
            on_ready=ready.append,
            on_down=down.append,
        )
        watched = Watched(supervisor, ready, down, messages)
        self.all.append(watched)
        return watched


@pytest.fixture
async def nursery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nursery]:
    monkeypatch.setattr(peer_module, "BACKOFF_MIN_S", 0.02)
    monkeypatch.setattr(peer_module, "BACKOFF_MAX_S", 0.05)
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 1.0)
    monkeypatch.setattr(peer_module, "PING_INTERVAL_S", 0.05)
    children = Nursery(tmp_path)
    yield children
    for watched in children.all:
        async with asyncio.timeout(TIMEOUT_S):
            await watched.supervisor.stop()
        assert watched.supervisor.state is ProcessState.STOPPED
        assert watched.supervisor.pid is None
    assert children.living() == []


def own_children() -> list[int]:
    """Processes this one has started and not waited for, zombies included."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def send_much(supervisor: Supervisor) -> None:
    for serial in range(100):
        supervisor.send(Ping(serial=serial), bytes(100_000))


async def test_it_becomes_ready_and_stops(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve()")
    supervisor = watched.supervisor
    with pytest.raises(ProcessFailed, match="stopped"):
        supervisor.send(Ping(serial=1))
    await supervisor.start()
    assert supervisor.state is ProcessState.READY
    assert supervisor.pid == watched.ready[0].pid
    assert watched.ready[0].build == {"stdin": "settings"}, "its settings come on standard input"
    supervisor.send(Ping(serial=7), b"payload")
    await supervisor.stop()
    assert watched.down == [STOPPED]
    assert supervisor.num_restarts == 0
    await supervisor.stop()


async def test_it_is_killed_and_comes_back(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve()")
    await watched.supervisor.start()
    for number in range(1, 4):
        pid = watched.supervisor.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda wanted=number: len(watched.ready) == wanted + 1)  # type: ignore[misc]
        assert watched.supervisor.num_restarts == number
    assert watched.down == ["killed by SIGKILL"] * 3


async def test_it_exits_and_says_why(nursery: Nursery) -> None:
    watched = nursery.make('hello(); time.sleep(0.2); sys.exit(7 if not os.path.exists("/nonexistent") else 0)')
    await watched.supervisor.start()
    await until(lambda: watched.down)
    assert watched.down[0] == "exited with status 7"


async def test_back_off_grows_and_is_bounded(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(peer_module, "BACKOFF_MAX_S", 0.1)
    monkeypatch.setattr(
        supervisor_module.log, "error", lambda event, **data: waits.append(data["restart_in_s"]), raising=False
    )
    watched = nursery.make("hello(); sys.exit(1)")
    await watched.supervisor.start()
    await until(lambda: len(waits) >= 5)
    assert waits[:5] == [0.02, 0.04, 0.08, 0.1, 0.1]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sys.exit(3)", "exited with status 3"),
        ("hello(protocol=99); time.sleep(60)", "speaks protocol 99"),
        ('sock.sendall(b"garbage" * 10); time.sleep(60)', "broken"),
        ("channel.send(Pong(serial=1)); channel.send(Ready()); time.sleep(60)", "before it was ready"),
        ('channel.send(StartFailed(detail="the port is taken")); sys.exit(4)', "the port is taken"),
        ("sock.close(); time.sleep(60)", "closed by the other side"),
    ],
)
async def test_it_cannot_start(nursery: Nursery, script: str, reason: str) -> None:
    watched = nursery.make(script)
    with pytest.raises(ProcessFailed, match=reason):
        await watched.supervisor.start()
    assert watched.supervisor.state is ProcessState.STOPPED
    assert watched.down == [], "who was never up is not down"
    assert nursery.living() == []


async def test_there_is_no_such_program(nursery: Nursery) -> None:
    watched = nursery.make("", argv=["/nonexistent/program"])
    before = num_open_files()
    with pytest.raises(ProcessFailed, match="No such file"):
        await watched.supervisor.start()
    await asyncio.sleep(0)
    assert num_open_files() <= before


async def test_it_never_becomes_ready(nursery: Nursery) -> None:
    watched = nursery.make("hello(ready=False); time.sleep(60)", start_timeout_s=0.5)
    with pytest.raises(ProcessFailed, match="not ready within"):
        await watched.supervisor.start()
    assert nursery.living() == []


async def test_it_falls_silent(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve(pong=False)", heartbeat_timeout_s=0.5)
    await watched.supervisor.start()
    await until(lambda: watched.down)
    assert watched.down[0].startswith("no heartbeat")


async def test_a_pause_of_the_server_kills_no_healthy_child(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve()", heartbeat_timeout_s=0.5)
    await watched.supervisor.start()
    for _ in range(3):
        time.sleep(1.5)  # as in a frozen container: neither pings nor pongs  # noqa: ASYNC251
        await asyncio.sleep(0.2)
    assert watched.down == []
    assert watched.supervisor.is_responsive


async def test_a_child_that_is_paused_is_not_responsive_and_comes_back(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve()")
    await watched.supervisor.start()
    await until(lambda: watched.supervisor.is_responsive)
    assert watched.supervisor.pid is not None
    os.kill(watched.supervisor.pid, signal.SIGSTOP)
    await until(lambda: not watched.supervisor.is_responsive)
    os.kill(watched.supervisor.pid, signal.SIGCONT)
    await until(lambda: watched.supervisor.is_responsive)
    assert watched.down == []


async def test_it_is_started_again_on_demand(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve()")
    await watched.supervisor.start()
    watched.supervisor.restart("does not do its work")
    await until(lambda: len(watched.ready) == 2)
    (reason,) = watched.down
    assert reason.startswith("does not do its work")


async def test_it_stops_reading(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "MAX_BACKLOG_BYTES", 1_000_000)
    watched = nursery.make("hello(); time.sleep(60)")
    await watched.supervisor.start()
    with pytest.raises(ProcessFailed, match="stopped reading"):
        send_much(watched.supervisor)
    await until(lambda: watched.down)
    assert watched.down == ["the other side has stopped reading"]


async def test_garbage_in_the_middle_ends_it_once(nursery: Nursery) -> None:
    watched = nursery.make('hello(); time.sleep(0.2); sock.sendall(b"\\xff" * 64); time.sleep(60)')
    await watched.supervisor.start()
    await until(lambda: watched.supervisor.num_restarts)
    assert len(watched.down) == 1
    assert "broken" in watched.down[0]


async def test_last_words_are_heard(nursery: Nursery) -> None:
    watched = nursery.make(
        """
        hello()
        while not any(isinstance(message, Shutdown) for message, _ in channel.read()):
            pass
        for serial in range(100):
            channel.send(Ping(serial=serial), bytes(100))
        """
    )
    await watched.supervisor.start()
    await watched.supervisor.stop()
    assert [message for message, _ in watched.messages] == [Ping(serial=serial) for serial in range(100)]


@pytest.mark.parametrize(
    ("script", "ends_by"),
    [
        ("hello(); serve(shutdown=False)", "SIGTERM"),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); hello(); serve(shutdown=False)", "SIGKILL"),
    ],
)
async def test_it_ignores_shutdown(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch, script: str, ends_by: str
) -> None:
    signals: list[str] = []
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(supervisor_module, "KILL_TIMEOUT_S", 0.2 if ends_by == "SIGKILL" else TIMEOUT_S)
    monkeypatch.setattr(
        supervisor_module.log, "warning", lambda event, **data: signals.append(data["signal"]), raising=False
    )
    watched = nursery.make(script)
    await watched.supervisor.start()
    await watched.supervisor.stop()
    assert signals == ["SIGTERM", "SIGKILL"][: 1 if ends_by == "SIGTERM" else 2]
    assert watched.down == [STOPPED]


async def test_stop_while_it_starts_and_while_it_waits(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 0.1)
    slow = nursery.make("time.sleep(60)")
    starting = asyncio.create_task(slow.supervisor.start())
    await until(lambda: slow.supervisor.pid)
    await slow.supervisor.stop()
    with pytest.raises(ProcessFailed):
        await starting
    monkeypatch.setattr(peer_module, "BACKOFF_MIN_S", 60.0)
    dying = nursery.make("hello(); time.sleep(0.2)")
    await dying.supervisor.start()
    await until(lambda: dying.supervisor.state is ProcessState.BACKOFF)
    async with asyncio.timeout(TIMEOUT_S):
        await dying.supervisor.stop()


async def test_twenty_lives_leave_nothing_behind(nursery: Nursery) -> None:
    watched = nursery.make("hello(); serve()")
    await watched.supervisor.start()
    before = num_open_files()
    for number in range(20):
        pid = watched.supervisor.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda wanted=number: len(watched.ready) == wanted + 2)  # type: ignore[misc]
        watched.supervisor.num_restarts = 0
    await asyncio.sleep(0.05)
    assert num_open_files() <= before
    assert len(nursery.living()) == 1
    assert len(watched.down) == 20


async def test_a_child_that_still_starts_is_ended_at_once(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 3600.0)
    slow = nursery.make("time.sleep(3600)")
    starting = asyncio.create_task(slow.supervisor.start())
    await until(lambda: slow.supervisor.pid)
    async with asyncio.timeout(WAIT_S):
        await slow.supervisor.stop()
    with pytest.raises(ProcessFailed, match="was stopped"):
        await starting


ON_A_TERMINAL = """
import asyncio, os, signal, sys
from cc_tts.clock import MonotonicClock
from cc_tts.processes.supervisor import ChildSpec, Supervisor
async def main():
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    spec = ChildSpec(name="test", argv=[sys.executable, sys.argv[1]], messages=())
    nothing = lambda *_: None
    supervisor = Supervisor(spec, clock=MonotonicClock(), on_message=nothing, on_down=nothing)
    await supervisor.start()
    print("same session:", os.getsid(supervisor.pid) == os.getsid(0), flush=True)
    print("press it", flush=True)
    await interrupted.wait()
    print("the parent was interrupted", flush=True)
    await supervisor.stop()
asyncio.run(main())
"""


async def test_ctrl_c_on_the_terminal_reaches_the_parent_alone(tmp_path: Path) -> None:
    script = """
    count = []
    signal.signal(signal.SIGINT, lambda *_: count.append(1))
    hello()
    try:
        serve()
    finally:
        print(f"the child was interrupted {len(count)} times", file=sys.stderr, flush=True)
    """
    child, parent = tmp_path / "child.py", tmp_path / "parent.py"
    child.write_text(HEAD.format(root=str(ROOT)) + dedent(script))
    parent.write_text(ON_A_TERMINAL)
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(parent), str(child)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    shown = ""

    def has_shown(text: str) -> bool:
        nonlocal shown
        with contextlib.suppress(OSError):
            shown += os.read(ours, 4096).decode()
        return text in shown

    try:
        await until(lambda: has_shown("press it"), timeout_s=WAIT_S)
        os.write(ours, b"\x03")
        await until(lambda: has_shown("times"), timeout_s=WAIT_S)
        assert await process.wait() == 0, shown
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
        os.close(theirs)
    assert "same session: True" in shown
    assert "the parent was interrupted" in shown
    assert "the child was interrupted 0 times" in shown
