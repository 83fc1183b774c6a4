"""The socket at which a child waits for another server, and a supervisor that takes over what it did not start."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from textwrap import dedent

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.errors import ProcessFailed
from cc_tts.processes import adoption
from cc_tts.processes import peer as peer_module
from cc_tts.processes import supervisor as supervisor_module
from cc_tts.processes.adoption import Adopt, AdoptionSocket, adopt, ask, check_folder, socket_path
from cc_tts.processes.channel import PROTOCOL_VERSION, ChildChannel, Message, Ping, encode
from cc_tts.processes.peer import STOPPED, ProcessState
from cc_tts.processes.supervisor import ChildSpec, Supervisor
from lab.configured import is_running
from lab.waiting import until
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

TIMEOUT_S = 100.0
ROOT = Path(__file__).resolve().parents[2]
REQUEST = Adopt(protocol=PROTOCOL_VERSION, version="test", settings="same")

ORPHAN = """
import os, signal, sys, time
from pathlib import Path
from cc_tts.processes.adoption import *
from cc_tts.processes.channel import *
waiting = AdoptionSocket(Path(sys.argv[1]))
print("waits", flush=True)
channel, request = waiting.accept(())
def hello():
    channel.send(Hello(protocol=PROTOCOL_VERSION, process="test", pid=os.getpid(), build={"settings": request.settings}))
    channel.send(Ready())
def serve():
    while records := channel.read():
        for message, payload in records:
            if isinstance(message, Ping):
                channel.send(Pong(serial=message.serial))
            if isinstance(message, Shutdown):
                sys.exit(0)
"""
FRESH = "hello(); serve()"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sockets" / "ua.sock"


@pytest.fixture
async def orphans(path: Path) -> AsyncIterator[list["subprocess.Popen[bytes]"]]:
    """Children of somebody else, as far as a supervisor is concerned."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for each in made:
        each.kill()
        each.wait()
        assert each.stdout is not None
        each.stdout.close()


