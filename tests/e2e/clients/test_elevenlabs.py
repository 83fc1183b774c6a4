"""The package elevenlabs for Python."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from lab.certificates import Authority
from lab.children import Child
from lab.server_under_test import Server
from tests.e2e.clients.test_openai import is_mp3

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TEXT = "Your order has been shipped. It will arrive on Friday."


@asynccontextmanager
async def behind_tls(server: Server, authority: Authority) -> AsyncIterator[str]:
    """The address of a proxy that ends TLS in front of a server, as a server with clients elsewhere has one."""
    pair = authority.issue("proxy")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(*address)
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    host, _, port = server.url.removeprefix("http://").partition(":")
    address = host, int(port)
    proxy = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=context)
    async with proxy:
        yield f"https://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


async def test_elevenlabs_for_python(server: Server, clients: Path, tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    program = str(Path(__file__).with_name("elevenlabs_client.py"))
    async with behind_tls(server, authority) as secure_url:
        child = await Child.start(
            [str(clients), program, server.url, secure_url],
            log_path=tmp_path / "elevenlabs.log",
            env={"SSL_CERT_FILE": str(authority.certificate)},
        )
        assert await child.wait() == 0, child.log
    seen = {each["step"]: each for each in map(json.loads, child.log.splitlines())}
    assert is_mp3(base64.b64decode(seen["default"]["head"]))
    length_s = seen["pcm"]["bytes"] / 32_000
    assert length_s > 2
    assert seen["slow"]["bytes"] > 1.2 * seen["pcm"]["bytes"]
    for step in ("timed", "timed stream"):
        assert seen[step]["text"] == TEXT
        assert seen[step]["bytes"] == pytest.approx(seen["pcm"]["bytes"], rel=0.1)
    assert seen["timed"]["end_s"] == pytest.approx(seen["timed"]["bytes"] / 32_000, abs=0.05)
    starts_s = seen["timed stream"]["starts_s"]
    assert len(starts_s) > 1
    assert starts_s == sorted(starts_s)
    assert "en-us" in seen["voices"]["ids"]
    assert "en-us" in seen["search"]["ids"]
    assert seen["voice"]["name"] == "en-us"
    assert seen["models"]["ids"] == ["cc-tts"]
    assert "en-us" in seen["secure voices"]["ids"]
    assert seen["realtime"]["bytes"] == pytest.approx(seen["pcm"]["bytes"], rel=0.1)
    assert seen["interrupted"]["bytes"] > 0
    assert seen["error"]["status"] == 422
    assert "voice_not_found" in seen["error"]["shown"]
