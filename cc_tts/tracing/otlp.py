"""Spans on their way to an OTLP collector over HTTP, by OpenTelemetry's SDK: a thread of its own sends them in batches.

Runs on: the event loop, but for :meth:`OtlpExport.export`, which runs on that thread.
"""

import asyncio
import importlib.util
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from cc_tts import __version__, logs
from cc_tts.clock import Clock
from cc_tts.config.sections.tracing import TracingConfig
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import Span
from cc_tts.tracing.tracer import Tracer

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

ADVICE: Final = "pip install -r requirements/otel.txt or 'WHEEL[otel]' adds what exports traces"
MAX_QUEUED: Final = 4096
"""Spans that wait to be sent; more are dropped (unmeasured: some 400 calls that end together)."""
STOP_TIMEOUT_S: Final = 2.0
"""How long the last spans may take when the server stops (unmeasured)."""
HANDOVER_TIMEOUT_S: Final = 0.3
"""How long they may take while the next server waits for the calls (unmeasured)."""
MAX_DETAIL_CHARS: Final = 200  # unmeasured
_PATH: Final = "/v1/traces"
"""Where a collector takes traces (OTLP, "OTLP/HTTP Request")."""
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_READS_HEADERS: Final = "opentelemetry.util.re"
"""This part of the library tells what of OTEL_EXPORTER_OTLP_HEADERS it cannot read, which may be the collector's token."""
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

Count = Callable[[Literal["exported", "failed", "dropped"], int], None]

log = logs.get(__name__)


