"""Handlers of ``/v1/admin/webhooks``, and checks of the webhooks that clients name."""

from dataclasses import replace
from typing import Final

from aiohttp import web

from cc_tts import logs
from cc_tts.api import schemas, views
from cc_tts.api.context import CONTEXT
from cc_tts.api.http.auth import Holder
from cc_tts.api.http.route import RouteTable
from cc_tts.calls.call import Call
from cc_tts.calls.dtmf.gather import DigitsTo
from cc_tts.calls.events import types
from cc_tts.config.schema import CallWebhook
from cc_tts.config.webhooks import PER_CALL, key_of, url_fault
from cc_tts.errors import (
    FieldError,
    Unprocessable,
    WebhookNotAllowed,
    WebhookNotFound,
    did_you_mean,
)
from cc_tts.webhooks.webhooks import Webhooks

ROUTES: Final = RouteTable("Webhooks")

log = logs.get(__name__)


@ROUTES.add("GET", "/v1/admin/webhooks", scope="admin")
async def list_webhooks(request: web.Request) -> views.Webhooks:
    """How each endpoint of [[webhooks]] is doing, and those of calls."""
    context = request.app[CONTEXT]
    now_ns = context.services.clock.now_ns()
    return views.Webhooks(
        [views.Webhook.of(each, oldest_s=each.queue.oldest_s(now_ns)) for each in context.webhooks.all_endpoints]
    )


@ROUTES.add("POST", "/v1/admin/webhooks/{name}/test", scope="admin", errors=(WebhookNotFound,))
async def try_webhook(request: web.Request, _body: schemas.Empty) -> views.WebhookTest:
    """Send webhook.test to an endpoint now, once; success lets one that failed or was disabled be used again."""
    context, name = request.app[CONTEXT], request.match_info["name"]
    webhooks, bus = context.webhooks, context.services.events
    if name not in webhooks.endpoints:
        near = did_you_mean(name, webhooks.endpoints)
        raise WebhookNotFound(f"no endpoint is called {name[:80]!r}{near}; GET /v1/admin/webhooks lists them all")
    event = bus.stamp(types.WebhookTest(webhook=name), id_=context.services.nodes.new_id("evt"))
    outcome = await webhooks.test(name, event)
    return views.WebhookTest(
        event_id=event.id,
        taken=outcome.is_taken,
        status=outcome.status,
        error=outcome.error,
        duration_ms=outcome.duration_ms,
    )


def check_webhook(webhooks: Webhooks, webhook: CallWebhook) -> None:
    """Refuse an endpoint that a call may not have.

    Raises:
        Unprocessable: it is no URL, or no secret.
        WebhookNotAllowed: the configuration does not allow it.
    """
    if fault := url_fault(webhook.url, may_have_user=False):
        raise Unprocessable.about(FieldError("/webhook/url", fault))
    try:
        key_of(webhook.secret) if webhook.secret else None
    except ValueError as error:
        raise Unprocessable.about(FieldError("/webhook/secret", str(error))) from None
    if reason := webhooks.why_not_allowed(webhook):
        raise WebhookNotAllowed.about(FieldError("/webhook/url", reason))


def readable_by(webhooks: Webhooks, call: Call, to: DigitsTo, holder: Holder) -> DigitsTo:
    """Return who gets the digits: a connection of the same token, or a webhook that gets the events of the call.

    Raises:
        Unprocessable: there is no such webhook, or it does not get them.
    """
    fault = _webhook_fault(webhooks, call, to.webhook, holder.tenant) if to.webhook else ""
    if fault:
        raise Unprocessable.about(FieldError("/digits_to/webhook", fault))
    return replace(to, connection=holder.own(to.connection))


def _webhook_fault(webhooks: Webhooks, call: Call, name: str, tenant: str) -> str:
    if name == PER_CALL:
        return "" if call.webhook is not None else "the call has no webhook of its own"
    endpoint = webhooks.endpoints.get(name)
    if endpoint is None or (tenant and endpoint.target.tenant != tenant):
        return "no webhook has this name"
    is_told = endpoint.target.wants(types.CallGatherComplete.type, call.tenant)
    return "" if is_told else "this webhook does not get call.gather_complete of this call"
