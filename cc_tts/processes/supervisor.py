"""Starts a child process, watches it, restarts it with back-off, and stops it.

The child is ``argv`` with ``--channel-fd N``; N is its end of a socket pair. It must send ``Hello`` then ``Ready`` within
:data:`START_TIMEOUT_S` and answer every ``Ping`` within :data:`HEARTBEAT_TIMEOUT_S`, or within what its :class:`ChildSpec`
says instead; else it is killed and started again. Only time in which the server itself ran counts. The first may be one that
another server has started (:mod:`cc_tts.processes.adoption`).
Runs on: the event loop.
"""

import asyncio
import contextlib
import itertools
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.errors import ProcessFailed
from cc_tts.processes.adoption import STATUS_UNKNOWN, AdoptedChild
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.channel import (
    CLOSED_BY_CHILD,
    PROTOCOL_VERSION,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    ServerChannel,
    Shutdown,
    StartFailed,
    Starting,
)
from cc_tts.processes.watchdog import Watchdog
from cc_tts.state_machine import StateMachine

START_TIMEOUT_S: Final = 30.0  # unmeasured
STOP_TIMEOUT_S: Final = 10.0  # unmeasured
KILL_TIMEOUT_S: Final = 5.0  # unmeasured
LAST_RECORDS_TIMEOUT_S: Final = 1.0
"""The last records of a child that exited are read for this long. Unmeasured."""
EXIT_TIMEOUT_S: Final = 2.0
"""Between the end of a child's channel and its exit, whose status says why (unmeasured)."""
HUNG_TIMEOUT_S: Final = 0.2
"""A child that is given up has this long to exit before it is killed. Unmeasured."""
HEARTBEAT_INTERVAL_S: Final = 0.5  # unmeasured
HEARTBEAT_TIMEOUT_S: Final = 10.0  # unmeasured
RESPONSE_TIMEOUT_S: Final = 0.75
"""A child that has left a ping unanswered for so long is not responsive, which ``/readyz`` says of the UA (unmeasured)."""
BACKOFF_MIN_S: Final = 0.1  # unmeasured
BACKOFF_MAX_S: Final = 5.0
"""A child that lived this long starts again with the shortest back-off (unmeasured)."""
STOPPED: Final = "stopped"
"""The reason given when the child is down because it was asked to end."""

log = logs.get(__name__)


class ProcessState(StrEnum):
    """States of a supervised child."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """The program to run, and the messages that it sends."""

    name: str
    argv: Sequence[str]
    messages: Sequence[type[Message]]
    """Types the child sends, besides the common ones."""
    stdin: bytes = field(default=b"", repr=False)
    """Written to the child's standard input, which is then closed: the place for its configuration, secrets included."""
    start_timeout_s: float = START_TIMEOUT_S
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    """Longer for a child whose single piece of work may take long."""


def python_child(
    name: str, module: str, *, messages: Sequence[type[Message]], settings: object, **timeouts_s: float
) -> ChildSpec:
    """A module of this package as a child; ``settings`` (a struct or dataclass) goes to its standard input as JSON."""
    argv, stdin = (sys.executable, "-m", module), msgspec.json.encode(settings)
    return ChildSpec(name=name, argv=argv, messages=messages, stdin=stdin, **timeouts_s)


