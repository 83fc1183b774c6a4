"""How well a leg sounds, in numbers."""

import math
from dataclasses import dataclass
from typing import Final

G711_BPL: Final = 25.1
"""Packet-loss robustness of G.711 with concealment (ITU-T G.113 Appendix I)."""
BASE_R: Final = 93.2
LOCAL_DELAY_MS: Final = 60.0
"""The assumed delay of packetisation and of the far end's jitter buffer, added to half a round trip, ms (unmeasured)."""
_KNEE_MS: Final = 177.3
"""A longer delay impairs talk more (ITU-T G.107, as Cole and Rosenbluth simplify it)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoipMetrics:
    """How one side hears the other, since the beginning (RFC 3611 §4.7). ``_rate`` and ``_density`` are fractions, 0 to 1;
    levels are dBm0; ``None``: it does not say.
    """

    loss_rate: float = 0.0
    discard_rate: float = 0.0
    burst_density: float = 0.0
    gap_density: float = 0.0
    burst_ms: int = 0
    gap_ms: int = 0
    round_trip_ms: int = 0
    end_system_delay_ms: int = 0
    signal_dbm: int | None = None
    noise_dbm: int | None = None
    echo_return_loss_db: int | None = None
    r_factor: int | None = None
    mos_lq: float | None = None
    mos_cq: float | None = None
    jitter_buffer_ms: int = 0
    jitter_buffer_max_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The quality of a leg, as RTCP (RFC 3550 §6.4) and the playout buffer report it. Counts since the call began, over
    all of its streams; loss and jitter of what we receive. ``remote``: how the far side hears us, if it says so by RTCP-XR.
    """

    packets_sent: int = 0
    packets_received: int = 0
    packets_lost: int = 0
    jitter_ms: float | None = None
    round_trip_ms: float | None = None
    underruns: int = 0
    late_frames: int = 0
    mos: float | None = None
    remote: VoipMetrics | None = None


SILENCE_DBOV: Final = -127
_FULL_SCALE: Final = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """How loud a call was in the last second, at its loudest of the frames that were looked at: the mean amplitude of 20 ms,
    dB relative to overload (dBov as in RFC 6464), -127 to 0. ``received``: what we hear; ``sent``: what the far side hears.
    """

    received_dbov: int
    sent_dbov: int


def level_dbov(mean_amplitude: float) -> int:
    """The level of samples of 16 bits whose absolute values have this mean."""
    return max(SILENCE_DBOV, round(20 * math.log10(mean_amplitude / _FULL_SCALE))) if mean_amplitude else SILENCE_DBOV


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """The RTCP figures of one stream, or of the streams that a call has had one after another: each re-INVITE may make a new
    one, whose counts begin at 0.
    """

    packets_sent: int = 0
    packets_received: int = 0
    packets_lost: int = 0
    num_jitters: int = 0
    mean_jitter_ms: float = 0.0
    round_trip_ms: float | None = None
    """The last round trip that was measured."""

    def then(self, later: "StreamFigures") -> "StreamFigures":
        """Return these figures together with those of the next stream. Jitter is the mean of all measurements."""
        num_jitters = self.num_jitters + later.num_jitters
        sum_ms = self.num_jitters * self.mean_jitter_ms + later.num_jitters * later.mean_jitter_ms
        return StreamFigures(
            packets_sent=self.packets_sent + later.packets_sent,
            packets_received=self.packets_received + later.packets_received,
            packets_lost=self.packets_lost + later.packets_lost,
            num_jitters=num_jitters,
            mean_jitter_ms=sum_ms / num_jitters if num_jitters else 0.0,
            round_trip_ms=self.round_trip_ms if later.round_trip_ms is None else later.round_trip_ms,
        )

    def quality(self, *, underruns: int, late_frames: int, remote: VoipMetrics | None = None) -> Quality:
        """Return these figures with those of the playout buffer and of the far side."""
        expected, round_trip_ms, mos = self.packets_received + self.packets_lost, self.round_trip_ms, None
        if expected and round_trip_ms is not None:
            mos = mean_opinion_score(loss=self.packets_lost / expected, round_trip_ms=round_trip_ms)
        return Quality(
            packets_sent=self.packets_sent,
            packets_received=self.packets_received,
            packets_lost=self.packets_lost,
            jitter_ms=round(self.mean_jitter_ms, 2) if self.num_jitters else None,
            round_trip_ms=None if round_trip_ms is None else round(round_trip_ms, 2),
            underruns=underruns,
            late_frames=late_frames,
            mos=mos,
            remote=remote,
        )


def mean_opinion_score(*, loss: float, round_trip_ms: float) -> float:
    """The E-model's estimate for G.711 (ITU-T G.107, simplified): 1 to 4.5; ``loss`` is a fraction, 0 to 1."""
    return opinion_of(transmission_rating(loss=loss, delay_ms=round_trip_ms / 2 + LOCAL_DELAY_MS))


def transmission_rating(*, loss: float, delay_ms: float) -> float:
    """Return the E-model's R for G.711, 0 to 100. ``delay_ms`` 0: as somebody who only listens would rate it."""
    impairment = 0.024 * delay_ms + (0.11 * (delay_ms - _KNEE_MS) if delay_ms > _KNEE_MS else 0.0)
    loss_percent = 100 * loss
    return min(100.0, max(0.0, BASE_R - impairment - 95 * loss_percent / (loss_percent + G711_BPL)))


def opinion_of(r: float) -> float:
    """Return the mean opinion score for an R (ITU-T G.107 Annex B)."""
    return max(1.0, round(1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6, 2))