def is_wanted(config: TracingConfig, environ: Mapping[str, str]) -> bool:
    """Whether traces are to be exported: by the configuration, or by the variables that OpenTelemetry defines."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return bool(config.endpoint or any(environ.get(name) for name in _ENDPOINTS))


def check(config: TracingConfig, environ: Mapping[str, str]) -> list[str]:
    """Each sentence says why traces are not exported as is wished. Raises ``ConfigError`` if what exports is not installed
    and the configuration asks for it; a variable may be there for the sake of others.
    """
    if not is_wanted(config, environ):
        return []
    if not is_installed():
        if config.endpoint:
            raise ConfigError(f"tracing.endpoint: {ADVICE}")
        return [f"no traces are exported, though OTEL_EXPORTER_OTLP_ENDPOINT is set: {ADVICE}"]
    endpoint = config.endpoint or next(filter(None, map(environ.get, _ENDPOINTS)), "")
    if not endpoint.startswith(("http://", "https://")):
        return ['no traces are exported: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL of HTTP, as "http://otel:4318"']
    protocol = next(filter(None, map(environ.get, _PROTOCOLS)), "")
    if protocol == "grpc":
        return [
            "traces are exported over HTTP, not as OTEL_EXPORTER_OTLP_PROTOCOL says: name the collector's HTTP port, 4318"
        ]
    return []


def is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def make_tracer(
    config: TracingConfig, environ: Mapping[str, str], *, node: str, clock: Clock, metrics: Metrics
) -> Tracer:
    """The tracer of a server; one that begins nothing if no traces are wanted, or can be exported: :func:`check` says so."""
    if not is_wanted(config, environ) or not is_installed():
        return Tracer(clock)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    said = _FirstLine()
    base = config.endpoint.rstrip("/").removesuffix(_PATH)
    try:
        exporter = OtlpExport(
            OTLPSpanExporter(endpoint=base + _PATH if base else None),
            node=node,
            count=lambda result, num: metrics.trace_spans.labels(result=result).inc(num),
            said=said,
        )
    except ValueError as error:
        raise ConfigError(f"a variable of OpenTelemetry, OTEL_BSP_…: {error}") from error
    if said.text:
        log.warning("configuration", detail=said.text)
    return Tracer(clock, export=exporter, sample_ratio=config.sample_ratio, salt=config.salt, stop=exporter.stop)


class OtlpExport:
    """Takes spans that are over; ``exporter`` sends them, and ``count`` gets the outcome, on any thread."""

    def __init__(self, exporter: "SpanExporter", *, node: str, count: Count, said: "_FirstLine") -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        ours = Resource({"service.name": "cc-tts", "service.version": __version__, "service.instance.id": node})
        self._resource = (
            Resource.create().merge(ours).merge(OTELResourceDetector().detect())
        )  # variables override the configuration
        self._scope = InstrumentationScope("cc_tts", __version__)
        self._exporter = exporter
        self._count = count
        self._said = said
        self._is_failing = False
        self._processor = BatchSpanProcessor(cast("SpanExporter", self), max_queue_size=2 * MAX_QUEUED)
        self._num_taken = 0
        self._num_done = 0
        """Spans that were sent or given up; only the thread that sends changes it."""

    def __call__(self, span: Span) -> None:
        """Queue a span for sending; it is dropped if too many wait. Never blocks."""
        if self._num_taken - self._num_done >= MAX_QUEUED:  # before the processor would drop it
            self._count("dropped", 1)
            return
        self._num_taken += 1
        self._processor.on_end(self._readable(span))

    async def stop(self, timeout_s: float) -> None:
        """Send what waits, as far as that is done within this time."""
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._processor.shutdown()
            with suppress(RuntimeError):  # the time is over and the loop is closed
                loop.call_soon_threadsafe(is_done.set)

        # No thread of the loop's executor: all of them may hang on a disk, and the interpreter would wait for this one.
        threading.Thread(target=shut_down, name="stop traces", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await is_done.wait()

    def export(self, spans: "Sequence[ReadableSpan]") -> Any:
        """Called by the processor: send a batch, and say once that it fails, as the library has put it."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        result, self._said.text = SpanExportResult.FAILURE, ""
        try:
            result = self._exporter.export(spans)
        finally:
            self._num_done += len(spans)
            is_failing = result is not SpanExportResult.SUCCESS
            self._count("failed" if is_failing else "exported", len(spans))
            if is_failing and not self._is_failing:
                log.warning(
                    "traces_not_exported", detail=self._said.text, consequence="dropped and counted until it works"
                )
            elif self._is_failing and not is_failing:
                log.info("traces_exported")
            self._is_failing = is_failing
        return result

    def shutdown(self) -> None:
        """Called by the processor: break off what is under way."""
        self._exporter.shutdown()

    def _readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        offset_ns = span.trace.offset_ns
        status = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET)
        return ReadableSpan(
            name=span.name,
            context=_context(span.context),
            parent=None if span.parent is None else _context(span.parent),
            resource=self._resource,
            attributes=dict(span.attributes),
            events=[Event(name, attributes, at_ns + offset_ns) for name, at_ns, attributes in span.events],
            links=[Link(_context(each)) for each in span.links],
            kind=SpanKind[span.kind.upper()],
            status=status,
            start_time=span.start_ns + offset_ns,
            end_time=(span.end_ns or span.start_ns) + offset_ns,
            instrumentation_scope=self._scope,
        )


def _context(context: TraceContext) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    ids = int(context.trace_id, 16), int(context.span_id, 16)
    return SpanContext(*ids, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class _FirstLine(logging.Handler):
    """Keeps the first line of the library instead of writing all: before the first batch it says what is wrong with a
    variable, and about a batch why that is not taken.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""
        library = logging.getLogger("opentelemetry")
        library.handlers[:], library.propagate = [self], False
        library.setLevel(logging.WARNING)  # independent of the server's log level

    def emit(self, record: logging.LogRecord) -> None:
        values = record.args if isinstance(record.args, tuple) and record.name != _READS_HEADERS else ()
        record.args = tuple(_cause(each) if isinstance(each, BaseException) else each for each in values)
        self.text = self.text or record.getMessage()[:MAX_DETAIL_CHARS]


def _cause(error: BaseException) -> str:
    """The innermost cause of an error of the HTTP client, whose own words have the URL, and with that maybe a token."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or type(error).__name__
