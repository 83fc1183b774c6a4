"""Spans as the server writes them, until they are exported. Instants are on CLOCK_MONOTONIC, ns.

Runs on: the event loop.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal

from cc_tts.clock import NS_PER_MS, NS_PER_S, Clock
from cc_tts.tracing.context import TraceContext, new_span_id

MAX_HELD: Final = 128
"""The most spans of a trace that wait until it is known whether the trace is kept; the oldest are dropped (unmeasured)."""
MAX_EVENTS: Final = 128
"""The most events of a span, as in OpenTelemetry's SDK."""

Kind = Literal["internal", "server", "client"]
Value = str | bool | int | float


class Trace:
    """The spans of one call or one request. All are exported if it :attr:`is_kept`, which may be decided at its end."""

    def __init__(self, export: Callable[["Span"], None], clock: Clock, *, is_kept: bool) -> None:
        self._export = export
        self._held: deque[Span] = deque(maxlen=MAX_HELD)
        self.clock = clock
        self.is_kept = is_kept
        self.offset_ns = round(clock.wall_s() * NS_PER_S) - clock.now_ns()
        """The offset from CLOCK_MONOTONIC to the Unix epoch. It is the same for all spans, even if the wall clock is set."""

    def keep(self) -> None:
        """Export the present and the future spans."""
        self.is_kept = True
        while self._held:
            self._export(self._held.popleft())

    def take(self, span: "Span") -> None:
        if self.is_kept:
            self._export(span)
        else:
            self._held.append(span)

    def close(self) -> None:
        """Discard the trace unless it is kept by now."""
        self._held.clear()


@dataclass(slots=True, kw_only=True, eq=False)
class Span:
    """A piece of work. Its attributes hold no text, no digits and no telephone number."""

    name: str
    trace: Trace
    context: TraceContext
    start_ns: int
    parent: TraceContext | None = None
    kind: Kind = "internal"
    links: Sequence[TraceContext] = ()
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[tuple[str, int, dict[str, Value]]] = field(default_factory=list)
    end_ns: int | None = None
    error: str = ""
    """The name of the failure; empty if there is none."""

    @property
    def now_ns(self) -> int:
        return self.trace.clock.now_ns()

    @property
    def exemplar(self) -> dict[str, str] | None:
        """Return the labels by which a metric refers to the span; ``None`` if it will not be exported."""
        if not self.trace.is_kept:
            return None
        return {"trace_id": self.context.trace_id, "span_id": self.context.span_id}

    def child(
        self,
        name: str,
        *,
        start_ns: int | None = None,
        kind: Kind = "internal",
        links: Sequence[TraceContext] = (),
        attributes: dict[str, Value] | None = None,
    ) -> "Span":
        """Begin a child span, now or at the given instant."""
        return Span(
            name=name,
            trace=self.trace,
            context=TraceContext(self.context.trace_id, new_span_id(), self.trace.is_kept),
            parent=self.context,
            start_ns=self.now_ns if start_ns is None else start_ns,
            kind=kind,
            links=links,
            attributes=attributes or {},
        )

    def event(self, name: str, *, at_ns: int | None = None, **attributes: Value) -> None:
        """Note an event without a duration."""
        if len(self.events) < MAX_EVENTS:
            self.events.append((name, self.now_ns if at_ns is None else at_ns, attributes))

    def end(self, *, at_ns: int | None = None, error: str = "") -> None:
        """End the span; only the first call counts."""
        if self.end_ns is None:
            self.end_ns = max(self.start_ns, self.now_ns if at_ns is None else at_ns)
            self.error = error or self.error
            self.trace.take(self)


class SumSpan:
    """Many short pieces of work as one span, from the first to the last, with their total time."""

    def __init__(self, parent: Span | None, name: str) -> None:
        self._parent = parent
        self._name = name
        self._span: Span | None = None
        self._sum_ns = self._begun_ns = 0

    def begin(self) -> None:
        if self._parent is not None:
            self._begun_ns = self._parent.now_ns

    def end(self) -> None:
        if self._parent is not None:
            self._span = self._span or self._parent.child(self._name, start_ns=self._begun_ns)
            self._sum_ns += self._parent.now_ns - self._begun_ns

    def close(self) -> None:
        """End the span; no more work will come."""
        if self._span is not None:
            self._span.attributes["cctts.sum_ms"] = round(self._sum_ns / NS_PER_MS, 3)
            self._span.end()


CURRENT: Final[ContextVar[Span | None]] = ContextVar("span", default=None)
"""The parent of spans that begin in this context."""


def current_traceparent() -> str:
    """Return the trace context of the current span; empty if there is none."""
    span = CURRENT.get()
    return "" if span is None else span.context.traceparent


def begin(name: str) -> Span | None:
    """Begin a child of the current span, if there is one."""
    parent = CURRENT.get()
    return None if parent is None else parent.child(name)
