"""The host of a worker in a pool, without Ray: a real engine process, and servers by gRPC on loopback."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("grpc")

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.config.sections.models import TtsConfig
from cc_tts.engines.factory import make_engine
from cc_tts.engines.remote.host import WorkerServer
from cc_tts.pool.hosts import HostSettings, HostStatus
from cc_tts.pool.worker_host import WorkerHost
from lab.ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WITHIN_S = 60.0


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostSettings:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = Config(tts=TtsConfig(engine="espeak"))
    config = replace(config, pool=replace(config.pool, first_port=free_ports(1)))
    return HostSettings(config=config, pool_url="", ships_voices=False)


def with_models(settings: HostSettings, voices_dir: str) -> HostSettings:
    config = settings.config
    tts = replace(config.tts, engine="onnx", voices_dir=voices_dir)
    return HostSettings(config=replace(config, tts=tts), pool_url="", ships_voices=False)


@contextlib.asynccontextmanager
async def hosting(settings: HostSettings) -> AsyncIterator[WorkerHost]:
    host = WorkerHost(
        "worker-0", settings, address="127.0.0.1", device="cpu", device_label="cpu", clock=MonotonicClock()
    )
    host.begin()
    try:
        yield host
    finally:
        await host.stop()


async def until(host: WorkerHost, holds: Callable[[HostStatus], object]) -> HostStatus:
    async with asyncio.timeout(WITHIN_S):
        while not holds(status := host.status()):  # noqa: ASYNC110 - the host has no event
            await asyncio.sleep(0.05)
    return status


async def heard_bytes(status: HostStatus) -> int:
    tts = TtsConfig(engine="espeak", devices=(), workers=(status.address,), worker_start_timeout_s=WITHIN_S)
    engine = make_engine(Config(tts=tts))
    await engine.start()
    try:
        stream = engine.open("en-us")
        stream.push("Please hold the line.", text_chunk_index=0)
        stream.end()
        async with asyncio.timeout(WITHIN_S):
            return sum([len(chunk.data) async for chunk in stream])
    finally:
        await engine.stop()


async def test_an_engine_that_is_killed_comes_back_at_the_same_address(settings: HostSettings) -> None:
    async with hosting(settings) as host:
        before = await until(host, lambda status: status.state == "ready")
        assert await heard_bytes(before) > 8000
        os.kill(before.pid, signal.SIGKILL)
        after = await until(host, lambda status: status.state == "ready" and status.pid not in (0, before.pid))
        assert (after.address, after.num_restarts) == (before.address, 1)
        assert await heard_bytes(after) > 8000
    assert host.status().pid == 0


async def test_a_drained_worker_comes_back_with_other_settings(settings: HostSettings) -> None:
    async with hosting(settings) as host:
        await until(host, lambda status: status.state == "ready")
        host.drain()
        drained = await until(host, lambda status: status.state == "drained")
        assert (drained.pid, drained.num_restarts) == (0, 0)
        host.start(HostSettings(config=settings.config, pool_url="", ships_voices=False, generation="2.0"))
        assert (await until(host, lambda status: status.state == "ready")).generation == "2.0"


async def test_voices_that_come_while_the_engine_is_started_again_are_spoken_too(
    settings: HostSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[WorkerServer] = []

    class Recorded(WorkerServer):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            made.append(self)

    async def fetch(pool_url: str, _remote: object, _folder: object) -> bool:
        return pool_url == "with another voice"

    monkeypatch.setattr("cc_tts.pool.worker_host.WorkerServer", Recorded)
    monkeypatch.setattr("cc_tts.pool.voices.fetch", fetch)
    async with hosting(msgspec.structs.replace(settings, ships_voices=True)) as host:
        before = await until(host, lambda status: status.state == "ready")
        os.kill(before.pid, signal.SIGKILL)
        await until(host, lambda status: status.state == "restarting")
        await host.take_voices("with another voice")
        await until(host, lambda status: status.state == "ready" and len(made) > 1)


async def test_a_worker_that_cannot_start_says_why_and_is_drained_between_two_attempts(
    settings: HostSettings, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    async with hosting(with_models(settings, missing)) as host:
        failed = await until(host, lambda status: status.num_restarts > 2)
        assert failed.state == "restarting"
        assert f"{missing}: no such directory" in failed.reason
        host.drain()
        await until(host, lambda status: status.state == "drained")
        host.start(settings)
        await until(host, lambda status: status.state == "ready")
