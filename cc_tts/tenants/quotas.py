"""Quotas of tenants: what each uses now, and whether it may use more.

::

    a call, a stream, a listener begins ─▸ hold(tenant, …) ─▸ Reservation ─▸ release() when it is over
    text is accepted ─▸ characters(tenant, n)

Limits are those of the configuration, divided by the configured nodes of the cluster, or this node's share of them as
`cc-tts pool` last said. Without any tenant in the configuration nothing is counted. Runs on: the event loop.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final, Literal

from msgspec.structs import replace

from cc_tts.clock import Clock, MonotonicClock
from cc_tts.cluster.leases import KEYS, Kind
from cc_tts.cluster.messages import Leases, TenantShare, TenantUse
from cc_tts.config.schema import ClusterConfig, Config, ServerConfig, TenantConfig
from cc_tts.errors import EngineOverloaded, QuotaExceeded
from cc_tts.metrics import Metrics
from cc_tts.tenants.fairness import Fairness

RETRY_AFTER_S: Final[Mapping[Kind, int]] = {"calls": 5, "streams": 1, "listeners": 5}
"""Retry-After of a refusal; for characters it is the rest of the day."""
SHARED_RETRY_AFTER_S: Final = 1
"""Retry-After of a refusal in favour of other tenants (unmeasured)."""
MAX_LABELS: Final = 100
"""The most tenants with metrics of their own (unmeasured)."""
OTHER: Final = "other"
"""The label of the tenants beyond :data:`MAX_LABELS`."""
NO_TENANT: Final = "none"
"""The label of use without a tenant."""
_DAY_S: Final = 86_400  # a day of POSIX time


class Reservation(ExitStack):
    """Something that a tenant uses, until it is released. As a context manager it is released at the end."""

    release = ExitStack.close


class TenantQuotas:
    """``node`` and ``num_nodes``: the index of this node and the number of nodes in the configuration."""

    def __init__(
        self,
        tenants: Mapping[str, TenantConfig] | None = None,
        *,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        node: int = 0,
        num_nodes: int = 1,
    ) -> None:
        self._tenants = dict(tenants or {})
        self._clock = clock or MonotonicClock()
        self._metrics = metrics or Metrics()
        self._node, self._num_nodes = node, num_nodes
        self._used: dict[Kind, Counter[str]] = {kind: Counter() for kind in KEYS}
        self._refused: Counter[str] = Counter()
        self._refused_told: Counter[str] = Counter()
        """The refusals that the pool knows of."""
        self._shares: Mapping[str, TenantShare] = {}
        self._fairness = Fairness(self._clock)
        self._labels: dict[str, str] = {}
        self._day = self._today

    @classmethod
    def of(cls, config: Config, *, clock: Clock, metrics: Metrics) -> "TenantQuotas":
        node, num_nodes = place_of(config.server, config.cluster)
        return cls(config.tenants, clock=clock, metrics=metrics, node=node, num_nodes=num_nodes)

    @property
    def is_on(self) -> bool:
        return bool(self._tenants)

    def reload(self, tenants: Mapping[str, TenantConfig]) -> None:
        """Use these limits from now on. Present use continues."""
        self._tenants = dict(tenants)

    # --- what begins -------------------------------------------------------------------------------------------------

    def hold(self, tenant: str, kind: Literal["calls", "streams", "listeners"], *, is_up: bool = False) -> Reservation:
        """Reserve a call, or a reader of events or of a call's audio; raises ``QuotaExceeded``. A call that ``is_up``
        already counts whatever the limit is.
        """
        if not self.is_on:
            return Reservation()
        if not is_up:
            self._check(tenant, kind)
        used = self._used[kind]
        gauges = {"calls": self._metrics.tenant_calls, "streams": self._metrics.tenant_streams}
        gauge = gauges[kind].labels(tenant=self._label(tenant)) if kind in gauges else None

        def count(by: int) -> None:
            used[tenant] += by
            if gauge is not None:
                gauge.inc(by)

        count(1)
        reservation = Reservation()
        reservation.callback(count, -1)
        return reservation

    def check_stream(self, tenant: str, utilisation: Callable[[], float]) -> None:
        """Refuse what :meth:`hold_stream` would refuse now. ``utilisation``: of the engine's capacity, 0 to 1.

        Raises:
            QuotaExceeded: the tenant speaks as many texts as it may.
            EngineOverloaded: the engine is busy, and the tenant has its share of it.
        """
        if not self.is_on:
            return
        self._check(tenant, "streams")
        weights = {name: config.weight for name, config in self._tenants.items()}
        if self._fairness.refuses(tenant, running=self._used["streams"], weights=weights, utilisation=utilisation()):
            self._count_refusal(tenant, "share")
            raise EngineOverloaded(
                "the engine is busy, and this tenant has its share of it", retry_after_s=SHARED_RETRY_AFTER_S
            )

    def hold_stream(self, tenant: str, utilisation: Callable[[], float]) -> Reservation:
        """Reserve a text that begins to be spoken; raises as :meth:`check_stream`."""
        self.check_stream(tenant, utilisation)
        return self.hold(tenant, "streams")

    @contextmanager
    def asking_engine(self, tenant: str) -> Iterator[None]:
        """Note it if the engine refuses a request inside: other tenants then have to keep to their shares."""
        try:
            yield
        except EngineOverloaded:
            if self.is_on:
                self._fairness.note_refused(tenant)
            raise

    @contextmanager
    def characters(self, tenant: str, num: int) -> Iterator[None]:
        """Charge for text that is accepted inside; refused text costs nothing. Raises ``QuotaExceeded``."""
        if not self.is_on:
            yield
            return
        self._check(tenant, "characters", num)
        self._used["characters"][tenant] += num
        day = self._day
        try:
            yield
        except BaseException:
            if day == self._day:
                self._used["characters"][tenant] -= num
            raise
        self._metrics.tenant_characters.labels(tenant=self._label(tenant)).inc(num)

    def check_characters(self, tenant: str, num: int) -> None:
        """Refuse what :meth:`characters` would refuse now; raises ``QuotaExceeded``."""
        if self.is_on:
            self._check(tenant, "characters", num)

    # --- the cluster -------------------------------------------------------------------------------------------------

    def use(self) -> dict[str, TenantUse]:
        """Return each tenant's use here, for the pool. Refusals count from the last call of this method."""
        told, self._refused_told = self._refused_told, Counter(self._refused)
        return {name: replace(use, refused=use.refused - told[name]) for name, use in self.used().items()}

    def used(self) -> dict[str, TenantUse]:
        """Return each tenant's use here. Refusals count from the start of the server."""
        self._turn_day()
        return {
            name: TenantUse(
                **{kind: used[name] for kind, used in self._used.items()},
                refused=self._refused[name],
                held=TenantShare(**{kind: self.limit(name, kind) for kind in KEYS}),
            )
            for name in self._tenants
        }

    def on_leases(self, leases: Leases) -> None:
        """Set the shares of tenants at this node, as the pool gives them. They stay in force when the pool is away."""
        self._shares = leases.tenants

    def limit(self, tenant: str, kind: Kind) -> int | None:
        """Return the limit of a tenant at this node; ``None`` if there is none."""
        config = self._tenants.get(tenant)
        total: int = getattr(config, KEYS[kind], 0)
        if not total:
            return None
        share: int | None = getattr(self._shares.get(tenant), kind, None)
        return divided(total, self._num_nodes, self._node) if share is None else min(share, total)

    # -----------------------------------------------------------------------------------------------------------------

    def _check(self, tenant: str, kind: Kind, num: int = 1) -> None:
        self._turn_day()
        limit = self.limit(tenant, kind)
        if limit is None or self._used[kind][tenant] + num <= limit:
            return
        self._refused[tenant] += 1
        self._count_refusal(tenant, kind)
        total: int = getattr(self._tenants[tenant], KEYS[kind])
        here = "" if limit == total else f", {limit} of them at this node"
        raise QuotaExceeded(
            f"{KEYS[kind]} of this tenant is {total}{here}",
            retry_after_s=RETRY_AFTER_S.get(kind) or math.ceil(_DAY_S - self._clock.wall_s() % _DAY_S),
        )

    def _count_refusal(self, tenant: str, limit: str) -> None:
        self._metrics.tenant_refused.labels(tenant=self._label(tenant), limit=limit).inc()

    def _label(self, tenant: str) -> str:
        if tenant not in self._labels:
            self._labels[tenant] = (tenant or NO_TENANT) if len(self._labels) < MAX_LABELS else OTHER
        return self._labels[tenant]

    @property
    def _today(self) -> int:
        return int(self._clock.wall_s() // _DAY_S)

    def _turn_day(self) -> None:
        if self._day != self._today:
            self._day = self._today
            self._used["characters"].clear()


def divided(total: int, num: int, which: int) -> int:
    """Return the ``which``-th of ``num`` parts of ``total``; all parts together are ``total``."""
    return total // num + (which < total % num)


def place_of(server: ServerConfig, cluster: ClusterConfig) -> tuple[int, int]:
    """Return the index of this server among the configured nodes, and their number."""
    names = sorted({*cluster.nodes, server.node_name})
    return names.index(server.node_name), len(names)
