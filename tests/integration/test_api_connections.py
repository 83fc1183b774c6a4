"""Connections to the control API: how many, from whom, and how long one may take for the head of a request."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from cc_tts.processes.tasks import cancel_all
from lab.waiting import PATIENCE_S, until
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

HALF = b"GET /healthz HTTP/1.1\r\nHost: loc"


async def half_sent(api: RunningApi, count: int, stack: AsyncExitStack) -> list[asyncio.StreamReader]:
    readers = []
    for _ in range(count):
        reader, writer = await stack.enter_async_context(api.connect())
        writer.write(HALF)
        await writer.drain()
        readers.append(reader)
    return readers


async def closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionResetError:
        return b""


async def test_half_a_head_is_closed_after_its_time_however_it_drips() -> None:
    async with running_api(make_config(header_timeout_s=0.3)) as api, api.connect() as (reader, writer):

        async def drip() -> None:
            writer.write(HALF)
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert await closed(reader) == b""
        await cancel_all(dripping)


async def test_half_a_second_head_is_closed_after_its_time() -> None:
    async with running_api(make_config(header_timeout_s=0.3)) as api, api.connect() as (reader, writer):
        writer.write(HALF + b"alhost\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.5)  # between two requests a connection stays
        writer.write(HALF)
        assert await closed(reader) == b'{"status":"ok"}'


async def test_a_request_that_takes_its_time_is_not_closed() -> None:
    async with running_api(make_config(header_timeout_s=0.1, request_timeout_s=5)) as api:
        api.registry.gate.clear()
        asking = asyncio.create_task(api.ask("POST", "/v1/calls", {"to": "sip:x@h"}))
        async with api.session.ws_connect("/v1/events") as socket:
            await asyncio.sleep(0.4)
            api.registry.gate.set()
            assert (await asking).status == 201
            assert not socket.closed


async def test_many_half_requests_leave_room_for_whole_ones() -> None:
    async with (
        running_api(make_config(max_connections=20, max_connections_per_source=20)) as api,
        AsyncExitStack() as all_,
    ):
        readers = await half_sent(api, 248, all_)
        await until(lambda: api.listener.num_connections <= 20)
        for _ in range(30):
            async with api.connect() as (reader, writer):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert b"200 OK" in await closed(reader)
        assert await closed(readers[0]) == b""


async def test_requests_under_way_are_not_closed_and_more_get_503() -> None:
    config = make_config(max_connections=8, max_connections_per_source=8, max_event_subscribers=20)
    async with running_api(config) as api, AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(api.session.ws_connect("/v1/events")) for _ in range(8)]
        with capture_logs() as lines:
            async with api.connect() as (reader, writer):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = await closed(reader)
        assert not answer or (answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answer)
        assert [line["source"] for line in lines if line["event"] == "connection_refused"] == ["127.0.0.1"]
        assert not any(socket.closed for socket in sockets)
        await sockets.pop().close()
        await until(lambda: api.listener.num_connections < 8)
        assert (await api.ask("GET", "/healthz")).status == 200


async def test_requests_sent_together_do_not_hold_up_others() -> None:
    whole = HALF + b"alhost\r\n\r\n"
    async with (
        running_api(make_config()) as api,
        api.connect() as (flooded, flooder),
        api.connect() as (reader, writer),
    ):
        for stream, sink in ((flooded, flooder), (reader, writer)):
            sink.write(whole)
            await stream.readuntil(b'{"status":"ok"}')
        flooder.write(whole * 300)
        await asyncio.sleep(0)
        async with api.connect() as (newcomer, asker):
            asker.write(whole)
            writer.write(whole)
            for stream in (reader, newcomer):
                await asyncio.wait_for(stream.readuntil(b'{"status":"ok"}'), PATIENCE_S)
            answered = api.context.services.metrics.registry.get_sample_value(
                "cctts_http_requests_total", {"method": "GET", "route": "/healthz", "status": "200"}
            )
        assert answered is not None
        assert answered < 150, "one request of each client at a time"
        for _ in range(300):
            await asyncio.wait_for(flooded.readuntil(b'{"status":"ok"}'), PATIENCE_S)


async def test_many_connections_at_once_are_accepted_together() -> None:
    async with running_api(make_config()) as api, AsyncExitStack() as stack:
        opened = [stack.enter_async_context(api.connect()) for _ in range(100)]
        for reader, writer in await asyncio.gather(*opened):
            writer.write(HALF + b"alhost\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in await closed(reader)
        await until(lambda: api.listener.num_connections == 0)


async def test_one_source_has_its_own_limit() -> None:
    config = make_config(max_connections=100, max_connections_per_source=4)
    async with running_api(config) as api, AsyncExitStack() as stack:
        await half_sent(api, 12, stack)
        await until(lambda: api.listener.num_connections == 4)
        _, writer = await asyncio.open_connection("127.0.0.1", api.port, local_addr=("127.0.0.2", 0))
        await until(lambda: api.listener.num_connections == 5)
        writer.close()


GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
ORIGINATE = b'{"to": "sip:x@h"}'


@pytest.mark.parametrize("number", [1, 2, 20])
async def test_a_client_that_ends_its_side_gets_the_responses_and_then_the_end(api: RunningApi, number: int) -> None:
    async with api.connect() as (reader, writer):
        writer.write(number * GET)
        writer.write_eof()
        assert (await closed(reader)).count(b"HTTP/1.1 200 OK") == number


async def test_a_client_that_ends_its_side_during_a_request_gets_the_response() -> None:
    async with running_api(make_config(request_timeout_s=5)) as api, api.connect() as (reader, writer):
        api.registry.gate.clear()
        writer.write(POST % (len(ORIGINATE), ORIGINATE))
        await until(lambda: api.registry.requests)
        writer.write_eof()
        await asyncio.sleep(0.05)
        api.registry.gate.set()
        assert (await closed(reader)).startswith(b"HTTP/1.1 201 ")


@pytest.fixture
async def patient() -> AsyncIterator[RunningApi]:
    """One that would wait an hour for the rest of a request."""
    async with running_api(make_config(header_timeout_s=3600, request_timeout_s=3600)) as running:
        yield running


@pytest.mark.parametrize("sent", [b"", HALF, POST % (100, ORIGINATE), GET + HALF])
async def test_a_client_that_ends_its_side_within_a_request_is_closed(patient: RunningApi, sent: bytes) -> None:
    async with patient.connect() as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        assert (await closed(reader)).count(b"HTTP/1.1 200 OK") == sent.count(GET)
    assert not patient.registry.requests


@pytest.mark.parametrize("path", [b"/v1/events", b"/v1/audio/speech"])
async def test_a_stream_ends_when_its_client_ends_its_side(patient: RunningApi, path: bytes) -> None:
    body = b'{"input": "one two three", "response_format": "pcm"}'
    speech = POST.replace(b"/v1/calls", path) % (len(body), body)
    events = GET.replace(b"/healthz", path).replace(b"\r\n\r\n", b"\r\nAccept: text/event-stream\r\n\r\n")
    async with patient.connect() as (reader, writer):
        writer.write(events if path == b"/v1/events" else speech)
        writer.write_eof()
        assert not (await closed(reader)).endswith(b"0\r\n\r\n"), "what is cut off must not look whole"
    await until(lambda: not patient.registry.services.events.num_subscribers)
