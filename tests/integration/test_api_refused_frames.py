"""A frame that is not taken closes a WebSocket with its reason, whichever socket it is."""

import asyncio
import struct

import pytest

from tests.fakes.served_call import served

pytestmark = pytest.mark.integration

HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
UNMASKED = b"\x81\x02{}"
MASKED = b"\x81\x82\x00\x00\x00\x00{}"
CLOSE_1002 = b"\x88\x02\x03\xea"


@pytest.mark.parametrize("path", ["/v1/events", "/v1/calls/{id}/stream", "/v1/calls/{id}/media"])
@pytest.mark.parametrize("before", [b"", MASKED], ids=["at once", "behind a masked one"])
async def test_an_unmasked_frame_closes_with_1002_as_rfc_6455_has_it(path: str, before: bytes) -> None:
    async with served("stream") as api, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(HANDSHAKE.format(path=path.format(id=api.call.id)).encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(before + UNMASKED)
        assert (await reader.read()).endswith(CLOSE_1002)
        writer.close()


@pytest.mark.parametrize("path", ["/v1/events", "/v1/calls/{id}/stream", "/v1/calls/{id}/media", "/v1/jambonz/stream"])
async def test_who_is_still_sending_too_long_a_message_is_told_the_bound(path: str) -> None:
    length = 5_000_000
    async with served("stream") as api, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(HANDSHAKE.format(path=path.format(id=api.call.id)).encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x81\xff" + struct.pack(">QI", length, 0) + b" " * length)
        await writer.drain()
        assert b"\x03\xf1a message may have " in await reader.readuntil(b"at most")
        writer.close()
