"""A client of a call's audio: ``GET /v1/calls/{id}/media``."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from cc_tts.processes.tasks import cancel_all
from lab.server_under_test import Json, Server
from lab.waiting import PATIENCE_S


class MediaClient:
    """What it was sent: ``pcm`` and ``told``; ``code`` once the server has closed."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.pcm = bytearray()
        self.told: list[Json] = []
        self.code: int | None = None
        self._changed = asyncio.Event()

    async def read(self) -> None:
        """Take what comes until the end."""
        async for message in self.socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                self.pcm += message.data
            else:
                self.told.append(json.loads(message.data))
            self._changed.set()
        self.code = self.socket.close_code
        self._changed.set()

    def all(self, kind: str) -> list[Json]:
        return [each for each in self.told if each["type"] == kind]

    async def until(self, condition: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"it was told {self.told}, {len(self.pcm)} bytes, code {self.code}") from None

    async def wait(self, kind: str, timeout_s: float = PATIENCE_S) -> Json:
        """The first message of a type."""
        await self.until(lambda: self.all(kind), timeout_s)
        return self.all(kind)[0]

    async def closed(self, timeout_s: float = PATIENCE_S) -> int:
        await self.until(lambda: self.code is not None, timeout_s)
        assert self.code is not None
        return self.code

    async def hears(self, num_frames: int, timeout_s: float = PATIENCE_S) -> None:
        """Wait for so many more frames."""
        wanted = len(self.pcm) + 320 * num_frames
        await self.until(lambda: len(self.pcm) >= wanted, timeout_s)


@contextlib.asynccontextmanager
async def media(server: Server, call_id: str, query: str = "direction=in") -> AsyncIterator[MediaClient]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{server.url}/v1/calls/{call_id}/media?{query}") as socket,
    ):
        client = MediaClient(socket)
        reading = asyncio.create_task(client.read())
        try:
            yield client
        finally:
            await cancel_all(reading)
