"""``cc-tts worker``: runs an engine for servers on other machines.

::

    servers ═══ one connection each ═══▸ this process ◂── channel ──▸ engine worker (a child process, a device)

The engine runs in a child process, as it does in a server, so that what the network brings never delays the thread that owns
the device, and a child that dies is started again while the servers stay connected. Runs on: the event loop.
"""

import asyncio
import contextlib
import hashlib
import itertools
import os
import signal
from pathlib import Path
from typing import Final

from cc_tts import __version__, logs
from cc_tts.clock import Clock, MonotonicClock
from cc_tts.config import remote as addresses
from cc_tts.config.schema import Config
from cc_tts.engines.factory import hung_factor, with_one_model, worker_settings
from cc_tts.engines.remote import wire
from cc_tts.engines.remote.relay import PING_LOOK_S, ConnectedServer, report_of
from cc_tts.engines.remote.wire import Channel
from cc_tts.engines.worker.link import WorkerLink, child_worker
from cc_tts.engines.worker.messages import TO_WORKER, WorkerSettings
from cc_tts.errors import ConfigError, ProcessFailed
from cc_tts.metrics import Metrics
from cc_tts.processes import threads
from cc_tts.processes.channel import PROTOCOL_VERSION, Hello, Message, Ready
from cc_tts.processes.supervisor import Supervisor
from cc_tts.processes.tasks import first_of
from cc_tts.voices.folder import files_in

DRAIN_TIMEOUT_S: Final = 60.0
"""The time that a draining worker gives its open streams (unmeasured)."""
DRAIN_POLL_S: Final = 0.1  # unmeasured

log = logs.get(__name__)


def run(config: Config, listen: str, *, generation: str = "", model: str = "") -> int:
    """Serve until SIGTERM or SIGINT, then finish the open streams; a second signal ends at once. ``model``: one of
    ``tts.models``; empty for the only one. Raises ``ConfigError`` and ``ProcessFailed``.
    """
    host, port = addresses.listen_address(listen)
    named = with_one_model(config, model)
    settings = worker_settings(named)
    if len(settings) != 1:
        own = (name for name in named.tts.models if config.tts.models[name].devices)
        key = next((f"tts.models.{name}.devices" for name in own), "tts.devices")
        raise ConfigError(
            f"a worker has one device, and {key} names {len(settings)}; start one worker a device, each with its port, and "
            f"name its device: --set '{key}=[\"cuda:1\"]'"
        )
    server = WorkerServer(named, settings[0], (host, port), generation=generation, clock=MonotonicClock())
    logs.configure(level=config.log.level, json=config.log.json, process="worker")
    threads.run(_until_signal(server))
    return 0


async def _until_signal(server: "WorkerServer") -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.drain)
    await server.run()


