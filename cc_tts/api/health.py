"""Handlers for operations: alive, ready, metrics, drain."""

from aiohttp import web

from cc_tts import metrics
from cc_tts.api import schemas, views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import bodies, problems


async def healthz(_request: web.Request, _body: None) -> web.Response:
    """``GET /healthz``."""
    return bodies.response(views.Health("ok"))


async def readyz(request: web.Request, _body: None) -> web.Response:
    """``GET /readyz``: 503 with ``reason`` while a call would not be answered and spoken to."""
    reason = request.app[CONTEXT].registry.not_ready_because
    if reason is None:
        return bodies.response(views.Health("ready"))
    return problems.response_for(problems.NotReady(reason), instance=request.path, reason=reason)


async def prometheus(request: web.Request, _body: None) -> web.Response:
    """``GET /metrics``. What is a state rather than an event is looked up now."""
    context = request.app[CONTEXT]
    registry, series = context.registry, context.metrics
    series.ready.set(registry.not_ready_because is None)
    series.draining.set(registry.draining)
    series.event_subscribers.set(registry.events.num_subscribers)
    return web.Response(body=series.render(), headers={"Content-Type": metrics.CONTENT_TYPE})


async def drain(request: web.Request, _body: schemas.Empty) -> web.Response:
    """``POST /v1/admin/drain``. Asking again changes nothing."""
    context = request.app[CONTEXT]
    has_begun = context.registry.start_drain()
    if has_begun:
        context.on_drain()
    return bodies.response(views.Drain(draining=True, already=not has_begun), status=202)
