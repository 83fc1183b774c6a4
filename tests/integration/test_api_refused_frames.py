"""A frame that is not taken closes a WebSocket with its reason, whichever socket it is."""

import asyncio
import struct

import pytest

from lab.waiting import PATIENCE_S
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
    async with served("stream") as api, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(HANDSHAKE.format(path=path.format(id=api.call.id)).encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        writer.write(before + UNMASKED)
        assert (await reader.read()).endswith(CLOSE_1002)
        writer.close()


@pytest.mark.parametrize("path", ["/v1/events", "/v1/calls/{id}/stream", "/v1/calls/{id}/media", "/v1/jambonz/stream"])
async def test_who_is_still_sending_too_long_a_message_is_told_the_bound(path: str) -> None:
    length = 5_000_000
    async with served("stream") as api, asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(HANDSHAKE.format(path=path.format(id=api.call.id)).encode())
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\x81\xff" + struct.pack(">QI", length, 0) + b" " * length)
        await writer.drain()
        assert b"\x03\xf1a message may have " in await reader.readuntil(b"at most")
        writer.close()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/v1/calls/{id}/stream", '{"type": "tokens", "text": "One.", "text": "Two.", "id": 7}'),
        ("/v1/calls/{id}/stream", '{"type": "tokens", "text": "One.", "te\\u0078t": "Two \\ud83d.", "id": 7}'),
        ("/v1/calls/{id}/media?direction=talk", '{"type": "mark", "name": "a", "name": "b"}'),
        ("/v1/text-to-speech/en-us/stream-input", '{"text": "One.", "text": "Two."}'),
        ("/v1/speak?model=en-us", '{"type": "Speak", "text": "One.", "text": "Two."}'),
        ("/v2/speak?model=en-us", '{"type": "Speak", "text": "One.", "text": "Two."}'),
        ("/tts/websocket", '{"transcript": "One.", "transcript": "Two.", "voice": {"id": "en-us"}}'),
        ("/v1/jambonz/stream?voice=en-us", '{"type": "stream", "text": "One.", "text": "Two."}'),
    ],
)
async def test_a_key_that_comes_twice_is_refused_on_every_socket(path: str, message: str) -> None:
    async with served("stream") as api, asyncio.timeout(PATIENCE_S):
        async with api.session.ws_connect(path.format(id=api.call.id)) as socket:
            await socket.send_str(message)
            while "comes twice" not in (told := await socket.receive_str()):
                assert "audio" not in told
        assert not api.call.utterances
