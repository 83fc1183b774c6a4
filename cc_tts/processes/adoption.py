"""Adoption: a child process outlives its server, and waits at a Unix socket for the next server.

::

    server ──Adopt──▸ child      its protocol and a fingerprint of its settings
    server ◂──Hello── child      then Ready and what the child has to tell, as on any channel
    server ◂──AdoptionRefused──  the child ends by itself

The socket lies in a directory that only this user can enter, and both sides check that the other runs as this user. A child
accepts a server while it has none; one that comes earlier waits in the socket's backlog.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import stat
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cc_tts import logs
from cc_tts.errors import ProcessFailed
from cc_tts.processes.channel import HEADER, READ_BYTES, ChildChannel, Decoder, Hello, Message, Record, encode

ADOPT_TIMEOUT_S: Final = 5.0
"""A server waits this long for the answer of a child that it wants to adopt. Unmeasured."""
REQUEST_TIMEOUT_S: Final = 1.0
"""A child waits this long for the request of a server that has connected. Unmeasured."""
REFUSED_TIMEOUT_S: Final = 20.0
"""A child that has refused must end within this time. Unmeasured."""
STATUS_UNKNOWN: Final = 256
"""The exit status that is reported for a process that is not our child."""
MAX_PATH_BYTES: Final = 100
"""The longest path of a socket: ``sun_path`` of Linux has 107 bytes (unix(7)), minus a suffix that is used while the socket
is made.
"""
_BACKLOG: Final = 4
_CREDENTIALS: Final = struct.Struct("3i")
"""pid, uid and gid of SO_PEERCRED (unix(7))."""

log = logs.get(__name__)


class Adopt(Message, frozen=True):
    """Server → child, first: the server that wants to adopt it. ``version`` is for people; the other two must equal the
    child's.
    """

    protocol: int
    version: str
    settings: str


class AdoptionRefused(Message, frozen=True):
    """Child → server, instead of ``Hello``: why it cannot be adopted. The child then ends by itself."""

    detail: str


class HasServer(ProcessFailed):
    """The child already has a server, or hangs. ``pid`` is the child's, ``server_pid`` its parent's, 0 if the parent has
    ended.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} has another server, or hangs: it did not answer")
        self.pid = pid
        self.server_pid = parent_of(pid)


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if that has ended, so that another process has taken its place."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        parent = int(fields[1])
        command = Path(f"/proc/{parent}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return 0
    return parent if b"serve" in command.split(b"\0") else 0


def network_namespace() -> str:
    """Return an identifier of this process's network namespace that is unique on the machine; empty if it
    cannot be found.
    """
    try:
        return format(Path("/proc/self/ns/net").stat().st_ino, "x")
    except OSError:
        return ""


def socket_path(environ: Mapping[str, str], name: str) -> Path:
    """Return the socket path of a child of this name: in a directory of ``$RUNTIME_DIRECTORY``, ``$XDG_RUNTIME_DIR`` or the
    temporary folder.
    """
    if service := environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]:
        folder = Path(service) / "ua"
    elif user := environ.get("XDG_RUNTIME_DIR", ""):
        folder = Path(user) / "cc-tts"
    else:
        folder = Path(tempfile.gettempdir()) / f"cc-tts-{os.geteuid()}"
    return folder / (re.sub(r"[^A-Za-z0-9.]+", "-", name) + ".sock")


def check_folder(folder: Path) -> None:
    """Create the directory of the sockets if needed. Raises ``ProcessFailed`` if others can access it."""
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=stat.S_IRWXU)
        found = folder.lstat()
    except OSError as error:
        raise ProcessFailed(f"no directory for the sockets of child processes: {error}") from error
    is_private = (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
    )
    if not is_private:
        raise ProcessFailed(f"{folder} is not a directory of this user with mode 0700")


def check_path(path: Path) -> None:
    """Create the directory of a socket if needed. Raises ``ProcessFailed`` if the socket could not be used."""
    check_folder(path.parent)
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise ProcessFailed(f"{path} is too long for a socket")


class AdoptionSocket:
    """The child's end. It replaces any socket at this path: the caller holds whatever makes the name unique.

    Raises:
        ProcessFailed: it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        check_path(path)
        self._path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        new = path.with_suffix(".new")
        try:
            new.unlink(missing_ok=True)
            self._listener.bind(str(new))
            self._listener.listen(_BACKLOG)
            self._inode = new.stat().st_ino
            new.replace(path)
        except OSError as error:
            self._listener.close()
            raise ProcessFailed(f"cannot listen at {path}: {error}") from error

    def accept(self, types: Sequence[type[Message]]) -> tuple[ChildChannel, Adopt]:
        """Wait for a server with a valid request. Raises ``OSError`` if the socket is closed. Runs on: the reader thread."""
        while True:
            connection, _ = self._listener.accept()
            try:
                return _request_of(connection, types)
            except (OSError, ProcessFailed) as error:
                log.warning("adoption_not_understood", detail=str(error))
                connection.close()

    def close(self) -> None:
        """Stop listening, and remove the path if it is still ours."""
        self._listener.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


def _request_of(connection: socket.socket, types: Sequence[type[Message]]) -> tuple[ChildChannel, Adopt]:
    peer_of(connection)
    connection.settimeout(REQUEST_TIMEOUT_S)
    records = ChildChannel(connection, (Adopt,), timeout_s=REQUEST_TIMEOUT_S).read()
    if len(records) != 1 or not isinstance(records[0][0], Adopt):
        raise ProcessFailed("a server that adopts says so first, and waits for the answer")
    return ChildChannel(connection, types), records[0][0]


def peer_of(connection: socket.socket) -> int:
    """Return the process id of the other side. Raises ``ProcessFailed`` if it runs as another user."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.geteuid():
        raise ProcessFailed(f"process {pid} at the other end belongs to user {uid}")
    return int(pid)


