"""Events to clients: one envelope, sequence numbers without gaps for each call, and subscribers that cannot delay the
server.
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cc_tts.calls.dtmf.gather import NOBODY, DigitsTo
from cc_tts.calls.events.outbox import Outbox
from cc_tts.calls.events.types import CallData, EventData
from cc_tts.clock import Clock
from cc_tts.config.schema import CallWebhook
from cc_tts.errors import CapacityExceeded, EventsGone, MalformedRequest
from cc_tts.tenants.shares import SharedRoom
from cc_tts.tracing.context import TraceContext

MAX_EVENT_ID_CHARS: Final = 40  # unmeasured
_EVENT_ID: Final = re.compile(r"evt_([0-9a-f]{8})_(0|[1-9][0-9]{0,18})")


class Event(msgspec.Struct, frozen=True):
    """An event as subscribers see it."""

    id: Annotated[str, Meta(description="Unique; `since` and `Last-Event-ID` take it.")]
    type: str
    time: Annotated[float, Meta(description="Seconds since the Unix epoch.")]
    call_id: Annotated[str | None, Meta(description="Null for events of the server.")]
    seq: Annotated[
        int, Meta(description="Counts up per call without gaps from 1; events of the server have a count of their own.")
    ]
    data: EventData
    node: Annotated[str, Meta(description="The server it happened on (`server.node`).")] = ""
    api: Annotated[
        str | UnsetType, Meta(description="Base URL of that server's API; left out without `cluster.base_url`.")
    ] = UNSET
    tenant: Annotated[str | UnsetType, Meta(description="Whose call it is; left out if it is no tenant's.")] = UNSET


class Subscription(Outbox[Event]):
    """The events of one reader that match its filters, beginning with those that it has missed."""

    def __init__(
        self,
        bus: "EventBus",
        missed: list[Event],
        *,
        call_id: str | None,
        types: frozenset[str] | None,
        max_queued: int,
        tenant: str,
        connection: str,
        sees_digits: bool,
    ) -> None:
        self._bus = bus
        self._connection = connection
        self._sees_digits = sees_digits
        self._tenant = tenant
        self._call_id = call_id
        self._types = types
        super().__init__(max_queued, filter(self.wants, missed))

    def wants(self, event: Event) -> bool:
        if self._tenant and event.tenant != self._tenant:
            return False
        return self._call_id in (None, event.call_id) and (self._types is None or event.type in self._types)

    def sees_digits(self, to: DigitsTo) -> bool:
        return self._sees_digits or (bool(self._connection) and self._connection == to.connection)

    def close(self) -> None:
        super().close()
        self._bus.forget(self)


class EventBus:
    """Publishes events to subscribers, and keeps the last ``history_size`` of them. Tenants have fair shares of the history,
    and owners of the subscriptions. ``sink`` gets every event, as :meth:`cc_tts.webhooks.webhooks.Webhooks.take` does.

    Ids are ``evt_RUN_NUMBER``: ``run`` is made up at each start of the server. Runs on: the event loop.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_subscribers: int = 100,
        history_size: int = 10_000,
        node: str = "",
        api: str = "",
        sink: Callable[..., None] | None = None,
    ) -> None:
        self._clock = clock
        self._sink = sink
        self._node = node
        self._api = api or UNSET
        self._max_subscribers = max_subscribers
        self._subscribers: SharedRoom[Subscription, None] = SharedRoom()
        self._seq: Counter[str | None] = Counter()
        self.run = secrets.token_hex(4)
        self._runs_before: set[str] = set()
        self._last_number = 0
        self._history_size = history_size
        self._history: SharedRoom[int, Event] = SharedRoom()
        self._gone: dict[str, int] = {}
        """The number of the last event of each tenant that has been forgotten."""

    @property
    def num_subscribers(self) -> int:
        return len(self._subscribers)

    @property
    def last_id(self) -> str:
        """The id of the last event; before the first event, the id that it would follow."""
        return f"evt_{self.run}_{self._last_number}"

    def subscribe(
        self,
        *,
        call_id: str | None = None,
        types: frozenset[str] | None = None,
        max_queued: int = 1000,
        since: str | None = None,
        tenant: str = "",
        owner: str = "",
        connection: str = "",
        sees_digits: bool = False,
    ) -> Subscription:
        """Open a subscription. With ``since`` it begins with the event that followed the one of this id, whether or not
        the filters let that one through. With ``tenant`` it has the events of that one's calls only. When there is no
        room, the oldest of the ``owner`` with the most ends for one of an owner with fewer. Digits that are withheld from
        others come to a subscription that ``sees_digits``, and to the ``connection`` that a command names.

        Raises:
            CapacityExceeded: there are as many subscribers as the config allows, and no owner has more than ``owner``.
            MalformedRequest: ``since`` is no id of an event.
            EventsGone: an event that followed ``since`` is no longer kept, or ``since`` is of another run of the server than
                those that :meth:`follow` has named.
        """
        missed = [] if since is None else self._after(since, tenant)
        if len(self._subscribers) >= self._max_subscribers:
            self._displace(owner)
        subscription = Subscription(
            self,
            missed,
            call_id=call_id,
            types=types,
            max_queued=max_queued,
            tenant=tenant,
            connection=connection,
            sees_digits=sees_digits,
        )
        self._subscribers.add(subscription, None, owner)
        return subscription

    def _displace(self, newcomer: str) -> None:
        oldest = self._subscribers.next_out()
        if (
            oldest is None
            or self._subscribers.count(self._subscribers.owner(oldest)) <= self._subscribers.count(newcomer) + 1
        ):
            raise CapacityExceeded("as many event subscribers as http.max_event_subscribers allows", retry_after_s=5)
        oldest.displaced = True
        oldest.close()

    def publish(
        self,
        data: EventData,
        *,
        call_id: str | None = None,
        tenant: str = "",
        webhook: CallWebhook | None = None,
        in_clear: CallData | None = None,
        digits_to: DigitsTo = NOBODY,
        trace: TraceContext | None = None,
    ) -> Event:
        """Send an event to the subscribers whose filters match and to the webhooks, including ``webhook``. Subscribers who
        may see digits, and ``digits_to``, get the data ``in_clear`` if there is any; it is not kept. Never blocks.
        """
        self._seq[call_id] += 1
        self._last_number += 1
        event = self.stamp(data, id_=self.last_id, call_id=call_id, seq=self._seq[call_id], tenant=tenant)
        self._keep(event, tenant)
        clear_event = None if in_clear is None else msgspec.structs.replace(event, data=in_clear)
        for subscription in tuple(self._subscribers):
            if subscription.wants(event):
                is_clear = clear_event is not None and subscription.sees_digits(digits_to)
                subscription.put(clear_event if clear_event is not None and is_clear else event)
        if self._sink is not None:
            self._sink(
                event,
                tenant=tenant,
                of_call=webhook,
                clear_event=clear_event,
                clear_for=digits_to.webhook,
                trace=trace,
            )
        return event

    def stamp(self, data: EventData, *, id_: str, call_id: str | None = None, seq: int = 0, tenant: str = "") -> Event:
        return Event(
            id=id_,
            type=data.type,
            time=self._clock.wall_s(),
            call_id=call_id,
            seq=seq,
            data=data,
            node=self._node,
            api=self._api,
            tenant=tenant or UNSET,
        )

    def _keep(self, event: Event, tenant: str) -> None:
        history = self._history
        history.add(self._last_number, event, tenant)
        while len(history) > self._history_size and (oldest := history.next_out()) is not None:
            self._gone[history.discard(oldest)] = oldest

    def of_call(self, call_id: str) -> list[Event]:
        return [event for event in self._history.values() if event.call_id == call_id]

    def forget_call(self, call_id: str) -> None:
        self._seq.pop(call_id, None)

    def forget(self, subscription: Subscription) -> None:
        """Remove a subscription. The subscription calls this itself."""
        self._subscribers.discard(subscription)

    def follow(self, run: str) -> None:
        """Accept event ids of ``run``, an earlier run of the server, since one of its calls was adopted. Their readers
        continue with the first event of this run.
        """
        self._runs_before.add(run)

    def close(self) -> None:
        for subscription in tuple(self._subscribers):
            subscription.close()

    def _after(self, event_id: str, tenant: str) -> list[Event]:
        match = _EVENT_ID.fullmatch(event_id[:MAX_EVENT_ID_CHARS])
        if match is None or (match[1] == self.run and int(match[2]) > self._last_number):
            raise MalformedRequest("since and Last-Event-ID are the id of an event, as in evt_5f3a9c2e_17")
        if match[1] not in (self.run, *self._runs_before):
            raise EventsGone("this event is of an earlier run of the server, or of another server")
        last_read = int(match[2]) if match[1] == self.run else 0
        if last_read < (self._gone.get(tenant, 0) if tenant else max(self._gone.values(), default=0)):
            num_missed = self._last_number - last_read
            raise EventsGone(f"{num_missed} events followed it; http.event_history_size keeps the last of them")
        return [event for number, event in self._history.items() if number > last_read]
