"""One worker process as the server sees it: its state, what it can do, how busy it is, and the streams in it.

A worker that dies fails its streams with a typed error and is started again. So does one that stalls: it owes audio to a
stream and has given none to any for ``tts.stall_timeout_ms``. Owed is what a reader waits for after the text is complete and
the audio given before has been played. Runs on: the event loop.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

from cc_tts import logs
from cc_tts.audio import AudioFormat, PcmChunk
from cc_tts.clock import NS_PER_MS, Clock
from cc_tts.engines.engine import EngineListener, SynthesisRequest
from cc_tts.engines.stepped import EngineLoad
from cc_tts.engines.worker.messages import (
    FROM_WORKER,
    CancelStream,
    EndText,
    EngineDescription,
    LoadReport,
    OpenStream,
    PushText,
    StreamAudio,
    StreamEnded,
    StreamFailed,
    Taken,
    WorkerSettings,
)
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded, ProcessFailed
from cc_tts.processes.channel import Hello, Message
from cc_tts.processes.liveness import Silence
from cc_tts.processes.supervisor import STOPPED, ProcessState, Supervisor, python_child

RETRY_AFTER_S: Final = 2
"""``Retry-After`` while a worker restarts, s."""
DESCRIPTION_TIMEOUT_S: Final = 10.0
"""From ``Ready`` to the description and the first report."""
HEARTBEAT_TIMEOUT_S: Final = 60.0
"""One step of the engine may be long on a machine without a GPU."""
STALL_LOOK_S: Final = 0.2
"""How often open streams are looked after."""
SLOW_ENGINE_FACTOR: Final = 3.0
"""An engine that predicts a first audio of several seconds (without a GPU) may be silent for so many times that."""
TAKEN_INTERVAL_MS: Final = 100.0
"""How often the worker gets a report of what the listener's side has taken, ms of audio."""

log = logs.get(__name__)


class WorkerStream:
    """One utterance in a worker; see ``tts.engine.SpeechStream``."""

    def __init__(self, stream_id: int, worker: "WorkerLink", audio_format: AudioFormat) -> None:
        self.stream_id = stream_id
        self._worker = worker
        self._format = audio_format
        self._queue: deque[PcmChunk] = deque()
        self._news = asyncio.Event()
        self._is_over = False
        self._failure: CcTtsError | None = None
        self._taken_ms = 0.0
        self._reported_ms = 0.0
        self._buffered_ms: float | None = None
        self._is_text_whole = False
        self._is_read = False
        self._dry_ns = 0
        self.silence = Silence(worker.clock, max_step_s=2 * STALL_LOOK_S)
        """For how long it has been owed audio, while it :meth:`is_owed`."""

    def push(self, spoken_text: str, *, text_chunk_index: int) -> None:
        """Append one text chunk. Never blocks."""
        self._send(PushText(self.stream_id, spoken_text, text_chunk_index))

    def end(self) -> None:
        """No more text will come."""
        self._is_text_whole = True
        self._send(EndText(self.stream_id))

    def set_buffered_ms(self, buffered_ms: float) -> None:
        """The listener's side holds so much audio that is not played yet, ms."""
        self._buffered_ms = buffered_ms
        self._dry_ns = self._worker.clock.now_ns() + round(buffered_ms * NS_PER_MS)

    @property
    def has_listener(self) -> bool:
        """Whether it is known to be played as it comes."""
        return self._buffered_ms is not None

    def is_owed(self, now_ns: int) -> bool:
        """Whether the reader has nothing left and only the engine can help."""
        return self._is_read and self._is_text_whole and not self._queue and now_ns >= self._dry_ns

    async def __aiter__(self) -> AsyncIterator[PcmChunk]:
        while True:
            if self._queue:
                chunk = self._queue.popleft()
                self._taken_ms += chunk.duration_ms
                if self._taken_ms - self._reported_ms >= TAKEN_INTERVAL_MS or not self._queue:
                    self._reported_ms = self._taken_ms
                    self._send(Taken(self.stream_id, self._taken_ms, self._buffered_ms))
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
        if not self._is_over:
            self._send(CancelStream(self.stream_id))
            self._worker.forget(self)
        self.over(None)

    def stall(self) -> None:
        """Break off: no audio came for too long."""
        self._send(CancelStream(self.stream_id))
        self._worker.forget(self)
        self.over(EngineFailed(f"no audio for {self.silence.seconds:.1f} s", retry_after_s=RETRY_AFTER_S))

    def deliver(self, pcm: bytes, text_chunk_index: int) -> None:
        """Audio came."""
        self._queue.append(PcmChunk(self._format, pcm, text_chunk_index))
        self._news.set()

    def over(self, failure: CcTtsError | None) -> None:
        """Nothing more will come: what is queued is still given out, then ``failure`` is raised if there is one."""
        if not self._is_over:
            self._is_over, self._failure = True, failure
        self._news.set()

    def _send(self, message: Message) -> None:
        if not self._is_over:
            self._worker.send(message)


