"""One device of a machine: the worker that speaks on it, a child process, started again whenever it ends or hangs.

The host connects to its worker as servers do, so it knows what they know: whether it answers, and how busy it is.
Runs on: an event loop of its own.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.config.remote import host_port
from cc_tts.config.schema import Config
from cc_tts.engines.cosyvoice.model.download import cache_folder
from cc_tts.engines.engine_core import EngineLoad
from cc_tts.engines.factory import engine_names
from cc_tts.engines.remote.connection import RemoteConnection
from cc_tts.engines.remote.wire import WorkerEndpoint
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.pool import voices, worker_process
from cc_tts.pool.hosts import HostSettings, HostState, HostStatus
from cc_tts.processes.backoff import Backoff
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import BACKOFF_MAX_S, BACKOFF_MIN_S, ProcessState
from cc_tts.processes.supervisor import exit_reason
from cc_tts.processes.tasks import cancel_all
from cc_tts.processes.watchdog import Watchdog

LOOK_INTERVAL_S: Final = 0.2  # unmeasured
HANG_TIMEOUT_S: Final = 10.0
"""A worker that was ready is killed if it does not answer for this long (unmeasured)."""
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
        self._reason = ""
        self._generation = ""
        self._load: EngineLoad | None = None
        self._num_restarts = 0
        self._voices = ""
        self._port = 0
        self._lock: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._connection: RemoteConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = asyncio.Event()
        self._is_wanted.set()
        self._is_stopping = False

    def status(self) -> HostStatus:
        scheme = "grpcs" if self._settings.config.remote.certificate_file else "grpc"
        load = self._load if self._state == "ready" else None
        return HostStatus(
            id=self._name,
            address=f"{scheme}://{host_port(self._address, self._port)}" if self._port else "",
            host=socket.gethostname(),
            device=self._device_label,
            state=self._state,
            generation=self._generation,
            reason=self._reason,
            num_restarts=self._num_restarts,
            pid=self._process.pid if self._process is not None else 0,
            voices=self._voices,
            num_streams=load.num_streams if load is not None else 0,
            utilisation=load.utilisation if load is not None else 0.0,
            first_audio_ms=load.first_audio_ms if load is not None else 0.0,
            is_refusing=bool(load is not None and load.refusal),
        )

    def begin(self) -> None:
        self._task = asyncio.create_task(self._live(), name=f"host {self._name}")

    def drain(self) -> None:
        """Let the worker finish its streams, and start none until :meth:`start`."""
        if self._is_wanted.is_set():
            self._is_wanted.clear()
            self._state = "draining"
            self._signal(signal.SIGTERM)

    def start(self, settings: HostSettings) -> None:
        """Start a worker again after a drain, with these settings."""
        self._settings = settings
        self._is_wanted.set()

    async def take_voices(self, pool_url: str) -> None:
        """Fetch the missing voices; if there were some, the worker finishes its streams and is restarted."""
        self._settings = msgspec.structs.replace(self._settings, pool_url=pool_url)
        if await self._fetch_voices() and self._state == "ready":
            self._state, self._reason = "restarting", "it is started again with other voices"
            self._signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Let the worker finish its streams, and end. Safe to call twice."""
        self._is_stopping = True
        self._state = "draining"
        self._signal(signal.SIGTERM)
        self._is_wanted.set()
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=END_TIMEOUT_S)
            if not done:
                self._signal(signal.SIGKILL)
                await cancel_all(self._task)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _live(self) -> None:
        backoff = Backoff(self._clock, min_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
        while True:
            backoff.begin()
            try:
                if not self._port:
                    self._take_port()
                    await self._fetch_voices()
                reason = await self._run()
            except (OSError, CcTtsError) as error:
                reason = error.detail if isinstance(error, CcTtsError) else str(error)
            except Exception as error:  # the device would stay silent
                log.exception("host_failed")
                reason = type(error).__name__
            self._load = None
            if self._ends:
                return
            if not self._is_wanted.is_set():
                self._state, self._reason = "drained", ""
                await self._is_wanted.wait()
                self._state = "starting"
                continue
            delay_s = backoff.delay_s()
            if self._state != "restarting":
                self._num_restarts += 1
                log.error("worker_down", worker=self._name, reason=reason, restart_in_s=round(delay_s, 2))
                self._state, self._reason = "restarting", reason[:MAX_REASON_CHARS]
            await asyncio.sleep(delay_s)

    async def _run(self) -> str:
        """Start the worker and wait for its end; return the reason."""
        config = self._worker_config()
        start = worker_process.WorkerStart(
            config=config,
            listen=host_port(self._address, self._port),
            generation=self._settings.generation,
            parent=os.getpid(),
        )
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            worker_process.__name__,
            stdin=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            process_group=0,
        )
        said: list[str] = []
        reading = asyncio.create_task(_pass_on(process, said))
        connection = self._connection = self._connect(config)
        connecting = asyncio.create_task(_start(connection))
        try:
            assert process.stdin is not None
            with contextlib.suppress(ConnectionError):
                process.stdin.write(msgspec.json.encode(start))
                await process.stdin.drain()
            process.stdin.close()
            reason = await self._watch(process, connection, config.tts.worker_start_timeout_s)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            self._process = None
            connecting.cancel()
            await connection.stop()
            await asyncio.gather(reading, connecting, return_exceptions=True)
        return reason or (said[-1] if said and process.returncode else exit_reason(process.returncode or 0))

    async def _watch(
        self, process: asyncio.subprocess.Process, connection: RemoteConnection, start_timeout_s: float
    ) -> str:
        """Stay until the process has ended, or is to be killed for the reason that is returned."""
        silence, ending = (Watchdog(self._clock, max_step_s=2 * LOOK_INTERVAL_S) for _ in range(2))
        was_ready = False
        exited = asyncio.create_task(process.wait())
        try:
            while not (await asyncio.wait({exited}, timeout=LOOK_INTERVAL_S))[0]:
                is_ready = connection.state is ProcessState.READY
                was_ready = was_ready or is_ready
                if is_ready and self._state == "starting":
                    self._state = "ready"
                silence.count(owed=not is_ready)
                ending.count(owed=self._is_ending)
                if ending.seconds > END_TIMEOUT_S:
                    return "it did not end"
                limit_s = HANG_TIMEOUT_S if was_ready else start_timeout_s
                if silence.seconds > limit_s and not self._is_ending:
                    return f"it does not answer: {connection.reason}"
        finally:
            exited.cancel()
        return ""

    @property
    def _ends(self) -> bool:  # mypy keeps an attribute narrowed over an await
        return self._is_stopping

    @property
    def _is_ending(self) -> bool:
        return self._is_stopping or not self._is_wanted.is_set() or self._state in ("draining", "restarting")

    def _worker_config(self) -> Config:
        config = self._settings.config
        tts = replace(config.tts, devices=(self._device,), workers=())
        if self._settings.ships_voices:
            tts = replace(tts, voices_dir=str(self._voice_folder))
        if self._state == "restarting":
            self._state = "starting"
        return replace(config, tts=tts)

    def _connect(self, config: Config) -> RemoteConnection:
        def take(message: Message, _payload: bytes) -> None:
            if isinstance(message, EngineLoad):
                self._load = message

        def ready(build: Mapping[str, str]) -> None:
            self._generation = build.get("generation", "")

        return RemoteConnection(
            self._name,
            WorkerEndpoint(self._address, self._port, is_tls=bool(config.remote.certificate_file)),
            remote=config.remote,
            engine=engine_names(config.tts)[0],
            clock=self._clock,
            on_message=take,
            on_down=lambda _reason: None,
            on_ready=ready,
        )

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

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _start(connection: RemoteConnection) -> None:
    with contextlib.suppress(ProcessFailed):  # the connection keeps trying
        await connection.start()


async def _pass_on(process: asyncio.subprocess.Process, said: list[str]) -> None:
    """Copy the worker's log to our standard error, and remember its last words before it exits."""
    assert process.stderr is not None
    with contextlib.suppress(ValueError):  # a line without end
        async for line in process.stderr:
            text = line.decode("utf-8", "replace").rstrip()
            if text.startswith(worker_process.SAYS_WHY):
                said[:] = [text.removeprefix(worker_process.SAYS_WHY)]
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - lines of the log


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
