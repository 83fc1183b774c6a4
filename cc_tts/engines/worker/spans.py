"""The spans of a stream in a worker, below its utterance's span. The server records them from the times that the worker
reports.

Runs on: the event loop.
"""

from cc_tts.clock import ms_between
from cc_tts.engines.speech_chunk import SpeechChunk
from cc_tts.tracing.span import CURRENT, Span


class StreamSpans:
    """``engine.first_chunk`` lasts from the first text to the first audio, ``engine.stream`` from then to the end.

    ``cctts.queue_ms``: the part of the first that the worker did not take: the way there and back, and its inbox.
    """

    def __init__(self, parent: Span, worker: str) -> None:
        self._parent = parent
        self._worker = worker
        self._first = parent.child("engine.first_chunk", kind="client", attributes={"cctts.worker": worker})
        self._rest: Span | None = None
        self._made_ms = 0.0

    @classmethod
    def begin(cls, worker: str) -> "StreamSpans | None":
        """Begin the spans of a stream that is requested now; ``None`` if it is not traced."""
        parent = CURRENT.get()
        return None if parent is None else cls(parent, worker)

    @property
    def traceparent(self) -> str:
        """The header that tells the worker the trace."""
        return self._first.context.traceparent

    def audio(self, chunk: SpeechChunk, asked_ns: int | None) -> None:
        """Note that audio has arrived. The first text was sent at ``asked_ns``."""
        self._made_ms = chunk.made_ms
        if self._rest is not None:
            return
        first = self._first
        first.start_ns = asked_ns or first.start_ns
        if chunk.made_ms:
            waited_ms = ms_between(first.start_ns, first.now_ns) - chunk.made_ms
            first.attributes |= {"cctts.worker_ms": chunk.made_ms, "cctts.queue_ms": round(max(0.0, waited_ms), 3)}
        first.end()
        self._rest = self._parent.child("engine.stream", attributes={"cctts.worker": self._worker})

    def over(self, result: str) -> None:
        """Nothing more will come."""
        error = "" if result in ("spoken", "cancelled") else result
        if self._rest is None:
            self._first.end(error="no_audio" if result == "spoken" else error)
            return
        self._rest.attributes |= {"result": result} | ({"cctts.worker_ms": self._made_ms} if self._made_ms else {})
        self._rest.end(error=error)
