"""The workers that ``tts.workers`` names: fixed addresses, names whose addresses are looked up again and again, and those of
a pool, which :meth:`RemoteWorkers.set_pool_workers` is told.

Runs on: the event loop.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock
from cc_tts.cluster.messages import Worker
from cc_tts.config.remote import WorkerAddress, host_port, parse
from cc_tts.config.schema import Config
from cc_tts.engines.remote.connection import RemoteConnection
from cc_tts.engines.remote.wire import WorkerEndpoint
from cc_tts.engines.worker.link import MakeProcess, WorkerLink
from cc_tts.errors import ConfigError, EngineFailed, ProcessFailed
from cc_tts.metrics import Metrics
from cc_tts.processes.tasks import cancel_all

LOOK_UP_INTERVAL_S: Final = 5.0  # unmeasured
LOOK_UP_TIMEOUT_S: Final = 3.0  # unmeasured
WAIT_POLL_S: Final = 0.1  # unmeasured
MAX_DEVICE_CHARS: Final = 64  # unmeasured
WHERE_TO_LOOK: Final = "`GET /readyz` of the pool says why, `GET /v1/cluster` how each of its workers is"
WHAT_TO_CHECK: Final = "check that `cc-tts worker` runs there, the port, firewalls, and [remote] at both ends"

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""Looks up the addresses of a name; raises ``OSError``."""

log = logs.get(__name__)


async def addresses_of(host: str, port: int) -> Sequence[str]:
    """The IPv4 and IPv6 addresses of a name; raises ``OSError`` if it has none, or no name server answers."""
    async with asyncio.timeout(LOOK_UP_TIMEOUT_S):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


