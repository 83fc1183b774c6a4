"""The hosts of workers as actors of a Ray cluster: one a device, detached and named, so that any pool finds them.

Ray starts an actor again elsewhere when its machine is lost and another one has a free device. No
other package imports ray. Runs on: the event loop; what asks Ray runs on a thread.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock, MonotonicClock
from cc_tts.config.schema import Config
from cc_tts.errors import UNREADABLE, ConfigError, ProcessFailed
from cc_tts.pool.hosts import HostSettings, HostStatus, WorkerNotFound
from cc_tts.pool.worker_host import END_TIMEOUT_S, WorkerHost

NAMESPACE: Final = "cc-tts"
RECONCILE_INTERVAL_S: Final = 5.0  # unmeasured
LOOK_TIMEOUT_S: Final = 0.8  # unmeasured
HOST_TIMEOUT_S: Final = 4.0
"""A host that has not answered for this long is not shown to servers (unmeasured)."""
ASK_TIMEOUT_S: Final = 5.0  # unmeasured
DOWN_MARGIN_S: Final = 10.0  # unmeasured
CPU_RESOURCE: Final = "tts"
"""The resource that a machine without GPUs offers: `ray start --resources='{"tts": 1}'`."""

log = logs.get(__name__)


class HostActor:
    """A :class:`WorkerHost` in a process of Ray, which runs it on an event loop, as one of its methods is asynchronous."""

    def __init__(self, name: str, settings: bytes, *, address: str, has_gpu: bool) -> None:
        import ray

        found = msgspec.json.decode(settings, type=HostSettings)
        logs.configure(level=found.config.log.level, json=found.config.log.json, process="worker")
        gpus = ray.get_gpu_ids() if has_gpu else []
        self._host = WorkerHost(
            name,
            found,
            address=address or _node_address(ray),
            device="cuda:0" if gpus else "cpu",  # CUDA_VISIBLE_DEVICES leaves it that one
            device_label=f"cuda:{gpus[0]}" if gpus else "cpu",
            clock=MonotonicClock(),
        )
        self._host.begin()
        self._taking: asyncio.Task[None] | None = None

    def status(self) -> bytes:
        """Return the status; see :class:`HostStatus`."""
        return msgspec.json.encode(self._host.status())

    def drain(self) -> None:
        """Drain the worker; see :class:`WorkerHost`."""
        self._host.drain()

    def start(self, settings: bytes) -> None:
        """Start the worker; see :class:`WorkerHost`."""
        self._host.start(msgspec.json.decode(settings, type=HostSettings))

    def take_voices(self, pool_url: str) -> None:
        """See :class:`WorkerHost`. Does not wait for it."""
        self._taking = asyncio.create_task(self._host.take_voices(pool_url))

    async def stop(self) -> None:
        """Stop the worker; see :class:`WorkerHost`."""
        await self._host.stop()


def connect(config: Config) -> bool:
    """Join the Ray cluster, or start a node that ends with this process; returns whether it is one. Raises
    ``ConfigError`` if ray is not installed, the cluster cannot be reached or does not know our token.
    """
    address = config.pool.ray_address or os.environ.get("RAY_ADDRESS", "") or "local"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _choose_authentication(is_own=address == "local")
    try:
        import ray
    except ImportError:
        raise ConfigError("cc-tts pool needs ray: pip install -r requirements/ray.txt or 'WHEEL[ray]'") from None
    options: dict[str, Any] = {}
    if address == "local":
        options = {"resources": {CPU_RESOURCE: 1}, "include_dashboard": False}
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            configure_logging=False,
            log_to_driver=False,
            **options,
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(f"the Ray cluster at {address} cannot be used: {str(error)[:300]}") from None
    return address == "local"


def own_address() -> str:
    """Return where this machine is reached in the cluster."""
    import ray

    return _node_address(ray)


def _choose_authentication(*, is_own: bool) -> None:
    """Ray's token authentication is on unless ``RAY_AUTH_MODE`` says otherwise."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") != "token":
        return
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return
    if is_own:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    elif not Path("~/.ray/auth_token").expanduser().is_file():
        raise ConfigError(
            "the token of the Ray cluster is missing: set RAY_AUTH_TOKEN as for `ray start`, or RAY_AUTH_MODE=disabled "
            "where nobody else reaches the cluster"
        )


