"""A child's side of the channel over a real socket pair."""

import socket
import threading
from collections.abc import Iterator

import pytest

from cc_tts.processes.channel import ChildChannel, Decoder, Message, Ping, Pong, Shutdown, Starting, encode
from cc_tts.processes.child import ChildLink, ServerGone

pytestmark = pytest.mark.unit


class Ends:
    def __init__(self) -> None:
        self.server, theirs = socket.socketpair()
        self.link = ChildLink(ChildChannel(theirs, (Starting,)))
        self.link.is_starting = False
        self.link.start()

    def say(self, *messages: Message) -> None:
        self.server.sendall(b"".join(map(encode, messages)))


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.server.close()
    ends.link.channel.close()


def test_the_working_thread_answers_pings_and_gets_the_rest(ends: Ends) -> None:
    ends.say(Starting("a"), Ping(5), Starting("b"))
    assert ends.link.news(5.0) == [(Starting("a"), b""), (Starting("b"), b"")]
    assert Decoder((Pong,)).feed(ends.server.recv(4096)) == [(Pong(5), b"")]


def test_it_waits_no_longer_than_it_is_told_and_any_thread_may_wake_it(ends: Ends) -> None:
    assert ends.link.news(0.0) == []
    threading.Timer(0.01, ends.link.wake).start()
    assert ends.link.news() == []
    assert not ends.link.is_over


@pytest.mark.parametrize("by_server", [True, False])
def test_the_end_is_asked_for_by_the_server_or_by_a_signal(ends: Ends, by_server: bool) -> None:
    if by_server:
        ends.say(Shutdown())
    else:
        ends.link.stop()
    assert ends.link.news(5.0) == []
    assert ends.link.is_over


def test_a_server_that_is_gone_ends_the_work(ends: Ends) -> None:
    ends.server.close()
    with pytest.raises(ServerGone):
        ends.link.news(5.0)
