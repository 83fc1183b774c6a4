"""Starts a child process, watches it, restarts it with back-off, and stops it.

The child is ``argv`` with ``--channel-fd N``; N is its end of a socket pair. It must send ``Hello`` then ``Ready`` within
:data:`START_TIMEOUT_S` and answer every ``Ping`` within :data:`HEARTBEAT_TIMEOUT_S`, or within what its :class:`ChildSpec`
says instead; else it is killed and started again. Only time in which the server itself ran counts. The first may be one that
another server has started (:mod:`cc_tts.processes.adoption`). One for a single piece of work has no channel
(:func:`run_once`). Runs on: the event loop.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.errors import ProcessFailed
from cc_tts.processes.adoption import STATUS_UNKNOWN, AdoptedProcess
from cc_tts.processes.channel import (
    CLOSED,
    COMMON_MESSAGES,
    MAX_BACKLOG_BYTES,
    Decoder,
    Hello,
    Message,
    Shutdown,
    encode,
)
from cc_tts.processes.peer import Peer, ProcessState, Sender
from cc_tts.processes.watchdog import Watchdog

START_TIMEOUT_S: Final = 30.0  # unmeasured
STOP_TIMEOUT_S: Final = 10.0  # unmeasured
KILL_TIMEOUT_S: Final = 5.0  # unmeasured
LAST_RECORDS_TIMEOUT_S: Final = 1.0
"""The last records of a child that exited are read for this long. Unmeasured."""
EXIT_TIMEOUT_S: Final = 2.0
"""The time between the end of a child's channel and its exit, whose status gives the reason (unmeasured)."""
HUNG_TIMEOUT_S: Final = 0.2
"""A child that is given up must exit within this time before it is killed. Unmeasured."""
HEARTBEAT_TIMEOUT_S: Final = 10.0  # unmeasured
RESPONSE_TIMEOUT_S: Final = 0.75
"""A child that has left a ping unanswered for this long is not responsive; ``/readyz`` reports that of the UA
(unmeasured).
"""

STOPPED_READING: Final = "the other side has stopped reading"

log = logs.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """The program to run, and its messages."""

    name: str
    argv: Sequence[str]
    messages: Sequence[type[Message]]
    """The types that the child sends, besides the common ones."""
    stdin: bytes = field(default=b"", repr=False)
    """Written to the child's standard input, which is then closed: its configuration, including secrets."""
    start_timeout_s: float = START_TIMEOUT_S
    heartbeat_timeout_s: float = HEARTBEAT_TIMEOUT_S
    """Longer for a child that may be busy for long with one piece of work."""


def python_child(
    name: str, module: str, *, messages: Sequence[type[Message]], settings: object, **timeouts_s: float
) -> ChildSpec:
    """Return a module of this package as a child; ``settings`` (a struct or dataclass) go to its standard input as JSON."""
    argv, stdin = (sys.executable, "-m", module), msgspec.json.encode(settings)
    return ChildSpec(name=name, argv=argv, messages=messages, stdin=stdin, **timeouts_s)


