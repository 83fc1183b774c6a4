"""A worker between several servers and one engine process that is only made up."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from cc_tts.engines.engine_core import EngineDescription, EngineLoad, StreamRequest
from cc_tts.engines.remote.relay import PING_LOOK_S, SERVER_TIMEOUT_S, ConnectedServer, report_of
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.link import WorkerLink
from cc_tts.engines.worker.messages import (
    FROM_WORKER,
    TO_WORKER,
    CancelStream,
    EndText,
    PlaybackProgress,
    PushText,
    StreamEnded,
    StreamFailed,
)
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import Message, Ping, Pong
from cc_tts.processes.peer import ProcessState
from cc_tts.voices.voice import Voice
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

MS = b"\1\0" * 24
LOAD = EngineLoad(num_streams=1, first_audio_ms=20.0, utilisation=0.1, room=5)


class FakeProcess:
    state = ProcessState.READY

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.on_message: Callable[[Message, bytes], None] = lambda *_: None
        self.on_down: Callable[[str], None] = lambda _reason: None

    def send(self, message: Message) -> None:
        self.sent.append(message)


def _keep(to: list[tuple[Message, bytes]], message: Message, payload: bytes) -> None:
    to.append((message, payload))


class Lab:
    """An engine process and two servers."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.process: Any = FakeProcess()

        def make(on_message: Callable[[Message, bytes], None], on_down: Callable[[str], None]) -> Any:
            self.process.on_message, self.process.on_down = on_message, on_down
            return self.process

        self.link = WorkerLink(
            "worker",
            make,
            clock=self.clock,
            metrics=Metrics(),
            stall_timeout_ms=3000.0,
        )
        self.process.on_message(EngineDescription((Voice("anna", "onnx", "en"),)), b"")
        self.process.on_message(LOAD, b"")
        ids = itertools.count(1)
        self.sent: list[list[tuple[Message, bytes]]] = [[], []]
        self.servers = [ConnectedServer(self.link, ids, partial(_keep, to), self.clock) for to in self.sent]


async def test_two_servers_use_the_same_number_for_a_stream() -> None:
    lab = Lab()
    for server, text in zip(lab.servers, ("One.", "Two."), strict=True):
        server.take(StreamRequest(7, "anna", 1.2))
        server.take(PushText(7, text, 0))
        server.take(EndText(7))
    assert lab.process.sent == [
        *(StreamRequest(1, "anna", 1.2), PushText(1, "One.", 0), EndText(1)),
        *(StreamRequest(2, "anna", 1.2), PushText(2, "Two.", 0), EndText(2)),
    ]
    lab.process.on_message(SpeechChunk(MS, stream_id=2), b"")
    lab.process.on_message(StreamEnded(2), b"")
    lab.process.on_message(StreamFailed(1, "engine_overloaded", "no slot", 3), b"")
    assert lab.sent[1] == [(SpeechChunk(MS, stream_id=7, rate_hz=24_000), b""), (StreamEnded(7), b"")]
    assert lab.sent[0] == [(StreamFailed(7, "engine_overloaded", "no slot", 3), b"")]
    assert not lab.link.streams
    lab.servers[0].take(PlaybackProgress(7, 20.0))  # it ended a moment ago
    assert len(lab.process.sent) == 6


async def test_a_server_that_is_gone_leaves_nothing_open() -> None:
    lab = Lab()
    for server in lab.servers:
        server.take(StreamRequest(1, "anna"))
        server.take(StreamRequest(1, "anna"))  # a number that is taken is ignored
    lab.servers[0].leave()
    assert lab.process.sent == [StreamRequest(1, "anna"), StreamRequest(2, "anna"), CancelStream(1)]
    assert list(lab.link.streams) == [2]
    assert lab.sent == [[], []]


async def test_when_the_engine_process_ends_servers_know_that_the_streams_were_in_order() -> None:
    lab = Lab()
    lab.servers[0].take(StreamRequest(5, "anna"))
    lab.process.state = ProcessState.BACKOFF
    lab.process.on_down("killed by SIGKILL")
    lab.servers[0].take(StreamRequest(6, "anna"))
    messages = [message for message, _ in lab.sent[0]]
    assert [(each.stream_id, each.is_worker_lost) for each in messages if isinstance(each, StreamFailed)] == [
        (5, True),
        (6, True),
    ]
    assert not lab.link.streams
    report = report_of(lab.link, is_draining=False)
    assert report.room == 0
    assert "killed by SIGKILL" in report.refusal


async def test_a_draining_worker_reports_no_free_capacity() -> None:
    lab = Lab()
    assert report_of(lab.link, is_draining=False) == LOAD
    assert report_of(lab.link, is_draining=True) == msgspec.structs.replace(
        LOAD, room=0, refusal="the worker is draining"
    )


async def test_audio_is_owed_when_all_that_was_given_is_taken_and_played() -> None:
    lab = Lab()
    lab.servers[0].take(StreamRequest(1, "anna"))
    (stream,) = lab.link.streams.values()
    assert not stream.poll()  # the text is not whole
    lab.servers[0].take(EndText(1))
    assert stream.poll()
    lab.process.on_message(SpeechChunk(MS * 200, stream_id=1), b"")
    assert not stream.poll()
    lab.servers[0].take(PlaybackProgress(1, 200.0, 150.0))
    assert not stream.poll()
    lab.clock.advance(151)
    assert stream.poll()


async def test_a_server_is_gone_when_its_pings_stop() -> None:
    lab = Lab()
    server = lab.servers[0]
    num_looks = 0
    while not server.is_gone:
        lab.clock.advance(PING_LOOK_S * 1000)
        num_looks += 1
        if num_looks == 5:
            server.take(Ping(3))
            assert lab.sent[0] == [(Pong(3), b"")]
    assert num_looks == 5 + SERVER_TIMEOUT_S / PING_LOOK_S + 1


@pytest.mark.parametrize("kind", [*TO_WORKER, *FROM_WORKER])
def test_no_instant_crosses_machines(kind: type[Message]) -> None:
    """CLOCK_MONOTONIC of one machine means nothing on another."""
    assert not [field.name for field in msgspec.structs.fields(kind) if field.name.endswith(("_ns", "_at_s", "_at"))]
