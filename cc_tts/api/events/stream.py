"""``GET /v1/events``: the subscription of one reader, over a WebSocket or as server-sent events."""

import asyncio
import re
from contextlib import closing
from typing import Final

from aiohttp import WSCloseCode, web

from cc_tts import logs
from cc_tts.api.context import CONTEXT
from cc_tts.api.events import server_sent, websocket
from cc_tts.api.http.auth import HOLDER
from cc_tts.api.http.connections import abort
from cc_tts.api.http.problems import UpgradeRequired
from cc_tts.api.http.route import CALL_ID, Query, RouteTable
from cc_tts.calls.events.types import EVENTS
from cc_tts.errors import CapacityExceeded, EventsGone, MalformedRequest, QuotaExceeded

MAX_CALL_ID_CHARS: Final = 200  # unmeasured
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
QUERY: Final = (
    Query(CALL_ID, "Only events of this call."),
    Query("types", f"Only these types, separated by commas: {', '.join(EVENTS)}."),
    Query(
        "connection",
        "A name for this connection: `digits_to` of a gather that is asked for with the same token may name it.",
    ),
    Query("since", "The id of an event: begin with the one after it. The header Last-Event-ID goes before it."),
)

ROUTES: Final = RouteTable("Events")

log = logs.get(__name__)


@ROUTES.add(
    "GET",
    "/v1/events",
    scope="read",
    status=101,
    content_types=(server_sent.CONTENT_TYPE,),
    query=QUERY,
    errors=(UpgradeRequired, CapacityExceeded, EventsGone, QuotaExceeded),
    streams=True,
)
async def stream_events(request: web.Request) -> web.StreamResponse:
    """Events as they happen, over a WebSocket, or as server-sent events for Accept: text/event-stream."""
    context = request.app[CONTEXT]
    bus, metrics = context.services.events, context.services.metrics
    call_id, types = _filters(request)
    connection = request.query.get("connection", "")
    if connection and not NAME.fullmatch(connection):
        raise MalformedRequest("connection is 1 to 64 letters, digits and . _ -")
    since = request.headers.get("Last-Event-ID") or request.query.get("since") or None
    socket = websocket.new_socket(
        max_frame_bytes=websocket.MAX_FRAME_IN_BYTES, heartbeat=websocket.HEARTBEAT_S, autoping=False
    )
    is_websocket = bool(socket.can_prepare(request))
    if not is_websocket and not server_sent.is_asked_for(request):
        raise UpgradeRequired("open this path with a WebSocket handshake (RFC 6455 §4.1) or Accept: text/event-stream")
    response = socket if is_websocket else web.StreamResponse(headers=server_sent.HEADERS)

    def on_too_slow() -> None:
        metrics.event_subscribers_dropped.inc()
        log.info("event_subscriber_too_slow")

    # subscribed before the response begins: what happens after it is in the queue
    queue_size = context.config.http.event_queue_size
    holder = HOLDER.get()
    tenant = holder.tenant
    with (
        context.services.tenants.hold(tenant, "listeners"),
        closing(
            bus.subscribe(
                call_id=call_id,
                types=types,
                since=since,
                max_queued=queue_size,
                tenant=tenant,
                owner=holder.owner,
                connection=holder.own(connection),
                sees_digits="digits" in holder.scopes,
            )
        ) as subscription,
    ):
        begin_id = since or bus.last_id
        await response.prepare(request)
        metrics.event_subscribers.set(bus.num_subscribers)
        try:
            if is_websocket:
                request.app[websocket.OPEN_SOCKETS].add(socket)
                await websocket.serve(
                    socket,
                    subscription,
                    websocket.receive_nothing(socket),
                    end=lambda: (WSCloseCode.GOING_AWAY, b"the server stops"),
                    on_too_slow=on_too_slow,
                    abort=lambda: abort(request),
                )
            else:
                await server_sent.serve(
                    request, response, subscription, bus, begin_id=begin_id, on_too_slow=on_too_slow
                )
        except ConnectionError:
            log.debug("event_subscriber_gone")
            abort(request)
        except Exception:  # the response has begun: there is no status left to give
            log.exception("event_subscriber_failed")
            abort(request)
        finally:
            subscription.close()
            metrics.event_subscribers.set(bus.num_subscribers)
    return response


async def close_all(
    app: web.Application, code: WSCloseCode = WSCloseCode.GOING_AWAY, message: bytes = b"the server stops"
) -> None:
    """End every stream of events. Without a code this is a handler of ``on_shutdown``."""
    open_streams, open_sockets = app[server_sent.OPEN_STREAMS], app[websocket.OPEN_SOCKETS]
    for subscription in tuple(open_streams):
        subscription.close()
    closings = [socket.close(code=code, message=message) for socket in tuple(open_sockets)]
    await asyncio.gather(*closings, return_exceptions=True)


def _filters(request: web.Request) -> tuple[str | None, frozenset[str] | None]:
    """Return the call and the types of events that are asked for; ``None`` for all."""
    call_id = request.query.get(CALL_ID) or None
    if call_id is not None and len(call_id) > MAX_CALL_ID_CHARS:
        raise MalformedRequest(f"call_id has at most {MAX_CALL_ID_CHARS} characters")
    text = request.query.get("types", "")
    types = frozenset(name for part in text.split(",") if (name := part.strip()))
    if unknown := sorted(types - EVENTS.keys()):
        raise MalformedRequest(f"no event type {unknown[0][:40]!r}; known: {', '.join(EVENTS)}")
    return call_id, types or None
