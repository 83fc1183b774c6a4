"""A client of server-sent events."""

import asyncio
import json
from typing import Any

from aiohttp import ClientResponse

TIMEOUT_S = 10.0


class EventSource:
    """Reads a stream as the HTML standard says; ``last_id`` is what a client sends as Last-Event-ID."""

    def __init__(self, response: ClientResponse, *, timeout_s: float | None = TIMEOUT_S) -> None:
        self._response = response
        self._timeout_s = timeout_s
        self.last_id = ""
        self.retry_ms = 0
        self.comments = 0

    async def block(self) -> str | None:
        """The data of the next block, ``""`` if it has none; ``None`` at the end of the stream."""
        data: list[str] = []
        async with asyncio.timeout(self._timeout_s):
            while (line := (await self._response.content.readline()).decode()) != "\n":
                if not line:
                    return None
                name, _, value = line.rstrip("\n").partition(": ")
                match name:
                    case "id":
                        self.last_id = value
                    case "data":
                        data.append(value)
                    case "retry":
                        self.retry_ms = int(value)
                    case "":
                        self.comments += 1
        return "\n".join(data)

    async def next(self) -> Any:
        while (data := await self.block()) == "":
            pass
        return None if data is None else json.loads(data)
