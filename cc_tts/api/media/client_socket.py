"""WebSockets that the server opens to applications. No redirect is followed."""

import asyncio
from collections.abc import Mapping
from typing import Final

import aiohttp
from yarl import URL

from cc_tts import logs
from cc_tts.api.events.websocket import CLOSE_TIMEOUT_S, why_closed
from cc_tts.egress.http import GuardedClient, failure

STOP_TIMEOUT_S: Final = 2.0  # unmeasured
"""The time for the last messages when the server stops."""

log = logs.get(__name__)


class ClientSocket(aiohttp.ClientWebSocketResponse):
    """A WebSocket that remembers who closed it. aiohttp reports 1000 even if the peer vanished without a close frame."""

    max_frame_bytes = 0
    their_code: int | None = None
    """The status with which the peer closed, 0 if it gave none; ``None`` if it has not closed."""
    our_code: int | None = None
    """The status with which we closed first."""

    async def receive(self, timeout: float | None = None) -> aiohttp.WSMessage:  # noqa: ASYNC109 - that of aiohttp
        message = await super().receive(timeout)
        if message.type is aiohttp.WSMsgType.CLOSE and self.our_code is None:
            self.their_code = int(message.data or 0)
        return message

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        if self.our_code is None and (self.close_code is None or code != aiohttp.WSCloseCode.OK):
            self.our_code = code  # no answer to a close of theirs, which aiohttp gives by itself
        return await super().close(code=code, message=why_closed(code, message, self.max_frame_bytes))


async def dial(
    client: GuardedClient,
    url: URL,
    *,
    timeout_s: float,
    max_frame_bytes: int,
    headers: Mapping[str, str],
    event: str,
    **whose: str,
) -> ClientSocket | None:
    """Return the connection that the application has accepted, or ``None``: then the log has ``event`` with the reason.
    ``client`` has the class :class:`ClientSocket`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            socket = await client.connect(
                url,
                headers=headers,
                autoping=False,
                max_msg_size=max_frame_bytes,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_TIMEOUT_S),
            )
    except (aiohttp.ClientError, OSError, ValueError) as error:
        detail = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else failure(error)
        log.warning(event, **whose, host=url.host, port=url.port, detail=detail)
        return None
    assert isinstance(socket, ClientSocket)
    socket.max_frame_bytes = max_frame_bytes
    return socket
