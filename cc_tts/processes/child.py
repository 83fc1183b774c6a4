"""The start of every child process, its reader thread, and the main loop of a child."""

import argparse
import contextlib
import gc
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from cc_tts import logs
from cc_tts.config.sections.log import LogConfig
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.processes.channel import (
    PROTOCOL_VERSION,
    ChildChannel,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    Record,
    Shutdown,
    StartFailed,
)

EXIT_SERVER_GONE: Final = 3
EXIT_NO_START: Final = 4
MAX_REASON_CHARS: Final = 500  # unmeasured

_WAKE: Final[Record] = (Message(), b"")


class Settings(Protocol):
    @property
    def log(self) -> LogConfig:
        """The section ``[log]`` of the configuration."""


S = TypeVar("S", bound=Settings)

log = logs.get(__name__)


class ServerGone(Exception):
    """The channel has ended without a message."""


class ChildLink:
    """A child's side of the channel: the server's messages, and :attr:`channel` for the answers. Pings are answered by the
    working thread, so that the server sees whether it works. Until the child works nobody empties the inbox, so a shutdown
    ends the process on the reader thread.

    Runs on: the working thread.
    """

    def __init__(self, channel: ChildChannel) -> None:
        self.channel = channel
        self.is_starting = True
        self.is_over = False
        """Whether the server, or :meth:`stop`, has asked for the end."""
        self._inbox: queue.SimpleQueue[Record | None] = queue.SimpleQueue()

    def start(self) -> None:
        """Start the reader thread."""
        threading.Thread(target=self._read, name="reader", daemon=True).start()

    def wake(self) -> None:
        """Make :meth:`news` return. Any thread may call this."""
        self._inbox.put(_WAKE)

    def stop(self) -> None:
        """Ask for the end, as the server would. A signal handler may call this."""
        self._inbox.put((Shutdown(), b""))

    def news(self, timeout_s: float | None = None) -> list[Record]:
        """Return the messages since the last time. Waits for the first one, at most ``timeout_s``.

        Raises:
            ProcessFailed: the server has stopped reading.
        """
        found: list[Record] = []
        with contextlib.suppress(queue.Empty):
            record = self._inbox.get(timeout=timeout_s)
            while True:
                if record is None:
                    raise ServerGone
                match record[0]:
                    case Ping(serial=serial):
                        self.channel.send(Pong(serial=serial))
                    case Shutdown():
                        self.is_over = True
                    case _ if record is not _WAKE:
                        found.append(record)
                record = self._inbox.get_nowait()
        return found

    def _read(self) -> None:
        """Runs on: the reader thread."""
        read(self.channel, self._take)
        if self.is_starting:
            os._exit(EXIT_SERVER_GONE)
        self._inbox.put(None)

    def _take(self, message: Message, payload: bytes) -> None:
        if self.is_starting and isinstance(message, Shutdown):
            os._exit(0)
        self._inbox.put((message, payload))


def run(
    process: str,
    settings_type: type[S],
    messages: Sequence[type[Message]],
    start: Callable[[S, ChildLink], Callable[[], None]],
    *,
    build: Callable[[S], dict[str, str]] = lambda _settings: {},
) -> int:
    """Be the child ``process`` until the server asks for the end or is gone. Return the exit status.

    ``start`` returns what is done again and again; it takes the records by :meth:`ChildLink.news`, for which it may wait.
    What ``start`` raises is reported to the server. ``build`` says what the child runs on.
    """
    channel, settings = begin(process, settings_type, messages)
    link = ChildLink(channel)
    try:
        channel.send(Hello(protocol=PROTOCOL_VERSION, process=process, pid=os.getpid(), build=build(settings)))
        link.start()  # before loading, which may take longer than the server waits for an end
        try:
            work = start(settings, link)
        except Exception as error:  # noqa: BLE001 - whatever a library throws, the reason must reach the operator
            detail = error.detail if isinstance(error, CcTtsError) else f"{type(error).__name__}: {error}"
            log.error("cannot_start", detail=detail)
            channel.send(StartFailed(detail[:MAX_REASON_CHARS]))
            return EXIT_NO_START
        gc.collect()
        gc.freeze()  # what is loaded stays: later collections, and the one at the end, need not look at it
        link.is_starting = False
        channel.send(Ready())
        while not link.is_over:
            work()
    except ServerGone:
        return EXIT_SERVER_GONE
    except ProcessFailed as error:
        log.error("server_gone", detail=error.detail)
        return EXIT_SERVER_GONE
    finally:
        channel.close()
    return 0


def begin(process: str, settings_type: type[S], messages: Sequence[type[Message]]) -> tuple[ChildChannel, S]:
    """Return the channel to the server, which carries ``messages``, and the settings; see :func:`connect`."""
    sock, settings = connect(process, settings_type)
    return ChildChannel(sock, messages), settings


def connect(process: str, settings_type: type[S]) -> tuple[socket.socket, S]:
    """Return the socket of ``--channel-fd``, and the settings from standard input, by which ``process`` writes its log.
    SIGINT is ignored, since the server ends its children.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description="a child process of cc-tts serve")
    parser.add_argument("--channel-fd", type=int, required=True)
    descriptor = parser.parse_args().channel_fd
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=settings_type)
    logs.configure(level=settings.log.level, json=settings.log.json, process=process)
    return socket.socket(fileno=descriptor), settings


def read(channel: ChildChannel, on_record: Callable[[Message, bytes], None]) -> None:
    """Pass on every record until the server is gone. Runs on: the reader thread."""
    try:
        while records := channel.read():
            for message, payload in records:
                on_record(message, payload)
    except ProcessFailed as error:
        log.error("channel_broken", detail=error.detail)
