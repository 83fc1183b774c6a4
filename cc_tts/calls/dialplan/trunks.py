"""The trunk that places a call, and the next one if that fails. Runs on: the event loop."""

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.config.sections.trunks import DEFAULT_USERNAME, TrunkConfig
from cc_tts.config.sip_uri import parts_of, uri_fault
from cc_tts.errors import CapacityExceeded, FieldError, Unprocessable
from cc_tts.metrics import Metrics
from cc_tts.ua.sip.uri import destination

NUMBER: Final = re.compile(r"\+?[0-9*#]{1,32}")  # E.164 has 15 digits; the others are for dial prefixes (unmeasured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An INVITE by one trunk; without a trunk's name, by the account of ``[registration]``."""

    trunk: str
    to: str
    from_: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The trunk of a call, and the trunks that may follow. ``number`` and ``from_`` are the client's."""

    trunk: str
    number: str
    from_: str
    left: tuple[str, ...] = ()


def target_fault(to: str) -> str | None:
    """Return the fault of the number or SIP URI that is to be called; ``None`` if it is valid."""
    return None if NUMBER.fullmatch(to) else uri_fault(to)


class Trunks:
    """The trunks, their use, and whether they are registered."""

    def __init__(self, trunks: Mapping[str, TrunkConfig], *, clock: Clock, metrics: Metrics) -> None:
        self._trunks = trunks
        self._clock = clock
        self._metrics = metrics
        self._plans: dict[str, _Plan] = {}
        self._in_use: Counter[str] = Counter()
        self._begun: dict[str, deque[int]] = {name: deque() for name in trunks}
        self._registered: dict[str, bool] = {}

    @property
    def not_ready_because(self) -> str | None:
        for name, trunk in self._trunks.items():
            if trunk.required and not self._registered.get(name):
                return f"trunk {name} is not registered"
        return None

    def note_registration(self, trunk: str, *, registered: bool) -> None:
        self._registered[trunk] = registered
        self._metrics.trunk_registered.labels(trunk=trunk).set(registered)

    def plan(self, call_id: str, to: str, *, trunk: str | None, from_: str | None, tenant: str) -> Attempt:
        """Choose the trunk of a call: the named one, or for a number the one with the longest matching prefix.

        Raises:
            Unprocessable: there is none for this tenant, or the target is not at that trunk.
            CapacityExceeded: it has as many calls as it may, and so have those that stand in for it.
        """
        is_number = NUMBER.fullmatch(to) is not None
        if trunk is None and not is_number:
            if from_ and NUMBER.fullmatch(from_):
                raise Unprocessable.about(FieldError("/from", "a number is for calls by a trunk; write a SIP URI"))
            self._check_not_around(to, tenant)
            return Attempt(trunk="", to=to, from_=from_ or "")
        first = self._by_prefix(to, tenant) if trunk is None else self._named(trunk, tenant)
        stand_ins = self._trunks[first].failover_to
        order = [first, *(each for each in stand_ins if self._trunks[each].may_be_used_by(tenant))]
        if not is_number:
            _check_host(to, self._trunks[first])
            order = [first]  # a URI names the host of this trunk, so no other trunk can stand in
        for number, name in enumerate(order):
            is_usable = self._registered.get(name) is not False or not order[number + 1 :]
            if is_usable and self._has_room(name):
                left = tuple(order[number + 1 :])
                return self._begin(call_id, _Plan(trunk=name, number=to, from_=from_ or "", left=left))
        busy = next((each for each in order if self._has_room(each)), None)
        if busy is not None:
            return self._begin(call_id, _Plan(trunk=busy, number=to, from_=from_ or ""))
        raise CapacityExceeded("the trunk of this call has as many calls as it may", retry_after_s=1)

    def next_for(self, call_id: str, *, sip_code: int, is_unreachable: bool) -> Attempt | None:
        """Return the next attempt of a call whose trunk has refused it; ``None`` if that response is final."""
        plan = self._plans.get(call_id)
        if plan is None:
            return None
        code = "0" if is_unreachable else str(sip_code)
        self._metrics.trunk_failures.labels(trunk=plan.trunk, code=code).inc()
        if not is_unreachable and sip_code not in self._trunks[plan.trunk].failover_codes:
            return None
        for number, name in enumerate(plan.left):
            if self._registered.get(name) is not False and self._has_room(name):
                self.release(call_id)
                left = plan.left[number + 1 :]
                return self._begin(call_id, _Plan(trunk=name, number=plan.number, from_=plan.from_, left=left))
        return None

    def note_up(self, call_id: str, trunk: str) -> None:
        """Count a call that is already up: an incoming call, or one of an earlier server."""
        if trunk in self._trunks and call_id not in self._plans:
            self._plans[call_id] = _Plan(trunk=trunk, number="", from_="")
            self._count(trunk, 1)

    def withdraw(self, call_id: str) -> None:
        """Uncount a call that was not placed, so that it uses up no tenant's call rate."""
        if (plan := self._plans.get(call_id)) is not None:
            self._begun[plan.trunk].pop()
            self.release(call_id)

    def release(self, call_id: str) -> None:
        if (plan := self._plans.pop(call_id, None)) is not None:
            self._count(plan.trunk, -1)

    def _begin(self, call_id: str, plan: _Plan) -> Attempt:
        self._plans[call_id] = plan
        self._count(plan.trunk, 1)
        self._begun[plan.trunk].append(self._clock.now_ns())
        trunk = self._trunks[plan.trunk]
        to = _uri(plan.number, trunk) if NUMBER.fullmatch(plan.number) else plan.number
        caller = plan.from_ or trunk.caller_id or trunk.username or DEFAULT_USERNAME
        host = re.sub(r":[0-9]+$", "", trunk.host)  # From has no port (RFC 3261 §19.1.1)
        at_trunk = f"{_scheme(trunk)}:{caller.replace('#', '%23')}@{host}"
        return Attempt(trunk=plan.trunk, to=to, from_=caller if uri_fault(caller) is None else at_trunk)

    def _count(self, trunk: str, change: int) -> None:
        self._in_use[trunk] += change
        self._metrics.trunk_calls.labels(trunk=trunk).set(self._in_use[trunk])

    def _has_room(self, name: str) -> bool:
        trunk, begun = self._trunks[name], self._begun[name]
        if trunk.max_calls and self._in_use[name] >= trunk.max_calls:
            return False
        rate = trunk.max_calls_per_s
        horizon_ns = self._clock.now_ns() - round(NS_PER_S * max(1.0, 1 / rate if rate else 0.0))
        while begun and begun[0] <= horizon_ns:
            begun.popleft()
        return not rate or len(begun) < max(1, int(rate))

    def _named(self, name: str, tenant: str) -> str:
        trunk = self._trunks.get(name)
        if trunk is None or not trunk.may_be_used_by(tenant):  # do not reveal that it exists
            raise Unprocessable.about(FieldError("/trunk", "there is no such trunk"))
        return name

    def _check_not_around(self, uri: str, tenant: str) -> None:
        """Refuse a URI at a trunk that the tenant may not use: the carrier knows our address and would accept the call."""
        host = destination(uri).rstrip(".")
        if any(host in trunk.hosts and not trunk.may_be_used_by(tenant) for trunk in self._trunks.values()):
            raise Unprocessable.about(FieldError("/to", "is at a host that may not be called"))

    def _by_prefix(self, number: str, tenant: str) -> str:
        matches = max(self._matches(number, tenant), key=lambda match: match[0], default=None)
        if matches is None:
            raise Unprocessable.about(
                FieldError("/to", "no trunk has a prefix of this number; write a SIP URI, or name a trunk")
            )
        return matches[1]

    def _matches(self, number: str, tenant: str) -> Iterator[tuple[int, str]]:
        for name, trunk in self._trunks.items():
            if trunk.may_be_used_by(tenant):
                yield from ((len(each), name) for each in trunk.prefixes if number.startswith(each))


def _uri(number: str, trunk: TrunkConfig) -> str:
    is_phone = ";user=phone" if number.startswith("+") else ""  # RFC 3261 §19.1.1
    transport = f";transport={trunk.transport}" if trunk.transport else ""
    return f"{_scheme(trunk)}:{number.replace('#', '%23')}@{trunk.host}{transport}{is_phone}"


def _scheme(trunk: TrunkConfig) -> str:
    return "sips" if trunk.registrar.lower().startswith("sips:") else "sip"


def _check_host(uri: str, trunk: TrunkConfig) -> None:
    """Refuse a URI at another host, since that host could ask for the trunk's password."""
    target, own = parts_of(uri), parts_of(f"{uri.partition(':')[0]}:{trunk.host}")
    if target is None or own is None or target[2:] != own[2:]:
        raise Unprocessable.about(FieldError("/to", "is not at the host of the trunk"))