class RemoteWorkers:
    def __init__(self, config: Config, *, clock: Clock, metrics: Metrics, look_up: LookUp = addresses_of) -> None:
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._look_up = look_up
        self.generations: Mapping[str, float] = config.tts.generations
        """See :func:`cc_tts.engines.remote.pick.tiers`; may be replaced at any time."""
        self._names: list[WorkerAddress] = []
        self._links: dict[str, WorkerLink] = {}
        self._of_names: dict[WorkerAddress, set[str]] = {}
        self._faults: dict[str, str] = {}
        """The names that have no address, and why."""
        self._following: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._of_pool: dict[str, WorkerEndpoint] | None = None
        """The workers of the pool; ``None`` until the pool has named any."""
        self._pool_news = asyncio.Event()
        for address in map(parse, config.tts.workers):
            if address.scheme in ("dns", "pool"):
                self._names.append(address)
            else:
                self._add(str(address), WorkerEndpoint(address.host, address.port, is_tls=address.scheme == "grpcs"))

    @property
    def is_empty(self) -> bool:
        """Whether there are none, and will be none."""
        return not self._names and not self._links

    @property
    def follows_pool(self) -> bool:
        return any(name.scheme == "pool" for name in self._names)

    @property
    def links(self) -> Sequence[WorkerLink]:
        """The workers that are known now, connected or not."""
        return tuple(self._links.values())

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The workers that have been reached, with what they reported about themselves."""
        return tuple(
            Worker(address=link.name, generation=link.generation, device=link.device, draining=link.is_leaving)
            for link in self.links
            if link.description is not None
        )

    @property
    def faults(self) -> list[str]:
        """The workers that cannot be reached, and why, a sentence each."""
        of_pools = [f"{name}: {why}; {WHERE_TO_LOOK}" for name, why in self._faults.items() if name.startswith("pool:")]
        found = [
            f"the speech worker {name} cannot be used: {why}"
            for name, why in self._faults.items()
            if not name.startswith("pool:")
        ]
        for name, link in self._links.items():
            if not link.is_ready and isinstance(link.process, RemoteConnection):
                found.append(f"the speech worker {name} cannot be used: {link.process.reason}")
        return of_pools + [f"{each}; {WHAT_TO_CHECK}" for each in found]

    async def start(self, *, is_needed: bool) -> None:
        """Connect to each, and keep trying. ``is_needed``: wait for one of them for ``tts.worker_start_timeout_s``; raises
        ``ProcessFailed`` if none comes.
        """
        await asyncio.gather(*(self._start(link) for link in self.links), *map(self._refresh, self._names))
        for fault in self.faults:
            log.warning("worker_missing", detail=fault)
        if self._names:
            self._following = asyncio.create_task(self._follow_names(), name="look up speech workers")
        if not is_needed:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._config.tts.worker_start_timeout_s):
                while not any(link.is_ready for link in self.links):  # noqa: ASYNC110 - links come and go
                    await asyncio.sleep(WAIT_POLL_S)
                return
        raise ProcessFailed("; ".join(self.faults))

    async def try_once(self) -> list[str]:
        """Connect to each, or fail to; returns :attr:`faults`."""
        await self.start(is_needed=False)
        return self.faults

    async def stop(self) -> None:
        """Close the connection to every worker."""
        await cancel_all(self._following)
        await asyncio.gather(*self._leaving)
        for link in self.links:
            link.fail_all(EngineFailed("the engine was stopped"))
        await asyncio.gather(*(link.process.stop() for link in self.links))

    def set_pool_workers(self, workers: Iterable[Worker]) -> None:
        """Use these workers of the pool from now on: connect to new ones, and disconnect from draining and removed ones when
        they have no streams left. Entries that are not a worker's address are ignored.
        """
        found: dict[str, WorkerEndpoint] = {}
        for worker in workers:
            with contextlib.suppress(ConfigError):
                address = parse(worker.address)
                if address.scheme in ("grpc", "grpcs") and not worker.draining:
                    found[worker.address] = WorkerEndpoint(address.host, address.port, is_tls=address.scheme == "grpcs")
        self._of_pool = found
        self._pool_news.set()

    def _add(self, name: str, endpoint: WorkerEndpoint) -> WorkerLink:
        config = self._config

        def on_ready(build: dict[str, str]) -> None:
            link.identity = build.get("identity", "")
            link.generation = build.get("generation", "")
            link.device = build.get("device", "")[:MAX_DEVICE_CHARS]

        make: MakeProcess = lambda on_message, on_down: RemoteConnection(  # noqa: E731 - its type is the point
            name,
            endpoint,
            remote=config.remote,
            engine=config.tts.engine,
            clock=self._clock,
            on_message=on_message,
            on_down=on_down,
            on_ready=lambda build: on_ready(dict(build)),
        )
        link = self._links[name] = WorkerLink(
            name, make, clock=self._clock, metrics=self._metrics, stall_timeout_ms=config.tts.stall_timeout_ms
        )
        return link

    async def _start(self, link: WorkerLink) -> None:
        with contextlib.suppress(ProcessFailed):  # the connection keeps trying, and reports what is wrong
            await link.process.start()
            await link.described()

    async def _follow_names(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                # wait_for of Python 3.11 loses a cancellation that comes with the news
                async with asyncio.timeout(LOOK_UP_INTERVAL_S):
                    await self._pool_news.wait()
            self._pool_news.clear()
            await asyncio.gather(*map(self._refresh, self._names))

    async def _refresh(self, name: WorkerAddress) -> None:
        """Look a name up: connect to new addresses, and disconnect from removed ones when they have no streams left. If the
        look-up fails the addresses stay.
        """
        if name.scheme == "pool":
            await self._follow(name, self._of_pool)
            return
        try:
            found = await self._look_up(name.host, name.port)
        except (OSError, TimeoutError, UnicodeError) as error:
            self._faults[str(name)] = f"its addresses cannot be looked up: {error or type(error).__name__}"
            return
        is_tls = bool(self._config.remote.ca_file)
        await self._follow(
            name,
            {
                host_port(address, name.port): WorkerEndpoint(
                    address, name.port, is_tls=is_tls, certified_name=name.host
                )
                for address in found
            },
        )

    async def _follow(self, name: WorkerAddress, wanted: dict[str, WorkerEndpoint] | None) -> None:
        if not wanted and name.scheme == "pool":
            self._faults[str(name)] = (
                "the pool has named no worker yet" if wanted is None else "the pool has no worker now"
            )
        else:
            self._faults.pop(str(name), None)
        if wanted is None:
            return
        had = self._of_names.setdefault(name, set())
        for gone in had - set(wanted):
            link = self._links[gone]
            link.is_leaving = True
            if not link.streams:
                had.discard(gone)
                del self._links[gone]
                leaving = asyncio.create_task(self._leave(link), name=f"leave {gone}")
                self._leaving.add(leaving)
                leaving.add_done_callback(self._leaving.discard)
        new = []
        for key, endpoint in wanted.items():
            if key not in self._links:
                new.append(self._add(key, endpoint))
                had.add(key)
            self._links[key].is_leaving = False
        await asyncio.gather(*map(self._start, new))

    async def _leave(self, link: WorkerLink) -> None:
        await link.process.stop()
        link.forget()
        log.info("worker_left", worker=link.name)
