"""The main loop of both kinds of UA process, SIP and lines: it obeys the server, and outlives it.

Threads: the thread of the loop lets the agent work and carries out commands; the reader thread takes records off the channel
and puts audio into playout buffers.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from cc_tts import __version__, logs
from cc_tts.clock import NS_PER_MS, Clock, MonotonicClock
from cc_tts.errors import ProcessFailed
from cc_tts.processes import child
from cc_tts.processes.adoption import AdoptionRefused
from cc_tts.processes.channel import PROTOCOL_VERSION, Hello, Message, Ping, Pong, Ready, Shutdown, StartFailed
from cc_tts.processes.watchdog import Watchdog
from cc_tts.ua import ended_calls
from cc_tts.ua.detached import KeptReports, ServerLink, Successor
from cc_tts.ua.messages import TO_UA, CallEnded, EndNoted, UaSettings
from cc_tts.ua.process.agent import Agent

SERVER_TIMEOUT_S = 2.0
"""Without a ping for this long (there are two a second) the server could not answer a call; unmeasured."""
MAX_TURN_S = 0.1
"""One turn of the loop counts at most this much towards :data:`SERVER_TIMEOUT_S`; a longer turn was a pause of this process
(unmeasured).
"""
NICE = -10
"""The priority of the process, if it is permitted (CAP_SYS_NICE), since callers hear its delays; unmeasured."""

log = logs.get("cc_tts.ua")


MakeAgent = Callable[[UaSettings, Clock, Callable[[Message], None]], Agent[Any]]
"""Makes the agent, which sends its reports with the last argument."""


def run(process: str, make: MakeAgent) -> NoReturn:
    """Run until the server asks for the end, or is gone and no other server adopts this process."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    channel, settings = child.begin(process, UaSettings, TO_UA)
    clock = MonotonicClock()
    link = ServerLink(channel)
    try:
        loop = ProcessLoop(process, link, settings, clock, make)
        agent = loop.agent
        described = agent.start() | {"cc_tts": __version__}
    except Exception as error:  # noqa: BLE001 - whatever PJSIP throws, the reason must reach the log
        log.error("ua_cannot_start", detail=str(error))
        with contextlib.suppress(ProcessFailed):
            channel.send(StartFailed(detail=str(error)[:500]))
        _leave(child.EXIT_NO_START)

    link.listen(settings.adoption_socket)
    threading.Thread(target=link.read, args=(agent.media, agent.wake), name="reader", daemon=True).start()
    loop.greet(described)
    is_alone = loop.run(stopping)
    agent.stop()
    if link.is_detached and link.outlives_server:
        ended_calls.leave(Path(settings.adoption_socket), loop.kept.reports(()), clock)
    with contextlib.suppress(ProcessFailed):
        link.channel.flush()
    link.close()
    _leave(child.EXIT_SERVER_GONE if is_alone else 0)


class ProcessLoop:
    """The loop of the process, and its view of the server. Runs on: the thread of the loop."""

    def __init__(self, process: str, link: ServerLink, settings: UaSettings, clock: Clock, make: MakeAgent) -> None:
        self._process = process
        self._link = link
        self._settings = settings
        self._clock = clock
        self._silence = Watchdog(clock, max_step_s=MAX_TURN_S)
        self._is_pinged = False
        """Whether the present server has begun to send pings. A server that adopts begins late."""
        self._is_over = False
        self._deadline_ns: int | None = None
        """When the process ends, unless another server adopts it; ``None`` while it has a server."""
        self._build: dict[str, str] = {}
        self.agent = make(settings, clock, self.report)
        self.kept = KeptReports(self.agent.snapshot)

    def report(self, message: Message) -> None:
        """Send a report, or keep it if that is useful. A server that does not read is given up by the loop."""
        if isinstance(message, CallEnded) and self._link.outlives_server:
            self.kept.keep_end(message)
        if self._link.is_detached:
            self.kept.keep(message)
            return
        try:
            self._link.channel.put(message)
        except ProcessFailed as error:
            log.error("server_gone", detail=str(error))
            self._link.is_detached = self._is_over = True

    def greet(self, build: dict[str, str]) -> None:
        self._build = build
        self.report(Hello(protocol=PROTOCOL_VERSION, process=self._process, pid=os.getpid(), build=build))
        self.report(Ready())

    def run(self, stopping: threading.Event) -> bool:
        """Let the agent work and carry out commands until the end; return whether the reason is that no server is left."""
        while not (self._is_over or stopping.is_set()):
            self.agent.poll()
            while self._link.commands and not self._is_over:
                self._execute(self._link.commands.popleft())
            if self._deadline_ns is not None:
                self._is_over = self._is_over or self._clock.now_ns() > self._deadline_ns
            elif not self._link.is_detached:
                self._silence.count(owed=self._is_pinged)
                self.agent.set_server_silent(silent=self._silence.seconds > SERVER_TIMEOUT_S)
                self._flush()
        return self._link.is_detached

    def _flush(self) -> None:
        channel = self._link.channel
        try:
            channel.flush()
            if not channel.has_backlog:  # the server reads
                self.agent.forward_audio(channel.put)
                channel.flush()
        except ProcessFailed:
            self._link.is_detached = True  # the reader thread will notice

    def _execute(self, message: Message | Successor | None) -> None:
        match message:
            case Shutdown():
                self._is_over = True
            case Ping(serial=serial):
                self._is_pinged = True
                self._silence.heard()
                self.report(Pong(serial=serial))
            case EndNoted(call_id=call_id):
                self.kept.forget_end(call_id)
            case None:
                self._detach()
            case Successor():
                self._attach(message)
            case _:
                self.agent.command(message)

    def _detach(self) -> None:
        num_calls = self.agent.num_calls
        self._link.is_detached = True
        self._is_over = not (num_calls and self._link.outlives_server)
        if self._is_over:
            log.error("server_gone", calls=num_calls, consequence="ending them")
            return
        grace_ms = self._settings.orphan_grace_ms
        log.error("server_gone", calls=num_calls, consequence=f"keeping them for {grace_ms} ms")
        self._deadline_ns = self._clock.now_ns() + grace_ms * NS_PER_MS
        self.agent.detach_server()

    def _attach(self, successor: Successor) -> None:
        """Be adopted, or refuse with the reason and end."""
        request = successor.request
        refusal = ""
        if request.protocol != PROTOCOL_VERSION:
            refusal = f"it speaks protocol {request.protocol}, this process {PROTOCOL_VERSION}"
        elif request.settings != self._settings.fingerprint:
            sections = "[sip], [rtp], [registration], [playout] or [asterisk]"
            refusal = f"its {sections} are others than this process was started with"
        if refusal:
            log.error("adoption_refused", detail=refusal, calls=self.agent.num_calls, consequence="ending them")
            with contextlib.suppress(ProcessFailed):
                successor.channel.send(AdoptionRefused(detail=refusal))
            self._is_over = True
            return
        live_calls = self.agent.attach_server()
        log.info("adopted", calls=len(live_calls), by=request.version)
        self._link.channel.close()
        self._link.channel, self._link.is_detached, self._deadline_ns = successor.channel, False, None
        self._is_pinged = False
        self.greet(self._build)
        for each in self.kept.reports(live_calls):
            self.report(each)
        successor.decided.set()


def _leave(code: int) -> NoReturn:
    """Exit while PJSIP's objects still exist. Python would destroy them after the library, and PJMEDIA would abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
