"""A client of a call's WebSocket sends text or audio, which is followed here. The client is pinged; one that answers nothing
is gone. A message that cannot be followed is answered and the stream goes on.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from aiohttp import WSCloseCode, WSMessage, WSMsgType

from cc_tts.errors import UNREADABLE, CcTtsError, MalformedRequest

PING_INTERVAL_S: Final = 20.0  # unmeasured
PONG_TIMEOUT_S: Final = 60.0  # unmeasured
"""A client that has sent nothing for so long, not even a pong, is gone."""
PING_SEND_TIMEOUT_S: Final = 5.0  # unmeasured
MAX_MESSAGES_PER_S: Final = 1000
"""One client may send so many; what comes faster is read later. Unmeasured."""
MAX_FAULTS: Final = 20  # unmeasured
"""In a row; then nothing more is followed."""


class Socket(Protocol):
    """The WebSockets of both sides of aiohttp can do this."""

    def __aiter__(self) -> AsyncIterator[WSMessage]: ...

    async def send_frame(self, message: bytes, opcode: WSMsgType) -> None:
        """Send one message; waits while too much is unsent."""
        ...

    async def ping(self) -> None: ...

    async def pong(self, message: bytes) -> None: ...

    async def close(self, *, code: int, message: bytes) -> Any: ...


class Receiver:
    """``follow`` does what a message in a text or binary frame says; what it raises of :data:`UNREADABLE` and
    ``CcTtsError`` is given to ``refuse``.
    """

    def __init__(
        self, socket: Socket, *, follow: Callable[[WSMessage], None], refuse: Callable[[CcTtsError], None]
    ) -> None:
        self._socket = socket
        self._follow = follow
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._num_faults = 0

    async def ping_all(self) -> None:
        """Ping until nothing has been heard of the client for too long."""
        while self._loop.time() - self._heard_s < PONG_TIMEOUT_S:
            await asyncio.sleep(PING_INTERVAL_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_SEND_TIMEOUT_S):
                    await self._socket.ping()

    async def receive_all(self) -> None:
        """Follow what the client sends until it closes, or is closed since too many messages in a row could not be followed.
        Other tasks take turns with each message.
        """
        second_began_s, num_messages = self._loop.time(), 0
        async for message in self._socket:
            self._heard_s = self._loop.time()
            if self._heard_s - second_began_s >= 1.0:
                second_began_s, num_messages = self._heard_s, 0
            num_messages += 1
            if num_messages > MAX_MESSAGES_PER_S:
                await asyncio.sleep(second_began_s + 1.0 - self._heard_s)
            if message.type is WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                self._take(message)
            if self._num_faults >= MAX_FAULTS:
                await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"too many faults")
                return
            await asyncio.sleep(0)

    def _take(self, message: WSMessage) -> None:
        try:
            self._follow(message)
        except UNREADABLE as error:
            self._fault(MalformedRequest("nested too deep" if isinstance(error, RecursionError) else str(error)))
        except CcTtsError as error:
            self._fault(error)
        else:
            self._num_faults = 0

    def _fault(self, error: CcTtsError) -> None:
        self._num_faults += 1
        self._refuse(error)
