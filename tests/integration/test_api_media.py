"""The media stream's socket: handshake, scopes, both ways, messages that cannot be followed, slow and dead clients."""

import asyncio
import ctypes
import itertools
import struct
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator
from socket import SHUT_RDWR, SOL_SOCKET
from typing import Any

import numpy as np
import pytest
from aiohttp import WSMsgType, WSServerHandshakeError

from cc_tts.api.events import websocket
from cc_tts.api.media import connection
from cc_tts.config.schema import MediaConfig, TokenConfig
from lab.waiting import PATIENCE_S, until
from tests.fakes.served_call import Served, close_of, refusal, served, told

pytestmark = pytest.mark.integration

FRAME_BYTES = 320


@pytest.fixture
async def api() -> AsyncIterator[Served]:
    async with served("media", media=MediaConfig(max_per_call=2, max_frame_bytes=4096)) as running:
        yield running


def sound(ms: int) -> bytes:
    return np.random.default_rng(1).integers(1000, 8000, ms * 8).astype("<i2").tobytes()


async def test_the_caller_is_heard(api: Served) -> None:
    said = sound(200)
    async with api.connect() as socket:
        start = await socket.receive_json()
        assert (start["type"], start["direction"], start["rate"], start["channels"]) == ("start", "in", 8000, 1)
        api.leg.said.extend(said[at : at + FRAME_BYTES] for at in range(0, len(said), FRAME_BYTES))
        heard = b""
        async with asyncio.timeout(PATIENCE_S):
            while said not in heard:
                frame = await socket.receive_bytes()
                assert len(frame) == FRAME_BYTES
                heard += frame
        await socket.send_bytes(said)
        assert (await told(socket, "error"))["code"] == "malformed"
        assert api.exchange.sample("cctts_media_streams") == 1
    await until(lambda: api.exchange.sample("cctts_media_streams") == 0)
    assert api.leg.directions == ()


async def test_what_the_client_says_is_played(api: Served) -> None:
    said = sound(400)
    async with api.connect("?direction=talk&rate=8000") as socket:
        for at in range(0, len(said), 1000):
            await socket.send_bytes(said[at : at + 1000])
        await socket.send_json({"type": "mark", "name": "m"})
        await socket.send_json({"type": "end"})
        assert await told(socket, "speak.started")
        assert await told(socket, "mark") == {"type": "mark", "name": "m", "cleared": False}
        done = await told(socket, "speak.complete")
        assert done["played_ms"] == 400.0
        async with api.session.get(f"/v1/utterances/{done['utterance_id']}?words=true") as response:
            utterance = await response.json()
        assert (response.status, utterance["completion_cause"], utterance["spoken_text"]) == (200, "normal", "")
        assert said in bytes(api.leg.heard)
        api.exchange.ua.digit(api.call.id, "5", at_ns=5)
        assert await told(socket, "dtmf") == {"type": "dtmf", "digit": "5", "duration_ms": 100}


@pytest.mark.parametrize(
    ("query", "num_bytes", "channels"), [("both", 640, 2), ("both&rate=16000", 1280, 2), ("out", 320, 1)]
)
async def test_shapes_of_the_audio(api: Served, query: str, num_bytes: int, channels: int) -> None:
    async with api.connect(f"?direction={query}") as socket:
        assert (await socket.receive_json())["channels"] == channels
        assert len(await socket.receive_bytes()) == num_bytes


async def test_who_may_not_connect(api: Served) -> None:
    assert await refusal(api.session.ws_connect("/v1/calls/nobody/media")) == 404
    assert await refusal(api.connect("?direction=left")) == 422
    assert await refusal(api.connect("?rate=44100")) == 422
    assert await refusal(api.connect("?on_close=drop")) == 422
    assert await refusal(api.connect("?directoin=in")) == 400
    async with api.session.get(api.path) as response:
        assert (response.status, response.headers["Upgrade"]) == (426, "websocket")
    async with api.connect(), api.connect():
        assert await refusal(api.connect()) == 503
    await until(lambda: not api.call.followers)
    api.exchange.ua.ended(api.call.id)
    assert await refusal(api.connect()) == 409
    assert api.exchange.sample("cctts_media_streams") == 0


async def test_scopes() -> None:
    scopes: dict[str, tuple[Any, ...]] = {
        "r": ("read", "call", "admin"), "l": ("listen",), "t": ("talk",), "b": ("listen", "talk"), "a": (),
    }  # fmt: skip
    tokens = tuple(TokenConfig(token=name * 32, scopes=each) for name, each in scopes.items() if each)
    async with served("media", (*tokens, TokenConfig(token="a" * 32))) as api:

        async def status(holder: str, direction: str) -> int:
            headers = {"Authorization": f"Bearer {holder * 32}"} if holder else {}
            try:
                async with api.connect(f"?direction={direction}", headers=headers):
                    return 101
            except WSServerHandshakeError as error:
                return error.status

        assert [await status(each, "in") for each in ("", "r", "l", "t", "b", "a")] == [401, 403, 101, 403, 101, 101]
        assert [await status(each, "talk") for each in ("", "r", "l", "t", "b", "a")] == [401, 403, 403, 403, 101, 101]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("not json", "malformed"),
        ("[]", "malformed"),
        ('{"a":' + "[" * 3000, "malformed"),
        ('{"type": "mark"}', "malformed"),
        ('{"type": "mark", "name": ""}', "malformed"),
        ('{"type": "clear", "now": true}', "malformed"),
        ('{"type": "start"}', "malformed"),
        (b"odd", "malformed"),
    ],
)
async def test_what_cannot_be_followed_is_answered_and_the_stream_goes_on(
    api: Served, frame: str | bytes, code: str
) -> None:
    async with api.connect("?direction=talk") as socket:
        await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))
        error = await told(socket, "error")
        assert (error["code"], bool(error["detail"])) == (code, True)
        await socket.send_bytes(sound(100))
        assert await told(socket, "speak.started")


