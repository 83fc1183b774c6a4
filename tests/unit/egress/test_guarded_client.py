"""A guarded client connects to what was looked at, and nowhere else."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import aiohttp
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


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"", "it closed the connection without a response"),
        (b"SSH-2.0-server\r\n\r\n", "its response cannot be read as HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "it broke off its response"),
    ],
)
async def test_a_failure_is_told_in_words_without_the_url(response: bytes, words: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(response)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    client = GuardedClient("play.hosts", None)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(aiohttp.ClientError) as caught:
            async with client.request("GET", URL(f"http://127.0.0.1:{port}/secret")) as response_:
                await response_.read()
        assert failure(caught.value) == words
        with pytest.raises(aiohttp.ClientError) as caught:
            async with client.request("GET", URL(f"https://127.0.0.1:{port}/secret")):
                pass
        assert failure(caught.value) in ("TLS cannot be spoken with it", "it closed the connection")
    with pytest.raises(aiohttp.ClientError) as caught:
        async with client.request("GET", URL(f"http://127.0.0.1:{port}/secret")):
            pass
    assert failure(caught.value) == "connection refused"
    await client.close()