class AdoptedProcess:
    """A process that is not our child, with the methods that a supervisor needs. It is asked to be adopted, and its messages
    after ``hello`` are still to be read from ``sock``.
    """

    def __init__(self, pid: int, sock: socket.socket) -> None:
        """Raises ``ProcessLookupError`` if it has ended."""
        self.pid = pid
        self.sock = sock
        self.hello: Hello | None = None
        """Its answer; ``None`` until it is adopted."""
        self._pidfd = os.pidfd_open(pid)
        self._has_exited = asyncio.Event()

    def watch(self) -> None:
        """Notice its end from now on. Runs on: the event loop, as what follows."""
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    @property
    def returncode(self) -> int | None:
        """:data:`STATUS_UNKNOWN` once it has ended."""
        return STATUS_UNKNOWN if self._has_exited.is_set() else None

    async def wait(self) -> int:
        await self._has_exited.wait()
        return STATUS_UNKNOWN

    def send_signal(self, number: int) -> None:
        """Send a signal; raises ``ProcessLookupError`` if it has ended."""
        if self._has_exited.is_set():
            raise ProcessLookupError
        signal.pidfd_send_signal(self._pidfd, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._has_exited.set()


def ask(path: Path, request: Adopt) -> AdoptedProcess | None:
    """Ask the child that waits at ``path`` to be adopted; if it has no server, we are its server from now on. ``None``: no
    child waits there.

    Raises:
        ProcessFailed: it cannot be asked.
    """
    check_path(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)  # noqa: FBT003 - the standard library's
    try:
        sock.connect(str(path))
        asked = AdoptedProcess(peer_of(sock), sock)
        with contextlib.suppress(ConnectionError):
            sock.sendall(encode(request))
    except (FileNotFoundError, ConnectionRefusedError, ProcessLookupError):  # it has ended and left its socket behind
        sock.close()
        return None
    except OSError as error:
        sock.close()
        raise ProcessFailed(f"cannot adopt the process at {path}: {error}") from error
    except ProcessFailed:
        sock.close()
        raise
    return asked


async def adopt(path: Path, request: Adopt, *, asked: AdoptedProcess | None = None) -> AdoptedProcess | None:
    """Adopt the child that waits at ``path``, or that was ``asked`` earlier. Returns ``None`` if none waits, if it refused
    and has ended, or if others can access the directory.

    Raises:
        HasServer: it has another server, or hangs.
        ProcessFailed: it is not ours to adopt, or does not end.
    """
    if asked is None and (not may_wait_at(path) or (asked := ask(path, request)) is None):
        return None
    asked.watch()
    try:
        asked.hello = await _answer_of(asked)
    finally:
        if asked.hello is None:
            asked.sock.close()
    return None if asked.hello is None else asked


def may_wait_at(path: Path) -> bool:
    """Whether the directory of this socket exists and only we can access it; otherwise a warning is logged."""
    try:
        if os.path.lexists(path.parent):
            check_path(path)
            return True
    except ProcessFailed as error:
        log.warning("calls_are_not_kept", detail=error.detail)
    return False


async def _answer_of(process: AdoptedProcess) -> Hello | None:
    """Return its ``Hello``; ``None`` if it refused, and has ended."""
    pid = process.pid
    try:
        async with asyncio.timeout(ADOPT_TIMEOUT_S):
            record = await _read_one(process.sock, (Hello, AdoptionRefused))
    except TimeoutError:
        raise HasServer(pid) from None
    match record:
        case (Hello() as hello, _):
            return hello
        case (AdoptionRefused(detail=detail), _):
            log.warning("not_adopted", pid=pid, detail=detail)
    try:
        await asyncio.wait_for(process.wait(), REFUSED_TIMEOUT_S)
    except TimeoutError:
        raise ProcessFailed(f"process {pid} is not adopted and does not end") from None
    return None


async def _read_one(sock: socket.socket, types: Sequence[type[Message]]) -> Record | None:
    """Read exactly one record; ``None`` if the other side is gone. ``sock`` does not block. Raises ``ProcessFailed`` for
    unexpected types.
    """
    decoder = Decoder(types)
    header = await _read_exactly(sock, HEADER.size)
    if header is None:
        return None
    decoder.feed(header)  # checks the lengths
    rest = await _read_exactly(sock, sum(HEADER.unpack(header)))
    return None if rest is None else decoder.feed(rest)[0]


async def _read_exactly(sock: socket.socket, num_bytes: int) -> bytes | None:
    data = bytearray()
    while len(data) < num_bytes:
        try:
            part = await asyncio.get_running_loop().sock_recv(sock, min(num_bytes - len(data), READ_BYTES))
        except ConnectionError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)
