"""How the pool divides the limits of tenants between the nodes of a cluster. Pure; the clock is injected.

A node reports what it uses and which share it holds, and gets its share for the next seconds. What others may still use is
left out of it: the most of what they use, hold, and were last told. So all shares together never exceed the limit, whatever
order the reports come in. A node that wants more gets it when another has reported that it holds less.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.cluster.messages import Leases, TenantShare, TenantUse
from cc_tts.config.schema import TenantConfig

TTL_S: Final = 10.0
"""A node that does not report counts as using its share for this long (unmeasured)."""
RESERVED_SHARE: Final = 10
"""This share of each limit is divided evenly, so that every node can begin something (unmeasured)."""
WORK_OUT_INTERVAL_S: Final = 1.0
"""The interval at which a limit is divided again, however many nodes report (unmeasured)."""

Kind = Literal["calls", "streams", "listeners", "characters"]
_Limit = tuple[str, Kind]
"""A tenant and the kind of its limit."""
KEYS: Final[Mapping[Kind, str]] = {
    "calls": "max_calls",
    "streams": "max_streams",
    "listeners": "max_listeners",
    "characters": "max_characters_per_day",
}
"""The configuration key of each kind of limit."""
_NO_USE: Final = TenantUse()
_NO_SHARE: Final = TenantShare()


@dataclass(slots=True)
class _Node:
    """The last report of a node, and the last two shares that it was sent, since the latest may still be on its way.
    ``taken``: the most that it may be using.
    """

    at_ns: int
    tenants: Mapping[str, TenantUse] = field(default_factory=dict)
    told: Mapping[str, TenantShare] = field(default_factory=dict)
    told_before: Mapping[str, TenantShare] = field(default_factory=dict)
    taken: dict[_Limit, int] = field(default_factory=dict)


class TenantLeases:
    """The shares of all nodes. A pool that has just started confirms the shares that nodes hold for :data:`TTL_S`, since it
    does not know all nodes yet.
    """

    def __init__(self, tenants: Mapping[str, TenantConfig], *, clock: Clock) -> None:
        self._kinds: dict[str, dict[Kind, int]] = {
            name: {kind: limit for kind, key in KEYS.items() if (limit := int(getattr(config, key)))}
            for name, config in tenants.items()
        }
        """The limits of each tenant, by kind."""
        self._clock = clock
        self._knows_all_ns = clock.now_ns() + round(TTL_S * NS_PER_S)
        self._nodes: dict[str, _Node] = {}
        self._taken: Counter[_Limit] = Counter()
        """The sum of what all nodes may be using."""
        self._changed_ns: dict[str, int] = {}
        """When a report last changed the use of a tenant."""
        self._wanted: dict[_Limit, tuple[int, Mapping[str, int]]] = {}
        """The ideal division if all nodes could be told at once, and when it was computed."""

    def report(self, node: str, tenants: Mapping[str, TenantUse]) -> None:
        now_ns = self._clock.now_ns()
        limit_ns = now_ns - round(TTL_S * NS_PER_S)
        for name in [name for name, known in self._nodes.items() if known.at_ns < limit_ns]:
            self._taken.subtract(self._nodes.pop(name).taken)
            self._wanted.clear()
        if node not in self._nodes:
            self._nodes[node] = _Node(now_ns)
            self._wanted.clear()
        known, before = self._nodes[node], self._nodes[node].tenants
        known.at_ns, known.tenants = now_ns, dict(tenants)
        changed = {name for name in self._kinds if tenants.get(name) != before.get(name) or not known.told}
        self._changed_ns.update(dict.fromkeys(changed, now_ns))
        self._take(known, changed)

    def shares(self, node: str) -> Leases:
        """Return the shares of a node from now on. The node has just reported."""
        known = self._nodes[node]
        shares = {
            tenant: TenantShare(**{kind: self._part(node, (tenant, kind), limit) for kind, limit in limits.items()})
            for tenant, limits in self._kinds.items()
        }
        earlier, known.told_before, known.told = known.told_before, known.told, shares
        told = known.told_before
        changed = {name for name, share in shares.items() if not earlier.get(name) == told.get(name) == share}
        self._take(known, changed)
        return Leases(TTL_S, shares)

    def _take(self, known: _Node, tenants: Iterable[str]) -> None:
        """Recompute the most that a node may be using of these limits."""
        for tenant in tenants:
            use = known.tenants.get(tenant, _NO_USE)
            told, told_before = known.told.get(tenant, _NO_SHARE), known.told_before.get(tenant, _NO_SHARE)
            for kind in self._kinds[tenant]:
                held = (getattr(share, kind) or 0 for share in (use.held, told, told_before))
                taken = max(getattr(use, kind), *held)
                self._taken[tenant, kind] += taken - known.taken.get((tenant, kind), 0)
                known.taken[tenant, kind] = taken

    def _part(self, node: str, key: _Limit, limit: int) -> int:
        known = self._nodes[node]
        free = max(0, limit - self._taken[key] + known.taken.get(key, 0))
        now_ns = self._clock.now_ns()
        if now_ns < self._knows_all_ns:
            tenant, kind = key
            held: int | None = getattr(known.tenants.get(tenant, _NO_USE).held, kind)
            return min(free, limit if held is None else held)
        at_ns, wanted = self._wanted.get(key, (0, {}))
        has_changed = self._changed_ns.get(key[0], 0) >= at_ns
        if not wanted or (has_changed and now_ns - at_ns >= WORK_OUT_INTERVAL_S * NS_PER_S):
            wanted = self._work_out(key, limit)
            self._wanted[key] = now_ns, wanted
        return min(free, wanted[node])

    def _work_out(self, key: _Limit, limit: int) -> Mapping[str, int]:
        """Return the share of each node: its use, and a part of the rest in proportion to its use and its refusals. Nodes
        with little use get a small part, except of characters, since spoken text cannot move.
        """
        tenant, kind = key
        uses = {name: known.tenants.get(tenant, _NO_USE) for name, known in sorted(self._nodes.items())}
        used = {name: int(getattr(use, kind)) for name, use in uses.items()}
        num = len(used)
        own = 0 if kind == "characters" else min(max(1, limit // (RESERVED_SHARE * num)), limit // num)
        floors = {name: max(own, each) for name, each in used.items()}
        if sum(floors.values()) > limit:
            above = {name: each - own for name, each in floors.items()}
            return {name: own + part for name, part in _in_proportion(limit - own * num, above).items()}
        wishes = {name: used[name] + min(use.refused, limit) + 1 for name, use in uses.items()}
        parts = _in_proportion(limit - sum(floors.values()), wishes)
        return {name: floor + parts[name] for name, floor in floors.items()}


def _in_proportion(total: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide ``total`` into whole parts by ``weights`` (largest remainders); they are not all 0 unless ``total`` is."""
    weight = sum(weights.values()) or 1
    parts = {name: total * each // weight for name, each in weights.items()}
    left = total - sum(parts.values())
    by_remainder: Iterable[str] = sorted(weights, key=lambda name: (-(total * weights[name] % weight), name))
    for name in list(by_remainder)[:left]:
        parts[name] += 1
    return parts
