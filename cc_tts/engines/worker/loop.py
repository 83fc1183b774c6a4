"""The worker's loop: messages first, then one step of the engine, then what came of it.

::

    reader thread ─▸ child.Link ─▸ execute ─▸ engine.step() ─▸ SpeechChunk · StreamEnded · StreamFailed ─▸ channel

Runs on: the thread that owns the device, the reader thread aside.
"""

import math
from typing import Final

from cc_tts import logs
from cc_tts.clock import Clock, ms_between
from cc_tts.engines.engine import MAX_SPEED, MIN_SPEED
from cc_tts.engines.engine_core import (
    DeviceLost,
    EngineCore,
    EngineLoad,
    EngineLoader,
    StreamCommand,
    StreamDone,
    StreamRequest,
)
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.engines.worker.messages import (
    CancelStream,
    EndText,
    PlaybackProgress,
    PushText,
    RefreshVoices,
    StreamEnded,
    StreamFailed,
)
from cc_tts.errors import CcTtsError, EngineFailed, EngineOverloaded, Unprocessable
from cc_tts.processes import child
from cc_tts.tracing.context import TraceContext

IDLE_WAIT_S: Final = 0.5
"""The time that the loop sleeps when there is nothing to do; a message wakes it (unmeasured)."""
BACKLOG_WAIT_S: Final = 0.005
"""The same while the socket has not accepted everything (unmeasured)."""
REPORT_INTERVAL_MS: Final = 200.0  # unmeasured
MAX_RECORD_BYTES: Final = 1 << 19
"""Audio is split into records of at most this size (unmeasured)."""


log = logs.get(__name__)


class WorkerLoop:
    """Advances the engine, and passes messages in and out."""

    def __init__(self, engine: EngineCore, link: child.ChildLink, loader: EngineLoader, *, clock: Clock) -> None:
        self._engine = engine
        self._loader = loader
        self._link = link
        self._channel = link.channel
        self._has_described = False
        self._clock = clock
        self._reported: EngineLoad | None = None
        self._reported_ns = 0
        self._was_asked = False
        """Whether a stream was requested since the last report."""
        self._traced: dict[int, tuple[str, int]] = {}
        """The trace id of each traced stream, and when its first text arrived, ns."""

    def work(self) -> None:
        """Handle the messages, do one step, and send its results. Raises ``DeviceLost`` if the engine cannot continue."""
        if not self._has_described:
            self._has_described = True
            self._channel.send(self._loader.description)
        for message, _ in self._link.news(self._wait_s):
            if isinstance(message, RefreshVoices):
                self._loader.refresh(self._describe)
            elif isinstance(message, StreamCommand):
                self._execute(message)
        if self._link.is_over:
            self._engine.close()
        else:
            self._step()
            self._report()
        self._channel.flush()

    @property
    def _wait_s(self) -> float:
        if self._engine.has_work or self._reported is None:
            return 0.0
        return BACKLOG_WAIT_S if self._channel.has_backlog else IDLE_WAIT_S

    def _execute(self, command: StreamCommand) -> None:
        """Carry out a command. An error ends only its own stream."""
        engine, stream_id = self._engine, command.stream_id
        self._note_traced(command)
        try:
            match command:
                case StreamRequest(speed=speed):
                    self._was_asked = True
                    _check_speed(speed)
                    engine.open(command)
                case PushText(_, text, text_chunk_index):
                    engine.push(stream_id, text, text_chunk_index)
                case EndText():
                    engine.end(stream_id)
                case CancelStream():
                    engine.cancel(stream_id)
                case PlaybackProgress(_, taken_ms, ahead_ms):
                    if _is_length(taken_ms):
                        engine.taken(stream_id, taken_ms, ahead_ms if _is_length(ahead_ms) else None)
        except DeviceLost:
            raise
        except Exception as error:
            if not isinstance(error, CcTtsError):
                log.exception("stream_failed", stream_id=stream_id)
                error = EngineFailed(f"the engine broke off: {type(error).__name__}")
            engine.cancel(stream_id)
            self._fail(stream_id, error)

    def _note_traced(self, command: StreamCommand) -> None:
        """Note when the first text of a traced stream came."""
        match command:
            case StreamRequest(traceparent=traceparent) if traceparent:
                if (trace := TraceContext.parse(traceparent)) is not None:
                    self._traced[command.stream_id] = trace.trace_id, 0
            case PushText() if command.stream_id in self._traced:
                trace_id, asked_ns = self._traced[command.stream_id]
                self._traced[command.stream_id] = trace_id, asked_ns or self._clock.now_ns()
            case CancelStream():
                self._traced.pop(command.stream_id, None)

    def _describe(self) -> None:
        """Send a description of the voices in the next round."""
        self._has_described = False
        self._link.wake()

    def _step(self) -> None:
        for out in self._engine.step():
            match out:
                case SpeechChunk(gave_up_after=float()):
                    self._channel.send(out)
                case SpeechChunk(data=rest):
                    if (traced := self._traced.get(out.stream_id)) is not None:
                        out.made_ms = ms_between(traced[1], self._clock.now_ns())
                    while rest:
                        out.data, rest = rest[:MAX_RECORD_BYTES], rest[MAX_RECORD_BYTES:]
                        self._channel.send(out)
                        out.spoken_words = ()
                case StreamDone(stream_id, None):
                    self._traced.pop(stream_id, None)
                    self._channel.send(StreamEnded(stream_id))
                case StreamDone(stream_id, CcTtsError() as error):
                    self._fail(stream_id, error)

    def _fail(self, stream_id: int, error: CcTtsError) -> None:
        traced = self._traced.pop(stream_id, None)
        trace_id = None if traced is None else traced[0]
        if isinstance(error, EngineOverloaded):  # the server counts it, and says what becomes of the prompt
            log.debug("stream_refused", stream_id=stream_id, trace_id=trace_id, detail=error.detail)
        else:
            log.warning("stream_failed", stream_id=stream_id, trace_id=trace_id, code=error.code, detail=error.detail)
        self._channel.send(StreamFailed(stream_id, error.code, error.detail, error.retry_after_s))

    def _report(self) -> None:
        load = self._engine.load_report()
        now_ns = self._clock.now_ns()
        old = self._reported
        # The server counts what it opened until the next report: one is due also if the stream is over already.
        is_news = self._was_asked or old is None or _admission(load) != _admission(old)
        is_due = ms_between(self._reported_ns, now_ns) >= REPORT_INTERVAL_MS and load != old
        if is_news or is_due:
            self._channel.send(load)
            self._reported, self._reported_ns, self._was_asked = load, now_ns, False


def _admission(load: EngineLoad) -> tuple[int, int, str]:
    """Return the values that decide about the next stream."""
    return load.num_streams, load.room, load.refusal


def _check_speed(speed: float) -> None:
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise Unprocessable(f"a speed of {speed} is not between {MIN_SPEED} and {MAX_SPEED}")


def _is_length(ms: float | None) -> bool:
    """Whether a server's report is valid: neither negative nor infinite nor NaN."""
    return ms is not None and 0.0 <= ms < math.inf
