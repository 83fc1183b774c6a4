"""What every child process begins with, and its reader thread."""

import argparse
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from cc_tts import logs
from cc_tts.errors import ProcessFailed
from cc_tts.processes.channel import ChildChannel, Message

EXIT_SERVER_GONE: Final = 3
EXIT_NO_START: Final = 4

S = TypeVar("S")

log = logs.get(__name__)


def begin(settings_type: type[S], messages: Sequence[type[Message]]) -> tuple[ChildChannel, S]:
    """The channel that ``--channel-fd`` names, on which ``messages`` come in, and the settings from standard input.
    SIGINT is ignored: the server ends its children.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser(description="a child process of cc-tts serve")
    parser.add_argument("--channel-fd", type=int, required=True)
    descriptor = parser.parse_args().channel_fd
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=settings_type)
    return ChildChannel(socket.socket(fileno=descriptor), messages), settings


def read(channel: ChildChannel, on_record: Callable[[Message, bytes], None]) -> None:
    """Pass every record on; returns when the server is gone. Runs on: the reader thread."""
    try:
        while records := channel.read():
            for message, payload in records:
                on_record(message, payload)
    except ProcessFailed as error:
        log.error("channel_broken", detail=error.detail)
