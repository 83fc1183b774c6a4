"""A worker in this process: its loop and its engine are real, the channel to it is a list."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.engines.engine_core import EngineCore, EngineLoader
from cc_tts.engines.remote.workers import RemoteWorkers
from cc_tts.engines.worker.link import WorkerLink
from cc_tts.engines.worker.loop import WorkerLoop
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import ChildChannel, Message, Record
from cc_tts.processes.child import ChildLink
from cc_tts.processes.peer import ProcessState


class LinkHere(ChildLink, ChildChannel):
    """Both ends of the channel to a worker of this process; ``tell`` gets what the worker sends."""

    has_backlog = False

    def __init__(self, tell: Callable[[Message, bytes], None]) -> None:
        ChildLink.__init__(self, self)
        self.came: list[Record] = []
        self._tell = tell

    def news(self, timeout_s: float | None = None) -> list[Record]:
        came, self.came = self.came, []
        return came

    def send(self, message: Message, payload: bytes = b"") -> None:
        self._tell(message, payload)

    def flush(self) -> None:
        """All was sent."""


class WorkerHere:
    state = ProcessState.READY
    silent_s = 0.0

    def __init__(self, engine: EngineCore, loader: EngineLoader, tell: Callable[[Message, bytes], None]) -> None:
        self._engine = engine
        self._link = LinkHere(tell)
        self._loop = WorkerLoop(engine, self._link, loader, clock=MonotonicClock())
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._loop.work()

    async def stop(self) -> None:
        """Nothing runs."""

    def restart(self, reason: str) -> None:
        raise AssertionError(reason)

    def send(self, message: Message) -> None:
        self._link.came.append((message, b""))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._link.came or self._engine.has_work:
            self._loop.work()
            await asyncio.sleep(0)


def none_elsewhere() -> RemoteWorkers:
    return RemoteWorkers(Config(), clock=MonotonicClock(), metrics=Metrics())


def link_here(engine: EngineCore, loader: EngineLoader) -> WorkerLink:
    return WorkerLink(
        "worker",
        lambda tell, _down: cast("Any", WorkerHere(engine, loader, tell)),
        clock=MonotonicClock(),
        metrics=Metrics(),
        stall_timeout_ms=60_000.0,
    )