class _Process(Protocol):
    """The process of a child, which was started here or adopted."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, signal: int, /) -> None: ...

    def kill(self) -> None: ...


class Supervisor:
    """One child, started again whenever it ends."""

    def __init__(
        self,
        spec: ChildSpec,
        *,
        clock: Clock,
        on_message: Callable[[Message, bytes], None],
        on_down: Callable[[str], None],
        on_ready: Callable[[Hello], None] = lambda _hello: None,
        on_starting: Callable[[str], None] = lambda _detail: None,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._on_message = on_message
        self._on_ready = on_ready
        self._on_down = on_down
        self._on_starting = on_starting
        self._channel: ServerChannel | None = None
        self._process: _Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._down: asyncio.Future[str] | None = None
        self._started: asyncio.Future[str | None] | None = None
        """The result of :meth:`start`: ``None`` once the child is ready, else why it is not."""
        self._stopping = asyncio.Event()
        self.hello: Hello | None = None
        self._silence: Watchdog | None = None
        """While a ping is unanswered."""
        self._serials = itertools.count(1)
        self._machine = StateMachine(PROCESS_TABLE, ProcessState.STOPPED)
        self.num_restarts = 0

    @property
    def state(self) -> ProcessState:
        """Where the child stands."""
        return self._machine.state

    @property
    def pid(self) -> int | None:
        """Process id of the living child."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def silent_s(self) -> float:
        """Seconds since the oldest ping that is unanswered; 0 if none is."""
        return self._silence.seconds if self._silence is not None else 0.0

    @property
    def is_responsive(self) -> bool:
        """Whether it is ready and answers pings in time."""
        return self.state is ProcessState.READY and self.silent_s < RESPONSE_TIMEOUT_S

    async def start(self, adopted: AdoptedChild | None = None) -> None:
        """Start the child, or take over ``adopted`` in its place, and wait until it is ready; raises ``ProcessFailed`` if it
        is not in time, or exits before.
        """
        self._stopping.clear()
        first = self._started = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(adopted), name=f"supervise {self._spec.name}")
        self._task.add_done_callback(lambda _task: self._settle_start("it was stopped"))
        reason = await first
        if reason is not None:
            await self.stop()
            raise ProcessFailed(f"the {self._spec.name} process failed to start: {reason}")

    async def stop(self) -> None:
        """End the child: ``Shutdown``, then SIGTERM, then SIGKILL, each with its named timeout. Safe to call twice."""
        self._stopping.set()
        if self._task is not None:
            await self._task
            self._task = None

    def set_settings(self, settings: object) -> None:
        """Set what the next child gets; nothing is sent to the living one."""
        self._spec = replace(self._spec, stdin=msgspec.json.encode(settings))

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send to the child; raises ``ProcessFailed`` if it is not ready."""
        if self._channel is None or self.state is not ProcessState.READY:
            raise ProcessFailed(f"the {self._spec.name} process is {self.state}")
        self._channel.send(message, payload)

    async def _live(self, adopted: AdoptedChild | None) -> None:
        backoff = Backoff(self._clock, min_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while not self._stopping.is_set():
            backoff.begin()
            self._machine.fire(ProcessEvent.SPAWN)
            try:
                if adopted is None:
                    await self._spawn()
                else:
                    await self._take_over(adopted)
                reason = await self._watch()
            except (OSError, ProcessFailed) as error:
                reason = str(error)
            adopted = None
            was_ready = self.state is ProcessState.READY
            if self._stopping.is_set():
                self._machine.fire(ProcessEvent.STOP)
                await self._end_child(at_once=not was_ready)
                self._machine.fire(ProcessEvent.DOWN)
                if was_ready:
                    self._on_down(STOPPED)
                return
            self._machine.fire(ProcessEvent.DOWN)
            reason = await self._reap(reason)
            self._settle_start(reason)
            self.num_restarts += 1
            delay_s = backoff.delay_s()
            log.error("child_down", child=self._spec.name, reason=reason, restart_in_s=round(delay_s, 2))
            if was_ready:
                self._on_down(reason)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
        if self.state is ProcessState.BACKOFF:
            self._machine.fire(ProcessEvent.STOP)

    def _settle_start(self, reason: str | None) -> None:
        if self._started is not None and not self._started.done():
            self._started.set_result(reason)

    async def _open(self, sock: socket.socket) -> None:
        self._down = asyncio.get_running_loop().create_future()
        self._silence = None
        self._channel = ServerChannel(self._spec.messages, on_record=self._record, on_closed=self.restart)
        await self._channel.open(sock)

    async def _take_over(self, adopted: AdoptedChild) -> None:
        self.hello = adopted.hello
        self._process = adopted.process
        await self._open(adopted.sock)

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        self.hello = None
        try:
            await self._open(ours)
            process = self._process = await asyncio.create_subprocess_exec(
                *self._spec.argv,
                "--channel-fd",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                process_group=0,  # Ctrl-C on the terminal is for the server alone; it drains, then stops the child
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(self._spec.stdin)
            await process.stdin.drain()
        process.stdin.close()

    async def _watch(self) -> str:
        """Wait until the child is down or the supervisor is stopping; returns why."""
        assert self._process is not None
        assert self._down is not None
        exited = asyncio.create_task(self._process.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        starting = Watchdog(self._clock, max_step_s=2 * HEARTBEAT_INTERVAL_S)
        try:
            while True:
                waiting: set[asyncio.Future[object]] = {exited, stopping, self._down}  # type: ignore[arg-type]
                done, _ = await asyncio.wait(waiting, timeout=HEARTBEAT_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done:
                    return STOPPED
                if self._down in done:
                    return self._down.result()
                if exited in done:
                    return exit_reason(exited.result())
                if reason := self._overdue(starting):
                    return reason
                if self.state is ProcessState.READY:
                    self._ping()
        finally:
            stopping.cancel()
            exited.cancel()

    def _overdue(self, starting: Watchdog) -> str:
        """Why the child is given up though it runs; empty if it is not."""
        if self.state is not ProcessState.READY:
            timeout_s = self._spec.start_timeout_s
            return f"not ready within {timeout_s:.0f} s" if starting.poll() > timeout_s else ""
        timeout_s = self._spec.heartbeat_timeout_s
        is_silent = self._silence is not None and self._silence.poll() > timeout_s
        return f"no heartbeat for {timeout_s:.0f} s" if is_silent else ""

    def _ping(self) -> None:
        if self._silence is None:
            self._silence = Watchdog(self._clock, max_step_s=2 * HEARTBEAT_INTERVAL_S)
        with contextlib.suppress(ProcessFailed):
            self.send(Ping(serial=next(self._serials)))

    def _record(self, message: Message, payload: bytes) -> None:
        match message:
            case Hello():
                if message.protocol != PROTOCOL_VERSION:
                    self.restart(f"speaks protocol {message.protocol}, this server {PROTOCOL_VERSION}")
                    return
                self.hello = message
            case Ready() if self.hello is not None and self.state is ProcessState.STARTING:
                self._machine.fire(ProcessEvent.READY)
                self._settle_start(None)
                log.info("child_ready", child=self._spec.name, pid=self.pid, **self.hello.build)
                self._on_ready(self.hello)
            case Starting() if self.state is ProcessState.STARTING:
                self._on_starting(message.detail)
            case StartFailed() if self.state is ProcessState.STARTING:
                self.restart(message.detail)
            case Pong():
                self._silence = None
            case _ if self.state in (ProcessState.READY, ProcessState.STOPPING):  # also what it sent before it exited
                self._on_message(message, payload)
            case _:
                self.restart(f"sent {type(message).__name__} before it was ready")

    def restart(self, reason: str) -> None:
        """Take the child for down, even if it still answers pings: it is killed and started again."""
        if self._down is not None and not self._down.done():
            self._down.set_result(reason)

    async def _end_child(self, *, at_once: bool) -> None:
        """The orderly end: Shutdown, SIGTERM, SIGKILL. ``at_once``: it still loads, and has nothing to end."""
        process = self._process
        if process is None:
            return
        if self._channel is not None:
            with contextlib.suppress(ProcessFailed):
                self._channel.send(Shutdown())
        if at_once:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for timeout_s, next_signal in ((STOP_TIMEOUT_S, signal.SIGTERM), (KILL_TIMEOUT_S, signal.SIGKILL)):
            try:
                await asyncio.wait_for(process.wait(), timeout_s)
                break
            except TimeoutError:
                log.warning("child_does_not_end", child=self._spec.name, signal=next_signal.name)
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(next_signal)
        await process.wait()
        if self._down is not None:
            await asyncio.wait({self._down}, timeout=LAST_RECORDS_TIMEOUT_S)
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._process = None

    async def _reap(self, reason: str) -> str:
        """Make sure the child is gone; adds its exit status to the reason."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        self.hello = None
        if process is None:
            return reason
        timeout_s = EXIT_TIMEOUT_S if reason == CLOSED_BY_CHILD else HUNG_TIMEOUT_S
        try:
            exited = exit_reason(await asyncio.wait_for(process.wait(), timeout_s))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return reason
        return exited if reason in (CLOSED_BY_CHILD, exited) else f"{reason}; {exited}"


def exit_reason(code: int) -> str:
    """An exit status in words."""
    if code == STATUS_UNKNOWN:
        return "exited"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exited with status {code}"