class WorkerServer:
    """The engine process, and the servers that use it at the address ``listen``. ``generation``: the release that servers
    distinguish workers by; empty for our version. Raises ``ConfigError``.
    """

    def __init__(
        self, config: Config, settings: WorkerSettings, listen: tuple[str, int], *, generation: str, clock: Clock
    ) -> None:
        self._generation = generation or __version__
        addresses.check_generation(self._generation, "--generation")
        addresses.check_listener(config.remote, listen[0])
        wire.check(config.remote)
        self._config = config
        self._settings = settings
        self._host, self._port = listen
        self._clock = clock
        self.link = WorkerLink(
            "worker",
            child_worker("worker", settings, clock=clock),
            clock=clock,
            metrics=Metrics(),
            stall_timeout_ms=settings.tts.stall_timeout_ms,
            hung_factor=hung_factor(settings.tts.engine),
            on_change=self._report,
        )
        assert isinstance(self.link.process, Supervisor)
        self.engine = self.link.process
        self._stream_ids = itertools.count(1)
        self._servers: dict[Channel, ConnectedServer] = {}
        self._hello: Hello | None = None
        self._stopping = asyncio.Event()
        self._is_forced = asyncio.Event()

    async def run(self) -> None:
        """Load the engine, listen, serve until :meth:`drain`. Raises ``ProcessFailed`` if the engine does not start, and
        ``ConfigError`` if the address cannot be bound.
        """
        try:
            if await first_of(self.link.start(), self._stopping.wait()) == 0:
                await first_of(self._serve(), self._look_after_servers())
        finally:
            await self.link.process.stop()

    def drain(self) -> None:
        """Finish the open streams, then end; at once if it was told before."""
        if self._stopping.is_set():
            self._is_forced.set()
        self._stopping.set()
        log.info("worker_drains", num_streams=len(self.link.streams))

    async def _serve(self) -> None:
        identity = await asyncio.to_thread(self._identity)
        build = {
            "engine": self._settings.tts.engine,
            "device": self._settings.device,
            "identity": identity,
            "capacity": str(self._settings.tts.max_streams or "auto"),
            "generation": self._generation,
        }
        self._hello = Hello(protocol=PROTOCOL_VERSION, process="worker", pid=os.getpid(), build=build)
        listening = wire.listening(
            self._host,
            self._port,
            self._config.remote,
            types=TO_WORKER,
            on_open=self._opened,
            is_serving=lambda: self.link.is_ready and not self._stopping.is_set(),
        )
        async with listening:
            is_tls = bool(self._config.remote.certificate_file)
            log.info("worker_listens", host=self._host, port=self._port, tls=is_tls, **build)
            await self._stopping.wait()
            self._report()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_TIMEOUT_S):
                    while self.link.streams and not self._is_forced.is_set():  # noqa: ASYNC110 - the link has no event
                        await asyncio.sleep(DRAIN_POLL_S)

    def _opened(self, channel: Channel) -> None:
        """A server has connected and is authorised."""
        assert self._hello is not None

        def send(message: Message, payload: bytes = b"") -> None:
            with contextlib.suppress(ProcessFailed):  # the server is gone, or does not read
                channel.send(message, payload)

        server = ConnectedServer(self.link, self._stream_ids, send, self._clock)
        self._servers[channel] = server
        channel.on_record = lambda message, _payload: server.take(message)
        channel.on_closed = lambda reason: self._closed(channel, reason)
        log.info("server_connected", server=channel.peer, num_servers=len(self._servers))
        send(self._hello)
        send(Ready())
        if self.link.description is not None:
            send(self.link.description)
        send(report_of(self.link, is_draining=self._stopping.is_set()))

    def _closed(self, channel: Channel, reason: str) -> None:
        server = self._servers.pop(channel)
        log.info("server_gone", server=channel.peer, reason=reason, num_streams=len(server.streams))
        server.leave()

    def _report(self) -> None:
        """Report the engine's load to every server."""
        report = report_of(self.link, is_draining=self._stopping.is_set())
        for server in list(self._servers.values()):
            server.send(report, b"")

    async def _look_after_servers(self) -> None:
        while True:
            await asyncio.sleep(PING_LOOK_S)
            for channel in [channel for channel, server in self._servers.items() if server.is_gone]:
                channel.break_off("the server does not ping any more")

    def _identity(self) -> str:
        """Return a hash of what the voices consist of: the engine, and the names and sizes of the files. Runs
        on: a thread.
        """
        tts = self._settings.tts
        parts = [tts.engine, *(repr(model.sound) for model in tts.models.values())]
        folders = [Path(model.model_dir) for model in tts.models.values()]
        files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
        files += files_in(Path(tts.voices_dir)) if tts.voices_dir else []
        parts += [f"{path.name} {path.stat().st_size}" for path in files]
        if self.link.description is not None:
            parts += [f"{voice.id} {voice.language} {voice.rate_hz}" for voice in self.link.description.voices]
        return hashlib.sha256(ascii(parts).encode("ascii")).hexdigest()[:16]
