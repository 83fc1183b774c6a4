"""How the doctor touches the machine: sockets, files, limits, child processes. No judgement here.

Everything returns ``None`` (or an empty text) for what cannot be known; nothing raises for what it finds.
"""

import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from cc_tts import port_owner
from cc_tts.clock import MonotonicClock
from cc_tts.port_owner import Kind

MAX_OUTPUT_CHARS: Final = 65_536
"""Of a child's output; the rest is dropped."""
_CLOCK_READINGS: Final = 10_000
_STANDS_STILL_NS: Final = 1_000_000_000
_NOWHERE: Final = ("192.0.2.1", 9)
"""Of TEST-NET-1: connecting a UDP socket sends nothing and shows which address would be used."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A child's end. ``status`` is ``None`` when it could not be started or ran too long; ``output`` is then the reason."""

    status: int | None
    output: str


class Probes:
    """What the checks ask the machine; tests put a made-up machine in its place."""

    def bind_error(self, kind: Kind, host: str, port: int) -> OSError | None:
        """Why this address cannot be bound, or ``None`` if it can. TCP is bound as a server does it, with SO_REUSEADDR."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM) as probe:
                if kind == "tcp":
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
                if kind == "tcp":
                    probe.listen(1)
        except OSError as error:
            return error
        return None

    def holder(self, kind: Kind, port: int) -> str:
        """Command line of the process that holds a port; empty if it cannot be found.

        Other users' processes are not seen without root.
        """
        owner = port_owner.find(kind, port)
        return owner.command_line if owner else ""

    def local_address(self) -> str:
        """The IPv4 address this machine would send from; empty without a route."""
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(_NOWHERE)
                return str(probe.getsockname()[0])
        except OSError:
            return ""

    def resolves(self, name: str) -> bool:
        """Whether a host name has an address."""
        try:
            return bool(socket.getaddrinfo(name, None))
        except OSError:
            return False

    def host_name(self) -> str:
        """Name of the machine."""
        return socket.gethostname()

    def read_text(self, path: str) -> str | None:
        """A small file, without white space at its ends."""
        try:
            with Path(path).open(encoding="utf-8", errors="replace") as file:
                return file.read(16 * MAX_OUTPUT_CHARS).strip()
        except OSError:
            return None

    def glob(self, folder: str, pattern: str) -> Sequence[str]:
        """Paths below a folder."""
        return sorted(str(path) for path in Path(folder).glob(pattern))

    def num_bytes(self, path: Path) -> int | None:
        """Size of a file, following links."""
        try:
            return path.stat().st_size if path.is_file() else None
        except OSError:
            return None

    def can_read(self, path: Path) -> bool:
        """Whether this user may read a file, or list a folder."""
        return os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))

    def can_write(self, folder: Path) -> bool:
        """Whether this user may put files into a folder, or make it if it is not there."""
        there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
        return there.is_dir() and os.access(there, os.W_OK | os.X_OK)

    def mode(self, path: Path) -> int | None:
        """Permission bits."""
        try:
            return path.stat().st_mode & 0o777
        except OSError:
            return None

    def free_bytes(self, path: Path) -> int | None:
        """Space left for this user on the file system of a path. Of the nearest folder above that exists."""
        try:
            return shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
        except (OSError, StopIteration):
            return None

    def run(self, command: Sequence[str], *, timeout_s: float) -> Ran:
        """Start a program and return its standard output, and on standard error if it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - programs named in this package
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                text=True,
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return Ran(None, f"no answer within {timeout_s:g} s")
        except OSError as error:
            return Ran(None, str(error.strerror))
        output = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        return Ran(done.returncode, output.strip()[-MAX_OUTPUT_CHARS:])

    def python(self, code: str, *arguments: str, timeout_s: float) -> Ran:
        """Run Python code in a process of its own."""
        return self.run([sys.executable, "-c", code, *arguments], timeout_s=timeout_s)

    def has_program(self, name: str) -> bool:
        """Whether a program is on the path."""
        return shutil.which(name) is not None

    def max_open_files(self) -> int:
        """The soft limit of descriptors."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def num_cpus(self) -> int:
        """Cores that this process may use."""
        return len(os.sched_getaffinity(0))

    def clock_resolution_ns(self) -> int:
        """Smallest step of CLOCK_MONOTONIC that was seen, with the time it takes to ask, ns."""
        now_ns = MonotonicClock().now_ns
        readings = [now_ns() for _ in range(_CLOCK_READINGS)]
        return min(
            (later - earlier for earlier, later in pairwise(readings) if later > earlier), default=_STANDS_STILL_NS
        )
