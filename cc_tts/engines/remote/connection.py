"""A server's connection to one worker on another machine: made, watched, and made again with back-off when it is lost.

It takes the place of a supervisor. A worker that leaves 3 pings unanswered is taken
for lost, since a machine that vanishes closes nothing. Only time in which the server itself ran counts.
Runs on: the event loop.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.remote import GENERATION
from cc_tts.config.schema import RemoteConfig
from cc_tts.engines.remote import wire
from cc_tts.engines.remote.wire import ClientChannel, WorkerEndpoint
from cc_tts.errors import ProcessFailed
from cc_tts.processes.channel import Hello, Message
from cc_tts.processes.peer import PING_INTERVAL_S, STOPPED, Peer, Sender
from cc_tts.processes.tasks import first_of
from cc_tts.processes.watchdog import Watchdog

CONNECT_TIMEOUT_S: Final = 3.0
"""The time that a connection may take from the first packet to ``Ready`` (unmeasured)."""
MAX_MISSED_PINGS: Final = 3  # unmeasured

log = logs.get(__name__)


class RemoteConnection(Peer):
    """The connection to one worker. ``engine``: the engine that the worker must run."""

    def __init__(
        self,
        name: str,
        endpoint: WorkerEndpoint,
        *,
        remote: RemoteConfig,
        engine: str,
        clock: Clock,
        on_message: Callable[[Message, bytes], None],
        on_down: Callable[[str], None],
        on_ready: Callable[[Mapping[str, str]], None],
    ) -> None:
        super().__init__(f"the connection to {name}", clock=clock, on_message=on_message, on_down=on_down)
        self._worker = name
        self._endpoint = endpoint
        self._remote = remote
        self._engine = engine
        self._tell_ready = on_ready
        self._channel: ClientChannel | None = None
        self._ready = asyncio.Event()
        self.reason = "not connected yet"
        """Why it is not ready, or was not before the last success."""

    async def start(self) -> None:
        """Start to connect; raises ``ProcessFailed`` if the first attempt fails. Attempts continue until :meth:`stop`."""
        if (reason := await self._begin()) is not None:
            raise ProcessFailed(f"the speech worker {self._worker} cannot be used: {reason}")

    @property
    def _sender(self) -> Sender | None:
        return self._channel

    async def _use(self) -> str:
        """Connect and stay connected; return why that has ended."""
        try:
            self._ready.clear()
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                for step in (self._connect, self._ready.wait):
                    await first_of(step(), self._until_over())
            return await self._watch()
        except TimeoutError:
            return f"no answer within {CONNECT_TIMEOUT_S:g} s"
        finally:
            if self._channel is not None:
                self._channel.close()
                await self._channel.closed()
                self._channel = None

    async def _connect(self) -> None:
        self._channel = await wire.connect(self._endpoint, self._remote, on_record=self._record, on_closed=self.restart)

    def _overdue(self, starting: Watchdog) -> str:
        del starting  # _use() limits the time until it is ready
        is_silent = self._is_silent(MAX_MISSED_PINGS * PING_INTERVAL_S)
        return f"{MAX_MISSED_PINGS} pings were not answered" if is_silent else ""

    async def _end(self, *, was_ready: bool) -> None:
        """Do nothing, since the connection is closed."""
        del was_ready
        self.reason = STOPPED

    async def _reap(self, reason: str) -> str:
        return reason

    def _on_ready(self) -> None:
        assert self.hello is not None
        self._ready.set()
        log.info("worker_connected", worker=self._worker, **self.hello.build)
        self._tell_ready(self.hello.build)

    def _on_lost(self, reason: str, *, was_ready: bool, delay_s: float) -> None:
        del delay_s
        if was_ready or reason != self.reason:
            log.warning("worker_not_reached", worker=self._worker, was_ready=was_ready, reason=reason)
        self.reason = reason

    def _refusal(self, hello: Hello) -> str:
        """Return why this worker cannot be used; empty if it can."""
        if refusal := super()._refusal(hello):
            return f"{refusal}: run the same version of cc-tts on both"
        if (engine := hello.build.get("engine", "")) != self._engine:
            return (
                f"it runs the engine {engine[:40]!r}, this server uses {self._engine!r}: set tts.engine alike on both"
            )
        if not re.fullmatch(f"(?:{GENERATION})?", generation := hello.build.get("generation", "")):
            return f"its generation is called {generation[:40]!r}, which is no name of one"
        return ""
