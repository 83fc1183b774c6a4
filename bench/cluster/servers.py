"""Servers: the production code that picks a worker, counts its own opens, tries a second one and goes on after a loss.

::

    listener ─▸ WorkerEngine.open ─▸ FailoverStream ─▸ WorkerLink ─▸ SimulatedProcess ── network ──▸ Worker
                                                        ▲                  │
                                                        └─ reports, audio ─┘

Simulated is only what carries the messages. The coroutines are run by hand, in virtual time: the event loop never gets a
turn, so the look-out for workers that stall (``WorkerLink``) does not run.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from bench.cluster.workers import Answer, Text, Worker
from bench.cluster.world import World
from cc_tts.audio import AudioFormat
from cc_tts.config.schema import TenantConfig, TtsConfig
from cc_tts.engines.engine import SpeechStream
from cc_tts.engines.engine_core import EngineLoad, StreamRequest
from cc_tts.engines.worker.client import WorkerEngine
from cc_tts.engines.worker.link import WorkerLink
from cc_tts.engines.worker.messages import CancelStream, EngineDescription, PlaybackProgress, PushText, StreamFailed
from cc_tts.metrics import Metrics
from cc_tts.processes.channel import Message
from cc_tts.processes.supervisor import ProcessState
from cc_tts.tenants.quotas import Reservation, TenantQuotas
from cc_tts.voices.voice import Voice

VOICE: Final = Voice("any", "cosyvoice2", "en", rate_hz=1000)
"""At a low rate, since its audio is all zeros."""
FORMAT: Final = AudioFormat(VOICE.rate_hz)
ONE_WAY_MS: Final = (0.1, 0.5)
"""From a server to a worker: a network of one site. Each pair has its own."""


class Listener(Protocol):
    """Who waits for the audio of a stream."""

    def drive(self) -> None:
        """Something came."""

    def worker_lost(self) -> None:
        """The worker that spoke is lost."""

    def close(self) -> None:
        """The simulation is over."""


class _NoMetrics:
    """Takes every observation and keeps none."""

    def __getattr__(self, _name: str) -> Any:
        return self

    def __call__(self, *_arguments: object, **_labels: object) -> "_NoMetrics":
        return self


NO_METRICS: Final = cast("Metrics", _NoMetrics())


class UnwatchedLink(WorkerLink):
    """A link whose metrics nobody reads, which would take most of the time."""

    def _show(self, load: EngineLoad) -> None:
        """Nowhere."""


class SimulatedProcess:
    """The network between one server and one worker. See :class:`cc_tts.engines.worker.link.WorkerProcess`."""

    def __init__(
        self,
        server: "Server",
        worker: Worker,
        one_way_ms: float,
        on_message: Callable[[Message, bytes], None],
        on_down: Callable[[str], None],
    ) -> None:
        self.state = ProcessState.STOPPED
        self.worker = worker
        self._server = server
        self._world = server.world
        self._one_way_ms = one_way_ms
        self._on_message = on_message
        self._on_down = on_down
        self._texts: dict[int, list[Text]] = {}
        """Of requests on their way."""
        self.num_reports = 0

    @property
    def silent_s(self) -> float:
        """See the contract; a loss comes by itself."""
        return 0.0

    async def start(self) -> None:
        """See the contract."""
        self.come_back()

    async def stop(self) -> None:
        """See the contract."""
        self.state = ProcessState.STOPPED

    def restart(self, reason: str) -> None:
        """Only what is not simulated asks for it."""
        raise AssertionError(reason)

    def send(self, message: Message) -> None:
        """See the contract."""
        if self.state is not ProcessState.READY:
            return
        match message:
            case StreamRequest(stream_id):
                self._texts[stream_id] = []
                self._server.opened(stream_id)
                self._world.after(self._one_way_ms, self._arrived, stream_id)
            case PushText(stream_id, text, index):
                self._texts[stream_id].append((float(text), index))
            case PlaybackProgress(stream_id, taken_ms, ahead_ms):
                self.worker.taken((self._server.number, stream_id), taken_ms, ahead_ms)
            case CancelStream(stream_id):
                self._world.after(self._one_way_ms, self.worker.cancel, (self._server.number, stream_id))

    def sync(self) -> None:
        """Take the last report of the worker, if it has arrived: reports are looked at only before a worker is picked."""
        worker = self.worker
        if self.state is not ProcessState.READY or not worker.is_up:
            return
        if worker.reported_ms + self._one_way_ms <= self._world.now_ms:
            self.num_reports = worker.num_reports
            self._on_message(worker.load, b"")

    def lost(self) -> None:
        """The server notices that the worker is gone."""
        self.state = ProcessState.BACKOFF
        self._on_down("3 pings were not answered")

    def come_back(self) -> None:
        """The connection is made, again or for the first time."""
        self.state = ProcessState.READY
        self.num_reports = self.worker.num_reports
        self._on_message(EngineDescription((VOICE,)), b"")
        self._on_message(self.worker.load, b"")

    def _arrived(self, stream_id: int) -> None:
        self.worker.take((self._server.number, stream_id), self._texts.pop(stream_id), self._reply)

    def _reply(self, stream_id: int, answers: Sequence[Answer]) -> None:
        self._world.after(self._one_way_ms, self._deliver, stream_id, answers)

    def _deliver(self, stream_id: int, answers: Sequence[Answer]) -> None:
        if self.state is not ProcessState.READY:
            return
        for message, audio_ms in answers:
            self._on_message(message, bytes(FORMAT.bytes_for_ms(audio_ms)))
        self._server.came(stream_id, may_move=any(isinstance(message, StreamFailed) for message, _ in answers))


class SimulatedWorkers:
    """See :class:`cc_tts.engines.worker.client.WorkersElsewhere`."""

    def __init__(self, links: Sequence[WorkerLink], generations: Mapping[str, float]) -> None:
        self.links = links
        self.generations = generations

    async def start(self, *, is_needed: bool) -> None:
        """Connect to all of them."""
        for link in self.links:
            await link.process.start()
            assert link.is_ready or not is_needed

    async def stop(self) -> None:
        """Nothing is open."""


class Server:
    """One server with a connection to every worker."""

    def __init__(
        self,
        world: World,
        number: int,
        workers: Sequence[Worker],
        generations: Mapping[str, float],
        tenants: Collection[str] = (),
    ) -> None:
        limits = {tenant: TenantConfig() for tenant in tenants}
        self.tenants = TenantQuotas(limits, clock=world, metrics=NO_METRICS)
        self.world = world
        self.number = number
        self.num_calls = 0
        self.processes: list[SimulatedProcess] = []
        draw = world.random(f"network of server {number}")
        links = [self._link(worker, draw.uniform(*ONE_WAY_MS)) for worker in workers]
        self.links = {worker.name: link for worker, link in zip(workers, links, strict=True)}
        self.engine = WorkerEngine(
            TtsConfig(engine="cosyvoice2"),
            (),
            metrics=NO_METRICS,
            elsewhere=SimulatedWorkers(links, generations),
            rng=world.random(f"picks of server {number}"),
        )
        self._listeners: dict[int, Listener] = {}
        self._stream_ids: dict[Listener, list[int]] = {}
        self._opening: Listener | None = None

    def _link(self, worker: Worker, one_way_ms: float) -> WorkerLink:
        def process(on_message: Callable[[Message, bytes], None], on_down: Callable[[str], None]) -> SimulatedProcess:
            made = SimulatedProcess(self, worker, one_way_ms, on_message, on_down)
            self.processes.append(made)
            return made

        link = UnwatchedLink(worker.name, process, clock=self.world, metrics=NO_METRICS, stall_timeout_ms=3000.0)
        link.generation = worker.generation
        return link

    def hold_stream(self, tenant: str) -> Reservation:
        """One more text is spoken for a tenant; raises what :meth:`TenantQuotas.hold_stream` does."""
        return self.tenants.hold_stream(tenant, lambda: self.engine.utilisation(VOICE.id))

    def open(self, call_id: str) -> SpeechStream:
        """A stream for the listener of :meth:`poll`; raises what :meth:`WorkerEngine.open` does."""
        return self.engine.open(VOICE.id, call_id=call_id)

    def poll(self, listener: Listener) -> None:
        """What is opened next is for this listener, and the reports that have come count."""
        self._opening = listener
        for process in self.processes:
            if process.num_reports != process.worker.num_reports:
                process.sync()

    def opened(self, stream_id: int) -> None:
        """A request was sent."""
        assert self._opening is not None
        self._listeners[stream_id] = self._opening
        self._stream_ids.setdefault(self._opening, []).append(stream_id)

    def came(self, stream_id: int, *, may_move: bool) -> None:
        """Something came for a stream, which ``may_move`` to another worker because of it."""
        if (listener := self._listeners.get(stream_id)) is not None:
            if may_move:
                self.poll(listener)
            listener.drive()

    def forget(self, listener: Listener) -> None:
        """The utterance is over."""
        for stream_id in self._stream_ids.pop(listener, ()):
            del self._listeners[stream_id]

    def close(self) -> None:
        """Leave no coroutine half-way."""
        for listener in self._stream_ids:
            listener.close()

    def lose(self, process: SimulatedProcess) -> None:
        """Notice that a worker is gone."""
        link = self.links[process.worker.name]
        lost = [self._listeners[stream_id] for stream_id in link.streams if stream_id in self._listeners]
        process.lost()
        for listener in lost:
            listener.worker_lost()
