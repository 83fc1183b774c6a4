"""The life of a peer at the other end of a channel: a child, an adopted process, or a worker on another machine.

It says ``Hello``, then ``Ready``, and answers pings. One that is late with either is given up. It is used again, with
back-off, until :meth:`Peer.stop`. Only time in which this process itself ran counts. Runs on: the event loop.
"""

import asyncio
import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

from cc_tts.clock import Clock
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.channel import PROTOCOL_VERSION, Hello, Message, Ping, Pong, Ready, StartFailed, Starting
from cc_tts.processes.tasks import first_of
from cc_tts.processes.watchdog import Watchdog
from cc_tts.state_machine import StateMachine

PING_INTERVAL_S: Final = 0.5  # unmeasured
BACKOFF_MIN_S: Final = 0.1  # unmeasured
BACKOFF_MAX_S: Final = 5.0
"""A peer that was up for this long is used again with the shortest pause (unmeasured)."""
STOPPED: Final = "stopped"
"""The reason that is given when a peer is down because it was stopped."""


class ProcessState(StrEnum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    STOPPING = "stopping"


class ProcessEvent(StrEnum):
    SPAWN = "spawn"
    READY = "ready"
    DOWN = "down"
    """It exited, fell silent, or broke the protocol."""
    STOP = "stop"


PROCESS_TABLE: Final[Mapping[tuple[ProcessState, ProcessEvent], ProcessState]] = {
    (ProcessState.STOPPED, ProcessEvent.SPAWN): ProcessState.STARTING,
    (ProcessState.BACKOFF, ProcessEvent.SPAWN): ProcessState.STARTING,
    (ProcessState.BACKOFF, ProcessEvent.STOP): ProcessState.STOPPED,
    (ProcessState.STARTING, ProcessEvent.READY): ProcessState.READY,
    (ProcessState.STARTING, ProcessEvent.DOWN): ProcessState.BACKOFF,
    (ProcessState.STARTING, ProcessEvent.STOP): ProcessState.STOPPING,
    (ProcessState.READY, ProcessEvent.DOWN): ProcessState.BACKOFF,
    (ProcessState.READY, ProcessEvent.STOP): ProcessState.STOPPING,
    (ProcessState.STOPPING, ProcessEvent.DOWN): ProcessState.STOPPED,
}


class Sender(Protocol):
    def send(self, message: Message, payload: bytes = b"", /) -> None:
        """Send a record to the peer."""


class Peer(ABC):
    """One peer, which is used again whenever it is lost. ``name`` appears in errors."""

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        on_message: Callable[[Message, bytes], None],
        on_down: Callable[[str], None],
        on_starting: Callable[[str], None] = lambda _detail: None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._on_message = on_message
        self._on_down = on_down
        self._on_starting = on_starting
        self._machine = StateMachine(PROCESS_TABLE, ProcessState.STOPPED)
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[str | None] | None = None
        """The outcome of the first attempt: ``None`` if the peer became ready, else the reason."""
        self._stopping = asyncio.Event()
        self._down: asyncio.Future[str] | None = None
        self._unanswered: Watchdog | None = None
        """Runs while a ping is unanswered."""
        self._serials = itertools.count(1)
        self.hello: Hello | None = None

    @property
    def state(self) -> ProcessState:
        return self._machine.state

    @property
    def silent_s(self) -> float:
        """The seconds since the oldest unanswered ping; 0 if there is none."""
        return self._unanswered.seconds if self._unanswered is not None else 0.0

    async def stop(self) -> None:
        """End the peer. Safe to call twice."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send to the peer; raises ``ProcessFailed`` if it is not ready."""
        channel = self._sender
        if channel is None or self.state is not ProcessState.READY:
            raise ProcessFailed(f"{self._name} is {self.state}")
        channel.send(message, payload)

    def restart(self, reason: str) -> None:
        """Treat the peer as lost, even if it still answers pings, and use it again."""
        if self._down is not None and not self._down.done():
            self._down.set_result(reason)

    # --- what the kinds of peers do ------------------------------------------------------------------------------------

    @abstractmethod
    async def start(self) -> None:
        """Begin to use it, and wait until it is ready; raises ``ProcessFailed`` with the reason if it is not."""

    @property
    @abstractmethod
    def _sender(self) -> Sender | None: ...

    @abstractmethod
    async def _use(self) -> str:
        """Connect to it and :meth:`_watch` it. Return why that has ended, or raise ``OSError`` or ``CcTtsError``."""

    @abstractmethod
    def _overdue(self, starting: Watchdog) -> str:
        """Return why the peer is given up; empty if it is not. ``starting`` runs until it is ready."""

    @abstractmethod
    async def _end(self, *, was_ready: bool) -> None:
        """End the peer in an orderly way."""

    @abstractmethod
    async def _reap(self, reason: str) -> str:
        """Free the resources of a lost peer. Return the reason, with any details that were found."""

    @abstractmethod
    def _on_ready(self) -> None:
        """Called when the peer is ready."""

    @abstractmethod
    def _on_lost(self, reason: str, *, was_ready: bool, delay_s: float) -> None:
        """Called when the peer is lost; it is used again in ``delay_s``."""

    def _refusal(self, hello: Hello) -> str:
        """Return why this peer cannot be used; empty if it can."""
        if hello.protocol != PROTOCOL_VERSION:
            return f"it speaks protocol {hello.protocol}, this server {PROTOCOL_VERSION}"
        return ""

    # -------------------------------------------------------------------------------------------------------------------

    async def _begin(self) -> str | None:
        """Begin to use the peer. Return the outcome of the first attempt."""
        self._stopping.clear()
        first = self._first = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"use {self._name}")
        self._task.add_done_callback(lambda _task: self._settle_first("it was stopped"))
        return await asyncio.shield(first)

    def _settle_first(self, reason: str | None) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(reason)

    async def _live(self) -> None:
        backoff = Backoff(self._clock, min_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while not self._stopping.is_set():
            backoff.begin()
            self._machine.fire(ProcessEvent.SPAWN)
            self.hello = self._unanswered = None
            self._down = asyncio.get_running_loop().create_future()
            try:
                reason = await self._use()
            except (OSError, CcTtsError) as error:
                reason = str(error)
            was_ready = self.state is ProcessState.READY
            if self._stopping.is_set():
                self._machine.fire(ProcessEvent.STOP)
                await self._end(was_ready=was_ready)
                self._machine.fire(ProcessEvent.DOWN)
                if was_ready:
                    self._on_down(STOPPED)
                return
            self._machine.fire(ProcessEvent.DOWN)
            reason = await self._reap(reason)
            self._settle_first(reason)
            delay_s = backoff.delay_s()
            self._on_lost(reason, was_ready=was_ready, delay_s=delay_s)
            if was_ready:
                self._on_down(reason)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
        if self.state is ProcessState.BACKOFF:
            self._machine.fire(ProcessEvent.STOP)

    async def _watch(self, running: asyncio.Task[str] | None = None) -> str:
        """Wait until the peer is lost, ``running`` says why it has ended, or :meth:`stop` is called. Return the reason."""
        assert self._down is not None
        stopping: asyncio.Future[Any] = asyncio.create_task(self._stopping.wait())
        ends: list[asyncio.Future[Any]] = [self._down, *([running] if running is not None else [])]
        starting = Watchdog(self._clock, max_step_s=2 * PING_INTERVAL_S)
        try:
            while True:
                await asyncio.wait({stopping, *ends}, timeout=PING_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
                if stopping.done():
                    return STOPPED
                if ended := next((each for each in ends if each.done()), None):
                    return str(ended.result())
                if reason := self._overdue(starting):
                    return reason
                if self.state is ProcessState.READY:
                    self._ping()
        finally:
            stopping.cancel()

    async def _until_over(self) -> None:
        """Wait until the peer is lost, or :meth:`stop` is called."""
        assert self._down is not None
        await first_of(self._stopping.wait(), asyncio.wait({self._down}))

    def _ping(self) -> None:
        if self._unanswered is None:
            self._unanswered = Watchdog(self._clock, max_step_s=2 * PING_INTERVAL_S)
        with contextlib.suppress(ProcessFailed):
            self.send(Ping(serial=next(self._serials)))

    def _is_silent(self, timeout_s: float) -> bool:
        """Return whether a ping has been unanswered for ``timeout_s``."""
        return self._unanswered is not None and self._unanswered.poll() > timeout_s

    def _record(self, message: Message, payload: bytes) -> None:
        is_lost = self._down is None or self._down.done()
        if is_lost and self.state is not ProcessState.STOPPING:  # the message came together with the loss
            return
        match message:
            case Hello():
                self.hello = message
                if refusal := self._refusal(message):
                    self.restart(refusal)
            case Ready() if self.hello is not None and self.state is ProcessState.STARTING:
                self._machine.fire(ProcessEvent.READY)
                self._settle_first(None)
                self._on_ready()
                self._ping()  # at once: the peer watches this process from the first ping on
            case Starting() if self.state is ProcessState.STARTING:
                self._on_starting(message.detail)
            case StartFailed() if self.state is ProcessState.STARTING:
                self.restart(message.detail)
            case Pong():
                self._unanswered = None
            case _ if self.state in (ProcessState.READY, ProcessState.STOPPING):  # and what it sent before it exited
                self._on_message(message, payload)
            case _:
                self.restart(f"sent {type(message).__name__} before it was ready")
