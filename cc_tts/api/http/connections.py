"""The listening socket of the control API: the number of connections, and how long each may be idle.

asyncio's own listener accepts as many connections as wait, whatever files are left, and reports each failure to accept
without end. This one accepts them one by one. When there are as many as allowed, the connection that has been without a
request for longest is closed: idle or half-open requests never keep others out.
Runs on: the event loop.
"""

import asyncio
import errno
import itertools
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from aiohttp import StreamReader, web

from cc_tts import logs
from cc_tts.api.http import problems
from cc_tts.api.http.masked_frames import MaskedFrames
from cc_tts.clock import Clock
from cc_tts.config.schema import HttpConfig
from cc_tts.errors import CapacityExceeded, MalformedRequest
from cc_tts.processes.source_address import source_of
from cc_tts.processes.tasks import TaskSet

SERVER: Final = "cc-tts"
"""The header ``Server``, without versions (RFC 9110 §10.2.4)."""
BACKLOG: Final = 128
"""The connections that the kernel completes before they are accepted."""
SPARE_FILES: Final = 64
"""The open files of the server process that are not for connections."""
MIN_CONNECTIONS: Final = 8  # unmeasured
"""This many connections are allowed even if few files may be open."""
ACCEPTS_A_TURN: Final = 32
"""The most connections that are accepted before other tasks run. Unmeasured."""
ACCEPT_PAUSE_S: Final = 0.5  # unmeasured
"""The pause in accepting after the system has refused, as when open files or memory have run out."""
IDLE_CONNECTION_TIMEOUT_S: Final = 75.0  # unmeasured
"""A connection between two requests is closed after this time, which is longer than reverse proxies keep theirs."""
LINGERING_TIMEOUT_S: Final = 1.0  # unmeasured
"""The time for which the rest of a refused body is read before the connection is closed."""
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s"
)
_REFUSED: Final = CapacityExceeded("too many connections (http.max_connections, http.max_connections_per_source)")

_UNREADABLE: Final = "this cannot be read as HTTP, or its head is too long: 128 headers, and 8190 bytes for a line"
"""aiohttp's limits are those of its ``RequestHandler``."""

_SILENT: Final = logging.getLogger("cc_tts.api.protocol")
"""The logger for aiohttp's errors about unreadable requests. They quote header lines, which may hold a token, so nothing is
written.
"""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_OPTIONS: Final[dict[str, Any]] = {
    "access_log": None,  # a middleware counts and logs requests
    "keepalive_timeout": IDLE_CONNECTION_TIMEOUT_S,
    "lingering_time": LINGERING_TIMEOUT_S,
    "logger": _SILENT,
}

log = logs.get(__name__)


