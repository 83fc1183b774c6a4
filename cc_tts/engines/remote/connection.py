"""A server's connection to one worker on another machine: made, watched, and made again with back-off when it is lost.

It takes the place of a :class:`Supervisor`, and moves by the same table. A worker that leaves 3 pings unanswered is taken
for lost, since a machine that vanishes closes nothing. Only time in which the server itself ran counts.
Runs on: the event loop.
"""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.remote import GENERATION
from cc_tts.config.schema import RemoteConfig
from cc_tts.engines.remote import wire
from cc_tts.engines.remote.wire import ClientChannel, Endpoint
from cc_tts.errors import ConfigError, ProcessFailed
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.channel import PROTOCOL_VERSION, Hello, Message, Ping, Pong, Ready
from cc_tts.processes.supervisor import (
    BACKOFF_MAX_S,
    BACKOFF_MIN_S,
    PROCESS_TABLE,
    STOPPED,
    ProcessEvent,
    ProcessState,
)
from cc_tts.processes.watchdog import Watchdog
from cc_tts.state_machine import StateMachine

CONNECT_TIMEOUT_S: Final = 3.0
"""A connection may take so long from the first packet to ``Ready`` (unmeasured)."""
PING_INTERVAL_S: Final = 0.5  # unmeasured
MAX_MISSED_PINGS: Final = 3  # unmeasured

log = logs.get(__name__)


class RemoteConnection:
    """See :class:`cc_tts.engines.worker.link.WorkerProcess`. ``engine``: what the worker must run."""

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        *,
        remote: RemoteConfig,
        engine: str,
        clock: Clock,
        on_message: Callable[[Message, bytes], None],
        on_down: Callable[[str], None],
        on_ready: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._remote = remote
        self._engine = engine
        self._clock = clock
        self._on_message = on_message
        self._on_down = on_down
        self._on_ready = on_ready
        self._machine = StateMachine(PROCESS_TABLE, ProcessState.STOPPED)
        self._channel: ClientChannel | None = None
        self._hello: Hello | None = None
        self._down: asyncio.Future[str] | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._silence: Watchdog | None = None
        """While a ping is unanswered."""
        self._serials = itertools.count(1)
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[str | None] | None = None
        """The outcome of the first attempt: ``None`` once the worker is ready, else why it is not."""
        self.reason = "not connected yet"
        """Why it is not ready, or was not before."""

    @property
    def state(self) -> ProcessState:
        """Where the connection stands."""
        return self._machine.state

    @property
    def silent_s(self) -> float:
        """Seconds for which a ping has been unanswered; 0 if none is."""
        return self._silence.seconds if self._silence is not None else 0.0

    async def start(self) -> None:
        """Try to connect; raises ``ProcessFailed`` if the first attempt fails. It goes on trying until :meth:`stop`."""
        self._stopping.clear()
        self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"connection to worker {self._name}")
        self._task.add_done_callback(lambda _task: self._settle_first("it was stopped"))
        if (reason := await asyncio.shield(self._first)) is not None:
            raise ProcessFailed(f"the speech worker {self._name} cannot be used: {reason}")

    async def stop(self) -> None:
        """Close the connection. Safe to call twice."""
        self._stopping.set()
        self.restart(STOPPED)
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def send(self, message: Message) -> None:
        """Send to the worker; raises ``ProcessFailed`` if it is not ready."""
        if self._channel is None or self.state is not ProcessState.READY:
            raise ProcessFailed(f"the connection to {self._name} is {self.state}")
        self._channel.send(message)

    def restart(self, reason: str) -> None:
        """Take the worker for lost, and connect anew."""
        if self._down is not None and not self._down.done():
            self._down.set_result(reason)

    async def _live(self) -> None:
        backoff = Backoff(self._clock, min_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while not self._stopping.is_set():
            backoff.begin()
            self._machine.fire(ProcessEvent.SPAWN)
            reason = await self._use()
            was_ready = self.state is ProcessState.READY
            if self._stopping.is_set():
                self._machine.fire(ProcessEvent.STOP)
                reason = STOPPED
            self._machine.fire(ProcessEvent.DOWN)
            self._settle_first(reason)
            if reason != STOPPED and (was_ready or reason != self.reason):
                log.warning("worker_not_reached", worker=self._name, was_ready=was_ready, reason=reason)
            self.reason = reason
            if was_ready:
                self._on_down(reason)
            if self.state is ProcessState.STOPPED:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), backoff.delay_s())
        if self.state is ProcessState.BACKOFF:
            self._machine.fire(ProcessEvent.STOP)

    def _settle_first(self, reason: str | None) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(reason)

    async def _use(self) -> str:
        """Connect and stay connected; returns why that is over."""
        down = self._down = asyncio.get_running_loop().create_future()
        self._hello = self._silence = None
        self._ready.clear()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connecting = asyncio.create_task(
                    wire.connect(self._endpoint, self._remote, on_record=self._record, on_closed=self.restart)
                )
                try:
                    await asyncio.wait({connecting, down}, return_when=asyncio.FIRST_COMPLETED)
                    if not connecting.done():
                        return str(down.result())
                    self._channel = connecting.result()
                finally:
                    connecting.cancel()
                waiting = asyncio.create_task(self._ready.wait())
                try:
                    await asyncio.wait({waiting, down}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
            while not down.done():
                await asyncio.wait({down}, timeout=PING_INTERVAL_S)
                self._ping()
            return str(down.result())
        except TimeoutError:
            return f"no answer within {CONNECT_TIMEOUT_S:g} s"
        except (ConfigError, ProcessFailed) as error:
            return error.detail
        finally:
            if self._channel is not None:
                self._channel.close()
                await self._channel.closed()
                self._channel = None

    def _ping(self) -> None:
        if self._silence is None:
            self._silence = Watchdog(self._clock, max_step_s=2 * PING_INTERVAL_S)
        elif self._silence.poll() > MAX_MISSED_PINGS * PING_INTERVAL_S:
            self.restart(f"{MAX_MISSED_PINGS} pings were not answered")
            return
        with contextlib.suppress(ProcessFailed):
            self.send(Ping(serial=next(self._serials)))

    def _record(self, message: Message, payload: bytes) -> None:
        if self._down is None or self._down.done():  # what came together with what ended it
            return
        match message:
            case Hello():
                self._hello = message
                if refusal := self._refusal(message):
                    self.restart(refusal)
            case Ready() if self._hello is not None and self.state is ProcessState.STARTING:
                self._machine.fire(ProcessEvent.READY)
                self._ready.set()
                self._settle_first(None)
                log.info("worker_connected", worker=self._name, **self._hello.build)
                self._on_ready(self._hello.build)
            case Pong():
                self._silence = None
            case _ if self.state is ProcessState.READY:
                self._on_message(message, payload)
            case _:
                self.restart(f"sent {type(message).__name__} before it was ready")

    def _refusal(self, hello: Hello) -> str:
        """Why this worker cannot be used; empty if it can."""
        if hello.protocol != PROTOCOL_VERSION:
            ours = f"this server {PROTOCOL_VERSION}: run the same version of cc-tts on both"
            return f"it speaks protocol {hello.protocol}, {ours}"
        if (engine := hello.build.get("engine", "")) != self._engine:
            return (
                f"it runs the engine {engine[:40]!r}, this server uses {self._engine!r}: set tts.engine alike on both"
            )
        if not re.fullmatch(f"(?:{GENERATION})?", generation := hello.build.get("generation", "")):
            return f"its generation is called {generation[:40]!r}, which is no name of one"
        return ""