class LoopChannel(asyncio.Protocol):
    """An end of a channel on an event loop: the server's, or that of a child with an event loop."""

    def __init__(
        self,
        types: Sequence[type[Message]],
        *,
        on_record: Callable[[Message, bytes], None],
        on_closed: Callable[[str], None],
    ) -> None:
        self._decoder = Decoder((*COMMON_MESSAGES, *types))
        self._on_record = on_record
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._closed = False

    async def open(self, sock: socket.socket) -> None:
        """Take one end of a socket pair."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self, sock)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=MAX_BACKLOG_BYTES)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            records = self._decoder.feed(data)
        except ProcessFailed as error:
            self._fail(str(error))
            return
        for message, payload in records:
            if self._closed:
                return
            self._on_record(message, payload)

    def connection_lost(self, exc: Exception | None) -> None:
        was_closed = exc is None or isinstance(exc, ConnectionError)  # a reset: it left data unread
        self._fail(CLOSED if was_closed else str(exc))

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send one record; never blocks. Raises ``ProcessFailed`` if the channel is closed, or the other side does
        not read.
        """
        if self._transport is None or self._closed:
            raise ProcessFailed("the channel is closed")
        if self._transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            self._fail(STOPPED_READING)
            raise ProcessFailed(STOPPED_READING)
        self._transport.write(encode(message, payload))

    def close(self) -> None:
        """Close this end without reporting it. Safe to call twice."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, reason: str) -> None:
        if self._closed:
            return
        self.close()
        self._on_closed(reason)


class Supervisor(Peer):
    """One child, which is started again whenever it ends."""

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
        super().__init__(
            f"the {spec.name} process", clock=clock, on_message=on_message, on_down=on_down, on_starting=on_starting
        )
        self._spec = spec
        self._tell_ready = on_ready
        self._channel: LoopChannel | None = None
        self._process: asyncio.subprocess.Process | AdoptedProcess | None = None
        self._adopted: AdoptedProcess | None = None
        self.num_restarts = 0

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def pid(self) -> int | None:
        """Process id of the living child."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def is_responsive(self) -> bool:
        """Whether it is ready and answers pings in time."""
        return self.state is ProcessState.READY and self.silent_s < RESPONSE_TIMEOUT_S

    async def start(self, adopted: AdoptedProcess | None = None) -> None:
        """Start the child, or use ``adopted`` instead, and wait until it is ready; raises ``ProcessFailed`` if it is late or
        exits before.
        """
        self._adopted = adopted
        if (reason := await self._begin()) is not None:
            await self.stop()
            raise ProcessFailed(f"the {self._spec.name} process failed to start: {reason}")

    def set_settings(self, settings: object) -> None:
        """Set the settings of the next child; the running one is not told."""
        self._spec = replace(self._spec, stdin=msgspec.json.encode(settings))

    @property
    def _sender(self) -> Sender | None:
        return self._channel

    async def _use(self) -> str:
        adopted, self._adopted = self._adopted, None
        if adopted is None:
            await self._spawn()
        else:
            self.hello, self._process = adopted.hello, adopted
            await self._open(adopted.sock)
        exited = asyncio.create_task(self._exit())
        try:
            return await self._watch(exited)
        finally:
            exited.cancel()

    async def _exit(self) -> str:
        assert self._process is not None
        return exit_reason(await self._process.wait())

    def _on_ready(self) -> None:
        assert self.hello is not None
        log.info("child_ready", child=self._spec.name, pid=self.pid, **self.hello.build)
        self._tell_ready(self.hello)

    def _on_lost(self, reason: str, *, was_ready: bool, delay_s: float) -> None:
        del was_ready
        self.num_restarts += 1
        log.error("child_down", child=self._spec.name, reason=reason, restart_in_s=round(delay_s, 2))

    async def _open(self, sock: socket.socket) -> None:
        self._channel = LoopChannel(self._spec.messages, on_record=self._record, on_closed=self.restart)
        await self._channel.open(sock)

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
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

    def _overdue(self, starting: Watchdog) -> str:
        if self.state is not ProcessState.READY:
            timeout_s = self._spec.start_timeout_s
            return f"not ready within {timeout_s:.0f} s" if starting.poll() > timeout_s else ""
        timeout_s = self._spec.heartbeat_timeout_s
        return f"no heartbeat for {timeout_s:.0f} s" if self._is_silent(timeout_s) else ""

    async def _end(self, *, was_ready: bool) -> None:
        """Send ``Shutdown``, then SIGTERM, then SIGKILL, each with its own timeout. A child that is still loading is ended
        at once.
        """
        process = self._process
        if process is None:
            return
        if self._channel is not None:
            with contextlib.suppress(ProcessFailed):
                self._channel.send(Shutdown())
        if not was_ready:
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
        """Make sure that the child is gone; add its exit status to the reason."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        self.hello = None
        if process is None:
            return reason
        timeout_s = EXIT_TIMEOUT_S if reason == CLOSED else HUNG_TIMEOUT_S
        try:
            exited = exit_reason(await asyncio.wait_for(process.wait(), timeout_s))
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return reason
        return exited if reason in (CLOSED, exited) else f"{reason}; {exited}"


def exit_reason(code: int) -> str:
    if code == STATUS_UNKNOWN:
        return "exited"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exited with status {code}"


async def run_once(module: str, *arguments: str, data: bytes, timeout_s: float) -> tuple[bytes, bytes, int]:
    """Run a module with ``data`` on its standard input; return its output, its standard error and its exit status. It is
    killed when this call ends for whatever reason.

    Raises:
        TimeoutError: it took longer than ``timeout_s``.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate(data)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        status = await process.wait()
    return output, errors, status