class WorkerLink:
    """One worker process and the streams in it."""

    def __init__(
        self,
        name: str,
        settings: WorkerSettings,
        *,
        clock: Clock,
        start_timeout_s: float,
        stall_timeout_ms: float,
        listener: Callable[[], EngineListener | None],
        on_starting: Callable[[str], None] = lambda _detail: None,
    ) -> None:
        self.name = name
        self.clock = clock
        self._stall_timeout_ms = stall_timeout_ms
        self._has_given = False
        self._watch: asyncio.Task[None] | None = None
        self._listener = listener
        self._streams: dict[int, WorkerStream] = {}
        self._usable = asyncio.Event()
        self._is_described = False
        self._num_opened_since_report = 0
        self.description: EngineDescription | None = None
        self.load: EngineLoad | None = None
        self.down_reason: str | None = None
        self.supervisor = Supervisor(
            python_child(
                name,
                "cc_tts.engines.worker",
                messages=FROM_WORKER,
                settings=settings,
                start_timeout_s=start_timeout_s,
                heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
            ),
            clock=clock,
            on_message=self._on_message,
            on_ready=self._on_ready,
            on_down=self._on_down,
            on_starting=on_starting,
        )

    @property
    def is_ready(self) -> bool:
        """Whether streams can be opened."""
        return self.supervisor.state is ProcessState.READY and self._usable.is_set()

    @property
    def room(self) -> int:
        """How many streams it would still take."""
        if not self.is_ready or self.load is None:
            return 0
        return max(0, self.load.room - self._num_opened_since_report)

    @property
    def num_streams(self) -> int:
        """Streams that are open here."""
        return len(self._streams)

    async def start(self) -> None:
        """Start the process and learn what it can do.

        Raises:
            ProcessFailed: it does not start; the message says why.
        """
        await self.supervisor.start()
        try:
            async with asyncio.timeout(DESCRIPTION_TIMEOUT_S):
                await self._usable.wait()
        except TimeoutError:
            await self.supervisor.stop()
            raise ProcessFailed(f"the {self.name} process started but did not say what it can do") from None

    def open(self, stream_id: int, request: SynthesisRequest, audio_format: AudioFormat) -> WorkerStream:
        """Begin a stream here."""
        stream = WorkerStream(stream_id, self, audio_format)
        self.send(OpenStream(stream_id, request.voice, request.language, request.speed))
        self._streams[stream_id] = stream
        self._num_opened_since_report += 1
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._watch_streams(), name=f"watch the streams of {self.name}")
        return stream

    async def _watch_streams(self) -> None:
        """While streams are open: fail one that is owed audio for too long; if no other got any, the worker has stalled."""
        silence = Silence(self.clock, max_step_s=2 * STALL_LOOK_S)
        while self._streams:
            await asyncio.sleep(STALL_LOOK_S)
            now_ns = self.clock.now_ns()
            for stream in self._streams.values():
                stream.silence.count(owed=stream.is_owed(now_ns))
            owed = [stream for stream in self._streams.values() if stream.is_owed(now_ns)]
            silence.count(owed=bool(owed) and not self._has_given)
            self._has_given = False
            timeout_s = self._stall_timeout_s
            if silence.seconds > timeout_s:
                log.error("worker_stalled", worker=self.name, num_streams=len(owed), silent_s=round(silence.seconds, 1))
                self.supervisor.restart(f"no audio for {silence.seconds:.1f} s")
                return
            for stream in owed:
                if stream.has_listener and stream.silence.seconds > timeout_s:
                    log.error("stream_stalled", worker=self.name, stream_id=stream.stream_id)
                    stream.stall()

    @property
    def _stall_timeout_s(self) -> float:
        expected_ms = self.load.first_audio_ms if self.load is not None else 0.0
        return max(self._stall_timeout_ms, SLOW_ENGINE_FACTOR * expected_ms) / 1000

    def send(self, message: Message) -> None:
        """Send; a worker that is gone fails its streams by itself."""
        with contextlib.suppress(ProcessFailed):
            self.supervisor.send(message)

    def forget(self, stream: WorkerStream) -> None:
        """Its audio is not wanted any more."""
        self._streams.pop(stream.stream_id, None)

    def fail_all(self, error: CcTtsError) -> None:
        """Every stream breaks off."""
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.over(error)

    def _on_message(self, message: Message, payload: bytes) -> None:
        match message:
            case StreamAudio():
                self._has_given = True
                if (stream := self._streams.get(message.stream_id)) is not None:
                    stream.deliver(payload, message.text_chunk_index)
            case StreamEnded():
                self._has_given = True
                self._over(message.stream_id, None)
            case StreamFailed():
                self._has_given = True
                self._over(message.stream_id, _error(message))
            case LoadReport():
                self._on_load(message.load)
            case EngineDescription():
                self.description = message
                self._is_described = True

    def _over(self, stream_id: int, failure: CcTtsError | None) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            if isinstance(failure, EngineOverloaded):
                self._notify(lambda listener: listener.on_refusal("worker"))
            stream.over(failure)

    def _on_load(self, load: EngineLoad) -> None:
        self.load, self._num_opened_since_report = load, 0
        if self._is_described:
            self.down_reason = None
            self._usable.set()
        self._notify(lambda listener: listener.on_engine_load(self.name, load))

    def _on_ready(self, _hello: Hello) -> None:
        self._usable.clear()
        self._is_described = False

    def _on_down(self, reason: str) -> None:
        self._usable.clear()
        self._is_described = False
        self.load = None
        if self._watch is not None:
            self._watch.cancel()
        self.down_reason = reason
        self.fail_all(EngineFailed(f"the engine worker ended: {reason}", retry_after_s=RETRY_AFTER_S))
        if reason != STOPPED:
            self._notify(lambda listener: listener.on_worker_down(self.name, reason))

    def _notify(self, action: Callable[[EngineListener], None]) -> None:
        listener = self._listener()
        if listener is not None:
            action(listener)


def _error(message: StreamFailed) -> CcTtsError:
    """The error of a worker as it would be here."""
    kinds = {kind.code: kind for kind in _kinds(CcTtsError) if "code" in vars(kind)}
    kind = kinds.get(message.code, EngineFailed)
    return kind(message.detail, retry_after_s=message.retry_after_s)


def _kinds(root: type[CcTtsError]) -> list[type[CcTtsError]]:
    found = [root]
    for kind in root.__subclasses__():
        found += _kinds(kind)
    return found
