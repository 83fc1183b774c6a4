"""The trace of a call, as a collector gets it: REST, the call, its utterance and the worker on another machine are one."""

import json
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from aiohttp import web

from cc_tts.tracing.context import TraceContext
from lab import needs
from lab.children import Child
from lab.configured import logged, server_with
from lab.ports import HOST, free_ports
from lab.raw_sip import RawPeer
from lab.server_under_test import Server
from lab.waiting import until

pytest.importorskip("grpc")

pytestmark = pytest.mark.e2e

CLIENT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", is_sampled=True)
SECRET = "My secret is green"
CALLEE = "+4930123456"


class Collector:
    """Takes traces by OTLP over HTTP, and webhooks. Use it as a context manager."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.bodies: list[bytes] = []
        self.hooks: list[dict[str, str]] = []

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        app.router.add_post("/hook", self._hook)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, 0)
        await site.start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        body = await request.read()
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )

    async def _hook(self, request: web.Request) -> web.Response:
        self.hooks.append(dict(request.headers))
        return web.Response()

    def named(self, name: str) -> Any:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def parent_of(self, span: Any) -> Any:
        return next((each for each in self.spans if each.span_id == span.parent_span_id), None)


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def speaking_worker(folder: Path) -> tuple[Child, str]:
    address = f"{HOST}:{free_ports()}"
    argv = [sys.executable, "-m", "cc_tts.cli", "worker", "--listen", address, "--set", "tts.engine=espeak"]
    child = await Child.start(argv, log_path=folder / "worker.log")
    await until(lambda: "worker_listens" in child.log)
    return child, f"grpc://{address}"


async def a_call(server: Server) -> None:
    """One that a traced request places, with a prompt that is heard to its end."""
    headers = {"traceparent": CLIENT.traceparent}
    async with RawPeer() as peer, server.events() as log:
        status, call = await server.post("/v1/calls", {"to": f"sip:{CALLEE}@{HOST}:{peer.port}"}, headers=headers)
        assert status == 201, call
        await peer.expect("INVITE")
        peer.answer("200 OK", formats="0")
        await log.wait("call.established")
        await server.ask(f"/v1/calls/{call['id']}/speak", {"text": SECRET, "cache": "no"})
        await log.wait("speak.complete")
        await server.ask(f"/v1/calls/{call['id']}/hangup", {})
        await peer.expect("BYE")
        peer.answer("200 OK")
        await log.wait("call.terminated")


async def test_the_spans_of_a_call_are_joined_across_rest_server_and_worker(tmp_path: Path) -> None:
    needs.traces()
    child, address = await speaking_worker(tmp_path)
    try:
        async with Collector() as collector:
            settings = {
                "tracing__endpoint": collector.url,
                "tts__engine": "espeak",
                "tts__devices": "[]",
                "tts__workers": json.dumps([address]),
                "tts__fallback_engine": "",
                "webhooks__endpoints": f'[{{url = "{collector.url}/hook", secret = "whsec_{"A" * 40}"}}]',
            }
            async with server_with(tmp_path, **settings) as server:
                await a_call(server)
                await until(lambda: len(collector.hooks) >= 5)
                (line,) = logged(server, "call_outgoing")
                assert line["trace_id"] == CLIENT.trace_id
            check(collector)
    finally:
        await child.end()


def check(collector: Collector) -> None:
    """The spans that came until the server ended."""
    placed, call, utterance = map(collector.named, ("POST /v1/calls", "call", "utterance"))
    assert placed.parent_span_id.hex() == CLIENT.span_id
    assert collector.parent_of(call) is placed
    for name, parent in (
        ("sip.invite", call),
        ("utterance", call),
        ("text.normalize+chunk", utterance),
        ("engine.first_chunk", utterance),
        ("engine.stream", utterance),
        ("resample", utterance),
        ("playout", utterance),
    ):
        span = collector.named(name)
        assert span.trace_id.hex() == CLIENT.trace_id, name
        assert collector.parent_of(span) is parent, name
        assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
    (link,) = utterance.links
    assert link.span_id == collector.named("POST /v1/calls/{id}/speak").span_id
    first = attributes(collector.named("engine.first_chunk"))
    assert first["cctts.worker"].startswith("grpc://")
    assert first["cctts.worker_ms"] > 0
    assert attributes(utterance)["completion_cause"] == "normal"
    delivered = [span for span in collector.spans if span.name == "webhook.deliver"]
    assert {link.span_id for span in delivered for link in span.links} == {call.span_id}
    named = {TraceContext.parse(each["traceparent"]) for each in collector.hooks if "cctts-call-id" in each}
    assert named == {TraceContext(span.trace_id.hex(), span.span_id.hex(), is_sampled=True) for span in delivered}
    for body in collector.bodies:
        for word in (b"secret", b"green", CALLEE[1:].encode()):
            assert word not in body
