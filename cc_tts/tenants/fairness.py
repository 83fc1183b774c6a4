"""Which tenants may begin to speak while the engine is busy, so that none keeps the others out. Runs on: the event loop."""

from collections.abc import Mapping
from typing import Final

from cc_tts.clock import NS_PER_S, Clock

BUSY: Final = 0.8
"""Up to this share of the engine's capacity every tenant may begin to speak."""
RESERVE: Final = 0.1
"""The share of the capacity that is kept for tenants below their share (unmeasured)."""
REFUSED_WINDOW_S: Final = 1.0
"""A tenant that the engine has refused counts as waiting for this time (unmeasured)."""
DEFAULT_WEIGHT: Final = 1.0
"""The weight of speech without a tenant."""


_ROUNDING: Final = 1e-6
"""The tolerance of sums of weights, in streams."""


class Fairness:
    """Compares each tenant's share of the running streams with the share of its weight."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_ns: dict[str, int] = {}

    def note_refused(self, tenant: str) -> None:
        """Note that the engine has just refused a stream of this tenant."""
        self._refused_ns[tenant] = self._clock.now_ns()

    def refuses(
        self, tenant: str, *, running: Mapping[str, int], weights: Mapping[str, float], utilisation: float
    ) -> bool:
        """Return whether a new stream of ``tenant`` is refused in favour of others. ``running``: the streams of each tenant
        now; ``weights``: of all configured tenants; ``utilisation``: of the engine's capacity, 0 to 1.
        """
        if utilisation <= BUSY:
            return False
        after_ns = self._clock.now_ns() - round(REFUSED_WINDOW_S * NS_PER_S)
        self._refused_ns = {name: at_ns for name, at_ns in self._refused_ns.items() if at_ns >= after_ns}
        speaking = {name for name, num in running.items() if num > 0}
        if utilisation > 1 - RESERVE and _is_above(tenant, speaking | weights.keys() | {tenant}, running, weights):
            return True
        active = speaking | self._refused_ns.keys() | {tenant}
        if not _is_above(tenant, active, running, weights):
            return False
        return any(not _is_above(name, active, running, weights) for name in self._refused_ns.keys() - {tenant})


def _is_above(tenant: str, parties: set[str], running: Mapping[str, int], weights: Mapping[str, float]) -> bool:
    """Return whether ``tenant`` has more of the running streams than its weight among ``parties`` allows."""
    num_running = sum(running.get(name, 0) for name in parties)
    weight = sum(weights.get(name, DEFAULT_WEIGHT) for name in parties)
    due = weights.get(tenant, DEFAULT_WEIGHT) / weight * num_running
    return running.get(tenant, 0) > due + _ROUNDING
