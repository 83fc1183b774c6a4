"""The state of the pool: the answers of the hosts, and the reports of the nodes. Nothing of it is stored."""

import asyncio
from collections import Counter
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.cluster.leases import TenantLeases
from cc_tts.cluster.messages import Leases, Node, NodeReport, Nodes, Worker, Workers
from cc_tts.errors import CcTtsError, ProcessFailed
from cc_tts.metrics import Encode, encode_text
from cc_tts.pool.hints import ScaleHints
from cc_tts.pool.hosts import HostStatus
from cc_tts.pool.ray_hosts import RayHosts
from cc_tts.pool.voices import VoiceFiles, VoiceFolder
from cc_tts.processes.tasks import cancel_all

LOOK_INTERVAL_S: Final = 1.0  # unmeasured
NODE_TIMEOUT_S: Final = 10.0
"""A node that has not reported for this long is no longer shown (unmeasured)."""
VOICES_INTERVAL_S: Final = 10.0  # unmeasured
NOT_LOOKED: Final = "the hosts of the cluster have not been looked at yet"

log = logs.get(__name__)


class PoolState:
    """Polls hosts, collects the reports of nodes, and wakes the watchers. Runs on: the event loop."""

    def __init__(
        self,
        hosts: RayHosts,
        *,
        clock: Clock,
        first_audio_target_ms: float,
        voice_folder: VoiceFolder | None = None,
        leases: TenantLeases | None = None,
    ) -> None:
        self.hosts = hosts
        self.voice_folder = voice_folder
        self._clock = clock
        self._leases = leases
        self._hints = ScaleHints(clock, first_audio_target_ms=first_audio_target_ms)
        self._nodes: dict[str, tuple[int, Node]] = {}
        self._statuses: tuple[HostStatus, ...] = ()
        self._watchers: set[asyncio.Event] = set()
        self._voices = VoiceFiles(())
        self._voices_ns: int | None = None
        self._task: asyncio.Task[None] | None = None
        self.workers: Workers | None = None
        """``None`` until the hosts were looked at once: a server would take none for none at all."""
        self.nodes = Nodes(())
        self.registry = registry = CollectorRegistry()
        self._num_workers = Gauge("cctts_pool_workers", "Workers, by state.", ["state"], registry=registry)
        self._num_nodes = Gauge("cctts_pool_nodes", "Line nodes that report.", registry=registry)
        self._wanted_workers = Gauge("cctts_pool_wanted_workers", "Workers that there should be.", registry=registry)
        self._wanted_nodes = Gauge("cctts_pool_wanted_nodes", "Line nodes that there should be.", registry=registry)

    @property
    def not_ready_because(self) -> str | None:
        """Why nothing could be spoken now; ``None`` while a worker is ready."""
        if self.workers is None:
            return NOT_LOOKED
        if any(status.state == "ready" for status in self._statuses):
            return None
        states = Counter(status.state for status in self._statuses)
        return "no worker is ready: " + (
            ", ".join(f"{num} {state}" for state, num in states.items()) or "there is none"
        )

    def start(self) -> None:
        self._task = asyncio.create_task(self._live(), name="look after hosts")

    async def ended(self) -> None:
        """Wait for its end; raises ``ProcessFailed`` if the hosts are lost for good."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stop polling; the workers continue."""
        await cancel_all(self._task)

    def watch(self) -> asyncio.Event:
        """An event that is set with every change, until :meth:`unwatch`."""
        event = asyncio.Event()
        event.set()
        self._watchers.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        """End what :meth:`watch` began."""
        self._watchers.discard(event)

    def take(self, report: NodeReport) -> Leases | None:
        """Take a report of a node; return its shares, if limits are divided."""
        name = report.node.name
        if name not in self._nodes:
            log.info("node_joined", node=name)
        self._nodes[name] = (self._clock.now_ns(), report.node)
        if self._leases is None:
            return None
        self._leases.report(name, report.tenants)
        return self._leases.shares(name)

    def view(self) -> dict[str, object]:
        """Return nodes, workers with their hosts, and how many of both there should be."""
        return {
            "nodes": self.nodes.nodes,
            "workers": self._statuses,
            "wanted_workers": self._hints.wanted_workers,
            "wanted_nodes": self._hints.wanted_nodes,
        }

    def render(self, encode: Encode = encode_text) -> bytes:
        """The series, in the Prometheus text format if no other is named."""
        self._num_workers.clear()
        for status in self._statuses:
            self._num_workers.labels(state=status.state).inc()
        self._num_nodes.set(len(self.nodes.nodes))
        self._wanted_workers.set(self._hints.wanted_workers)
        self._wanted_nodes.set(self._hints.wanted_nodes)
        return encode(self.registry)

    async def voice_files(self) -> VoiceFiles:
        now_ns = self._clock.now_ns()
        if self.voice_folder is not None and (
            self._voices_ns is None or now_ns - self._voices_ns > VOICES_INTERVAL_S * NS_PER_S
        ):
            self._voices_ns = now_ns
            self._voices = await asyncio.to_thread(self.voice_folder.files)
        return self._voices

    async def _live(self) -> None:
        while True:
            try:
                await self.poll()
            except ProcessFailed:
                raise
            except Exception:  # the next poll may succeed
                log.exception("look_failed")
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def poll(self) -> None:
        """Check hosts, nodes and voices once."""
        self._statuses = tuple(sorted(await self.hosts.poll(), key=lambda status: status.id))
        limit_ns = self._clock.now_ns() - NODE_TIMEOUT_S * NS_PER_S
        for name in [name for name, (heard_ns, _) in self._nodes.items() if heard_ns < limit_ns]:
            del self._nodes[name]
            log.warning("node_gone", node=name)
        nodes = Nodes(tuple(node for _, (_, node) in sorted(self._nodes.items())))
        workers = Workers(tuple(_worker(status) for status in self._statuses if status.generation))
        self._hints.poll(self._statuses, nodes.nodes)
        if self.workers is not None and not workers.workers:
            workers = self.workers  # servers see by themselves which of them answer
        if (nodes, workers) != (self.nodes, self.workers):
            self.nodes, self.workers = nodes, workers
            for event in self._watchers:
                event.set()
        await self._ship_voices()

    async def _ship_voices(self) -> None:
        """Update one host after the other, while all others are ready, since its worker restarts."""
        if self.voice_folder is None:
            return
        digest = (await self.voice_files()).digest
        behind = [status for status in self._statuses if status.voices != digest and status.state == "ready"]
        if behind and all(status.state in ("ready", "drained") for status in self._statuses):
            try:
                await self.hosts.take_voices(behind[0].id)
            except CcTtsError as error:
                log.warning("voices_not_shipped", worker=behind[0].id, detail=error.detail)


def _worker(status: HostStatus) -> Worker:
    """Return a worker as servers see it. A restarting worker stays in the list: its servers stay connected or reconnect by
    themselves.
    """
    return Worker(
        address=status.address,
        generation=status.generation,
        device=status.device,
        host=status.host,
        draining=status.state in ("draining", "drained"),
    )
