"""Carries the messages between a server and a worker on another machine by gRPC: one stream of bytes each way per
connection. The bytes are the records of :mod:`cc_tts.processes.channel`; records that wait together share a gRPC message.

A side that does not read fills the other's bounded backlog and loses the connection. A server must have a certificate that
``remote.ca_file`` signed, or the token, or both. grpcio is imported when it is needed. Runs on: the event loop.
"""

import asyncio
import collections
import contextlib
import hmac
import importlib
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cc_tts.config.remote import host_port, must_be_private, read_file
from cc_tts.config.schema import RemoteConfig
from cc_tts.engines.remote.source_limit import SourceLimit
from cc_tts.engines.worker.messages import FROM_WORKER
from cc_tts.errors import CcTtsError, ConfigError, ProcessFailed
from cc_tts.processes.channel import (
    COMMON_MESSAGES,
    MAX_BACKLOG_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PAYLOAD_BYTES,
    Decoder,
    Message,
    encode,
)
from cc_tts.processes.tasks import cancel_all

SERVICE: Final = "cc_tts.SpeechWorker"
METHOD: Final = "Connect"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"
SERVING: Final = b"\x08\x01"
"""A HealthCheckResponse of grpc.health.v1 with ``status = SERVING``; below, ``NOT_SERVING``."""
NOT_SERVING: Final = b"\x08\x02"
MAX_SERVERS: Final = 256  # unmeasured
MAX_CONNECTIONS: Final = 2048
"""The most connections of a worker; fewer if fewer files may be open. An idle one takes 67 kB (measured)."""
SHARE_OF_SOURCE: Final = 0.25
"""The share of them that one source may have. Connected servers do not count, since several may share an address."""
_SHARE_OF_FILES: Final = 0.75
"""The share of the open files for connections; the rest is for other work of the process."""
MAX_STREAMS_PER_CONNECTION: Final = 8
"""The most streams of a connection: a server has one, and a health check another."""
MAX_HEALTH_CHECKS: Final = 32
"""The most health checks whose message has not arrived. One more ends the oldest, since they need no token (unmeasured)."""
HEALTH_TIMEOUT_S: Final = 2.0
"""The time for the message of a health check, which follows the headers at once (unmeasured)."""
HANDSHAKE_TIMEOUT_MS: Final = 5000  # unmeasured
IDLE_CONNECTION_MS: Final = 30_000
"""Connections without a call are closed after this time (unmeasured)."""
KEEPALIVE_MS: Final = 20_000
"""A connection that is silent for this long is pinged, and closed without an answer (unmeasured)."""
CLOSE_TIMEOUT_S: Final = 1.0  # unmeasured
MAX_REASON_CHARS: Final = 300  # unmeasured
AUTHORISATION: Final = "authorization"

_JOIN_BYTES: Final = 1 << 16
_OPTIONS: Final = (("grpc.max_receive_message_length", MAX_MESSAGE_BYTES + MAX_PAYLOAD_BYTES + _JOIN_BYTES),)
_CLIENT_OPTIONS: Final = (
    *_OPTIONS,
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),  # each attempt opens a connection of its own
)
_SERVER_OPTIONS: Final = (
    *_OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", MAX_STREAMS_PER_CONNECTION),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
    ("grpc.max_connection_idle_ms", IDLE_CONNECTION_MS),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
)


@dataclass(frozen=True, slots=True)
class WorkerEndpoint:
    """The address of a worker. ``certified_name``: the name in its certificate, if that is not ``host``."""

    host: str
    port: int
    is_tls: bool
    certified_name: str = ""


def check(remote: RemoteConfig) -> None:
    """Raise ``ConfigError``, which says what to do, if grpcio or a file of ``[remote]`` is missing."""
    _grpc()
    for key in ("ca_file", "certificate_file", "private_key_file"):
        read_file(key, getattr(remote, key))


