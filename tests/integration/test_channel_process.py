"""Both ends of a channel over a real socket pair."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator

import pytest

from cc_tts.errors import ProcessFailed
from cc_tts.processes import channel as channel_module
from cc_tts.processes import supervisor as supervisor_module
from cc_tts.processes.channel import ChildChannel, Message, Ping, Pong, Record
from cc_tts.processes.supervisor import LoopChannel
from lab.waiting import until

pytestmark = pytest.mark.integration

TIMEOUT_S = 10.0


class Ends:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.child = ChildChannel(self.theirs, ())
        self.records: list[Record] = []
        self.closed: list[str] = []
        self.server: LoopChannel | None = None

    async def open(self) -> LoopChannel:
        self.server = LoopChannel(
            (),
            on_record=lambda message, payload: self.records.append((message, payload)),
            on_closed=self.closed.append,
        )
        await self.server.open(self.ours)
        return self.server


def send_much(end: ChildChannel | LoopChannel) -> None:
    for serial in range(100):
        end.send(Ping(serial=serial), bytes(100_000))


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    both = Ends()
    yield both
    if both.server is None:
        both.ours.close()
    else:
        both.server.close()
        await asyncio.sleep(0)
    both.child.close()


async def test_there_and_back(ends: Ends) -> None:
    server = await ends.open()
    server.send(Ping(serial=1), b"\x01" * 100_000)
    got: list[Record] = []
    while not got:
        got = await asyncio.to_thread(ends.child.read)
    assert got == [(Ping(serial=1), b"\x01" * 100_000)]
    ends.child.send(Pong(serial=1), b"x")
    await until(lambda: ends.records)
    assert ends.records == [(Pong(serial=1), b"x")]
    assert ends.closed == []


async def test_the_child_never_blocks_and_loses_nothing(ends: Ends) -> None:
    payload = bytes(500_000)
    for serial in range(20):
        ends.child.send(Pong(serial=serial), payload)  # far more than the socket takes
    await ends.open()

    def flushed() -> bool:
        ends.child.flush()
        return len(ends.records) == 20

    await until(flushed)
    assert [message for message, _ in ends.records] == [Pong(serial=serial) for serial in range(20)]
    assert {len(payload) for _, payload in ends.records} == {500_000}


async def test_what_is_put_goes_with_the_next_flush_in_order(ends: Ends) -> None:
    ends.child.put(Pong(serial=0), bytes(100_000))
    for serial in range(1, 200):
        ends.child.put(Pong(serial=serial), b"x" * serial)
    assert ends.child.has_backlog
    await ends.open()
    await asyncio.sleep(0.05)
    assert ends.records == []

    def flushed() -> bool:
        ends.child.flush()
        return len(ends.records) == 200

    await until(flushed)
    assert [message for message, _ in ends.records] == [Pong(serial=serial) for serial in range(200)]
    assert [len(payload) for _, payload in ends.records] == [100_000, *range(1, 200)]


async def test_a_server_that_does_not_read_is_given_up(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "MAX_BACKLOG_BYTES", 1_000_000)
    with pytest.raises(ProcessFailed, match="stopped reading"):
        send_much(ends.child)


async def test_a_child_that_does_not_read_is_given_up(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "MAX_BACKLOG_BYTES", 1_000_000)
    server = await ends.open()
    with pytest.raises(ProcessFailed, match="stopped reading"):
        send_much(server)
    assert ends.closed == ["the other side has stopped reading"]
    with pytest.raises(ProcessFailed, match="closed"):
        server.send(Ping(serial=0))


async def test_the_end_of_the_child_is_told_once(ends: Ends) -> None:
    server = await ends.open()
    ends.child.send(Pong(serial=1))
    ends.child.close()
    await until(lambda: ends.closed)
    assert ends.records == [(Pong(serial=1), b"")]
    assert ends.closed == ["closed by the other side"]
    server.close()
    server.close()
    await asyncio.sleep(0)
    assert len(ends.closed) == 1


async def test_closing_our_end_is_not_told(ends: Ends) -> None:
    server = await ends.open()
    server.close()
    assert await asyncio.to_thread(ends.child.read) == []
    assert ends.closed == []
    with pytest.raises(ProcessFailed, match="closed"):
        server.send(Ping(serial=1))


async def test_garbage_closes_the_channel(ends: Ends) -> None:
    await ends.open()
    ends.theirs.sendall(b"\xff" * 64)
    await until(lambda: ends.closed)
    assert "broken" in ends.closed[0]


async def test_a_child_reader_wakes_when_its_end_is_closed(ends: Ends) -> None:
    await ends.open()
    got: list[list[tuple[Message, bytes]]] = []
    reader = threading.Thread(target=lambda: got.append(ends.child.read()))
    reader.start()
    ends.child.close()
    await asyncio.to_thread(reader.join, TIMEOUT_S)
    assert got == [[]]


async def test_a_child_notices_that_the_server_is_gone(ends: Ends) -> None:
    server = await ends.open()
    server.close()
    assert await asyncio.to_thread(ends.child.read) == []
    with pytest.raises(ProcessFailed, match="gone"):
        send_much(ends.child)
