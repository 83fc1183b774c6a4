"""The UA process: ``python -m cc_tts.ua --channel-fd N``, its settings as JSON on standard input.

Threads: this one (the SIP thread) polls PJSIP and carries out commands; the reader thread takes records off the channel
and puts audio into playout buffers; PJMEDIA's clock thread takes frames out. Nothing else may run Python here
(pjsip/pjproject issue 4658).
"""

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from cc_tts import logs
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.errors import ProcessFailed
from cc_tts.processes import child
from cc_tts.processes.channel import (
    PROTOCOL_VERSION,
    ChildChannel,
    Hello,
    Message,
    Ping,
    Pong,
    Ready,
    Shutdown,
    StartFailed,
)
from cc_tts.processes.liveness import Silence
from cc_tts.ua import pjsua2_build
from cc_tts.ua.messages import TO_UA, UaSettings
from cc_tts.ua.sip_thread import SipThread

if TYPE_CHECKING:
    from cc_tts.ua.endpoint import UserAgent  # imported for good once the build of pjsua2 is chosen

SERVER_TIMEOUT_S = 2.0
"""Without a ping, of which there are two a second, for so long the server could not answer a call."""
MAX_TURN_S = 0.1
"""What one turn of the loop counts at most towards :data:`SERVER_TIMEOUT_S`: more was a pause of this process."""
NICE = -10
"""Priority, if it is permitted (CAP_SYS_NICE): callers hear delays of this process."""

log = logs.get("cc_tts.ua")


def main() -> NoReturn:
    """Run until a shutdown is asked for or the server is gone."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, min(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    SipThread.enter()
    channel, settings = child.begin(UaSettings, TO_UA)
    logs.configure(level=settings.log.level, json=settings.log.json, process="ua")
    clock = MonotonicClock()

    server_gone = threading.Event()

    def report(message: Message) -> None:
        """Send. That the server is gone is handled once, by the loop below, and not in every callback of PJSIP."""
        try:
            channel.put(message)
        except ProcessFailed:
            server_gone.set()

    try:
        pjsua2_build.select(build := pjsua2_build.chosen())
        from cc_tts.ua.endpoint import UserAgent

        agent = UserAgent(settings, build=build, clock=clock, send=report)
        described = agent.start()
    except Exception as error:  # noqa: BLE001 - whatever PJSIP throws, the reason must reach the log
        log.error("ua_cannot_start", detail=str(error))
        with contextlib.suppress(ProcessFailed):
            channel.send(StartFailed(detail=str(error)[:500]))
        _leave(child.EXIT_NO_START)

    commands: deque[Message] = deque()
    reader = threading.Thread(
        target=_read, args=(channel, agent.media, commands, server_gone), name="reader", daemon=True
    )
    try:
        channel.send(Hello(protocol=PROTOCOL_VERSION, process="ua", pid=os.getpid(), build=described))
        channel.send(Ready())
        reader.start()
        _work(channel, agent, commands, clock, lambda: stopping.is_set() or server_gone.is_set())
    except ProcessFailed as error:
        log.error("server_gone", detail=str(error))
        server_gone.set()
    with contextlib.suppress(ProcessFailed):
        agent.stop()
        channel.flush()
    channel.close()
    _leave(child.EXIT_SERVER_GONE if server_gone.is_set() else 0)


def _work(
    channel: ChildChannel, agent: "UserAgent", commands: deque[Message], clock: Clock, is_over: Callable[[], bool]
) -> None:
    """Poll PJSIP and carry out commands until a shutdown or ``is_over``; ``ProcessFailed``: the server is gone."""
    silence = Silence(clock, max_step_s=MAX_TURN_S)
    while not is_over():
        agent.poll()
        while commands:
            message = commands.popleft()
            if isinstance(message, Shutdown):
                return
            if isinstance(message, Ping):
                silence.heard()
                channel.send(Pong(serial=message.serial))
            else:
                agent.command(message)
        agent.set_server_silent(silent=silence.look() > SERVER_TIMEOUT_S)
        channel.flush()
        if not channel.has_backlog:  # the server reads
            agent.forward_audio(channel.put)
            channel.flush()


def _leave(code: int) -> NoReturn:
    """Exit while PJSIP's objects still exist: Python would destroy them after the library, where PJMEDIA aborts."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _read(
    channel: ChildChannel,
    media: Callable[[Message, bytes], bool],
    commands: deque[Message],
    server_gone: threading.Event,
) -> None:
    """Runs on: the reader thread."""

    def on_record(message: Message, payload: bytes) -> None:
        if not media(message, payload):
            commands.append(message)

    child.read(channel, on_record)
    server_gone.set()


if __name__ == "__main__":
    main()
