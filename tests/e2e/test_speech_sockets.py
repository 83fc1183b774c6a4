"""The WebSockets of Deepgram and jambonz: what ends a text, what interrupts it, and in which order it comes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from lab.server_under_test import Server
from lab.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e

UGARITIC = "\U00010380\U00010381\U00010382"
LONG = "This sentence is said again and again, and again. " * 40


@asynccontextmanager
async def connected(server: Server, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with aiohttp.ClientSession() as session, session.ws_connect(server.url + path) as socket:
        yield socket


async def until(socket: aiohttp.ClientWebSocketResponse, kind: str) -> tuple[int, Any]:
    """How many bytes of audio came before a message of a type, and the message."""
    num_bytes = 0
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                num_bytes += len(message.data)
            elif (told := json.loads(message.data)).get("type") == kind or kind in told:
                return num_bytes, told


async def test_flushed_follows_what_it_flushed_one_text_after_the_other(server: Server) -> None:
    async with connected(server, "/v1/speak?model=en-us&encoding=mulaw&sample_rate=8000") as socket:
        for text in ("One moment please.", "Thank you."):
            await socket.send_json({"type": "Speak", "text": text})
            await socket.send_json({"type": "Flush"})
        assert await until(socket, "Metadata")
        first, told = await until(socket, "Flushed")
        assert (first > 4000, told["sequence_id"]) == (True, 0)
        second, told = await until(socket, "Flushed")
        assert (second > 2000, told["sequence_id"]) == (True, 1)
        await socket.send_json({"type": "Flush"})
        assert (await until(socket, "Flushed"))[0] == 0  # nothing was to be spoken
        await socket.send_json({"type": "Close"})
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_nothing_of_the_old_text_comes_behind_cleared(server: Server) -> None:
    async with connected(server, "/v1/speak?model=en-us&encoding=mulaw&sample_rate=8000") as socket:
        await socket.send_json({"type": "Speak", "text": LONG})
        await socket.send_json({"type": "Flush"})
        await until(socket, "Metadata")
        await socket.receive()
        await socket.send_json({"type": "Clear"})
        await until(socket, "Cleared")
        await socket.send_json({"type": "Speak", "text": "Goodbye."})
        await socket.send_json({"type": "Flush"})
        num_bytes, _ = await until(socket, "Flushed")
        assert 2000 < num_bytes < 16_000


async def test_words_that_no_voice_speaks_are_an_error_and_no_silence(server: Server) -> None:
    async with connected(server, "/v1/speak?model=en-us&encoding=mulaw&sample_rate=8000") as socket:
        await socket.send_json({"type": "Speak", "text": f"Hello there. {UGARITIC} Goodbye."})
        await socket.send_json({"type": "Flush"})
        _, told = await until(socket, "Error")
        assert told["err_code"] == "language_unsupported"
        await until(socket, "Flushed")


async def test_a_message_that_cannot_be_followed_is_a_warning(server: Server) -> None:
    async with connected(server, "/v1/speak?model=en-us") as socket:
        await socket.send_json({"type": "Sing"})
        assert (await until(socket, "Warning"))[1]["warn_code"] == "malformed"


async def test_a_text_that_is_not_taken_is_an_error_and_its_flush_is_answered(server: Server) -> None:
    async with connected(server, "/v1/speak?model=en-us") as socket:
        await socket.send_json({"type": "Speak", "text": "x" * 5001})
        await socket.send_json({"type": "Flush"})
        assert (await until(socket, "Error"))[1]["err_code"] == "text_too_long"
        assert (await until(socket, "Flushed"))[1]["sequence_id"] == 0


@pytest.mark.parametrize(
    "query", ["model=nobody", "model=en-us&encoding=wma", "model=en-us&sample_rate=1", "speed=fast", "speed=nan"]
)
async def test_deepgram_s_clients_are_refused_before_the_handshake(server: Server, query: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with connected(server, f"/v1/speak?{query}"):
            pass
    assert refused.value.status == 422


async def test_a_call_of_jambonz(server: Server) -> None:
    async with connected(server, "/v1/jambonz/stream?voice=en-us&language=undefined&sampleRate=16000") as socket:
        told = json.loads(await socket.receive_str())
        assert told == {"type": "connect", "data": {"sample_rate": 16_000, "base64_encoding": False}}
        await socket.send_json({"type": "stream", "text": "Hello there. "})
        await socket.send_json({"type": "flush"})
        assert len(await socket.receive_bytes()) > 1000
        await socket.send_json({"type": "stream", "text": LONG})
        await socket.send_json({"type": "clear"})
        await socket.send_json({"type": "stream", "text": "a\0b"})
        assert "NUL" in (await until(socket, "error"))[1]["error"]
        await socket.send_json({"type": "stop"})
        async with asyncio.timeout(PATIENCE_S):
            while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
        assert message.type is aiohttp.WSMsgType.CLOSE


async def test_a_rate_that_jambonz_cannot_have_is_that_of_the_line(server: Server) -> None:
    async with connected(server, f"/v1/jambonz/stream?voice=en-us&sampleRate={'9' * 5000}") as socket:
        assert json.loads(await socket.receive_str())["data"]["sample_rate"] == 8000


@pytest.mark.parametrize(
    ("accept", "content_type", "kind"),
    [
        ("audio/mpeg", "audio/mpeg", "text"),
        ("*/*", "audio/l16;rate=8000", "text"),
        ("*/*", "audio/l16;rate=8000", "ssml"),
    ],
)
async def test_a_prompt_of_jambonz(server: Server, accept: str, content_type: str, kind: str) -> None:
    text = "One moment." if kind == "text" else "<speak>One moment.</speak>"
    body = {"language": "en-US", "voice": "en-us", "type": kind, "text": text}
    headers = {"Accept": accept}
    async with aiohttp.request("POST", f"{server.url}/v1/jambonz/speech", json=body, headers=headers) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, content_type)
        assert len(await response.read()) > 2000
