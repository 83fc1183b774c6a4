"""How many workers and nodes there should be, from their reports: for an autoscaler or an operator. It adds several at once
when capacity gets short, and removes one after a long calm, since a machine with a GPU takes minutes to start.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

from cc_tts.clock import NS_PER_S, Clock
from cc_tts.cluster.messages import Node
from cc_tts.pool.hosts import HostStatus

BUSY_UTILISATION: Final = 0.6  # unmeasured
BUSY_FOR_S: Final = 30.0  # unmeasured
CALM_UTILISATION: Final = 0.3  # unmeasured
CALM_FOR_S: Final = 15 * 60.0  # unmeasured
LATE_SHARE: Final = 0.7
"""The share of ``tts.first_audio_target_ms`` above which a predicted first audio is too late (unmeasured)."""
LATE_PERCENTILE: Final = 0.95  # unmeasured
REFUSED_FOR_S: Final = 60.0  # unmeasured
BUSY_LINES: Final = 0.65  # unmeasured
CALM_LINES: Final = 0.35  # unmeasured
CALM_LINES_FOR_S: Final = 30 * 60.0  # unmeasured


class _Since:
    """The time for which a condition has held, seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ns: int | None = None

    def held_s(self, *, holds: bool) -> float:
        """Evaluate the condition; 0 if it does not hold."""
        now_ns = self._clock.now_ns()
        if not holds:
            self._since_ns = None
            return 0.0
        if self._since_ns is None:
            self._since_ns = now_ns
        return (now_ns - self._since_ns) / NS_PER_S

    def again(self) -> None:
        self._since_ns = None


class ScaleHints:
    """Both numbers; :meth:`poll` with every look at hosts and nodes."""

    def __init__(self, clock: Clock, *, first_audio_target_ms: float) -> None:
        self._clock = clock
        self._late_ms = LATE_SHARE * first_audio_target_ms
        self._busy, self._calm, self._calm_lines = _Since(clock), _Since(clock), _Since(clock)
        self._first_audio: deque[tuple[int, float]] = deque()
        self._refused_ns: int | None = None
        self.wanted_workers = 1
        self.wanted_nodes = 1

    def poll(self, hosts: Sequence[HostStatus], nodes: Sequence[Node]) -> None:
        self.wanted_workers = self._workers([host for host in hosts if host.state not in ("draining", "drained")])
        self.wanted_nodes = self._nodes([node for node in nodes if not node.draining])

    def _workers(self, hosts: Sequence[HostStatus]) -> int:
        now_ns, num = self._clock.now_ns(), len(hosts)
        ready = [host for host in hosts if host.state == "ready"]
        total = sum(host.utilisation for host in ready)
        mean = total / len(ready) if ready else 0.0
        self._first_audio.extend((now_ns, host.first_audio_ms) for host in ready)
        while self._first_audio and now_ns - self._first_audio[0][0] > BUSY_FOR_S * NS_PER_S:
            self._first_audio.popleft()
        if any(host.is_refusing for host in ready):
            self._refused_ns = now_ns
        is_refused = self._refused_ns is not None and now_ns - self._refused_ns <= REFUSED_FOR_S * NS_PER_S
        is_busy = self._busy.held_s(holds=mean > BUSY_UTILISATION) >= BUSY_FOR_S
        is_late = _percentile([ms for _, ms in self._first_audio]) > self._late_ms
        if is_busy or is_late or is_refused:
            self._calm.again()
            return max(num + 1, math.ceil(total / BUSY_UTILISATION))
        if self._calm.held_s(holds=bool(ready) and mean < CALM_UTILISATION) >= CALM_FOR_S:
            return max(1, num - 1)
        return max(1, num)

    def _nodes(self, nodes: Sequence[Node]) -> int:
        calls, lines = sum(node.calls for node in nodes), sum(node.max_calls for node in nodes)
        share = calls / lines if lines else 0.0
        calm_s = self._calm_lines.held_s(holds=bool(lines) and share < CALM_LINES)
        if share > BUSY_LINES:
            return max(len(nodes) + 1, math.ceil(len(nodes) * share / BUSY_LINES))
        if calm_s >= CALM_LINES_FOR_S:
            return max(1, len(nodes) - 1)
        return max(1, len(nodes))


def _percentile(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * LATE_PERCENTILE))] if ordered else 0.0
