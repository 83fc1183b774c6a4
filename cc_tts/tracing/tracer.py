"""Begins traces, decides which are kept, and hashes Call-IDs for them. Runs on: the event loop."""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.tracing.context import TraceContext, new_span_id, new_trace_id
from cc_tts.tracing.span import Kind, Span, Trace, Value

_HASH_CHARS: Final = 16
"""The hexadecimal digits of a hashed Call-ID (64 bits)."""


async def _nothing(_timeout_s: float) -> None:
    """Do nothing; used where there is nothing to stop."""


class Tracer:
    """Without ``export`` no trace begins. A trace that a client does not sample, or that ``sample_ratio`` leaves out, is
    exported only if :meth:`.Trace.keep` is called before its end. ``stop`` sends the waiting spans within this many seconds.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        export: Callable[[Span], None] | None = None,
        sample_ratio: float = 1.0,
        salt: str = "",
        stop: Callable[[float], Awaitable[None]] = _nothing,
    ) -> None:
        self._clock = clock or MonotonicClock()
        self._export = export
        self._sample_ratio = sample_ratio
        self._salt = salt.encode()
        self.stop = stop

    @property
    def is_on(self) -> bool:
        return self._export is not None

    def begin(
        self,
        name: str,
        *,
        kind: Kind,
        parent: TraceContext | None = None,
        links: Sequence[TraceContext] = (),
        is_kept: bool | None = None,
        attributes: dict[str, Value] | None = None,
    ) -> Span | None:
        """Begin a trace, or our part of the trace of ``parent``; ``None`` while nothing is exported."""
        if self._export is None:
            return None
        trace_id = new_trace_id() if parent is None else parent.trace_id
        if is_kept is None:
            is_kept = self.samples(trace_id) if parent is None else parent.is_sampled
        return Span(
            name=name,
            trace=Trace(self._export, self._clock, is_kept=is_kept),
            context=TraceContext(trace_id, new_span_id(), is_kept),
            parent=parent,
            start_ns=self._clock.now_ns(),
            kind=kind,
            links=links,
            attributes=attributes or {},
        )

    def samples(self, trace_id: str) -> bool:
        """Whether a trace that nobody else decides of is kept, by the last 56 bits of its id, which are random (W3C Trace
        Context Level 2 §2.4), so that all nodes decide alike.
        """
        return int(trace_id[-14:], 16) < self._sample_ratio * (1 << 56)

    def hashed(self, name: str) -> str:
        """Return a hash of a name for attributes; empty without a salt."""
        if not self._salt or not name:
            return ""
        return hmac.new(self._salt, name.encode(), hashlib.sha256).hexdigest()[:_HASH_CHARS]
