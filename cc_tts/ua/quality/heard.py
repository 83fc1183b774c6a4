"""How we hear the far side of a leg, as VoIP metrics (RFC 3611 §4.7), from what RTCP counts each second.

PJMEDIA does not tell which packets are missing. So a burst is a run of seconds of which at least one packet in ``GMIN`` is
missing: 6.25 percent is the least density of a burst (§4.7.2). Runs on: the SIP thread.
"""

from dataclasses import dataclass, field
from typing import Final

from cc_tts.media.quality import (
    LOCAL_DELAY_MS,
    Quality,
    VoipMetrics,
    opinion_of,
    transmission_rating,
)
from cc_tts.ua.quality.xr import GMIN

SECOND_MS: Final = 1000
"""The interval at which the user agent looks at a leg (``WATCH_SLOTS``); unmeasured."""


@dataclass(slots=True)
class _Periods:
    """Bursts, or the gaps between them."""

    num: int = 0
    seconds: int = 0
    expected: int = 0
    missing: int = 0

    @property
    def mean_ms(self) -> int:
        return SECOND_MS * self.seconds // self.num if self.num else 0

    @property
    def density(self) -> float:
        return self.missing / self.expected if self.expected else 0.0


@dataclass(slots=True)
class Losses:
    """The losses of a call. It is told the counts since its beginning once a second."""

    _before: tuple[int, int] = (0, 0)
    _is_burst: bool | None = None
    _bursts: _Periods = field(default_factory=_Periods)
    _gaps: _Periods = field(default_factory=_Periods)

    def note(self, quality: Quality) -> None:
        received = quality.packets_received - self._before[0]
        lost = max(0, quality.packets_lost - self._before[1])  # a packet that was late is no longer lost
        self._before = (quality.packets_received, quality.packets_lost)
        expected = received + lost
        if expected <= 0:
            return
        is_burst = GMIN * lost >= expected
        periods = self._bursts if is_burst else self._gaps
        periods.num += is_burst is not self._is_burst
        periods.seconds += 1
        periods.expected += expected
        periods.missing += lost
        self._is_burst = is_burst

    def metrics(self, quality: Quality, *, jitter_buffer_ms: tuple[int, int] = (0, 0)) -> VoipMetrics:
        """Return how we hear the far side. ``jitter_buffer_ms``: its mean and its longest delay."""
        expected = quality.packets_received + quality.packets_lost
        loss = max(0.0, quality.packets_lost / expected) if expected else 0.0
        round_trip_ms = quality.round_trip_ms
        listening = transmission_rating(loss=loss, delay_ms=0.0) if expected else None
        talking = None
        if expected and round_trip_ms is not None:
            talking = transmission_rating(loss=loss, delay_ms=round_trip_ms / 2 + LOCAL_DELAY_MS)
        return VoipMetrics(
            loss_rate=loss,
            burst_density=self._bursts.density,
            gap_density=self._gaps.density,
            burst_ms=self._bursts.mean_ms,
            gap_ms=self._gaps.mean_ms,
            round_trip_ms=0 if round_trip_ms is None else round(round_trip_ms),
            r_factor=None if talking is None else round(talking),
            mos_lq=None if listening is None else opinion_of(listening),
            mos_cq=None if talking is None else opinion_of(talking),
            jitter_buffer_ms=jitter_buffer_ms[0],
            jitter_buffer_max_ms=jitter_buffer_ms[1],
        )