class Channel:
    """One end of a connection: :meth:`send` sends records, ``on_record`` receives them. ``on_closed`` is called once with
    the reason, unless this end calls :meth:`close`.
    """

    def __init__(self, types: Sequence[type[Message]], peer: str) -> None:
        self.peer = peer
        self.on_record: Callable[[Message, bytes], None] = lambda _message, _payload: None
        self.on_closed: Callable[[str], None] = lambda _reason: None
        self._decoder = Decoder((*COMMON_MESSAGES, *types))
        self._outbox: collections.deque[bytes] = collections.deque()
        self._outbox_bytes = 0
        self._news = asyncio.Event()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send one record; never blocks. Raises ``ProcessFailed`` if the connection is over, or the other side does not
        read.
        """
        if self._is_closed:
            raise ProcessFailed("the connection is closed")
        record = encode(message, payload)
        self._outbox.append(record)
        self._outbox_bytes += len(record)
        self._news.set()
        if self._outbox_bytes > MAX_BACKLOG_BYTES:
            self.break_off("the other side has stopped reading")
            raise ProcessFailed("the other side has stopped reading")

    def break_off(self, reason: str) -> None:
        """End the connection and report it."""
        if not self._is_closed:
            self.close()
            self.on_closed(reason)

    def close(self) -> None:
        """End the connection. Safe to call twice."""
        self._is_closed = True
        self._outbox.clear()
        if not self._over.done():
            self._over.set_result(None)

    async def carry(self, read: Callable[[], Any], write: Callable[[bytes], Any]) -> None:
        """Move records both ways until either side ends the connection."""
        tasks = [asyncio.create_task(self._read(read)), asyncio.create_task(self._write(write))]
        try:
            waiting: set[asyncio.Future[Any]] = {*tasks, self._over}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    self.break_off(task.result())
        finally:
            await cancel_all(*tasks)

    async def _read(self, read: Callable[[], Any]) -> str:
        end = _grpc().aio.EOF
        try:
            while (data := await read()) is not end:
                for message, payload in self._decoder.feed(data):
                    if not self._is_closed:
                        self.on_record(message, payload)
        except CcTtsError as error:
            return error.detail
        except _grpc().RpcError as error:
            return _why(error)
        return "closed by the other side"

    async def _write(self, write: Callable[[bytes], Any]) -> str:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._outbox:
                    await write(self._joined())
        except (_grpc().RpcError, asyncio.InvalidStateError) as error:
            return _why(error)

    def _joined(self) -> bytes:
        records, num_bytes = [], 0
        while self._outbox and num_bytes < _JOIN_BYTES:
            records.append(self._outbox.popleft())
            num_bytes += len(records[-1])
        self._outbox_bytes -= num_bytes
        return b"".join(records)


class ClientChannel(Channel):
    """The server's end of a connection."""

    def __init__(self, grpc_channel: Any, call: Any, peer: str) -> None:
        super().__init__(FROM_WORKER, peer)
        self._grpc_channel = grpc_channel
        self._task = asyncio.create_task(self._run(call), name=f"worker {peer}")

    async def _run(self, call: Any) -> None:
        try:
            await self.carry(call.read, call.write)
        finally:
            call.cancel()
            await self._grpc_channel.close()

    async def closed(self) -> None:
        """Wait until all of its resources are free."""
        await asyncio.gather(self._task, return_exceptions=True)


async def connect(
    endpoint: WorkerEndpoint,
    remote: RemoteConfig,
    *,
    on_record: Callable[[Message, bytes], None],
    on_closed: Callable[[str], None],
) -> ClientChannel:
    """Start to connect to a worker; failures are reported to ``on_closed``. Raises ``ConfigError`` for an address that needs
    TLS and for unreadable files, ``ProcessFailed`` for a name without an address.
    """
    grpc = _grpc()
    try:
        found = await asyncio.get_running_loop().getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label of the name is empty or too long
        raise ProcessFailed(f"{endpoint.host} has no address: {getattr(error, 'strerror', None) or error}") from None
    address = str(found[0][4][0])
    target = host_port(address, endpoint.port)
    if endpoint.is_tls:
        name = endpoint.certified_name or endpoint.host
        options = (*_CLIENT_OPTIONS, ("grpc.ssl_target_name_override", name), ("grpc.default_authority", name))
        credentials = grpc.ssl_channel_credentials(
            root_certificates=read_file("ca_file", remote.ca_file),
            private_key=read_file("private_key_file", remote.private_key_file),
            certificate_chain=read_file("certificate_file", remote.certificate_file),
        )
        channel = grpc.aio.secure_channel(target, credentials, options=options)
    else:
        must_be_private(address, endpoint.host)
        channel = grpc.aio.insecure_channel(target, options=_CLIENT_OPTIONS)
    metadata = ((AUTHORISATION, f"Bearer {remote.token}"),) if remote.token else ()
    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")(metadata=metadata)
    client = ClientChannel(channel, call, target)
    client.on_record, client.on_closed = on_record, on_closed
    return client


