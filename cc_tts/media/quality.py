"""How well a leg sounds, in numbers."""

from dataclasses import dataclass
from typing import Final

G711_BPL: Final = 25.1
"""Packet-loss robustness of G.711 with concealment (ITU-T G.113 Appendix I)."""
BASE_R: Final = 93.2
LOCAL_DELAY_MS: Final = 60.0
"""What packetisation and the far end's jitter buffer add to half a round trip, ms (an assumption)."""
_KNEE_MS: Final = 177.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """What RTCP (RFC 3550 §6.4) and the playout buffer say of a leg. Counts since its start; loss and jitter of what we
    receive.
    """

    packets_sent: int = 0
    packets_received: int = 0
    packets_lost: int = 0
    jitter_ms: float | None = None
    round_trip_ms: float | None = None
    underruns: int = 0
    late_frames: int = 0
    mos: float | None = None


def mean_opinion_score(*, loss: float, round_trip_ms: float) -> float:
    """The E-model's estimate for G.711 (ITU-T G.107, simplified): 1 to 4.5; ``loss`` is a fraction, 0 to 1."""
    delay_ms = round_trip_ms / 2 + LOCAL_DELAY_MS
    impairment = 0.024 * delay_ms + (0.11 * (delay_ms - _KNEE_MS) if delay_ms > _KNEE_MS else 0.0)
    loss_percent = 100 * loss
    r = BASE_R - impairment - 95 * loss_percent / (loss_percent + G711_BPL)
    r = min(100.0, max(0.0, r))
    return max(1.0, round(1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6, 2))
