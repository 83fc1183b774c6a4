"""One worker from the server's side: its state, its abilities, its load and its streams. The worker is a child process, or
is reached over the network.

A worker that dies fails its streams with a typed error and is started again. A worker stalls when it owes audio to a stream
and has given none to any for ``tts.stall_timeout_ms``. Owed is what a reader waits for after the text is complete and the
audio given before has been played. A stalled worker that leaves pings unanswered is started again. One that answers them is
late, as a process on a busy machine is: it goes on, its streams move to where else they can be spoken, and it is started
again only after ``hung_factor`` times as long. Runs on: the event loop.
"""

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from cc_tts import __version__, logs
from cc_tts.clock import NS_PER_MS, Clock, ms_between
from cc_tts.engines.engine_core import EngineDescription, EngineLoad, StreamRequest
from cc_tts.engines.remote.pick import WorkerCapacity, capacity_of
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import (
    FROM_WORKER,
    CancelStream,
    EndText,
    PlaybackProgress,
    PushText,
    RefreshVoices,
    StreamEnded,
    StreamFailed,
    WorkerSettings,
)
from cc_tts.engines.worker.spans import StreamSpans
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded, ProcessFailed
from cc_tts.media.listener_clock import ListenerClock
from cc_tts.metrics import Metrics
from cc_tts.processes import supervisor
from cc_tts.processes.channel import Message
from cc_tts.processes.peer import STOPPED, Peer, ProcessState
from cc_tts.processes.supervisor import RESPONSE_TIMEOUT_S, Supervisor, python_child
from cc_tts.processes.watchdog import Watchdog
from cc_tts.voices.catalog import VoiceIndex
from cc_tts.voices.voice import Voice

RETRY_AFTER_S: Final = 2
"""``Retry-After`` while a worker restarts, s (unmeasured)."""
DESCRIPTION_TIMEOUT_S: Final = 10.0
"""The time from ``Ready`` to the description and the first report (unmeasured)."""
REFRESH_TIMEOUT_S: Final = 60.0
"""The time in which a worker loads new voices (unmeasured)."""
HEARTBEAT_TIMEOUT_S: Final = 60.0
"""One step of the engine may take long on a machine without a GPU (unmeasured)."""
STALL_LOOK_S: Final = 0.2
"""The interval of checking open streams (unmeasured)."""
SLOW_ENGINE_FACTOR: Final = 3.0
"""An engine whose predicted first audio takes several seconds (without a GPU) may be silent for this many times as long
(unmeasured).
"""
HUNG_FACTOR: Final = 5.0
"""A worker that answers pings counts as hung after this many times the stall timeout; unmeasured."""
UNANSWERED_SHARE: Final = 0.5
"""A worker that leaves a ping unanswered for this share of the stall timeout does not run (unmeasured)."""
LATE_PATIENCE_S: Final = 1.0
"""The time that the next stream waits for a worker that was found late and has delivered nothing since, s (unmeasured)."""
TAKEN_INTERVAL_MS: Final = 100.0
"""The interval of the reports to the worker about how much was taken, ms of audio (unmeasured)."""

