"""The live calls, and the ended ones for a while. Runs on: the event loop."""

import asyncio
import contextlib
from functools import partial

from cc_tts import logs
from cc_tts.calls import traces
from cc_tts.calls.call import Call
from cc_tts.calls.events import types
from cc_tts.calls.services import CallServices
from cc_tts.clock import NS_PER_S
from cc_tts.errors import CallNotFound
from cc_tts.tenants.quotas import Reservation
from cc_tts.tenants.shares import SharedRoom

log = logs.get(__name__)


class CallTable:
    """All calls by id. ``draining``: no new calls are taken."""

    def __init__(self, services: CallServices) -> None:
        self._services = services
        self.draining = False
        self.live: dict[str, Call] = {}
        self.ended: SharedRoom[str, Call] = SharedRoom()
        """Ended calls, with a share for each tenant."""
        self._reservations: dict[str, Reservation] = {}
        """The reservations of live calls in the quotas of their tenants, by call."""
        self._empty = asyncio.Event()

    def find(self, call_id: str) -> Call:
        """Return the call of this id.

        Raises:
            CallNotFound: unknown, or ended and forgotten.
        """
        call = self.live.get(call_id) or self.ended.get(call_id)
        if call is None:
            raise CallNotFound.named(call_id)
        return call

    def __contains__(self, call_id: str) -> bool:
        return call_id in self.live or call_id in self.ended

    def add(self, call: Call) -> None:
        self.restore(call)
        self._services.metrics.calls_total.labels(direction=call.direction).inc()

    def restore(self, call: Call) -> None:
        """Add a call that another server has counted. An ended call of the same id is forgotten, since dialplans reuse UUIDs
        of AudioSocket.
        """
        if (earlier := self.ended.get(call.id)) is not None:
            self._forget(earlier)
        self.live[call.id] = call
        self._services.metrics.calls_active.set(len(self.live))

    def reserve(self, call_id: str, tenant: str, *, is_up: bool = False) -> None:
        """Count a call against the quota of its tenant, until it is retired. A call that is already counted is not counted
        again.

        Raises:
            QuotaExceeded: the tenant has as many as it may, and this one is not up.
        """
        if call_id not in self._reservations:
            self._reservations[call_id] = self._services.tenants.hold(tenant, "calls", is_up=is_up)

    def release(self, call_id: str) -> None:
        self._services.trunks.release(call_id)
        if (reservation := self._reservations.pop(call_id, None)) is not None:
            reservation.release()

    async def until_empty(self, timeout_s: float) -> None:
        """Wait until the last call has ended, at most for this time."""
        self._empty.clear()
        if self.live:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), timeout_s)

    def retire(self, call: Call) -> None:
        ending = call.ending
        assert ending is not None
        services = self._services
        self.live.pop(call.id, None)
        self.release(call.id)
        if not self.live:
            self._empty.set()
        self.ended.add(call.id, call, call.tenant)
        services.metrics.calls_active.set(len(self.live))
        services.metrics.calls_ended.labels(direction=call.direction, result=ending.result, reason=ending.reason).inc()
        services.accounting.add(traces.accounting_line(call, ending), on_written=partial(services.ua.note_end, call.id))
        if call.answered_at_s is not None:
            traces.observe(call.quality, services.metrics)
        call.publish(types.CallTerminated(ending=ending, quality=call.quality))
        self._forget_old()

    def _forget_old(self) -> None:
        config = self._services.config.calls
        horizon_ns = self._services.clock.now_ns() - config.ended_retention_s * NS_PER_S
        while (oldest := next(iter(self.ended.values()), None)) is not None and oldest.ended_ns < horizon_ns:
            self._forget(oldest)
        while len(self.ended) > config.max_ended_calls and (call_id := self.ended.next_out()) is not None:
            self._forget(self.ended[call_id])

    def _forget(self, call: Call) -> None:
        self.ended.discard(call.id)
        self._services.events.forget_call(call.id)
        self._services.utterances.forget(call.utterances)
