"""All webhook endpoints: which events each of them gets, and which events must survive a restart.

::

    EventBus ─▸ Webhooks.take ─▸ Endpoint (one a section, one a URL of calls) ─▸ DeliveryQueue ─▸ HttpPost ─▸ receiver
                     └─▸ Journal, events that must arrive ◂── settled ──┘              └─▸ on_answer, of call.incoming

Runs on: the event loop, which encodes each event once.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from cc_tts.clock import NS_PER_S, Clock, ms_between
from cc_tts.config.schema import CallWebhook, WebhooksConfig
from cc_tts.egress.hosts import AllowedHosts
from cc_tts.metrics import Metrics
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.tracer import Tracer
from cc_tts.webhooks.endpoint import Endpoint
from cc_tts.webhooks.journal import Journal, Kept
from cc_tts.webhooks.post import HttpPost, Outcome
from cc_tts.webhooks.queue import DROP_REASONS, EventDelivery
from cc_tts.webhooks.target import WebhookTarget

DURABLE: Final = frozenset({"call.terminated", "call.gather_complete"})
"""Events that are kept until they are accepted; of ``call.recording`` only those with ``saved``."""
MAX_CALL_ENDPOINTS: Final = 1000
"""The most URLs of calls with waiting events (unmeasured)."""
STOP_TIMEOUT_S: Final = 3.0
"""The time for the last events when the server stops; the durable ones stay in the file (unmeasured)."""


class Envelope(Protocol):
    """The fields of :class:`cc_tts.calls.events.bus.Event`."""

    @property
    def id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def time(self) -> float: ...
    @property
    def call_id(self) -> str | None: ...
    @property
    def seq(self) -> int: ...
    @property
    def data(self) -> Any: ...


class Webhooks:
    """``on_answer`` is set by the part that carries out answers to ``call.incoming``. It gets the endpoint, the id of the
    call, the JSON, and why that was too late, if it was.
    """

    def __init__(
        self,
        config: WebhooksConfig,
        *,
        clock: Clock,
        metrics: Metrics,
        tracer: Tracer | None = None,
    ) -> None:
        self._config = config
        self._tracer = tracer or Tracer(clock)
        self._clock = clock
        self._metrics = metrics
        self._allowed = AllowedHosts(config.allowed_hosts)
        self._http = HttpPost(clock, lambda: self._allowed)
        self._journal = Journal(Path(config.file).expanduser() if config.file else None, metrics)
        self._call_endpoints: dict[tuple[str, str], Endpoint] = {}
        self.on_answer: Callable[[WebhookTarget, str, bytes, str], None] = (
            lambda _target, _call_id, _answer, _why_late: None
        )
        self.endpoints: dict[str, Endpoint] = {}
        """The endpoints of the configuration, by name."""
        for reason in DROP_REASONS:
            metrics.webhooks_dropped.labels(reason=reason)
        self.reload(config)

    @property
    def all_endpoints(self) -> list[Endpoint]:
        return [*self.endpoints.values(), *self._call_endpoints.values()]

    def reload(self, config: WebhooksConfig) -> None:
        targets = {name: WebhookTarget.configured(name, each) for name, each in config.named.items()}
        for name in self.endpoints.keys() - targets.keys():
            gone = self.endpoints.pop(name)
            gone.is_disabled = True
            gone.queue.clear("disabled")
            gone.close()
        for name, target in targets.items():
            if (endpoint := self.endpoints.get(name)) is None:
                self.endpoints[name] = self._endpoint(target)
            elif endpoint.target != target:
                endpoint.retarget(target)

    def _endpoint(self, target: WebhookTarget) -> Endpoint:
        return Endpoint(
            target,
            self._config,
            clock=self._clock,
            metrics=self._metrics,
            post=self._http,
            settle=self.settle,
            tracer=self._tracer,
            on_answer=self._answered,
        )

    async def start(self) -> None:
        """Begin, with the events of an earlier server; raises ``ConfigError`` if ``webhooks.file`` cannot be used."""
        for kept in await self._journal.start():
            self._resume(kept)

    async def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Deliver as much as possible within this time, and end. Safe to call twice."""
        endpoints = self.all_endpoints
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(each.drained() for each in endpoints))
        for endpoint in endpoints:
            await endpoint.stop()
        await self._journal.stop()
        await self._http.close()

    def take(
        self,
        event: Envelope,
        *,
        tenant: str = "",
        of_call: CallWebhook | None = None,
        clear_event: Envelope | None = None,
        clear_for: str = "",
        trace: TraceContext | None = None,
    ) -> None:
        """Send an event to the endpoints that want it. ``of_call``: the endpoint of its call. The endpoint ``clear_for``
        gets ``clear_event`` instead, which is never written to disk. ``trace``: that of its call.
        """
        wanted = [each for each in self.endpoints.values() if each.target.wants(event.type, tenant)]
        if of_call is not None and (own := self._of_call(of_call)) is not None:
            wanted.append(own)
        if not wanted:
            return
        body = msgspec.json.encode(event)
        is_durable = event.type in DURABLE or getattr(event.data, "state", None) == "saved"
        for endpoint in wanted:
            its_body = body
            if clear_event is not None and endpoint.target.name == clear_for:
                its_body = msgspec.json.encode(clear_event)
            delivery = self._delivery(event, its_body, at_s=event.time, is_durable=is_durable)
            delivery.trace = trace
            if is_durable and not endpoint.is_disabled:
                self._keep(endpoint.target, event, body)
            endpoint.put(delivery)

    async def test(self, name: str, event: Envelope) -> Outcome:
        """Send a test event to a configured endpoint once, outside its queue; raises ``KeyError`` if there is none of this
        name.
        """
        return await self.endpoints[name].try_once(event.id, msgspec.json.encode(event))

    def why_not_allowed(self, webhook: CallWebhook) -> str:
        """Return why a call may not have this endpoint; empty if it may."""
        if not self._config.allow_per_call:
            return "webhooks.allow_per_call of the configuration is off"
        if not self._allowed.has(WebhookTarget.chosen(webhook).url.raw_host or ""):
            return "this host is not in webhooks.allowed_hosts: add it to the configuration"
        return ""

    def settle(self, target: WebhookTarget, delivery: EventDelivery) -> None:
        self._journal.settle(f"{target.name} {delivery.id}")

    def _of_call(self, webhook: CallWebhook) -> Endpoint | None:
        key = (webhook.url, webhook.secret)
        endpoint = self._call_endpoints.get(key)
        if endpoint is None:
            if len(self._call_endpoints) >= MAX_CALL_ENDPOINTS and not self._forget_idle():
                self._metrics.webhooks_dropped.labels(reason="overflow").inc()
                return None
            endpoint = self._call_endpoints[key] = self._endpoint(WebhookTarget.chosen(webhook))
        return endpoint

    def _forget_idle(self) -> bool:
        for key, endpoint in self._call_endpoints.items():
            if not len(endpoint.queue) and not endpoint.num_in_flight:
                endpoint.close()
                del self._call_endpoints[key]
                return True
        return False

    def _delivery(self, event: Envelope | Kept, body: bytes, *, at_s: float, is_durable: bool) -> EventDelivery:
        now_ns = self._clock.now_ns()
        created_ns = now_ns - round(max(0.0, self._clock.wall_s() - at_s) * NS_PER_S)
        lasts_s = self._config.durable_s if is_durable else self._config.live_s
        return EventDelivery(
            id=event.id,
            type=event.type,
            call_id=event.call_id,
            seq=event.seq,
            body=body,
            created_ns=created_ns,
            expires_ns=created_ns + round(lasts_s * NS_PER_S),
            is_durable=is_durable,
            due_ns=now_ns,
        )

    def _keep(self, target: WebhookTarget, event: Envelope, body: bytes) -> None:
        own = target.of_call
        self._journal.keep(
            Kept(
                webhook=target.name,
                id=event.id,
                type=event.type,
                call_id=event.call_id,
                seq=event.seq,
                at_s=event.time,
                body=body.decode(),
                url=own.url if own else "",
                secret=own.secret if own else "",
            )
        )

    def _resume(self, kept: Kept) -> None:
        """Deliver the events of an earlier server, unless their endpoint is no longer configured."""
        endpoint = self.endpoints.get(kept.webhook)
        if kept.url:
            webhook = CallWebhook(url=kept.url, secret=kept.secret)
            endpoint = None if self.why_not_allowed(webhook) else self._of_call(webhook)
        if endpoint is None:
            self._metrics.webhooks_dropped.labels(reason="disabled").inc()
            self._journal.settle(kept.key)
            return
        endpoint.put(self._delivery(kept, kept.body.encode(), at_s=kept.at_s, is_durable=True))

    def _answered(self, target: WebhookTarget, delivery: EventDelivery, answer: bytes) -> None:
        age_ms = ms_between(delivery.created_ns, self._clock.now_ns())
        if delivery.call_id is None or answer.strip() in (b"", b"{}"):
            return
        limit_ms = self._config.answer_timeout_ms
        why_late = (
            f"it came after {age_ms:.0f} ms; webhooks.answer_timeout_ms is {limit_ms:g}" if age_ms > limit_ms else ""
        )
        self.on_answer(target, delivery.call_id, answer, why_late)