async def orphan(orphans: list["subprocess.Popen[bytes]"], path: Path, script: str) -> "subprocess.Popen[bytes]":
    """Start one; returns when it waits to be adopted."""
    argv = [sys.executable, "-c", ORPHAN + dedent(script), str(path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT)  # noqa: ASYNC220 - a moment
    orphans.append(process)
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == b"waits\n"
    return process


class Watched:
    """A supervisor whose own children say hello and serve."""

    def __init__(self, folder: Path) -> None:
        script = folder / "child.py"
        head = ORPHAN.partition("waiting =")[0] + (
            "import socket\n"
            'channel = ChildChannel(socket.socket(fileno=int(sys.argv[sys.argv.index("--channel-fd") + 1])), ())\n'
            'request = Adopt(protocol=1, version="", settings="started")\n'
        )
        script.write_text(
            f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + head + ORPHAN[ORPHAN.index("def hello") :] + FRESH
        )
        self.down: list[str] = []
        self.messages: list[Message] = []
        self.supervisor = Supervisor(
            ChildSpec(name="test", argv=[sys.executable, str(script)], messages=()),
            clock=MonotonicClock(),
            on_message=lambda message, _: self.messages.append(message),
            on_down=self.down.append,
        )

    @property
    def settings(self) -> str:
        hello = self.supervisor.hello
        return hello.build["settings"] if hello is not None else ""


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(peer_module, "BACKOFF_MIN_S", 0.02)
    monkeypatch.setattr(peer_module, "PING_INTERVAL_S", 0.05)
    made = Watched(tmp_path)
    yield made
    async with asyncio.timeout(TIMEOUT_S):
        await made.supervisor.stop()
    assert made.supervisor.state is ProcessState.STOPPED


async def test_an_adopted_child_is_stopped_like_any_other(
    orphans: list["subprocess.Popen[bytes]"], path: Path, watched: Watched
) -> None:
    process = await orphan(orphans, path, "hello(); channel.send(Ping(serial=7)); serve()")
    child = await adopt(path, REQUEST)
    assert child is not None
    await watched.supervisor.start(child)
    assert (watched.supervisor.pid, watched.settings) == (process.pid, "same")
    await until(lambda: watched.messages or watched.supervisor.is_responsive, timeout_s=TIMEOUT_S)
    await watched.supervisor.stop()
    assert process.wait(TIMEOUT_S) == 0
    assert watched.down == [STOPPED]


@pytest.mark.parametrize(
    ("script", "number"),
    [
        ("hello(); serve()", signal.SIGKILL),
        ("hello(); time.sleep(0.2)", None),
    ],
)
async def test_after_an_adopted_child_comes_one_of_our_own(
    orphans: list["subprocess.Popen[bytes]"], path: Path, watched: Watched, script: str, number: signal.Signals | None
) -> None:
    process = await orphan(orphans, path, script)
    await watched.supervisor.start(await adopt(path, REQUEST))
    if number is not None:
        process.send_signal(number)
    await until(lambda: watched.settings == "started", timeout_s=TIMEOUT_S)
    assert watched.down == ["exited"], "its status is somebody else's to know"
    assert watched.supervisor.pid != process.pid


@pytest.mark.parametrize("ignores", ["shutdown", "SIGTERM"])
async def test_an_adopted_child_that_does_not_end_is_ended(
    orphans: list["subprocess.Popen[bytes]"],
    path: Path,
    watched: Watched,
    monkeypatch: pytest.MonkeyPatch,
    ignores: str,
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(supervisor_module, "KILL_TIMEOUT_S", 0.2 if ignores == "SIGTERM" else TIMEOUT_S)
    ignored = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if ignores == "SIGTERM" else ""
    process = await orphan(orphans, path, f"{ignored}hello(); time.sleep(600)")
    await watched.supervisor.start(await adopt(path, REQUEST))
    await watched.supervisor.stop()
    wanted = signal.SIGKILL if ignores == "SIGTERM" else signal.SIGTERM
    assert process.wait(TIMEOUT_S) == -wanted


async def test_a_child_that_refuses_is_waited_for(orphans: list["subprocess.Popen[bytes]"], path: Path) -> None:
    script = 'channel.send(AdoptionRefused(detail="other settings")); time.sleep(0.3)'
    process = await orphan(orphans, path, script)
    # a zombie is over for its pidfd, though this test has still to wait for it
    assert await adopt(path, REQUEST) is None
    assert not is_running(process.pid)


async def test_a_child_that_ends_instead_of_answering(orphans: list["subprocess.Popen[bytes]"], path: Path) -> None:
    await orphan(orphans, path, "sys.exit(0)")
    assert await adopt(path, REQUEST) is None


async def test_a_child_that_has_a_server_does_not_answer(
    orphans: list["subprocess.Popen[bytes]"], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "ADOPT_TIMEOUT_S", 0.5)
    process = await orphan(orphans, path, "time.sleep(600)")
    with pytest.raises(ProcessFailed, match=f"process {process.pid} has another server, or hangs"):
        await adopt(path, REQUEST)


async def test_a_child_that_was_asked_has_a_server_before_its_answer_is_read(
    orphans: list["subprocess.Popen[bytes]"], path: Path
) -> None:
    """It does not wait for a server that has still to load."""
    process = await orphan(orphans, path, 'print("has a server", flush=True); hello(); serve()')
    asked = ask(path, REQUEST)
    assert asked is not None
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == b"has a server\n"
    child = await adopt(path, REQUEST, asked=asked)
    assert child is not None
    assert (child.pid, child.hello and child.hello.build) == (process.pid, {"settings": "same"})
    child.sock.close()


async def test_a_child_that_was_asked_and_has_ended_is_none(
    orphans: list["subprocess.Popen[bytes]"], path: Path
) -> None:
    process = await orphan(orphans, path, "sys.exit(0)")
    asked = ask(path, REQUEST)
    assert await asyncio.to_thread(process.wait, TIMEOUT_S) == 0
    assert await adopt(path, REQUEST, asked=asked) is None
    assert ask(path, REQUEST) is None


async def test_nobody_waits(path: Path) -> None:
    assert await adopt(path, REQUEST) is None, "there is no such directory"
    check_folder(path.parent)
    assert await adopt(path, REQUEST) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left_behind:
        left_behind.bind(str(path))
    assert await adopt(path, REQUEST) is None
    AdoptionSocket(path).close()
    assert await adopt(path, REQUEST) is None, "what was left behind was replaced"


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 64,
        b"",
        encode(Ping(serial=1)),
        encode(REQUEST) + encode(Ping(serial=1)),
        encode(REQUEST)[:-3],
    ],
)
async def test_who_does_not_ask_properly_is_sent_away(path: Path, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "REQUEST_TIMEOUT_S", 0.2)
    waiting = AdoptionSocket(path)
    taken: list[tuple[ChildChannel, Adopt]] = []
    reader = threading.Thread(target=lambda: taken.append(waiting.accept(())))
    reader.start()

    def ask_wrongly() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(TIMEOUT_S)
            stranger.connect(str(path))
            stranger.sendall(said)
            try:
                return stranger.recv(1)
            except ConnectionResetError:
                return b""

    assert await asyncio.to_thread(ask_wrongly) == b""
    assert not taken
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.connect(str(path))
        server.sendall(encode(REQUEST))
        await asyncio.to_thread(reader.join, TIMEOUT_S)
    ((channel, request),) = taken
    assert request == REQUEST
    channel.close()
    waiting.close()


