"""Events: numbered without gaps, filtered, and never held up by a slow reader."""

import asyncio
from contextlib import closing

import pytest

from cc_tts.calls.events import Event, EventBus
from cc_tts.errors import CapacityExceeded
from tests.fakes.fake_line import FakeClock

pytestmark = pytest.mark.unit

TIMEOUT_S = 5.0


@pytest.fixture
def bus() -> EventBus:
    return EventBus(FakeClock(), max_subscribers=2)


async def test_each_call_is_numbered_from_one(bus: EventBus) -> None:
    with closing(bus.subscribe()) as everything:
        for call_id in ("a", "b", "a", None, "a", None):
            bus.publish("call.dtmf", call_id=call_id, data={"digit": "1"})
        everything.close()
        seen = [(event.call_id, event.seq) async for event in everything]
    assert seen == [("a", 1), ("b", 1), ("a", 2), (None, 1), ("a", 3), (None, 2)]
    bus.forget_call("a")
    assert bus.publish("call.dtmf", call_id="a").seq == 1


async def test_event_ids_are_unique(bus: EventBus) -> None:
    events = [bus.publish("call.dtmf", call_id=str(number % 3)) for number in range(100)]
    assert len({event.id for event in events}) == 100
    assert {event.time for event in events} == {1.0}


async def test_filters(bus: EventBus) -> None:
    with (
        closing(bus.subscribe(call_id="a")) as of_a_call,
        closing(bus.subscribe(call_id="a", types=frozenset({"call.held", "server.draining"}))) as of_some_kinds,
    ):
        for kind, call_id in (("call.held", "a"), ("call.held", "b"), ("call.dtmf", "a"), ("server.draining", None)):
            bus.publish(kind, call_id=call_id)
        bus.close()
        assert [event.type async for event in of_a_call] == ["call.held", "call.dtmf"]
        assert [event.type async for event in of_some_kinds] == ["call.held"]


async def test_a_slow_reader_is_dropped_and_told(bus: EventBus) -> None:
    slow, quick = bus.subscribe(max_queued=3), bus.subscribe(max_queued=10)
    for _ in range(5):
        bus.publish("call.dtmf", call_id="a")
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
    bus.publish("call.held", call_id="a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [event.type for event in got] == ["call.held"]
    bus.close()
    async with asyncio.timeout(TIMEOUT_S):
        await reader
