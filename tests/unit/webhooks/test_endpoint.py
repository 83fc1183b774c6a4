"""One endpoint in virtual time: order, repetition, bounds, and what it does to a receiver that fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from yarl import URL

from cc_tts.config.schema import WebhooksConfig
from cc_tts.metrics import Metrics
from cc_tts.tracing.context import TraceContext
from cc_tts.tracing.span import Span
from cc_tts.tracing.tracer import Tracer
from cc_tts.webhooks.endpoint import Endpoint
from cc_tts.webhooks.post import Outcome
from cc_tts.webhooks.queue import EventDelivery
from cc_tts.webhooks.target import WebhookTarget
from tests.support.virtual_time import LoopClock, in_virtual_time

pytestmark = pytest.mark.unit

TAKEN, FAILED = Outcome(status=200), Outcome(status=500)
REFUSED = Outcome(error="Connection refused", is_unreachable=True)
S = 1_000_000_000


@dataclass
class Stage:
    """An endpoint whose receiver behaves as ``respond`` says; ``sent`` are its attempts: event and second."""

    endpoint: Endpoint
    metrics: Metrics
    clock: LoopClock = field(default_factory=LoopClock)
    sent: list[tuple[str, float]] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    traceparents: list[str | None] = field(default_factory=list)
    respond: Callable[[str], Outcome] = lambda _event_id: TAKEN
    lasts_s: float = 0.0
    most_at_once: int = 0
    at_once: int = 0
    begun_s: float = 0.0

    def put(self, event_id: str, *, call_id: str = "c", is_durable: bool = False, **more: Any) -> EventDelivery:
        now_ns = self.clock.now_ns()
        delivery = EventDelivery(
            id=event_id,
            type=more.get("type", "call.early"),
            call_id=call_id,
            seq=len(self.sent) + 1,
            body=b"{}",
            created_ns=now_ns,
            expires_ns=now_ns + (86_400 if is_durable else 60) * S,
            is_durable=is_durable,
            due_ns=now_ns,
            trace=more.get("trace"),
        )
        self.endpoint.put(delivery)
        return delivery

    async def __call__(
        self, target: WebhookTarget, headers: dict[str, str], body: bytes, *, wants_answer: bool
    ) -> Outcome:
        self.sent.append((headers["webhook-id"], round(self.clock.wall_s() - self.begun_s, 1)))
        self.traceparents.append(headers.get("traceparent"))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.lasts_s)
        self.at_once -= 1
        return self.respond(headers["webhook-id"])

    def settle(self, target: WebhookTarget, delivery: EventDelivery) -> None:
        self.settled.append(delivery.id)

    @property
    def order(self) -> list[str]:
        return [event_id for event_id, _ in self.sent]

    def dropped(self, reason: str) -> float:
        return self.metrics.registry.get_sample_value("cctts_webhooks_dropped_total", {"reason": reason}) or 0.0


def stage(**settings: Any) -> Any:
    @asynccontextmanager
    async def make() -> AsyncIterator[Stage]:
        metrics, target = Metrics(), WebhookTarget(name="crm", url=URL("http://x"), max_in_flight=4)
        it = Stage(endpoint=None, metrics=metrics)  # type: ignore[arg-type]
        it.endpoint = Endpoint(
            target,
            WebhooksConfig(**settings),
            clock=it.clock,
            metrics=metrics,
            post=cast("Any", it),
            settle=it.settle,
            tracer=Tracer(it.clock, export=it.spans.append),
            on_answer=lambda *_: None,
        )
        it.begun_s = it.clock.wall_s()
        yield it
        await it.endpoint.stop()

    return make


@in_virtual_time(stage())
async def test_events_of_a_call_go_one_after_the_other_and_calls_beside_each_other(it: Stage) -> None:
    it.lasts_s = 1.0
    for number in range(3):
        for call_id in ("a", "b"):
            it.put(f"{call_id}{number}", call_id=call_id)
    await it.endpoint.drained()
    assert it.sent == [(f"{call_id}{number}", float(number)) for number in range(3) for call_id in ("a", "b")]


@in_virtual_time(stage())
async def test_no_more_are_under_way_than_the_endpoint_may_have(it: Stage) -> None:
    it.lasts_s = 1.0
    for number in range(12):
        it.put(str(number), call_id=str(number))
    await it.endpoint.drained()
    assert it.most_at_once == 4


@in_virtual_time(stage())
async def test_an_event_is_repeated_at_growing_distances_until_it_is_taken(it: Stage) -> None:
    it.respond = lambda _: TAKEN if len(it.sent) == 6 else FAILED
    it.put("e", is_durable=True)
    await it.endpoint.drained()
    waits = [later - earlier for (_, earlier), (_, later) in zip(it.sent, it.sent[1:], strict=False)]
    for wait, wanted in zip(waits, (1, 2, 4, 8, 16), strict=True):
        assert 0.79 * wanted <= wait <= 1.21 * wanted
    assert it.settled == ["e"]


@in_virtual_time(stage())
async def test_waits_are_spread(it: Stage) -> None:
    it.respond = lambda _: FAILED if len(it.sent) <= 4 else TAKEN
    for number in range(4):
        it.put(str(number), call_id=str(number))
    await it.endpoint.drained()
    assert len({at_s for _, at_s in it.sent[4:]}) > 1


@in_virtual_time(stage(breaker_failures=1000))
async def test_later_events_wait_ten_seconds_for_one_that_fails_and_then_pass_it(it: Stage) -> None:
    it.respond = lambda event_id: FAILED if event_id == "poison" else TAKEN
    it.put("poison")
    it.put("next")
    it.put("last")
    it.put("other", call_id="d")
    await asyncio.sleep(9)
    assert set(it.order) == {"poison", "other"}
    await asyncio.sleep(3)
    assert it.order[-2:] == ["next", "last"]
    await asyncio.sleep(100)
    assert it.dropped("expired") == 1


@in_virtual_time(stage())
async def test_the_order_is_restored_after_an_outage_with_errors(it: Stage) -> None:
    it.respond = lambda _: FAILED
    for number in range(4):
        it.put(str(number), is_durable=True).seq = number
    await asyncio.sleep(600)
    it.respond, it.sent = lambda _: TAKEN, []
    await it.endpoint.drained()
    assert sorted(it.order) == ["0", "1", "2", "3"]
    assert it.order[1:] == [each for each in ("0", "1", "2", "3") if each != it.order[0]]


@in_virtual_time(stage())
async def test_live_events_are_given_up_after_a_minute_and_durable_ones_after_a_day(it: Stage) -> None:
    it.respond = lambda _: REFUSED
    it.put("live")
    it.put("durable", is_durable=True)
    await asyncio.sleep(3600)
    assert (it.dropped("expired"), len(it.endpoint.queue)) == (1, 1)
    await asyncio.sleep(86_400)
    assert (it.dropped("expired"), it.settled) == (2, ["durable"])


@in_virtual_time(stage(max_queued=10))
async def test_an_overflow_drops_the_oldest_live_event_and_durable_ones_last(it: Stage) -> None:
    it.respond, it.lasts_s = lambda _: TAKEN, 1.0
    it.put("durable", call_id="d", is_durable=True)
    it.put("first")
    await asyncio.sleep(0.5)  # both are under way
    for number in range(12):
        it.put(f"live{number}", call_id=str(number))
    await it.endpoint.drained()
    assert it.dropped("overflow") == 4
    assert not {"live0", "live1", "live2", "live3"} & set(it.order)
    assert {"durable", "first", "live4", "live11"} <= set(it.order)


@in_virtual_time(stage(max_queued=10))
async def test_of_durable_events_alone_the_oldest_are_dropped(it: Stage) -> None:
    it.respond = lambda _: REFUSED
    for number in range(15):
        it.put(str(number), call_id=str(number), is_durable=True)
    assert (it.dropped("overflow"), it.settled) == (5, ["0", "1", "2", "3", "4"])
    await asyncio.sleep(0)


@in_virtual_time(stage())
async def test_after_twenty_failures_it_is_probed_every_ten_seconds_until_one_is_taken(it: Stage) -> None:
    it.respond = lambda _: FAILED
    for number in range(40):
        it.put(str(number), call_id=str(number), is_durable=True)
    await asyncio.sleep(0.9)
    assert it.endpoint.state == "failing"
    num_before = len(it.sent)
    assert num_before <= 24  # those that were under way
    await asyncio.sleep(100)
    assert 9 <= len(it.sent) - num_before <= 11
    it.respond = lambda _: TAKEN
    await asyncio.sleep(12)
    assert (it.endpoint.state, len(it.endpoint.queue)) == ("ok", 0)
    assert it.metrics.registry.get_sample_value("cctts_webhook_failing", {"webhook": "crm"}) == 0


@in_virtual_time(stage())
async def test_410_disables_it_and_a_test_that_succeeds_enables_it(it: Stage) -> None:
    it.respond = lambda _: Outcome(status=410)
    it.put("a", is_durable=True)
    it.put("b")
    await asyncio.sleep(1)
    it.put("c")
    await asyncio.sleep(100)
    assert (it.endpoint.state, it.order, it.dropped("disabled")) == ("disabled", ["a"], 3)
    it.respond = lambda _: TAKEN
    assert (await it.endpoint.try_once("test", b"{}")).is_taken
    it.put("d")
    await it.endpoint.drained()
    assert (it.endpoint.state, it.order) == ("ok", ["a", "test", "d"])


@in_virtual_time(stage())
async def test_one_that_is_removed_while_it_fails_shows_neither_events_nor_a_failure(it: Stage) -> None:
    it.respond = lambda _: FAILED
    for number in range(40):
        it.put(str(number), call_id=str(number))
    await asyncio.sleep(5)
    shown = [("cctts_webhook_queued", {"webhook": "crm"}), ("cctts_webhook_failing", {"webhook": "crm"})]
    assert all(it.metrics.registry.get_sample_value(*each) for each in shown)
    it.endpoint.queue.clear("disabled")
    it.endpoint.close()
    assert [it.metrics.registry.get_sample_value(*each) for each in shown] == [0, 0]


@in_virtual_time(stage())
async def test_retry_after_is_honoured_and_fewer_are_sent_at_once(it: Stage) -> None:
    it.respond = lambda _: Outcome(status=429, retry_after_s=5.0) if len(it.sent) <= 4 else TAKEN
    it.lasts_s = 0.1
    for number in range(8):
        it.put(str(number), call_id=str(number))
    await asyncio.sleep(4.9)
    assert len(it.sent) == 4
    await it.endpoint.drained()
    begun_s = [at_s for _, at_s in it.sent[4:]]
    assert begun_s[0] >= 5.0
    assert begun_s[1] > begun_s[0]  # the first goes alone


@in_virtual_time(stage())
async def test_each_attempt_is_a_span_that_is_linked_to_its_call(it: Stage) -> None:
    call = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", is_sampled=True)
    it.respond = lambda event_id: FAILED if event_id == "e" and it.order.count("e") == 1 else TAKEN
    it.put("e", trace=call)
    it.put("of a call that is not traced", call_id="other")
    await it.endpoint.drained()
    failed, taken = it.spans
    assert [(span.name, span.kind, span.parent, list(span.links)) for span in it.spans] == [
        ("webhook.deliver", "client", None, [call])
    ] * 2
    assert failed.error == "not_delivered"
    assert failed.attributes["http.response.status_code"] == 500
    assert (taken.error, taken.attributes["cctts.attempt"]) == ("", 2)
    assert it.traceparents == [failed.context.traceparent, None, taken.context.traceparent]
