"""Limits the connections that one source may have to a worker. gRPC accepts connections itself and reports none, so this
module searches the open files of the process, a few times a second, once there are more files than one source may have
connections.
"""

import asyncio
import os
import socket
import stat
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import unquote

from cc_tts import logs
from cc_tts.processes.source_address import source_of

POLL_S: Final = 0.25
"""The interval of looking; in between, a source may exceed the limit. Unmeasured; a look at 2,000 files takes 20 ms of a
thread.
"""
_FILES: Final = "/proc/self/fd"

log = logs.get(__name__)

RemoteAddress = tuple[str, int]
"""The source and the port at the other end of a connection."""


class SourceLimit:
    """Closes the connections of a source beyond ``max_per_source``, the latest first, except those in :meth:`served`.
    ``port`` is the listening port.
    """

    def __init__(self, port: int, max_per_source: int) -> None:
        self._served: Counter[RemoteAddress] = Counter()
        self._port = port
        self._max_per_source = max_per_source

    @property
    def num_served(self) -> int:
        return self._served.total()

    @contextmanager
    def served(self, grpc_peer: str) -> Iterator[None]:
        """Exempt this peer, named as gRPC does, for the duration of the context."""
        peer = _peer_of(grpc_peer)
        self._served[peer] += 1
        try:
            yield
        finally:
            self._served[peer] -= 1
            self._served += Counter()  # adding an empty Counter drops the zero counts

    async def enforce(self) -> None:
        """Enforce the limit until cancelled. Runs on: the event loop."""
        while True:
            await asyncio.sleep(POLL_S)
            with suppress(OSError):  # no file is left to look with: the next look may have one
                if len(os.listdir(_FILES)) > self._max_per_source:  # noqa: PTH208 - names alone, and no disk
                    await self._look()

    async def _look(self) -> None:
        closed = await asyncio.to_thread(self._close_excess, frozenset(+self._served))
        for source, num in closed.items():
            log.warning("connections_closed", source=source, closed=num, allowed=self._max_per_source)

    def _close_excess(self, served: Collection[RemoteAddress]) -> dict[str, int]:
        """Close excess connections; return how many of each source were closed. Runs on: a thread."""
        of_source: dict[str, list[int]] = defaultdict(list)
        num_open: dict[str, int] = defaultdict(int)
        for file in sorted(map(int, os.listdir(_FILES)), reverse=True):  # noqa: PTH208
            peer = self._peer(file)
            if peer is not None:
                num_open[peer[0]] += 1
                if peer not in served:
                    of_source[peer[0]].append(file)
        closed: dict[str, int] = {}
        for source, files in of_source.items():
            excess = files[: max(0, num_open[source] - self._max_per_source)]
            if excess:
                closed[source] = sum(map(self._close, excess))
        return closed

    def _peer(self, file: int) -> RemoteAddress | None:
        """Return the peer of a file descriptor, if it is a connection to the port."""
        with suppress(OSError), _same_socket(file) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == self._port:
                host, port, *_ = connection.getpeername()
                return source_of(host), port
        return None

    def _close(self, file: int) -> bool:
        """Shut a connection down; gRPC then finds it closed."""
        if self._peer(file) is None:  # closed meanwhile, and the number may be another file's
            return False
        with suppress(OSError), _same_socket(file) as connection:
            connection.shutdown(socket.SHUT_RDWR)
            return True
        return False


def _peer_of(grpc_peer: str) -> RemoteAddress:
    """Return the address in ``ipv4:192.0.2.1:5060`` or ``ipv6:%5B2001:db8::1%5D:5060``, as gRPC writes peers."""
    host, _, port = unquote(grpc_peer).partition(":")[2].rpartition(":")
    return source_of(host.strip("[]")), int(port)


def _same_socket(file: int) -> socket.socket:
    """Return a socket for a duplicate of a file descriptor, so that the owner's is not closed; ``OSError`` if it is no
    socket.
    """
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        raise OSError
    return socket.socket(fileno=os.dup(file))
