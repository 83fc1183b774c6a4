"""The HTTP API of the pool: the servers' watch connections, the workers, the voices, metrics, drain."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import WSMsgType, web

from cc_tts import logs
from cc_tts.api.http import exposition, middlewares, problems
from cc_tts.api.http.auth import AUTHENTICATOR, TokenAuthenticator
from cc_tts.clock import MonotonicClock
from cc_tts.cluster.messages import MAX_MESSAGE_BYTES, NodeReport
from cc_tts.config.schema import TokenConfig
from cc_tts.errors import UNREADABLE, Forbidden, NotFound
from cc_tts.pool.state import NOT_LOOKED, PoolState
from cc_tts.processes.tasks import cancel_all

HEARTBEAT_S: Final = 5.0  # unmeasured
SEND_TIMEOUT_S: Final = 5.0  # unmeasured
CLOSE_TIMEOUT_S: Final = 1.0  # unmeasured
MAX_WATCHERS: Final = 1000  # unmeasured
POLICY_VIOLATION: Final = 1008
"""Close code for a message that cannot be read (RFC 6455 §7.4.1)."""
REPLACED: Final = 4000
TRY_LATER: Final = 1013
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})

STATE: Final = web.AppKey("state", PoolState)


Watchers = dict[web.WebSocketResponse, str]
"""The open sockets with the names of their nodes, empty until a node has reported."""
WATCHERS: Final[web.AppKey[Watchers]] = web.AppKey("watchers", dict)

_REPORT: Final = msgspec.json.Decoder(NodeReport)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logs.get(__name__)


def build_app(state: PoolState, *, token: str) -> web.Application:
    """The application; every path but ``/healthz`` and ``/readyz`` asks for the token, if there is one."""
    app = web.Application(middlewares=[_guard], client_max_size=1024)
    app[STATE] = state
    app[AUTHENTICATOR] = TokenAuthenticator([TokenConfig(token)] if token else [])
    app[WATCHERS] = {}
    app[middlewares.STRANGERS] = logs.RepeatLimit(MonotonicClock())
    app.add_routes(
        [
            web.get("/v1/watch", watch),
            web.get("/v1/workers", get_workers),
            web.get("/v1/cluster", get_cluster),
            web.post("/v1/workers/{id}/drain", drain_worker),
            web.post("/v1/workers/{id}/start", start_worker),
            web.get("/v1/voices", get_voices),
            web.get("/v1/voices/{sha256}", get_voice),
            web.get("/metrics", get_metrics),
            web.get("/healthz", get_health),
            web.get("/readyz", get_readiness),
        ]
    )
    app.on_shutdown.append(_close_watchers)
    return app


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    async def authorised(request: web.Request) -> web.StreamResponse:
        _authorise(request)
        try:
            return await handler(request)
        except web.HTTPNotFound:
            raise NotFound("there is nothing at this path") from None

    return await middlewares.respond(request, authorised)


def _authorise(request: web.Request) -> None:
    tokens = request.app[AUTHENTICATOR]
    try:
        tokens.check_origin(request)
    except Forbidden:
        raise Forbidden("without remote.token the pool is asked at a loopback address, and by no web page") from None
    if request.path not in _OPEN_PATHS:
        tokens.authenticate(request, "admin")


async def watch(request: web.Request) -> web.StreamResponse:
    """A server's connection; see :mod:`cc_tts.cluster.messages`."""
    state, watchers = request.app[STATE], request.app[WATCHERS]
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, timeout=CLOSE_TIMEOUT_S, max_msg_size=MAX_MESSAGE_BYTES)
    if not socket.can_prepare(request).ok:
        raise problems.UpgradeRequired("this path speaks WebSocket")
    await socket.prepare(request)
    if len(watchers) >= MAX_WATCHERS:
        await socket.close(code=TRY_LATER, message=b"too many servers watch")
        return socket
    watchers[socket] = ""
    changed = state.watch()
    telling = asyncio.create_task(_tell(socket, state, changed))
    try:
        await _read(socket, request)
    finally:
        del watchers[socket]
        state.unwatch(changed)
        await cancel_all(telling)
    return socket


async def _read(socket: web.WebSocketResponse, request: web.Request) -> None:
    state, watchers = request.app[STATE], request.app[WATCHERS]
    async for frame in socket:
        if frame.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
            return
        try:
            report = _REPORT.decode(frame.data)
        except UNREADABLE:
            log.warning("bad_report", node=watchers[socket] or None, num_bytes=len(frame.data))
            await socket.close(code=POLICY_VIOLATION, message=b"not the report of a node of this version")
            return
        if watchers[socket] != report.node.name:
            await _replace(watchers, report.node.name)
            watchers[socket] = report.node.name
        if (leases := state.take(report)) is not None and not await _send(socket, leases):
            return


async def _replace(watchers: Watchers, name: str) -> None:
    """A node that reconnects replaces its former connection."""
    for other in [other for other, known in watchers.items() if known == name]:
        log.warning("node_connected_again", node=name)
        await other.close(code=REPLACED, message=b"another server reports by this name")


async def _tell(socket: web.WebSocketResponse, state: PoolState, changed: asyncio.Event) -> None:
    told: set[Any] = set()
    while True:
        await changed.wait()
        changed.clear()
        now = (state.workers, state.nodes)
        for message in now:
            if message is not None and message not in told and not await _send(socket, message):
                return
        told = set(now)


async def _send(socket: web.WebSocketResponse, message: msgspec.Struct) -> bool:
    """Send a message; return whether it was sent. A server that does not read is disconnected."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await socket.send_str(msgspec.json.encode(message).decode())
    except (ConnectionError, TimeoutError, RuntimeError):
        await socket.close()
        return False
    return True


async def _close_watchers(app: web.Application) -> None:
    watchers: Watchers = app[WATCHERS]
    await asyncio.gather(*(socket.close(code=1001) for socket in list(watchers)))


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json", status=status)


async def get_workers(request: web.Request) -> web.Response:
    if (workers := request.app[STATE].workers) is None:
        raise problems.NotReady(NOT_LOOKED)
    return _json(workers)


async def get_cluster(request: web.Request) -> web.Response:
    return _json(request.app[STATE].view())


async def drain_worker(request: web.Request) -> web.Response:
    """Let a worker finish its streams and stay stopped."""
    await request.app[STATE].hosts.drain(request.match_info["id"])
    return _json({"draining": True}, status=202)


async def start_worker(request: web.Request) -> web.Response:
    await request.app[STATE].hosts.start(request.match_info["id"])
    return _json({"starting": True}, status=202)


async def get_voices(request: web.Request) -> web.Response:
    return _json(await request.app[STATE].voice_files())


async def get_voice(request: web.Request) -> web.StreamResponse:
    state = request.app[STATE]
    await state.voice_files()
    path: Path | None = None
    if state.voice_folder is not None:
        path = state.voice_folder.find(request.match_info["sha256"])
    if path is None:
        raise NotFound("no file of a voice has this hash")
    return web.FileResponse(path)


async def get_metrics(request: web.Request) -> web.Response:
    return exposition.response(request, request.app[STATE].render)


async def get_health(_request: web.Request) -> web.Response:
    return _json({"status": "ok"})


async def get_readiness(request: web.Request) -> web.Response:
    if (reason := request.app[STATE].not_ready_because) is not None:
        raise problems.NotReady(reason)
    return _json({"status": "ready"})
