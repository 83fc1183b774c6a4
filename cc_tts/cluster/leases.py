"""How the pool divides the limits of tenants between the nodes of a cluster. Pure; the clock is injected.

A node reports what it uses and which share it holds, and gets its share for the next seconds. What others may still use is
left out of it: the most of what they use, hold, and were last told. So all shares together never exceed the limit, whatever
order the reports come in. A node that wants more gets it when another has reported that it holds less.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cc_tts.clock import Clock
from cc_tts.cluster.messages import Leases, TenantShare, TenantUse
from cc_tts.config.schema import TenantConfig

TTL_S: Final = 10.0
"""How long a node that does not report is taken to use its share."""
RESERVED_SHARE: Final = 10
"""A tenth of each limit is divided evenly, so that every node can begin something."""

_Kind = Literal["calls", "streams", "listeners", "characters"]
_KEYS: Final[Mapping[_Kind, str]] = {
    "calls": "max_calls",
    "streams": "max_streams",
    "listeners": "max_listeners",
    "characters": "max_characters_per_day",
}


@dataclass(slots=True)
class _Reported:
    """What a node last reported, and what it was told, the last time and the time before: that may still be on its way."""

    at_ns: int
    tenants: Mapping[str, TenantUse]
    told: Mapping[str, TenantShare]
    told_before: Mapping[str, TenantShare]


class TenantLeases:
    """The shares of all nodes. A pool that has just started confirms what nodes hold for :data:`TTL_S`, since it does not
    know all of them yet.
    """

    def __init__(self, tenants: Mapping[str, TenantConfig], *, clock: Clock) -> None:
        self._tenants = dict(tenants)
        self._clock = clock
        self._knows_all_ns = clock.now_ns() + round(TTL_S * 1e9)
        self._nodes: dict[str, _Reported] = {}

    def report(self, node: str, tenants: Mapping[str, TenantUse]) -> None:
        """What a node's tenants use now."""
        now_ns = self._clock.now_ns()
        limit_ns = now_ns - round(TTL_S * 1e9)
        for name in [name for name, known in self._nodes.items() if known.at_ns < limit_ns]:
            del self._nodes[name]
        known = self._nodes.setdefault(node, _Reported(now_ns, {}, {}, {}))
        known.at_ns, known.tenants = now_ns, dict(tenants)

    def shares(self, node: str) -> Leases:
        """What they may use there from now on. The node has reported."""
        known = self._nodes[node]
        shares = {name: self._share(node, name, config) for name, config in self._tenants.items()}
        known.told_before, known.told = known.told, shares
        return Leases(TTL_S, shares)

    def _share(self, node: str, tenant: str, config: TenantConfig) -> TenantShare:
        limits = {kind: int(getattr(config, key)) for kind, key in _KEYS.items()}
        return TenantShare(
            **{kind: self._part(node, tenant, kind, limit) if limit else None for kind, limit in limits.items()}
        )

    def _part(self, node: str, tenant: str, kind: _Kind, limit: int) -> int:
        free = max(0, limit - sum(self._taken(other, tenant, kind) for other in self._nodes if other != node))
        use = self._nodes[node].tenants.get(tenant, TenantUse())
        if self._clock.now_ns() < self._knows_all_ns:
            held: int | None = getattr(use.held, kind)
            return min(free, limit if held is None else held)
        return min(free, self._wanted(tenant, kind, limit)[node])

    def _taken(self, node: str, tenant: str, kind: _Kind) -> int:
        """The most that a node may be using."""
        known = self._nodes[node]
        use, none = known.tenants.get(tenant, TenantUse()), TenantShare()
        shares = (use.held, known.told.get(tenant, none), known.told_before.get(tenant, none))
        return max(int(getattr(use, kind)), *(getattr(share, kind) or 0 for share in shares))

    def _wanted(self, tenant: str, kind: _Kind, limit: int) -> dict[str, int]:
        """What each node would have if all could be told at once: what it uses, and a part of what is left by what it uses
        and had to refuse. Nodes that use little have a small part of their own; for characters they have not, since what
        was spoken cannot move.
        """
        uses = {name: known.tenants.get(tenant, TenantUse()) for name, known in sorted(self._nodes.items())}
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
    """``total`` in whole parts (largest remainders); ``weights`` are not all 0, unless ``total`` is."""
    weight = sum(weights.values()) or 1
    parts = {name: total * each // weight for name, each in weights.items()}
    left = total - sum(parts.values())
    by_remainder: Iterable[str] = sorted(weights, key=lambda name: (-(total * weights[name] % weight), name))
    for name in list(by_remainder)[:left]:
        parts[name] += 1
    return parts
