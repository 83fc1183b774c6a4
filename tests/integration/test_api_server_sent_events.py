"""Server-sent events: what goes over the line, coming again, slow and vanished clients, shutdown; ``since`` over both."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import ClientError

from cc_tts.api.app import set_tokens
from cc_tts.api.events import server_sent
from cc_tts.calls.events import types
from cc_tts.config.schema import TokenConfig
from lab.waiting import PATIENCE_S, until
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.fakes.served_call import refusal
from tests.support.event_source import EventSource

pytestmark = pytest.mark.integration

PATH = "/v1/events"
ACCEPT = {"Accept": "text/event-stream"}
REQUEST = b"GET /v1/events%s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n%s\r\n"
KEY = types.CallDtmf(digit="1", duration_ms=100, method="rfc4733")
LONG = types.CallCommandFailed(command="hold", detail="x" * 20_000)
TIMEOUT_S = 5.0


@pytest.fixture
async def api() -> AsyncIterator[RunningApi]:
    config = make_config(event_queue_size=50, max_event_subscribers=3, event_history_size=20)
    async with running_api(config) as running:
        yield running


@asynccontextmanager
async def listening(api: RunningApi, query: str = "", **headers: str) -> AsyncIterator[EventSource]:
    async with api.session.get(PATH + query, headers={**ACCEPT, **headers}) as response:
        assert response.status == 200
        yield EventSource(response)


def publish(api: RunningApi, *call_ids: str, data: types.EventData = KEY) -> list[str]:
    return [api.registry.services.events.publish(data, call_id=call_id).id for call_id in call_ids]


async def test_the_response_survives_proxies(api: RunningApi) -> None:
    async with api.session.get(PATH, headers=ACCEPT) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "application/json, Text/Event-Stream;q=0.9", "text/event-stream, */*"]
)
async def test_it_is_asked_for_by_accept(api: RunningApi, accept: str) -> None:
    async with api.session.get(PATH, headers={"Accept": accept}) as response:
        assert response.status == 200


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/*", ""])
async def test_who_asks_for_neither_is_told_of_both(api: RunningApi, accept: str) -> None:
    answered = await api.ask("GET", PATH, headers={"Accept": accept})
    answered.check_problem(426, "upgrade_required")
    assert "text/event-stream" in answered.json["detail"]


async def test_what_goes_over_the_line(api: RunningApi) -> None:
    begin = api.registry.services.events.last_id
    async with api.connect() as (reader, writer):
        writer.write(REQUEST % (b"", b""))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        (event_id,) = publish(api, "c1")
        body = await reader.readuntil(b"}\n\n\r\n")
    lines = [line for line in body.decode().split("\r\n") if not line.isalnum()]
    first, second, *_ = "".join(lines).split("\n\n")
    assert first == f"retry: {server_sent.RETRY_MS}\nid: {begin}"
    kind, data = second.split("\n")
    assert kind == f"id: {event_id}"
    assert json.loads(data.removeprefix("data: ")) == {
        "id": event_id,
        "type": "call.dtmf",
        "time": pytest.approx(api.context.services.clock.wall_s(), abs=60),
        "call_id": "c1",
        "seq": 1,
        "data": {"digit": "1", "duration_ms": 100, "method": "rfc4733"},
        "node": "",
    }


async def test_a_client_that_comes_again_misses_nothing_and_gets_nothing_twice(api: RunningApi) -> None:
    async with listening(api) as source:
        ids = publish(api, *["c1"] * 10)
        seen = [(await source.next())["id"] for _ in range(4)]
    await until(lambda: not api.registry.services.events.num_subscribers)
    ids += publish(api, *["c1"] * 10)
    async with listening(api, **{"Last-Event-ID": source.last_id}) as again:
        ids += publish(api, *["c1"] * 10)
        seen += [(await again.next())["id"] for _ in range(26)]
        assert seen == ids
        assert again.last_id == ids[-1]


async def test_a_client_that_has_seen_no_event_yet_misses_nothing(api: RunningApi) -> None:
    async with listening(api) as source:
        assert await source.block() == ""
    ids = publish(api, "c1", "c2")
    async with listening(api, **{"Last-Event-ID": source.last_id}) as again:
        assert [(await again.next())["id"] for _ in range(2)] == ids


async def test_the_header_goes_before_the_parameter_which_an_event_source_repeats(api: RunningApi) -> None:
    first, second, third = publish(api, "c1", "c1", "c1")
    async with listening(api, f"?since={first}") as source:
        assert (await source.next())["id"] == second
    async with listening(api, f"?since={first}", **{"Last-Event-ID": second}) as again:
        assert (await again.next())["id"] == third


@pytest.mark.parametrize("query", ["?call_id=c2", "?types=call.dtmf", "?call_id=c2&types=call.dtmf"])
async def test_filters_hold_for_what_was_missed(api: RunningApi, query: str) -> None:
    (since,) = publish(api, "c1")
    publish(api, "c1", data=types.CallUnheld())
    (wanted,) = publish(api, "c2")
    async with listening(api, f"{query}&since={since}") as source:
        assert (await source.next())["id"] == wanted


async def test_the_heartbeat_moves_the_id_on_for_who_filters(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(server_sent, "CLIENT_POLL_S", 0.05)
    async with listening(api, "?call_id=c2") as source:
        ids = publish(api, *["c1"] * 100)  # more than are kept
        async with asyncio.timeout(TIMEOUT_S):
            while source.last_id != ids[-1]:
                assert await source.block() == ""
        assert source.comments
    (wanted,) = publish(api, "c2")
    async with listening(api, "?call_id=c2", **{"Last-Event-ID": source.last_id}) as again:
        assert (await again.next())["id"] == wanted


async def test_an_event_that_is_no_longer_kept_is_410(api: RunningApi) -> None:
    ids = publish(api, *["c1"] * 30)
    for path, headers in ((f"{PATH}?since={ids[5]}", {}), (PATH, {"Last-Event-ID": ids[5]})):
        (await api.ask("GET", path, headers={**ACCEPT, **headers})).check_problem(410, "events_gone")
    (await api.ask("GET", f"{PATH}?since=evt_00000000_1", headers=ACCEPT)).check_problem(410, "events_gone")
    assert await refusal(api.session.ws_connect(f"{PATH}?since={ids[5]}")) == 410
    assert api.registry.services.events.num_subscribers == 0


@pytest.mark.parametrize("since", ["17", "evt_1", "evt_00000000_x", "x" * 4000, "%00"])
async def test_what_is_no_id_is_400(api: RunningApi, since: str) -> None:
    (await api.ask("GET", f"{PATH}?since={since}", headers=ACCEPT)).check_problem(400, "malformed")
    assert await refusal(api.session.ws_connect(f"{PATH}?since={since}")) == 400


async def test_a_websocket_goes_on_after_an_event_too(api: RunningApi) -> None:
    ids = publish(api, *["c1"] * 10)
    async with api.session.ws_connect(f"{PATH}?since={ids[3]}") as connected:
        ids += publish(api, *["c1"] * 5)
        async with asyncio.timeout(TIMEOUT_S):
            assert [json.loads(await connected.receive_str())["id"] for _ in range(11)] == ids[4:]


async def test_both_kinds_of_readers_count_against_the_limit(api: RunningApi) -> None:
    async with listening(api), listening(api), api.session.ws_connect(PATH):
        assert "cctts_event_subscribers 3.0" in api.context.services.metrics.render().decode()
        refused = await api.ask("GET", PATH, headers=ACCEPT)
        refused.check_problem(503, "capacity_exceeded")
        assert refused.headers["Retry-After"] == "5"
        assert await refusal(api.session.ws_connect(PATH)) == 503
    await until(lambda: not api.registry.services.events.num_subscribers)
    assert "cctts_event_subscribers 0.0" in api.context.services.metrics.render().decode()


async def test_a_reader_whose_queue_is_full_is_cut_off_and_goes_on(api: RunningApi) -> None:
    async with listening(api) as slow:
        await slow.block()
        ids = publish(api, *["c1"] * 51)  # at once: the server cannot send in between
        with pytest.raises(ClientError):
            while await slow.next() is not None:
                pass
    assert "cctts_event_subscribers_dropped_total 1.0" in api.context.services.metrics.render().decode()
    async with listening(api, f"?since={ids[-20]}") as again:
        assert (await again.next())["id"] == ids[-19]


async def test_a_reader_that_stops_is_cut_off_while_others_go_on(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent, "SEND_TIMEOUT_S", 0.3)
    async with api.connect() as (reader, writer), listening(api) as good:
        writer.write(REQUEST % (b"", b""))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(PATIENCE_S):
            while api.registry.services.events.num_subscribers > 1:
                (event_id,) = publish(api, "c1", data=LONG)
                assert (await good.next())["id"] == event_id
        (event_id,) = publish(api, "c1")
        assert (await good.next())["id"] == event_id
        await until(
            lambda: "cctts_event_subscribers_dropped_total 1.0" in api.context.services.metrics.render().decode()
        )


async def test_a_client_that_leaves_is_forgotten_without_an_event(
    api: RunningApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent, "CLIENT_POLL_S", 0.05)
    async with listening(api) as source:
        await source.block()
    await until(lambda: not api.registry.services.events.num_subscribers)
    assert "cctts_event_subscribers_dropped_total 0.0" in api.context.services.metrics.render().decode()


def unacknowledged_timeouts_ms(port: int) -> set[int]:
    """What the kernel has for the connections of this process that its listener at ``port`` has accepted."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(each.name))) as connected:
            if connected.family is socket.AF_INET and connected.getsockname()[1] == port:
                found.add(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
    return found


async def test_the_kernel_gives_up_on_a_client_that_acknowledges_nothing(api: RunningApi) -> None:
    async with listening(api) as source:
        await source.block()
        assert server_sent.UNACKNOWLEDGED_TIMEOUT_MS in unacknowledged_timeouts_ms(api.port)


async def test_the_stream_ends_when_the_server_stops() -> None:
    async with running_api() as api:
        async with listening(api) as source:
            (event_id,) = publish(api, "c1")
            stopping = asyncio.create_task(api.listener.stop())
            assert (await source.next())["id"] == event_id
            assert await source.next() is None
        async with asyncio.timeout(TIMEOUT_S):
            await stopping
    assert api.registry.services.events.num_subscribers == 0


async def test_new_tokens_end_the_streams() -> None:
    async with running_api(make_config(tokens=(TokenConfig("read-token", ("read",)),))) as api:
        assert (await api.ask("GET", PATH, headers=ACCEPT)).status == 401
        assert await refusal(api.session.ws_connect(PATH)) == 401
        async with listening(api, Authorization="Bearer read-token") as source:
            await source.block()
            await set_tokens(api.app, [TokenConfig("other-token", ("read",))])
            assert await source.next() is None
        assert (await api.ask("GET", PATH, headers={**ACCEPT, "Authorization": "Bearer read-token"})).status == 401


async def test_a_drain_is_reported_and_ends_nothing(api: RunningApi) -> None:
    async with listening(api) as source:
        assert (await api.ask("POST", "/v1/admin/drain")).status == 202
        assert (await source.next())["type"] == "server.draining"
        publish(api, "c1")
        assert (await source.next())["type"] == "call.dtmf"


async def test_http_1_0_gets_them_until_the_connection_ends(api: RunningApi) -> None:
    async with api.connect() as (reader, writer):
        writer.write((REQUEST % (b"", b"")).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"chunked" not in head
        (event_id,) = publish(api, "c1")
        assert f"\n\nid: {event_id}\ndata: ".encode() in await reader.readuntil(b"}\n\n")
