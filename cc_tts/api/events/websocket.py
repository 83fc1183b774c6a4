"""Events over a WebSocket, one JSON text frame each.

A reader that is too slow is closed with 1013: when its queue (``http.event_queue_size``) is full, or when it takes
nothing for :data:`SEND_TIMEOUT_S` although events wait. What clients send is thrown away; more than
:data:`MAX_FRAMES_IN` in :data:`FRAMES_IN_WINDOW_S` closes with 1008.
"""

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from cc_tts.api.http.connections import abort
from cc_tts.calls.events.bus import Subscription

HEARTBEAT_S: Final = 20.0
"""A ping is sent this often; a client that does not answer within half of it is disconnected."""
SEND_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
"""How long the client may take to answer our close."""
MAX_FRAME_IN_BYTES: Final = 4096
MAX_FRAMES_IN: Final = 100
FRAMES_IN_WINDOW_S: Final = 10.0
WRITE_BUFFER_BYTES: Final = 65_536

OPEN_SOCKETS: Final[web.AppKey["weakref.WeakSet[web.WebSocketResponse]"]] = web.AppKey("open_sockets", weakref.WeakSet)

_ENCODER: Final = msgspec.json.Encoder()


def new_socket() -> web.WebSocketResponse:
    """A WebSocket whose handshake is not answered yet."""
    return web.WebSocketResponse(
        heartbeat=HEARTBEAT_S,
        timeout=CLOSE_TIMEOUT_S,
        max_msg_size=MAX_FRAME_IN_BYTES,
        compress=False,
        writer_limit=WRITE_BUFFER_BYTES,
    )


async def serve(
    request: web.Request,
    socket: web.WebSocketResponse,
    subscription: Subscription,
    *,
    on_too_slow: Callable[[], None],
) -> None:
    """Send events until the subscription ends or the client closes.

    Raises:
        ConnectionError: the client is gone.
    """
    request.app[OPEN_SOCKETS].add(socket)
    sender = asyncio.create_task(_send_all(socket, subscription))
    receiver = asyncio.create_task(_receive_all(socket))
    try:
        await asyncio.wait({sender, receiver}, return_when=asyncio.FIRST_COMPLETED)
        if not sender.done():
            return  # the client closed, or sent too much and was closed
        is_too_slow = sender.result()
        if is_too_slow:
            on_too_slow()
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
    """Send until the subscription ends; returns whether it ended because the reader is too slow."""
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
