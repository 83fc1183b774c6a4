"""The events that wait for one endpoint, and which is sent when. It has no clock and no I/O.

Events of one call go one after the other. One that fails holds the later ones of its call for ``order_hold_ns`` at most;
then they pass it, and it is repeated beside them. Runs on: the event loop.

::

    put ─▸ lane of its call ─▸ head ─▸ take ─▸ attempt ─▸ finish                    ─▸ the next of the call
                                ▲                  └──▸ retry, within order_hold_ns ─┘
                                                   └──▸ retry, later ─▸ late, on its own; the next of the call passes
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from cc_tts.clock import NS_PER_S
from cc_tts.tracing.context import TraceContext

DropReason = Literal["overflow", "expired", "disabled", "not_kept"]
"""Why an event is given up: too many wait, it is too old, the endpoint is gone (410), or the disk cannot be written."""
DROP_REASONS: Final[tuple[DropReason, ...]] = get_args(DropReason)


@dataclass(slots=True, eq=False, kw_only=True)
class EventDelivery:
    """One event for one endpoint. ``is_durable``: it survives a restart. All instants are on CLOCK_MONOTONIC."""

    id: str
    type: str
    call_id: str | None
    seq: int
    body: bytes
    created_ns: int
    expires_ns: int
    is_durable: bool = False
    due_ns: int = 0
    num_attempts: int = 0
    hold_until_ns: int | None = None
    """When later events of the call may overtake it, after it has failed."""
    is_late: bool = False
    """Whether it no longer holds back the events of its call."""
    is_in_flight: bool = False
    is_over: bool = False
    trace: TraceContext | None = None
    """The trace of the call that it is about, if there is one."""


class DeliveryQueue:
    """``on_drop`` is called for each event that is given up."""

    def __init__(
        self, *, max_queued: int, order_hold_ns: int, on_drop: Callable[[EventDelivery, DropReason], None]
    ) -> None:
        self.max_queued = max_queued
        self.order_hold_ns = order_hold_ns
        self._on_drop = on_drop
        self._lanes: dict[str | None, deque[EventDelivery]] = {}
        self._due: list[tuple[int, int, EventDelivery]] = []
        self._serial = itertools.count()
        self._live: dict[EventDelivery, None] = {}
        self._durable: dict[EventDelivery, None] = {}

    def __len__(self) -> int:
        return len(self._live) + len(self._durable)

    def oldest_s(self, now_ns: int) -> float | None:
        """Return the age of the oldest event, seconds; ``None`` if there is none."""
        firsts = (next(iter(some), None) for some in (self._live, self._durable))
        created_ns = min((first.created_ns for first in firsts if first is not None), default=None)
        return None if created_ns is None else round((now_ns - created_ns) / NS_PER_S, 3)

    def put(self, delivery: EventDelivery) -> None:
        """Queue an event. If there is no room, the oldest event that is not durable is given up, else the oldest durable
        one.
        """
        if len(self) >= self.max_queued:
            self._make_room()
        (self._durable if delivery.is_durable else self._live)[delivery] = None
        lane = self._lanes.setdefault(delivery.call_id, deque())
        lane.append(delivery)
        if len(lane) == 1:
            self._push(delivery)

    def take(self, now_ns: int) -> EventDelivery | None:
        """Return the next event that is due; :meth:`finish` or :meth:`retry` follows."""
        while self._due and self._due[0][0] <= now_ns:
            delivery = heapq.heappop(self._due)[2]
            if delivery.is_over:
                self._advance(delivery)
            elif delivery.expires_ns <= now_ns:
                self.drop(delivery, "expired")
                self._advance(delivery)
            else:
                delivery.is_in_flight = True
                return delivery
        return None

    @property
    def next_due_ns(self) -> int | None:
        return self._due[0][0] if self._due else None

    def finish(self, delivery: EventDelivery) -> None:
        self._forget(delivery)
        self._advance(delivery)

    def retry(self, delivery: EventDelivery, *, due_ns: int, now_ns: int, may_pass: bool = True) -> None:
        """Repeat the event from ``due_ns`` on. ``may_pass``: later events of its call may overtake it in time."""
        delivery.is_in_flight, delivery.due_ns = False, min(due_ns, delivery.expires_ns)
        if not may_pass:
            delivery.hold_until_ns = None
        elif delivery.hold_until_ns is None:
            delivery.hold_until_ns = now_ns + self.order_hold_ns
        if not delivery.is_late and may_pass and due_ns >= (hold_until_ns := delivery.hold_until_ns or 0):
            self._let_pass(delivery, hold_until_ns)
        self._push(delivery)

    def bring_forward(self, now_ns: int) -> None:
        """Make everything due now. Events that were overtaken come before the later ones of their calls."""
        waiting = [delivery for _, _, delivery in self._due if not delivery.is_over]
        late = [delivery for delivery in waiting if delivery.is_late]
        for delivery in sorted(late, key=lambda each: each.seq, reverse=True):
            lane = self._lanes.setdefault(delivery.call_id, deque())
            if not lane or not lane[0].is_in_flight:
                delivery.is_late, delivery.hold_until_ns = False, None
                lane.appendleft(delivery)
        heads = [lane[0] for lane in self._lanes.values() if lane and not lane[0].is_in_flight]
        self._due = []
        for delivery in sorted([*heads, *(each for each in late if each.is_late)], key=lambda each: each.created_ns):
            delivery.due_ns = now_ns
            self._push(delivery)

    def clear(self, reason: DropReason) -> None:
        """Give up everything that is not being sent."""
        for delivery in (*self._live, *self._durable):
            if not delivery.is_in_flight:
                self.drop(delivery, reason)

    def drop(self, delivery: EventDelivery, reason: DropReason) -> None:
        self._forget(delivery)
        self._on_drop(delivery, reason)
        delivery.body = b""

    def _make_room(self) -> None:
        for some in (self._live, self._durable):
            oldest = next((each for each in some if not each.is_in_flight), None)
            if oldest is not None:
                self.drop(oldest, "overflow")
                return

    def _forget(self, delivery: EventDelivery) -> None:
        delivery.is_over, delivery.is_in_flight = True, False
        self._live.pop(delivery, None)
        self._durable.pop(delivery, None)

    def _let_pass(self, delivery: EventDelivery, from_ns: int) -> None:
        """Let the later events of a call overtake one of them."""
        delivery.is_late = True
        lane = self._lanes[delivery.call_id]
        lane.popleft()
        for waiting in itertools.islice(lane, 1):
            waiting.due_ns = from_ns
        self._show_head(delivery.call_id)

    def _advance(self, delivery: EventDelivery) -> None:
        """Move the next event of the call to the head, unless it has overtaken this one."""
        if not delivery.is_late:
            self._lanes[delivery.call_id].popleft()
            self._show_head(delivery.call_id)

    def _show_head(self, call_id: str | None) -> None:
        lane = self._lanes[call_id]
        while lane and lane[0].is_over:
            lane.popleft()
        if lane:
            self._push(lane[0])
        else:
            del self._lanes[call_id]

    def _push(self, delivery: EventDelivery) -> None:
        heapq.heappush(self._due, (delivery.due_ns, next(self._serial), delivery))
