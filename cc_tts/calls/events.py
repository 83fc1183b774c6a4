"""Events to clients: one envelope, a gapless sequence number a call, subscribers that cannot slow the server down."""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from cc_tts.clock import Clock
from cc_tts.errors import CapacityExceeded

EVENT_TYPES = (
    "call.incoming",
    "call.outgoing",
    "call.early",
    "call.established",
    "call.held",
    "call.unheld",
    "call.dtmf",
    "call.gather_complete",
    "call.command_failed",
    "call.terminated",
    "speak.queued",
    "speak.started",
    "speak.mark",
    "speak.complete",
    "server.draining",
    "server.overloaded",
)


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``seq`` counts up per call without gaps from 1; server events have call_id ``None`` and a count of
    their own. ``time`` is seconds since the epoch, ``node`` the server it happened on.
    """

    id: str
    type: str
    time: float
    call_id: str | None
    seq: int
    data: Mapping[str, Any]
    node: str = ""


class Subscription:
    """One reader's bounded queue. When it is full the reader is too slow: the subscription ends with ``overflowed``."""

    def __init__(self, bus: "EventBus", *, call_id: str | None, types: frozenset[str] | None, max_queued: int) -> None:
        self._bus = bus
        self._call_id = call_id
        self._types = types
        self._max_queued = max_queued
        self._queue: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._closed = False
        self.overflowed = False

    def offer(self, event: Event) -> None:
        """Queue an event if the filters let it through; called by the bus."""
        if self._call_id not in (None, event.call_id) or (self._types is not None and event.type not in self._types):
            return
        if len(self._queue) < self._max_queued:
            self._queue.append(event)
            self._wake.set()
        else:
            self.overflowed = True
            self.close()

    def close(self) -> None:
        """Stop receiving; the iteration ends after what is queued. Safe to call twice."""
        self._closed = True
        self._bus.forget(self)
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            while self._queue:
                yield self._queue.popleft()
            if self._closed:
                return
            self._wake.clear()
            await self._wake.wait()


class EventBus:
    """Publishes events to every subscriber. Runs on: the event loop."""

    def __init__(self, clock: Clock, *, max_subscribers: int = 100, node: str = "") -> None:
        self._clock = clock
        self._node = node
        self._max_subscribers = max_subscribers
        self._subscribers: set[Subscription] = set()
        self._seq: Counter[str | None] = Counter()
        self._ids = itertools.count(1)

    @property
    def num_subscribers(self) -> int:
        """Open subscriptions."""
        return len(self._subscribers)

    def subscribe(
        self, *, call_id: str | None = None, types: frozenset[str] | None = None, max_queued: int = 1000
    ) -> Subscription:
        """Open a subscription.

        Raises:
            CapacityExceeded: there are as many subscribers as the config allows.
        """
        if len(self._subscribers) >= self._max_subscribers:
            raise CapacityExceeded("as many event subscribers as http.max_event_subscribers allows", retry_after_s=5)
        subscription = Subscription(self, call_id=call_id, types=types, max_queued=max_queued)
        self._subscribers.add(subscription)
        return subscription

    def publish(self, type_: str, *, call_id: str | None = None, data: Mapping[str, Any] | None = None) -> Event:
        """Send an event to every subscriber whose filters let it through. Never blocks."""
        self._seq[call_id] += 1
        event = Event(
            id=f"evt_{next(self._ids)}",
            type=type_,
            time=self._clock.wall_s(),
            call_id=call_id,
            seq=self._seq[call_id],
            data=data or {},
            node=self._node,
        )
        for subscription in tuple(self._subscribers):
            subscription.offer(event)
        return event

    def forget_call(self, call_id: str) -> None:
        """Drop the sequence count of a call that is no longer kept."""
        self._seq.pop(call_id, None)

    def forget(self, subscription: Subscription) -> None:
        """Remove a subscription; called by the subscription."""
        self._subscribers.discard(subscription)

    def close(self) -> None:
        """End every subscription."""
        for subscription in tuple(self._subscribers):
            subscription.close()
