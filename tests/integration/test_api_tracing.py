"""The spans of requests, and which requests have one."""

from collections.abc import AsyncIterator

import pytest

from cc_tts.clock import MonotonicClock
from cc_tts.config.schema import TokenConfig
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import Span
from cc_tts.tracing.tracer import Tracer
from tests.fakes.running_api import RunningApi, make_config, running_api
from tests.support.captured_logs import capture_logs

pytestmark = pytest.mark.integration

TOKEN = "call-token-22"
CLIENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", is_sampled=True)
TRACED = {"traceparent": CLIENT.traceparent}
KNOWN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def spans() -> list[Span]:
    return []


@pytest.fixture
async def api(spans: list[Span]) -> AsyncIterator[RunningApi]:
    def export(span: Span) -> None:
        if "http.route" in span.attributes:  # the spans of calls are tested elsewhere
            spans.append(span)

    tracer = Tracer(MonotonicClock(), export=export)
    config = make_config(tokens=(TokenConfig(TOKEN, ("read", "call")),))
    async with running_api(config, tracer=tracer) as running:
        running.registry.add("c1", answered=True)
        yield running


async def test_a_command_is_a_span_of_its_clients_trace(api: RunningApi, spans: list[Span]) -> None:
    with capture_logs() as lines:
        await api.ask("POST", "/v1/calls/c1/speak", {"text": "the secret"}, headers=KNOWN | TRACED)
        await api.ask("POST", "/v1/calls/c1/stop?x=secret", {}, headers=KNOWN)
    first, second = spans
    assert (first.name, first.kind, first.parent) == ("POST /v1/calls/{id}/speak", "server", CLIENT)
    assert first.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/calls/{id}/speak",
        "http.response.status_code": 201,
    }
    assert (second.parent, second.attributes["http.response.status_code"], second.error) == (None, 400, "")
    (line,) = [line for line in lines if line["event"] == "request_refused"]
    assert (line["trace_id"], line["span_id"]) == (second.context.trace_id, second.context.span_id)


async def test_a_question_is_a_span_only_if_its_client_traces_it(api: RunningApi, spans: list[Span]) -> None:
    await api.ask("GET", "/v1/calls", headers=KNOWN)
    assert spans == []
    await api.ask("GET", "/v1/calls", headers=KNOWN | TRACED)
    assert [span.name for span in spans] == ["GET /v1/calls"]


async def test_strangers_have_no_spans(api: RunningApi, spans: list[Span]) -> None:
    with capture_logs() as lines:
        for method, path in (("POST", "/v1/calls"), ("GET", "/v1/calls"), ("POST", "/nowhere")):
            await api.ask(method, path, {}, headers=TRACED)
    assert spans == []
    named = {(line["trace_id"], line["span_id"]) for line in lines if line["event"] == "request_refused"}
    assert named == {(CLIENT.trace_id, CLIENT.span_id)}  # not a span that nobody gets


async def test_a_client_that_does_not_sample_is_followed(api: RunningApi, spans: list[Span]) -> None:
    headers = {"traceparent": CLIENT.traceparent.removesuffix("01") + "00"}
    await api.ask("POST", "/v1/calls/c1/stop", {}, headers=KNOWN | headers)
    assert spans == []
