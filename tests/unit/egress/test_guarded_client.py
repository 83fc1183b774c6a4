"""A guarded client connects to what was looked at, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from yarl import URL

from cc_tts.egress.hosts import AllowedHosts
from cc_tts.egress.http import GuardedClient, NotAllowed, failure

pytestmark = pytest.mark.unit


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server on loopback that sends every request on to another path of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def status(url: str, entries: Sequence[str]) -> int:
    client = GuardedClient("play.hosts", lambda: AllowedHosts(entries))
    try:
        async with client.request("GET", URL(url)) as response:
            return int(response.status)
    finally:
        await client.close()


async def test_a_listed_network_is_reached_and_a_redirect_is_not_followed(port: int) -> None:
    assert await status(f"http://localhost:{port}/", ["localhost", "127.0.0.0/8"]) == 302


async def test_a_listed_name_of_a_private_address_is_not_reached(port: int) -> None:
    with pytest.raises(OSError, match=r".") as caught:
        await status(f"http://localhost:{port}/", ["localhost"])
    assert failure(caught.value) == "play.hosts has none of its addresses, which are not public"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "other.example.com"])
async def test_a_host_that_is_not_listed_is_not_looked_up(host: str, port: int) -> None:
    with pytest.raises(NotAllowed, match=r"play\.hosts does not have this host"):
        await status(f"http://{host}:{port}/", ["localhost"])
