"""One endpoint: its queue, how it is doing, and its current attempts. Runs on: the event loop."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final, Literal

from cc_tts import logs
from cc_tts.clock import NS_PER_S, Clock
from cc_tts.config.schema import WebhooksConfig
from cc_tts.metrics import Metrics
from cc_tts.processes.tasks import TaskSet, cancel_all
from cc_tts.tracing.span import Span
from cc_tts.tracing.tracer import Tracer
from cc_tts.webhooks import signing
from cc_tts.webhooks.post import HttpPost, Outcome
from cc_tts.webhooks.queue import DeliveryQueue, DropReason, EventDelivery
from cc_tts.webhooks.target import WebhookTarget

FIRST_RETRY_S: Final = 1.0
"""The wait after the first failure; it doubles with each further one (unmeasured)."""
MAX_RETRY_S: Final = 1800.0
"""The longest wait, as the third step of the schedule that the Standard Webhooks spec gives as an example."""
JITTER_SHARE: Final = 0.2
"""The random variation of a pause, so that events that failed together are not repeated together (unmeasured)."""
SLOW_DOWN: Final = frozenset({429, 502, 503, 504})
"""The receiver is overloaded (Standard Webhooks: 429, 502, 504): fewer events are sent at once."""
GONE: Final = 410
"""The receiver wants no more events (Standard Webhooks, as RFC 9110 §15.5.11)."""

State = Literal["ok", "failing", "disabled"]

log = logs.get(__name__)


class Endpoint:
    """``settle`` forgets a durable event that was accepted or given up. ``on_answer`` gets the JSON with which
    ``call.incoming`` was answered.
    """

    def __init__(
        self,
        target: WebhookTarget,
        config: WebhooksConfig,
        *,
        clock: Clock,
        metrics: Metrics,
        post: HttpPost,
        settle: Callable[[WebhookTarget, EventDelivery], None],
        tracer: Tracer,
        on_answer: Callable[[WebhookTarget, EventDelivery, bytes], None],
    ) -> None:
        self.target = target
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._post = post
        self._settle = settle
        self._tracer = tracer
        self._on_answer = on_answer
        self.last_status: int | None = None
        self.last_error = ""
        self.last_attempt_s: float | None = None
        self.num_delivered = self.num_failed = self.num_dropped = 0
        self.is_disabled = False
        self._num_failures = 0
        """How many attempts in a row have failed."""
        self._is_unreachable = False
        self._paused_until_ns = 0
        self._max_in_flight = target.max_in_flight
        self.queue = DeliveryQueue(
            max_queued=config.max_queued, order_hold_ns=round(config.order_hold_s * NS_PER_S), on_drop=self._dropped
        )
        self.num_in_flight = 0
        self._shown = (0, 0)
        self._is_closed = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._tasks = TaskSet()
        self._running: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """Whether events are delivered, only probed now and then, or dropped."""
        if self.is_disabled:
            return "disabled"
        return "failing" if self._is_broken else "ok"

    @property
    def _is_broken(self) -> bool:
        """Whether it has failed so often that it is only probed."""
        return self._num_failures >= self._config.breaker_failures

    def retarget(self, target: WebhookTarget) -> None:
        """Send to this target from now on; a disabled endpoint is tried again."""
        self.target = target
        self._max_in_flight = target.max_in_flight
        self._restore()

    def put(self, delivery: EventDelivery) -> None:
        if self.is_disabled:
            self._dropped(delivery, "disabled")
            return
        self.queue.put(delivery)
        self._note_queue()
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"webhook {self.target.name}")
        self._wake.set()

    async def drained(self) -> None:
        while self.num_in_flight or len(self.queue):
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        await cancel_all(self._running)
        await self._tasks.stop()

    async def try_once(self, event_id: str, body: bytes) -> Outcome:
        """Make one attempt outside the queue. Success re-enables a failing or disabled endpoint."""
        outcome = await self._send(event_id, body, {}, wants_answer=False)
        if outcome.is_taken:
            self._restore()
        return outcome

    async def _run(self) -> None:
        while True:
            wait_s = self._begin_attempts()
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()

    def _begin_attempts(self) -> float | None:
        """Begin the attempts that are due; return the time until the next one, ``None`` if there is none."""
        now_ns = self._clock.now_ns()
        while self.num_in_flight < (1 if self._is_broken else self._max_in_flight):
            if now_ns < self._paused_until_ns:
                return (self._paused_until_ns - now_ns) / NS_PER_S
            delivery = self.queue.take(now_ns)
            if delivery is None:
                self._note_queue()
                due_ns = self.queue.next_due_ns
                return None if due_ns is None else max(0.0, (due_ns - now_ns) / NS_PER_S)
            self.num_in_flight += 1
            if self._is_broken:
                self._paused_until_ns = now_ns + round(self._config.probe_s * NS_PER_S)
            self._tasks.begin(self._attempt(delivery))
        return None

    async def _attempt(self, delivery: EventDelivery) -> None:
        delivery.num_attempts += 1
        more = {"cctts-seq": str(delivery.seq)}
        if delivery.call_id is not None:
            more["cctts-call-id"] = delivery.call_id
        span = self._span(delivery)
        if span is not None:
            more["traceparent"] = span.context.traceparent
        outcome = Outcome(error="broken off")
        try:
            wants_answer = delivery.type == "call.incoming"
            outcome = await self._send(delivery.id, delivery.body, more, wants_answer=wants_answer)
            self._conclude(delivery, outcome)
        except Exception:
            log.exception("webhook_failed", webhook=self.target.name)
            self._conclude(delivery, Outcome(error="internal error"))
        finally:
            if span is not None:
                span.attributes["http.response.status_code"] = outcome.status or 0
                span.end(error="" if outcome.is_taken else "not_delivered")
            self.num_in_flight -= 1
            self._note_queue()
            self._wake.set()

    def _span(self, delivery: EventDelivery) -> Span | None:
        """Begin the span of an attempt. It is linked to the call, since it may outlive that."""
        if delivery.trace is None:
            return None
        return self._tracer.begin(
            "webhook.deliver",
            kind="client",
            links=(delivery.trace,),
            is_kept=delivery.trace.is_sampled,
            attributes={
                "cctts.webhook": self.target.name,
                "cctts.event_type": delivery.type,
                "cctts.attempt": delivery.num_attempts,
            },
        )

    async def _send(self, event_id: str, body: bytes, more: dict[str, str], *, wants_answer: bool) -> Outcome:
        at_s = int(self._clock.wall_s())
        headers = signing.headers(self.target.keys, event_id=event_id, at_s=at_s, body=body)
        outcome = await self._post(self.target, headers | more, body, wants_answer=wants_answer)
        self.last_attempt_s = self._clock.wall_s()
        self.last_status, self.last_error = outcome.status, outcome.error
        result = "delivered" if outcome.is_taken else "failed"
        self._metrics.webhook_attempts.labels(webhook=self.target.name, result=result).inc()
        return outcome

    def _conclude(self, delivery: EventDelivery, outcome: Outcome) -> None:
        if outcome.is_taken:
            self._taken(delivery, outcome)
            return
        self.num_failed += 1
        self._num_failures += 1
        self._is_unreachable = outcome.is_unreachable
        now_ns = self._clock.now_ns()
        if self._num_failures == self._config.breaker_failures:
            log.error("webhook_failing", webhook=self.target.name, status=outcome.status, detail=outcome.error)
        if outcome.status == GONE and not self.is_disabled:
            self.is_disabled = True
            log.error("webhook_disabled", webhook=self.target.name, consequence="its events are dropped")
        if self._is_broken:
            self._paused_until_ns = max(self._paused_until_ns, now_ns + round(self._config.probe_s * NS_PER_S))
        self._slow_down(outcome, now_ns)
        self._retry(delivery, outcome, now_ns)

    def _taken(self, delivery: EventDelivery, outcome: Outcome) -> None:
        self.queue.finish(delivery)
        if delivery.is_durable:
            self._settle(self.target, delivery)
        self.num_delivered += 1
        self._max_in_flight = min(self._max_in_flight + 1, self.target.max_in_flight)
        if self._num_failures:
            self._restore()
        if outcome.answer:
            self._on_answer(self.target, delivery, outcome.answer)

    def _restore(self) -> None:
        """The endpoint works again: send the events that waited for it now."""
        if self.state != "ok":
            log.info("webhook_restored", webhook=self.target.name)
        if self._is_broken or self._is_unreachable:
            self.queue.bring_forward(self._clock.now_ns())
        self._is_unreachable = False
        self._num_failures, self.is_disabled, self._paused_until_ns = 0, False, 0
        self._note_queue()
        self._wake.set()

    def _slow_down(self, outcome: Outcome, now_ns: int) -> None:
        if outcome.status not in SLOW_DOWN:
            return
        self._max_in_flight = max(1, self._max_in_flight // 2)
        if outcome.retry_after_s is not None:
            until_ns = now_ns + round(outcome.retry_after_s * NS_PER_S)
            self._paused_until_ns = max(self._paused_until_ns, until_ns)

    def _retry(self, delivery: EventDelivery, outcome: Outcome, now_ns: int) -> None:
        wait_s = min(FIRST_RETRY_S * 2 ** min(delivery.num_attempts - 1, 20), MAX_RETRY_S)
        wait_s *= random.uniform(1 - JITTER_SHARE, 1 + JITTER_SHARE)  # noqa: S311 - spreads load, no secret
        due_ns = now_ns + round(max(wait_s, outcome.retry_after_s or 0.0) * NS_PER_S)
        self.queue.retry(delivery, due_ns=due_ns, now_ns=now_ns, may_pass=not outcome.is_unreachable)
        if self.is_disabled:
            self.queue.clear("disabled")

    def _dropped(self, delivery: EventDelivery, reason: DropReason) -> None:
        self.num_dropped += 1
        self._metrics.webhooks_dropped.labels(reason=reason).inc()
        if delivery.is_durable:
            self._settle(self.target, delivery)
            log.warning("webhook_event_lost", webhook=self.target.name, event_id=delivery.id, reason=reason)

    def close(self) -> None:
        """End it, and remove it from the metrics; nothing waits for it."""
        if self._running is not None:
            self._running.cancel()
        self._is_closed = True
        self._note_queue()

    def _note_queue(self) -> None:
        """Update the metrics. The endpoints of calls share a label, so their numbers are added."""
        shown, now = self._shown, (0, 0) if self._is_closed else (len(self.queue), int(self.state != "ok"))
        self._shown = now
        self._metrics.webhook_queued.labels(webhook=self.target.name).inc(now[0] - shown[0])
        self._metrics.webhook_failing.labels(webhook=self.target.name).inc(now[1] - shown[1])
        if not self.num_in_flight and not len(self.queue):
            self._idle.set()
