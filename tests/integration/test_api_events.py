"""Events over WebSockets: filters, order, slow and noisy clients, shutdown."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse

from cc_tts.api.events import websocket
from cc_tts.calls.ending import Ending
from cc_tts.calls.events import types
from cc_tts.media.quality import Quality
from lab.waiting import PATIENCE_S, until
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.fakes.served_call import close_of

pytestmark = pytest.mark.integration

PATH = "/v1/events"
KEY = types.CallDtmf(digit="1", duration_ms=100, method="rfc4733")
LONG = types.CallCommandFailed(command="hold", detail="x" * 20_000)
INCOMING = types.CallIncoming(
    direction="inbound", caller="a", callee="b", sip_call_id="s", headers={}, uri_parameters={}, source="127.0.0.1"
)
HANDSHAKE = (
    b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    async with running_api(make_config(event_queue_size=50, max_event_subscribers=3)) as running:
        yield running


async def next_event(socket: ClientWebSocketResponse) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return json.loads(await socket.receive_str())


async def test_the_envelope(api: RunningApi) -> None:
    async with api.session.ws_connect(PATH) as socket:
        data = types.CallTerminated(ending=Ending("completed", "remote_hangup", 200), quality=Quality(packets_sent=5))
        published = api.registry.services.events.publish(data, call_id="c1")
        event = await next_event(socket)
        assert event["data"]["ending"] == {"result": "completed", "reason": "remote_hangup", "sip_code": 200}
        assert event["data"]["quality"]["packets_sent"] == 5
        del event["data"]
        assert event == {
            "id": published.id,
            "type": "call.terminated",
            "time": published.time,
            "call_id": "c1",
            "seq": 1,
            "node": "",
        }


async def test_seq_counts_without_gaps_for_each_call(api: RunningApi) -> None:
    async with api.session.ws_connect(PATH) as socket:
        for number in range(40):
            api.registry.services.events.publish(KEY, call_id=f"c{number % 2}")
        seen: dict[str, list[int]] = {"c0": [], "c1": []}
        for _ in range(40):
            event = await next_event(socket)
            seen[event["call_id"]].append(event["seq"])
        assert seen == {"c0": list(range(1, 21)), "c1": list(range(1, 21))}


async def test_what_happens_from_the_handshake_on_is_sent(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write(HANDSHAKE)
        assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")
        assert api.registry.services.events.num_subscribers == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["call.incoming c1", "call.dtmf c2", "call.dtmf c1", "server.draining None"]),
        ("?call_id=c1", ["call.incoming c1", "call.dtmf c1"]),
        ("?types=call.dtmf", ["call.dtmf c2", "call.dtmf c1"]),
        ("?types=call.incoming,%20server.draining,", ["call.incoming c1", "server.draining None"]),
        ("?call_id=c1&types=call.dtmf", ["call.dtmf c1"]),
        ("?call_id=&types=", ["call.incoming c1", "call.dtmf c2", "call.dtmf c1", "server.draining None"]),
    ],
)
async def test_filters(api: RunningApi, query: str, expected: list[str]) -> None:
    async with api.session.ws_connect(PATH + query) as socket:
        bus = api.registry.services.events
        bus.publish(INCOMING, call_id="c1")
        bus.publish(KEY, call_id="c2")
        bus.publish(KEY, call_id="c1")
        bus.publish(types.ServerDraining(calls=1))
        bus.close()
        seen = []
        async for message in socket:
            event = json.loads(message.data)
            seen.append(f"{event['type']} {event['call_id']}")
        assert seen == expected
        assert socket.close_code == 1001


async def test_an_unknown_version_of_websocket_is_426(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write(HANDSHAKE.replace(b"Version: 13", b"Version: 6"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 426 ")
        assert b"Upgrade: websocket\r\n" in head


async def test_a_full_queue_closes_with_1013_and_counts(api: RunningApi) -> None:
    async with api.session.ws_connect(PATH) as slow:
        for _ in range(51):  # at once: the server cannot send in between
            api.registry.services.events.publish(KEY, call_id="c1")
        assert await close_of(slow) == (1013, "too slow")
    assert "cctts_event_subscribers_dropped_total 1.0" in api.context.services.metrics.render().decode()


async def test_a_reader_that_stops_is_dropped_while_others_go_on(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "SEND_TIMEOUT_S", 0.3)
    monkeypatch.setattr(websocket, "CLOSE_TIMEOUT_S", 0.2)
    async with api.connect() as (reader, writer), api.session.ws_connect(PATH) as good:
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        published = 0
        async with asyncio.timeout(PATIENCE_S):
            while api.registry.services.events.num_subscribers > 1:
                api.registry.services.events.publish(LONG, call_id="c1")
                published += 1
                assert (await next_event(good))["seq"] == published
        api.registry.services.events.publish(KEY, call_id="c1")
        assert (await next_event(good))["seq"] == published + 1
        await until(
            lambda: "cctts_event_subscribers_dropped_total 1.0" in api.context.services.metrics.render().decode()
        )


async def test_frames_from_the_client_are_thrown_away(api: RunningApi) -> None:
    async with api.session.ws_connect(PATH) as socket:
        await socket.send_str("hello")
        await socket.send_bytes(b"\x00" * 4000)
        await socket.ping()
        api.registry.services.events.publish(KEY, call_id="c1")
        assert (await next_event(socket))["seq"] == 1


async def test_frames_that_are_too_large_close_with_1009(api: RunningApi) -> None:
    async with api.session.ws_connect(PATH) as socket:
        await socket.send_str("x" * 5000)
        assert await close_of(socket) == (1009, "a message may have 4096 bytes at most")


@pytest.mark.parametrize("sends", ["text", "ping"])
async def test_too_many_frames_close_with_1008(api: RunningApi, sends: str) -> None:
    async with api.session.ws_connect(PATH) as socket:
        for _ in range(websocket.MAX_FRAMES_IN + 1):
            await (socket.ping() if sends == "ping" else socket.send_str("x"))
        assert await close_of(socket) == (1008, "too many frames")
    assert (await api.ask("GET", "/healthz")).status == 200


async def test_a_client_that_closes_is_forgotten(api: RunningApi) -> None:
    socket = await api.session.ws_connect(PATH)
    await socket.close()
    assert socket.close_code == 1000
    await until(lambda: not api.registry.services.events.num_subscribers)
    assert "cctts_event_subscribers 0.0" in api.context.services.metrics.render().decode()


async def test_a_client_that_vanishes_is_forgotten(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """No FIN, no answer to pings: the heartbeat finds out."""
    monkeypatch.setattr(websocket, "HEARTBEAT_S", 0.2)
    async with api.connect() as (reader, writer):
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        await until(lambda: not api.registry.services.events.num_subscribers)


async def test_shutdown_closes_with_1001() -> None:
    async with running_api() as api:
        socket = await api.session.ws_connect(PATH)
        stopping = asyncio.create_task(api.listener.stop())
        assert (await close_of(socket))[0] == 1001
        await socket.close()
        async with asyncio.timeout(PATIENCE_S):
            await stopping
    assert api.registry.services.events.num_subscribers == 0
