"""Events: numbered without gaps, filtered, and never held up by a slow reader."""

import asyncio
from contextlib import closing, nullcontext
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cc_tts.calls.events import types
from cc_tts.calls.events.bus import Event, EventBus, Subscription
from cc_tts.calls.events.outbox import ITEMS_A_TURN
from cc_tts.errors import CapacityExceeded, EventsGone, MalformedRequest
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

TIMEOUT_S = 5.0
KEY = types.CallDtmf(digit="1", duration_ms=100, method="rfc4733")
HELD = types.CallHeld(by="remote")


@pytest.fixture
def bus() -> EventBus:
    return EventBus(FakeClock(), max_subscribers=2)


async def test_each_call_is_numbered_from_one(bus: EventBus) -> None:
    with closing(bus.subscribe()) as everything:
        for call_id in ("a", "b", "a", None, "a", None):
            bus.publish(KEY, call_id=call_id)
        everything.close()
        events = [event async for event in everything]
    assert [(event.call_id, event.seq) for event in events] == [
        ("a", 1), ("b", 1), ("a", 2), (None, 1), ("a", 3), (None, 2)
    ]  # fmt: skip
    assert len({event.id for event in events}) == 6
    assert {event.time for event in events} == {1.0}
    bus.forget_call("a")
    assert bus.publish(KEY, call_id="a").seq == 1


async def test_filters(bus: EventBus) -> None:
    with (
        closing(bus.subscribe(call_id="a")) as of_a_call,
        closing(bus.subscribe(call_id="a", types=frozenset({"call.held", "server.draining"}))) as of_some_kinds,
    ):
        for data, call_id in ((HELD, "a"), (HELD, "b"), (KEY, "a"), (types.ServerDraining(calls=2), None)):
            bus.publish(data, call_id=call_id)
        bus.close()
        assert [event.type async for event in of_a_call] == ["call.held", "call.dtmf"]
        assert [event.type async for event in of_some_kinds] == ["call.held"]


async def test_a_slow_reader_is_dropped_and_told(bus: EventBus) -> None:
    slow, quick = bus.subscribe(max_queued=3), bus.subscribe(max_queued=10)
    for _ in range(5):
        bus.publish(KEY, call_id="a")
    assert (slow.overflowed, quick.overflowed) == (True, False)
    assert bus.num_subscribers == 1
    assert [event.seq async for event in slow] == [1, 2, 3], "what was queued is still read"
    quick.close()
    assert [event.seq async for event in quick] == [1, 2, 3, 4, 5]


async def test_no_more_subscribers_than_allowed(bus: EventBus) -> None:
    first, second = bus.subscribe(), bus.subscribe()
    with pytest.raises(CapacityExceeded) as refusal:
        bus.subscribe()
    assert refusal.value.retry_after_s
    first.close()
    first.close()
    with closing(bus.subscribe()):
        assert bus.num_subscribers == 2
    second.close()
    assert bus.num_subscribers == 0


