"""The server under a service manager: what it says on a real notification socket."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from lab.configured import logged, server_with
from lab.raw_sip import RawCaller
from lab.server_under_test import Server
from lab.waiting import until

pytestmark = pytest.mark.e2e

TIMEOUT_S = 60.0
WATCHDOG_USEC = 1_500_000


class ServiceManager:
    """The receiving end of ``NOTIFY_SOCKET``."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lines: list[str] = []
        self.pids: set[int] = set()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        self._socket.bind(address.replace("@", "\0", 1))

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._socket, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        data, credentials, _, _ = self._socket.recvmsg(4096, 256)
        self.lines += data.decode().split("\n")
        self.pids |= {int.from_bytes(each[:4], "little") for _, _, each in credentials}

    async def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        try:
            await until(lambda: condition(self.lines), TIMEOUT_S)
        except TimeoutError:
            raise TimeoutError(f"said were only {self.lines}") from None
        return self.lines

    async def until_said(self, line: str) -> list[str]:
        return await self.until(lambda lines: line in lines)


async def reload(server: Server, manager: ServiceManager) -> list[str]:
    """Send SIGHUP; everything said up to the next READY=1."""
    manager.lines.clear()
    server.signal(signal.SIGHUP)
    return await manager.until_said("READY=1")


async def test_from_ready_to_stopping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_USEC))
    with ServiceManager(address) as manager:
        async with server_with(tmp_path, calls__drain_timeout_s="600") as server:
            lines = await manager.until_said("READY=1")
            assert (await server.get("/readyz"))[0] == 200
            assert any(line.startswith("STATUS=0 calls; not ready: ") for line in lines)
            assert lines.index("READY=1") > lines.index("EXTEND_TIMEOUT_USEC=30000000")

            manager.lines.clear()
            await manager.until(lambda lines: lines.count("WATCHDOG=1") >= 4)
            assert not any(line.startswith("EXTEND_TIMEOUT_USEC") for line in manager.lines)

            said = await reload(server, manager)
            assert said.index("RELOADING=1") < said.index("READY=1")
            (stamp,) = (line for line in said if line.startswith("MONOTONIC_USEC="))
            assert int(stamp.partition("=")[2]) > 0
            server.config.write_text(server.config.read_text() + "\n[nonsense]\n")
            assert "RELOADING=1" in await reload(server, manager)  # a reload that fails is over too

            async with RawCaller("long", server.sip_port) as caller:
                await caller.establish()
                await manager.until_said("STATUS=1 call")
                manager.lines.clear()
                server.signal(signal.SIGTERM)
                await manager.until_said("STATUS=1 call; not ready: draining")
                assert "STOPPING=1" in manager.lines
                await manager.until(lambda lines: lines.count("EXTEND_TIMEOUT_USEC=30000000") >= 3)
                assert "READY=1" not in manager.lines
                caller.send("BYE")
                await caller.final()
            pid = server.pid
        assert manager.pids == {pid}  # NotifyAccess=main: nobody else of the service speaks


async def test_a_service_manager_with_an_abstract_name_is_told_and_stops_nothing_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"@cc-tts-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", str(WATCHDOG_USEC))
    with ServiceManager(address) as manager:
        server = await Server.start(tmp_path)
        await manager.until_said("READY=1")
    await until(lambda: logged(server, "notify_failed"))
    assert (await server.get("/readyz"))[0] == 200
    assert await server.end() == 0
