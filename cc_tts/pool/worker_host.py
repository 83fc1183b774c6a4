"""One device of a machine: a worker that serves on it, started again whenever it ends.

The engine is a child process, as that of `cc-tts worker` is, which is started again when it ends or hangs. Runs on: an event
loop of its own.
"""

import asyncio
import fcntl
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import __version__, logs
from cc_tts.clock import Clock
from cc_tts.config.remote import host_port
from cc_tts.config.schema import Config
from cc_tts.engines.cosyvoice.model.download import cache_folder
from cc_tts.engines.factory import worker_settings
from cc_tts.engines.remote.host import WorkerServer
from cc_tts.engines.worker.link import NO_LOAD
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.pool import voices
from cc_tts.pool.hosts import HostSettings, HostState, HostStatus
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.peer import BACKOFF_MAX_S, BACKOFF_MIN_S
from cc_tts.processes.tasks import cancel_all

END_TIMEOUT_S: Final = 75.0
"""Time limit for a worker to speak to the end, longer than its own limit (unmeasured)."""
NUM_PORTS: Final = 100
MAX_REASON_CHARS: Final = 300  # unmeasured

log = logs.get(__name__)


class WorkerHost:
    """See :class:`cc_tts.pool.hosts.HostStatus`. ``address``: the machine's, at which servers reach the worker. ``device``:
    as in ``tts.devices``; ``device_label`` is what the pool shows.
    """

    def __init__(
        self, name: str, settings: HostSettings, *, address: str, device: str, device_label: str, clock: Clock
    ) -> None:
        self._name = name
        self._settings = settings
        self._address = address
        self._device = device
        self._device_label = device_label
        self._clock = clock
        self._state: HostState = "starting"
        """``starting`` also while it serves: see :attr:`_current_state`."""
        self._reason = ""
        self._num_restarts = 0
        self._voices = ""
        self._port = 0
        self._lock: int | None = None
        self._server: WorkerServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()
        self._is_stopping = False

    def status(self) -> HostStatus:
        scheme = "grpcs" if self._settings.config.remote.certificate_file else "grpc"
        server, state, load = self._server, self._current_state, NO_LOAD
        if server is not None:
            self._reason = server.link.down_reason or self._reason
            load = (server.link.load if state == "ready" else None) or NO_LOAD
        return HostStatus(
            id=self._name,
            address=f"{scheme}://{host_port(self._address, self._port)}" if self._port else "",
            host=socket.gethostname(),
            device=self._device_label,
            state=state,
            generation=(self._settings.generation or __version__) if server is not None else "",
            reason=self._reason[:MAX_REASON_CHARS],
            num_restarts=self._num_restarts + (server.engine.num_restarts if server is not None else 0),
            pid=(server.engine.pid or 0) if server is not None else 0,
            voices=self._voices,
            num_streams=load.num_streams,
            utilisation=load.utilisation,
            first_audio_ms=load.first_audio_ms,
            is_refusing=bool(load.refusal),
        )

    @property
    def _current_state(self) -> HostState:
        if self._state != "starting" or self._server is None:
            return self._state
        if self._server.link.is_ready:
            return "ready"
        return "starting" if self._server.link.description is None else "restarting"

    def begin(self) -> None:
        self._task = asyncio.create_task(self._live(), name=f"host {self._name}")

    def drain(self) -> None:
        """Let the worker finish its streams, and start none until :meth:`start`."""
        if self._is_wanted.is_set():
            self._is_wanted.clear()
            self._finish("draining")

    def start(self, settings: HostSettings) -> None:
        """Start a worker again after a drain, with these settings."""
        self._settings = settings
        self._is_wanted.set()

    async def take_voices(self, pool_url: str) -> None:
        """Fetch the missing voices; if there were some, the worker finishes its streams and is restarted."""
        self._settings = msgspec.structs.replace(self._settings, pool_url=pool_url)
        if await self._fetch_voices() and self._state == "starting" and self._server is not None:
            self._reason = "it is started again with other voices"
            self._finish("restarting")

    async def stop(self) -> None:
        """Let the worker finish its streams, and end. Safe to call twice."""
        self._is_stopping = True
        self._finish("draining")
        self._is_wanted.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=END_TIMEOUT_S)
            await cancel_all(self._task)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _finish(self, state: HostState) -> None:
        """Let the worker finish its streams and end, unless it does so already."""
        is_told = self._state in ("draining", "restarting")
        self._state = state
        if self._server is not None and not is_told:
            self._server.drain()

    async def _live(self) -> None:
        backoff = Backoff(self._clock, min_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while not self._is_stopping:
            if not self._is_wanted.is_set():
                self._state, self._reason = "drained", ""
                await self._is_wanted.wait()
                continue
            self._state = "starting"
            backoff.begin()
            try:
                if not self._port:
                    self._take_port()
                    await self._fetch_voices()
                await self._run()
                continue
            except (OSError, CcTtsError) as error:
                reason = error.detail if isinstance(error, CcTtsError) else str(error)
            except Exception as error:  # the device would stay silent
                log.exception("host_failed")
                reason = type(error).__name__
            delay_s = backoff.delay_s()
            self._num_restarts += 1
            log.error("worker_down", worker=self._name, reason=reason, restart_in_s=round(delay_s, 2))
            if self._state == "starting":
                self._state, self._reason = "restarting", reason
            await asyncio.sleep(delay_s)

    async def _run(self) -> None:
        """Serve until the worker is told to finish. Raises ``CcTtsError`` if it cannot."""
        config = self._worker_config()
        (settings,) = worker_settings(config)
        where = self._address, self._port
        server = WorkerServer(config, settings, where, generation=self._settings.generation, clock=self._clock)
        self._server = server
        try:
            await server.run()
            self._num_restarts += server.engine.num_restarts
        finally:
            self._server = None

    def _worker_config(self) -> Config:
        config = self._settings.config
        tts = replace(config.tts, devices=(self._device,), workers=())
        if self._settings.ships_voices:
            tts = replace(tts, voices_dir=str(self._voice_folder))
        return replace(config, tts=tts)

    async def _fetch_voices(self) -> bool:
        if not self._settings.ships_voices:
            return False
        folder = voices.VoiceFolder(self._voice_folder)
        await asyncio.to_thread(folder.folder.mkdir, parents=True, exist_ok=True)
        is_changed = False
        try:
            is_changed = await voices.fetch(self._settings.pool_url, self._settings.config.remote, folder)
        except ProcessFailed as error:
            log.warning("voices_not_fetched", worker=self._name, detail=error.detail)
        self._voices = (await asyncio.to_thread(folder.files)).digest
        return is_changed

    @property
    def _voice_folder(self) -> Path:
        return cache_folder() / "pool" / str(self._port) / "voices"

    def _take_port(self) -> None:
        """Take the first port that no other host of this machine has. A lock marks it, since a worker listens only once it
        is loaded.
        """
        folder = cache_folder() / "pool"
        folder.mkdir(parents=True, exist_ok=True)
        first = self._settings.config.pool.first_port
        for port in range(first, first + NUM_PORTS):
            lock = os.open(folder / f"{port}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.create_server((self._address, port), family=_family(self._address)):
                    pass
            except OSError:
                os.close(lock)
                continue
            self._lock, self._port = lock, port
            return
        raise ProcessFailed(f"no port from {first} to {first + NUM_PORTS - 1} is free: set pool.first_port")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
