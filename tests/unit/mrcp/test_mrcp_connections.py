"""MRCP connections: who may connect, which channel answers where, and what is closed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cc_tts.mrcp.control.connections import UNUSED_S, Control
from cc_tts.mrcp.control.message import Request, RequestState, StatusCode, request, response
from lab.waiting import until

pytestmark = pytest.mark.unit

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


CHANNEL = "a@speechsynth"


def echoing(idle_timeout_s: float = 0.0) -> Control:
    """A control with one channel, which answers each request but ``FAIL``."""
    control = Control(lambda _host: True, idle_timeout_s=idle_timeout_s)

    def handle(found: Request) -> None:
        if found.method == "FAIL":
            raise RuntimeError
        control.send(CHANNEL, response(found.request_id, StatusCode.SUCCESS, RequestState.COMPLETE, ()))

    control.add(CHANNEL, handle)
    return control


@contextlib.asynccontextmanager
async def listening(control: Control, num: int = 1) -> AsyncIterator[list[Client]]:
    port = await control.listen("127.0.0.1", 0)
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(num)]
    try:
        yield clients
    finally:
        for _, writer in clients:
            writer.close()
        control.close()


async def line(client: Client) -> str:
    """The start line of the next message, which has no header but a channel."""
    async with asyncio.timeout(2):
        found = (await client[0].readuntil(b"\r\n")).decode().strip()
        await client[0].readexactly(int(found.split()[1]) - len(found) - 2)
    return found.split(" ", 2)[2]


def asked(method: str, number: int) -> bytes:
    return request(method, number, [("Channel-Identifier", CHANNEL)])


async def test_a_channel_answers_where_its_last_request_came_from() -> None:
    control = echoing()
    async with listening(control, 2) as (one, other):
        one[1].write(asked("STOP", 1))
        assert await line(one) == "1 200 COMPLETE"
        other[1].write(asked("STOP", 2))
        assert await line(other) == "2 200 COMPLETE"
        one[1].close()
        await asyncio.sleep(0.05)
        assert control.is_connected(CHANNEL)  # the connection that is gone was another's


async def test_a_fault_in_one_request_answers_that_one() -> None:
    control = echoing()
    async with listening(control) as (client,):
        client[1].write(asked("FAIL", 1) + asked("STOP", 2))
        assert [await line(client) for _ in range(2)] == ["1 501 COMPLETE", "2 200 COMPLETE"]


@pytest.mark.parametrize("idle_timeout_s", [0.0, 2 * UNUSED_S])
async def test_a_connection_of_no_channel_is_closed_after_a_while(idle_timeout_s: float) -> None:
    """It may be without a channel as long as a session without a connection."""
    control = echoing(idle_timeout_s)
    async with listening(control, 2) as (used, unused):
        used[1].write(asked("STOP", 1))
        await line(used)
        control.close_unused(asyncio.get_running_loop().time() + UNUSED_S + 1)
        if not idle_timeout_s:
            async with asyncio.timeout(2):
                assert await unused[0].read() == b""
        for client in (used,) if not idle_timeout_s else (used, unused):
            client[1].write(asked("STOP", 2))
            assert await line(client) == "2 200 COMPLETE"


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    control = echoing()
    async with listening(control) as (client,):
        client[1].write(asked("STOP", 1))
        await line(client)
        for _ in range(200):
            control.send(CHANNEL, b"x" * 100_000)
        await until(lambda: not control.is_connected(CHANNEL))