async def test_both_sides_want_their_own_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = AdoptionSocket(path)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with ours, theirs, pytest.raises(ProcessFailed, match="belongs to user"):
        adoption.peer_of(ours)
    assert await adopt(path, REQUEST) is None
    waiting.close()


@pytest.mark.parametrize("kind", ["link", "file", "pipe", "open", "long"])
async def test_a_folder_of_somebody_else_costs_adoption_and_not_the_start(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    match kind:
        case "link":
            folder.symlink_to(tmp_path)
        case "file":
            folder.touch(mode=0o700)
        case "pipe":
            os.mkfifo(folder)
        case "open":
            folder.mkdir()
            folder.chmod(0o777)
    with capture_logs() as lines:
        assert await adopt(folder / ("a" * 100 if kind == "long" else "ua.sock"), REQUEST) is None
    assert [line["event"] for line in lines] == ([] if kind == "long" else ["calls_are_not_kept"])


def test_the_directory_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    check_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    check_folder(folder)
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "file").touch(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o750)
    for wrong in ("link", "file", "open"):
        with pytest.raises(ProcessFailed, match="not a directory of this user with mode 0700"):
            check_folder(tmp_path / wrong)
    with pytest.raises(ProcessFailed, match="no directory"):
        check_folder(tmp_path / "missing" / "sockets")
    with pytest.raises(ProcessFailed, match="too long"):
        AdoptionSocket(folder / ("a" * 100))


def test_where_the_sockets_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 42)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp/of-tests")
    service = {"RUNTIME_DIRECTORY": "/run/cc-tts:/run/other", "XDG_RUNTIME_DIR": "/run/user/42"}
    assert str(socket_path(service, "ua-::1-5060")) == "/run/cc-tts/ua/ua-1-5060.sock"
    del service["RUNTIME_DIRECTORY"]
    assert str(socket_path(service, "ua-127.0.0.1-5060")) == "/run/user/42/cc-tts/ua-127.0.0.1-5060.sock"
    assert str(socket_path({}, "ua")) == "/tmp/of-tests/cc-tts-42/ua.sock"


def test_a_child_does_not_remove_the_socket_of_the_next(path: Path) -> None:
    first, second = AdoptionSocket(path), AdoptionSocket(path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()
