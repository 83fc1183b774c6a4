"""Handlers for operations: alive, ready, metrics, drain."""

from typing import Final

from aiohttp import web

from cc_tts import metrics
from cc_tts.api import schemas, views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.problems import NotReady
from cc_tts.api.http.route import RouteTable

ROUTES: Final = RouteTable("Operations")


@ROUTES.add("GET", "/healthz", scope=None)
async def get_health(_request: web.Request) -> views.Health:
    """The process is alive."""
    return views.Health("ok")


@ROUTES.add("GET", "/readyz", scope=None, errors=(NotReady,))
async def get_readiness(request: web.Request) -> views.Health:
    """A call would be answered and spoken to."""
    if (reason := request.app[CONTEXT].registry.not_ready_because) is not None:
        raise NotReady(reason)
    return views.Health("ready")


@ROUTES.add("GET", "/metrics", scope="read", content_types=(metrics.CONTENT_TYPE,))
async def get_metrics(request: web.Request) -> web.Response:
    """Prometheus series."""
    context = request.app[CONTEXT]
    registry, series = context.registry, context.metrics
    series.ready.set(registry.not_ready_because is None)
    series.draining.set(registry.draining)
    series.event_subscribers.set(registry.events.num_subscribers)
    return web.Response(body=series.render(), headers={"Content-Type": metrics.CONTENT_TYPE})


@ROUTES.add("POST", "/v1/admin/drain", scope="admin", status=202)
async def drain_server(request: web.Request, _body: schemas.Empty) -> views.Drain:
    """Take no new calls; the process exits when the last call has ended."""
    context = request.app[CONTEXT]
    has_begun = context.registry.start_drain()
    if has_begun:
        context.on_drain()
    return views.Drain(draining=True, already=not has_begun)
