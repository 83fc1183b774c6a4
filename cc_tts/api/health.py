"""Handlers for operations: liveness, readiness, metrics, drain, and the cluster of this server."""

from typing import Final

from aiohttp import web
from msgspec.structs import replace

from cc_tts import __version__, metrics
from cc_tts.api import schemas, views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http import exposition
from cc_tts.api.http.problems import NotReady
from cc_tts.api.http.route import RouteTable
from cc_tts.calls.registry import CallRegistry
from cc_tts.cluster.messages import Node

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


@ROUTES.add("GET", "/metrics", scope="read", content_types=(metrics.CONTENT_TYPE, exposition.OPEN_METRICS))
async def get_metrics(request: web.Request) -> web.Response:
    """Show the metrics for Prometheus."""
    context = request.app[CONTEXT]
    registry, series = context.registry, context.services.metrics
    series.ready.set(registry.not_ready_because is None)
    series.degraded.set(context.services.source.engine.degraded_because is not None)
    series.draining.set(registry.draining)
    series.event_subscribers.set(registry.services.events.num_subscribers)
    return exposition.response(request, series.render)


@ROUTES.add("GET", "/v1/cluster", scope="read")
async def get_cluster(request: web.Request) -> views.Cluster:
    """Show this server, the other nodes, the workers of the pool as it last reported them, and other workers."""
    context = request.app[CONTEXT]
    link = context.pool
    node = as_node(context.registry)
    addresses = context.services.nodes.addresses
    known = {name: Node(name=name, base_url=url) for name, url in addresses.items()}
    workers = {worker.address: worker for worker in context.workers()}
    pool = None
    if link is not None:
        known |= {other.name: replace(other, base_url=addresses.get(other.name, "")) for other in link.nodes}
        workers |= {worker.address: worker for worker in link.workers}
        pool = views.Pool(
            connected=link.is_connected, age_s=link.age_s, reason="" if link.is_connected else link.reason
        )
    known.pop(node.name, None)
    return views.Cluster(
        node=node,
        not_ready_because=context.registry.not_ready_because,
        nodes=tuple(other for _, other in sorted(known.items())),
        workers=tuple(workers.values()),
        pool=pool,
    )


def as_node(registry: CallRegistry) -> Node:
    nodes = registry.services.nodes
    return Node(
        name=nodes.name,
        base_url=nodes.base_url,
        version=__version__,
        calls=registry.num_calls,
        max_calls=registry.services.ua.max_calls,
        draining=registry.draining,
    )


@ROUTES.add("POST", "/v1/admin/drain", scope="admin", status=202)
async def drain_server(request: web.Request, _body: schemas.Empty) -> views.Drain:
    """Take no new calls; the process exits when the last call has ended."""
    context = request.app[CONTEXT]
    has_begun = context.registry.start_drain()
    if has_begun:
        context.on_drain()
    return views.Drain(draining=True, already=not has_begun)