NO_LOAD: Final = EngineLoad(num_streams=0, first_audio_ms=0.0, utilisation=0.0, room=0)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""An unpaired surrogate, which UTF-8 and so the channel cannot carry."""

log = logs.get(__name__)


class WorkerLost(EngineFailed):
    """The worker ended, hung, or cannot be reached; the stream itself was in order."""


MakeProcess = Callable[[Callable[[Message, bytes], None], Callable[[str], None]], Peer]
"""Makes the carrier of messages to a worker: a :class:`Supervisor`, or a connection to another machine. Its arguments are
the receiver of the worker's messages, and the function that is called with the reason when the worker is down.
"""


class OpenStream(ABC):
    def __init__(self, stream_id: int, link: "WorkerLink", rate_hz: int) -> None:
        self.stream_id = stream_id
        self._link = link
        self._rate_hz = rate_hz
        self._listener = ListenerClock()
        self.buffered_ms: float | None = None
        """The audio that the listener had not played at its last report; ``None`` if there may be no listener."""
        self._is_text_whole = False
        self._is_over = False
        self.silence = Watchdog(link.clock, max_step_s=2 * STALL_LOOK_S)
        """Counts for how long audio has been owed; see :meth:`poll`."""

    @property
    @abstractmethod
    def can_move(self) -> bool:
        """Whether it could be spoken elsewhere if it broke off."""

    @property
    @abstractmethod
    def _is_waited_for(self) -> bool:
        """Whether all audio was taken and a reader waits for more."""

    @abstractmethod
    def deliver(self, chunk: SpeechChunk) -> None:
        """Take audio that came."""

    @abstractmethod
    def over(self, failure: CcTtsError | None) -> None:
        """Nothing more will come."""

    def poll(self) -> bool:
        """Whether audio is owed: the listener has nothing left, and only the engine can help. Counts for how long."""
        is_dry = self._listener.left_ms(self._link.now_ms) <= 0.0
        is_owed = self._is_text_whole and is_dry and self._is_waited_for
        self.silence.count(owed=is_owed)
        return is_owed

    def break_off(self, failure: CcTtsError | None) -> None:
        """Free its resources in the worker, then call :meth:`over`."""
        if self._link.streams.pop(self.stream_id, None) is not None:
            self._link.send(CancelStream(self.stream_id))
        self.over(failure)


class WorkerStream(OpenStream):
    """One utterance in a worker; see ``tts.engine.SpeechStream``."""

    def __init__(self, stream_id: int, link: "WorkerLink", rate_hz: int, is_elsewhere: Callable[[], bool]) -> None:
        super().__init__(stream_id, link, rate_hz)
        self._is_elsewhere = is_elsewhere
        self.spans = StreamSpans.begin(link.name)
        self._queue: deque[SpeechChunk] = deque()
        self._news = asyncio.Event()
        self._failure: CcTtsError | None = None
        self._taken_ms = 0.0
        self._reported_ms = 0.0
        self._is_read = False
        self._asked_ns: int | None = None
        """When the first text was pushed."""
        self._has_audio = False
        self._is_cancelled = False

    @property
    def can_move(self) -> bool:
        return self._is_elsewhere()

    @property
    def _is_waited_for(self) -> bool:
        return self._is_read and not self._queue

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk. Never blocks."""
        if self._asked_ns is None:
            self._asked_ns = self._link.clock.now_ns()
        self._send(PushText(self.stream_id, _SURROGATE.sub(" ", spoken_text), text_chunk_index))

    def end(self) -> None:
        """No more text will come."""
        self._is_text_whole = True
        self._send(EndText(self.stream_id))

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """Note how much audio the listener's side holds that is not played yet, ms."""
        self.buffered_ms = buffered_ms
        self._listener.holds(self._link.now_ms, buffered_ms)

    async def __aiter__(self) -> AsyncIterator[SpeechChunk]:
        while True:
            if self._queue:
                chunk = self._queue.popleft()
                self._taken_ms += chunk.duration_ms
                if self._taken_ms - self._reported_ms >= TAKEN_INTERVAL_MS or not self._queue:
                    self._reported_ms = self._taken_ms
                    self._send(PlaybackProgress(self.stream_id, self._taken_ms, self.buffered_ms))
                yield chunk
            elif self._failure is not None:
                raise self._failure
            elif self._is_over:
                return
            else:
                self._news.clear()
                self._is_read = True
                try:
                    await self._news.wait()
                finally:
                    self._is_read = False

    async def cancel(self) -> None:
        """Stop now: frees everything. The iteration ends. Safe to call twice and after the end."""
        self._queue.clear()
        self._is_cancelled = True
        self.break_off(None)

    def deliver(self, chunk: SpeechChunk) -> None:
        """Take audio that came."""
        if self._asked_ns is not None and not self._has_audio and chunk.data:
            self._has_audio = True
            self._link.count_first_audio(ms_between(self._asked_ns, self._link.clock.now_ns()))
        if self.spans is not None and chunk.data:
            self.spans.audio(chunk, self._asked_ns)
        chunk.rate_hz = self._rate_hz
        self._queue.append(chunk)
        self._news.set()

    def over(self, failure: CcTtsError | None) -> None:
        """Nothing more will come: queued audio is still delivered, then ``failure`` is raised if there is one."""
        if not self._is_over:
            self._is_over, self._failure = True, failure
            result = "cancelled" if self._is_cancelled else _result(failure)
            self._link.count_end(result)
            if self.spans is not None:
                self.spans.over(result)
        self._news.set()

    def _send(self, message: Message) -> None:
        if not self._is_over:
            self._link.send(message)


