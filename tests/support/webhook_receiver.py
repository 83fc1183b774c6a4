"""A receiver of webhooks on loopback, which verifies what it gets as any receiver of Standard Webhooks does."""

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from standardwebhooks import Webhook

from tests.support.served_app import served_app

Json = dict[str, Any]
Behaviour = Callable[[web.Request, Json], Awaitable[web.StreamResponse]]


def secret(letter: str = "k") -> str:
    """A secret of 32 times this letter."""
    return "whsec_" + base64.b64encode(letter.encode() * 32).decode()


async def take(_request: web.Request, _event: Json) -> web.StreamResponse:
    return web.Response(status=204)


@dataclass
class Receiver:
    """``taken`` are the events that were answered with 2xx, ``attempts`` all; their signatures were right."""

    secret: str
    behaviour: Behaviour = take
    taken: list[Json] = field(default_factory=list)
    attempts: list[Json] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    unverified: list[Exception] = field(default_factory=list)
    url: str = ""

    async def receive(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            Webhook(self.secret).verify(body, headers)
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.unverified.append(error)
            return web.Response(status=401)
        event = json.loads(body)
        assert event["id"] == headers["webhook-id"] or event["type"] == "webhook.test"
        self.attempts.append(event)
        self.headers.append(headers)
        response = await self.behaviour(request, event)
        if 200 <= response.status < 300:
            self.taken.append(event)
        return response

    def kinds(self, call_id: str | None = None) -> list[str]:
        return [each["type"] for each in self.taken if call_id in (None, each["call_id"])]

    def of_kind(self, kind: str) -> list[Json]:
        return [each for each in self.taken if each["type"] == kind]


@asynccontextmanager
async def receiver(*, secret: str, port: int = 0, behaviour: Behaviour = take) -> AsyncIterator[Receiver]:
    it = Receiver(secret=secret, behaviour=behaviour)
    async with served_app(web.post("/events", it.receive), port=port) as bound:
        it.url = f"http://127.0.0.1:{bound}/events"
        yield it
