"""The real process of lines without SIP, with bytes of our own in the place of Asterisk's, and no server around it."""

import asyncio
import base64
import json
import struct
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import pytest
import pytest_asyncio

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config, SipConfig
from cc_tts.config.sections.asterisk import AsteriskConfig
from cc_tts.media.g711 import ulaw_decode
from cc_tts.media.playout_events import PlayoutFinished
from cc_tts.processes.channel import Message
from cc_tts.processes.supervisor import Supervisor, python_child
from cc_tts.ua import messages
from cc_tts.ua.client import settings_of_lines
from lab.ports import HOST, free_ports
from lab.waiting import PATIENCE_S, until
from tests.fakes.served_call import refusal

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

PASSWORD = "open sesame"
START = {
    "event": "MEDIA_START",
    "connection_id": "cc-tts",
    "channel": "WebSocket/cc-tts/0x1",
    "channel_id": "1700000000.7",
    "format": "ulaw",
    "optimal_frame_size": 160,
    "ptime": 20,
    "channel_variables": {
        "__TTS_TEXT": "Grüß Gott; 5 %",
        "TTS_VOICE": "anna",
        "__X_CALL_REF": "17",
        "DIALEDPEERNUMBER": "x",
    },
}
T = TypeVar("T", bound=Message)


def basic(user: str, password: str) -> dict[str, str]:
    """The header of RFC 7617."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


@dataclass
class Lines:
    supervisor: Supervisor
    config: AsteriskConfig
    told: list[Message]
    payloads: list[bytes]

    def of(self, kind: type[T], where: Callable[[T], object] = lambda _message: True) -> list[T]:
        return [each for each in self.told if isinstance(each, kind) and where(each)]

    async def first(self, kind: type[T], where: Callable[[T], object] = lambda _message: True) -> T:
        await until(lambda: self.of(kind, where))
        return self.of(kind, where)[0]

    async def answered(self) -> str:
        """Answer the last call; returns its id."""
        await until(lambda: self.of(messages.IncomingCall))
        call_id = self.of(messages.IncomingCall)[-1].call_id
        self.supervisor.send(messages.Answer(call_id=call_id))
        await self.first(messages.CallEstablished, lambda each: each.call_id == call_id)
        return call_id

    def say(self, call_id: str, name: str, num_frames: int) -> None:
        self.supervisor.send(messages.BeginUtterance(call_id=call_id, utterance_id=name, start_threshold_ms=20))
        audio = messages.Audio(call_id=call_id, utterance_id=name)
        self.supervisor.send(audio, b"\x00\x20" * 160 * num_frames)
        self.supervisor.send(messages.FinishUtterance(call_id=call_id, utterance_id=name))

    async def dial(
        self, http: aiohttp.ClientSession, query: str = "", **options: Any
    ) -> aiohttp.ClientWebSocketResponse:
        options.setdefault("headers", basic("asterisk", PASSWORD))
        url = f"ws://{HOST}:{self.config.websocket_port}/asterisk{query}"
        socket: aiohttp.ClientWebSocketResponse = await http.ws_connect(url, protocols=("media",), **options)
        return socket

    async def audiosocket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.config.audiosocket_port)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def process() -> AsyncIterator[Lines]:
    config = AsteriskConfig(
        websocket_port=free_ports(), audiosocket_port=free_ports(), username="asterisk", password=PASSWORD, max_calls=3
    )
    settings = settings_of_lines(Config(sip=SipConfig(port=free_ports(2)), asterisk=config))
    assert settings is not None
    told: list[Message] = []
    payloads: list[bytes] = []

    def take(message: Message, payload: bytes) -> None:
        told.append(message)
        if isinstance(message, messages.CallAudio):
            payloads.append(payload)

    supervisor = Supervisor(
        python_child("lines", "cc_tts.ua.lines", messages=messages.FROM_UA, settings=settings),
        clock=MonotonicClock(),
        on_message=take,
        on_down=lambda _reason: None,
    )
    await supervisor.start()
    yield Lines(supervisor, config, told, payloads)
    restarts = supervisor.num_restarts
    await supervisor.stop()
    assert restarts == 0, "nothing that comes by a line ends the process"


@pytest_asyncio.fixture(loop_scope="module")
async def lines(process: Lines) -> AsyncIterator[Lines]:
    process.told.clear()
    process.payloads.clear()
    process.supervisor.send(messages.SetAccepting(accepting=True, retry_after_s=5))
    await asyncio.sleep(0.05)  # it looks at its sockets before it does at what the server sends
    yield process
    await until(lambda: len(process.of(messages.CallEnded)) == len(process.of(messages.IncomingCall)))


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


async def next_command(socket: aiohttp.ClientWebSocketResponse, name: str) -> Any:
    """The next command of this name, frames and others left out."""
    async with asyncio.timeout(PATIENCE_S):
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT and (command := json.loads(message.data))["command"] == name:
                return command
    raise AssertionError(f"closed without {name}")


async def test_a_call_is_routed_by_the_variables_of_its_channel(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http, "?call=abc&TTS_ROUTE=say&TTS_TEXT=by+the+address") as socket:
        assert socket.protocol == "media"
        await socket.send_json(START)
        call = await lines.first(messages.IncomingCall)
        assert call.headers == {
            "X-TTS-Text": "Gr%C3%BC%C3%9F%20Gott%3B%205%20%25",
            "X-TTS-Voice": "anna",
            "X-Call-Ref": "17",
        }
        assert call.request_uri == f"sip:say@{HOST};call=abc"
        assert (call.sip_call_id, call.transport, call.is_trusted) == ("1700000000.7", "asterisk_ws", True)
        await lines.answered()
        await next_command(socket, "ANSWER")
    ended = await lines.first(messages.CallEnded)
    assert (ended.ended_by, ended.sip_code) == ("remote", 200)


async def test_audio_and_keys_come_and_a_key_of_two_letters_does_not(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http) as socket:
        await socket.send_bytes(b"\xff" * 500)  # before the start, and no whole frame
        await socket.send_json(START)
        call_id = await lines.answered()
        lines.supervisor.send(messages.SetListening(call_id=call_id, directions=("in",)))
        for digit in ("5", "55", "", "Z", "#"):
            await socket.send_json({"event": "DTMF_END", "digit": digit, "channel_id": "1700000000.7"})
        await socket.send_json({"event": "MEDIA_MARK_PROCESSED", "correlation_id": "9" * 40})
        await socket.send_json({"event": "SOMETHING_NEW", "channel_id": "1700000000.7"})
        for _ in range(20):
            await socket.send_bytes(b"\x10" * 160)
            await asyncio.sleep(0.02)
        await until(lambda: ulaw_decode(b"\x10") * 160 * 5 in b"".join(lines.payloads))
        assert [key.digit for key in lines.of(messages.DtmfReceived)] == ["5", "#"]
        assert {key.method for key in lines.of(messages.DtmfReceived)} == {"line"}


async def test_a_cut_takes_back_what_asterisk_has_not_played(lines: Lines, http: aiohttp.ClientSession) -> None:
    """An Asterisk that plays nothing: 160 ms count as heard until the first mark is confirmed."""
    async with await lines.dial(http) as socket:
        await socket.send_json(START)
        call_id = await lines.answered()
        lines.say(call_id, "utt_1", 100)
        num_bytes = 0
        async with asyncio.timeout(PATIENCE_S):
            while num_bytes < 8000:
                message = await socket.receive()
                num_bytes += len(message.data) if message.type is aiohttp.WSMsgType.BINARY else 0
        with pytest.raises(TimeoutError):  # never more than the window of a second
            await next_command_or_audio(socket)
        lines.supervisor.send(messages.CutUtterance(call_id=call_id, utterance_id="utt_1"))
        await next_command(socket, "FLUSH_MEDIA")
        report = await lines.first(messages.PlayoutReport, lambda each: isinstance(each.event, PlayoutFinished))
        assert isinstance(report.event, PlayoutFinished)
        assert (report.event.cause, report.event.played_ms <= 160) == ("cut", True)


async def next_command_or_audio(socket: aiohttp.ClientWebSocketResponse) -> None:
    async with asyncio.timeout(0.3):
        while True:
            message = await socket.receive()
            assert message.type is not aiohttp.WSMsgType.BINARY


async def test_a_prompt_ends_with_its_call_and_not_by_a_cut(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http) as socket:
        await socket.send_json(START)
        lines.say(await lines.answered(), "utt_1", 100)
        await socket.receive()
    await lines.first(messages.CallEnded)
    await asyncio.sleep(0.1)
    events = [report.event for report in lines.of(messages.PlayoutReport)]
    assert not any(isinstance(event, PlayoutFinished) for event in events)


async def test_a_hangup_of_ours_tells_asterisk(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http) as socket:
        await socket.send_json(START)
        call_id = await lines.answered()
        lines.supervisor.send(messages.Hangup(call_id=call_id))
        await next_command(socket, "HANGUP")
        assert (await lines.first(messages.CallEnded)).ended_by == "local"


async def test_a_call_that_is_refused_is_hung_up_without_an_answer(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http) as socket:
        await socket.send_json(START)
        call = await lines.first(messages.IncomingCall)
        lines.supervisor.send(messages.Ring(call_id=call.call_id))
        assert (await lines.first(messages.CallRinging)).sip_code == 180
        lines.supervisor.send(messages.Hangup(call_id=call.call_id, sip_code=486))
        command = json.loads((await socket.receive()).data)
        assert command == {"command": "HANGUP"}
        ended = await lines.first(messages.CallEnded)
        assert (ended.ended_by, ended.sip_code) == ("local", 486)


async def test_a_caller_who_hangs_up_before_the_answer_has_cancelled(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http) as socket:
        await socket.send_json(START)
        await lines.first(messages.IncomingCall)
    ended = await lines.first(messages.CallEnded)
    assert (ended.ended_by, ended.sip_code) == ("remote", 487)


async def test_what_a_line_cannot_do_is_reported(lines: Lines, http: aiohttp.ClientSession) -> None:
    """The server refuses it before, unless it is an older one."""
    async with await lines.dial(http) as socket:
        await socket.send_json(START)
        call_id = await lines.answered()
        lines.supervisor.send(messages.SetHold(call_id=call_id, hold=True))
        lines.supervisor.send(messages.SendDtmf(call_id=call_id, digits="1", duration_ms=100))
        lines.supervisor.send(messages.Transfer(call_id=call_id, to="sip:1@127.0.0.1", headers={}))
        lines.supervisor.send(messages.Bridge(call_id=call_id, other_call_id="call_2", bridge_id="bridge_1"))
        await until(lambda: len(lines.of(messages.CommandFailed)) == 3)
        assert [each.command for each in lines.of(messages.CommandFailed)] == ["hold", "dtmf", "transfer"]
        parted = await lines.first(messages.Unbridged)
        assert (parted.bridge_id, parted.because) == ("bridge_1", "failed")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("MEDIA_START connection_id:x channel:y", id="plain text in place of JSON"),
        pytest.param("[1,2]", id="no object"),
        pytest.param('{"event": 7}', id="a wrong type"),
        pytest.param(json.dumps(START)[:-1] + ', "channel_id": "other"}', id="a key comes twice"),
        pytest.param(json.dumps({**START, "format": "opus"}), id="a format that is not taken"),
        pytest.param(json.dumps({**START, "channel_id": ""}), id="no channel"),
        pytest.param(json.dumps({**START, "channel_variables": ["x"]}), id="variables of a wrong type"),
        pytest.param('{"event":"MEDIA_START","channel_variables":' + '{"a":' * 20_000, id="nested too deep"),
    ],
)
async def test_a_message_that_cannot_be_closes_the_connection(
    lines: Lines, http: aiohttp.ClientSession, said: str
) -> None:
    async with await lines.dial(http) as socket:
        await socket.send_str(said)
        async with asyncio.timeout(PATIENCE_S):
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == aiohttp.WSCloseCode.UNSUPPORTED_DATA
    assert lines.of(messages.IncomingCall) == []


async def test_garbage_in_the_middle_of_a_call_ends_that_call_alone(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http) as good, await lines.dial(http) as bad:
        await good.send_json(START)
        await lines.answered()
        await bad.send_json(START)
        await bad.send_str("{")
        ended = await lines.first(messages.CallEnded)
        assert ended.ended_by == "not_acceptable"
        assert len(lines.of(messages.CallEnded)) == 1


@pytest.mark.parametrize(
    ("options", "query"),
    [
        pytest.param({"headers": {}}, "", id="none"),
        pytest.param({"headers": basic("asterisk", "wrong")}, "", id="wrong password"),
        pytest.param({"headers": basic("root", PASSWORD)}, "", id="wrong user"),
        pytest.param({"headers": {"Authorization": "Basic %%%"}}, "", id="unreadable"),
        pytest.param({"headers": {}}, "?token=wrong", id="wrong token"),
    ],
)
async def test_without_the_password_nobody_brings_a_call(
    lines: Lines, http: aiohttp.ClientSession, options: dict[str, Any], query: str
) -> None:
    assert await refusal(lines.dial(http, query, **options)) == 401


async def test_the_password_may_be_a_token_of_the_address(lines: Lines, http: aiohttp.ClientSession) -> None:
    async with await lines.dial(http, f"?user=asterisk&token={PASSWORD}", headers={}) as socket:
        await socket.send_json(START)
        assert "token" not in (await lines.first(messages.IncomingCall)).request_uri


async def test_there_are_no_more_calls_than_configured(lines: Lines, http: aiohttp.ClientSession) -> None:
    sockets = [await lines.dial(http) for _ in range(3)]
    for number, socket in enumerate(sockets):
        await socket.send_json({**START, "channel_id": str(number)})
    await until(lambda: len(lines.of(messages.IncomingCall)) == 3)
    assert await refusal(lines.dial(http)) == 503
    await lines.first(messages.InviteRefused)
    for socket in sockets:
        await socket.close()
    await until(lambda: len(lines.of(messages.CallEnded)) == 3)


async def test_nothing_is_taken_while_the_server_takes_nothing(lines: Lines, http: aiohttp.ClientSession) -> None:
    lines.supervisor.send(messages.SetAccepting(accepting=False, retry_after_s=9))
    await asyncio.sleep(0.1)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await lines.dial(http)
    assert refused.value.headers is not None
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (503, "9")
    reader, writer = await lines.audiosocket()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await reader.readexactly(1)
    writer.close()
    await until(lambda: len(lines.of(messages.InviteRefused)) == 2)


def message(kind: int, content: bytes = b"") -> bytes:
    return struct.pack(">BH", kind, len(content)) + content


async def test_an_audiosocket_is_paced_by_us_and_named_by_its_uuid(lines: Lines) -> None:
    name = uuid.uuid4()
    reader, writer = await lines.audiosocket()
    writer.write(message(0x01, name.bytes))
    call = await lines.first(messages.IncomingCall)
    assert (call.call_id, call.sip_call_id, call.transport) == (f"call_{name.hex}", str(name), "audiosocket")
    call_id = await lines.answered()
    lines.say(call_id, "utt_1", 25)
    began = asyncio.get_running_loop().time()
    num_loud = 0
    async with asyncio.timeout(PATIENCE_S):
        while num_loud < 25:
            kind, length = struct.unpack(">BH", await reader.readexactly(3))
            assert (kind, length) == (0x10, 320), "whole frames of 20 ms"
            num_loud += await reader.readexactly(length) == b"\x00\x20" * 160
    assert asyncio.get_running_loop().time() - began > 0.4, "half a second takes that long"
    for part in (message(0x03, b"7"), message(0x10, b"\x01\x00" * 160)[:100], message(0x10, b"\x01\x00" * 160)[100:]):
        writer.write(part)
        await writer.drain()
    assert (await lines.first(messages.DtmfReceived)).digit == "7"
    writer.write(message(0x00))
    assert (await lines.first(messages.CallEnded)).ended_by == "remote"
    writer.close()


async def test_a_uuid_that_is_up_already_is_refused(lines: Lines) -> None:
    name = uuid.uuid4()
    first, second = await lines.audiosocket(), await lines.audiosocket()
    first[1].write(message(0x01, name.bytes))
    call_id = await lines.answered()
    second[1].write(message(0x01, name.bytes))
    async with asyncio.timeout(PATIENCE_S):
        assert await second[0].read() == message(0x00)
    assert lines.of(messages.CallEnded, lambda each: each.call_id == call_id) == []
    for _, writer in (first, second):
        writer.close()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" + bytes(30_000), id="no AudioSocket"),
        pytest.param(message(0x10, bytes(320)), id="audio before the UUID"),
        pytest.param(message(0x01, bytes(15)), id="a short UUID"),
        pytest.param(message(0x01, bytes(16)) + message(0x77, b"x"), id="an unknown kind"),
        pytest.param(message(0x01, bytes(16)) + message(0xFF, b"\x01"), id="an error of Asterisk"),
        pytest.param(message(0x01, bytes(16))[:7], id="a part, and then nothing"),
    ],
)
async def test_what_is_no_audiosocket_is_closed(lines: Lines, said: bytes) -> None:
    reader, writer = await lines.audiosocket()
    writer.write(said)
    if len(said) < 16:
        writer.write_eof()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            while True:
                await reader.readexactly(323)
    writer.close()
    calls = len(lines.of(messages.IncomingCall))
    await until(lambda: len(lines.of(messages.CallEnded)) == calls)
