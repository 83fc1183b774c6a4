"""ElevenLabs' WebSockets: what ends a text, what interrupts it, and what is refused."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from lab.server_under_test import Server
from lab.waiting import PATIENCE_S

pytestmark = pytest.mark.e2e

MANY, ONE = "multi-stream-input", "stream-input"
LONG = "This sentence is said again and again, and again. " * 40


@asynccontextmanager
async def connected(
    server: Server, path: str, query: str = "output_format=pcm_8000", voice: str = "en-us"
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = f"{server.url}/v1/text-to-speech/{voice}/{path}?{query}"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        yield socket


async def until_final(socket: aiohttp.ClientWebSocketResponse, context_id: str | None = None) -> list[Any]:
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message = json.loads(await socket.receive_str())
            if message.get("contextId") == context_id:
                seen.append(message)
                if message.get("isFinal") or message.get("error"):
                    return seen


def length_s(messages: list[Any]) -> float:
    return sum(len(base64.b64decode(each["audio"])) for each in messages) / 16_000


def text_of(messages: list[Any]) -> str:
    return "".join("".join(each["alignment"]["chars"]) for each in messages if each.get("alignment"))


async def test_a_context_that_was_flushed_is_spoken_to_its_end(server: Server) -> None:
    async with connected(server, MANY) as socket:
        await socket.send_json({"text": " ", "context_id": "a", "voice_settings": {"speed": 1.0, "style": 0}})
        await socket.send_json({"text": "", "context_id": "a"})  # keep-alive
        for text in ("Your balance is 12.", "50 dollars.", "Thank you."):
            await socket.send_json({"text": text, "context_id": "a"})
        await socket.send_json({"text": "", "context_id": "a", "flush": True})
        await socket.send_json({"context_id": "a", "close_context": True})
        messages = await until_final(socket, "a")
        assert length_s(messages) > 2.5
        assert text_of(messages).strip() == "Your balance is 12.50 dollars. Thank you."
        assert messages[-1]["context_id"] == "a"
        for each in messages[:-1]:
            if each["alignment"]:
                end_ms = each["alignment"]["charStartTimesMs"][-1] + each["alignment"]["charDurationsMs"][-1]
                assert end_ms == pytest.approx(length_s([each]) * 1000, abs=len(each["alignment"]["chars"]))


@pytest.mark.parametrize("is_normal_end", [False, True])
async def test_a_context_is_interrupted(server: Server, is_normal_end: bool) -> None:
    async with connected(server, MANY) as socket:
        await socket.send_json({"text": LONG, "context_id": "a", "flush": True})
        if is_normal_end:
            await socket.send_json({"text": "", "context_id": "a", "flush": True})
            await socket.send_json({"context_id": "a", "close_context": True})
        await socket.receive()
        await socket.send_json({"context_id": "a", "close_context": True})
        assert length_s(await until_final(socket, "a")) < 60
        await socket.send_json({"text": "Goodbye. ", "context_id": "a", "flush": True})  # the id is free again
        await socket.send_json({"close_socket": True})
        messages = await until_final(socket, "a")
        assert text_of(messages).strip() == "Goodbye."
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_characters_of_chinese_are_those_that_were_sent(server: Server) -> None:
    text = "您的余额是12.50元。"
    async with connected(server, MANY, voice="cmn") as socket:
        await socket.send_json({"text": text, "context_id": "a", "flush": True})
        await socket.send_json({"close_socket": True})
        assert text_of(await until_final(socket, "a")).strip() == text


async def test_many_quick_interruptions_use_up_no_contexts(server: Server) -> None:
    async with connected(server, MANY) as socket:
        for number in range(50):
            await socket.send_json({"text": LONG, "context_id": str(number)})
            await socket.send_json({"context_id": str(number), "close_context": True})
        for number in range(50):
            assert (await until_final(socket, str(number)))[-1]["isFinal"]


async def test_two_contexts_at_once(server: Server) -> None:
    async with connected(server, MANY) as socket:
        for name in ("a", "b"):
            await socket.send_json({"text": f"This is {name}.", "contextId": name, "flush": True})
        await socket.send_json({"close_socket": True})
        texts = {"a": "", "b": ""}
        for _ in range(200):
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            said = json.loads(message.data)
            texts[said["contextId"]] += text_of([said])
        assert {name: text.strip() for name, text in texts.items()} == {"a": "This is a.", "b": "This is b."}


async def test_one_text_ends_with_an_empty_one(server: Server) -> None:
    async with connected(server, ONE) as socket:
        await socket.send_json({"text": " ", "generation_config": {"chunk_length_schedule": [50]}})
        await socket.send_json({"text": "Hello there. ", "try_trigger_generation": True})
        await socket.send_json({"text": ""})
        messages = await until_final(socket)
        assert text_of(messages).strip() == "Hello there."
        assert messages[-1] == {"audio": "", "isFinal": True}
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000


async def test_a_text_of_blanks_is_no_error(server: Server) -> None:
    async with connected(server, MANY) as socket:
        await socket.send_json({"text": "  ", "context_id": "a", "flush": True})
        await socket.send_json({"context_id": "a", "close_context": True})
        assert await until_final(socket, "a") == [{"audio": "", "isFinal": True, "contextId": "a", "context_id": "a"}]


async def test_a_text_that_does_not_go_on_ends(server: Server) -> None:
    async with connected(server, MANY, "output_format=ulaw_8000&inactivity_timeout=1") as socket:
        await socket.send_json({"text": "Hello there, and", "context_id": "a"})
        assert (await until_final(socket, "a"))[-1]["isFinal"]


@pytest.mark.parametrize("fault", [{"text": 1}, {"text": "a\0b"}, {"text": "x" * 5001}])
async def test_what_cannot_be_taken_is_told_and_the_connection_goes_on(server: Server, fault: dict[str, Any]) -> None:
    async with connected(server, MANY) as socket:
        await socket.send_json(fault)
        assert (await until_final(socket, ""))[-1]["error"]
        await socket.send_json({"text": "Hello.", "context_id": "b", "flush": True})
        await socket.send_json({"close_socket": True})
        assert (await until_final(socket, "b"))[-1]["isFinal"]


async def test_an_id_is_used_again_while_its_text_is_spoken(server: Server) -> None:
    async with connected(server, MANY) as socket:
        for text in ("This is the first text. ", "This is the second one. "):
            await socket.send_json({"text": text, "context_id": "a", "flush": True})
            await socket.send_json({"text": "", "context_id": "a", "flush": True})
            await socket.send_json({"context_id": "a", "close_context": True})
        for text in ("This is the first text.", "This is the second one."):
            assert text_of(await until_final(socket, "a")).strip() == text


async def test_a_fault_is_told_of_no_other_context(server: Server) -> None:
    async with connected(server, MANY) as socket:
        await socket.send_json({"text": "Hello. ", "context_id": "a"})
        await socket.send_str("{")
        assert (await until_final(socket, ""))[-1]["error"] == "malformed"
        await socket.send_json({"close_socket": True})
        assert (await until_final(socket, "a"))[-1]["isFinal"]


async def test_a_text_for_which_there_is_no_stream_fails_once_up_to_its_flush(server: Server) -> None:
    async with connected(server, MANY) as busy, connected(server, MANY) as socket:
        for number in range(16):
            await busy.send_json({"text": "Hello. ", "context_id": str(number)})
        for _ in range(16):
            while not json.loads(await busy.receive_str())["audio"]:
                pass
        for text in ("One ", "two ", "three. "):
            await socket.send_json({"text": text, "context_id": "a"})
            await asyncio.sleep(0.1)
        await socket.send_json({"text": "", "context_id": "a", "flush": True})
        await socket.send_json({"text": " ", "context_id": "b", "flush": True})  # blanks need no stream
        await socket.send_json({"close_socket": True})
        seen = [json.loads(each.data) async for each in socket]
        assert [(each["contextId"], each.get("error")) for each in seen] == [("a", "capacity_exceeded"), ("b", None)]


async def test_a_context_without_words_ends_unless_it_is_kept(server: Server) -> None:
    async with connected(server, MANY, "output_format=pcm_8000&inactivity_timeout=1") as socket:
        for name in ("kept", "idle"):
            await socket.send_json({"text": " ", "context_id": name})
        for _ in range(5):
            await asyncio.sleep(0.4)
            await socket.send_json({"text": "", "context_id": "kept"})
        await socket.send_json({"text": "Hello.", "context_id": "kept", "flush": True})
        await socket.send_json({"close_socket": True})
        seen = [json.loads(each.data) async for each in socket]
        assert [each["contextId"] for each in seen if each.get("isFinal")] == ["idle", "kept"]


async def test_more_contexts_than_a_connection_may_have(server: Server) -> None:
    async with connected(server, MANY) as socket:
        for number in range(21):
            await socket.send_json({"text": " ", "context_id": str(number)})
        assert (await until_final(socket, "20"))[-1]["error"] == "capacity_exceeded"


@pytest.mark.parametrize(
    ("voice", "query", "status"),
    [
        ("nobody", "", 422),
        ("en-us", "output_format=mp3_1", 422),
        ("en-us", "output_format=ulaw_16000", 422),
        ("en-us", "output_format=opus_48000_320", 422),
    ],
)
async def test_what_cannot_be_spoken_is_refused_before_the_handshake(
    server: Server, voice: str, query: str, status: int
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with connected(server, MANY, query, voice):
            pass
    assert refused.value.status == status
