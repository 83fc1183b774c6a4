"""``cc-tts health``: whether the service of this machine or container answers.

A container's health check runs it beside the service. Which service that is, and where it listens, it reads from the command
line of the container's first process. It asks the control API of a server and of a pool, and a worker by a connection.
"""

import argparse
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cc_tts.config.remote import host_port, listen_address, local_address
from cc_tts.errors import ConfigError

if TYPE_CHECKING:
    from cc_tts.config.schema import Config

ANSWER_TIMEOUT_S: Final = 4.0
"""The health check of the Dockerfile waits 5 s for the whole command (unmeasured)."""
FIRST_PROCESS: Final = Path("/proc/1/cmdline")
_PROGRAMS: Final = {"cc-tts", "cc_tts", "cc_tts.cli"}
_STATUS_LINE_BYTES: Final = 64


def service_arguments(services: Sequence[str], path: Path = FIRST_PROCESS) -> list[str]:
    """Return the arguments of ``cc-tts`` in that process, also behind an init process; empty if it is no service."""
    try:
        words = [os.fsdecode(word) for word in path.read_bytes().split(b"\0")[:-1]]
    except OSError:
        return []
    for at, word in enumerate(words[:-1], start=1):
        if Path(word).name in _PROGRAMS and words[at] in services:
            return words[at:]
    return []


def check(options: argparse.Namespace, config: "Config") -> str:
    """Return what is wrong with the service of these options as a sentence, empty if it answers. Raises ``ConfigError``."""
    listen = getattr(options, "listen", None)
    host, port = (config.http.host, config.http.port) if listen is None else listen_address(listen)
    address = (local_address(host), port)
    is_worker = options.service == "worker"
    # A pool with certificates asks for one of its clients: that it takes connections has to do.
    if is_worker or (listen is not None and config.remote.certificate_file):
        return _fault(_connects, address)
    if options.service == "serve" and options.ready:
        api = partial(_answers, "/v1/voices", _authorization(config))
        return _fault(partial(_answers, "/readyz", ""), address) or _fault(api, address)
    return _fault(partial(_answers, "/healthz", ""), address)


def _authorization(config: "Config") -> str:
    """Return the header of a read-only request; empty if the server has no tokens."""
    readers = (each.token for each in config.http.tokens if "read" in each.scopes)
    return "".join(f"Authorization: Bearer {token}\r\n" for token in itertools.islice(readers, 1))


def _fault(ask: Callable[[socket.socket], str], address: tuple[str, int]) -> str:
    if not address[1]:
        raise ConfigError("port 0 is any free one: a health check cannot know it")
    where = host_port(*address)
    try:
        with socket.create_connection(address, timeout=ANSWER_TIMEOUT_S) as connection:
            answer = ask(connection)
    except OSError as error:
        return f"nothing answers at {where}: {error.strerror or error}"
    return answer and f"{where} answers {answer}"


def _connects(_connection: socket.socket) -> str:
    return ""


def _answers(path: str, header: str, connection: socket.socket) -> str:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n".encode())
    answer = b""
    while b"\r\n" not in answer and len(answer) < _STATUS_LINE_BYTES:
        received = connection.recv(_STATUS_LINE_BYTES)
        if not received:
            break
        answer += received
    line = answer.partition(b"\r\n")[0]
    return "" if line.startswith(b"HTTP/1.1 200 ") else f"{line.decode('latin-1')!r} to {path}"
