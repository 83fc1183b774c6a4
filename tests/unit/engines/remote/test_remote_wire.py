"""One end of a connection, with a network that is only made up."""

import asyncio
from typing import Any

import pytest

from cc_tts.config.schema import RemoteConfig
from cc_tts.engines.remote import wire
from cc_tts.engines.remote.wire import Channel
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import FROM_WORKER, StreamEnded
from cc_tts.errors import ConfigError, ProcessFailed
from cc_tts.processes.channel import MAX_BACKLOG_BYTES, Decoder, Message, encode

pytestmark = pytest.mark.unit

AUDIO = bytes(1 << 19)


async def test_a_side_that_does_not_read_loses_the_connection() -> None:
    channel = Channel(FROM_WORKER, "peer")
    reasons: list[str] = []
    channel.on_closed = reasons.append
    num_sent = 0
    with pytest.raises(ProcessFailed, match="stopped reading"):
        while True:
            channel.send(SpeechChunk(AUDIO))
            num_sent += 1
    assert num_sent == MAX_BACKLOG_BYTES // len(AUDIO) - 1
    assert reasons == ["the other side has stopped reading"]
    with pytest.raises(ProcessFailed, match="closed"):
        channel.send(StreamEnded(1))
    channel.break_off("again")
    assert len(reasons) == 1


async def test_records_that_wait_together_are_one_message() -> None:
    pytest.importorskip("grpc")
    channel = Channel(FROM_WORKER, "peer")
    written: list[bytes] = []
    got: list[Message] = []
    channel.on_record = lambda message, _payload: got.append(message)
    begun, never = asyncio.Event(), asyncio.Event()
    incoming = [encode(StreamEnded(8)) + encode(StreamEnded(9))[:3], encode(StreamEnded(9))[3:]]

    async def read() -> Any:
        if incoming:
            return incoming.pop(0)
        return await never.wait()

    async def write(data: bytes) -> None:
        written.append(data)
        begun.set()
        if len(written) == 2:
            channel.close()

    for number in range(3):
        channel.send(StreamEnded(number))
    carrying = asyncio.create_task(channel.carry(read, write))
    await begun.wait()
    channel.send(StreamEnded(3))
    await carrying
    decoder = Decoder(FROM_WORKER)
    assert [[message for message, _ in decoder.feed(data)] for data in written] == [
        [StreamEnded(0), StreamEnded(1), StreamEnded(2)],
        [StreamEnded(3)],
    ]
    assert got == [StreamEnded(8), StreamEnded(9)]


async def test_what_cannot_be_read_ends_the_connection() -> None:
    pytest.importorskip("grpc")
    channel = Channel(FROM_WORKER, "peer")
    reasons: list[str] = []
    channel.on_closed = reasons.append

    async def read() -> bytes:
        return b"\xff" * 16

    async def write(_data: bytes) -> None:
        raise AssertionError

    await channel.carry(read, write)
    assert "the channel is broken" in reasons[0]


def test_without_grpcio_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "grpc.aio", None)
    with pytest.raises(ConfigError, match=r"need grpcio .*pip install -r requirements/remote.txt"):
        wire.check(RemoteConfig())


def test_a_file_that_cannot_be_read_is_named() -> None:
    pytest.importorskip("grpc")
    with pytest.raises(ConfigError, match=r"remote\.ca_file: /nowhere\.pem: No such file"):
        wire.check(RemoteConfig(ca_file="/nowhere.pem"))
