"""How the doctor examines the machine: sockets, the kernel's files, limits, child processes. Unknown values are ``None`` or
empty; nothing is raised for what is found.
"""

import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from cc_tts import port_owner
from cc_tts.clock import NS_PER_S, MonotonicClock
from cc_tts.egress.own_address import own_address_towards
from cc_tts.port_owner import Kind

MAX_OUTPUT_CHARS: Final = 65_536
"""The most characters that are read of a child's output and of a file (unmeasured)."""
_CLOCK_READINGS: Final = 10_000
_STANDS_STILL_NS: Final = NS_PER_S
_NOWHERE: Final = "192.0.2.1"
"""An address of TEST-NET-1: connecting a UDP socket to it sends nothing, but shows the local address."""


class Ran(NamedTuple):
    """The result of a child. ``status`` is ``None`` if it could not be started or ran too long; ``output`` is then the
    reason.
    """

    status: int | None
    output: str


class Probes:
    """The methods by which checks examine the machine."""

    root = Path("/")

    def bind_error(self, kind: Kind, host: str, port: int) -> OSError | None:
        """Why this address cannot be bound, or ``None`` if it can."""
        return port_owner.bind_error(kind, socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port))

    def holder(self, kind: Kind, port: int) -> str:
        """Return the command line of the process that holds a port; empty if it cannot be found."""
        owner = port_owner.find(kind, port)
        return owner.command_line if owner is not None else ""

    def local_address(self) -> str:
        """The IPv4 address this machine would send from; empty without a route."""
        try:
            return own_address_towards(_NOWHERE)
        except OSError:
            return ""

    def resolves(self, name: str) -> bool:
        try:
            return bool(socket.getaddrinfo(name, None))
        except OSError:
            return False

    def texts(self, pattern: str) -> list[str]:
        """Return the contents of the files that match ``pattern`` below the root, stripped of white space."""
        found = []
        for path in sorted(self.root.glob(pattern)):
            try:
                with path.open(encoding="utf-8", errors="replace") as file:
                    found.append(file.read(MAX_OUTPUT_CHARS).strip())
            except OSError:
                continue
        return found

    def text(self, path: str) -> str:
        """The contents of one file; empty if it is not there."""
        return "".join(self.texts(path))

    def free_bytes(self, path: Path) -> int | None:
        """Space left for this user on the file system of a path, or of the nearest folder above that exists."""
        try:
            return shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
        except (OSError, StopIteration):
            return None

    def run(self, command: Sequence[str], *, timeout_s: float, text: str = "") -> Ran:
        """Start a program with ``text`` on its standard input; returns its output, and standard error if it fails."""
        try:
            done = subprocess.run(  # noqa: S603 - programs named in this package
                command,
                input=text,
                capture_output=True,
                timeout=timeout_s,
                check=False,
                encoding="utf-8",
                errors="replace",
            )
        except subprocess.TimeoutExpired:
            return Ran(None, f"no answer within {timeout_s:g} s")
        except OSError as error:
            return Ran(None, str(error.strerror))
        output = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        return Ran(done.returncode, output.strip()[-MAX_OUTPUT_CHARS:])

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
