"""Whether a port of this machine is free, and which process listens on it, as far as ``/proc`` shows it to this user."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

Kind = Literal["udp", "tcp"]

SOCKET_KINDS: Final = {"udp": socket.SOCK_DGRAM, "tcp": socket.SOCK_STREAM}
_TCP_LISTEN: Final = "0A"


@dataclass(frozen=True, slots=True)
class PortOwner:
    """A process. ``command_line`` is for looking at, not for logs: it may hold secrets."""

    pid: int
    command_line: str

    def __str__(self) -> str:
        return f"{Path(self.command_line.partition(' ')[0]).name or 'a program'}, pid {self.pid}"


def find(kind: Kind, port: int) -> PortOwner | None:
    """Return the process that holds the port; ``None`` if unknown: other users' processes are hidden without root."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(kind, port)}
    if not wanted:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(entry.readlink()) in wanted for entry in (process / "fd").iterdir()):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                return PortOwner(int(process.name), line)
        except OSError:
            continue
    return None


def bind_error(kind: Kind, family: int, address: Any) -> OSError | None:
    """Why this address cannot be bound, or ``None`` if it can. TCP is bound as a server does it, with SO_REUSEADDR."""
    try:
        with socket.socket(family, SOCKET_KINDS[kind]) as probe:
            if kind == "tcp":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            if kind == "tcp":
                probe.listen(1)
    except OSError as error:
        return error
    return None


def reason(kind: Kind, port: int, otherwise: str) -> str:
    """Return why a port cannot be bound: the process that holds it, if known, else ``otherwise``."""
    owner = find(kind, port)
    return f"the port is taken by {owner}" if owner else otherwise


def _inodes(kind: Kind, port: int) -> Iterator[str]:
    for name in (kind, f"{kind}6"):
        try:
            lines = Path(f"/proc/net/{name}").read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for words in (line.split() for line in lines):
            if int(words[1].rpartition(":")[2], 16) == port and (kind == "udp" or words[3] == _TCP_LISTEN):
                yield words[9]
