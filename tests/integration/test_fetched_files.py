"""Requests for audio files against servers that work, are slow, or lie."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from yarl import URL

from cc_tts.api.prompts.fetch import HttpFetch
from cc_tts.config.sections.prompts import PromptsConfig
from cc_tts.errors import FetchFailed, UrlNotAllowed
from cc_tts.speech.staged.urls import FetchedFile
from lab.waiting import PATIENCE_S

pytestmark = pytest.mark.integration

MAX_BYTES = 4096
Answer = Callable[[bytes], bytes]


@asynccontextmanager
async def serving(answer: Answer, *, is_endless: bool = False) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server on loopback whose responses are these bytes; gives its port, and the heads of the requests."""
    heads: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer(heads[-1]))
        try:
            while is_endless:
                writer.write(bytes(1024))
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heads


async def fetch(
    port: int, *, host: str = "127.0.0.1", hosts: tuple[str, ...] = ("127.0.0.0/8",), **validators: str
) -> FetchedFile:
    client = HttpFetch(PromptsConfig(allowed_hosts=hosts, max_upload_bytes=MAX_BYTES))
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await client(URL(f"http://{host}:{port}/a%2Fb.wav?token=x", encoded=True), **validators)
    finally:
        await client.close()


def response(body: bytes = b"audio", *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers))
    return f"{head}\r\n\r\n".encode() + body


async def test_a_file_comes_with_what_allows_to_keep_it() -> None:
    whole = response(b"audio", 'ETag: "v1"', "Last-Modified: then", "Cache-Control: public, Max-Age=90", "Age: 30")
    async with serving(lambda _: whole) as (port, heads):
        assert await fetch(port) == FetchedFile(data=b"audio", etag='"v1"', last_modified="then", fresh_s=60.0)
    assert heads[0].startswith(b"GET /a%2Fb.wav?token=x HTTP/1.1\r\n")
    assert b"Accept-Encoding: identity\r\n" in heads[0]


@pytest.mark.parametrize(
    ("directive", "fresh_s", "is_private"),
    [("", 0.0, False), ("no-cache, max-age=60", 0.0, False), ("max-age=60, no-store", 60.0, True),
     ("max-age=-1", 0.0, False),
     ("max-age=1e9", 0.0, False), ('max-age="60"', 60.0, False)],
)  # fmt: skip
async def test_cache_control(directive: str, fresh_s: float, is_private: bool) -> None:
    async with serving(lambda _: response(b"audio", f"Cache-Control: {directive}")) as (port, _):
        fetched = await fetch(port)
    assert (fetched.fresh_s, fetched.is_private) == (fresh_s, is_private)


async def test_a_copy_is_asked_about_by_its_validator() -> None:
    async with serving(lambda _: response(b"", "Cache-Control: max-age=5", status="304 Not Modified")) as (port, heads):
        fetched = await fetch(port, etag='W/"v1"', last_modified="then")
        assert (fetched.data, fetched.fresh_s) == (None, 5.0)
        assert (await fetch(port, last_modified="then")).data is None
    assert b'If-None-Match: W/"v1"\r\n' in heads[0]
    assert b"If-Modified-Since: then\r\n" in heads[1]


@pytest.mark.parametrize(
    ("raw", "detail"),
    [
        (response(status="404 Not Found"), "status 404"),
        (response(b"", "Location: http://127.0.0.1/", status="302 Found"), "status 302; redirects are not followed"),
        (response(status="206 Partial Content"), "status 206"),
        (response(b"", status="304 Not Modified"), "status 304"),
        (response(zlib.compress(bytes(1 << 20)), "Content-Encoding: deflate"), "compressed"),
        (response(bytes(10), length=MAX_BYTES + 1), "prompts.max_upload_bytes"),
        (response(b"short", length=100), "it broke off its response"),
        (response(b"", "ETag: " + "a" * 20_000), "cannot be read as HTTP"),
        (b"no http\r\n\r\n", "cannot be read as HTTP"),
        (b"", "it closed the connection"),
    ],
)
async def test_lies_and_refusals(raw: bytes, detail: str) -> None:
    async with serving(lambda _: raw) as (port, _):
        with pytest.raises(FetchFailed) as caught:
            await fetch(port)
    assert detail in caught.value.detail
    assert "token" not in caught.value.detail


async def test_a_body_without_an_end_is_read_up_to_the_limit() -> None:
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    async with serving(lambda _: head, is_endless=True) as (port, _):
        with pytest.raises(FetchFailed, match="max_upload_bytes"):
            await fetch(port)


async def test_nobody_listens() -> None:
    async with serving(lambda _: b"") as (port, _):
        pass
    with pytest.raises(FetchFailed, match="connection refused"):
        await fetch(port)


async def test_a_name_with_a_private_address_is_not_reached() -> None:
    async with serving(lambda _: response()) as (port, heads):
        with pytest.raises(UrlNotAllowed, match="not public"):
            await fetch(port, host="localhost", hosts=("localhost",))
        assert not heads
        assert (await fetch(port, host="localhost", hosts=("localhost", "127.0.0.0/8"))).data == b"audio"
