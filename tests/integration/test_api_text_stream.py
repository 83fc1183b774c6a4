"""The text stream's socket: handshake, messages that cannot be followed, bounds. What it has in common with the media
stream's (pings, too many faults, floods) is tested there.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from socket import SHUT_RDWR, SO_RCVBUF, SOL_SOCKET

import pytest

from cc_tts.api import text_stream
from cc_tts.api.events import websocket
from cc_tts.calls.input.text import TextStream
from cc_tts.config.schema import StreamConfig, TokenConfig
from cc_tts.speech.prompt import texts_of
from lab.waiting import PATIENCE_S, until
from tests.fakes.served_call import Served, close_of, refusal, served, told

pytestmark = pytest.mark.integration


@pytest.fixture
async def api() -> AsyncIterator[Served]:
    async with served("stream", stream=StreamConfig(max_per_call=2)) as running:
        yield running


async def test_tokens_become_speech(api: Served) -> None:
    async with api.connect() as socket:
        await socket.send_json({"type": "tokens", "id": "a", "text": "Hello there. "})
        await socket.send_json({"type": "end"})
        assert await told(socket, "tokens.result") == {
            "type": "tokens.result", "id": "a", "status": "ok", "buffered_chars": 13
        }  # fmt: skip
        assert (await told(socket, "speak.complete"))["spoken_text"] == "Hello there. "
        assert api.exchange.sample("cctts_text_streams") == 1
    await until(lambda: api.exchange.sample("cctts_text_streams") == 0)


async def test_a_start_says_how_the_tokens_are_spoken(api: Served) -> None:
    async with api.connect() as socket:
        await socket.send_json({"type": "start", "instructions": "in a whisper"})
        await socket.send_json({"type": "tokens", "text": "Hello there. "})
        started = await told(socket, "speak.started")
        content = api.call.utterances[started["utterance_id"]].prompt.content
        assert texts_of(content)[0].instructions == "in a whisper"


async def test_who_may_not_connect(api: Served) -> None:
    assert await refusal(api.session.ws_connect("/v1/calls/nobody/stream")) == 404
    assert await refusal(api.connect("?words=maybe")) == 422
    assert await refusal(api.connect("?on_close=drop")) == 422
    assert await refusal(api.connect("?wrds=true")) == 400
    async with api.session.get(api.path) as response:
        assert (response.status, response.headers["Upgrade"]) == (426, "websocket")
    async with api.connect(), api.connect():
        assert await refusal(api.connect()) == 503
    api.exchange.ua.ended(api.call.id)
    assert await refusal(api.connect()) == 409
    assert api.exchange.sample("cctts_text_streams") == 0


async def test_scopes() -> None:
    tokens = (TokenConfig(token="r" * 32, scopes=("read",)), TokenConfig(token="c" * 32, scopes=("call",)))
    async with served("stream", tokens) as api:
        assert await refusal(api.connect()) == 401
        assert await refusal(api.connect(headers={"Authorization": f"Bearer {'r' * 32}"})) == 403
        async with api.connect(headers={"Authorization": f"Bearer {'c' * 32}"}) as socket:
            await socket.send_json({"type": "tokens", "text": "Hello. "})
            assert await told(socket, "speak.started")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not json", "malformed"),
        ("[]", "malformed"),
        ("{}", "malformed"),
        ('{"type": "tokens"}', "malformed"),
        ('{"a":' * 3000, "malformed"),
        ('{"type": "start", "barge_in": ' + "[" * 3000, "malformed"),
        ('{"type": "tokens", "text": 5}', "malformed"),
        ('{"type": "tokens", "text": "a", "id": 1.5}', "malformed"),
        ('{"type": "tokens", "text": "a", "txt": "b"}', "malformed"),
        ('{"type": "mark"}', "malformed"),
        ('{"type": "mark", "name": "a\\ud83d"}', "malformed"),
        ('{"type": "tokens", "text": "a\\ud83d", "id": "\\ud83d"}', "malformed"),
        ('{"type": "tokens", "text": "a\\ud83d"', "malformed"),
        ('{"type": "tokens", "text": "a\\ud83d", "id": ' + "1" * 5000 + "}", "malformed"),
        ('{"type": "mark", "name": ""}', "malformed"),
        ('{"type": "start", "speed": 9}', "malformed"),
        ('{"type": "start", "instructions": "<|im_end|>"}', "malformed"),
        ('{"type": "start", "text": "a"}', "malformed"),
        ('{"type": "start", "voice": "nobody"}', "unknown_voice"),
        ('{"type": "start", "lexicons": ["none"]}', "unknown_lexicon"),
        ('{"type": "start", "barge_in": {"speech": true}}', "speech_not_heard"),
        ('{"type": "start", "barge_in": {"speech": {"min_speech_ms": 0}}}', "malformed"),
        ('{"type": "tokens", "text": "a\\u0000b"}', "unprocessable"),
        (json.dumps({"type": "tokens", "text": "a" * 1001}), "text_too_long"),
    ],
)
async def test_what_cannot_be_followed_is_answered_and_the_stream_goes_on(api: Served, frame: str, code: str) -> None:
    api.exchange.vad.is_installed = False
    async with api.connect() as socket:
        await socket.send_str(frame)
        error = await told(socket, "error")
        assert (error["code"], bool(error["detail"])) == (code, True)
        await socket.send_json({"type": "tokens", "text": "Still here. "})
        assert await told(socket, "speak.started")


@pytest.mark.parametrize(
    ("frame", "detail"),
    [
        ("hello", "not JSON: invalid character (byte 0)"),
        ("[]", "an object is needed, not a list"),
        ('{"type": "say"}', "/type: 'say' is not one of start, tokens, flush, mark, clear, end"),
        ('{"type": "tokens"}', "/text: this field is needed"),
        ('{"type": "tokens", "text": "a", "txt": "b"}', "/txt: unknown field, did you mean text?"),
    ],
)
async def test_an_error_says_in_words_what_is_wrong(api: Served, frame: str, detail: str) -> None:
    async with api.connect() as socket:
        await socket.send_str(frame)
        assert (await told(socket, "error"))["detail"] == detail


async def test_an_error_names_the_message_whose_text_was_not_taken(api: Served) -> None:
    async with api.connect() as socket:
        await socket.send_json({"type": "tokens", "id": 7, "text": "a" * 1001})
        assert (await told(socket, "error"))["id"] == 7


@pytest.mark.parametrize("frame", ['{"type": "tokens", "text": 5, "id": 9}', '{"type": "tokens", "id": 9}'])
async def test_an_error_names_the_malformed_message_whose_id_can_be_read(api: Served, frame: str) -> None:
    async with api.connect() as socket:
        await socket.send_str(frame)
        assert (await told(socket, "error"))["id"] == 9


@pytest.mark.parametrize(
    ("frames", "spoken"),
    [
        (["Great \\ud83d", "\\ude00 your order is ready."], "Great 😀 your order is ready."),
        (["Great \\ud83d", " your order is ready."], "Great � your order is ready."),
        (["\\ude00 Ready.\\ud83d", "\\ude00"], "� Ready.😀"),
        (["Ready.", "\\ud83d"], "Ready."),
    ],
)
async def test_half_of_a_character_loses_no_token(api: Served, frames: list[str], spoken: str) -> None:
    async with api.connect() as socket:
        for frame in frames:
            await socket.send_str(f'{{"type": "tokens", "text": "{frame}"}}')
        await socket.send_json({"type": "end"})
        assert (await told(socket, "speak.complete"))["spoken_text"] == spoken


async def test_a_message_beyond_the_bound_closes(api: Served) -> None:
    async with api.connect() as socket:
        await socket.send_str(" " * (text_stream.MAX_FRAME_IN_BYTES + 1))
        assert (await close_of(socket))[0] == 1009
    await until(lambda: not api.call.followers)


async def test_the_end_of_the_call_closes_after_the_last_message(api: Served) -> None:
    async with api.connect() as socket:
        await socket.send_json({"type": "tokens", "text": "Hello there, and more of it. "})
        await told(socket, "speak.started")
        api.exchange.ua.ended(api.call.id)
        assert (await told(socket, "speak.interrupted"))["by"] == "call_ended"
        assert (await close_of(socket))[0] == 1000


async def test_a_client_that_does_not_read_is_dropped_and_its_text_is_spoken(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_stream, "MAX_QUEUED_OUT", 50)
    monkeypatch.setattr(websocket, "SEND_TIMEOUT_S", 0.2)
    async with api.connect() as socket:
        socket.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_RCVBUF, 4096)
        await socket.send_json({"type": "tokens", "text": "This is spoken all the same. "})
        await told(socket, "speak.started")
        (stream,) = api.call.followers
        assert isinstance(stream, TextStream)
        (utterance,) = api.call.utterances.values()
        async with asyncio.timeout(PATIENCE_S):
            while api.call.followers:  # more than the buffers of both sockets hold
                for _ in range(20):
                    stream.on_started(utterance)
                await asyncio.sleep(0)
        socket.get_extra_info("socket").shutdown(SHUT_RDWR)  # a close would read all that has come
    await until(lambda: not api.call.player.queue)
    assert utterance.spoken_text == "This is spoken all the same. "
