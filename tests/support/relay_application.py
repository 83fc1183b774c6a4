"""An application that is written for ConversationRelay, as the other side of relays."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.served_app import served_app

Behaviour = Callable[[web.WebSocketResponse], Awaitable[None]]


class Application:
    """The other side: ``behaviour`` is what it does with a connection besides reading; ``told`` what each one has got."""

    def __init__(self) -> None:
        self.behaviour: Behaviour | None = None
        self.status = 101
        self.delay_s = 0.0
        self.url = ""
        self.file: Path | None = None
        """What is at the path /audio of its server."""
        self.headers: list[dict[str, str]] = []
        self.requests: list[web.Request] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.told: list[list[Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        await asyncio.sleep(self.delay_s)
        if self.status == 302:
            raise web.HTTPFound("/elsewhere")
        if self.status != 101:
            return web.Response(status=self.status)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.append(socket)
        self.requests.append(request)
        self.told.append(told := [])
        if self.behaviour is not None:
            await self.behaviour(socket)
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            told.append(json.loads(message.data))
        return socket

    async def serve_file(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(status=404) if self.file is None else web.FileResponse(self.file)

    @property
    def audio_url(self) -> str:
        return f"http{self.url.removeprefix('ws').split('/relay', maxsplit=1)[0]}/audio"

    @property
    def last(self) -> list[Any]:
        return self.told[-1] if self.told else []

    def of(self, type_: str) -> list[Any]:
        return [each for each in self.last if each["type"] == type_]

    async def say(self, **message: Any) -> None:
        await self.sockets[-1].send_json(message)

    def break_off(self, *, resets: bool = True) -> None:
        """The connection is gone, without a close of its WebSocket."""
        transport = self.requests[-1].transport
        assert transport is not None
        if resets:
            transport.abort()
        else:
            transport.close()


@asynccontextmanager
async def running_application() -> AsyncIterator[Application]:
    application = Application()
    routes = web.get("/relay", application.handle), web.get("/audio", application.serve_file)
    async with served_app(*routes) as port:
        application.url = f"ws://127.0.0.1:{port}/relay?secret=4711"
        yield application