class RayHosts:
    """Places workers and looks after them. :func:`connect` comes before; ``is_own`` is what it returned."""

    def __init__(self, config: Config, *, pool_url: str, generation: str = "", is_own: bool, clock: Clock) -> None:
        self._address = "127.0.0.1" if is_own else ""
        self._config = config
        self._pool_url = pool_url
        self._generation = generation
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "ray")
        self._actors: dict[str, Any] = {}
        self._asked: dict[str, Any] = {}
        self._heard: dict[str, tuple[int, HostStatus]] = {}
        self._reconciled_ns: int | None = None

    async def poll(self) -> Sequence[HostStatus]:
        """Ask every known host for its status; make one for each device that has none. Raises ``ProcessFailed`` if the
        connection to Ray is lost for good.
        """
        found: Sequence[HostStatus] = await self._on_thread(self._look)
        return found

    async def drain(self, worker: str) -> None:
        """Let a worker finish its streams and stay stopped until :meth:`start`. Raises ``WorkerNotFound``."""
        await self._on_thread(lambda: self._ask(worker, "drain"))

    async def start(self, worker: str) -> None:
        """Start a drained worker again, with the pool's present configuration. Raises ``WorkerNotFound``."""
        await self._on_thread(lambda: self._ask(worker, "start", self._settings()))

    async def take_voices(self, worker: str) -> None:
        """Make a host fetch the voices that it lacks, and restart its worker with them. Raises ``WorkerNotFound``."""
        await self._on_thread(lambda: self._ask(worker, "take_voices", self._pool_url))

    def down(self) -> int:
        """Let every worker finish its streams, and remove the hosts; return their number. Blocks."""
        import ray

        self._find()
        stopping = [actor.stop.remote() for actor in self._actors.values()]
        if stopping:
            ray.wait(stopping, num_returns=len(stopping), timeout=END_TIMEOUT_S + DOWN_MARGIN_S)
        for actor in self._actors.values():
            ray.kill(actor, no_restart=True)
        return len(stopping)

    async def _on_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._connected, work)

    @staticmethod
    def _connected(work: Callable[[], Any]) -> Any:
        """Call a function of Ray, if connected; without a connection Ray would start a node of its own."""
        import ray

        if not ray.is_initialized():
            raise ProcessFailed("the connection to the Ray cluster is lost")
        return work()

    def _settings(self) -> bytes:
        config = self._config
        shown = replace(Config(), tts=config.tts, remote=config.remote, log=config.log, pool=config.pool)
        settings = HostSettings(
            config=shown,
            pool_url=self._pool_url,
            ships_voices=bool(config.tts.voices_dir),
            generation=self._generation,
        )
        return msgspec.json.encode(settings)

    def _look(self) -> Sequence[HostStatus]:
        import ray

        now_ns = self._clock.now_ns()
        timeout_s = ASK_TIMEOUT_S if self._reconciled_ns is None else LOOK_TIMEOUT_S  # all of them, at first
        if self._reconciled_ns is None or now_ns - self._reconciled_ns > RECONCILE_INTERVAL_S * NS_PER_S:
            self._reconciled_ns = now_ns
            self._find()
            self._make()
        for name, actor in self._actors.items():
            if name not in self._asked:
                self._asked[name] = actor.status.remote()
        if self._asked:
            waiting = list(self._asked.values())
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=timeout_s)
            answered = {ref: name for name, ref in self._asked.items() if ref in ready}
            for ref, name in answered.items():
                del self._asked[name]
                try:
                    status = msgspec.json.decode(ray.get(ref), type=HostStatus)
                except (ray.exceptions.RayError, *UNREADABLE) as error:
                    log.warning("host_not_heard", worker=name, detail=type(error).__name__)
                    continue
                self._heard[name] = (self._clock.now_ns(), status)
        limit_ns = self._clock.now_ns() - HOST_TIMEOUT_S * NS_PER_S
        self._heard = {name: heard for name, heard in self._heard.items() if heard[0] > limit_ns}
        return [status for _, status in self._heard.values()]

    def _find(self) -> None:
        import ray

        found: dict[str, Any] = {}
        for name in sorted(ray.util.list_named_actors()):
            if name.startswith("worker-"):
                try:
                    found[name] = ray.get_actor(name)
                except ValueError:  # the actor has just gone
                    continue
        self._actors = found
        self._asked = {name: ref for name, ref in self._asked.items() if name in found}

    def _make(self) -> None:
        """Make a host for every device without one. Hosts that wait for a device count as existing."""
        import ray

        config = self._config
        nodes = [node["Resources"] for node in _nodes(ray) if node["Alive"]]
        is_cpu = config.tts.engine != "cosyvoice2" or config.tts.devices == ("cpu",)
        resource = CPU_RESOURCE if is_cpu or not any("GPU" in node for node in nodes) else "GPU"
        num_devices = int(sum(node.get(resource, 0) for node in nodes))
        free = (f"worker-{number}" for number in range(num_devices) if f"worker-{number}" not in self._actors)
        for name in list(free)[: max(0, num_devices - len(self._actors))]:
            has_gpu = resource == "GPU"
            options: dict[str, Any] = {"num_gpus": 1} if has_gpu else {"resources": {resource: 1}}
            actor = ray.remote(HostActor).options(
                name=name,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=4,
                scheduling_strategy="SPREAD",
                **options,
            )
            self._actors[name] = actor.remote(name, self._settings(), address=self._address, has_gpu=has_gpu)
            log.info("host_placed", worker=name, resource=resource)

    def _ask(self, worker: str, method: str, *arguments: object) -> None:
        import ray

        if worker not in self._actors:
            raise WorkerNotFound(f"no worker is called {worker[:64]!r}; there are {', '.join(self._actors) or 'none'}")
        try:
            ray.get(getattr(self._actors[worker], method).remote(*arguments), timeout=ASK_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            raise ProcessFailed(f"the host of {worker} does not answer: {type(error).__name__}") from None


def _node_address(ray: Any) -> str:
    own = ray.get_runtime_context().get_node_id()
    return next(str(node["NodeManagerAddress"]) for node in _nodes(ray) if node["NodeID"] == own)


def _nodes(ray: Any) -> list[dict[str, Any]]:
    return list(ray.nodes())
