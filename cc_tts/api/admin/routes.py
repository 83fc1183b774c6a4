"""Handlers of ``/v1/admin``: status, tenants, reload, log."""

import os
from dataclasses import replace
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, field

from cc_tts import __version__, logs
from cc_tts.api import schemas, views
from cc_tts.api.admin.operations import Process, Reloaded, SpeechWorker
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.problems import NotReady
from cc_tts.api.http.route import RouteTable
from cc_tts.cluster.messages import TenantUse
from cc_tts.errors import ConfigError, Unprocessable

ROUTES: Final = RouteTable("Operations")

log = logs.get(__name__)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is. ``not_ready_because``: why a call would not be answered and spoken to now."""

    node: str
    version: str
    pid: int
    started_at_s: views.EpochSeconds = field(name="started_at")
    not_ready_because: str | None
    degraded_because: str | None
    draining: bool
    calls: int
    max_calls: int
    engine: str
    registered: Annotated[bool | None, Meta(description="With registration.registrar; null without one.")]
    media_lateness_ms: Annotated[float, Meta(description="99th percentile of how late frames are sent.")]
    log_level: str
    pjsip_level: int
    processes: list[Process]
    workers: list[SpeechWorker]


class Tenant(TenantUse, frozen=True, kw_only=True):
    """A tenant and what it uses at this node. ``characters``: since midnight UTC; ``refused``: since the server started;
    ``held``: its limits here, null where there is none.
    """

    name: str


class Tenants(msgspec.Struct, frozen=True):
    """Every tenant of the configuration."""

    tenants: list[Tenant]


class LogLevels(schemas.Body, frozen=True):
    """The levels to log at until the next reload or restart. A field that is left out stays as it is."""

    level: Literal["debug", "info", "warning", "error"] | None = None
    pjsip_level: Annotated[int, Meta(ge=0, le=6)] | None = None


class Log(msgspec.Struct, frozen=True):
    """The levels in force now, of the server and its user agent."""

    level: str
    pjsip_level: int


@ROUTES.add("GET", "/v1/admin/status", scope="read")
async def get_status(request: web.Request) -> Status:
    """How this server is: calls, processes, speech workers."""
    context = request.app[CONTEXT]
    registry, operations = context.registry, context.operations
    ua = registry.services.ua
    levels = operations.log()
    return Status(
        node=context.config.server.node_name,
        version=__version__,
        pid=os.getpid(),
        started_at_s=operations.started_at_s,
        not_ready_because=registry.not_ready_because,
        degraded_because=context.services.source.engine.degraded_because,
        draining=registry.draining,
        calls=registry.num_calls,
        max_calls=ua.max_calls,
        engine=context.config.tts.engine,
        registered=ua.registered,
        media_lateness_ms=ua.lateness.p99_ms,
        log_level=levels.level,
        pjsip_level=levels.pjsip_level,
        processes=list(operations.processes()),
        workers=list(operations.workers()),
    )


@ROUTES.add("GET", "/v1/admin/tenants", scope="read")
async def list_tenants(request: web.Request) -> Tenants:
    """Show what each tenant uses at this node, and may use."""
    used = request.app[CONTEXT].services.tenants.used()
    return Tenants([Tenant(name=name, **msgspec.structs.asdict(use)) for name, use in sorted(used.items())])


@ROUTES.add("POST", "/v1/admin/reload", scope="admin", errors=(ConfigError, NotReady))
async def reload_configuration(request: web.Request, _body: schemas.Empty) -> Reloaded:
    """Read the configuration again and take over what a running server can, as SIGHUP does; after an error nothing has
    changed.
    """
    return await request.app[CONTEXT].operations.reload()


@ROUTES.add(
    "PATCH",
    "/v1/admin/log",
    scope="admin",
    errors=(NotReady,),
    examples={"more": {"level": "debug"}, "with PJSIP": {"level": "debug", "pjsip_level": 4}},
)
async def set_log_levels(request: web.Request, body: LogLevels) -> Log:
    """Log more or less until the next reload or restart."""
    operations = request.app[CONTEXT].operations
    if body.level is None and body.pjsip_level is None:
        raise Unprocessable("name level, pjsip_level or both")
    before = operations.log()
    pjsip_level = before.pjsip_level if body.pjsip_level is None else body.pjsip_level
    wanted = replace(before, level=body.level or before.level, pjsip_level=pjsip_level)
    await operations.set_log(wanted)
    log.warning("log_level_changed", was=before.level, is_now=wanted.level, pjsip_level=wanted.pjsip_level)
    return Log(wanted.level, wanted.pjsip_level)
