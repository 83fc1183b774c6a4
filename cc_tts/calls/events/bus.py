"""Events to clients: one envelope, a gapless sequence number a call, subscribers that cannot slow the server down."""

import asyncio
import re
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cc_tts.calls.events.types import EventData
from cc_tts.clock import Clock
from cc_tts.errors import CapacityExceeded, EventsGone, MalformedRequest

EVENTS_A_TURN: Final = 50
MAX_EVENT_ID_CHARS: Final = 40
_EVENT_ID: Final = re.compile(r"evt_([0-9a-f]{8})_(0|[1-9][0-9]{0,18})")


class Event(msgspec.Struct, frozen=True):
    """One event."""

    id: Annotated[str, Meta(description="Unique; `since` and `Last-Event-ID` take it.")]
    type: str
    time: Annotated[float, Meta(description="Seconds since the Unix epoch.")]
    call_id: Annotated[str | None, Meta(description="Null for events of the server.")]
    seq: Annotated[
        int, Meta(description="Counts up per call without gaps from 1; events of the server have a count of their own.")
    ]
    data: EventData
    node: Annotated[str, Meta(description="The server it happened on (`server.node`).")] = ""


class Subscription:
    """One reader's bounded queue. When it is full the reader is too slow: the subscription ends with ``overflowed``.
    Events from before it was opened do not count.
    """

    def __init__(self, bus: "EventBus", *, call_id: str | None, types: frozenset[str] | None, max_queued: int) -> None:
        self._bus = bus
        self._call_id = call_id
        self._types = types
        self._max_queued = max_queued
        self._queue: deque[Event] = deque()
        self._num_earlier = self._num_taken = 0
        self._wake = asyncio.Event()
        self._closed = False
        self.overflowed = False

    def catch_up(self, events: list[Event]) -> None:
        """Queue events from before it was opened; called once by the bus."""
        self._queue.extend(event for event in events if self._wants(event))
        self._num_earlier = len(self._queue)

    def offer(self, event: Event) -> None:
        """Queue an event if the filters let it through; called by the bus."""
        if not self._wants(event):
            return
        if len(self._queue) - self._num_earlier < self._max_queued:
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

    @property
    def has_queued(self) -> bool:
        """Whether an event waits to be taken."""
        return bool(self._queue)

    async def wait(self) -> bool:
        """Wait for an event; returns whether there is one: the subscription is over if not. Other tasks get their turn
        after every :data:`EVENTS_A_TURN` events.
        """
        if self._num_taken >= EVENTS_A_TURN:
            self._num_taken = 0
            await asyncio.sleep(0)
        while not self._queue and not self._closed:
            self._wake.clear()
            await self._wake.wait()
        return bool(self._queue)

    def take(self) -> Event:
        """The oldest event that is queued, if :meth:`wait` says that there is one."""
        self._num_earlier = max(0, self._num_earlier - 1)
        self._num_taken += 1
        return self._queue.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while await self.wait():
            yield self.take()

    def _wants(self, event: Event) -> bool:
        return self._call_id in (None, event.call_id) and (self._types is None or event.type in self._types)


class EventBus:
    """Publishes events to every subscriber, and keeps the last ``history_size`` for those that come again.

    Ids are ``evt_RUN_NUMBER``: RUN is made up at each start of the server. Runs on: the event loop.
    """

    def __init__(self, clock: Clock, *, max_subscribers: int = 100, history_size: int = 10_000, node: str = "") -> None:
        self._clock = clock
        self._node = node
        self._max_subscribers = max_subscribers
        self._subscribers: set[Subscription] = set()
        self._seq: Counter[str | None] = Counter()
        self._run = secrets.token_hex(4)
        self._last_number = 0
        self._history: deque[Event] = deque(maxlen=history_size)

    @property
    def num_subscribers(self) -> int:
        """Open subscriptions."""
        return len(self._subscribers)

    @property
    def last_id(self) -> str:
        """Of the last event; before the first one an id that it would follow."""
        return f"evt_{self._run}_{self._last_number}"

    def subscribe(
        self,
        *,
        call_id: str | None = None,
        types: frozenset[str] | None = None,
        max_queued: int = 1000,
        since: str | None = None,
    ) -> Subscription:
        """Open a subscription. With ``since`` it begins with the event that followed the one of this id, whether or not
        the filters let that one through.

        Raises:
            CapacityExceeded: there are as many subscribers as the config allows.
            MalformedRequest: ``since`` is no id of an event.
            EventsGone: an event that followed ``since`` is no longer kept, or ``since`` is of another run of the server.
        """
        missed = [] if since is None else self._after(since)
        if len(self._subscribers) >= self._max_subscribers:
            raise CapacityExceeded("as many event subscribers as http.max_event_subscribers allows", retry_after_s=5)
        subscription = Subscription(self, call_id=call_id, types=types, max_queued=max_queued)
        subscription.catch_up(missed)
        self._subscribers.add(subscription)
        return subscription

    def publish(self, data: EventData, *, call_id: str | None = None) -> Event:
        """Send an event to every subscriber whose filters let it through. Never blocks."""
        self._seq[call_id] += 1
        self._last_number += 1
        event = Event(
            id=self.last_id,
            type=data.type,
            time=self._clock.wall_s(),
            call_id=call_id,
            seq=self._seq[call_id],
            data=data,
            node=self._node,
        )
        self._history.append(event)
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

    def _after(self, event_id: str) -> list[Event]:
        match = _EVENT_ID.fullmatch(event_id[:MAX_EVENT_ID_CHARS])
        if match is None or (match[1] == self._run and int(match[2]) > self._last_number):
            raise MalformedRequest("since and Last-Event-ID are the id of an event, as in evt_5f3a9c2e_17")
        if match[1] != self._run:
            raise EventsGone("this event is of an earlier run of the server, or of another server")
        num_missed = self._last_number - int(match[2])
        if num_missed > len(self._history):
            raise EventsGone(f"{num_missed} events followed it; http.event_history_size keeps the last of them")
        return list(self._history)[len(self._history) - num_missed :]