class HttpConnection(web.RequestHandler):
    """One connection. It is idle until a whole request head has arrived, and again after the response.

    ``is_half_closed``: the client has ended its side, and waits for the responses to whole requests. To a stream that is the
    end, since nothing else would tell that the client has gone.
    """

    __slots__ = ("_head_timer", "_last_body", "_listener", "_num_ended", "idle_since_ns", "is_half_closed", "source")

    def __init__(self, listener: "HttpListener", server: web.Server, source: str) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **_OPTIONS)
        self._listener = listener
        self._head_timer: asyncio.TimerHandle | None = None
        self._last_body: StreamReader | None = None
        """The body of the last request, the only one that may be incomplete."""
        self._num_ended = 0
        self.source = source
        self.is_half_closed = False
        self.idle_since_ns: int | None = listener.now_ns()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by asyncio when the connection has ended."""
        self._forget_timer()
        self._listener.remove(self)
        super().connection_lost(exc)

    def handle_error(self, request: Any, status: int = 500, exc: Any = None, message: str | None = None) -> Any:
        """Called by aiohttp for a request that is not valid HTTP, or for an exception that no middleware caught."""
        super().handle_error(request, status, exc, message)  # raises if a response has begun
        error = MalformedRequest(_UNREADABLE) if status < 500 else None  # noqa: PLR2004
        asked = problems.Asked("/")
        response = problems.response_for(error, asked) if error else problems.internal_error(asked)
        response.headers["Server"] = SERVER
        response.force_close()
        return response

    def data_received(self, data: bytes) -> None:
        """Called by asyncio when a part of a request has arrived."""
        if self.idle_since_ns is not None and self._head_timer is None:
            self._await_head()
        super().data_received(data)
        if self._messages:
            self._last_body = self._messages[-1][1]

    def eof_received(self) -> bool:  # type: ignore[override]  # aiohttp always closes
        """Called by asyncio when the client has ended its side. Returns whether the connection stays open for responses."""
        self.is_half_closed = (
            self._num_left > 0 and not self._upgraded and self._last_body is not None and self._last_body.is_eof()
        )
        return self.is_half_closed

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Called by aiohttp when the connection becomes a WebSocket; ``parser`` reads its frames."""
        super().set_parser(cast("Any", MaskedFrames(parser)), data_received_cb)

    def request_began(self) -> None:
        self._forget_timer()
        self.idle_since_ns = None

    def request_ended(self) -> None:
        self.idle_since_ns = self._listener.now_ns()
        self._num_ended += 1
        if self.is_half_closed and not self._num_left:
            self.close()

    @property
    def _num_left(self) -> int:
        """The requests that have arrived, and whose responses are not ready."""
        return self._request_count - self._num_ended

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _await_head(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(self._listener.header_timeout_s, self.drop)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class HttpListener:
    """Serves an application. ``runner_options`` are those of ``web.AppRunner``. A handler is not cancelled when its client
    disconnects, so that a call is never left half placed.
    """

    def __init__(self, app: web.Application, http: HttpConfig, *, clock: Clock, **runner_options: Any) -> None:
        self._runner = web.AppRunner(app, **{"handler_cancellation": False, **runner_options})
        self.now_ns = clock.now_ns
        self.header_timeout_s = http.header_timeout_s
        self._host, self._port = http.host, http.port
        self._max_per_source = http.max_connections_per_source
        self._max_connections = http.max_connections
        self._connections: set[HttpConnection] = set()
        self._sockets: list[socket.socket] = []
        self._tasks = TaskSet()

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    @property
    def num_connections(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Begin to accept connections.

        Raises:
            OSError: the address is taken or not ours.
        """
        await self._runner.setup()
        self._max_connections = allow_files(self._max_connections)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        failure: OSError | None = None
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                listening = socket.create_server(address, family=family, backlog=BACKLOG)
            except OSError as error:
                failure = error
                if error.errno not in _NOT_HERE:  # localhost has an IPv6 address on machines without IPv6
                    break
            else:
                listening.settimeout(0)
                self._sockets.append(listening)
        if failure is not None and (not self._sockets or failure.errno not in _NOT_HERE):
            await self.stop()
            raise failure
        for listening in self._sockets:
            self._tasks.begin(self._accept_all(listening), "accept")

    async def stop(self) -> None:
        """Accept no more connections, and shut the application down. Safe to call twice."""
        await self._tasks.stop()
        for listening in self._sockets:
            listening.close()
        await self._runner.cleanup()

    def remove(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)

    async def _accept_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in itertools.count(1):
            if number % ACCEPTS_A_TURN == 0:
                await asyncio.sleep(0)
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                if not isinstance(error, ConnectionError):  # a ConnectionError: the client has already gone
                    log.error("cannot_accept", detail=str(error), consequence=f"a pause of {ACCEPT_PAUSE_S:g} s")
                    await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            try:
                await self._take(accepted, source_of(address[0]))
            except Exception:  # one bad connection must not stop the accepting of others
                accepted.close()
                log.exception("connection_failed")

    async def _take(self, accepted: socket.socket, source: str) -> None:
        ours = [each for each in self._connections if each.source == source]
        open_now = ours if len(ours) >= self._max_per_source else self._connections
        limit = self._max_per_source if open_now is ours else self._max_connections
        if len(open_now) >= limit and not await self._make_room(open_now):
            log.warning("connection_refused", source=source, open=len(self._connections), of_this_source=len(ours))
            _refuse(accepted)
            return
        server = self._runner.server
        assert server is not None  # the runner is set up
        connection = HttpConnection(self, server, source)
        self._connections.add(connection)
        self._tasks.begin(self._connect(connection, accepted))  # the next connection need not wait

    async def _connect(self, connection: HttpConnection, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except BaseException as error:
            self.remove(connection)
            accepted.close()
            if not isinstance(error, Exception):
                raise
            log.exception("connection_failed")

    async def _make_room(self, open_now: "set[HttpConnection] | list[HttpConnection]") -> bool:
        idle = [each for each in open_now if each.idle_since_ns is not None and each.transport is not None]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: each.idle_since_ns or 0)
        self.remove(oldest)
        oldest.drop()
        await asyncio.sleep(0)  # asyncio closes the file in the next turn of the loop
        return True


def is_gone(request: web.BaseRequest) -> bool:
    """Whether the client takes no more of a stream."""
    if request.transport is None or request.transport.is_closing():
        return True
    return isinstance(request.protocol, HttpConnection) and request.protocol.is_half_closed


def abort(request: web.BaseRequest) -> None:
    """Break the connection, so that the client cannot take the part that it got for the whole."""
    if isinstance(request.transport, asyncio.WriteTransport):
        request.transport.abort()


def allow_files(max_connections: int) -> int:
    """Raise the soft limit of open files to what these connections need.

    Returns:
        For how many connections there are files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return max_connections
    allowed = max(MIN_CONNECTIONS, soft - SPARE_FILES)
    log.warning("few_open_files", allowed=soft, needed=needed, consequence=f"{allowed} HTTP connections at once")
    return min(allowed, max_connections)


def _refuse(accepted: socket.socket) -> None:
    """Send 503, as far as the non-blocking socket takes it, and close the connection."""
    with suppress(OSError):
        accepted.recv(65_536)  # closing with something unread would discard the response (RFC 1122 §4.2.2.13)
    body = problems.document(_REFUSED, instance="/")
    with suppress(OSError):
        accepted.send(_REFUSAL % (len(body), body))
        accepted.shutdown(socket.SHUT_WR)
    accepted.close()
