"""A frame that a client does not mask closes its WebSocket with 1002, whichever socket it is (RFC 6455 §5.1)."""

import asyncio

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
async def test_an_unmasked_frame_closes_with_1002(path: str, before: bytes) -> None:
    async with served("stream") as api, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(HANDSHAKE.format(path=path.format(id=api.call.id)).encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(before + UNMASKED)
        assert (await reader.read()).endswith(CLOSE_1002)
        writer.close()
