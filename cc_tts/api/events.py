"""``GET /v1/events``: events over a WebSocket, one JSON text frame each.

A reader that is too slow is closed with 1013 and counted: when its queue (``http.event_queue_size``) is full, or when
it takes nothing for :data:`SEND_TIMEOUT_S` although events wait. It may connect again; gaps of ``seq`` show what it missed.
What clients send is thrown away; more than :data:`MAX_FRAMES_IN` in :data:`FRAMES_IN_WINDOW_S` closes with 1008.
"""

import asyncio
import weakref
from contextlib import closing, suppress
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from cc_tts import logs
from cc_tts.api.context import CONTEXT, ApiContext
from cc_tts.api.http.connections import abort
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import Query, RouteTable
from cc_tts.calls.events import EVENT_TYPES, Subscription
from cc_tts.errors import CapacityExceeded, MalformedRequest

HEARTBEAT_S: Final = 20.0
"""A ping is sent this often; a client that does not answer within half of it is disconnected."""
SEND_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
"""How long the client may take to answer our close."""
MAX_FRAME_IN_BYTES: Final = 4096
MAX_FRAMES_IN: Final = 100
FRAMES_IN_WINDOW_S: Final = 10.0
WRITE_BUFFER_BYTES: Final = 65_536
MAX_CALL_ID_CHARS: Final = 200

OPEN_SOCKETS: Final[web.AppKey["weakref.WeakSet[web.WebSocketResponse]"]] = web.AppKey("open_sockets", weakref.WeakSet)

ROUTES: Final = RouteTable()

_ENCODER: Final = msgspec.json.Encoder()

log = logs.get(__name__)


@ROUTES.add(
    "GET",
    "/v1/events",
    scope="read",
    status=101,
    content_types=(),
    query=(
        Query(name="call_id", description="Only events of this call.", schema={"type": "string"}),
        Query(
            name="types",
            description=f"Only these types, separated by commas: {', '.join(EVENT_TYPES)}.",
            schema={"type": "string"},
        ),
    ),
    errors=(UpgradeRequired, CapacityExceeded),
    streams=True,
)
async def events(request: web.Request) -> web.StreamResponse:
    """Events, one JSON text frame each, over a WebSocket."""
    context = request.app[CONTEXT]
    call_id, types = _filters(request)
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_S,
        timeout=CLOSE_TIMEOUT_S,
        max_msg_size=MAX_FRAME_IN_BYTES,
        compress=False,
        writer_limit=WRITE_BUFFER_BYTES,
    )
    if not socket.can_prepare(request):
        raise UpgradeRequired("open this path with a WebSocket handshake (RFC 6455 §4.1)")
    bus = context.registry.events
    # subscribed before the handshake is answered: what happens after it is in the queue
    queue_size = context.config.http.event_queue_size
    with closing(bus.subscribe(call_id=call_id, types=types, max_queued=queue_size)) as subscription:
        await socket.prepare(request)
        context.metrics.event_subscribers.set(bus.num_subscribers)
        request.app[OPEN_SOCKETS].add(socket)
        try:
            await _serve(request, socket, subscription, context)
        except ConnectionError:
            log.debug("event_subscriber_gone")
        except Exception:  # the handshake is answered: there is no status left to give
            log.exception("event_subscriber_failed")
            abort(request)
        finally:
            subscription.close()
            context.metrics.event_subscribers.set(bus.num_subscribers)
    return socket


async def close_all(
    app: web.Application, code: WSCloseCode = WSCloseCode.GOING_AWAY, message: bytes = b"the server stops"
) -> None:
    """Close every WebSocket. Without a code this is a handler of ``on_shutdown``."""
    open_now = app[OPEN_SOCKETS]
    closing = [socket.close(code=code, message=message) for socket in tuple(open_now)]
    await asyncio.gather(*closing, return_exceptions=True)


def _filters(request: web.Request) -> tuple[str | None, frozenset[str] | None]:
    call_id = request.query.get("call_id") or None
    if call_id is not None and len(call_id) > MAX_CALL_ID_CHARS:
        raise MalformedRequest(f"call_id has at most {MAX_CALL_ID_CHARS} characters")
    text = request.query.get("types", "")
    types = frozenset(name for part in text.split(",") if (name := part.strip()))
    if unknown := sorted(types - set(EVENT_TYPES)):
        raise MalformedRequest(f"no event type {unknown[0][:40]!r}; known: {', '.join(EVENT_TYPES)}")
    return call_id, types or None


async def _serve(
    request: web.Request, socket: web.WebSocketResponse, subscription: Subscription, context: ApiContext
) -> None:
    sender = asyncio.create_task(_send_all(socket, subscription))
    receiver = asyncio.create_task(_receive_all(socket))
    try:
        await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
        if not sender.done():
            return  # the client closed, or sent too much and was closed
        is_too_slow = sender.result()
        if is_too_slow:
            context.metrics.event_subscribers_dropped.inc()
            log.info("event_subscriber_too_slow")
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"too slow", drain=False)
            abort(request)
        else:
            await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server stops", drain=False)
    finally:
        for task in (sender, receiver):
            task.cancel()
        await asyncio.gather(sender, receiver, return_exceptions=True)


async def _send_all(socket: web.WebSocketResponse, subscription: Subscription) -> bool:
    """Send until the subscription ends.

    Returns:
        Whether it ended because the reader is too slow.
    """
    async for event in subscription:
        if subscription.overflowed:
            return True
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await socket.send_frame(_ENCODER.encode(event), WSMsgType.TEXT)
        except TimeoutError:
            return True
    return subscription.overflowed


async def _receive_all(socket: web.WebSocketResponse) -> None:
    """Answer pings and closes; throw the rest away, as long as it is not too much."""
    loop = asyncio.get_running_loop()
    window_start_s, num_frames = loop.time(), 0
    async for _message in socket:
        now_s = loop.time()
        if now_s - window_start_s > FRAMES_IN_WINDOW_S:
            window_start_s, num_frames = now_s, 0
        num_frames += 1
        if num_frames > MAX_FRAMES_IN:
            await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many frames", drain=False)
            return