class WorkerLink:
    def __init__(
        self,
        name: str,
        make_process: MakeProcess,
        *,
        clock: Clock,
        metrics: Metrics,
        stall_timeout_ms: float,
        hung_factor: float = HUNG_FACTOR,
        load_metrics: Metrics | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._on_change = on_change
        """Called with each report, and when the worker is down."""
        self.clock = clock
        self._stall_timeout_ms = stall_timeout_ms
        self._hung_factor = hung_factor
        """A worker that answers pings counts as hung after this many times the stall timeout."""
        self._has_given = False
        self._is_late = False
        """Whether it was found late and has delivered nothing since."""
        self._silence = Watchdog(clock, max_step_s=2 * STALL_LOOK_S)
        """The time for which audio was owed and none was delivered."""
        self._watch: asyncio.Task[None] | None = None
        self._metrics = metrics
        self._load_metrics = load_metrics or metrics
        """The metrics of its load and its streams. A worker that only helps out has separate ones."""
        self.streams: dict[int, OpenStream] = {}
        self._usable = asyncio.Event()
        self._described = asyncio.Event()
        """Set when it has described its voices since the last request."""
        self._num_opened_since_report = 0
        self.description: EngineDescription | None = None
        self._voices = VoiceIndex()
        self.load: EngineLoad | None = None
        self.down_reason: str | None = None
        self.is_leaving = False
        """Whether no new streams are opened in it; the open ones are completed."""
        self.identity = ""
        """Only workers on other machines have one; another identity sounds different."""
        self.generation = __version__
        self.device = ""
        self.process = make_process(self._on_message, self._on_down)

    @property
    def now_ms(self) -> float:
        """The current time, by the clock of its listeners."""
        return self.clock.now_ns() / NS_PER_MS

    @property
    def is_ready(self) -> bool:
        """Whether streams can be opened."""
        return self.process.state is ProcessState.READY and self._usable.is_set() and not self.is_leaving

    @property
    def capacity(self) -> WorkerCapacity | None:
        """Its capacity for a stream that is opened now; ``None`` if none can be opened."""
        if not self.is_ready or self.load is None:
            return None
        return capacity_of(self.load, num_opened=self._num_opened_since_report, generation=self.generation)

    @property
    def room(self) -> int:
        """How many streams it would still accept."""
        return self.capacity.room if self.capacity is not None else 0

    def find_voice(self, voice_id: str) -> Voice | None:
        """Return its voice for this id. It keeps its voices while it restarts."""
        return self._voices.find(voice_id)

    def has_voice(self, voice: Voice) -> bool:
        found = self.find_voice(voice.id)
        return found is not None and found.is_of_same_model(voice)

    async def start(self) -> None:
        """Start the process and wait for its description; raises ``ProcessFailed`` with the reason if it does not start."""
        await self.process.start()
        try:
            await self.described()
        except ProcessFailed:
            await self.process.stop()
            raise

    async def described(self) -> None:
        """Wait for the description and the first report; raises ``ProcessFailed`` if they do not come."""
        try:
            async with asyncio.timeout(DESCRIPTION_TIMEOUT_S):
                await self._usable.wait()
        except TimeoutError:
            raise ProcessFailed(f"the {self.name} process started but did not say what it can do") from None

    def forget(self) -> None:
        """Remove its values from the metrics, since it will not return."""
        for gauge, labels, _ in self._gauges(NO_LOAD):
            gauge.remove(self.name, *labels)

    def _gauges(self, load: EngineLoad) -> list[tuple[Any, tuple[str, ...], float]]:
        """Return the gauges of a load, each with its labels after the worker's and its value."""
        metrics = self._load_metrics
        return [
            (metrics.engine_streams, (), load.num_streams),
            (metrics.engine_room, (), load.room),
            (metrics.engine_utilisation, (), load.utilisation),
            (metrics.engine_first_audio, (), load.first_audio_ms / 1000),
            (metrics.engine_slots, ("used",), load.slots_used),
            (metrics.engine_slots, ("free",), load.slots_total - load.slots_used),
            (metrics.engine_pages, ("used",), load.pages_used),
            (metrics.engine_pages, ("free",), load.pages_total - load.pages_used),
        ]

    async def refresh_voices(self) -> None:
        """Have it look for voices again, and wait a while for the result. A worker that is down looks when it starts."""
        if not self.is_ready:
            return
        self._described.clear()
        self.send(RefreshVoices())
        try:
            async with asyncio.timeout(REFRESH_TIMEOUT_S):
                await self._described.wait()
        except TimeoutError:
            log.warning("voices_not_refreshed", worker=self.name, timeout_s=REFRESH_TIMEOUT_S)

    def open(
        self, stream_id: int, voice: Voice, manner: tuple[float, str], *, is_elsewhere: Callable[[], bool]
    ) -> WorkerStream:
        """Open a stream in it, with a speed and instructions. ``is_elsewhere``: whether another worker or engine could speak
        it.
        """
        stream = WorkerStream(stream_id, self, voice.rate_hz, is_elsewhere)
        traceparent = "" if stream.spans is None else stream.spans.traceparent
        self.begin(stream, StreamRequest(stream_id, voice.id, *manner, traceparent))
        return stream

    def begin(self, stream: OpenStream, request: StreamRequest) -> None:
        """Send the request of a stream and deliver its audio to it."""
        self.send(request)
        self.streams[stream.stream_id] = stream
        self._num_opened_since_report += 1
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_streams(), name=f"watch the streams of {self.name}")

    async def _watch_streams(self) -> None:
        """While streams are open, look for audio that has been owed for too long."""
        if not self._is_late:
            self._silence.heard()
        while self.streams:
            await asyncio.sleep(STALL_LOOK_S)
            owed = [stream for stream in self.streams.values() if stream.poll()]
            self._listen(is_owed=bool(owed))
            timeout_s = self._stall_timeout_s
            silent_s = self._silence.seconds
            if silent_s > timeout_s * (1.0 if self._is_unanswered(timeout_s) else self._hung_factor):
                log.error("worker_stalled", worker=self.name, num_streams=len(owed), silent_s=round(silent_s, 1))
                self.process.restart(f"no audio for {silent_s:.1f} s")
                return
            for stream in owed:
                self._look_after(stream, timeout_s)

    def _listen(self, *, is_owed: bool) -> None:
        """Count for how long no owed audio has come."""
        if self._has_given:
            self._has_given = self._is_late = False
            self._silence.heard()
        elif is_owed:
            self._silence.poll()
        else:
            self._silence.rest()

    @property
    def _stall_timeout_s(self) -> float:
        expected_ms = self.load.first_audio_ms if self.load is not None else 0.0
        return max(self._stall_timeout_ms, SLOW_ENGINE_FACTOR * expected_ms) / 1000

    def _is_unanswered(self, timeout_s: float) -> bool:
        return self.process.silent_s >= max(RESPONSE_TIMEOUT_S, UNANSWERED_SHARE * timeout_s)

    def _look_after(self, stream: OpenStream, timeout_s: float) -> None:
        """Break off a stream that has been owed audio for too long. A stream without a listener may have to
        wait for others.
        """
        is_stalled = self._silence.seconds > timeout_s or self._is_late
        silent_s = stream.silence.seconds
        patience_s = min(timeout_s, LATE_PATIENCE_S) if self._is_late else timeout_s
        if not stream.can_move:
            patience_s = timeout_s * self._hung_factor
        if silent_s <= patience_s or (stream.buffered_ms is None and not is_stalled):
            return
        log.warning("stream_stalled", worker=self.name, stream_id=stream.stream_id, silent_s=round(silent_s, 1))
        self._is_late = is_stalled
        stream.break_off(WorkerLost(f"no audio for {silent_s:.1f} s", retry_after_s=RETRY_AFTER_S))

    def send(self, message: Message) -> None:
        """Send a command. If the worker is gone, its streams fail anyway."""
        with contextlib.suppress(ProcessFailed):
            self.process.send(message)

    def fail_all(self, error: CcTtsError) -> None:
        """Break off every stream."""
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.over(error)

    def _on_message(self, message: Message, _payload: bytes) -> None:
        self._has_given |= isinstance(message, SpeechChunk | StreamEnded | StreamFailed)
        match message:
            case SpeechChunk(stream_id=stream_id):
                if (stream := self.streams.get(stream_id)) is not None:
                    stream.deliver(message)
            case StreamEnded(stream_id):
                self._over(stream_id, None)
            case StreamFailed(stream_id, code, detail, retry_after_s):
                kind = WorkerLost if message.is_worker_lost else CcTtsError.by_code.get(code, EngineFailed)
                self._over(stream_id, kind(detail, retry_after_s=retry_after_s))
            case EngineDescription():
                voices = tuple(replace(each, also_speaks=message.languages) for each in message.voices)
                self.description = msgspec.structs.replace(message, voices=voices)
                self._voices = VoiceIndex(voices, message.variants)
                self._described.set()
            case EngineLoad():  # the first one comes after the description
                self._show(message)
                self.load, self._num_opened_since_report, self.down_reason = message, 0, None
                self._usable.set()
                self._on_change()

    def _over(self, stream_id: int, failure: CcTtsError | None) -> None:
        if (stream := self.streams.pop(stream_id, None)) is not None:
            if isinstance(failure, EngineOverloaded):
                self._metrics.engine_refusals.labels(where="worker").inc()
            stream.over(failure)

    def count_first_audio(self, ms: float) -> None:
        """Record the time from a stream's first text to its first audio, ms."""
        metrics = self._load_metrics
        generation = metrics.generation_label(self.generation)
        metrics.engine_generation_first_audio.labels(generation=generation).observe(ms / 1000)

    def count_end(self, result: str) -> None:
        metrics = self._load_metrics
        generation = metrics.generation_label(self.generation)
        metrics.engine_generation_streams.labels(generation=generation, result=result).inc()

    def _show(self, load: EngineLoad) -> None:
        """Set the metrics of the load. The counters of a worker start at 0 with each process."""
        metrics, before = self._load_metrics, self.load or NO_LOAD
        for gauge, labels, value in self._gauges(load):
            gauge.labels(self.name, *labels).set(value)
        metrics.engine_not_finite.inc(max(0, load.num_not_finite - before.num_not_finite))
        metrics.engine_underruns.inc(max(0, load.num_underruns - before.num_underruns))
        for cause, count in load.num_runaways.items():
            metrics.engine_runaways.labels(cause=cause).inc(max(0, count - before.num_runaways.get(cause, 0)))

    def _on_down(self, reason: str) -> None:
        self._usable.clear()
        self.load = None
        self._is_late = False
        if self._watch is not None:
            self._watch.cancel()
        self.down_reason = reason
        self.fail_all(WorkerLost(f"the engine worker ended: {reason}", retry_after_s=RETRY_AFTER_S))
        self._load_metrics.engine_room.labels(worker=self.name).set(0)
        self._load_metrics.engine_streams.labels(worker=self.name).set(0)
        if reason != STOPPED:
            self._metrics.process_restarts.labels(process="worker").inc()
        self._on_change()


def _result(failure: CcTtsError | None) -> str:
    match failure:
        case None:
            return "spoken"
        case WorkerLost():
            return "lost"
        case EngineOverloaded():
            return "refused"
    return "failed"


def child_worker(
    name: str, settings: WorkerSettings, *, clock: Clock, on_starting: Callable[[str], None] = lambda _detail: None
) -> MakeProcess:
    is_espeak = settings.tts.engine == "espeak"  # its heartbeats are never delayed by synthesis
    patience_s = settings.tts.worker_start_timeout_s if settings.purpose == "say" else HEARTBEAT_TIMEOUT_S
    spec = python_child(
        name,
        "cc_tts.engines.worker",
        messages=FROM_WORKER,
        settings=settings,
        start_timeout_s=settings.tts.worker_start_timeout_s,
        heartbeat_timeout_s=supervisor.HEARTBEAT_TIMEOUT_S if is_espeak else patience_s,
    )
    return lambda on_message, on_down: Supervisor(
        spec, clock=clock, on_message=on_message, on_down=on_down, on_starting=on_starting
    )
