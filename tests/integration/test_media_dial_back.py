"""Calls of a route with ``media_url``: an application that takes the connection, one that does not, one that goes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from socket import SHUT_RDWR
from typing import Any

import numpy as np
import pytest
from aiohttp import WSMsgType, web

from cc_tts.api.media.dial_back import DialBack
from cc_tts.calls.call import Call
from cc_tts.config.schema import Config, MediaConfig, RouteConfig
from lab.waiting import PATIENCE_S, until
from tests.fakes.served_call import Served, served
from tests.support.captured_logs import capture_logs
from tests.support.served_app import served_app

pytestmark = pytest.mark.integration

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

Behaviour = Callable[[web.WebSocketResponse], Awaitable[None]]


class Application:
    """A WebSocket server that does what a test wants."""

    def __init__(self) -> None:
        self.behaviour: Behaviour = self.read_all
        self.told: list[Any] = []
        self.num_frames = 0
        self.status = 101
        self.delay_s = 0.0
        self.url = ""
        self.headers: dict[str, str] = {}
        self.is_over = asyncio.Event()

    async def read_all(self, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self.told.append(json.loads(message.data))
            else:
                self.num_frames += 1

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers = dict(request.headers)
        await asyncio.sleep(self.delay_s)
        if self.status == 302:
            raise web.HTTPFound("/elsewhere")
        if self.status != 101:
            return web.Response(status=self.status)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await self.behaviour(socket)
        self.is_over.set()
        return socket


@asynccontextmanager
async def scene(**route: Any) -> AsyncIterator[tuple[Served, Application]]:
    application = Application()
    media = MediaConfig(connect_timeout_s=1.5)

    def connect(*call: Any, **how: Any) -> None:
        dial_back.dial(*call, **how)

    async with (
        served_app(web.get("/call", application.handle)) as port,
        served("media", media=media, connect_media=connect) as api,
    ):
        exchange = api.exchange
        url = f"ws://127.0.0.1:{port}/call?secret=4711"
        routes = {"app": RouteConfig(media_url=url, **route)}
        exchange.registry.services.reload(replace(exchange.config, routes=routes))
        dial_back = DialBack(Config(media=media), exchange.metrics)
        try:
            yield api, application
        finally:
            exchange.ua.die()
            await dial_back.stop()


async def incoming(api: Served) -> Call:
    """A call to the route; it is up as soon as it is answered."""
    ua = api.exchange.ua
    call = api.call = api.exchange.registry.call(ua.incoming("app", headers={"X-Traceparent": TRACEPARENT}))
    assert ua.commands("ring")
    return call


async def answered(api: Served) -> Call:
    call = await incoming(api)
    await until(lambda: (call.id,) in api.exchange.ua.commands("answer"))
    api.exchange.ua.established(call.id, at_ns=0)
    return call


async def test_a_message_beyond_the_bound_closes_with_the_bound() -> None:
    closed: list[object] = []

    async def behave(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(bytes(MediaConfig().max_frame_bytes + 2))
        while (message := await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
            pass
        closed.extend((message.data, message.extra))

    async with scene() as (api, application):
        application.behaviour = behave
        await answered(api)
        await asyncio.wait_for(application.is_over.wait(), PATIENCE_S)
        assert closed == [1009, "a message may have 2097152 bytes at most"]


def sound(ms: int) -> bytes:
    return np.random.default_rng(1).integers(1000, 8000, ms * 8).astype("<i2").tobytes()


async def test_the_call_is_answered_when_the_application_is_connected() -> None:
    async with scene() as (api, application):
        call = await answered(api)
        await until(lambda: application.num_frames > 5)
        assert application.told[0]["call_id"] == call.id
        assert application.told[0]["direction"] == "talk"
        assert application.headers["User-Agent"].startswith("cc-tts/")
        assert application.headers["traceparent"] == TRACEPARENT
        api.exchange.ua.digit(call.id, "7", at_ns=7)
        api.exchange.ua.ended(call.id)
        await asyncio.wait_for(application.is_over.wait(), PATIENCE_S)
        assert [each["type"] for each in application.told] == ["start", "dtmf", "stop"]
        assert api.exchange.ua.commands("hangup") == []
        assert api.exchange.sample("cctts_media_connections_total", result="connected") == 1


async def test_the_application_speaks_and_goes() -> None:
    pcm = sound(600)

    async def speak(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_bytes(pcm)

    async with scene() as (api, application):
        application.behaviour = speak
        call = await answered(api)
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert pcm in bytes(api.leg.heard), "it was heard to its end"
        assert api.exchange.ua.causes == ["media_closed"]
        assert api.exchange.ua.tails_ms[call.id] == 200
        assert not call.followers


@pytest.mark.parametrize("dialect", ["cc-tts", "twilio"])
async def test_what_the_application_says_that_cannot_be_read_does_not_end_the_call(dialect: str) -> None:
    heard = asyncio.Event()

    async def speak(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_str('{"event":"media","media":' + '{"a":' * 3000)
        if dialect == "twilio":
            await socket.send_json({"event": "mark", "mark": {"name": "after"}})
            async for message in socket:
                if json.loads(message.data)["event"] == "mark":
                    heard.set()
        else:
            await socket.send_json({"type": "mark", "name": "after"})
            async for message in socket:
                if message.type is WSMsgType.TEXT and json.loads(message.data)["type"] == "mark":
                    heard.set()

    async with scene(media_dialect=dialect) as (api, application):
        application.behaviour = speak
        await answered(api)
        await asyncio.wait_for(heard.wait(), PATIENCE_S)
        assert api.exchange.ua.commands("hangup") == []


async def test_twilios_dialect() -> None:
    async with scene(media_dialect="twilio") as (api, application):
        call = await answered(api)
        await until(lambda: len(application.told) > 5)
        assert [each["event"] for each in application.told[:3]] == ["connected", "start", "media"]
        assert application.told[1]["start"]["callSid"] == call.id


async def test_the_log_has_the_first_message_of_twilios_dialect_that_cannot_be_followed() -> None:
    """There is no message for an error, and the caller hears nothing."""

    async def behave(socket: web.WebSocketResponse) -> None:
        for _ in range(3):
            await socket.send_str('{"event": "media", "media": {"payload": "4711 4711"}}')
        await socket.send_str('{"event": "mark", "mark": {"name": "behind them"}}')
        await application.read_all(socket)

    with capture_logs() as lines:
        async with scene(media_dialect="twilio") as (api, application):
            application.behaviour = behave
            call = await answered(api)
            await until(lambda: any(each["event"] == "mark" for each in application.told))
    (line,) = [each for each in lines if each["event"] == "media_stream_message_refused"]
    assert (line["call_id"], line["code"]) == (call.id, "malformed")
    assert "4711" not in str(line)


@pytest.mark.parametrize(("status", "delay_s"), [(404, 0.0), (302, 0.0), (101, 5.0)])
async def test_an_application_that_does_not_take_the_call(status: int, delay_s: float) -> None:
    with capture_logs() as lines:
        await not_taken(status, delay_s)
    (line,) = [each for each in lines if each["event"] == "media_unreachable"]
    assert line["host"] == "127.0.0.1"
    assert "4711" not in str(lines)


async def not_taken(status: int, delay_s: float) -> None:
    async with scene() as (api, application):
        application.status, application.delay_s = status, delay_s
        call = await incoming(api)
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert api.exchange.ua.commands("hangup") == [(call.id, 480, "", 0)]
        assert (call.id,) not in api.exchange.ua.commands("answer")
        api.exchange.ua.ended(call.id, by="local", sip_code=480)
        assert call.ending is not None
        assert (call.ending.result, call.ending.reason) == ("rejected", "media_unreachable")
        assert api.exchange.sample("cctts_media_connections_total", result="failed") == 1


async def test_nobody_listens_there() -> None:
    async with scene() as (api, _):
        routes = {"app": RouteConfig(media_url="ws://127.0.0.1:9/call")}
        api.exchange.registry.services.reload(replace(api.exchange.config, routes=routes))
        await incoming(api)
        await until(lambda: api.exchange.ua.commands("hangup"))


async def test_the_greeting_for_callers_whom_the_application_does_not_take() -> None:
    async with scene(unanswered_greeting="We are away", greeting="Good morning") as (api, application):
        application.status = 503
        call = await incoming(api)
        await until(lambda: (call.id,) in api.exchange.ua.commands("answer"))
        api.exchange.ua.established(call.id, at_ns=0)
        await until(lambda: api.exchange.ua.commands("hangup"))
        assert [each.spoken_text for each in call.utterances.values()] == ["", "We are away"]


async def test_a_call_that_ends_while_the_application_is_called() -> None:
    async with scene() as (api, application):
        application.delay_s = 0.1
        call = await incoming(api)
        api.exchange.ua.ended(call.id, sip_code=487)
        await asyncio.wait_for(application.is_over.wait(), PATIENCE_S)
        assert (call.id,) not in api.exchange.ua.commands("answer")
        assert application.told == []
        assert api.exchange.ua.commands("hangup") == []


async def test_an_application_that_dies_ends_the_call() -> None:
    async def die(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        socket.get_extra_info("socket").shutdown(SHUT_RDWR)

    async with scene() as (api, application):
        application.behaviour = die
        await answered(api)
        await until(lambda: api.exchange.ua.commands("hangup"))


async def test_a_stop_of_the_server_ends_the_connections() -> None:
    async with scene() as (api, application):
        await answered(api)
        await until(lambda: application.num_frames > 2)
    assert application.told[-1] == {"type": "stop", "reason": "ua_process_died"}
