"""Events as server-sent events (HTML Living Standard §9.2): ``id`` is the event's id and ``data`` the event.

The response begins with the id after which events follow, and repeats the last id with each heartbeat, so that a client
that comes again with ``Last-Event-ID`` misses nothing, however long its filters let nothing through. Such blocks have no
``data``, and a client dispatches nothing for them. A reader that is too slow is cut off as over a WebSocket.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import hdrs, web

from cc_tts.api.http.connections import abort, is_gone
from cc_tts.calls.events.bus import EventBus, Subscription

CONTENT_TYPE: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0  # unmeasured
"""Something is sent at least this often, since proxies close connections that are silent for 30 to 60 s."""
SEND_TIMEOUT_S: Final = 5.0  # unmeasured
"""The time that one write may wait for the reader."""
CLIENT_POLL_S: Final = 1.0  # unmeasured
"""While it waits for events, the server checks this often whether the client is still connected."""
UNACKNOWLEDGED_TIMEOUT_MS: Final = 30_000
"""The kernel closes the connection of a client that acknowledges nothing for this long (TCP_USER_TIMEOUT)."""
RETRY_MS: Final = 1000  # unmeasured
"""The time that a client is asked to wait before it reconnects."""
HEADERS: Final = {
    hdrs.CONTENT_TYPE: CONTENT_TYPE,
    hdrs.CACHE_CONTROL: "no-store",
    "X-Accel-Buffering": "no",  # nginx and those like it would hold events back
}

OPEN_STREAMS: Final[web.AppKey[set[Subscription]]] = web.AppKey("open_event_streams", set)


def is_asked_for(request: web.Request) -> bool:
    kinds = ",".join(request.headers.getall(hdrs.ACCEPT, ())).split(",")
    return CONTENT_TYPE in (kind.partition(";")[0].strip().lower() for kind in kinds)


async def serve(
    request: web.Request,
    response: web.StreamResponse,
    subscription: Subscription,
    bus: EventBus,
    *,
    begin_id: str,
    on_too_slow: Callable[[], None],
) -> None:
    """Send events until the subscription ends. ``begin_id`` is the id of the event before the first.

    Raises:
        ConnectionError: the client is gone.
    """
    if (connected := request.get_extra_info("socket")) is not None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_TIMEOUT_MS)
    streams = request.app[OPEN_STREAMS]
    streams.add(subscription)
    try:
        await _write(response, f"retry: {RETRY_MS}\nid: {begin_id}\n\n".encode())
        await _send_all(request, response, subscription, bus)
        if not subscription.overflowed:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await response.write_eof()
            return
    except TimeoutError:
        pass
    finally:
        streams.discard(subscription)
    on_too_slow()
    abort(request)


async def _send_all(
    request: web.Request, response: web.StreamResponse, subscription: Subscription, bus: EventBus
) -> None:
    """Send until the subscription ends or is found to be too slow."""
    loop = asyncio.get_running_loop()
    written_s = loop.time()
    while not subscription.overflowed:
        try:
            async with asyncio.timeout(CLIENT_POLL_S):
                if not await subscription.wait():
                    return
        except TimeoutError:
            if is_gone(request):
                raise ConnectionResetError from None
            if subscription.has_queued or loop.time() - written_s < HEARTBEAT_S:
                continue
            block = f": heartbeat\nid: {bus.last_id}\n\n".encode()
        else:
            event = subscription.take()
            block = b"id: %s\ndata: %s\n\n" % (event.id.encode(), msgspec.json.encode(event))
        await _write(response, block)
        written_s = loop.time()


async def _write(response: web.StreamResponse, block: bytes) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_S):
        await response.write(block)
