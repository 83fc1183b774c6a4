"""A server with other settings than ``server_config``, handed over in its environment."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from lab.server_under_test import Json, Server, entries
from lab.waiting import PATIENCE_S, until

Lend = Callable[..., contextlib.AbstractAsyncContextManager[Server]]
"""What gives a test a server with settings, which other tests may have used."""


@contextlib.asynccontextmanager
async def server_with(folder: Path, **settings: str) -> AsyncIterator[Server]:
    """Run it with ``section__key="value"`` as in ``CC_TTS_SECTION__KEY``. It must end with status 0."""
    server = await Server.start(folder, settings)
    try:
        yield server
    finally:
        code = await server.end()
    assert code == 0, server.log[-4000:]


def logged(server: Server, event: str) -> list[Json]:
    """Lines with this event in the log of the test."""
    return entries(server.log, event)


def ua_pid(server: Server) -> int:
    """Process id of the newest UA process."""
    pid: int = ua_starts(server)[-1]["pid"]
    return pid


def ua_starts(server: Server) -> list[Json]:
    """What the log says of each start of the UA process, since the server was started."""
    return [entry for entry in entries(server.whole_log, "child_ready") if entry["child"] == "ua"]


def of_kind(events: list[Json], kind: str, wanted: Callable[[Json], Any] = lambda _event: True) -> list[Json]:
    return [event for event in events if event["type"] == kind and wanted(event)]


def is_running(pid: int) -> bool:
    """Whether this process exists and is no zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


async def until_readyz(server: Server, wanted: int, *, reason: str = "") -> Json:
    """Wait until ``GET /readyz`` has this status, and this in its reason; returns the body.

    Why a process is down is known once it was waited for, a moment after it is down.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status, body = await server.get("/readyz")
            if status == wanted and reason in (body.get("reason") or ""):
                return body
            await asyncio.sleep(0.01)


async def renew_speech(server: Server) -> None:
    """Have espeak-ng in a new process if it has said anything: what it makes of a text differs in phase from the second
    time on. Without ``cache.enabled`` nothing else remembers what was said.
    """
    if not entries(server.whole_log, "spoken"):
        return
    (died,) = espeak_pids(server)[-1:]
    server.signal(signal.SIGKILL, pid=died)
    await until(lambda: espeak_pids(server)[-1] != died)
    await until_readyz(server, 200)


def espeak_pids(server: Server) -> list[int]:
    """Process ids of the workers of espeak-ng since the server was started, the newest at the end."""
    return [entry["pid"] for entry in entries(server.whole_log, "child_ready") if entry["child"] == "espeak"]
