"""Events over a WebSocket, one JSON text frame each.

A reader that is too slow is closed with 1013: when its queue (``http.event_queue_size``) is full, or when it takes
nothing for :data:`SEND_TIMEOUT_S` although events wait. What clients send is thrown away; more than
:data:`MAX_FRAMES_IN` in :data:`FRAMES_IN_WINDOW_S` closes with 1008.
"""

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from cc_tts.api.http.connections import abort
from cc_tts.calls.events.outbox import Outbox

HEARTBEAT_S: Final = 20.0
"""A ping is sent this often; a client that does not answer within half of it is disconnected."""
SEND_TIMEOUT_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 2.0
"""How long the client may take to answer our close."""
MAX_FRAME_IN_BYTES: Final = 4096
MAX_FRAMES_IN: Final = 100
FRAMES_IN_WINDOW_S: Final = 10.0
WRITE_BUFFER_BYTES: Final = 65_536

_DISPLACED: Final = (WSCloseCode.TRY_AGAIN_LATER, b"others have fewer readers, and there is no room for more")

OPEN_SOCKETS: Final[web.AppKey["weakref.WeakSet[web.WebSocketResponse]"]] = web.AppKey("open_sockets", weakref.WeakSet)


def new_socket(*, max_frame_bytes: int, **options: Any) -> web.WebSocketResponse:
    """A WebSocket whose handshake is not answered yet. ``options`` are those of ``web.WebSocketResponse``."""
    return web.WebSocketResponse(
        timeout=CLOSE_TIMEOUT_S,
        max_msg_size=max_frame_bytes,
        compress=False,
        writer_limit=WRITE_BUFFER_BYTES,
        **options,
    )


async def serve(
    request: web.Request,
    socket: web.WebSocketResponse,
    outbox: Outbox[Any],
    receiving: Coroutine[Any, Any, None],
    *watching: Coroutine[Any, Any, None],
    end: tuple[WSCloseCode, bytes],
    on_too_slow: Callable[[], None],
) -> None:
    """Send what is in ``outbox`` until it ends, and then close with ``end``; or until ``receiving`` ends, since the client
    has closed. A client that does not read, or for which ``watching`` ends, is closed with 1013 and broken off.

    Raises:
        ConnectionError: the client is gone.
    """
    request.app[OPEN_SOCKETS].add(socket)
    coroutines = (_send_all(socket, outbox), receiving, *watching)
    sender, receiver, *_ = tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if receiver.done():
            receiver.result()
        elif sender.done() and not outbox.overflowed:
            sender.result()
            code, message = _DISPLACED if outbox.displaced else end
            await socket.close(code=code, message=message, drain=False)
        else:
            on_too_slow()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=b"too slow", drain=False)
            abort(request)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_all(socket: web.WebSocketResponse, outbox: Outbox[Any]) -> None:
    """Send until the end, or until the reader is too slow: the outbox then has overflowed."""
    async for item in outbox:
        if outbox.overflowed:
            return
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await socket.send_frame(msgspec.json.encode(item), WSMsgType.TEXT)
        except TimeoutError:
            outbox.overflowed = True
            return


async def receive_nothing(socket: web.WebSocketResponse) -> None:
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
