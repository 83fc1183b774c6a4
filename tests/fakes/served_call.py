"""The API in front of a real registry and a real call, whose line plays."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import ClientSession, ClientTimeout, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from cc_tts.api.app import build_app
from cc_tts.api.context import ApiContext
from cc_tts.api.http.connections import HttpListener
from cc_tts.calls.call import Call
from cc_tts.calls.incoming import MediaConnector
from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import HttpConfig, MediaConfig, StreamConfig, TokenConfig, WebhooksConfig
from cc_tts.config.sections.relay import RelayConfig
from cc_tts.webhooks.webhooks import Webhooks
from lab.waiting import PATIENCE_S
from tests.fakes.exchange import Exchange
from tests.fakes.playing_ua import PlayingLeg, PlayingUa
from tests.fakes.running_api import make_own_voices


class Served:
    """``connect`` opens the call's WebSocket of this ``kind``."""

    def __init__(self, exchange: Exchange, call: Call, session: ClientSession, port: int, kind: str) -> None:
        self.exchange, self.call, self.session, self.port = exchange, call, session, port
        self.kind = kind

    @property
    def path(self) -> str:
        return f"/v1/calls/{self.call.id}/{self.kind}"

    @property
    def leg(self) -> PlayingLeg:
        return cast("PlayingUa", self.exchange.ua).legs.setdefault(self.call.id, PlayingLeg())

    def connect(self, query: str = "", **options: Any) -> Any:
        return self.session.ws_connect(self.path + query, **options)


@asynccontextmanager
async def served(
    kind: str,
    tokens: tuple[TokenConfig, ...] = (),
    *,
    stream: StreamConfig | None = None,
    media: MediaConfig | None = None,
    relay: RelayConfig | None = None,
    connect_media: MediaConnector | None = None,
) -> AsyncIterator[Served]:
    clock = MonotonicClock()
    ua = PlayingUa(clock)
    exchange = Exchange(
        ua=ua, max_text_chars=1000, stream=stream, media=media, relay=relay, connect_media=connect_media
    )
    exchange.use_clock(clock)
    exchange.use_real_speech()
    services = exchange.services
    http = HttpConfig(host="127.0.0.1", port=0, tokens=tokens)
    config = exchange.config
    services.reload(dataclasses.replace(config, http=http))
    context = ApiContext(
        registry=exchange.registry,
        own_voices=make_own_voices(config, exchange.engine),
        webhooks=Webhooks(WebhooksConfig(), clock=clock, metrics=exchange.metrics),
        on_drain=lambda: None,
    )
    listener = HttpListener(build_app(context), http, clock=clock, shutdown_timeout=1.0)
    await listener.start()
    ua.start()
    call = exchange.registry.call(exchange.talking("silent"))
    try:
        timeout = ClientTimeout(total=10)
        async with ClientSession(f"http://127.0.0.1:{listener.port}", timeout=timeout) as session:
            yield Served(exchange, call, session, listener.port, kind)
    finally:
        ua.die()
        await ua.stop()
        await listener.stop()


async def told(socket: ClientWebSocketResponse, type_: str) -> Any:
    """The next message of a type; audio is passed over."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = await socket.receive()
            if message.type is WSMsgType.TEXT and (found := json.loads(message.data))["type"] == type_:
                return found
            assert message.type in (WSMsgType.TEXT, WSMsgType.BINARY), message


async def close_of(socket: ClientWebSocketResponse) -> tuple[int | None, str]:
    """How a socket is closed, code and reason; what comes before is passed over."""
    async with asyncio.timeout(PATIENCE_S):
        while (message := await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            pass
    return (message.data, message.extra or "") if message.type is WSMsgType.CLOSE else (None, "")


async def refusal(connecting: Any) -> int:
    with pytest.raises(WSServerHandshakeError) as refused:
        await connecting
    return refused.value.status