async def test_a_waiting_reader_is_woken(bus: EventBus) -> None:
    subscription = bus.subscribe()
    got: list[Event] = []

    async def read() -> None:
        async for event in subscription:
            got.append(event)  # noqa: PERF401 - what came before the end counts

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    bus.publish(HELD, call_id="a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [event.type for event in got] == ["call.held"]
    bus.close()
    async with asyncio.timeout(TIMEOUT_S):
        await reader


async def seen_of(bus: EventBus, **options: Any) -> list[str]:
    """Ids that a subscription gets which is opened now and ends after what there is."""
    with closing(bus.subscribe(**options)) as subscription:
        subscription.close()
        return [event.id async for event in subscription]


async def test_filters_hold_for_what_was_missed_and_the_event_named_need_not_pass_them() -> None:
    bus = EventBus(FakeClock())
    since = bus.publish(KEY, call_id="b").id
    wanted = [bus.publish(data, call_id=call_id).id for data, call_id in ((HELD, "a"), (HELD, "b"), (KEY, "a"))]
    assert await seen_of(bus, since=since, call_id="a") == [wanted[0], wanted[2]]
    assert await seen_of(bus, since=since, types=frozenset({"call.held"})) == wanted[:2]


@pytest.mark.parametrize("history_size", [0, 3])
async def test_an_event_that_is_too_old_is_refused(history_size: int) -> None:
    bus = EventBus(FakeClock(), history_size=history_size)
    ids = [bus.last_id, *(bus.publish(KEY, call_id="a").id for _ in range(5))]
    for since in ids[: 5 - history_size]:
        with pytest.raises(EventsGone):
            bus.subscribe(since=since)
    for since in ids[5 - history_size :]:
        assert await seen_of(bus, since=since) == ids[ids.index(since) + 1 :]
    assert bus.num_subscribers == 0


async def test_an_event_of_another_run_is_refused(bus: EventBus) -> None:
    earlier = EventBus(FakeClock()).publish(KEY, call_id="a").id
    assert earlier != bus.publish(KEY, call_id="a").id
    with pytest.raises(EventsGone):
        bus.subscribe(since=earlier)


@pytest.mark.parametrize("since", ["", "evt_1", "17", "evt_{run}_01", "evt_{run}_-1", "evt_{run}_7", "x" * 10_000])
async def test_what_is_no_id_of_an_event_is_refused(bus: EventBus, since: str) -> None:
    run = bus.publish(KEY, call_id="a").id.split("_")[1]
    with pytest.raises(MalformedRequest):
        bus.subscribe(since=since.format(run=run))
    assert bus.num_subscribers == 0


async def test_what_was_missed_does_not_count_as_reading_slowly() -> None:
    bus = EventBus(FakeClock(), history_size=100)
    since = bus.last_id
    for _ in range(50):
        bus.publish(KEY, call_id="a")
    subscription = bus.subscribe(since=since, max_queued=3)
    for _ in range(3):
        bus.publish(KEY, call_id="a")
    assert not subscription.overflowed
    for _ in range(50):
        subscription.take()
    bus.publish(KEY, call_id="a")
    assert subscription.overflowed, "three of now wait already"
    assert [event.seq async for event in subscription] == [51, 52, 53]


async def test_a_reader_with_much_to_read_lets_others_have_their_turn() -> None:
    bus = EventBus(FakeClock(), history_size=10_000)
    since = bus.last_id
    for _ in range(10 * ITEMS_A_TURN):
        bus.publish(KEY, call_id="a")
    turns: list[int] = []
    num_read = 0

    async def read() -> None:
        nonlocal num_read
        with closing(bus.subscribe(since=since)) as subscription:
            subscription.close()
            async for _ in subscription:
                num_read += 1

    reading = asyncio.create_task(read())
    while not reading.done():
        turns.append(num_read)
        await asyncio.sleep(0)
    assert num_read == 10 * ITEMS_A_TURN
    assert max(after - before for before, after in pairwise([*turns, num_read])) <= ITEMS_A_TURN


@given(
    st.integers(0, 20),
    st.lists(st.sampled_from(["publish", "leave", "come"]), max_size=60),
)
def test_a_reader_that_comes_and_goes_sees_each_event_once_or_is_told(history_size: int, steps: list[str]) -> None:
    bus = EventBus(FakeClock(), history_size=history_size)
    published, seen = [], []
    last = bus.last_id
    subscription: Subscription | None = bus.subscribe(since=last)
    for step in steps:
        if step == "publish":
            published.append(bus.publish(KEY, call_id="a").id)
        elif step == "leave" and subscription is not None:
            while subscription.has_queued:
                last = subscription.take().id
                seen.append(last)
            subscription.close()
            subscription = None
        elif step == "come" and subscription is None:
            num_missed = len(published) - len(seen)
            if num_missed > history_size:
                with pytest.raises(EventsGone):
                    bus.subscribe(since=last)
                return
            subscription = bus.subscribe(since=last)
    while subscription is not None and subscription.has_queued:
        seen.append(subscription.take().id)
    assert seen == published[: len(seen)]
    assert subscription is None or seen == published


def test_every_type_is_a_struct_of_its_own() -> None:
    kinds = [
        kind
        for kind in vars(types).values()
        if isinstance(kind, type) and issubclass(kind, types.EventData) and "type" in vars(kind)
    ]
    assert list(types.EVENTS.values()) == kinds
    assert len({kind.type for kind in kinds}) == len(kinds)
    for kind in kinds:
        prefix = kind.type.partition(".")[0]
        assert issubclass(kind, types.CallData) == (prefix == "call"), kind.type
        assert issubclass(kind, types.SpeakData) == (prefix == "speak"), kind.type


def numbered(bus: EventBus, num: int, tenant: str) -> list[str]:
    return [bus.publish(KEY, call_id=tenant, tenant=tenant).id for _ in range(num)]


async def test_a_tenant_that_floods_pushes_out_its_own_events() -> None:
    bus = EventBus(FakeClock(), history_size=10)
    first, *rest = numbered(bus, 4, "beta")
    flood = numbered(bus, 100, "acme")
    assert await seen_of(bus, since=first, tenant="beta") == rest
    assert await seen_of(bus, since=flood[-3], tenant="acme") == flood[-2:]
    for tenant in ("acme", ""):
        with pytest.raises(EventsGone):
            bus.subscribe(since=flood[0], tenant=tenant)
    assert await seen_of(bus, since=flood[-4]) == flood[-3:]


async def test_readers_of_one_owner_do_not_keep_others_out() -> None:
    bus = EventBus(FakeClock(), max_subscribers=4)
    acme = [bus.subscribe(owner="acme") for _ in range(4)]
    beta = bus.subscribe(owner="beta")
    assert [each.displaced for each in (*acme, beta)] == [True, False, False, False, False]
    assert [event.id async for event in acme[0]] == [], "it has ended"
    assert bus.num_subscribers == 4
    with pytest.raises(CapacityExceeded):
        bus.subscribe(owner="acme")
    bus.subscribe(owner="beta")
    for owner in ("acme", "beta", "gamma"):
        with pytest.raises(CapacityExceeded) if owner != "gamma" else nullcontext():
            bus.subscribe(owner=owner)
    assert bus.num_subscribers == 4