class _HealthChecks:
    """Answers ``grpc.health.v1.Health/Check``, which needs no token. Health checks have a limit and a timeout of their own,
    so that they cannot use up the places of servers.
    """

    def __init__(self, is_serving: Callable[[], bool]) -> None:
        self._is_serving = is_serving
        self._waiting: dict[asyncio.Timeout, None] = {}

    async def check(self, _requests: object, context: Any) -> bytes:
        try:
            await self._message(context)
        except TimeoutError:
            await context.abort(_grpc().StatusCode.DEADLINE_EXCEEDED, "the message of the health check did not come")
        return SERVING if self._is_serving() else NOT_SERVING

    async def _message(self, context: Any) -> None:
        if len(self._waiting) >= MAX_HEALTH_CHECKS:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            if not oldest.expired():
                oldest.reschedule(asyncio.get_running_loop().time())
        async with asyncio.timeout(HEALTH_TIMEOUT_S) as bound:
            self._waiting[bound] = None
            try:
                await context.read()
            finally:
                self._waiting.pop(bound, None)


@contextlib.asynccontextmanager
async def listening(
    host: str,
    port: int,
    remote: RemoteConfig,
    *,
    types: Sequence[type[Message]],
    on_open: Callable[[Channel], None],
    is_serving: Callable[[], bool],
) -> AsyncIterator[None]:
    """Listen for servers; at the end the open connections are closed. ``on_open`` gets the channel of each server that may
    connect, and sets its ``on_record`` and ``on_closed``. ``is_serving`` answers health checks. Raises ``ConfigError`` if
    the address cannot be bound.
    """
    grpc = _grpc()
    max_connections = _max_connections()
    limit = SourceLimit(port, max(1, round(max_connections * SHARE_OF_SOURCE)))

    async def serve(_requests: object, context: Any) -> None:
        if not _is_authorised(remote, context.invocation_metadata()):
            detail = "the worker asks for the token of [remote]: set remote.token alike at both ends"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, detail)
        if limit.num_served >= MAX_SERVERS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the worker has {MAX_SERVERS} servers already")
        channel = Channel(types, context.peer())
        try:
            with limit.served(context.peer()):
                on_open(channel)
                await channel.carry(context.read, context.write)
        finally:
            channel.break_off("the connection was lost")

    server = grpc.aio.server(options=(*_SERVER_OPTIONS, ("grpc.max_allowed_incoming_connections", max_connections)))
    handlers = {
        SERVICE: {METHOD: grpc.stream_stream_rpc_method_handler(serve)},
        HEALTH_SERVICE: {"Check": grpc.stream_unary_rpc_method_handler(_HealthChecks(is_serving).check)},
    }
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(name, methods) for name, methods in handlers.items()]
    )
    try:
        if remote.certificate_file:
            pair = (
                read_file("private_key_file", remote.private_key_file),
                read_file("certificate_file", remote.certificate_file),
            )
            ca = read_file("ca_file", remote.ca_file)
            credentials = grpc.ssl_server_credentials([pair], root_certificates=ca, require_client_auth=ca is not None)
            server.add_secure_port(host_port(host, port), credentials)
        else:
            server.add_insecure_port(host_port(host, port))
    except RuntimeError:
        raise ConfigError(
            f"--listen {host_port(host, port)}: the address cannot be bound; is the port taken, and the address one of this "
            "machine?"
        ) from None
    await server.start()
    limiting = asyncio.create_task(limit.enforce(), name="connections")
    try:
        yield
    finally:
        limiting.cancel()
        await server.stop(CLOSE_TIMEOUT_S)


def _max_connections() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, round(soft * _SHARE_OF_FILES))


def _is_authorised(remote: RemoteConfig, metadata: Any) -> bool:
    if not remote.token:
        return True
    given = next((str(value) for key, value in metadata or () if key == AUTHORISATION), "")
    return hmac.compare_digest(given.encode(), f"Bearer {remote.token}".encode())


def _why(error: object) -> str:
    details = getattr(error, "details", lambda: "")() or str(error)
    return str(details).rpartition("last error: ")[2].removeprefix("UNKNOWN: ").replace("; ", ", ")[:MAX_REASON_CHARS]


def _grpc() -> Any:
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # gRPC's own lines on standard error are not JSON, and a peer could fill the log with them
    try:
        importlib.import_module("grpc.aio")
        return importlib.import_module("grpc")
    except ImportError as error:
        raise ConfigError(
            f"speech workers on other machines need grpcio ({error.name} is missing): "
            "pip install -r requirements/remote.txt or 'WHEEL[remote]'"
        ) from None