async def test_too_many_faults_close(api: Served) -> None:
    async with api.connect("?direction=talk") as socket:
        for _ in range(connection.MAX_FAULTS):
            await socket.send_bytes(b"x")
        assert await close_of(socket) == (1008, "too many faults")
    await until(lambda: not api.call.followers)


@pytest.mark.parametrize("num_bytes", [4098, 3_000_000])
async def test_a_message_beyond_the_bound_closes_with_the_bound_and_what_came_before_is_played(
    api: Served, num_bytes: int
) -> None:
    async with api.connect("?direction=talk") as socket:
        await socket.send_bytes(sound(200))
        sending = asyncio.create_task(socket.send_bytes(bytes(num_bytes)))
        assert await close_of(socket) == (1009, "a message may have 4096 bytes at most")
        await asyncio.gather(sending, return_exceptions=True)
    await until(lambda: not api.call.player.queue)
    (utterance,) = api.call.utterances.values()
    assert utterance.played_ms == 200.0
    assert not api.call.followers


async def test_the_end_of_the_call_closes_after_the_last_message(api: Served) -> None:
    async with api.connect("?direction=talk") as socket:
        await socket.send_bytes(sound(200))
        await socket.send_json({"type": "mark", "name": "m"})
        await told(socket, "speak.started")
        api.exchange.ua.ended(api.call.id)
        assert (await told(socket, "mark"))["cleared"]
        assert (await told(socket, "stop"))["reason"] == "remote_hangup"
        assert await close_of(socket) == (1000, "the call is over")


async def test_pings_are_answered_and_a_silent_client_is_dropped(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.05)
    monkeypatch.setattr(connection, "PONG_TIMEOUT_S", 0.3)
    async with api.connect("?direction=out", autoping=True) as socket:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 0.6  # twice as long as a silent client may be
        while loop.time() < until_s:
            assert (await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY)
    async with api.connect("?direction=out", autoping=False) as socket:
        async with asyncio.timeout(PATIENCE_S):
            while (await socket.receive()).type in (WSMsgType.PING, WSMsgType.TEXT, WSMsgType.BINARY):
                pass
    await until(lambda: not api.call.followers)


async def test_a_talking_client_whose_host_vanishes_is_dropped_long_before_a_silent_one(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_INTERVAL_S", 0.1)
    monkeypatch.setattr(connection, "UNACKED_TIMEOUT_S", 0.5)
    async with api.connect("?direction=talk") as socket:
        await socket.send_bytes(sound(100))
        await until(lambda: api.call.followers)
        take_nothing(socket.get_extra_info("socket"))
        await until(lambda: not api.call.followers, timeout_s=connection.PONG_TIMEOUT_S / 3)


def take_nothing(tcp: TransportSocket) -> None:
    """Have the kernel drop all that comes for this connection, acknowledgements included, as if its host were gone."""
    drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF_RET, 0 bytes
    tcp.setsockopt(SOL_SOCKET, 26, struct.pack("HL", 1, ctypes.addressof(drop_all)))  # SO_ATTACH_FILTER of Linux


async def test_the_clients_own_pings_are_answered(api: Served) -> None:
    async with api.connect(autoping=False) as socket:
        await socket.ping(b"x")
        async with asyncio.timeout(PATIENCE_S):
            while (message := await socket.receive()).type is not WSMsgType.PONG:
                pass
        assert message.data == b"x"


async def test_a_slow_client_loses_frames_and_is_told(api: Served) -> None:
    async with api.connect() as socket:
        api.exchange.ua.audio(api.call.id, sound(1200))
        api.exchange.ua.digit(api.call.id)
        dropped = await told(socket, "dropped")
        assert dropped["frames"] >= 10
        assert api.exchange.sample("cctts_call_audio_dropped_frames_total", where="client") >= dropped["frames"]
        await told(socket, "dtmf")
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            assert message.json()["type"] == "dropped", "the last of them, told apart where the machine is busy"
        assert len(message.data) == FRAME_BYTES


async def test_a_client_that_takes_nothing_is_dropped(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "SEND_TIMEOUT_S", 0.2)
    async with api.connect() as socket:
        await socket.receive()
        second = sound(1000)
        async with asyncio.timeout(PATIENCE_S):
            for number in itertools.count():  # more than the buffers of both sockets hold
                if not api.call.followers:
                    break
                api.exchange.ua.audio(api.call.id, second, at_ns=number * 10**9)
                await asyncio.sleep(0)
    assert api.leg.directions == ()


async def test_a_client_that_is_gone_without_a_word(api: Served) -> None:
    async with api.connect("?direction=talk") as socket:
        await socket.send_bytes(sound(200))
        await told(socket, "speak.started")
        socket.get_extra_info("socket").shutdown(SHUT_RDWR)
        await until(lambda: not api.call.followers)
    await until(lambda: not api.call.player.queue)
    (utterance,) = api.call.utterances.values()
    assert utterance.played_ms == 200.0


async def test_other_requests_are_answered_during_a_flood(api: Served) -> None:
    async with api.connect("?direction=talk") as socket:

        async def flood() -> None:
            for _ in range(3000):
                await socket.send_bytes(b"\1\0")

        flooding = asyncio.create_task(flood())
        for _ in range(5):
            async with api.session.get("/healthz") as response:
                assert response.status == 200
        await flooding
        await socket.send_json({"type": "clear"})
        await told(socket, "speak.interrupted")
