"""``cc-tts health``: whether the service of this machine or container answers.

A container's health check runs it beside the service. Which service that is, and where it listens, it reads from the command
line of the container's first process. It asks the control API of a server and of a pool, and a worker by a connection.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cc_tts.config.remote import host_port, listen_address, local_address
from cc_tts.errors import ConfigError

if TYPE_CHECKING:
    from cc_tts.config.schema import Config

ANSWER_TIMEOUT_S: Final = 4.0
"""The health check of the Dockerfile waits 5 s for the whole command (unmeasured)."""
FIRST_PROCESS: Final = Path("/proc/1/cmdline")
_PROGRAMS: Final = {"cc-tts", "cc_tts", "cc_tts.cli"}


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
    # A pool with certificates asks for one of its clients: that it takes connections has to do.
    if options.service == "worker" or (listen is not None and config.remote.certificate_file):
        return _fault(address)
    if options.service == "serve" and options.ready:
        return _fault(address, "/readyz") or _fault(address, "/v1/voices", _authorization(config))
    return _fault(address, "/healthz")


def _authorization(config: "Config") -> dict[str, str]:
    """Return the header of a read-only request; empty if the server has no tokens."""
    token = next((each.token for each in config.http.tokens if "read" in each.scopes), "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _fault(address: tuple[str, int], path: str = "", headers: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return why a service does not answer 200 to this path, or, without a path, takes no connection."""
    if not address[1]:
        raise ConfigError("port 0 is any free one: a health check cannot know it")
    where = host_port(*address)
    try:
        with closing(HTTPConnection(*address, timeout=ANSWER_TIMEOUT_S)) as connection:
            connection.connect()
            if not path:
                return ""
            connection.request("GET", path, headers=dict(headers))
            answer = connection.getresponse()
    except (OSError, HTTPException) as error:
        return f"nothing answers at {where}: {getattr(error, 'strerror', None) or error}"
    status = f"HTTP/1.1 {answer.status} {answer.reason}"
    return "" if answer.status == HTTPStatus.OK else f"{where} answers {status!r} to {path}"
