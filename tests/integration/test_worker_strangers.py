"""What those without a token can do to a worker that listens: its gRPC side alone, in this process, on loopback."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("grpc")

from cc_tts.config.schema import RemoteConfig
from cc_tts.engines.remote import source_limit, wire
from cc_tts.engines.remote.wire import SERVING, Channel, WorkerEndpoint, connect, listening
from cc_tts.engines.worker.messages import TO_WORKER
from cc_tts.processes.channel import Message, Ready
from lab.ports import free_ports

pytestmark = pytest.mark.integration

grpc: Any = importlib.import_module("grpc")
REMOTE = RemoteConfig(token="horse-battery")
WITHIN_S = 20.0
NUM_CHANNELS = 10
NUM_CHECKS = 300


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    port = free_ports()

    def opened(channel: Channel) -> None:
        channel.send(Ready())

    async with listening("127.0.0.1", port, REMOTE, types=TO_WORKER, on_open=opened, is_serving=lambda: True):
        yield port


@contextlib.asynccontextmanager
async def channels(port: int, num: int) -> AsyncIterator[list[Any]]:
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options))
            for _ in range(num)
        ]


def silent_check(channel: Any) -> Any:
    return channel.stream_unary("/grpc.health.v1.Health/Check")()


async def told_by_a_worker(port: int, token: str) -> tuple[list[Message], list[str]]:
    """What a server hears first, or why it was not let in."""
    got: list[Message] = []
    reasons: list[str] = []
    heard = asyncio.Event()

    def on_record(message: Message, _payload: bytes) -> None:
        got.append(message)
        heard.set()

    def on_closed(reason: str) -> None:
        reasons.append(reason)
        heard.set()

    client = await connect(
        WorkerEndpoint("127.0.0.1", port, is_tls=False),
        RemoteConfig(token=token),
        on_record=on_record,
        on_closed=on_closed,
    )
    async with asyncio.timeout(WITHIN_S):
        await heard.wait()
    client.close()
    await client.closed()
    return got, reasons


async def test_health_checks_whose_message_never_comes_shut_nobody_out(port: int) -> None:
    async with channels(port, NUM_CHANNELS + 1) as (own, *strangers):
        pending = [silent_check(strangers[number % NUM_CHANNELS]) for number in range(NUM_CHECKS)]
        await asyncio.sleep(0.3)
        got, reasons = await told_by_a_worker(port, "horse-battery")
        assert (got, reasons) == ([Ready()], [])
        assert await own.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=WITHIN_S) == SERVING
        for call in pending:
            call.cancel()


async def test_a_health_check_whose_message_never_comes_is_ended(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "HEALTH_TIMEOUT_S", 0.2)
    async with channels(port, 1) as (channel,):
        async with asyncio.timeout(WITHIN_S):
            assert await silent_check(channel).code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_the_places_of_servers_are_counted_apart(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_SERVERS", 0)
    got, (reason,) = await told_by_a_worker(port, "horse-battery")
    assert not got
    assert "0 servers already" in reason
    async with channels(port, 1) as (channel,):
        assert await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=WITHIN_S) == SERVING


async def test_strangers_leave_no_place_taken(port: int) -> None:
    for _ in range(3):
        _, (reason,) = await told_by_a_worker(port, "another-word")
        assert "asks for the token" in reason
    got, _ = await told_by_a_worker(port, "horse-battery")
    assert got == [Ready()]


@pytest_asyncio.fixture
async def small_port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Of a worker that takes 16 connections, and 4 of one source."""
    monkeypatch.setattr(wire, "MAX_CONNECTIONS", 16)
    port = free_ports()

    def opened(channel: Channel) -> None:
        channel.send(Ready())

    async with listening("127.0.0.1", port, REMOTE, types=TO_WORKER, on_open=opened, is_serving=lambda: True):
        yield port


async def closed_strangers(port: int, host: str, stack: contextlib.AsyncExitStack) -> list[asyncio.Task[bytes]]:
    """Connections that say nothing; each task ends when the worker closes its connection."""
    tasks = []
    for _ in range(14):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
        stack.callback(writer.close)
        tasks.append(asyncio.create_task(reader.read()))
    return tasks


async def test_connections_of_one_source_leave_room_for_servers_elsewhere(small_port: int) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
        strangers = await closed_strangers(small_port, "127.0.0.2", stack)
        await asyncio.wait(strangers, timeout=8 * source_limit.POLL_S)
        assert sum(task.done() for task in strangers) == 10
        got, reasons = await told_by_a_worker(small_port, "horse-battery")
        assert (got, reasons) == ([Ready()], [])


async def test_a_server_stays_whoever_else_comes_from_its_address(small_port: int) -> None:
    reasons: list[str] = []
    ready = asyncio.Event()
    server = await connect(
        WorkerEndpoint("127.0.0.1", small_port, is_tls=False),
        REMOTE,
        on_record=lambda _message, _payload: ready.set(),
        on_closed=reasons.append,
    )
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
        await ready.wait()
        strangers = await closed_strangers(small_port, "127.0.0.1", stack)
        await asyncio.wait(strangers, timeout=8 * source_limit.POLL_S)
        assert sum(task.done() for task in strangers) == 11
        assert reasons == []
    server.close()
    await server.closed()
