"""Spans on their way to a collector: as OpenTelemetry has them, counted, and never in anybody's way."""

import asyncio
import errno
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from cc_tts import __version__
from cc_tts.clock import MonotonicClock
from cc_tts.config.load import from_tree
from cc_tts.config.sections.tracing import TracingConfig
from cc_tts.errors import ConfigError
from cc_tts.metrics import Metrics
from cc_tts.tracing import otlp
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.tracer import Tracer
from lab import needs
from lab.waiting import PATIENCE_S, until
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.unit

CLIENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", is_sampled=True)
COLLECTOR = TracingConfig(endpoint="http://127.0.0.1:9")


class Collector:
    """In place of the exporter over HTTP: it takes spans, or not, and not before ``gate`` is open."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.is_up = True
        self.error: Exception | None = None
        """The library says that it cannot send because of this."""
        self.gate = threading.Event()
        self.gate.set()

    def export(self, spans: Any) -> Any:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self.gate.wait(10)
        if self.error is not None:
            logging.getLogger("opentelemetry.exporter").warning("Transient error %s, retrying in %.2fs.", self.error, 1)
        self.spans += spans if self.is_up else ()
        return SpanExportResult.SUCCESS if self.is_up else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.gate.set()


@asynccontextmanager
async def exporting(
    monkeypatch: pytest.MonkeyPatch, collector: Collector, *, stop_within_s: float = 2.0
) -> AsyncIterator[tuple[Tracer, Metrics]]:
    needs.traces()
    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", lambda **_: collector)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    metrics = Metrics()
    tracer = otlp.make_tracer(COLLECTOR, {}, node="line-1", clock=MonotonicClock(), metrics=metrics)
    try:
        yield tracer, metrics
    finally:
        await tracer.stop(stop_within_s)


def counted(metrics: Metrics, result: str) -> float:
    return metrics.registry.get_sample_value("cctts_trace_spans_total", {"result": result}) or 0.0


def is_counted(metrics: Metrics, result: str, number: int) -> bool:
    return counted(metrics, result) == number


async def test_a_span_arrives_with_all_that_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    async with exporting(monkeypatch, collector) as (tracer, metrics):
        call = tracer.begin("call", kind="server", parent=CLIENT, attributes={"cctts.call_id": "call_1"})
        assert call is not None
        utterance = call.child("utterance", links=(CLIENT,))
        utterance.event("speak.mark")
        utterance.end(error="engine_failed")
        call.end()
        await until(lambda: counted(metrics, "exported") == 2)
    child, root = collector.spans
    assert (root.name, root.kind.name, root.status.status_code.name) == ("call", "SERVER", "UNSET")
    assert f"{root.context.trace_id:032x}" == CLIENT.trace_id
    assert f"{root.parent.span_id:016x}" == CLIENT.span_id
    assert dict(root.attributes) == {"cctts.call_id": "call_1"}
    assert {"service.name": "cc-tts", "service.instance.id": "line-1"}.items() <= dict(root.resource.attributes).items()
    assert child.parent.span_id == root.context.span_id
    assert (child.status.status_code.name, child.status.description) == ("ERROR", "engine_failed")
    assert [f"{link.context.span_id:016x}" for link in child.links] == [CLIENT.span_id]
    assert [event.name for event in child.events] == ["speak.mark"]
    wall_ns = MonotonicClock().wall_s() * 1e9
    assert wall_ns - 60e9 < root.start_time <= child.start_time <= child.end_time <= root.end_time < wall_ns + 1e9


async def test_the_variables_of_opentelemetry_say_what_a_server_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "hotline")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-7,deployment.environment=production")
    collector = Collector()
    async with exporting(monkeypatch, collector) as (tracer, metrics):
        end(tracer)
        await until(lambda: counted(metrics, "exported") == 1)
    said = dict(collector.spans[0].resource.attributes)
    names = ("service.name", "service.version", "service.instance.id", "deployment.environment")
    assert [said[name] for name in names] == ["hotline", __version__, "pod-7", "production"]


async def test_a_collector_that_is_away_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    collector.is_up = False
    with capture_logs() as lines:
        async with exporting(monkeypatch, collector) as (tracer, metrics):
            for number in range(1, 4):
                end(tracer)
                await until(partial(is_counted, metrics, "failed", number))
            collector.is_up = True
            end(tracer)
            await until(lambda: counted(metrics, "exported") == 1)
    told = [line["event"] for line in lines if line["event"].startswith("traces")]
    assert told == ["traces_not_exported", "traces_exported"]


def refused() -> Exception:
    """As the HTTP client of the library tells of it, with the URL."""
    error = OSError("Max retries exceeded with url: /v1/traces?key=collector-token")
    error.__context__ = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (refused(), "Transient error Connection refused, retrying in 1.00s."),
        (
            ValueError("no adapter for 'grpc://user:collector-token@otel'"),
            "Transient error ValueError, retrying in 1.00s.",
        ),
    ],
)
async def test_the_log_says_why_spans_are_not_taken_without_the_url_of_the_collector(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    collector = Collector()
    collector.is_up, collector.error = False, error
    monkeypatch.setattr(logging.getLogger(), "level", logging.CRITICAL)
    with capture_logs() as lines:
        async with exporting(monkeypatch, collector) as (tracer, metrics):
            end(tracer)
            await until(lambda: counted(metrics, "failed") == 1)
    assert [line["detail"] for line in lines if line["event"] == "traces_not_exported"] == [told]


async def test_a_collector_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    collector.gate.clear()
    async with exporting(monkeypatch, collector, stop_within_s=0.1) as (tracer, metrics):
        for _ in range(otlp.MAX_QUEUED + 7):
            end(tracer)
        assert counted(metrics, "dropped") == 7
    collector.gate.set()


async def test_threads_that_hang_on_a_disk_do_not_keep_traces_from_being_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, disk = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    collector = Collector()
    async with exporting(monkeypatch, collector) as (tracer, _):
        reading = loop.run_in_executor(None, disk.wait)
        end(tracer)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await tracer.stop(5.0)
        finally:
            disk.set()
        await reading
    assert [span.name for span in collector.spans] == ["call"]


def end(tracer: Tracer) -> None:
    span = tracer.begin("call", kind="server")
    assert span is not None
    span.end()


@pytest.mark.parametrize(
    ("config", "environ", "is_wanted"),
    [
        (TracingConfig(), {}, False),
        (TracingConfig(), {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (TracingConfig(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}, True),
        (TracingConfig(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://otel:4318/v1/traces"}, True),
        (COLLECTOR, {}, True),
        (COLLECTOR, {"OTEL_SDK_DISABLED": "true"}, False),
        (COLLECTOR, {"OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_wanted_by_the_configuration_or_by_opentelemetrys_variables(
    config: TracingConfig, environ: dict[str, str], is_wanted: bool
) -> None:
    assert otlp.is_wanted(config, environ) == is_wanted


def test_without_the_extra_a_server_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "is_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"tracing\.endpoint: pip install -r requirements/otel\.txt"):
        otlp.check(COLLECTOR, {})
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}
    (warning,) = otlp.check(TracingConfig(), environ)
    assert "requirements/otel.txt" in warning
    with capture_logs() as lines:  # the start of the server has said it
        tracer = otlp.make_tracer(TracingConfig(), environ, node="", clock=MonotonicClock(), metrics=Metrics())
    assert (tracer.is_on, lines) == (False, [])


async def test_the_token_in_a_variable_that_cannot_be_read_is_not_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    needs.traces()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer collector-token")
    with capture_logs() as lines:
        tracer = otlp.make_tracer(COLLECTOR, {}, node="line-1", clock=MonotonicClock(), metrics=Metrics())
    await tracer.stop(2.0)
    (line,) = lines
    assert (line["log_level"], line["detail"].startswith("Header format invalid")) == ("warning", True)
    assert "collector-token" not in f"{line} {caplog.text}"


def test_a_variable_that_the_library_refuses_is_an_error_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    needs.traces()
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "0")
    with pytest.raises(ConfigError, match=r"OTEL_BSP_.*schedule_delay_millis"):
        otlp.make_tracer(COLLECTOR, {}, node="", clock=MonotonicClock(), metrics=Metrics())


def test_a_protocol_that_is_not_spoken_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "is_installed", lambda: True)
    (warning,) = otlp.check(COLLECTOR, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert "4318" in warning
    assert otlp.check(COLLECTOR, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}) == []


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_variable_that_names_no_url_is_told_of(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(otlp, "is_installed", lambda: True)
    for endpoint in ("otel:4318", "grpc://user:collector-token@otel:4317"):
        (warning,) = otlp.check(TracingConfig(), {name: endpoint})
        assert "http://otel:4318" in warning
        assert "collector-token" not in warning
    assert otlp.check(TracingConfig(), {name: "https://otel:4318/v1/traces"}) == []


@pytest.mark.parametrize(
    "endpoint",
    ["otel:4318", "grpc://otel:4317", "http://", "http://user:word@otel:4318", "http://otel:99999", "http://otel?x=1"],
)
def test_an_endpoint_is_the_base_url_of_a_collector(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"tracing\.endpoint"):
        from_tree({"tracing": {"endpoint": endpoint}})


def test_nothing_of_opentelemetry_is_imported_unless_traces_are_wanted() -> None:
    program = (
        "import sys\n"
        "from cc_tts.server import Server\n"
        "from cc_tts.config.schema import Config\n"
        "Server(Config(), read_config=Config)\n"
        "print(sorted(name for name in sys.modules if name.startswith(('opentelemetry', 'requests', 'google.protobuf'))))\n"
    )
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
